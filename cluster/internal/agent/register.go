package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
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
	if err := makeShards(ctx, in, view, state, is.Shards); err != nil {
		return records.Member{}, err
	}
	if err := fits(state, is, about); err != nil {
		return records.Member{}, err
	}
	record := state.Servers[is.Server]
	next := record.Value.Next(is.Instance, is.Address)
	next.Name, next.Rack, next.Capacity, next.Wanted = about.Name, about.Rack, about.Capacity, is.Wanted
	if err := in.Write(ctx, record.Put(is.Server.Key(), next)); err != nil {
		return records.Member{}, fmt.Errorf("server %d cannot register: %w", is.Server, err)
	}
	return records.Member{Server: is.Server, Process: next.Process}, nil
}

// mostServers is how many servers millrace can have to do with: Placement::kMostPeers of src/worker/placement.h, and itself.
const mostServers = 63

// fits returns why the server cannot be one of the cluster: with it in the store, the dataplanes of others would refuse their orders, or lose their part.
func fits(state *records.State, is Identity, about About) error {
	misfit := func(format string, values ...any) error {
		return fmt.Errorf("%w: "+format, append([]any{ErrMisfit}, values...)...)
	}
	own, count := state.Servers[is.Server].Value, 1
	if newest := (records.Member{Server: is.Server, Process: own.Process}); state.IsPresent(newest) && (own.Name != about.Name || own.Address != is.Address) {
		return misfit("server %d is there already, with the name %s and the address %s: give this one another number (cluster.server of millrace)",
			is.Server, own.Name, own.Address)
	}
	if number, err := strconv.ParseUint(about.Name, 10, 32); err == nil && records.ServerID(number) != is.Server {
		return misfit("its name is %s, and its number %d: commands could take it for another server", about.Name, is.Server)
	}
	address, err := netip.ParseAddr(is.Address)
	for _, id := range slices.Sorted(maps.Keys(state.Servers)) {
		other := state.Servers[id].Value
		if id == is.Server {
			continue
		}
		if other.Name == about.Name {
			return misfit("its millrace has the number %d (cluster.server), but the name %s is that of server %d: each server needs a number and a name of its own",
				is.Server, about.Name, id)
		}
		if state.InstanceOf(records.Member{Server: id, Process: other.Process}) == "" {
			continue // it is gone
		}
		count++
		others, errOther := netip.ParseAddr(other.Address)
		switch {
		case err != nil || errOther != nil:
		case others == address:
			return misfit("server %d (%s) has the address %v, too", id, other.Name, address)
		case others.Is4() != address.Is4():
			return misfit("server %d (%s) has the address %v, and this one %v: all servers need one of the same family (cluster.address of millrace)",
				id, other.Name, others, address)
		}
	}
	if count > mostServers {
		return misfit("%d servers are the most", mostServers)
	}
	return nil
}

// most is how many records a write to etcd may have.
const most = 100

// makeShards makes the records of shards that are missing, and gives grants to those without any.
func makeShards(ctx context.Context, in store.Store, view store.View, state *records.State, count uint32) error {
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
		if _, has := state.Shards[id]; !has && view.Records[id.Key()].Revision != 0 {
			continue // it names a process of a server that has no record
		}
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
