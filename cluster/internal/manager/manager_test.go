package manager_test

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"millrace/control/cluster/internal/manager"
	"millrace/control/cluster/internal/placement"
	"millrace/control/cluster/internal/records"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

func member(server records.ServerID, process uint32) records.Member {
	return records.Member{Server: server, Process: process}
}

// newState returns a state with three servers, whose newest processes are their second ones, all present. 1.2 leads.
func newState(shard records.Shard) *records.State {
	state := &records.State{Leader: records.Record[records.Leader]{Value: records.Leader{Member: member(1, 2), Term: 3}, Revision: 9},
		Servers: map[records.ServerID]records.Record[records.Server]{},
		Shards:  map[records.ShardID]records.Record[records.Shard]{5: {Value: shard, Revision: 7}}, Present: map[records.Member]records.Presence{}}
	for id := range records.ServerID(3) {
		state.Servers[id+1] = records.Record[records.Server]{Value: records.Server{Capacity: 1, Process: 2}, Revision: 1}
		state.Present[member(id+1, 2)] = records.Presence{}
	}
	return state
}

func newManager(self records.Member) *manager.Manager {
	return manager.New(self, manager.Config{Rules: placement.Default}, quiet)
}

// next returns the shard's record that the leader writes; the one that there is if it writes none.
func next(t *testing.T, m *manager.Manager, now time.Duration, state *records.State) records.Shard {
	t.Helper()
	shard := state.Shards[5].Value
	for _, write := range m.Step(now, state) {
		if len(write.Puts) != 2 || write.Puts[0].Revision != 7 || write.Puts[1].Key != records.LeaderKey || write.Puts[1].Revision != 9 || write.Puts[1].Value != nil || write.Reason == "" {
			t.Fatalf("a write without a fence or a reason: %+v", write)
		}
		shard = records.Shard{}
		if err := json.Unmarshal(write.Puts[0].Value, &shard); err != nil {
			t.Fatal(err)
		}
	}
	return shard
}

func TestElection(t *testing.T) {
	state := newState(records.Shard{})
	if writes := newManager(member(2, 2)).Step(0, state); len(writes) != 0 {
		t.Errorf("a manager that does not lead writes %+v", writes)
	}
	delete(state.Present, member(1, 2))
	writes := newManager(member(2, 2)).Step(0, state)
	if len(writes) != 1 || string(writes[0].Puts[0].Value) != `{"member":"2.2","term":4}` || writes[0].Puts[0].Revision != 9 {
		t.Errorf("without a leader a manager writes %+v", writes)
	}
	if writes := newManager(member(2, 1)).Step(0, state); len(writes) != 0 {
		t.Errorf("a manager whose process is gone writes %+v", writes)
	}
	delete(state.Present, member(2, 2))
	if writes := newManager(member(2, 2)).Step(0, state); len(writes) != 0 {
		t.Errorf("a manager that is not present writes %+v", writes)
	}
}

// A promotion has the next epoch. Members that had a role are unsettled, unless they are gone; grants of those that are gone go to the master.
func TestPromotion(t *testing.T) {
	for _, process := range []uint32{1, 2} { // of the old master: gone, lost
		t.Run(fmt.Sprint(process), func(t *testing.T) {
			state := newState(records.Shard{Epoch: 4, Master: member(2, process), Slave: member(3, 2), InSync: true, Unsettled: []records.Member{member(3, 1)}, GrantCount: 8,
				Grants: records.Grants{0: {Holder: member(2, process)}, 1: {Holder: member(3, 2)}, 2: {Waits: true}}})
			delete(state.Present, member(2, 2))
			is := next(t, newManager(member(1, 2)), 0, state)
			unsettled, holder := []records.Member{member(2, 2), member(3, 2)}, member(2, 2)
			if process == 1 {
				unsettled, holder = unsettled[1:], member(3, 2)
			}
			if is.Epoch != 5 || is.Master != member(3, 2) || !is.Slave.IsNone() || is.InSync || !slices.Equal(is.Unsettled, unsettled) {
				t.Errorf("promoted: %+v", is)
			}
			if is.Grants[0].Holder != holder || is.Grants[1].Holder != member(3, 2) || is.Grants[2] != (records.Grant{Holder: member(3, 2)}) {
				t.Errorf("grants: %+v", is.Grants)
			}
		})
	}
}

func TestGrants(t *testing.T) {
	master, slave := member(1, 2), member(2, 2)
	shard := records.Shard{Epoch: 4, Master: master, Slave: slave, InSync: true, GrantCount: 6, Grants: records.Grants{1: {Holder: slave}}}
	for _, one := range []struct {
		what              string
		wantsM, wantsS    uint32
		change            func(*records.State, *records.Shard)
		ofMaster, ofSlave int
	}{
		{"one wants more than there are", 9, 1, nil, 5, 1},
		{"both want more than there are", 9, 9, nil, 3, 3},
		{"all have what they want", 0, 1, nil, 0, 1},
		{"the slave is not in sync", 2, 3, func(_ *records.State, shard *records.Shard) { shard.InSync = false }, 2, 1},
		{"the slave is lost", 2, 3, func(state *records.State, _ *records.Shard) { delete(state.Present, slave) }, 2, 1},
		{"a member that has left has some", 9, 0, func(_ *records.State, shard *records.Shard) {
			shard.Grants = records.Grants{0: {Holder: member(3, 2)}, 1: {Holder: member(3, 1)}, 2: {Waits: true}}
		}, 5, 0},
	} {
		t.Run(one.what, func(t *testing.T) {
			is := shard.Clone()
			state := newState(is)
			state.Present[master] = records.Presence{Wanted: map[records.ShardID]uint32{5: one.wantsM}}
			state.Present[slave] = records.Presence{Wanted: map[records.ShardID]uint32{5: one.wantsS}}
			if one.change != nil {
				one.change(state, &is)
				state.Shards[5] = records.Record[records.Shard]{Value: is, Revision: 7}
			}
			got := next(t, newManager(member(1, 2)), 0, state)
			if len(got.GrantsOf(master)) != one.ofMaster || len(got.GrantsOf(slave)) != one.ofSlave {
				t.Errorf("grants: %+v", got.Grants)
			}
		})
	}
}

// A new slave gets no grants before the master says that it is in sync, also if the earlier one was.
func TestGrantsOfANewSlave(t *testing.T) {
	master, slave := member(1, 2), member(2, 2)
	state := newState(records.Shard{Epoch: 4, Master: master, Slave: member(3, 1), InSync: true, GrantCount: 6, Grants: records.Grants{}})
	for _, one := range []records.Member{master, slave, member(3, 2)} {
		state.Present[one] = records.Presence{Wanted: map[records.ShardID]uint32{5: 3}}
	}
	is := next(t, newManager(master), 0, state)
	if is.Epoch != 5 || is.InSync || is.Slave.IsNone() || len(is.GrantsOf(is.Slave)) != 0 || len(is.GrantsOf(master)) != 3 {
		t.Errorf("assigned: %+v", is)
	}
	is.InSync = true
	state.Shards[5] = records.Record[records.Shard]{Value: is, Revision: 7}
	if is = next(t, newManager(master), 1, state); len(is.GrantsOf(is.Slave)) != 3 {
		t.Errorf("in sync: %+v", is.Grants)
	}
}

// A server that is unwell goes on, and is the master of nothing.
func TestUnwell(t *testing.T) {
	state := newState(records.Shard{Epoch: 4, Master: member(2, 2), Slave: member(3, 2), InSync: true})
	state.Present[member(2, 2)] = records.Presence{Unwell: "a link is down"}
	if is := next(t, newManager(member(1, 2)), 0, state); is.Epoch != 5 || is.Master != member(3, 2) || is.Slave != member(2, 2) {
		t.Errorf("written: %+v", is)
	}
}

// Servers are taken out of use at night, and in again by day. A server that an operator drains stays as it is.
func TestElasticity(t *testing.T) {
	state := newState(records.Shard{Epoch: 4, Master: member(1, 2), Slave: member(2, 2), InSync: true})
	for id := records.ServerID(4); id <= 5; id++ {
		state.Servers[id] = records.Record[records.Server]{Value: records.Server{Capacity: 1, Process: 2, Draining: id == 5}, Revision: 1}
		state.Present[member(id, 2)] = records.Presence{}
	}
	rules := placement.Elasticity{High: 0.7, Low: 0.5, In: time.Minute, Out: 10 * time.Minute, Least: 2}
	m := manager.New(member(1, 2), manager.Config{Rules: placement.Default, Elasticity: &rules}, quiet)
	dry := manager.New(member(1, 2), manager.Config{Rules: placement.Default, Elasticity: &rules, DryRun: true}, quiet)
	spares := func() (ids []records.ServerID) {
		for id, server := range state.Servers {
			if server.Value.Spare {
				ids = append(ids, id)
			}
		}
		return ids
	}
	now := time.Duration(0)
	pass := func(load float64, until time.Duration) {
		for ; now < until; now += 5 * time.Second {
			state.Present[member(1, 2)] = records.Presence{Loads: map[records.ShardID]float64{5: load}}
			for _, write := range m.Step(now, state) {
				var id records.ServerID
				if _, err := fmt.Sscanf(write.Puts[0].Key, "servers/%d", &id); err != nil {
					continue
				}
				var server records.Server
				if err := json.Unmarshal(write.Puts[0].Value, &server); err != nil {
					t.Fatal(err)
				}
				state.Servers[id] = records.Record[records.Server]{Value: server, Revision: 2}
			}
			for _, write := range dry.Step(now, state) {
				if write.Puts[0].Key != records.ShardID(5).Key() {
					t.Errorf("in a dry run the manager writes %+v", write)
				}
			}
		}
	}
	pass(2.2, time.Hour)
	if is := spares(); len(is) != 0 {
		t.Errorf("by day %v are spare", is)
	}
	pass(0.3, 2*time.Hour)
	if is := spares(); len(is) != 2 || slices.Contains(is, 5) {
		t.Errorf("at night %v are spare", is)
	}
	pass(2.2, 3*time.Hour)
	if is := spares(); len(is) != 0 {
		t.Errorf("by day %v are spare", is)
	}
}
