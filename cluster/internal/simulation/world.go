// Package simulation tries managers, agents and placement in a simulated cluster: servers with a model of the dataplane's copies,
// a store, two switches, and customers. Messages and writes to the store are lost, doubled, delayed and reordered, and so are the store's
// answers; each process sees each record late by a time of its own; servers crash, stop and return, their clocks run apart; links between any two parts are cut.
// The rules of safety are checked all the time, from outside (judge.go).
//
// Time is in ticks of 1 ms.
package simulation

import (
	"container/heap"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"millrace/control/cluster/internal/agent"
	"millrace/control/cluster/internal/manager"
	"millrace/control/cluster/internal/placement"
	"millrace/control/cluster/internal/records"
	"millrace/control/cluster/internal/store"
	"millrace/control/cluster/internal/store/memory"
)

// Mistake is planted in the simulation.
type Mistake int

// Mistakes. The first ones are in the dataplane's model, the next ones around agents, managers and the store.
const (
	None              Mistake = iota
	EpochUnchecked            // a copy takes messages of an older epoch for those of its own
	AcknowledgedEarly         // a slave acknowledges what it has not taken yet
	GrantKept                 // a dataplane goes on with copies and grants that it should give up
	SlaveAges                 // a slave ends connections that it thinks idle
	ReusedEarly               // a port goes to another customer though another server may use it
	HandedBackEarly           // a master hands a grant back before the other copy knows the connections that use it
	FollowedEarly             // a dataplane answers that it follows, and does so later
	InSyncEarly               // a dataplane says that it is in sync when it is not
	Unfenced                  // a manager writes though it may lead no more
	RevisionUnchecked         // the store writes over what it should not
	LostIsGone                // a manager takes who is absent for gone
	UnsettledLost             // a manager forgets who is unsettled
	GivenEarly                // a manager gives grants to a slave that is not in sync
	RegisteredEarly           // a process registers while its predecessor's dataplane still has copies
	SwappedEarly              // a manager makes a slave the master by plan whose ports still rest
	ReadyEarly                // a dataplane says that it has ports when they still rest
	Mistakes
)

var names = [...]string{"none", "an epoch unchecked", "acknowledged early", "a grant kept", "a slave ages", "a port reused early", "handed back early", "followed early",
	"in sync early", "a manager without fencing", "a revision unchecked", "lost is gone", "unsettled lost", "given early", "registered early", "swapped early", "ready early"}

func (m Mistake) String() string { return names[m] }

const (
	serverCount = 4
	shardCount  = 3
	switchCount = 2 // towards customers, towards the internet
	lease       = 100
	firstSwitch = serverCount
	storePart   = serverCount + switchCount
	noServer    = -1
	mostRate    = 1.3 // of a clock
)

// rules of placement, with times for this world.
var rules = placement.Rules{SlaveCost: 0.25, Patience: 200 * time.Millisecond, GiveUp: 3 * time.Second, Dwell: 500 * time.Millisecond,
	ShardDwell: 500 * time.Millisecond, OnItsWay: 2 * time.Second, Rest: 2 * time.Second, Withdrawal: 50 * time.Millisecond, Together: 2, Gain: 0.02}

type keptBy struct {
	shard  records.ShardID
	member records.Member
	epoch  uint64
}

// host is a server. Without a process it is down.
type host struct {
	*process
	stoppedUntil int
	stuckUntil   int      // of the dataplane
	before       *process // `RegisteredEarly`
}

// event happens at a time. Events of one time happen in the order in which they were made.
type event struct {
	at, number int
	do         func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(a, b int) bool {
	return e[a].at < e[b].at || e[a].at == e[b].at && e[a].number < e[b].number
}
func (e events) Swap(a, b int) { e[a], e[b] = e[b], e[a] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

type world struct {
	*rand.Rand
	mistake Mistake
	now     int
	made    int
	wrong   string

	store  *memory.Server
	hosts  [serverCount]host
	cuts   map[[2]int]int // until when
	leases map[string]int
	coming events
	way    [switchCount][shardCount]int
	log    *slog.Logger

	kept       map[keptBy]map[int]bool // connections that a member has acknowledged in an epoch
	masters    map[keptBy]records.Member
	assigned   [shardCount]int              // when each shard got its newest epoch
	instances  map[string]records.Member    // by name of the dataplane
	uses       map[[2]int]use               // by shard and port
	alive      [shardCount][customers][]int // keys
	lastKey    int
	served     int
	promotions int
	writes     int
	swaps      int // by plan
}

type use struct{ customer, at int }

func newWorld(seed uint64, mistake Mistake, log *slog.Logger) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 0)), mistake: mistake, now: 1, store: memory.NewServer(), cuts: map[[2]int]int{}, leases: map[string]int{},
		log: log, kept: map[keptBy]map[int]bool{}, masters: map[keptBy]records.Member{}, instances: map[string]records.Member{}, uses: map[[2]int]use{}}
	for n := range shardCount {
		w.put(records.ShardID(n).Key(), records.Shard{GrantCount: grantCount})
	}
	for n := range serverCount {
		w.start(n)
	}
	return w
}

func serverID(n int) records.ServerID { return records.ServerID(n + 1) }

func (w *world) put(key string, value any) {
	bytes, err := json.Marshal(value)
	if err == nil {
		err = w.store.Write(store.Put{Key: key, Value: bytes})
	}
	if err != nil {
		panic(err)
	}
}

// run simulates that many ticks, then heals everything and waits until all is as it should be. It returns what went wrong; empty if nothing did.
func (w *world) run(ticks int) string {
	for until := w.now + ticks; w.now < until && w.wrong == ""; w.now++ {
		w.step(true)
	}
	w.heal()
	const most = 10_000
	unwell := "?"
	for until := w.now + most; w.now < until && w.wrong == "" && unwell != ""; w.now++ {
		w.step(false)
		if w.now%50 == 0 {
			unwell = w.unwell()
		}
	}
	if unwell != "" {
		w.fail("%d ticks after the last fault: %s", most, unwell)
	}
	return w.wrong
}

func (w *world) fail(format string, values ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, values...) + fmt.Sprintf(" (tick %d)", w.now)
	}
}

func (w *world) chance(percent int) bool { return w.IntN(100) < percent }

func (w *world) at(ticks int, do func()) {
	w.made++
	heap.Push(&w.coming, event{w.now + ticks, w.made, do})
}

func (w *world) step(withFaults bool) {
	if withFaults {
		w.fault()
	}
	for len(w.coming) > 0 && w.coming[0].at <= w.now {
		heap.Pop(&w.coming).(event).do()
	}
	for n := range w.hosts {
		if w.hosts[n].process == nil && w.hosts[n].stoppedUntil <= w.now {
			w.start(n)
		}
		if w.runs(n) && (w.now+n)%10 == 0 {
			w.control(n)
		}
	}
	for member, until := range w.leases {
		if until < w.now {
			delete(w.leases, member)
			w.store.Lose(member)
		}
	}
	w.route()
	w.packets()
	for n := range w.hosts {
		if w.runs(n) {
			w.hosts[n].tick()
		}
	}
	w.judge()
}

func (w *world) runs(n int) bool {
	return w.hosts[n].process != nil && w.hosts[n].stoppedUntil <= w.now
}

func (w *world) isCut(a, b int) bool { return w.cuts[[2]int{min(a, b), max(a, b)}] > w.now }

// start lets a server's next process begin. It cannot register if it does not reach the store, or the dataplane.
func (w *world) start(n int) {
	w.hosts[n].process = nil
	if w.isCut(n, storePart) || w.hosts[n].stuckUntil > w.now {
		return
	}
	client := w.store.Open()
	defer client.Close()
	w.made++
	instance := fmt.Sprint("instance", w.made)
	is := agent.Identity{Server: serverID(n), Instance: instance, Address: fmt.Sprint("10.9.0.", n), Shards: shardCount}
	self, err := agent.Register(context.Background(), client, is, agent.About{Name: fmt.Sprint("server", n), Rack: fmt.Sprint("rack", n%2), Capacity: 1})
	if err != nil {
		panic(err)
	}
	w.instances[instance] = self
	p := &process{w: w, self: self, copies: map[records.ShardID]*copyOf{}, view: store.View{Records: map[string]store.Record{}}, rate: 0.7 + (mostRate-0.7)*w.Float64()}
	p.agent = agent.New(self, agent.Config{LoadPace: time.Second, Stuck: 300 * time.Millisecond}, p, p, w.log)
	placing := rules
	if w.mistake == SwappedEarly {
		placing.Rest = 0
	}
	p.manager = manager.New(self, manager.Config{Rules: placing}, w.log)
	w.hosts[n].process = p
}

func (w *world) fault() {
	n := w.IntN(serverCount)
	until := w.now + w.IntN(400)
	if w.chance(30) {
		until = w.now + w.IntN(3000)
	}
	if w.IntN(2000) == 0 {
		w.drain(n, w.chance(50))
	}
	if w.IntN(400) != 0 {
		return
	}
	switch w.IntN(9) {
	case 8: // millrace alone
		if p := w.hosts[n].process; p != nil {
			p.restart()
		}
	case 0, 1:
		w.hosts[n] = host{stoppedUntil: until}
	case 4: // the agent alone; its dataplane gives everything up
		before := w.hosts[n].process
		w.hosts[n].process = nil
		if w.mistake == RegisteredEarly {
			w.hosts[n].before = before
		}
	case 2:
		w.hosts[n].stoppedUntil = until
	case 3:
		w.hosts[n].stuckUntil = until
	default:
		other := w.IntN(storePart + 1)
		if w.chance(30) { // the worst that can happen to a server: it goes on, and nobody hears of it
			other = storePart
		}
		if other != n {
			w.cuts[[2]int{min(n, other), max(n, other)}] = until
		}
	}
}

// drain is what an operator does.
func (w *world) drain(n int, is bool) {
	state, err := records.Parse(w.store.View(), nil)
	if err != nil {
		panic(err)
	}
	server := state.Servers[serverID(n)]
	next := server.Value
	next.Draining = is
	if err := w.store.Write(server.Put(serverID(n).Key(), next)); err != nil {
		panic(err)
	}
}

func (w *world) heal() {
	clear(w.cuts)
	for n := range w.hosts {
		w.hosts[n].stoppedUntil, w.hosts[n].stuckUntil = 0, 0
		w.drain(n, false)
	}
}

// send takes a message from one copy to the other.
func (w *world) send(m message) {
	copies := 1
	if w.chance(5) {
		copies = 0
	} else if w.chance(2) {
		copies = 2
	}
	for range copies {
		ticks := 1 + w.IntN(8)
		if w.chance(3) {
			ticks *= 20
		}
		w.at(ticks, func() { w.deliver(m) })
	}
}

func (w *world) deliver(m message) {
	n := int(m.to.Server) - 1
	p := w.hosts[n].process
	if p == nil || p.self != m.to || w.isCut(n, int(m.from.Server)-1) {
		return
	}
	if w.hosts[n].stoppedUntil > w.now { // it waits in the socket
		w.at(w.hosts[n].stoppedUntil-w.now, func() { w.deliver(m) })
		return
	}
	if c := p.copies[m.shard]; c != nil {
		c.receive(m)
	}
}

// control lets a server's agent and manager work.
func (w *world) control(n int) {
	p := w.hosts[n].process
	reaches := !w.isCut(n, storePart)
	if reaches && !w.chance(20) {
		p.look()
		if _, is := w.leases[p.self.String()]; is {
			w.leases[p.self.String()] = w.now + lease
		}
	}
	if p.state == nil {
		return
	}
	now := time.Duration(float64(w.now) * p.rate * float64(time.Millisecond))
	outcome, err := p.agent.Step(context.Background(), now, p.state)
	if err != nil { // the process ends, and another one starts
		w.hosts[n].process = nil
		return
	}
	p.judgeRoutes()
	if outcome.Says != nil && reaches {
		bytes, err := json.Marshal(outcome.Says.Presence)
		if err != nil {
			panic(err)
		}
		w.store.Present(p.self.String(), bytes)
		w.leases[p.self.String()] = w.now + lease
		if !w.chance(5) { // or else the answer is lost
			p.agent.Said(outcome.Says)
		}
	} else if _, is := w.leases[p.self.String()]; !is && reaches && len(p.view.Records) > 0 {
		p.agent.Said(nil) // its session has expired: the store's client says it again
	}
	for _, put := range outcome.Writes {
		p.judgeReport(put)
		p.write(put)
	}
	state := p.state
	if w.mistake == LostIsGone {
		state = lostIsGone(state)
	}
	for _, write := range p.manager.Step(now, state) {
		p.judgePlan(state, write.Puts[0])
		p.write(write.Puts...)
	}
}
