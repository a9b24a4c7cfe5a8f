package cli

import "github.com/spf13/cobra"

func (a *app) drain() *cobra.Command {
	service, undo := "", false
	command := &cobra.Command{
		Use:   "drain BACKEND [--service SERVICE] [--undo]",
		Short: "Give a backend no new connections",
		Long: `Gives a backend no new connections, in every service that has it or in one; its connections
go on. The drain lasts until --undo, or until millrace ends; a reload does not change it.
BACKEND is the name that "millctl stats" shows: 10.0.0.1:8000, or 10.0.0.1 without a port.`,
		Example: `  millctl drain 10.0.0.1:8000
  millctl connections --backend 10.0.0.1:8000   # its remaining connections
  millctl drain 10.0.0.1:8000 --undo`,
		Args: exactly("BACKEND"),
		RunE: func(command *cobra.Command, args []string) error {
			services, err := a.client().Mark(command.Context(), "drain", service, args[0], !undo)
			if err != nil {
				return err
			}
			gets := "gets no new connections"
			if undo {
				gets = "gets new connections again"
			}
			a.say("%s %s, in %s", args[0], gets, count(uint64(services), "service"))
			return nil
		},
	}
	command.Flags().Var(text{&service, "SERVICE"}, "service", "drain only in this service, as 203.0.113.10:80/tcp")
	command.Flags().BoolVar(&undo, "undo", false, "give the backend new connections again")
	return command
}
