package simulation

import (
	"maps"
	"slices"

	"millrace/control/cluster/internal/agent"
	"millrace/control/cluster/internal/records"
)

// The model's measures. Times are in ticks.
const (
	customers    = 4
	grantCount   = 9 // of a shard
	portsOfGrant = 2 // all of one customer
	leastWanted  = 3 // grants that a copy would like to have at least, and
	mostWanted   = 6 // at most. The number varies, so that grants change hands more often than in reality.
	wantedFor    = 500
	idle         = 900
	rest         = 300 // for which a copy lets the ports of a customer rest
	leastRest    = 250 // after which a port may have another customer at all
	silence      = 1000
)

// order is what a copy is to do.
type order struct {
	Epoch   uint64
	Role    agent.Role
	Other   records.Member
	Settled bool
	Grants  []uint32
}

// connection is one of a customer. It has a port of the shard.
type connection struct {
	customer, port int
	seen           int
	version        uint64 // of the copy, since when it has the connection
}

// copyOf is a copy of a shard in a dataplane. It tells the other copy all that it has, again and again, with a version that grows
// with each change. What the other copy has acknowledged of a version, it knows.
//
// This is what src/replicate does with much less to send. It is written anew, so that the two cannot share a mistake.
type copyOf struct {
	w      *world
	self   records.Member
	shard  records.ShardID
	order  order
	newest uint64 // epoch that it has heard of

	connections map[int]connection // by key
	own         map[int]uint64     // of a slave: keys that it has opened and the master does not have yet; since which version
	version     uint64
	began       uint64 // version at the begin of this assignment
	acked       uint64 // version that the other copy has in this epoch
	heard       uint64 // version of the other copy that this one has
	heardAt     int
	late        []message // `acknowledgedEarly`

	grants    map[int]*grantOf
	withdrawn map[int]bool // grants that the store should take back: not among the grants any more

	restsUntil   map[int]int            // by port
	lastCustomer map[int]int            // by port
	leaving      map[int]map[int]uint64 // by port and key: version without a connection that the other copy may still have
	unsureAt     int                    // when others may have had connections that are unknown here
}

// grantOf is a grant in the hands of a copy.
type grantOf struct {
	version  uint64 // since which it is told
	onRecord bool   // another copy has it on record
	retired  uint64 // version since when no connections are opened with it; 0: they are
	rests    bool   // its ports rest, since restsAt
	restsAt  int
}

// message is all that a copy has.
type message struct {
	shard       records.ShardID
	from, to    records.Member
	epoch       uint64
	version     uint64
	acks        uint64 // the receiver's version that the sender has
	connections map[int]connection
}

func newCopy(w *world, self records.Member, shard records.ShardID) *copyOf {
	return &copyOf{w: w, self: self, shard: shard, connections: map[int]connection{}, own: map[int]uint64{}, grants: map[int]*grantOf{},
		withdrawn: map[int]bool{}, restsUntil: map[int]int{}, lastCustomer: map[int]int{}, leaving: map[int]map[int]uint64{}}
}

// follow does what the agent orders.
func (c *copyOf) follow(order order) {
	if order.Epoch > c.order.Epoch {
		c.assign(order)
	} else if order.Epoch < c.order.Epoch {
		c.w.fail("the dataplane of %v is told epoch %d of shard %d after epoch %d", c.self, order.Epoch, c.shard, c.order.Epoch)
		return
	}
	c.order = order
	has := map[int]bool{}
	for _, number := range order.Grants {
		has[int(number)] = true
		if c.grants[int(number)] == nil && !c.withdrawn[int(number)] {
			c.version++
			c.grants[int(number)] = &grantOf{version: c.version}
			c.letRest(int(number))
		}
	}
	maps.DeleteFunc(c.grants, func(number int, _ *grantOf) bool { return !has[number] })
	maps.DeleteFunc(c.withdrawn, func(number int, _ bool) bool { return !has[number] })
}

// letRest lets the ports of a grant rest that the copy gets, unless nobody can have had it before.
func (c *copyOf) letRest(number int) {
	for port := number * portsOfGrant; port < (number+1)*portsOfGrant; port++ {
		delete(c.lastCustomer, port)
		if c.order.Epoch > 1 {
			c.restsUntil[port] = c.w.now + rest
		}
	}
	c.grants[number].rests, c.grants[number].restsAt = c.order.Epoch > 1, c.w.now
}

// lacksPorts returns true if few customers would get a port that have none: less than half of the grants that the copy would like to have do not rest.
func (c *copyOf) lacksPorts() bool {
	ready := 0
	for number, grant := range c.grants {
		if c.mayUse(number) && !grant.rests {
			ready++
		}
	}
	return 2*ready < c.wanted()
}

func (c *copyOf) assign(order order) {
	if c.order.Role == agent.Slave && order.Role == agent.Master {
		for _, key := range sorted(c.w.kept[keptBy{c.shard, c.self, c.order.Epoch}]) {
			if _, has := c.connections[key]; !has {
				c.w.fail("%v is promoted in shard %d, and lacks connection %d, which it had acknowledged", c.self, c.shard, key)
			}
		}
		for key, one := range c.connections {
			one.seen = c.w.now
			c.connections[key] = one
		}
		clear(c.own)
		c.late = nil
		c.w.promotions++
	}
	delete(c.w.kept, keptBy{c.shard, c.self, c.order.Epoch})
	c.version++
	if order.Role != c.order.Role {
		clear(c.leaving)
	}
	for port, ends := range c.leaving {
		for key := range ends {
			c.leaving[port][key] = c.version
		}
	}
	for _, grant := range c.grants {
		grant.version, grant.retired = c.version, 0
	}
	clear(c.withdrawn) // the store has not taken these back, or else the orders lack them
	for key, one := range c.connections {
		one.version = c.version
		c.connections[key] = one
		if _, is := c.own[key]; is {
			c.own[key] = c.version
		}
	}
	c.began, c.acked, c.heard, c.heardAt = c.version, 0, 0, c.w.now
	c.newest = max(c.newest, order.Epoch)
}

// report says how the copy is.
func (c *copyOf) report() agent.Report {
	report := agent.Report{InSync: c.isInSync(), Load: 0.1 + 0.02*float64(len(c.connections)), Wanted: uint32(c.wanted()), LacksPorts: c.lacksPorts()}
	if c.order.Role == agent.Master {
		for number := range c.withdrawn {
			report.Withdrawn = append(report.Withdrawn, uint32(number))
		}
	}
	slices.Sort(report.Withdrawn)
	return report
}

func (c *copyOf) isInSync() bool {
	if c.order.Other.IsNone() {
		return false
	}
	if c.order.Role == agent.Slave {
		return c.heard > 0
	}
	return c.acked >= c.began && c.w.now-c.heardAt < silence
}

func (c *copyOf) uses(number int) bool {
	for _, one := range c.connections {
		if one.port/portsOfGrant == number {
			return true
		}
	}
	return false
}

func (c *copyOf) mayUse(number int) bool {
	grant := c.grants[number]
	return grant != nil && grant.retired == 0 && (grant.onRecord || c.order.Other.IsNone())
}

// isFree returns true if the customer may have the port, which no connection uses.
func (c *copyOf) isFree(port, customer int) bool {
	if last, was := c.lastCustomer[port]; was && last == customer {
		return true
	}
	if c.w.mistake == ReusedEarly {
		return c.restsUntil[port] <= c.w.now
	}
	return len(c.leaving[port]) == 0 && c.restsUntil[port] <= c.w.now && c.unsureAt+rest <= c.w.now
}

func (c *copyOf) freePort(customer int) (int, bool) {
	for _, number := range sorted(c.grants) {
		if !c.mayUse(number) {
			continue
		}
		used := map[int]bool{}
		isHis := true
		for _, one := range c.connections {
			if one.port/portsOfGrant == number {
				used[one.port] = true
				isHis = isHis && one.customer == customer
			}
		}
		for port := number * portsOfGrant; isHis && port < (number+1)*portsOfGrant; port++ {
			if !used[port] && c.isFree(port, customer) {
				return port, true
			}
		}
	}
	return 0, false
}

// serve forwards a packet of a customer. It returns the port; false if the packet is dropped.
func (c *copyOf) serve(key, customer int) (int, bool) {
	if one, is := c.connections[key]; is {
		one.seen = c.w.now
		c.connections[key] = one
		return one.port, true
	}
	port, is := c.freePort(customer)
	if !is {
		return 0, false
	}
	c.version++
	c.connections[key] = connection{customer, port, c.w.now, c.version}
	if c.order.Role == agent.Slave {
		c.own[key] = c.version
	}
	return port, true
}

func (c *copyOf) end(key int) {
	one, is := c.connections[key]
	if !is {
		return
	}
	c.restsUntil[one.port] = c.w.now + rest
	c.lastCustomer[one.port] = one.customer
	delete(c.connections, key)
	delete(c.own, key)
	if c.order.Role != agent.Master {
		return
	}
	c.version++
	delete(c.w.kept[keptBy{c.shard, c.order.Other, c.order.Epoch}], key)
	if c.order.Other.IsNone() {
		return
	}
	if c.leaving[one.port] == nil {
		c.leaving[one.port] = map[int]uint64{}
	}
	c.leaving[one.port][key] = c.version
}

// tick lets a millisecond pass.
func (c *copyOf) tick() {
	for len(c.late) > 0 && c.late[0].version <= uint64(c.w.now) {
		c.take(c.late[0])
		c.late = c.late[1:]
	}
	if c.order.Role == agent.Master || c.w.mistake == SlaveAges {
		for _, key := range sorted(c.connections) {
			if c.w.now-c.connections[key].seen > idle {
				c.end(key)
			}
		}
	}
	// A slave that is not in sync may have connections that the master has let end.
	if !c.order.Settled || !c.order.Other.IsNone() && !c.isInSync() {
		c.unsureAt = c.w.now
	}
	for _, grant := range c.grants {
		if c.unsureAt == c.w.now {
			grant.restsAt = c.w.now
		}
		grant.rests = grant.rests && grant.restsAt+rest > c.w.now
	}
	if c.w.now%20 == 0 && c.order.Role == agent.Master {
		c.withdraw()
	}
}

func (c *copyOf) wanted() int {
	if (c.w.now/wantedFor+int(c.self.Server))%2 == 0 {
		return leastWanted
	}
	return mostWanted
}

// withdraw retires grants that are too many while the slave is in sync, first those that are used, which is the worst case, and gives them back once the slave has
// all connections that use them.
func (c *copyOf) withdraw() {
	isInSync := c.isInSync()
	var inUse []int
	for _, number := range sorted(c.grants) {
		switch grant := c.grants[number]; {
		case !isInSync:
			grant.retired = 0
		case grant.retired == 0:
			inUse = append(inUse, number)
		case grant.retired <= c.acked:
			c.handBack(number)
		}
	}
	slices.SortStableFunc(inUse, func(a, b int) int { return rank(c.uses(b)) - rank(c.uses(a)) })
	for ; isInSync && len(inUse) > c.wanted(); inUse = inUse[1:] {
		c.grants[inUse[0]].retired = c.version
		if c.w.mistake == HandedBackEarly {
			c.handBack(inUse[0])
		}
	}
}

func (c *copyOf) handBack(number int) {
	c.withdrawn[number] = true
	delete(c.grants, number)
}

func rank(is bool) int {
	if is {
		return 1
	}
	return 0
}

// send tells the other copy all that there is.
func (c *copyOf) send() {
	if c.order.Other.IsNone() || c.newest > c.order.Epoch {
		return
	}
	sent := message{shard: c.shard, from: c.self, to: c.order.Other, epoch: c.order.Epoch, version: c.version, acks: c.heard,
		connections: map[int]connection{}}
	for key, one := range c.connections {
		if _, isOwn := c.own[key]; isOwn || c.order.Role == agent.Master {
			sent.connections[key] = one
		}
	}
	c.w.send(sent)
}

// receive takes a message of the other copy.
func (c *copyOf) receive(m message) {
	if m.epoch < c.order.Epoch && c.w.mistake == EpochUnchecked {
		m.epoch, m.from, m.version = c.order.Epoch, c.order.Other, max(m.version, c.heard+1)
	}
	c.newest = max(c.newest, m.epoch)
	if m.epoch != c.order.Epoch || m.from != c.order.Other {
		return
	}
	c.heardAt = c.w.now
	c.acknowledged(m.acks)
	if m.version <= c.heard {
		return
	}
	c.heard = m.version
	if c.w.mistake == AcknowledgedEarly && c.order.Role == agent.Slave {
		m.version = uint64(c.w.now + 30)
		c.late = append(c.late, m)
		return
	}
	c.take(m)
}

func (c *copyOf) take(m message) {
	for _, key := range sorted(m.connections) {
		one := m.connections[key]
		if was, is := c.connections[key]; is && (c.order.Role == agent.Master || was.port == one.port) {
			continue
		}
		c.end(key) // it has another port
		c.version++
		c.connections[key] = connection{one.customer, one.port, c.w.now, c.version}
	}
	if c.order.Role == agent.Master {
		return
	}
	maps.DeleteFunc(c.own, func(_ int, since uint64) bool { return since <= m.acks })
	for _, key := range sorted(c.connections) {
		_, isOwn := c.own[key]
		if _, is := m.connections[key]; !is && !isOwn {
			c.end(key)
		}
	}
}

func (c *copyOf) acknowledged(version uint64) {
	if version <= c.acked {
		return
	}
	c.acked = version
	for _, grant := range c.grants {
		grant.onRecord = grant.onRecord || grant.version <= version
	}
	for port, ends := range c.leaving {
		for key, since := range ends {
			if since <= version {
				delete(ends, key)
				c.restsUntil[port] = c.w.now + rest // until now the other copy may have had it
			}
		}
	}
	if c.order.Role != agent.Master {
		return
	}
	kept := c.w.keptBy(keptBy{c.shard, c.order.Other, c.order.Epoch})
	for key, one := range c.connections {
		if one.version <= version {
			kept[key] = true
		}
	}
}

func sorted[Value any](of map[int]Value) []int {
	keys := make([]int, 0, len(of))
	for key := range of {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
