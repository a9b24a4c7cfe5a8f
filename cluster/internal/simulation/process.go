package simulation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"millrace/control/cluster/internal/agent"
	"millrace/control/cluster/internal/manager"
	"millrace/control/cluster/internal/records"
	"millrace/control/cluster/internal/store"
)

// process is a server's dataplane, agent and manager.
type process struct {
	w       *world
	self    records.Member
	copies  map[records.ShardID]*copyOf
	agent   *agent.Agent
	manager *manager.Manager
	view    store.View
	state   *records.State
	rate    float64 // of its clock
	// Another dataplane has taken the place of this one if hasRestarted.
	hasRestarted bool
	isAnnounced  bool
	holders      map[records.ShardID][2]records.Member // master and slave, as last followed
	late         []func()                              // `FollowedEarly`
	lateAt       int
}

func lostIsGone(state *records.State) *records.State {
	changed := *state
	changed.Servers = maps.Clone(state.Servers)
	for id, server := range changed.Servers {
		if !state.IsPresent(records.Member{Server: id, Process: server.Value.Process}) {
			server.Value.Process++
			changed.Servers[id] = server
		}
	}
	return &changed
}

// look sees some of what has changed in the store.
func (p *process) look() {
	is := p.w.store.View()
	changed := p.state == nil
	for _, key := range slices.Sorted(maps.Keys(is.Records)) {
		if is.Records[key].Revision != p.view.Records[key].Revision && p.w.chance(60) {
			p.view.Records[key] = is.Records[key]
			changed = true
		}
	}
	same := func(a, b []byte) bool { return string(a) == string(b) }
	if p.w.chance(60) && !maps.EqualFunc(is.Present, p.view.Present, same) {
		p.view.Present = is.Present
		changed = true
	}
	if !changed {
		return
	}
	state, err := records.Parse(p.view, p.state)
	if err != nil {
		p.w.fail("%v cannot read the store: %v", p.self, err)
	}
	p.state = state
}

// write sends a write to the store.
func (p *process) write(puts ...store.Put) {
	w := p.w
	isManager := len(puts) > 1 || puts[0].Key == records.LeaderKey
	if w.mistake == Unfenced {
		puts = puts[:1]
	}
	if w.isCut(int(p.self.Server)-1, storePart) || w.chance(5) {
		return
	}
	copies := 1
	if w.chance(2) {
		copies = 2
	}
	for range copies {
		ticks := w.IntN(8)
		if w.chance(3) {
			ticks = w.IntN(300)
		}
		w.at(ticks, func() { w.apply(p.self, isManager, puts) })
	}
}

func (w *world) apply(from records.Member, isManager bool, puts []store.Put) {
	before, err := records.Parse(w.store.View(), nil)
	if err != nil {
		w.fail("the store has what cannot be: %v", err)
		return
	}
	puts = slices.Clone(puts)
	id := records.ShardID(noShard)
	for n, put := range puts {
		if _, err := fmt.Sscanf(put.Key, "shards/%d", &id); err != nil {
			continue
		}
		if w.mistake == RevisionUnchecked {
			puts[n].Revision = before.Shards[id].Revision
		}
		if isManager && (w.mistake == UnsettledLost || w.mistake == GivenEarly) {
			puts[n] = w.mistaken(puts[n])
		}
	}
	if err := w.store.Write(puts...); err != nil {
		return
	}
	w.writes++
	after, err := records.Parse(w.store.View(), nil) // a state before it would hide a record that goes back, which judgeWrite must see
	if err != nil {
		w.fail("%v has written what cannot be: %v", from, err)
		return
	}
	if isManager && puts[0].Key != records.LeaderKey && before.Leader.Value.Member != from {
		w.fail("%v has written as the manager, which is %v", from, before.Leader.Value.Member)
	}
	if id != noShard {
		w.judgeWrite(id, before, before.Shards[id].Value, after.Shards[id].Value)
	}
}

// mistaken returns another write of a shard's record than the manager's.
func (w *world) mistaken(put store.Put) store.Put {
	var shard records.Shard
	if err := json.Unmarshal(put.Value, &shard); err != nil {
		panic(err)
	}
	switch w.mistake {
	case UnsettledLost:
		shard.Unsettled = nil
	case GivenEarly:
		shard = shard.Clone()
		for number := range shard.GrantCount {
			if _, isHeld := shard.Grants[number]; !isHeld && !shard.Slave.IsNone() && len(shard.GrantsOf(shard.Slave)) < mostWanted {
				shard.Grants[number] = records.Grant{Holder: shard.Slave}
			}
		}
	}
	return records.Record[records.Shard]{Revision: put.Revision}.Put(put.Key, shard)
}

const noShard = 1 << 31

var errStuck = errors.New("the dataplane is stuck")

// Follow is Dataplane.Follow.
func (p *process) Follow(_ context.Context, orders agent.Orders) (agent.Answer, error) {
	if p.w.hosts[p.self.Server-1].stuckUntil > p.w.now {
		return agent.Answer{}, errStuck
	}
	if p.hasRestarted {
		return agent.Answer{}, agent.ErrRestarted
	}
	do := func() { p.follow(orders) }
	if p.w.mistake == FollowedEarly && p.w.chance(50) {
		p.late, p.lateAt = append(p.late, do), p.w.now+100
	} else {
		do()
	}
	reports := map[records.ShardID]agent.Report{}
	for id, c := range p.copies {
		reports[id] = c.report()
		if p.w.mistake == InSyncEarly {
			report := reports[id]
			report.InSync = true
			reports[id] = report
		}
		if p.w.mistake == ReadyEarly {
			report := reports[id]
			report.LacksPorts = false
			reports[id] = report
		}
	}
	return agent.Answer{Reports: reports}, nil
}

func (p *process) follow(orders agent.Orders) {
	has := map[records.ShardID]bool{}
	p.holders = map[records.ShardID][2]records.Member{}
	for _, one := range orders.Shards {
		for _, holder := range []agent.Holder{one.Master, one.Slave} {
			if holder.Instance != "" && p.w.instances[holder.Instance] != holder.Member {
				p.w.fail("%v takes %s for the dataplane of %v", p.self, holder.Instance, holder.Member)
			}
		}
		p.holders[one.Shard] = [2]records.Member{one.Master.Member, one.Slave.Member}
		role, other := one.RoleOf(p.self), one.Slave.Member
		if role == agent.Slave {
			other = one.Master.Member
		}
		if role == agent.None {
			continue
		}
		has[one.Shard] = true
		if p.copies[one.Shard] == nil {
			p.copies[one.Shard] = newCopy(p.w, p.self, one.Shard)
		}
		p.copies[one.Shard].follow(order{one.Epoch, role, other, one.Settled, one.Grants})
	}
	if p.w.mistake != GrantKept {
		maps.DeleteFunc(p.copies, func(id records.ShardID, _ *copyOf) bool { return !has[id] })
	}
}

// restart lets another dataplane begin, without copies.
func (p *process) restart() {
	p.hasRestarted = true
	p.late = nil
	clear(p.copies)
	clear(p.holders)
}

// Announce is Routes.Announce.
func (p *process) Announce(_ context.Context, isOn bool) error {
	p.isAnnounced = isOn
	return nil
}

// Trouble is Routes.Trouble.
func (p *process) Trouble() string {
	if n := int(p.self.Server) - 1; p.w.isCut(n, firstSwitch) || p.w.isCut(n, firstSwitch+1) {
		return "a link is down"
	}
	return ""
}

// Changed is Routes.Changed.
func (p *process) Changed() <-chan struct{} { return nil }

func (p *process) tick() {
	if len(p.late) > 0 && p.lateAt <= p.w.now {
		p.late[len(p.late)-1]()
		p.late = nil
	}
	if p.w.hosts[p.self.Server-1].stuckUntil > p.w.now {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(p.copies)) {
		p.copies[id].tick()
		if (p.w.now+int(id))%5 == 0 {
			p.copies[id].send()
		}
	}
}
