package placement

import "millrace/control/cluster/internal/records"

// step is a change that levels loads.
type step struct {
	shard         records.ShardID
	master, slave records.ServerID // what it makes
	aim           [2]records.ServerID
	gain          float64
}

// level makes the change that gains most: if there is any, one in which a shard's copies swap their roles,
// since it copies nothing; otherwise one in which a slave moves; otherwise a slave's move that a swap is to follow.
func (p *plan) level() bool {
	used := p.utilization()
	for _, steps := range []func(records.ShardID, Shard) []step{p.swaps, p.slaveMoves, p.masterMoves} {
		var best step
		for _, id := range p.ids {
			if !p.mayBeLevelled(p.Shards[id]) {
				continue
			}
			for _, step := range steps(id, p.Shards[id]) {
				step.gain = p.gain(used, p.Shards[id], step.aim)
				if step.gain > best.gain {
					best = step
				}
			}
		}
		if best.gain > 0 {
			p.makeStep(used, best)
			return true
		}
	}
	return false
}

func (p *plan) makeStep(used map[records.ServerID]float64, step step) {
	was := p.Shards[step.shard]
	from, to, what := was.Master, step.aim[0], ""
	switch {
	case step.master == was.Slave:
		what = "its slave there becomes the master"
	case step.aim[0] == was.Master:
		from, to, what = was.Slave, step.slave, "it gets the slave"
	default:
		what = "it gets the slave, and then becomes the master"
	}
	p.change(step.shard, step.master, step.slave, "server %d is loaded to %.2f, and server %d to %.2f: %s",
		from, used[from], to, used[to], what)
}

func (p *plan) mayBeLevelled(shard Shard) bool {
	return p.maySwap(shard) && shard.For >= p.ShardDwell && p.Servers[shard.Master].State == Up && p.Servers[shard.Slave].State == Up
}

// mayGain returns true if levelling may give the server another copy beside the one on another server.
func (p *plan) mayGain(id, other records.ServerID) bool {
	return p.mayHaveSlave(id, other) && p.Servers[id].For >= p.Dwell
}

func (p *plan) swaps(id records.ShardID, shard Shard) []step {
	if p.Servers[shard.Slave].For < p.Dwell {
		return nil
	}
	return []step{{shard: id, master: shard.Slave, slave: shard.Master, aim: [2]records.ServerID{shard.Slave, shard.Master}}}
}

func (p *plan) slaveMoves(id records.ShardID, shard Shard) (steps []step) {
	for _, to := range p.serverIDs() {
		if to != shard.Slave && p.mayGain(to, shard.Master) {
			steps = append(steps, step{shard: id, master: shard.Master, slave: to, aim: [2]records.ServerID{shard.Master, to}})
		}
	}
	return steps
}

func (p *plan) masterMoves(id records.ShardID, shard Shard) []step {
	steps := p.slaveMoves(id, shard)
	for n := range steps {
		steps[n].aim = [2]records.ServerID{steps[n].slave, shard.Master}
	}
	return steps
}

// meanLoad returns the load of all shards divided by their number.
func (p *plan) meanLoad() float64 {
	var load float64
	for _, id := range p.ids { // sums of floats depend on the order
		load += p.Shards[id].Load
	}
	return load / float64(max(len(p.ids), 1))
}

// gain returns how much better the loads are if the shard's master and slave are as in aim: by how much the most loaded server that gives
// something away falls, but no more than by what it was loaded above the servers that get something. 0 is not worth it.
//
// Levelling ends: those servers were loaded less than that one, and still are, so that the loads in falling order become less, compared as words are.
func (p *plan) gain(used map[records.ServerID]float64, shard Shard, aim [2]records.ServerID) float64 {
	const worth = 0.1 // of Gain; but shards are alike if no server has much to do, and then a slave's move is worth it, though it is less
	type part struct {
		server records.ServerID
		more   float64
	}
	parts := [4]part{{shard.Master, -shard.Load}, {shard.Slave, -shard.Load * p.SlaveCost}, {aim[0], shard.Load}, {aim[1], shard.Load * p.SlaveCost}}
	highest, giver := 0.0, part{}
	for n := range parts {
		one := part{server: parts[n].server}
		for m := range parts {
			if parts[m].server == one.server {
				one.more += parts[m].more / p.Servers[one.server].Capacity
			}
		}
		if one.more > 0 {
			highest = max(highest, used[one.server]+one.more)
		} else if one.more < 0 && (giver.server == 0 || used[one.server] > used[giver.server]) {
			giver = one
		}
	}
	above := used[giver.server] - highest
	if giver.server == 0 || above < p.Gain {
		return 0
	}
	if -giver.more < min(worth*p.Gain, p.SlaveCost/2*p.mean/p.Servers[giver.server].Capacity) {
		return 0
	}
	return min(above, -giver.more)
}
