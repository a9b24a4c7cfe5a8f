package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

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
		Long: `Takes a server out of use, and waits until it has no shard. The server withdraws its routes; from a second later on slaves in sync
take its place, and other servers get copies. With NAT a slave first waits until half of its ports have rested: two minutes after the
servers of its shard last changed in most cases, five at most. If there is no other server that could have a copy, the server keeps it as a slave.
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
	is, stuck := drained{}, error(nil)
	least, since := -1, time.Now() // shards that it is the master of, and since when
	err := c.await(ctx, func(state *records.State) string {
		id, err := serverOf(state, name)
		if err != nil {
			return err.Error()
		}
		is = drainedOf(state, id)
		if is.masters == 0 && is.slaves == is.stays {
			for _, shard := range state.Shards { // where the new copies are
				if !shard.Value.InSync && state.IsPresent(shard.Value.Slave) {
					return "waiting until the copies at other servers are in sync" + because(state)
				}
			}
			return ""
		}
		if least < 0 || is.masters < least {
			least, since = is.masters, time.Now()
		}
		patience := c.rest
		if is.hopeless == is.masters {
			patience = min(patience, whileReported)
		}
		if len(is.refused) > 0 && time.Since(since) > patience {
			stuck = fmt.Errorf("%s is out of use, and stays the master of %d shards: %s. millctl cluster return %s takes it into use again", name, is.masters, is.refusals(), name)
			return ""
		}
		text := fmt.Sprintf("%s is the master of %d shards, and the slave of %d", name, is.masters, is.slaves)
		if is.rest > 0 {
			text += fmt.Sprintf("; waits until ports have rested: %d shards", is.rest)
		}
		if len(is.refused) > 0 {
			text += "; " + is.refusals()
		}
		return text
	})
	switch {
	case err != nil || stuck != nil:
		return cmp.Or(err, stuck)
	case is.stays > 0:
		c.say("%s is out of use, and stays the slave of %d shards, as no other server can be", name, is.stays)
	default:
		c.say("%s is out of use, and has no shards", name)
	}
	return nil
}

// whileReported is how long a state must last that only reports could change.
const whileReported = 10 * time.Second

// drained is how far a server is with giving its shards to others.
type drained struct {
	masters, slaves int
	stays           int                      // slaves that it must keep
	rest            int                      // shards whose slaves wait for ports
	refused         map[records.ServerID]int // shards whose slaves refused connections, by their servers
	hopeless        int                      // those of them for which there is no other server
}

func drainedOf(state *records.State, id records.ServerID) drained {
	is := drained{refused: map[records.ServerID]int{}}
	is.masters, is.slaves = copies(state, id)
	for _, record := range state.Shards {
		shard := record.Value
		if shard.Slave.Server == id && !hasOther(state, id, shard.Master.Server) {
			is.stays++
		}
		switch {
		case shard.Master != newest(state, id) || !shard.InSync:
		case shard.LacksConnections:
			is.refused[shard.Slave.Server]++
			if !hasOther(state, id, shard.Slave.Server) {
				is.hopeless++
			}
		case !shard.CouldOpen():
			is.rest++
		}
	}
	return is
}

func (d drained) refusals() string {
	var texts []string
	for _, id := range slices.Sorted(maps.Keys(d.refused)) {
		texts = append(texts, records.Refusal(d.refused[id], id))
	}
	return strings.Join(texts, "; ")
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
With NAT it waits until half of the ports there have rested, for five minutes at most: until then new sessions would get none.
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
	waited := uint64(0) // the epoch in which ports have been waited for long enough
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
		case shard.Slave == to && shard.InSync && shard.LacksConnections:
			return fmt.Errorf("%s, so it does not become the master of shard %d", records.Refusal(1, server), id)
		case shard.Slave == to && shard.InSync && !shard.CouldOpen() && shard.Epoch != waited:
			if err := c.awaitPorts(ctx, id, shard.Epoch, name); err != nil {
				return err
			}
			waited = shard.Epoch
			continue
		case shard.Slave == to && shard.InSync:
			manager.Assign(&shard, to, shard.Master)
		case shard.Slave == to || !shard.InSync && state.IsPresent(shard.Slave):
			// The slave is on its way.
			if err := c.await(ctx, func(state *records.State) string {
				if is := state.Shards[id].Value; is.InSync || is.Epoch != shard.Epoch {
					return ""
				}
				return fmt.Sprintf("waiting until the slave of shard %d is in sync", id) + because(state)
			}); err != nil {
				return err
			}
			pause(ctx, time.Second) // until the slave has said whether it refused connections
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

// awaitPorts waits until the shard's slave could open connections as its master, but no longer than a manager does, or until the shard has other servers.
func (c *cluster) awaitPorts(ctx context.Context, id records.ShardID, epoch uint64, name string) error {
	until := time.Now().Add(c.rest)
	return c.awaitSaying(ctx, c.err, func(state *records.State) string {
		if is := state.Shards[id].Value; is.Epoch != epoch || is.InSync && is.CouldOpen() || !time.Now().Before(until) {
			return ""
		}
		return fmt.Sprintf("waiting until ports of shard %d have rested at %s, for %v at most", id, name, c.rest)
	})
}

// because returns what may be in the way of copies, for the end of a line.
func because(state *records.State) string {
	troubles := state.ClusterTroubles()
	if len(troubles) == 0 {
		return ""
	}
	return " (" + strings.Join(troubles, "; ") + ")"
}

func pause(ctx context.Context, length time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(length):
	}
}
