package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"millrace/control/cluster/internal/manager"
	"millrace/control/cluster/internal/records"
	"millrace/control/cluster/internal/store"
	"millrace/control/internal/commandline"
)

// with opens the store for a command.
func (a *app) with(do func(ctx context.Context, c *cluster, args []string) error) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, args []string) error {
		c, err := a.open()
		if err != nil {
			return err
		}
		defer c.Close()
		return do(command.Context(), c, args)
	}
}

func (a *app) drain() *cobra.Command {
	noWait := false
	command := &cobra.Command{
		Use:   "drain SERVER [--no-wait]",
		Short: "Take a server out of use",
		Long: `Takes a server out of use, and waits until it has no shard. The server withdraws its routes; a second later slaves in sync
take its place, and other servers get copies. If there is no other server that could have a copy, the server keeps it as a slave.
The server stays out of use until "millctl cluster return".`,
		Example: `  millctl cluster drain two`,
		Args:    commandline.Exactly("SERVER"),
		RunE: a.with(func(ctx context.Context, c *cluster, args []string) error {
			if err := c.takeOut(ctx, args[0]); err != nil || noWait {
				return err
			}
			return c.awaitDrained(ctx, args[0])
		}),
	}
	command.Flags().BoolVar(&noWait, "no-wait", false, "return at once")
	return command
}

func (c *cluster) takeOut(ctx context.Context, name string) error {
	_, err := c.change(ctx, name, func(state *records.State, id records.ServerID, server *records.Server) error {
		if !hasOther(state, id) {
			return fmt.Errorf("%s is the only server that is up and in use: no other one can take its shards over", server.Name)
		}
		server.Draining = true
		return nil
	})
	return err
}

// hasOther returns true if packets may come to another server.
func hasOther(state *records.State, not ...records.ServerID) bool {
	for id, server := range state.Servers {
		if !slices.Contains(not, id) && server.Value.IsInUse() && state.IsPresent(newest(state, id)) {
			return true
		}
	}
	return false
}

func (c *cluster) awaitDrained(ctx context.Context, name string) error {
	stays := 0
	err := c.await(ctx, func(state *records.State) string {
		id, err := serverOf(state, name)
		if err != nil {
			return err.Error()
		}
		masters, slaves := copies(state, id)
		stays = 0
		for _, shard := range state.Shards { // of which it must keep the slave
			if shard.Value.Slave.Server == id && !hasOther(state, id, shard.Value.Master.Server) {
				stays++
			}
		}
		if masters == 0 && slaves == stays {
			for _, shard := range state.Shards { // where the new copies are
				if !shard.Value.InSync && state.IsPresent(shard.Value.Slave) {
					return "waiting until the copies at other servers are in sync"
				}
			}
			return ""
		}
		return fmt.Sprintf("%s is the master of %d shards, and the slave of %d", name, masters, slaves)
	})
	switch {
	case err != nil:
		return err
	case stays > 0:
		c.say("%s is out of use, and stays the slave of %d shards, as no other server can be", name, stays)
	default:
		c.say("%s is out of use, and has no shards", name)
	}
	return nil
}

func (a *app) giveBack() *cobra.Command {
	return &cobra.Command{
		Use:     "return SERVER",
		Short:   "Take a server into use again that was drained",
		Long:    `Takes a server into use again that was drained. It gets packets at once, copies where they are missing, and its share of the shards by and by, from two minutes on.`,
		Example: `  millctl cluster return two`,
		Args:    commandline.Exactly("SERVER"),
		RunE: a.with(func(ctx context.Context, c *cluster, args []string) error {
			if err := c.takeIn(ctx, args[0]); err != nil {
				return err
			}
			c.say("%s is in use", args[0])
			return nil
		}),
	}
}

func (c *cluster) takeIn(ctx context.Context, name string) error {
	_, err := c.change(ctx, name, func(_ *records.State, _ records.ServerID, server *records.Server) error {
		server.Draining, server.Spare = false, false
		return nil
	})
	return err
}

func (a *app) gone() *cobra.Command {
	return &cobra.Command{
		Use:   "gone SERVER",
		Short: "Say that a lost server's millrace has ended for good",
		Long: `Says that the millrace of a server that is lost has ended: the machine is off, or will be started anew. So nobody waits for it any
more, and ports that its connections used may go to other customers, after a rest. If the process is
not gone, but cut off, two customers may get the same port. It is refused while the server is present. A server that is started again is part of the cluster again.`,
		Example: `  millctl cluster gone three`,
		Args:    commandline.Exactly("SERVER"),
		RunE: a.with(func(ctx context.Context, c *cluster, args []string) error {
			_, err := c.change(ctx, args[0], func(state *records.State, id records.ServerID, server *records.Server) error {
				if state.IsPresent(newest(state, id)) {
					return fmt.Errorf("%s is present: drain it, or stop its agent", server.Name)
				}
				*server = server.Next("", "")
				return nil
			})
			if err == nil {
				c.say("nobody waits for %s any more", args[0])
			}
			return err
		}),
	}
}

func (a *app) move() *cobra.Command {
	return &cobra.Command{
		Use:   "move SHARD SERVER",
		Short: "Make a server the master of a shard",
		Long: `Makes a server the master of a shard: first it gets the slave's copy, if it has none, and when that is in sync, the two swap roles.
Levelling may move the shard on later.`,
		Example: `  millctl cluster move 17 two`,
		Args:    commandline.Exactly("SHARD", "SERVER"),
		RunE: a.with(func(ctx context.Context, c *cluster, args []string) error {
			shard, err := strconv.ParseUint(args[0], 10, 32)
			if err != nil {
				return commandline.Usage("SHARD: %q is no number: millctl cluster status --shards lists shards", args[0])
			}
			return c.moveShard(ctx, records.ShardID(shard), args[1])
		}),
	}
}

func (c *cluster) moveShard(ctx context.Context, id records.ShardID, name string) error {
	for {
		state, err := c.state(ctx)
		if err != nil {
			return err
		}
		server, err := serverOf(state, name)
		if err != nil {
			return err
		}
		record, is := state.Shards[id]
		if !is {
			return commandline.Usage("there is no shard %d: the last one is %d", id, slices.Max(slices.Collect(maps.Keys(state.Shards))))
		}
		shard, to := record.Value.Clone(), newest(state, server)
		switch {
		case shard.Master == to:
			c.say("%s is the master of shard %d", name, id)
			return nil
		case !state.IsPresent(to) || !state.Servers[server].Value.IsInUse():
			return fmt.Errorf("%s is not up, or not in use: it can be the master of nothing", name)
		case shard.Slave == to && shard.InSync:
			manager.Assign(&shard, to, shard.Master)
		case shard.Slave == to || !shard.InSync && state.IsPresent(shard.Slave):
			// The slave is on its way.
			if err := c.await(ctx, func(state *records.State) string {
				if is := state.Shards[id].Value; is.InSync || is.Epoch != shard.Epoch {
					return ""
				}
				return fmt.Sprintf("waiting until the slave of shard %d is in sync", id)
			}); err != nil {
				return err
			}
			continue
		case shard.Master.IsNone() || !state.IsPresent(shard.Master):
			return fmt.Errorf("shard %d has no master that is present: its manager finds one", id)
		default:
			manager.Assign(&shard, shard.Master, to)
		}
		if err := c.Write(ctx, record.Put(id.Key(), shard)); err != nil && !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}
