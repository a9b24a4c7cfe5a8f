package cli

import "github.com/spf13/cobra"

func (a *app) reload() *cobra.Command {
	return &cobra.Command{
		Use:   "reload",
		Short: "Have the configuration read again",
		Long: `Has millrace read its configuration file again. Tracked connections keep their backends.
Where the file is wrong, or changes what cannot be changed while it runs, every problem
is shown and nothing changes.`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			now, err := a.client().Reload(command.Context())
			if err != nil {
				return err
			}
			for _, warning := range now.Warnings {
				a.warn(warning)
			}
			a.say("%s, %s, in %.1f ms", count(now.Services, "service"), count(now.Backends, "backend"), now.TookMs)
			return nil
		},
	}
}
