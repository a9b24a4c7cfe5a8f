package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"millrace/control/internal/balance"
)

func (a *app) stats() *cobra.Command {
	asJSON := false
	command := &cobra.Command{
		Use:   "stats [--json]",
		Short: "What became of the packets, and who got them",
		Long: `Shows what millrace has counted since it started: what became of the packets, by
reason; the connections; each service with its backends; ports and workers.`,
		Example: `  millctl stats
  millctl stats --json | jq .packets.dropped`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			body, err := a.client().Get(command.Context(), "/stats", nil)
			if err != nil {
				return err
			}
			defer body.Close()
			text, err := io.ReadAll(body)
			if err != nil {
				return brokeOff(err)
			}
			if asJSON {
				a.say("%s", strings.TrimRight(string(text), "\n"))
				return nil
			}
			var stats balance.Stats
			if err := json.Unmarshal(text, &stats); err != nil {
				return fmt.Errorf("the statistics were not understood: %w", err)
			}
			services, err := a.client().Services(command.Context())
			if err != nil {
				return err
			}
			showStats(a.out, &stats, services)
			return nil
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "the JSON object as it comes; docs/stats.schema.json describes it")
	return command
}
