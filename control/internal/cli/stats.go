package cli

import "github.com/spf13/cobra"

func (a *app) stats() *cobra.Command {
	asJSON := false
	command := &cobra.Command{
		Use:   "stats [--json]",
		Short: "Show packets by verdict, connections, services and backends",
		Long: `Shows what millrace has counted since it started: what became of the packets, by
reason; the connections; each service with its backends; ports and workers.`,
		Example: `  millctl stats
  millctl stats --json | jq .packets.dropped`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if asJSON {
				return a.passOn(command, "/stats", nil)
			}
			stats, err := a.client().Stats(command.Context())
			if err != nil {
				return err
			}
			services, err := a.client().Services(command.Context())
			if err != nil {
				return err
			}
			showStats(a.out, &stats, services)
			return nil
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print millrace's JSON object unchanged; docs/stats.schema.json describes it")
	return command
}
