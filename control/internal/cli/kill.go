package cli

import "github.com/spf13/cobra"

func (a *app) kill() *cobra.Command {
	all, silent := false, false
	command := &cobra.Command{
		Use:   "kill --PART VALUE... | --all",
		Short: "End connections",
		Long: `Ends the connections that match: removes their entries. If replies of a TCP
connection pass through millrace, each end whose next expected sequence number millrace has
seen gets a RST, and so does a client that waits for the answer to its SYN. With --silent,
and for other protocols, no end gets a packet. The next packet begins another connection,
which may get another backend. PART is a part of the filter: protocol, source,
..., customer. A connection must match all the given parts; "millctl connections" with the
same filter lists these connections.`,
		Example: `  millctl kill --backend 10.0.0.1:8000
  millctl kill --source 198.51.100.7 --state midstream
  millctl kill --customer access.100`,
		Args: cobra.NoArgs,
	}
	filter := filterFlags(command)
	command.Flags().BoolVar(&all, "all", false, "end every connection")
	command.Flags().BoolVar(&silent, "silent", false, "send no RST")
	command.RunE = func(command *cobra.Command, _ []string) error {
		query, err := filter()
		switch {
		case err != nil:
			return err
		case all && len(query) > 0:
			return usage("--all and a filter contradict each other: give one of them")
		case !all && len(query) == 0:
			return usage("no connections are selected: give a filter, as --backend 10.0.0.1:8000, or --all")
		case all:
			query.Set("all", "true")
		}
		if silent {
			query.Set("silent", "true")
		}
		killed, err := a.client().Kill(command.Context(), query)
		if err != nil {
			return err
		}
		a.say("%s ended", count(uint64(killed), "connection"))
		return nil
	}
	return command
}
