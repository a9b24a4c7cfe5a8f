package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"millrace/control/cluster/internal/records"
	"millrace/control/cluster/internal/store"
)

// Identity is how a dataplane is known to the others.
type Identity struct {
	Server   records.ServerID
	Instance string // empty: nobody will run under the number that is taken
	Address  string
	Shards   uint32 // of the cluster
	Wanted   uint32 // how many grants each copy here should have, until it says so itself
}

// About is what a server's configuration says of it.
type About struct {
	Name     string
	Rack     string
	Capacity float64 // packets a second
}

// ErrMisfit is returned if a server does not fit into the cluster.
var ErrMisfit = errors.New("the server does not fit into the cluster")

// Register makes this process the newest one of its server, so that each earlier one is gone. The server's dataplane must follow no orders. The first
// process of a cluster makes the records of its shards.
func Register(ctx context.Context, in store.Store, is Identity, about About) (records.Member, error) {
	for {
		member, err := register(ctx, in, is, about)
		if err == nil || ctx.Err() != nil || errors.Is(err, ErrMisfit) {
			return member, err
		}
		// If a write was done and its answer was lost, then that number is of nobody.
		if !errors.Is(err, store.ErrConflict) {
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}
}

func register(ctx context.Context, in store.Store, is Identity, about About) (records.Member, error) {
	view, err := in.Read(ctx)
	if err != nil {
		return records.Member{}, fmt.Errorf("server %d cannot read the store: %w", is.Server, err)
	}
	state, err := records.Parse(view, nil)
	if err != nil {
		return records.Member{}, fmt.Errorf("server %d cannot register: %w", is.Server, errors.Join(ErrMisfit, err))
	}
	if err := makeShards(ctx, in, state, is.Shards); err != nil {
		return records.Member{}, err
	}
	for id, other := range state.Servers {
		if id != is.Server && other.Value.Name == about.Name {
			return records.Member{}, fmt.Errorf("%w: its millrace has the number %d (cluster.server), but the name %s is that of server %d: each server needs a number and a name of its own",
				ErrMisfit, is.Server, about.Name, id)
		}
	}
	record := state.Servers[is.Server]
	next := record.Value.Next(is.Instance, is.Address)
	next.Name, next.Rack, next.Capacity, next.Wanted = about.Name, about.Rack, about.Capacity, is.Wanted
	if err := in.Write(ctx, record.Put(is.Server.Key(), next)); err != nil {
		return records.Member{}, fmt.Errorf("server %d cannot register: %w", is.Server, err)
	}
	return records.Member{Server: is.Server, Process: next.Process}, nil
}

// most is how many records a write to etcd may have.
const most = 100

// makeShards makes the records of shards that are missing, and gives grants to those without any.
func makeShards(ctx context.Context, in store.Store, state *records.State, count uint32) error {
	cluster := state.Cluster.Value
	if cluster.Shards == 0 {
		cluster.Shards = count
		if err := in.Write(ctx, state.Cluster.Put(records.ClusterKey, cluster)); err != nil {
			return fmt.Errorf("the cluster's record cannot be made: %w", err)
		}
	}
	if cluster.Shards != count {
		return fmt.Errorf("%w: it has %d shards, and this server's millrace has %d: spread.entries must be alike on all servers", ErrMisfit, cluster.Shards, count)
	}
	var puts []store.Put
	for id := range records.ShardID(count) {
		if shard := state.Shards[id]; shard.Value.GrantCount == 0 { // there is none, or it is of a version without grants
			next := shard.Value.Clone()
			next.GrantCount = records.GrantCount
			puts = append(puts, shard.Put(id.Key(), next))
		}
	}
	for ; len(puts) > 0; puts = puts[min(most, len(puts)):] {
		if err := in.Write(ctx, puts[:min(most, len(puts))]...); err != nil {
			return fmt.Errorf("the records of shards cannot be made: %w", err)
		}
	}
	return nil
}

// Leave says that the member's dataplane has given everything up, and that no process follows it for now: nobody needs to wait for it.
func Leave(ctx context.Context, in store.Store, self records.Member) error {
	for {
		view, err := in.Read(ctx)
		if err != nil {
			return fmt.Errorf("%v cannot read the store: %w", self, err)
		}
		state, err := records.Parse(view, nil)
		if err != nil {
			return fmt.Errorf("%v cannot leave: %w", self, err)
		}
		server := state.Servers[self.Server]
		if server.Value.Process != self.Process {
			return nil
		}
		if err := in.Write(ctx, server.Put(self.Server.Key(), server.Value.Next("", ""))); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
}
