package simulation

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"millrace/control/cluster/internal/agent"
	"millrace/control/cluster/internal/records"
	"millrace/control/cluster/internal/store"
)

// route lets each switch choose one of the servers that announce routes, and notice changes late.
func (w *world) route() {
	for at := range switchCount {
		for shard := range shardCount {
			if w.IntN(30) == 0 && !w.announces(w.way[at][shard]) {
				w.way[at][shard] = w.anyThatAnnounces()
			}
		}
	}
}

// announces returns true if switches see the server's routes. Each side's link is watched, and both sides' routes end with it.
func (w *world) announces(n int) bool {
	return n != noServer && w.runs(n) && w.hosts[n].stuckUntil <= w.now && !w.isCut(n, firstSwitch) && !w.isCut(n, firstSwitch+1) && w.hosts[n].isAnnounced
}

func (w *world) anyThatAnnounces() int {
	for _, n := range w.Perm(serverCount) {
		if w.announces(n) {
			return n
		}
	}
	return noServer
}

// isHeard returns true if the member's dataplane is there, and the server's dataplane hears it.
func (w *world) isHeard(by int, member records.Member) bool {
	n := int(member.Server) - 1
	return w.isThere(member) && w.runs(n) && w.hosts[n].stuckUntil <= w.now && (n == by || !w.isCut(n, by))
}

// copyOnWay returns the copy that a switch's packets reach: from the server where they come they take one hop to the master, or, if that one is not heard, to the slave.
func (w *world) copyOnWay(at, shard int) *copyOf {
	n := w.way[at][shard]
	if n == noServer || !w.runs(n) || w.hosts[n].stuckUntil > w.now || w.isCut(n, firstSwitch+at) {
		return nil
	}
	id := records.ShardID(shard)
	for _, member := range w.hosts[n].holders[id] {
		if w.isHeard(n, member) {
			return w.hosts[member.Server-1].copies[id]
		}
	}
	return nil
}

// packets come from customers and from the internet.
func (w *world) packets() {
	shard, customer := w.IntN(shardCount), w.IntN(customers)
	keys := &w.alive[shard][customer]
	if len(*keys) < 3 || len(*keys) < 6 && w.chance(2) {
		w.lastKey++
		*keys = append(*keys, w.lastKey)
	}
	which := w.IntN(len(*keys))
	key := (*keys)[which]
	if c := w.copyOnWay(0, shard); c != nil {
		if port, is := c.serve(key, customer); is {
			w.use(shard, port, customer)
		}
		if w.IntN(30) == 0 { // the customer closes it, or falls silent
			if c.order.Role == agent.Master && w.chance(50) {
				c.end(key)
			}
			*keys = slices.Delete(*keys, which, which+1)
		}
	}
	c := w.copyOnWay(1, shard)
	if c == nil {
		return
	}
	port := w.IntN(grantCount * portsOfGrant)
	for _, key := range sorted(c.connections) {
		if c.connections[key].port == port {
			w.use(shard, port, c.connections[key].customer)
		}
	}
}

// Rule 1: no public port belongs to two customers at a time, rest included.
func (w *world) use(shard, port, customer int) {
	w.served++
	last, was := w.uses[[2]int{shard, port}]
	if was && last.customer != customer && w.now-last.at < leastRest {
		w.fail("port %d of shard %d has two customers", port, shard)
	}
	w.uses[[2]int{shard, port}] = use{customer, w.now}
}

func (w *world) keptBy(by keptBy) map[int]bool {
	if w.kept[by] == nil {
		w.kept[by] = map[int]bool{}
	}
	return w.kept[by]
}

// judge looks at all dataplanes, also at those that are cut off or stopped. Rule 1: a grant is in one hand. Rule 2: an epoch has one master.
func (w *world) judge() {
	var hands [shardCount][grantCount]records.Member
	var all []*process
	for _, host := range w.hosts {
		all = append(all, host.process, host.before)
	}
	for _, process := range all {
		if process == nil {
			continue
		}
		for id, c := range process.copies {
			for number := range c.grants {
				if other := hands[id][number]; !other.IsNone() {
					w.fail("grant %d of shard %d is in the hands of %v and %v", number, id, other, c.self)
				}
				hands[id][number] = c.self
			}
			if c.order.Role != agent.Master {
				continue
			}
			of := keptBy{shard: id, epoch: c.order.Epoch}
			if was, is := w.masters[of]; is && was != c.self {
				w.fail("%v and %v are both masters of shard %d in epoch %d", was, c.self, id, c.order.Epoch)
			}
			w.masters[of] = c.self
		}
	}
}

// holds returns true if the member's dataplane has the grant.
func (w *world) holds(member records.Member, id records.ShardID, number uint32) bool {
	c := w.copyOf(member, id)
	return c != nil && c.grants[int(number)] != nil
}

// copyOf returns the member's copy; nil if it has none or does not run.
func (w *world) copyOf(member records.Member, id records.ShardID) *copyOf {
	if member.IsNone() {
		return nil
	}
	p := w.hosts[member.Server-1].process
	if p == nil || p.self != member {
		return nil
	}
	return p.copies[id]
}

// judgeWrite compares a shard's records before and after a write.
func (w *world) judgeWrite(id records.ShardID, state *records.State, before, after records.Shard) {
	fail := func(what string) { w.fail("shard %d: %s: %+v after %+v", id, what, after, before) }
	isNew := before.Master != after.Master || before.Slave != after.Slave
	if after.Epoch != before.Epoch && after.Epoch != before.Epoch+1 || isNew && after.Epoch == before.Epoch {
		fail("a new assignment must have the next epoch")
	}
	if after.Master.IsNone() || after.Master.Server == after.Slave.Server {
		fail("a shard must have a master, and its copies must be on two servers")
	}
	if after.Epoch != before.Epoch {
		w.assigned[id] = w.now
	}
	if after.Epoch != before.Epoch && after.InSync {
		fail("nobody can have said that the new assignment is in sync")
	}
	if c := w.copyOf(after.Master, id); after.InSync && !before.InSync && c != nil && c.order.Epoch == after.Epoch && c.acked < c.began {
		fail("the slave counts as in sync, and has not all that the master had")
	}
	for _, member := range append([]records.Member{before.Master, before.Slave}, before.Unsettled...) {
		had := slices.Contains(before.Unsettled, member) || after.Epoch != before.Epoch && !member.IsNone()
		if !had || slices.Contains(after.Unsettled, member) || state.IsGone(member) {
			continue
		}
		if c := w.copyOf(member, id); c != nil && c.order.Epoch < after.Epoch {
			fail(member.String() + " counts as settled, and its dataplane does not follow")
		}
	}
	for number := range after.GrantCount {
		was, is := before.Grants[number], after.Grants[number]
		switch {
		case was == is:
		case was == records.Grant{} && !is.Waits && (is.Holder == after.Master || is.Holder == after.Slave): // given
			w.judgeUses(id, int(number), after.Master, is.Holder)
		case is == records.Grant{} && was.Holder == before.Master && !w.holds(was.Holder, id, number): // free again
			w.judgeUses(id, int(number), was.Holder, after.Slave)
		case is.Waits && (state.IsGone(was.Holder) || !w.holds(was.Holder, id, number)): // given back
		case is.Holder == after.Master && (was.Waits || state.IsGone(was.Holder)): // handed on
		default:
			fail("a grant changes hands against the rules")
		}
	}
}

// judgePlan: a slave becomes the master by plan once it could open connections, or has long been the slave. Clocks may run fast.
func (p *process) judgePlan(state *records.State, put store.Put) {
	id, after := shardIn(put)
	before := state.Shards[id].Value
	if id == noShard || after.Epoch == before.Epoch || after.Master != before.Slave || !state.IsPresent(before.Master) || state.Present[before.Master].Unwell != "" {
		return
	}
	now, err := records.Parse(p.w.store.View(), nil)
	if err != nil || now.Shards[id].Value.Epoch != before.Epoch { // the write comes too late
		return
	}
	p.w.swaps++
	if length := time.Duration(mostRate * float64(time.Millisecond) * float64(p.w.now-p.w.assigned[id])); !before.CouldOpen() && length < rules.Rest {
		p.w.fail("shard %d: %v would get no ports for new connections, and becomes the master by plan: %+v", id, before.Slave, before)
	}
}

// judgeReport: a slave says that it could open connections only if some of its ports do not rest.
func (p *process) judgeReport(put store.Put) {
	id, after := shardIn(put)
	if id == noShard || after.Slave != p.self || !after.Ready || p.state.Shards[id].Value.Ready {
		return
	}
	c := p.copies[id]
	for number, grant := range c.grants {
		for port := number * portsOfGrant; port < (number+1)*portsOfGrant; port++ {
			if _, isOwn := c.lastCustomer[port]; grant.onRecord && (isOwn || c.restsUntil[port] <= p.w.now) {
				return
			}
		}
	}
	p.w.fail("shard %d: %v says that it could open connections, and all of its ports rest", id, p.self)
}

// shardIn returns the shard's record in a write; noShard if there is none.
func shardIn(put store.Put) (records.ShardID, records.Shard) {
	id, shard := records.ShardID(noShard), records.Shard{}
	if _, err := fmt.Sscanf(put.Key, "shards/%d", &id); err == nil {
		if err := json.Unmarshal(put.Value, &shard); err != nil {
			panic(err)
		}
	}
	return id, shard
}

// judgeUses: when a grant becomes free, the slave knows all of the master's connections that use it; so does a member that gets it.
func (w *world) judgeUses(id records.ShardID, number int, master, other records.Member) {
	has, knows := w.copyOf(master, id), w.copyOf(other, id)
	if has == nil || master == other || !w.isThere(other) {
		return
	}
	for _, key := range sorted(has.connections) {
		isKnown := knows != nil
		if isKnown {
			_, isKnown = knows.connections[key]
		}
		if has.connections[key].port/portsOfGrant == number && !isKnown {
			w.fail("grant %d of shard %d is handed back or given, and %v lacks connection %d, which uses it", number, id, other, key)
		}
	}
}

// isThere returns true if the member's dataplane runs.
func (w *world) isThere(member records.Member) bool {
	if member.IsNone() {
		return false
	}
	p := w.hosts[member.Server-1].process
	return p != nil && p.self == member && !p.hasRestarted
}

// judgeRoutes: a server that leaves announces nothing.
func (p *process) judgeRoutes() {
	if p.isAnnounced && !p.state.Servers[p.self.Server].Value.IsInUse() {
		p.w.fail("%v announces routes, and leaves", p.self)
	}
}

// unwell returns what is not as it should be when all parts work: every shard has two copies in sync, and all that was in the air is settled.
func (w *world) unwell() string {
	state, err := records.Parse(w.store.View(), nil)
	if err != nil {
		return err.Error()
	}
	for id, record := range state.Shards {
		if what := w.unwellShard(id, record.Value); what != "" {
			return fmt.Sprintf("shard %d %s: %+v", id, what, record.Value)
		}
	}
	return ""
}

func (w *world) unwellShard(id records.ShardID, shard records.Shard) string {
	master, slave := w.copyOf(shard.Master, id), w.copyOf(shard.Slave, id)
	switch {
	case master == nil || slave == nil || !master.isInSync() || !slave.isInSync() || !shard.InSync:
		return "has no two copies in sync"
	case master.order.Role != agent.Master || slave.order.Role != agent.Slave || len(shard.Unsettled) > 0:
		return "is not settled"
	case shard.Master.Server%2 == shard.Slave.Server%2:
		return "has both copies in a rack"
	}
	for _, member := range []records.Member{shard.Master, shard.Slave} {
		if len(shard.GrantsOf(member)) < leastWanted {
			return fmt.Sprintf("has too few grants for %v", member)
		}
	}
	for number, grant := range shard.Grants {
		if grant.Waits || grant.Holder != shard.Master && grant.Holder != shard.Slave {
			return fmt.Sprintf("has lost grant %d", number)
		}
	}
	for at := range switchCount {
		if w.copyOnWay(at, int(id)) != master {
			return fmt.Sprintf("gets packets from switch %d at server %d, and not at the master", at, w.way[at][id]+1)
		}
	}
	return ""
}
