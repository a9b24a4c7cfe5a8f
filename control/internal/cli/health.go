package cli

import (
	"github.com/spf13/cobra"

	"millrace/control/internal/health"
)

func (a *app) health() *cobra.Command {
	return &cobra.Command{
		Use:   "health",
		Short: "Check the backends, and report to millrace which are healthy",
		Long: `Checks every backend of each service that has "health" in its configuration, and reports
to millrace when a backend becomes unhealthy, after "fall" failures in a row, or healthy,
after "rise" good checks in a row. Runs until it is interrupted. Follows changes of the
configuration, and reports the states again to a restarted millrace. When "millctl health"
ends, millrace keeps the states.

Checks go from this machine through the kernel's network, not through millrace:
  tcp    the connection is accepted
  http   GET of the path is answered with 2xx or 3xx
  icmp   the echo is answered; needs CAP_NET_RAW, or a group in net.ipv4.ping_group_range`,
		Example: "  millctl health",
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			runner := health.Runner{
				Client: a.client(),
				Try:    health.Try,
				Log:    func(line string) { a.say("%s", line) },
			}
			return runner.Run(command.Context())
		},
	}
}
