package cli

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"

	"github.com/spf13/cobra"

	"millrace/control/cluster/internal/records"
	"millrace/control/internal/commandline"
)

const bySSH = `ssh "$MILLRACE_NAME" systemctl restart 'millrace@*.service'`

func (a *app) upgrade() *cobra.Command {
	restart := bySSH
	command := &cobra.Command{
		Use:   "upgrade [--restart COMMAND] [SERVER...]",
		Short: "Restart server by server, without an interruption",
		Long: `Takes servers, or all, out of use, one after the other. When a server has no shards, runs a command of the shell that
restarts its millrace, with MILLRACE_SERVER and MILLRACE_NAME in its environment; waits until the new process is there, takes the server
into use, and goes on when all shards have two copies in sync. With NAT a server waits for two minutes until the ports have rested
that the others have got, so that new sessions get ports. Install the new version on all servers before. If a step fails,
the server stays out of use, and the others are as they were.`,
		Example: `  millctl cluster upgrade
  millctl cluster upgrade --restart 'ssh root@$MILLRACE_NAME "systemctl restart millrace@a millctl-cluster"' two three`,
		RunE: a.with(func(ctx context.Context, c *cluster, args []string) error {
			state, err := c.state(ctx)
			if err != nil {
				return err
			}
			names := args
			if len(names) == 0 {
				for _, id := range slices.Sorted(maps.Keys(state.Servers)) {
					if state.IsPresent(newest(state, id)) {
						names = append(names, state.Servers[id].Value.Name)
					}
				}
			}
			for _, name := range names {
				id, err := serverOf(state, name)
				if err == nil && !state.IsPresent(newest(state, id)) {
					err = commandline.Usage("%s is not present: leave it out", name)
				}
				if err != nil {
					return err
				}
			}
			if err := c.awaitSync(ctx); err != nil {
				return err
			}
			for _, name := range names {
				if err := c.renew(ctx, name, restart); err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
			}
			return nil
		}),
	}
	command.Flags().StringVar(&restart, "restart", restart, "restarts the server's millrace")
	return command
}

// renew restarts one server.
func (c *cluster) renew(ctx context.Context, name, restart string) error {
	state, err := c.state(ctx)
	if err != nil {
		return err
	}
	id, err := serverOf(state, name)
	if err != nil {
		return err
	}
	server, was := state.Servers[id].Value, newest(state, id)
	if err := c.takeOut(ctx, name); err != nil {
		return err
	}
	if err := c.awaitDrained(ctx, name); err != nil {
		return err
	}
	c.say("%s: %s", name, restart)
	command := exec.CommandContext(ctx, "sh", "-c", restart)
	command.Env = append(os.Environ(), fmt.Sprint("MILLRACE_SERVER=", id), "MILLRACE_NAME="+server.Name)
	command.Stdout, command.Stderr = c.out, c.err
	if err := command.Run(); err != nil {
		return fmt.Errorf("the command has failed (%w); the server is out of use: millctl cluster return %s", err, name)
	}
	if err := c.await(ctx, func(state *records.State) string {
		if is := newest(state, id); is.Process != was.Process && state.InstanceOf(is) != state.InstanceOf(was) && state.IsPresent(is) && state.Present[is].Unwell == "" {
			return ""
		}
		return "waiting until " + name + " is there again"
	}); err != nil {
		return err
	}
	if !server.IsInUse() { // nor was it before
		return c.awaitSync(ctx)
	}
	if err := c.takeIn(ctx, name); err != nil {
		return err
	}
	c.say("%s is in use", name)
	return c.awaitSync(ctx)
}

// awaitSync waits until all shards have two copies in sync, and nobody is waited for.
func (c *cluster) awaitSync(ctx context.Context) error {
	return c.await(ctx, func(state *records.State) string {
		for _, shard := range reportOf("", state).Shards {
			if len(shard.Troubles) > 0 || !shard.Settled || shard.Epoch == 0 {
				return "waiting until all shards have two copies in sync" + because(state)
			}
		}
		return ""
	})
}
