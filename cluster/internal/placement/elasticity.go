package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"millrace/control/cluster/internal/records"
)

// Elasticity says how many servers are in use: as many as the load needs, also without the greatest of them.
type Elasticity struct {
	// High and Low are loads of the servers in use, as a part of their capacity. A server is taken into use while the load is above High, or too much
	// without the greatest server. One is taken out if the others are enough even if the load were to grow from Low to High. Low must be lower.
	High, Low float64
	// In is how long the load must have been high until a server is taken in; Out, low until one is taken out.
	In, Out time.Duration
	// Least is how many servers are always in use: 2 or more.
	Least int
}

// Day follows a day's load, without following each of its waves.
var Day = Elasticity{High: 0.7, Low: 0.5, In: time.Minute, Out: 30 * time.Minute, Least: 3}

// Sample is the load of all shards at a time.
type Sample struct {
	At   time.Duration
	Load float64
}

// Spare is a server that can be taken in and out of use.
type Spare struct {
	Capacity float64
	InUse    bool
	For      time.Duration // how long it has been so
}

// Decision takes a server into use, or out of use.
type Decision struct {
	Server records.ServerID // 0: nothing changes
	InUse  bool
	Reason string
}

// Next decides. Samples are in the order of time, the last one of about now. They need not reach back further than In and Out.
func (e Elasticity) Next(now time.Duration, samples []Sample, servers map[records.ServerID]Spare) Decision {
	ids := slices.SortedFunc(maps.Keys(servers), func(a, b records.ServerID) int {
		return cmp.Or(cmp.Compare(servers[a].Capacity, servers[b].Capacity), cmp.Compare(a, b))
	})
	var inUse, spare []records.ServerID // the smallest first
	settled := true
	for _, id := range ids {
		if servers[id].InUse {
			inUse = append(inUse, id)
		} else {
			spare = append(spare, id)
		}
		settled = settled && servers[id].For >= e.Out // the last change has had all its effects
	}
	least, _, covered := window(now, samples, e.In)
	if len(spare) > 0 {
		greatest := spare[len(spare)-1]
		if len(inUse) < e.Least {
			return Decision{greatest, true, fmt.Sprintf("%d servers are in use, of at least %d", len(inUse), e.Least)}
		}
		if covered && !e.isEnough(least, servers, inUse, e.High) {
			return Decision{greatest, true, fmt.Sprintf("the load has been %.2f or more for %v, too much for the servers in use", least, e.In)}
		}
	}
	_, most, covered := window(now, samples, e.Out)
	if covered && settled && len(inUse) > e.Least && e.isEnough(most, servers, inUse[1:], e.Low) {
		return Decision{inUse[0], false, fmt.Sprintf("the load has been %.2f or less for %v, little for the other servers", most, e.Out)}
	}
	return Decision{}
}

// isEnough returns true if the load is at most that part of the servers' capacity. If that part is High, then they can carry it also without the
// greatest of them.
func (e Elasticity) isEnough(load float64, servers map[records.ServerID]Spare, ids []records.ServerID, part float64) bool {
	var capacity float64
	for _, id := range ids {
		capacity += servers[id].Capacity
	}
	greatest := servers[ids[len(ids)-1]].Capacity
	return load <= part*capacity && load <= part/e.High*(capacity-greatest)
}

// window returns the least and the most load of the last while, and if samples cover it.
func window(now time.Duration, samples []Sample, length time.Duration) (least, most float64, covered bool) {
	if len(samples) == 0 || samples[0].At > now-length {
		return 0, 0, false
	}
	least, most = samples[len(samples)-1].Load, samples[len(samples)-1].Load
	for _, sample := range samples {
		if sample.At >= now-length {
			least, most = min(least, sample.Load), max(most, sample.Load)
		}
	}
	return least, most, true
}
