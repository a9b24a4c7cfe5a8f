package cli

import (
	"log/slog"

	"github.com/spf13/cobra"

	"millrace/control/cluster/internal/agent"
	"millrace/control/cluster/internal/node"
	"millrace/control/internal/commandline"

	"errors"
)

func (a *app) agent() *cobra.Command {
	return &cobra.Command{
		Use:   "agent",
		Short: "Run this server's agent",
		Long: `Runs this server's agent until it is interrupted, or ended by SIGTERM; the server then leaves the cluster. The agent tells
the millrace on this machine which shards it has, and announces routes to the switches. One of all agents also
places the shards: there is no manager to run beside them, since it would need the same store and the same
election, and one more program to watch.`,
		Example: `  millctl cluster agent --config /etc/millrace/cluster/agent.toml`,
		Args:    commandline.NoArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			c, err := a.config()
			if err != nil {
				return err
			}
			if err := node.Lock(a.path); err != nil {
				return err
			}
			client, err := c.Open(slog.New(slog.DiscardHandler)) // certificates are read: etcd would only wait with wrong ones
			if err != nil {
				return commandline.UnopenedFile{Err: err}
			}
			_ = client.Close()
			err = node.Run(command.Context(), c, slog.New(slog.NewTextHandler(a.err, nil)))
			switch {
			case errors.Is(err, agent.ErrMisfit):
				return commandline.Usage("%v", err)
			case errors.Is(err, node.ErrEtcd):
				return commandline.UnopenedFile{Err: err}
			}
			return err
		},
	}
}
