package cli

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"millrace/control/internal/api"
)

// countedWords returns the words for one of the things that a count of the configuration is named after: "NAT rule" for nat_rules.
func countedWords(name string) string {
	words := strings.ReplaceAll(strings.TrimSuffix(name, "s"), "_", " ")
	if rest := strings.TrimPrefix(words, "nat "); rest != words {
		return "NAT " + rest
	}
	return words
}

func (a *app) reload() *cobra.Command {
	return &cobra.Command{
		Use:   "reload",
		Short: "Make millrace read its configuration again",
		Long: `Makes millrace read its configuration file again. Connections go on, except those
whose backends are no longer listed (docs/balance.md), those that the firewall's rules no
longer accept (docs/firewall.md), and sessions of NAT whose public end their customer can
have no longer (docs/nat.md). If the file is wrong, or changes settings that cannot
change while millrace runs, every problem is shown and nothing changes.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			now, err := a.client().Reload(command.Context())
			var refused *api.Refused
			if errors.As(err, &refused) && refused.Status == http.StatusUnprocessableEntity {
				return fmt.Errorf("the configuration is wrong, nothing has changed:\n%w", err)
			}
			if err != nil {
				return err
			}
			for _, warning := range now.Warnings {
				a.warn(warning)
			}
			text := ""
			for _, one := range now.Counts {
				text += count(one.Count, countedWords(one.Name)) + ", "
			}
			a.say("%sin %.1f ms; %s ended", text, now.TookMs, count(now.Ended, "connection"))
			return nil
		},
	}
}
