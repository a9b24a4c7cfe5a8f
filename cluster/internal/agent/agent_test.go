package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/control/cluster/internal/agent"
	"millrace/control/cluster/internal/records"
	"millrace/control/cluster/internal/store"
	"millrace/control/cluster/internal/store/memory"
)

var (
	self  = records.Member{Server: 7, Process: 3}
	other = records.Member{Server: 8, Process: 1}
	quiet = slog.New(slog.NewTextHandler(io.Discard, nil))
)

// trace is a dataplane and routes that note what they are told.
type trace struct {
	lines []string
	agent.Answer
	err     error // of Follow
	trouble string
	// hasGivenUp: it has only the copies that Reports name, whatever it is told.
	hasGivenUp bool
}

func (t *trace) Follow(ctx context.Context, orders agent.Orders) (agent.Answer, error) {
	if t.err != nil {
		return agent.Answer{}, t.err
	}
	line := "follow"
	if _, is := ctx.Deadline(); !is {
		line += " without a limit"
	}
	for _, peer := range orders.Peers {
		line += fmt.Sprintf(" %d=%s@%s", peer.Server, peer.Instance, peer.Address)
	}
	for _, order := range orders.Shards {
		line += fmt.Sprintf(" %d:%d/%v=%s/%v=%s/%v/%v", order.Shard, order.Epoch, order.Master.Member, order.Master.Instance,
			order.Slave.Member, order.Slave.Instance, order.Settled, order.Grants)
	}
	t.lines = append(t.lines, line)
	answer := t.Answer
	answer.Reports = maps.Clone(t.Reports)
	for _, order := range orders.Shards {
		if _, has := answer.Reports[order.Shard]; !has && order.RoleOf(self) != agent.None && !t.hasGivenUp {
			if answer.Reports == nil {
				answer.Reports = map[records.ShardID]agent.Report{}
			}
			answer.Reports[order.Shard] = agent.Report{}
		}
	}
	return answer, nil
}

func (t *trace) Announce(_ context.Context, isOn bool) error {
	t.lines = append(t.lines, fmt.Sprint("announce ", isOn))
	return nil
}

func (t *trace) Trouble() string { return t.trouble }

func (t *trace) Changed() <-chan struct{} { return nil }

func (t *trace) expect(test *testing.T, lines ...string) {
	test.Helper()
	if !slices.Equal(t.lines, lines) {
		test.Errorf("%q instead of %q", t.lines, lines)
	}
	t.lines = nil
}

func stateOf(process uint32, shards map[records.ShardID]records.Shard) *records.State {
	state := &records.State{Servers: map[records.ServerID]records.Record[records.Server]{
		7: {Value: records.Server{Process: process, Address: "10.9.0.7", Instances: map[uint32]string{process - 1: "s6", process: "s7"}}, Revision: 1},
		8: {Value: records.Server{Process: 2, Instances: map[uint32]string{1: "o1"}}, Revision: 1}},
		Shards: map[records.ShardID]records.Record[records.Shard]{}}
	for id, shard := range shards {
		state.Shards[id] = records.Record[records.Shard]{Value: shard, Revision: 5}
	}
	return state
}

func step(t *testing.T, a *agent.Agent, now time.Duration, state *records.State) agent.Outcome {
	t.Helper()
	outcome, err := a.Step(context.Background(), now, state)
	if err != nil {
		t.Fatal(err)
	}
	return outcome
}

func written(t *testing.T, outcome agent.Outcome) (shards []records.Shard) {
	t.Helper()
	for _, put := range outcome.Writes {
		var shard records.Shard
		if err := json.Unmarshal(put.Value, &shard); err != nil || put.Revision != 5 {
			t.Fatalf("%s at %d: %v", put.Value, put.Revision, err)
		}
		shards = append(shards, shard)
	}
	return shards
}

func TestRoles(t *testing.T) {
	told := &trace{Answer: agent.Answer{Reports: map[records.ShardID]agent.Report{5: {InSync: true, Withdrawn: []uint32{2}}}}}
	a := agent.New(self, agent.Default, told, told, quiet)
	shard := records.Shard{Epoch: 4, Master: self, Slave: other, Unsettled: []records.Member{self, other},
		Grants: records.Grants{1: {Holder: self}, 2: {Holder: self}, 3: {Holder: other}}}
	elsewhere := records.Shard{Epoch: 2, Master: other, Slave: records.Member{Server: 9, Process: 1}}
	got := written(t, step(t, a, 0, stateOf(3, map[records.ShardID]records.Shard{5: shard, 6: elsewhere})))
	// Server 8's newest process is nobody's, so it is no peer; its earlier one still has a name.
	told.expect(t, "follow 7=s7@10.9.0.7 5:4/7.3=s7/8.1=o1/false/[1 2] 6:2/8.1=o1/9.1=/true/[]", "announce true")
	if len(got) != 1 || !got[0].InSync || len(got[0].Unsettled) != 1 || len(got[0].Grants) != 2 {
		t.Errorf("the master reports %+v", got)
	}

	// A slave withdraws nothing.
	shard.Epoch, shard.Master, shard.Slave, shard.Unsettled = 5, other, self, nil
	if got := written(t, step(t, a, 1, stateOf(3, map[records.ShardID]records.Shard{5: shard}))); len(got) != 0 {
		t.Errorf("the slave reports %+v", got)
	}
	told.expect(t, "follow 7=s7@10.9.0.7 5:5/8.1=o1/7.3=s7/true/[1 2]")

	// It says whether it could open connections.
	told.Reports[5] = agent.Report{InSync: true, Wanted: 2, LacksPorts: true}
	if got := written(t, step(t, a, 2, stateOf(3, map[records.ShardID]records.Shard{5: shard}))); len(got) != 0 {
		t.Errorf("a slave without ports reports %+v", got)
	}
	told.Reports[5] = agent.Report{InSync: true, Wanted: 2}
	if got := written(t, step(t, a, 2, stateOf(3, map[records.ShardID]records.Shard{5: shard}))); len(got) != 1 || !got[0].Ready || got[0].InSync {
		t.Errorf("a slave with ports reports %+v", got)
	}
	// It says whether it had no place for connections.
	told.Reports[5] = agent.Report{InSync: true, LacksConnections: true}
	if got := written(t, step(t, a, 2, stateOf(3, map[records.ShardID]records.Shard{5: shard}))); len(got) != 1 || !got[0].LacksConnections {
		t.Errorf("a slave that has refused connections reports %+v", got)
	}
	told.Reports[5] = agent.Report{}
	follows := "follow 7=s7@10.9.0.7 5:5/8.1=o1/7.3=s7/true/[1 2]"
	told.expect(t, follows, follows, follows)

	// Without a role it gives its grants back, once the dataplane has none.
	shard.Epoch, shard.Slave, shard.Unsettled = 6, records.Member{}, []records.Member{self}
	got = written(t, step(t, a, 3, stateOf(3, map[records.ShardID]records.Shard{5: shard})))
	told.expect(t, "follow 7=s7@10.9.0.7 5:6/8.1=o1/none=/true/[]")
	if len(got) != 1 || len(got[0].Unsettled) != 0 || !got[0].Grants[1].Waits || !got[0].Grants[2].Waits || got[0].Grants[3].Holder != other {
		t.Errorf("without a role it reports %+v", got)
	}
}

// A server that drains withdraws its routes before anything else, and announces them when it is back.
func TestDrains(t *testing.T) {
	told := &trace{}
	a := agent.New(self, agent.Default, told, told, quiet)
	state := stateOf(3, nil)
	step(t, a, 0, state)
	told.expect(t, "follow 7=s7@10.9.0.7", "announce true")
	for _, set := range []func(*records.Server){func(s *records.Server) { s.Draining = true }, func(s *records.Server) { s.Draining, s.Spare = false, true }} {
		server := state.Servers[7]
		set(&server.Value)
		state.Servers[7] = server
		step(t, a, 1, state)
	}
	told.expect(t, "announce false", "follow 7=s7@10.9.0.7", "follow 7=s7@10.9.0.7")
	step(t, a, 2, stateOf(3, nil))
	told.expect(t, "follow 7=s7@10.9.0.7", "announce true")
}

// A store that has lost its records makes nobody give up anything. A successor does.
func TestStoreIsLost(t *testing.T) {
	told := &trace{}
	a := agent.New(self, agent.Default, told, told, quiet)
	if outcome := step(t, a, 0, stateOf(2, nil)); outcome.Says != nil || len(told.lines) != 0 {
		t.Errorf("before the view has this process: %+v, %q", outcome, told.lines)
	}
	state := stateOf(3, map[records.ShardID]records.Shard{5: {Epoch: 4, Master: self}})
	step(t, a, 1, state)
	told.expect(t, "follow 7=s7@10.9.0.7 5:4/7.3=s7/none=/true/[]", "announce true")
	step(t, a, 2, &records.State{})
	told.expect(t, "follow 7=s7@10.9.0.7 5:4/7.3=s7/none=/true/[]")
	_, err := a.Step(context.Background(), 3, stateOf(4, nil))
	if !errors.Is(err, agent.ErrGone) {
		t.Errorf("with a successor: %v", err)
	}
	told.expect(t, "announce false", "follow")
}

func TestDataplaneIsStuck(t *testing.T) {
	told := &trace{}
	a := agent.New(self, agent.Default, told, told, quiet)
	state := stateOf(3, map[records.ShardID]records.Shard{5: {Epoch: 4, Master: self, Unsettled: []records.Member{self}}})
	step(t, a, 0, state)
	told.lines, told.err = nil, errors.New("no answer")
	if outcome := step(t, a, agent.Default.Stuck-1, state); len(outcome.Writes) != 0 {
		t.Errorf("without a report it writes %+v", outcome.Writes)
	}
	told.expect(t)
	if _, err := a.Step(context.Background(), agent.Default.Stuck, state); err == nil {
		t.Error("the agent goes on")
	}
	told.expect(t, "announce false")
}

// A dataplane that has much to do is not stuck, and what it has not done is not reported.
func TestDataplaneTakesItsTime(t *testing.T) {
	told := &trace{}
	a := agent.New(self, agent.Default, told, told, quiet)
	state := stateOf(3, map[records.ShardID]records.Shard{5: {Epoch: 4, Master: self, Unsettled: []records.Member{self}}})
	told.err = agent.ErrNotYet
	for now := range 5 * agent.Default.Stuck / time.Second {
		if outcome := step(t, a, now*time.Second, state); len(outcome.Writes) != 0 || outcome.Says != nil {
			t.Errorf("it reports %+v", outcome)
		}
	}
	told.expect(t)
	told.err = nil
	if outcome := step(t, a, 6*agent.Default.Stuck, state); len(outcome.Writes) != 1 {
		t.Errorf("it reports %+v", outcome)
	}
}

// Orders that the dataplane refuses would be refused by all servers: none gives its copies up.
func TestDataplaneRefuses(t *testing.T) {
	told := &trace{}
	a := agent.New(self, agent.Default, told, told, quiet)
	state := stateOf(3, map[records.ShardID]records.Shard{5: {Epoch: 4, Master: self}})
	a.Said(step(t, a, 0, state).Says)
	told.lines, told.err = nil, fmt.Errorf("%w: no shard 7", agent.ErrRefused)
	outcome := step(t, a, 1, state)
	if outcome.Says == nil || outcome.Says.Presence.Unwell != told.err.Error() || len(outcome.Writes) != 0 {
		t.Fatalf("it says %+v, and writes %v", outcome.Says, outcome.Writes)
	}
	a.Said(outcome.Says)
	for now := range 5 * agent.Default.Stuck / time.Second {
		if outcome := step(t, a, now*time.Second, state); outcome.Says != nil {
			t.Errorf("it says again %+v", outcome.Says)
		}
	}
	told.expect(t)
	told.err = nil
	if outcome := step(t, a, 6*agent.Default.Stuck, state); outcome.Says == nil || outcome.Says.Presence.Unwell != "" {
		t.Errorf("afterwards it says %+v", outcome.Says)
	}
}

// A dataplane that another program has told to give its copies up does not get them back in the same epoch: the agent begins anew.
func TestDataplaneHasGivenUp(t *testing.T) {
	told := &trace{}
	a := agent.New(self, agent.Default, told, told, quiet)
	state := stateOf(3, map[records.ShardID]records.Shard{5: {Epoch: 4, Master: other, Slave: self}})
	step(t, a, 0, state)
	told.lines, told.hasGivenUp = nil, true
	if _, err := a.Step(context.Background(), 1, state); !errors.Is(err, agent.ErrGivenUp) {
		t.Errorf("after giving up: %v", err)
	}
	told.expect(t, "follow 7=s7@10.9.0.7 5:4/8.1=o1/7.3=s7/true/[]", "announce false")
}

// Another process of millrace has no copies: the agent does not wait.
func TestDataplaneIsAnother(t *testing.T) {
	told := &trace{}
	a := agent.New(self, agent.Default, told, told, quiet)
	state := stateOf(3, nil)
	step(t, a, 0, state)
	told.lines, told.err = nil, fmt.Errorf("no such socket: %w", agent.ErrRestarted)
	if _, err := a.Step(context.Background(), 1, state); !errors.Is(err, agent.ErrRestarted) {
		t.Errorf("after a restart: %v", err)
	}
	told.expect(t, "announce false")
}

// The member says something new at once, but not each load.
func TestPresence(t *testing.T) {
	told := &trace{Answer: agent.Answer{Reports: map[records.ShardID]agent.Report{5: {Load: 0.5, Wanted: 3}}}}
	a := agent.New(self, agent.Default, told, told, quiet)
	state := stateOf(3, map[records.ShardID]records.Shard{5: {Epoch: 4, Master: self}})
	says := func(now time.Duration) *agent.Says { return step(t, a, now, state).Says }
	first := says(0)
	if first == nil || says(1) == nil {
		t.Fatal("it says nothing until the store has heard it")
	}
	a.Said(first)
	told.Reports[5] = agent.Report{Load: 0.6, Wanted: 3}
	if says(2) != nil || says(agent.Default.LoadPace-1) != nil {
		t.Error("it says each load")
	}
	if is := says(agent.Default.LoadPace); is == nil || is.Presence.Loads[5] != 0.6 {
		t.Errorf("after a while it says %+v", is)
	}
	told.Reports[5] = agent.Report{Load: 0.6, Wanted: 4}
	if is := says(3); is == nil || is.Presence.Wanted[5] != 4 {
		t.Errorf("it says %+v", is)
	}
	told.Reports[5] = agent.Report{Load: 0.6, Wanted: 3}
	told.trouble = "a link is down"
	if is := says(4); is == nil || is.Presence.Unwell != "a link is down" {
		t.Errorf("with a link down it says %+v", is)
	} else {
		a.Said(is)
	}
	told.Disagrees, told.OtherLayouts = map[records.ServerID]string{8: "customers differ"}, []records.ServerID{9}
	if is := says(5); is == nil || is.Presence.Disagrees[8] != "customers differ" || !slices.Equal(is.Presence.OtherLayouts, told.OtherLayouts) {
		t.Errorf("of servers that differ it says %+v", is)
	} else if a.Said(is); says(6) != nil {
		t.Error("it says the same again")
	}
}

func TestRegister(t *testing.T) {
	server := memory.NewServer()
	client := server.Open()
	defer client.Close()
	// A record of a version without grants gets them.
	if err := client.Write(t.Context(), store.Put{Key: records.ShardID(5).Key(), Value: []byte(`{"epoch":4,"master":"none","slave":"none","grant_count":0}`)}); err != nil {
		t.Fatal(err)
	}
	is := agent.Identity{Server: 7, Address: "10.9.0.7", Shards: 250}
	about := agent.About{Name: "a", Rack: "r", Capacity: 2}
	for process := range uint32(10) {
		is.Instance = fmt.Sprint("i", process+1)
		if member, err := agent.Register(t.Context(), client, is, about); err != nil || member != (records.Member{Server: 7, Process: process + 1}) {
			t.Errorf("%v: %v", member, err)
		}
	}
	state := read(t, server)
	got := state.Servers[7].Value
	if got.Name != "a" || got.Rack != "r" || got.Capacity != 2 || got.Address != "10.9.0.7" || len(state.Shards) != 250 {
		t.Errorf("registered: %+v, and %d shards", got, len(state.Shards))
	}
	for id, epoch := range map[records.ShardID]uint64{4: 0, 5: 4} {
		if is := state.Shards[id].Value; is.GrantCount != records.GrantCount || is.Epoch != epoch {
			t.Errorf("shard %d: %+v", id, is)
		}
	}
	if of := got.Instances; len(of) != 8 || of[10] != "i10" || of[3] != "i3" {
		t.Errorf("instances: %v", of)
	}
	is.Shards = 128
	if _, err := agent.Register(t.Context(), client, is, about); !errors.Is(err, agent.ErrMisfit) {
		t.Errorf("with another number of shards: %v", err)
	}
	is.Shards = 250
	if _, err := agent.Register(t.Context(), client, agent.Identity{Server: 8, Shards: 250}, about); !errors.Is(err, agent.ErrMisfit) {
		t.Errorf("with the name of another server: %v", err)
	}

	// The answer is lost, and nobody gets that number.
	client.SetLink(memory.LosesAnswers)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := agent.Register(ctx, client, is, about); err == nil {
		t.Error("registered without an answer")
	}
	client.SetLink(memory.Works)
	self, err := agent.Register(t.Context(), client, is, about)
	if err != nil {
		t.Fatal(err)
	}
	// The process leaves: it is gone, and nobody has taken its place.
	if err := agent.Leave(t.Context(), client, self); err != nil {
		t.Fatal(err)
	}
	state = read(t, server)
	if is := state.Servers[7].Value; !state.IsGone(self) || is.Instances[is.Process] != "" || is.Instances[self.Process] != "i10" || is.Address != "" {
		t.Errorf("after leaving: %+v", is)
	}
	if err := agent.Leave(t.Context(), client, self); err != nil || read(t, server).Servers[7].Value.Process != self.Process+1 {
		t.Errorf("it leaves again: %v", err)
	}
}

// A server that does not fit is refused before others see it.
func TestRegisterMisfits(t *testing.T) {
	server := memory.NewServer()
	client := server.Open()
	defer client.Close()
	register := func(id records.ServerID, name, address string) (records.Member, error) {
		is := agent.Identity{Server: id, Instance: name, Address: address, Shards: 128}
		return agent.Register(t.Context(), client, is, agent.About{Name: name, Capacity: 1})
	}
	self, err := register(1, "one", "10.9.0.1")
	if err != nil {
		t.Fatal(err)
	}
	if err := client.Present(t.Context(), self.String(), []byte("{}")); err != nil {
		t.Fatal(err)
	}
	before := server.View()
	for _, wrong := range []struct {
		id                 records.ServerID
		name, address, why string
	}{{2, "two", "fd00::2", "this one fd00::2: all servers need one of the same family"}, {2, "3", "10.9.0.2", "its name is 3, and its number 2"},
		{2, "two", "10.9.0.1", "server 1 (one) has the address 10.9.0.1, too"},
		{2, "one", "10.9.0.2", "its millrace has the number 2 (cluster.server), but the name one is that of server 1"},
		{1, "two", "10.9.0.1", "server 1 is there already, with the name one"}, {1, "one", "10.9.0.2", "server 1 is there already, with the name one"}} {
		if _, err := register(wrong.id, wrong.name, wrong.address); !errors.Is(err, agent.ErrMisfit) || !strings.Contains(err.Error(), wrong.why) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
	if is := server.View(); len(is.Records) != len(before.Records) || is.Records["servers/1"].Revision != before.Records["servers/1"].Revision {
		t.Errorf("the store has %v", is.Records["servers/1"])
	}
	for id := records.ServerID(2); id <= 64; id++ {
		if _, err = register(id, fmt.Sprint(id), fmt.Sprint("10.9.0.", id)); err != nil {
			if id != 64 || !errors.Is(err, agent.ErrMisfit) {
				t.Errorf("server %d: %v", id, err)
			}
		}
	}
	if err == nil {
		t.Error("there are 64 servers")
	}
	// Servers that have left make room, also for the other family.
	for id := records.ServerID(1); id <= 63; id++ {
		if err := agent.Leave(t.Context(), client, records.Member{Server: id, Process: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := register(1, "uno", "fd00::1"); err != nil {
		t.Error(err)
	}
}

// A shard's record that names a process of a server without a record stays as it is, and holds nobody up.
func TestRegisterBesideAnUnknown(t *testing.T) {
	server := memory.NewServer()
	client := server.Open()
	defer client.Close()
	const of = `{"epoch":4,"master":"9.1","slave":"none","grant_count":64}`
	if err := client.Write(t.Context(), store.Put{Key: records.ShardID(5).Key(), Value: []byte(of)}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if _, err := agent.Register(ctx, client, agent.Identity{Server: 7, Instance: "x", Shards: 128}, agent.About{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	if is := server.View(); len(is.Records) != 128+2 || string(is.Records["shards/5"].Value) != of {
		t.Errorf("%d records, %s", len(is.Records), is.Records["shards/5"].Value)
	}
}

// Two servers begin a cluster at the same time.
func TestRegisterTogether(t *testing.T) {
	server := memory.NewServer()
	var all sync.WaitGroup
	for id := records.ServerID(1); id <= 4; id++ {
		all.Go(func() {
			client := server.Open()
			defer client.Close()
			if _, err := agent.Register(t.Context(), client, agent.Identity{Server: id, Instance: "x", Shards: 512}, agent.About{Name: fmt.Sprint(id)}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if state := read(t, server); len(state.Servers) != 4 || len(state.Shards) != 512 {
		t.Errorf("%d servers, %d shards", len(state.Servers), len(state.Shards))
	}
}

func read(t *testing.T, server *memory.Server) *records.State {
	t.Helper()
	state, err := records.Parse(server.View(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return state
}
