package placement_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"millrace/control/cluster/internal/placement"
	"millrace/control/cluster/internal/records"
)

// seeds returns the seed in MILLRACE_CLUSTER_SEED, or else some new ones.
func seeds(t *testing.T, count int) []uint64 {
	if given := os.Getenv("MILLRACE_CLUSTER_SEED"); given != "" {
		seed, err := strconv.ParseUint(given, 10, 64)
		if err != nil {
			t.Fatalf("MILLRACE_CLUSTER_SEED is %q: must be a number", given)
		}
		return []uint64{seed}
	}
	first := rand.Uint64()
	t.Logf("seeds from %d on: MILLRACE_CLUSTER_SEED repeats one", first)
	var all []uint64
	for n := range count {
		all = append(all, first+uint64(n))
	}
	return all
}

// world is a cluster in which servers come and go.
type world struct {
	*testing.T
	*rand.Rand
	rules   placement.Rules
	cluster placement.Cluster
	sync    map[records.ShardID]int // seconds until the slave is in sync
	rest    time.Duration           // until a new slave is ready
	moved   int
}

func newWorld(t *testing.T, seed uint64, racks int) *world {
	w := &world{T: t, Rand: rand.New(rand.NewPCG(seed, 0)), rules: placement.Default, sync: map[records.ShardID]int{},
		cluster: placement.Cluster{Servers: map[records.ServerID]placement.Server{}, Shards: map[records.ShardID]placement.Shard{}}}
	w.rules.Together = 1 + w.IntN(8)
	w.rest = []time.Duration{0, 2 * time.Minute, time.Hour}[w.IntN(3)]
	for n := range 2 + w.IntN(8) {
		server := placement.Server{Capacity: 1 + float64(w.IntN(2)), For: time.Hour}
		if racks > 0 {
			server.Rack = fmt.Sprint("r", w.IntN(racks))
		}
		w.cluster.Servers[records.ServerID(n+1)] = server
	}
	for n := range 1 + w.IntN(60) {
		w.cluster.Shards[records.ShardID(n)] = placement.Shard{Load: 0.01 + 0.2*w.Float64()}
	}
	return w
}

func (w *world) up() (ids []records.ServerID) {
	for id, server := range w.cluster.Servers {
		if server.State == placement.Up {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// step makes and judges a plan, and lets time pass. It returns the number of changes.
func (w *world) step(time time.Duration) int {
	before := maps.Clone(w.cluster.Shards)
	changes := w.rules.Next(w.cluster)
	if !maps.Equal(before, w.cluster.Shards) {
		w.Fatal("the plan has changed its input")
	}
	w.judge(changes)
	for _, change := range changes {
		shard := w.cluster.Shards[change.Shard]
		shard.Lacks = change.Slave != 0 && w.IntN(50) == 0
		shard.Ready = change.Slave != 0 && change.Slave == shard.Master // it goes on with the ports that it had
		shard.Master, shard.Slave, shard.InSync, shard.For = change.Master, change.Slave, false, 0
		w.cluster.Shards[change.Shard] = shard
		w.sync[change.Shard] = 1 + w.IntN(10)
	}
	for id, server := range w.cluster.Servers {
		server.For += time
		w.cluster.Servers[id] = server
	}
	for id, shard := range w.cluster.Shards {
		shard.For += time
		bothRun := shard.Master != 0 && shard.Slave != 0 && w.state(shard.Master) != placement.Lost && w.state(shard.Slave) != placement.Lost
		if w.sync[id]--; bothRun && w.sync[id] <= 0 {
			shard.InSync = true
			shard.Ready = shard.Ready || shard.For >= w.rest
		}
		w.cluster.Shards[id] = shard
	}
	return len(changes)
}

func (w *world) state(id records.ServerID) placement.State { return w.cluster.Servers[id].State }

func (w *world) runs(id records.ServerID) bool { return id != 0 && w.state(id) != placement.Lost }

func (w *world) shareRack(a, b records.ServerID) bool {
	return a != 0 && b != 0 && w.cluster.Servers[a].Rack != "" && w.cluster.Servers[a].Rack == w.cluster.Servers[b].Rack
}

func (w *world) judge(changes []placement.Change) {
	w.Helper()
	drained, voluntary, onTheirWay := 0, 0, 0
	seen := map[records.ShardID]bool{}
	for _, change := range changes {
		was := w.cluster.Shards[change.Shard]
		fail := func(what string) { w.Fatalf("%s: %+v, which was %+v", what, change, was) }
		if seen[change.Shard] {
			fail("two changes of a shard")
		}
		seen[change.Shard] = true
		if change.Master == 0 || change.Master == change.Slave {
			fail("a shard without a master, or with both copies on a server")
		}
		if change.Master == was.Master && change.Slave == was.Slave || change.Reason == "" {
			fail("a change that changes nothing, or has no reason")
		}
		for _, id := range []records.ServerID{change.Master, change.Slave} {
			if id != 0 && id != was.Master && id != was.Slave && w.state(id) != placement.Up {
				fail("a new copy on a server that is not up")
			}
		}
		lostFor := func(id records.ServerID, length time.Duration) bool {
			return id == 0 || !w.runs(id) && w.cluster.Servers[id].For >= length
		}
		if change.Master != was.Master {
			if !w.runs(was.Master) {
				if !was.InSync && !lostFor(was.Master, w.rules.GiveUp) {
					fail("the master was given up too early")
				}
				if change.Master != was.Slave && (was.InSync || w.runs(was.Slave)) && !lostFor(was.Slave, w.rules.GiveUp) {
					fail("the slave was passed over")
				}
			} else {
				if change.Master != was.Slave || !was.InSync || !w.runs(was.Slave) {
					fail("a master that runs was replaced by other than a slave in sync")
				}
				if w.state(was.Master) != placement.Unwell && was.Lacks {
					fail("the slave lacks connections")
				}
				if w.state(was.Master) != placement.Unwell && !was.Ready && was.For < w.rules.Rest {
					fail("the slave could not open connections")
				}
				switch {
				case w.state(was.Master) == placement.Draining:
					drained++
				case w.state(was.Master) != placement.Unwell || w.state(was.Slave) != placement.Up:
					voluntary++
				}
				if w.state(was.Master) == placement.Draining && w.cluster.Servers[was.Master].For < w.rules.Withdrawal {
					fail("switches may still send packets to the server that drains")
				}
			}
		} else if lostFor(was.Slave, w.rules.Patience) {
			if change.Slave == 0 {
				fail("no slave")
			}
		} else {
			if !w.runs(was.Slave) {
				fail("the slave was given up too early")
			}
			if w.state(was.Slave) == placement.Draining || w.state(was.Slave) == placement.Unwell || w.state(was.Master) == placement.Draining && was.Lacks {
				drained++
			} else {
				voluntary++
			}
		}
	}
	for id, shard := range w.cluster.Shards {
		if !w.runs(shard.Master) && w.runs(shard.Slave) && shard.InSync && !seen[id] {
			w.Fatalf("shard %d was not promoted: %+v", id, shard)
		}
		if w.state(shard.Master) == placement.Unwell && shard.Slave != 0 && w.state(shard.Slave) == placement.Up && shard.InSync && !seen[id] {
			w.Fatalf("shard %d stays with a server that is unwell: %+v", id, shard)
		}
		if w.runs(shard.Master) && w.runs(shard.Slave) && !shard.InSync && shard.For < w.rules.OnItsWay {
			onTheirWay++
		}
	}
	if drained > 0 && onTheirWay+drained > w.rules.Together {
		w.Fatalf("%d shards are on their way, and yet there is %+v", onTheirWay, changes)
	}
	if voluntary > 0 && (onTheirWay > 0 || len(changes) > 1) {
		w.Fatalf("more than one change that nobody needs, or one while %d shards are on their way: %+v", onTheirWay, changes)
	}
}

// something happens to a server, or to the loads.
func (w *world) event() {
	id := records.ServerID(1 + w.IntN(len(w.cluster.Servers)))
	server := w.cluster.Servers[id]
	server.For = 0
	switch w.IntN(7) {
	case 0:
		server.State = placement.Up
	case 6:
		server.State = placement.Unwell
	case 1:
		server.State = placement.Draining
	case 2:
		server.State = placement.Lost
	case 3: // its process is gone, and a new one is there
		server.State = placement.Up
		for id2, shard := range w.cluster.Shards {
			if shard.Master == id {
				shard.Master = 0
			}
			if shard.Slave == id {
				shard.Slave = 0
			}
			w.cluster.Shards[id2] = shard
		}
	default:
		for id, shard := range w.cluster.Shards {
			shard.Load *= 0.8 + 0.4*w.Float64()
			w.cluster.Shards[id] = shard
		}
		return
	}
	w.cluster.Servers[id] = server
}

func (w *world) utilization() map[records.ServerID]float64 {
	used := map[records.ServerID]float64{}
	for _, shard := range w.cluster.Shards {
		used[shard.Master] += shard.Load / w.cluster.Servers[shard.Master].Capacity
		used[shard.Slave] += w.rules.SlaveCost * shard.Load / w.cluster.Servers[shard.Slave].Capacity
	}
	return used
}

// converge waits until there is nothing to change, and judges what there is then.
func (w *world) converge() {
	w.Helper()
	const quiet = 6 * time.Minute // longer than each time of the rules
	for still := time.Duration(0); still < quiet; {
		const step = 5 * time.Second
		if w.step(step) > 0 {
			still, w.moved = 0, w.moved+1
		} else {
			still += step
		}
		if w.moved > 20*len(w.cluster.Shards)+100 {
			w.Fatalf("%d changes, and no end", w.moved)
		}
	}
	w.moved = 0
	up := w.up()
	racks := map[string]bool{}
	named := true
	for _, id := range up {
		racks[w.cluster.Servers[id].Rack] = true
		named = named && w.cluster.Servers[id].Rack != ""
	}
	for id, shard := range w.cluster.Shards {
		if !w.runs(shard.Master) && len(up) > 0 {
			w.Fatalf("shard %d has no master: %+v", id, shard)
		}
		if len(up) < 2 {
			continue
		}
		if !slices.Contains(up, shard.Master) || !slices.Contains(up, shard.Slave) || !shard.InSync {
			w.Fatalf("shard %d has not two copies in sync on servers that are up: %+v", id, shard)
		}
		if named && len(racks) > 1 && w.shareRack(shard.Master, shard.Slave) {
			w.Fatalf("shard %d has both copies in a rack: %+v", id, shard)
		}
	}
	if len(up) > 1 && !named {
		w.judgeLoads(up)
	}
}

// judgeLoads compares the most and the least loaded server: nothing of the one could move without being too much for the other.
func (w *world) judgeLoads(up []records.ServerID) {
	w.Helper()
	used := w.utilization()
	most, least := up[0], up[0]
	for _, id := range up {
		if used[id] > used[most] {
			most = id
		}
		if used[id] < used[least] {
			least = id
		}
	}
	smallest := math.Inf(1)
	for _, shard := range w.cluster.Shards {
		gives := shard.Load * (1 - w.rules.SlaveCost) / w.cluster.Servers[most].Capacity
		if shard.Master == most && !shard.Lacks && gives >= w.rules.Gain/10 {
			smallest = min(smallest, shard.Load/w.cluster.Servers[least].Capacity)
		}
	}
	if used[most]-used[least] > smallest+w.rules.Gain+1e-9 {
		w.Fatalf("server %d is loaded to %.3f and server %d to %.3f, and a load of %.3f could move", most, used[most], least, used[least], smallest)
	}
}

func TestPlacement(t *testing.T) {
	for n, seed := range seeds(t, 60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(t, seed, n%4)
			w.converge()
			for range 5 {
				for range w.IntN(6) {
					w.event()
					for range w.IntN(40) {
						w.step(time.Second)
					}
				}
				w.converge()
			}
			for id, server := range w.cluster.Servers {
				server.State, server.For = placement.Up, 0
				w.cluster.Servers[id] = server
			}
			w.converge()
		})
	}
}

// Loads that vary by little, and a server that comes back, move nothing.
// A cluster that begins waits for servers whose links are not up yet, but not for ever.
func TestBegin(t *testing.T) {
	rules := placement.Default
	cluster := placement.Cluster{Servers: map[records.ServerID]placement.Server{1: {Capacity: 1}, 2: {Capacity: 1, State: placement.Unwell}}}
	for length, want := range map[time.Duration]int{0: 0, rules.Patience: 0, rules.GiveUp: 1} {
		cluster.Shards = map[records.ShardID]placement.Shard{5: {For: length}}
		if changes := rules.Next(cluster); len(changes) != want {
			t.Errorf("after %v: %+v", length, changes)
		}
	}
	delete(cluster.Servers, 2)
	cluster.Shards = map[records.ShardID]placement.Shard{5: {For: rules.Patience}}
	if changes := rules.Next(cluster); len(changes) != 1 {
		t.Errorf("with all servers well: %+v", changes)
	}
}

// A slave that refused connections does not become the master by plan. Another server is tried if there is one; if the master fails, that slave is better than none.
func TestRefused(t *testing.T) {
	rules := placement.Default
	cluster := placement.Cluster{Servers: map[records.ServerID]placement.Server{1: {Capacity: 1, State: placement.Draining, For: time.Hour}, 2: {Capacity: 1, For: time.Hour}},
		Shards: map[records.ShardID]placement.Shard{5: {Load: 0.1, Master: 1, Slave: 2, InSync: true, Ready: true, Lacks: true, For: time.Hour}}}
	if changes := rules.Next(cluster); len(changes) != 0 {
		t.Errorf("with nobody else: %+v", changes)
	}
	cluster.Servers[3] = placement.Server{Capacity: 1, For: time.Hour}
	if changes := rules.Next(cluster); len(changes) != 1 || changes[0].Master != 1 || changes[0].Slave != 3 {
		t.Errorf("with another server: %+v", changes)
	}
	cluster.Servers[1] = placement.Server{Capacity: 1, State: placement.Lost}
	if changes := rules.Next(cluster); len(changes) != 1 || changes[0].Master != 2 {
		t.Errorf("without the master: %+v", changes)
	}
}

func TestHysteresis(t *testing.T) {
	for _, seed := range seeds(t, 20) {
		w := newWorld(t, seed, 0)
		w.converge()
		loads := map[records.ShardID]float64{}
		for id, shard := range w.cluster.Shards {
			loads[id] = shard.Load
		}
		w.rules.Gain += 0.1 // more than what loads vary by here
		for range 500 {
			for id, load := range loads {
				shard := w.cluster.Shards[id]
				shard.Load = load * (0.99 + 0.02*w.Float64())
				w.cluster.Shards[id] = shard
			}
			if w.step(time.Second) > 0 {
				t.Fatalf("seed %d: loads vary by a hundredth, and shards move", seed)
			}
		}
	}
}

func TestDwell(t *testing.T) {
	rules := placement.Default
	cluster := placement.Cluster{
		Servers: map[records.ServerID]placement.Server{1: {Capacity: 1, For: time.Hour}, 2: {Capacity: 1, For: time.Hour}, 3: {Capacity: 1}},
		Shards:  map[records.ShardID]placement.Shard{}}
	for id := range records.ShardID(8) {
		cluster.Shards[id] = placement.Shard{Load: 0.1, Master: 1, Slave: 2, InSync: true, Ready: true, For: time.Hour}
	}
	if changes := rules.Next(cluster); len(changes) != 1 || changes[0].Master != 2 {
		t.Errorf("the roles of one shard should change between servers 1 and 2: %+v", changes)
	}
	for id := range records.ShardID(4) {
		cluster.Shards[id] = placement.Shard{Load: 0.1, Master: 2, Slave: 1, InSync: true, Ready: true, For: time.Hour}
	}
	if changes := rules.Next(cluster); len(changes) != 0 {
		t.Errorf("server 3 has just come, and gets something: %+v", changes)
	}
	cluster.Servers[3] = placement.Server{Capacity: 1, For: rules.Dwell}
	if changes := rules.Next(cluster); len(changes) != 1 || changes[0].Slave != 3 {
		t.Errorf("server 3 should get a slave: %+v", changes)
	}
	cluster.Servers[2] = placement.Server{Capacity: 1, State: placement.Lost}
	if changes := rules.Next(cluster); len(changes) != 4 || changes[0].Master != 1 || changes[0].Slave != 0 {
		t.Errorf("four slaves should be promoted: %+v", changes)
	}
}

// A server that joins gets its share also if there is little to do, so that each shard alone is hardly worth a move.
func TestJoin(t *testing.T) {
	for _, seed := range seeds(t, 5) {
		w := newWorld(t, seed, 0)
		w.cluster.Servers = map[records.ServerID]placement.Server{}
		for id := records.ServerID(1); id <= 3; id++ {
			w.cluster.Servers[id] = placement.Server{Capacity: 1, For: time.Hour}
		}
		w.cluster.Shards = map[records.ShardID]placement.Shard{}
		for id := range records.ShardID(128) {
			w.cluster.Shards[id] = placement.Shard{Load: 0.2 * 3 / 128, Master: records.ServerID(1 + id%2), Slave: records.ServerID(2 - id%2), InSync: true}
		}
		w.converge()
		masters := 0
		for _, shard := range w.cluster.Shards {
			if shard.Master == 3 {
				masters++
			}
		}
		if masters < 128/5 {
			t.Errorf("seed %d: server 3 is the master of %d shards", seed, masters)
		}
	}
}

func TestElasticity(t *testing.T) {
	for _, seed := range seeds(t, 50) {
		random := rand.New(rand.NewPCG(seed, 0))
		rules := placement.Day
		servers := map[records.ServerID]placement.Spare{}
		total := 0.0
		for n := range 4 + random.IntN(8) {
			capacity := 1 + float64(random.IntN(2))
			servers[records.ServerID(n+1)] = placement.Spare{Capacity: capacity, InUse: random.IntN(2) == 0}
			total += capacity
		}
		// Two days with a step a minute, then a load that stays.
		var samples []placement.Sample
		last, changes := 0, 0
		const end = 3 * 24 * 60
		for minute := range end {
			hour := float64(min(minute, 2*24*60)) / 60
			load := total * (0.25 + 0.2*math.Sin(hour*math.Pi/12) + 0.01*random.Float64())
			now := time.Duration(minute) * time.Minute
			samples = append(samples, placement.Sample{At: now, Load: load})
			decision := rules.Next(now, samples, servers)
			for id, server := range servers {
				server.For += time.Minute
				servers[id] = server
			}
			inUse, capacity := 0, 0.0
			for _, server := range servers {
				if server.InUse {
					inUse, capacity = inUse+1, capacity+server.Capacity
				}
			}
			if decision.Server != 0 {
				server := servers[decision.Server]
				if server.InUse == decision.InUse || decision.Reason == "" {
					t.Fatalf("seed %d: %+v of %+v", seed, decision, server)
				}
				if !decision.InUse && (inUse <= rules.Least || load > rules.Low*(capacity-server.Capacity)) {
					t.Fatalf("seed %d: %d servers of %.0f at load %.2f, and %+v", seed, inUse, capacity, load, decision)
				}
				servers[decision.Server] = placement.Spare{Capacity: server.Capacity, InUse: decision.InUse}
				last, changes = minute, changes+1
			} else if minute > 0 && load > capacity && inUse < len(servers) {
				t.Fatalf("seed %d: load %.2f on a capacity of %.0f at minute %d", seed, load, capacity, minute)
			}
		}
		if last > end-12*60 || changes > 8*len(servers) {
			t.Errorf("seed %d: %d changes, the last one at minute %d of %d", seed, changes, last, end)
		}
	}
}
