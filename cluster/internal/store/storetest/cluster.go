package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"millrace/control/cluster/internal/agent"
	"millrace/control/cluster/internal/manager"
	"millrace/control/cluster/internal/placement"
	"millrace/control/cluster/internal/records"
	"millrace/control/cluster/internal/store"
)

const (
	servers = 3
	shards  = 6
)

// RunCluster tries agents and managers with the store, in real time: one is cut off, one is killed, one drains.
func RunCluster(t *testing.T, backend Backend) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	observer, _ := backend.Open(t)
	initialize(ctx, t, observer)
	views := observer.Watch(ctx)
	var members [servers]*member
	for n := range members {
		members[n] = start(ctx, t, backend, records.ServerID(n+1))
	}
	await(t, views, "all shards have two copies in sync, and each server has some", func(view store.View) bool {
		return isWell(1, 2, 3)(view) && !isWell(1, 2)(view) && !isWell(1, 3)(view) && !isWell(2, 3)(view)
	})
	awaitRoutes(t, members[:], true, true, true)

	// A server is cut off from the store. It goes on, and its shards count as unsettled.
	members[0].link.Cut()
	view := await(t, views, "the others have all shards", isWell(2, 3))
	if !slices.ContainsFunc(shardsIn(view), func(shard records.Shard) bool { return slices.Contains(shard.Unsettled, members[0].self) }) {
		t.Error("a server that was cut off is settled")
	}
	if !members[0].announced() {
		t.Error("a server that was cut off has withdrawn its routes")
	}
	members[0].link.Heal()
	await(t, views, "the server that was cut off is settled", isSettled)

	// A server is killed, and another process starts there.
	members[1].kill()
	await(t, views, "the others have all shards", isWell(1, 3))
	members[1] = start(ctx, t, backend, 2)
	await(t, views, "nobody waits for the process that was killed", isSettled)

	// A server drains, until it has nothing.
	drain(ctx, t, observer, 3)
	awaitRoutes(t, members[:], true, true, false)
	await(t, views, "the server that drains has nothing", isWell(1, 2))
}

func initialize(ctx context.Context, t *testing.T, client store.Store) {
	t.Helper()
	var puts []store.Put
	put := func(key string, value any) {
		bytes, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		puts = append(puts, store.Put{Key: key, Value: bytes})
	}
	for n := range shards {
		put(records.ShardID(n).Key(), records.Shard{GrantCount: 8})
	}
	if err := client.Write(ctx, puts...); err != nil {
		t.Fatal(err)
	}
}

func drain(ctx context.Context, t *testing.T, client store.Store, id records.ServerID) {
	t.Helper()
	for {
		view, err := client.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		state, err := records.Parse(view, nil)
		if err != nil {
			t.Fatal(err)
		}
		server := state.Servers[id].Value
		server.Draining = true
		if err := client.Write(ctx, state.Servers[id].Put(id.Key(), server)); err == nil {
			return
		} else if !errors.Is(err, store.ErrConflict) {
			t.Fatal(err)
		}
	}
}

func shardsIn(view store.View) (all []records.Shard) {
	state, err := records.Parse(view, nil)
	if err != nil {
		return nil
	}
	for _, shard := range state.Shards {
		all = append(all, shard.Value)
	}
	return all
}

// isWell returns a condition: each shard has two copies in sync, on these servers, and both have grants.
func isWell(on ...records.ServerID) func(store.View) bool {
	return func(view store.View) bool {
		all := shardsIn(view)
		for _, shard := range all {
			if !slices.Contains(on, shard.Master.Server) || !slices.Contains(on, shard.Slave.Server) || !shard.InSync ||
				len(shard.GrantsOf(shard.Master)) == 0 || len(shard.GrantsOf(shard.Slave)) == 0 {
				return false
			}
		}
		return len(all) == shards
	}
}

func isSettled(view store.View) bool {
	for _, shard := range shardsIn(view) {
		if len(shard.Unsettled) > 0 {
			return false
		}
		for _, grant := range shard.Grants {
			if grant.Waits || grant.Holder != shard.Master && grant.Holder != shard.Slave {
				return false
			}
		}
	}
	return true
}

// awaitRoutes waits until those servers announce routes, and no others.
func awaitRoutes(t *testing.T, members []*member, want ...bool) {
	t.Helper()
	var is []bool
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		is = nil
		for _, member := range members {
			is = append(is, member.announced())
		}
		if slices.Equal(is, want) {
			return
		}
	}
	t.Errorf("routes are announced: %v instead of %v", is, want)
}

// member is a process with a dataplane that is always in sync.
type member struct {
	self   records.Member
	client store.Store
	link   Link
	cancel context.CancelFunc
	ends   sync.WaitGroup

	mu   sync.Mutex
	isOn bool
}

func start(ctx context.Context, t *testing.T, backend Backend, id records.ServerID) *member {
	t.Helper()
	m := &member{}
	m.client, m.link = backend.Open(t)
	ctx, m.cancel = context.WithCancel(ctx)
	var err error
	is := agent.Identity{Server: id, Instance: fmt.Sprint("instance", time.Now().UnixNano()), Address: fmt.Sprint("10.9.0.", id), Shards: shards}
	if m.self, err = agent.Register(ctx, m.client, is, agent.About{Name: fmt.Sprint("server", id), Capacity: 1}); err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.NewTextHandler(t.Output(), nil)).With("member", m.self)
	anAgent := agent.New(m.self, agent.Default, m, m, quiet)
	rules := placement.Default
	rules.Patience, rules.GiveUp, rules.Dwell, rules.ShardDwell, rules.Withdrawal = 500*time.Millisecond, 2*time.Second, time.Second, time.Second, 100*time.Millisecond
	aManager := manager.New(m.self, manager.Config{Rules: rules}, quiet)
	run := func(what func(context.Context, store.Store) error) {
		m.ends.Go(func() {
			if err := what(ctx, m.client); !errors.Is(err, context.Canceled) {
				t.Errorf("%v ended: %v", m.self, err)
			}
		})
	}
	run(anAgent.Run)
	run(aManager.Run)
	t.Cleanup(m.kill)
	return m
}

func (m *member) kill() {
	m.cancel()
	m.ends.Wait()
	_ = m.client.Close()
}

// Follow is Dataplane.Follow.
func (m *member) Follow(_ context.Context, orders agent.Orders) (agent.Answer, error) {
	addresses := map[string]string{}
	for _, peer := range orders.Peers {
		addresses[peer.Instance] = peer.Address
	}
	reports := map[records.ShardID]agent.Report{}
	for _, order := range orders.Shards {
		role := order.RoleOf(m.self)
		if role == agent.None {
			continue
		}
		// Both must be known to be reached.
		report := agent.Report{InSync: addresses[order.Master.Instance] != "" && addresses[order.Slave.Instance] != "", Load: 0.1, Wanted: 2}
		if role == agent.Master && len(order.Grants) > 2 {
			report.Withdrawn = order.Grants[2:]
		}
		reports[order.Shard] = report
	}
	return agent.Answer{Reports: reports}, nil
}

// Announce is Routes.Announce.
func (m *member) Announce(_ context.Context, isOn bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.isOn = isOn
	return nil
}

// Trouble is Routes.Trouble.
func (m *member) Trouble() string { return "" }

// Changed is Routes.Changed.
func (m *member) Changed() <-chan struct{} { return nil }

func (m *member) announced() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.isOn
}
