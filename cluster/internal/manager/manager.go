// Package manager assigns shards to members, and gives them grants of ports. Each agent's process has a manager; one of them leads.
//
// A manager keeps nothing that the store does not hold, but for how long it has seen what it sees. Each of its writes replaces
// one shard's record, if that is still as it was read, and if the manager still leads. So it needs no answer: the next view tells what was written.
//
// These rules hold together with those of src/replicate/copy.h and of the agent:
//
//  1. Each assignment of a shard has an epoch of its own: the next one.
//  2. A member that had a role in an earlier assignment is unsettled until its agent says that its dataplane follows the newest one, or it is gone.
//     A member is gone once its server's record names a newer process. A member that is merely absent may go on.
//  3. A grant is given to one member. If its holder is gone, or has left the shard and given it back, it goes to the shard's master, and waits while
//     there is none. A master makes it free once the slave knows all connections that use it. So a free one goes to the master, or to a slave in sync:
//     both know whose connections use its ports. The member that gets it lets the other ports rest.
package manager

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"millrace/control/cluster/internal/placement"
	"millrace/control/cluster/internal/records"
	"millrace/control/cluster/internal/store"
)

// Config are a manager's settings.
type Config struct {
	Rules placement.Rules
	// Elasticity takes servers in and out of use; nil: all are in use. With DryRun the manager only logs what it would do.
	Elasticity *placement.Elasticity
	DryRun     bool
}

// Manager is for one goroutine.
type Manager struct {
	config  Config
	self    records.Member
	log     *slog.Logger
	servers map[records.ServerID]seen[serverState]
	epochs  map[records.ShardID]seen[uint64]
	loads   map[records.ShardID]float64 // as last reported
	samples []placement.Sample          // of all loads
	scaled  placement.Decision          // the last one
}

// seen is something observed, and since when.
type seen[What comparable] struct {
	what  What
	since time.Duration
}

// look returns what is seen from now on, or still is.
func (s seen[What]) look(what What, now time.Duration, known bool) seen[What] {
	if known && s.what == what {
		return s
	}
	return seen[What]{what, now}
}

type serverState struct {
	process uint32
	state   placement.State
}

// New returns the manager in the process of that member.
func New(self records.Member, config Config, log *slog.Logger) *Manager {
	return &Manager{config: config, self: self, log: log, servers: map[records.ServerID]seen[serverState]{},
		epochs: map[records.ShardID]seen[uint64]{}, loads: map[records.ShardID]float64{}}
}

// Write is a write to the store, and the reason for it.
type Write struct {
	Puts   []store.Put
	Reason string
}

// Step returns the writes to make now. Now is the time of a clock that only goes forward.
func (m *Manager) Step(now time.Duration, state *records.State) []Write {
	m.observe(now, state)
	leader := state.Leader.Value
	switch {
	case !state.IsPresent(m.self):
		return nil
	case leader.Member == m.self:
		return m.lead(now, state)
	case state.IsPresent(leader.Member):
		return nil
	}
	claim := state.Leader.Put(records.LeaderKey, records.Leader{Member: m.self, Term: leader.Term + 1})
	return []Write{{[]store.Put{claim}, "there is no manager, or the manager " + leader.Member.String() + " is lost: " + m.self.String() + " leads"}}
}

func (m *Manager) observe(now time.Duration, state *records.State) {
	for id, server := range state.Servers {
		is := serverState{server.Value.Process, placement.Lost}
		newest := records.Member{Server: id, Process: server.Value.Process}
		switch {
		case !state.IsPresent(newest):
		case state.Present[newest].Unwell != "":
			is.state = placement.Unwell
		case server.Value.IsInUse():
			is.state = placement.Up
		default:
			is.state = placement.Draining
		}
		was, known := m.servers[id]
		m.servers[id] = was.look(is, now, known)
	}
	for id, shard := range state.Shards {
		was, known := m.epochs[id]
		m.epochs[id] = was.look(shard.Value.Epoch, now, known)
		if load, reported := state.Present[shard.Value.Master].Loads[id]; reported {
			m.loads[id] = load
		}
	}
}

func (m *Manager) lead(now time.Duration, state *records.State) (writes []Write) {
	changes := map[records.ShardID]placement.Change{}
	for _, change := range m.config.Rules.Next(m.cluster(now, state)) {
		changes[change.Shard] = change
	}
	for _, id := range slices.Sorted(maps.Keys(state.Shards)) {
		if put, reasons := m.next(id, state, changes[id]); len(reasons) > 0 {
			writes = append(writes, Write{[]store.Put{put, state.Leader.Check(records.LeaderKey)}, strings.Join(reasons, "; ")})
		}
	}
	return append(writes, m.scale(now, state)...)
}

// cluster returns what placement needs to know. A copy whose process is gone is none.
func (m *Manager) cluster(now time.Duration, state *records.State) placement.Cluster {
	// A shard counts as more than nothing, so that shards without packets are spread, too.
	const idle = 0.2 // of all capacity, for all shards
	var least float64
	for _, server := range state.Servers {
		least += server.Value.Capacity * idle / float64(len(state.Shards))
	}
	cluster := placement.Cluster{Servers: map[records.ServerID]placement.Server{}, Shards: map[records.ShardID]placement.Shard{}}
	for id, server := range state.Servers {
		seen := m.servers[id]
		cluster.Servers[id] = placement.Server{Rack: server.Value.Rack, Capacity: server.Value.Capacity, State: seen.what.state, For: now - seen.since}
	}
	for id, shard := range state.Shards {
		serverOf := func(member records.Member) records.ServerID {
			if state.IsGone(member) {
				return 0
			}
			return member.Server
		}
		cluster.Shards[id] = placement.Shard{Load: max(m.loads[id], least), Master: serverOf(shard.Value.Master), Slave: serverOf(shard.Value.Slave),
			InSync: shard.Value.InSync, Ready: shard.Value.CouldOpen(), Lacks: shard.Value.LacksConnections, For: now - m.epochs[id].since}
	}
	return cluster
}

// next returns a shard's next record, with reasons if it differs.
func (m *Manager) next(id records.ShardID, state *records.State, change placement.Change) (put store.Put, reasons []string) {
	shard := state.Shards[id].Value.Clone()
	if change.Master != 0 {
		member := func(id records.ServerID) records.Member {
			if id == 0 {
				return records.Member{}
			}
			return records.Member{Server: id, Process: state.Servers[id].Value.Process}
		}
		Assign(&shard, member(change.Master), member(change.Slave))
		reasons = append(reasons, change.Reason)
	}
	unsettled := len(shard.Unsettled)
	shard.Unsettled = slices.DeleteFunc(shard.Unsettled, state.IsGone)
	if len(shard.Unsettled) < unsettled {
		reasons = append(reasons, "members that were unsettled are gone")
	}
	if handOn(&shard, state) {
		reasons = append(reasons, "the master gets grants whose holders have left the shard or are gone")
	}
	if m.give(id, &shard, state) {
		reasons = append(reasons, "the shard's members get grants")
	}
	return state.Shards[id].Put(id.Key(), shard), reasons
}

// Assign makes the shard's next assignment.
func Assign(shard *records.Shard, master, slave records.Member) {
	shard.Epoch++
	for _, had := range []records.Member{shard.Master, shard.Slave} {
		if !had.IsNone() && !slices.Contains(shard.Unsettled, had) {
			shard.Unsettled = append(shard.Unsettled, had)
		}
	}
	shard.Master, shard.Slave, shard.InSync, shard.Ready = master, slave, false, false
	shard.LacksConnections = false
}

// handOn gives to the master the grants that nobody has, and those of members that are gone. It returns true if there were any.
func handOn(shard *records.Shard, state *records.State) (any bool) {
	for number, grant := range shard.Grants {
		if !grant.Waits && !state.IsGone(grant.Holder) {
			continue
		}
		next := records.Grant{Holder: shard.Master}
		if shard.Master.IsNone() || state.IsGone(shard.Master) {
			next = records.Grant{Waits: true}
		}
		if next != grant {
			shard.Grants[number] = next
			any = true
		}
	}
	return any
}

// give gives free grants to the copies that want more, one by one in turn. A slave gets some only while it is in sync: connections that it does not
// know yet may use them. It returns true if any was given.
func (m *Manager) give(id records.ShardID, shard *records.Shard, state *records.State) (any bool) {
	free := int(shard.GrantCount) - len(shard.Grants)
	number := uint32(0)
	for again := true; again && free > 0; {
		again = false
		for _, holder := range []records.Member{shard.Master, shard.Slave} {
			held := len(shard.GrantsOf(holder))
			mayHave := holder == shard.Master || shard.InSync
			if free == 0 || !mayHave || !state.IsPresent(holder) || held >= wanted(state, holder, id) {
				continue
			}
			for shard.Grants[number] != (records.Grant{}) {
				number++
			}
			shard.Grants[number] = records.Grant{Holder: holder}
			free--
			any, again = true, true
		}
	}
	return any
}

// wanted returns how many of a shard's grants the member should have.
func wanted(state *records.State, member records.Member, id records.ShardID) int {
	if said, is := state.Present[member].Wanted[id]; is {
		return int(said)
	}
	return int(state.Servers[member.Server].Value.Wanted)
}

// Pace is how often a manager looks at what has not changed, since times run out.
const Pace = 500 * time.Millisecond

// Run manages until ctx ends.
func (m *Manager) Run(ctx context.Context, from store.Store) error {
	start := time.Now()
	views := from.Watch(ctx)
	tick := time.NewTicker(Pace)
	defer tick.Stop()
	var state *records.State
	isOld := true // a newer view is to come
	for {
		select {
		case view, ok := <-views:
			if !ok {
				return cmp.Or(ctx.Err(), context.Canceled)
			}
			next, err := records.Parse(view, state)
			if err != nil {
				m.log.Error("the manager goes on with the record that it had", "error", err)
			}
			state, isOld = next, false
		case <-tick.C:
		}
		if isOld {
			continue
		}
		writes := m.Step(time.Since(start), state)
		answers := make([]error, len(writes))
		store.Together(len(writes), func(n int) { answers[n] = m.write(ctx, from, writes[n]) })
		isOld = slices.ContainsFunc(answers, func(err error) bool { return err == nil || errors.Is(err, store.ErrConflict) })
	}
}

func (m *Manager) write(ctx context.Context, to store.Store, write Write) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err := to.Write(ctx, write.Puts...)
	switch {
	case err == nil:
		m.log.Info("written", "key", write.Puts[0].Key, "reason", write.Reason)
	case !errors.Is(err, store.ErrConflict) && ctx.Err() != context.Canceled:
		m.log.Warn("a write may be lost", "key", write.Puts[0].Key, "reason", write.Reason, "error", err)
	}
	return err
}
