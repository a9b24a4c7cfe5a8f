// Package placement decides which servers have the copies of which shard. It has no clock, and keeps nothing.
//
// Needs are met at once: a slave in sync is promoted when its master is lost, and each shard gets a slave. All else is done a change
// at a time, and only while no shard is on its way: servers that drain lose their shards, copies leave a common rack, loads are levelled.
package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"millrace/control/cluster/internal/records"
)

// State is what is known of a server.
type State int

// States. A server that drains keeps its copies until others have them. So does an unwell one, but packets do not come to it, or do not leave it: slaves
// in sync take its place at once. A lost one may still run, but nobody hears of it.
const (
	Up State = iota
	Draining
	Unwell
	Lost
)

// Server can have copies.
type Server struct {
	Rack     string // empty: not named
	Capacity float64
	State    State
	For      time.Duration // how long it has been in this state
}

// Shard has copies on at most two servers.
type Shard struct {
	Load          float64
	Master, Slave records.ServerID // 0 if nobody has that copy, or who had it is known to be gone
	InSync        bool             // the slave has all that the master has told
	Ready         bool             // the slave, as the master, could open connections
	Lacks         bool             // the slave had no place for some of the master's connections
	For           time.Duration    // how long the copies have been where they are
}

// Cluster is what is placed, and where.
type Cluster struct {
	Servers map[records.ServerID]Server
	Shards  map[records.ShardID]Shard
}

// Change is a new assignment of a shard. A slave of 0 is none.
type Change struct {
	Shard         records.ShardID
	Master, Slave records.ServerID
	Reason        string // in words
}

// Rules are the settings of placement.
type Rules struct {
	// SlaveCost is the load of a slave as a part of its master's.
	SlaveCost float64
	// Patience is how long a slave must be lost until another server takes its place: it may come back, and needs
	// to be told less then. A shorter time costs more copying.
	Patience time.Duration
	// GiveUp is how long a master without a slave in sync must be lost until another server begins without the connections.
	GiveUp time.Duration
	// Dwell is how long a server must be up until levelling gives it anything, and until it is preferred for new slaves.
	Dwell time.Duration
	// ShardDwell is how long a shard stays where it is until levelling moves it again, or another server is tried in place of a slave that refused connections.
	ShardDwell time.Duration
	// OnItsWay is how long a shard that is not in sync holds up changes that nobody needs.
	OnItsWay time.Duration
	// Rest is how long after the last assignment of a shard its copies swap roles by plan although the slave could not open connections.
	Rest time.Duration
	// Withdrawal is how long a server must have been draining until others get its shards: until no switch sends it packets.
	Withdrawal time.Duration
	// Together is how many shards may be on their way at a time for servers that drain.
	Together int
	// Gain is by how much the server that gives a copy away must have been loaded more, as a part of its capacity, than the one
	// that gets it is then. With a small one loads that vary move shards to and fro.
	Gain float64
}

// Default are the settings for servers that take a minute to start.
var Default = Rules{SlaveCost: 0.25, Patience: 5 * time.Second, GiveUp: time.Minute, Dwell: 2 * time.Minute,
	ShardDwell: time.Minute, OnItsWay: 2 * time.Minute, Rest: 5 * time.Minute, Withdrawal: time.Second, Together: 16, Gain: 0.05}

// Next returns the changes to make now, at most one for each shard.
func (r Rules) Next(cluster Cluster) []Change {
	p := &plan{Rules: r, Cluster: Cluster{cluster.Servers, maps.Clone(cluster.Shards)}}
	p.ids = slices.SortedFunc(maps.Keys(p.Shards), func(a, b records.ShardID) int {
		return cmp.Or(cmp.Compare(p.Shards[b].Load, p.Shards[a].Load), cmp.Compare(a, b))
	})
	p.mean = p.meanLoad()
	for _, id := range p.ids {
		p.promote(id)
	}
	for _, id := range p.ids {
		p.fill(id)
	}
	if len(p.changes) > 0 {
		return p.changes
	}
	onTheirWay := p.onTheirWay()
	for onTheirWay < max(p.Together, 1) && (p.drainMasters() || p.drainSlaves()) {
		onTheirWay++
	}
	if onTheirWay == 0 {
		_ = p.separate() || p.level()
	}
	return p.changes
}

type plan struct {
	Rules
	Cluster
	ids     []records.ShardID // the greatest loads first
	mean    float64           // load of a shard
	changes []Change
}

func (p *plan) change(id records.ShardID, master, slave records.ServerID, format string, values ...any) {
	shard := p.Shards[id]
	shard.Master, shard.Slave, shard.InSync, shard.Ready, shard.Lacks, shard.For = master, slave, false, false, false, 0
	p.Shards[id] = shard
	p.changes = append(p.changes, Change{id, master, slave, fmt.Sprintf(format, values...)})
}

// runs returns true if a copy on the server can be used.
func (p *plan) runs(id records.ServerID) bool { return id != 0 && p.Servers[id].State != Lost }

// isLostFor returns true if nobody has the copy, or its server has been lost for that time.
func (p *plan) isLostFor(id records.ServerID, time time.Duration) bool {
	return id == 0 || !p.runs(id) && p.Servers[id].For >= time
}

func (p *plan) promote(id records.ShardID) {
	shard := p.Shards[id]
	if p.runs(shard.Master) {
		if p.Servers[shard.Master].State == Unwell && shard.InSync && shard.Slave != 0 && p.Servers[shard.Slave].State == Up {
			p.change(id, shard.Slave, shard.Master, "server %d is unwell: the slave on server %d becomes the master", shard.Master, shard.Slave)
		}
		return
	}
	lost := fmt.Sprintf("server %d is lost", shard.Master)
	if shard.Master == 0 {
		lost = "the master is gone"
	}
	switch {
	case p.runs(shard.Slave) && shard.InSync:
		p.change(id, shard.Slave, 0, "%s: the slave on server %d is in sync, and becomes the master", lost, shard.Slave)
	case !p.isLostFor(shard.Master, p.GiveUp): // the master may go on without us
	case p.runs(shard.Slave):
		p.change(id, shard.Slave, 0, "%s: the slave on server %d becomes the master, though it may lack connections", lost, shard.Slave)
	case shard.Master == 0 && shard.Slave == 0 && (shard.For < p.Patience || shard.For < p.GiveUp && p.isAnyUnwell()):
		// The cluster begins, and more servers are to come.
	case p.isLostFor(shard.Slave, p.GiveUp):
		if master := p.best(0, shard.Load); master != 0 {
			p.change(id, master, 0, "no server has a copy: server %d begins without connections, as the least loaded", master)
		}
	}
}

func (p *plan) isAnyUnwell() bool {
	for _, server := range p.Servers {
		if server.State == Unwell {
			return true
		}
	}
	return false
}

func (p *plan) fill(id records.ShardID) {
	shard := p.Shards[id]
	if !p.runs(shard.Master) || !p.isLostFor(shard.Slave, p.Patience) || p.isChanged(id) {
		return // who is promoted now gets a slave from the next plan
	}
	slave := p.best(shard.Master, shard.Load*p.SlaveCost)
	if slave == 0 {
		return
	}
	lost := fmt.Sprintf("the slave on server %d has been lost for %v", shard.Slave, p.Servers[shard.Slave].For)
	if shard.Slave == 0 {
		lost = "there is one copy only"
	}
	p.change(id, shard.Master, slave, "%s: server %d gets the slave, as the least loaded that may have it", lost, slave)
}

func (p *plan) isChanged(id records.ShardID) bool {
	return slices.ContainsFunc(p.changes, func(change Change) bool { return change.Shard == id })
}

func (p *plan) onTheirWay() (count int) {
	for _, shard := range p.Shards {
		if shard.Slave != 0 && !shard.InSync && shard.For < p.OnItsWay && p.runs(shard.Master) && p.runs(shard.Slave) {
			count++
		}
	}
	return count
}

// best returns the server that should get a copy of that load beside the one on another server, and is none of some; 0 if there is none.
func (p *plan) best(other records.ServerID, load float64, not ...records.ServerID) records.ServerID {
	used := p.utilization()
	rank := func(id records.ServerID) []float64 {
		server := p.Servers[id]
		return []float64{number(p.shareRack(id, other)), number(server.For < p.Dwell), used[id] + load/server.Capacity}
	}
	var best records.ServerID
	for _, id := range p.serverIDs() {
		if id == other || p.Servers[id].State != Up || slices.Contains(not, id) {
			continue
		}
		if best == 0 || slices.Compare(rank(id), rank(best)) < 0 {
			best = id
		}
	}
	return best
}

func (p *plan) serverIDs() []records.ServerID { return slices.Sorted(maps.Keys(p.Servers)) }

func (p *plan) shareRack(a, b records.ServerID) bool {
	rack := p.Servers[a].Rack
	return rack != "" && a != 0 && b != 0 && rack == p.Servers[b].Rack
}

// mayHaveSlave returns true if the server is no worse than needed as the place of a slave beside that master.
func (p *plan) mayHaveSlave(id, master records.ServerID) bool {
	return id != master && p.Servers[id].State == Up && (!p.shareRack(id, master) || !p.hasOtherRack(master))
}

// hasOtherRack returns true if there is a server up that does not share the rack.
func (p *plan) hasOtherRack(than records.ServerID) bool {
	for id, server := range p.Servers {
		if id != than && server.State == Up && !p.shareRack(id, than) {
			return true
		}
	}
	return false
}

// utilization returns the load of each server as a part of its capacity.
func (p *plan) utilization() map[records.ServerID]float64 {
	used := map[records.ServerID]float64{}
	for _, id := range p.ids { // sums of floats depend on the order
		shard := p.Shards[id]
		if shard.Master != 0 {
			used[shard.Master] += shard.Load / p.Servers[shard.Master].Capacity
		}
		if shard.Slave != 0 {
			used[shard.Slave] += p.SlaveCost * shard.Load / p.Servers[shard.Slave].Capacity
		}
	}
	return used
}

// maySwap returns true if the slave can become the master, all connections go on, and new ones begin.
func (p *plan) maySwap(shard Shard) bool {
	return shard.Slave != 0 && shard.InSync && !shard.Lacks && (shard.Ready || shard.For >= p.Rest)
}

func (p *plan) drainMasters() bool {
	for _, id := range p.ids {
		shard := p.Shards[id]
		if server := p.Servers[shard.Master]; server.State != Draining || server.For < p.Withdrawal || p.Servers[shard.Slave].State != Up {
			continue
		}
		if p.maySwap(shard) {
			p.change(id, shard.Slave, shard.Master, "server %d drains: the slave on server %d becomes the master", shard.Master, shard.Slave)
			return true
		}
		if !shard.InSync || !shard.Lacks || shard.For < p.ShardDwell {
			continue
		}
		if slave := p.best(shard.Master, shard.Load*p.SlaveCost, shard.Slave); slave != 0 {
			p.change(id, shard.Master, slave, "server %d drains, and server %d refused connections: server %d gets the slave", shard.Master, shard.Slave, slave)
			return true
		}
	}
	return false
}

func (p *plan) drainSlaves() bool {
	for _, id := range p.ids {
		shard := p.Shards[id]
		server := p.Servers[shard.Slave]
		leaves := server.State == Draining || server.State == Unwell && server.For >= p.Patience
		if shard.Slave == 0 || !leaves || !p.runs(shard.Master) || p.isChanged(id) {
			continue
		}
		if slave := p.best(shard.Master, shard.Load*p.SlaveCost); slave != 0 {
			why := "drains"
			if server.State == Unwell {
				why = "is unwell"
			}
			p.change(id, shard.Master, slave, "server %d %s: server %d gets the slave, as the least loaded that may have it", shard.Slave, why, slave)
			return true
		}
	}
	return false
}

// separate ends that both copies of a shard are in one rack.
func (p *plan) separate() bool {
	for _, id := range p.ids {
		shard := p.Shards[id]
		if !p.shareRack(shard.Master, shard.Slave) || !p.runs(shard.Master) || !p.runs(shard.Slave) {
			continue
		}
		if slave := p.best(shard.Master, shard.Load*p.SlaveCost); slave != 0 && !p.shareRack(slave, shard.Master) {
			p.change(id, shard.Master, slave, "both copies are in rack %s: server %d gets the slave", p.Servers[shard.Master].Rack, slave)
			return true
		}
	}
	return false
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
