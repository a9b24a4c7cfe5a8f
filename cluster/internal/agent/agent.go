// Package agent makes a server's dataplane do what the store says of it, and tells the store what the dataplane did.
//
// An agent writes a shard's record only in place of the one that its dataplane follows: it tells the dataplane all of a view, gets a report,
// and writes if the record is still the same. So what it writes is true of the assignment in which it stands, and it needs no answer.
// Without the store it goes on with the last view.
package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"millrace/control/cluster/internal/records"
	"millrace/control/cluster/internal/store"
)

// Role is what a member does for a shard.
type Role int

// Roles.
const (
	None Role = iota
	Master
	Slave
)

// Holder is a member that has a copy of a shard. The zero value is nobody.
type Holder struct {
	records.Member
	Instance string // the name of its dataplane; empty: nobody knows it any more
}

// Order is what becomes of a shard.
type Order struct {
	Shard         records.ShardID
	Epoch         uint64
	Master, Slave Holder
	Settled       bool     // each other member of an earlier assignment follows this one or is gone
	Grants        []uint32 // this member's
}

// RoleOf returns what the member does for the shard.
func (o Order) RoleOf(member records.Member) Role {
	switch member {
	case o.Master.Member:
		return Master
	case o.Slave.Member:
		return Slave
	}
	return None
}

// Peer is a server's newest process, as dataplanes reach it.
type Peer struct {
	Server   records.ServerID
	Instance string
	Address  string
}

// Orders are what a dataplane is to do. The zero value gives everything up.
type Orders struct {
	Peers  []Peer  // all that may be reached, this one included
	Shards []Order // all that there are: packets go to the servers that have the copies
}

// Report is what the dataplane says of a shard of which it has a copy.
type Report struct {
	InSync bool
	Load   float64
	Wanted uint32 // how many grants it would like to have, those that it has included
	// LacksPorts is true if it could give new connections few ports as a master: its grants rest, or it has none.
	LacksPorts bool
	// LacksConnections is true if a slave had no place for some of the master's connections: tables are full, or a function is not here.
	LacksConnections bool
	// Withdrawn are grants that it has been ordered to have, and with which it opens no connections any more until it has had an order without them or
	// of another epoch. Connections may still use their ports: the slave knows all of these. Only a master withdraws grants.
	Withdrawn []uint32
}

// Answer is what the dataplane says once it follows.
type Answer struct {
	Reports map[records.ShardID]Report // of the shards of which it has a copy
	// Disagrees and OtherLayouts are of the servers that it hears: as in records.Presence.
	Disagrees    map[records.ServerID]string
	OtherLayouts []records.ServerID
}

// Dataplane is the process that has the copies: package dataplane, by its control socket.
type Dataplane interface {
	// Follow tells all of the orders, and returns an answer once they are in force: copies of shards in which this member has no role have
	// ended, with their connections; grants that are not in the orders are not used any more. A shard's epoch is never less than in the
	// call before, nor has an epoch other holders. After an error some orders may be in force. ErrRestarted: the process that the member registered is there no more.
	// ErrRefused: the orders are wrong, and none is in force.
	Follow(ctx context.Context, orders Orders) (Answer, error)
}

// ErrRestarted is returned if the dataplane is not the process that has been registered.
var ErrRestarted = errors.New("millrace has been restarted, or has ended")

// ErrRefused is returned if the dataplane has answered that the orders are wrong, and goes on with those that it had.
var ErrRefused = errors.New("millrace refuses its orders, and goes on as before")

// ErrGivenUp is returned by an agent whose dataplane has ended copies that it had been told to have: another program has told it so.
var ErrGivenUp = errors.New("millrace has given up what it was told to do: does another agent, or another program, tell it what to do?")

// ErrNotYet is returned if the dataplane has taken the orders, and has not carried all of them out yet.
var ErrNotYet = errors.New("the dataplane has not carried out its orders yet")

// Routes announces to the switches that packets may come to this server: package routes, by BGP.
type Routes interface {
	// Announce announces the routes, or withdraws them.
	Announce(ctx context.Context, isOn bool) error
	// Trouble says why packets cannot come to this server, or leave it, at present: in words. Empty if they can.
	Trouble() string
	// Changed has a value when Trouble may say something else than before. Nil: nobody tells.
	Changed() <-chan struct{}
}

// Config are an agent's settings.
type Config struct {
	// LoadPace is how often loads are told to the store.
	LoadPace time.Duration
	// Stuck is how long the dataplane may be without an answer until the agent ends.
	Stuck time.Duration
}

// Default are the settings for a dataplane on the same machine.
var Default = Config{LoadPace: 10 * time.Second, Stuck: 2 * time.Second}

// ErrGone is returned by an agent that has a successor.
var ErrGone = errors.New("another process has taken this server over")

// Agent is for one goroutine.
type Agent struct {
	config    Config
	self      records.Member
	dataplane Dataplane
	routes    Routes
	log       *slog.Logger

	followed  *records.State // as last followed
	announced bool
	answered  time.Duration // when the dataplane answered last
	refused   string        // why the dataplane has refused the last orders; empty: it has not
	said      *Says         // as last told to the store
}

// New returns the agent of that member. The dataplane must follow no orders yet.
func New(self records.Member, config Config, dataplane Dataplane, routes Routes, log *slog.Logger) *Agent {
	return &Agent{config: config, self: self, dataplane: dataplane, routes: routes, log: log}
}

// Outcome is what the store should be told.
type Outcome struct {
	Writes []store.Put // each a write by itself
	Says   *Says       // nil: nothing new
}

// Says is what a member says of itself.
type Says struct {
	Presence records.Presence
	at       time.Duration
}

// Step makes the dataplane and the routes as the state says. Now is the time of a clock that only goes forward. After an error
// the agent must end.
func (a *Agent) Step(ctx context.Context, now time.Duration, state *records.State) (Outcome, error) {
	if state.IsGone(a.self) {
		err := a.announce(ctx, false)
		_, errFollow := a.follow(ctx, Orders{})
		return Outcome{}, errors.Join(ErrGone, err, errFollow)
	}
	if state.Servers[a.self.Server].Value.Process < a.self.Process {
		// The view is older than this process, or the store has lost its records.
		if state = a.followed; state == nil {
			return Outcome{}, nil
		}
	}
	a.followed = state
	// A server that leaves gets no more packets, and then hands its shards over.
	isInUse := state.Servers[a.self.Server].Value.IsInUse()
	if !isInUse {
		if err := a.announce(ctx, false); err != nil {
			return Outcome{}, err
		}
	}
	answer, err := a.follow(ctx, a.orders(state))
	if errors.Is(err, ErrNotYet) {
		a.answered = now
		return Outcome{}, nil
	}
	if errors.Is(err, ErrRefused) {
		a.answered = now
		return a.isRefused(now, err), nil
	}
	if err != nil {
		if errors.Is(err, ErrRestarted) {
			return Outcome{}, errors.Join(err, a.announce(ctx, false))
		}
		if now-a.answered >= a.config.Stuck {
			return Outcome{}, errors.Join(fmt.Errorf("the dataplane has not answered for %v: %w", now-a.answered, err), a.announce(ctx, false))
		}
		a.log.Warn("the dataplane does not answer", "error", err)
		return Outcome{}, nil
	}
	a.answered, a.refused = now, ""
	for id, shard := range state.Shards {
		if _, has := answer.Reports[id]; !has && a.roleIn(shard.Value) != None {
			return Outcome{}, errors.Join(fmt.Errorf("shard %d: %w", id, ErrGivenUp), a.announce(ctx, false))
		}
	}
	if err := a.announce(ctx, isInUse); err != nil {
		return Outcome{}, err
	}
	outcome := Outcome{Says: a.says(now, state, answer)}
	for _, id := range slices.Sorted(maps.Keys(state.Shards)) {
		if next, differs := a.next(state.Shards[id].Value, answer.Reports[id]); differs {
			outcome.Writes = append(outcome.Writes, state.Shards[id].Put(id.Key(), next))
		}
	}
	return outcome, nil
}

// follow tells the dataplane what to do, and waits no longer for it than it may be stuck.
func (a *Agent) follow(ctx context.Context, orders Orders) (Answer, error) {
	limited, cancel := context.WithTimeout(ctx, a.config.Stuck)
	defer cancel()
	return a.dataplane.Follow(limited, orders)
}

// isRefused returns what to say while the dataplane refuses its orders. What is wrong in the store is wrong for all servers: if each gave its copies up, no
// connection would be left. So each goes on as it is, and says that it should be the master of nothing, in case that others can follow.
func (a *Agent) isRefused(now time.Duration, err error) Outcome {
	if a.refused != err.Error() {
		a.refused = err.Error()
		a.log.Error("the agent goes on without following the store", "error", err)
	}
	is := records.Presence{}
	if a.said != nil {
		is = a.said.Presence
	}
	if is.Unwell == a.refused {
		return Outcome{}
	}
	is.Unwell = a.refused
	return Outcome{Says: &Says{is, now}}
}

func (a *Agent) roleIn(shard records.Shard) Role {
	switch a.self {
	case shard.Master:
		return Master
	case shard.Slave:
		return Slave
	}
	return None
}

func (a *Agent) orders(state *records.State) (orders Orders) {
	for _, id := range slices.Sorted(maps.Keys(state.Servers)) {
		server := state.Servers[id].Value
		if instance := server.Instances[server.Process]; instance != "" {
			orders.Peers = append(orders.Peers, Peer{id, instance, server.Address})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(state.Shards)) {
		shard := state.Shards[id].Value
		grants := shard.GrantsOf(a.self)
		if a.roleIn(shard) == None {
			grants = nil
		}
		slices.Sort(grants)
		// The agent takes itself off the unsettled ones when the dataplane follows, so it does not count.
		settled := !slices.ContainsFunc(shard.Unsettled, func(member records.Member) bool { return member != a.self })
		holder := func(member records.Member) Holder { return Holder{member, state.InstanceOf(member)} }
		orders.Shards = append(orders.Shards, Order{Shard: id, Epoch: shard.Epoch, Master: holder(shard.Master), Slave: holder(shard.Slave),
			Settled: settled, Grants: grants})
	}
	return orders
}

// next returns the shard's record after the dataplane's report, and if it differs.
func (a *Agent) next(shard records.Shard, report Report) (next records.Shard, differs bool) {
	next = shard.Clone()
	role := a.roleIn(shard)
	if n := slices.Index(next.Unsettled, a.self); n >= 0 {
		next.Unsettled = slices.Delete(next.Unsettled, n, n+1)
		differs = true
	}
	if role == Master && next.InSync != report.InSync {
		next.InSync = report.InSync
		differs = true
	}
	if isReady := report.Wanted > 0 && !report.LacksPorts; role == Slave && next.Ready != isReady {
		next.Ready = isReady
		differs = true
	}
	if role == Slave && next.LacksConnections != report.LacksConnections {
		next.LacksConnections = report.LacksConnections
		differs = true
	}
	if role == Master {
		for _, number := range report.Withdrawn {
			if next.Grants[number].Holder == a.self {
				delete(next.Grants, number)
				differs = true
			}
		}
	}
	if role == None {
		for _, number := range next.GrantsOf(a.self) {
			next.Grants[number] = records.Grant{Waits: true} // for the master: it has the connections
			differs = true
		}
	}
	return next, differs
}

func (a *Agent) announce(ctx context.Context, isOn bool) error {
	if isOn == a.announced {
		return nil
	}
	if err := a.routes.Announce(ctx, isOn); err != nil {
		return fmt.Errorf("routes cannot be announced: %w", err)
	}
	a.announced = isOn
	return nil
}

// says returns what the member should say of itself, if that is new.
func (a *Agent) says(now time.Duration, state *records.State, answer Answer) *Says {
	is := records.Presence{Unwell: a.routes.Trouble(), Loads: map[records.ShardID]float64{}, Wanted: map[records.ShardID]uint32{},
		Disagrees: answer.Disagrees, OtherLayouts: answer.OtherLayouts}
	for id, shard := range state.Shards {
		report := answer.Reports[id]
		if a.roleIn(shard.Value) == Master {
			is.Loads[id] = report.Load
		}
		if a.roleIn(shard.Value) != None {
			is.Wanted[id] = report.Wanted
		}
	}
	if a.said != nil && isAlike(is, a.said.Presence) {
		are := func(float64, float64) bool { return true }
		if now >= a.said.at+a.config.LoadPace {
			are = func(a, b float64) bool { return a == b }
		}
		if maps.EqualFunc(is.Loads, a.said.Presence.Loads, are) {
			return nil
		}
	}
	return &Says{is, now}
}

// isAlike returns true if the two say the same, but for loads.
func isAlike(a, b records.Presence) bool {
	return a.Unwell == b.Unwell && maps.Equal(a.Wanted, b.Wanted) && maps.Equal(a.Disagrees, b.Disagrees) && slices.Equal(a.OtherLayouts, b.OtherLayouts)
}

// Said notes that the store was told. Until then each step says it again.
func (a *Agent) Said(says *Says) { a.said = says }

// Pace is how often the dataplane is asked for a report.
const Pace = 100 * time.Millisecond

// Run follows the store until ctx ends, the agent is gone or the dataplane is stuck. Then it withdraws the routes; the caller closes the store.
func (a *Agent) Run(ctx context.Context, from store.Store) error {
	defer func() { _ = a.announce(context.WithoutCancel(ctx), false) }()
	start := time.Now()
	views := from.Watch(ctx)
	tick := time.NewTicker(Pace)
	defer tick.Stop()
	var state *records.State
	told := make(chan *Says, 1) // what was said, once the store has been told all of an outcome
	isTelling := false
	for {
		select {
		case view, ok := <-views:
			if !ok {
				return cmp.Or(ctx.Err(), context.Canceled)
			}
			next, err := records.Parse(view, state)
			if err != nil {
				a.log.Error("the agent goes on with the record that it had", "error", err)
			}
			state = next
		case said := <-told:
			isTelling = false
			if said != nil {
				a.Said(said)
			}
			continue
		case <-a.routes.Changed():
		case <-tick.C:
		}
		if state == nil {
			continue
		}
		outcome, err := a.Step(ctx, time.Since(start), state)
		if err != nil {
			return err
		}
		if !isTelling && (outcome.Says != nil || len(outcome.Writes) > 0) {
			isTelling = true
			go func() { told <- a.tell(ctx, from, outcome) }()
		}
	}
}

// tell tells the store, and returns what was said; nil if nothing was, or it may not have come there.
func (a *Agent) tell(ending context.Context, to store.Store, outcome Outcome) (said *Says) {
	ctx, cancel := context.WithTimeout(ending, time.Second)
	defer cancel()
	if outcome.Says != nil {
		bytes, err := json.Marshal(outcome.Says.Presence)
		if err == nil {
			err = to.Present(ctx, a.self.String(), bytes)
		}
		if err == nil {
			said = outcome.Says
		} else if ending.Err() == nil {
			a.log.Warn("the store may not know that this member is present", "error", err)
		}
	}
	store.Together(len(outcome.Writes), func(n int) {
		put := outcome.Writes[n]
		if err := to.Write(ctx, put); err != nil && !errors.Is(err, store.ErrConflict) && ending.Err() == nil {
			a.log.Warn("a report may be lost", "key", put.Key, "error", err)
		}
	})
	return said
}
