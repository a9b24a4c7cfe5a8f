package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"millrace/cluster/internal/agent"
	"millrace/cluster/internal/records"
	"millrace/cluster/internal/store"
	"millrace/cluster/internal/store/memory"
)

var (
	self  = records.Member{Server: 7, Process: 3}
	other = records.Member{Server: 8, Process: 1}
	quiet = slog.New(slog.NewTextHandler(io.Discard, nil))
)

// trace is a dataplane and routes that note what they are told.
type trace struct {
	lines   []string
	reports map[records.ShardID]agent.Report
	stuck   bool
}

func (t *trace) Follow(_ context.Context, orders []agent.Order) (map[records.ShardID]agent.Report, error) {
	if t.stuck {
		return nil, errors.New("no answer")
	}
	line := "follow"
	for _, order := range orders {
		line += fmt.Sprintf(" %d:%d/%d/%v/%v/%v", order.Shard, order.Epoch, order.Role, order.Other, order.Settled, order.Grants)
	}
	t.lines = append(t.lines, line)
	return t.reports, nil
}

func (t *trace) Announce(_ context.Context, routes []agent.Route) error {
	t.lines = append(t.lines, fmt.Sprint("announce ", routes))
	return nil
}

func (t *trace) expect(test *testing.T, lines ...string) {
	test.Helper()
	if !slices.Equal(t.lines, lines) {
		test.Errorf("%q instead of %q", t.lines, lines)
	}
	t.lines = nil
}

func stateOf(process uint32, shards map[records.ShardID]records.Shard) *records.State {
	state := &records.State{Servers: map[records.ServerID]records.Record[records.Server]{7: {Value: records.Server{Process: process}, Revision: 1}},
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
	told := &trace{reports: map[records.ShardID]agent.Report{5: {InSync: true, Withdrawn: []uint32{2}}}}
	a := agent.New(self, agent.Default, told, told, quiet)
	shard := records.Shard{Epoch: 4, Master: self, Slave: other, Unsettled: []records.Member{self, other},
		Grants: records.Grants{1: {Holder: self}, 2: {Holder: self}, 3: {Holder: other}}}
	got := written(t, step(t, a, 0, stateOf(3, map[records.ShardID]records.Shard{5: shard})))
	told.expect(t, "follow 5:4/1/8.1/false/[1 2]", "announce [{5 4 true}]")
	if len(got) != 1 || !got[0].InSync || len(got[0].Unsettled) != 1 || len(got[0].Grants) != 2 {
		t.Errorf("the master reports %+v", got)
	}

	// A slave withdraws nothing, and has a route while it is in sync.
	shard.Epoch, shard.Master, shard.Slave, shard.Unsettled = 5, other, self, nil
	if got := written(t, step(t, a, 1, stateOf(3, map[records.ShardID]records.Shard{5: shard}))); len(got) != 0 {
		t.Errorf("the slave reports %+v", got)
	}
	told.expect(t, "announce []", "follow 5:5/2/8.1/true/[1 2]", "announce [{5 5 false}]")
	told.reports = nil
	step(t, a, 2, stateOf(3, map[records.ShardID]records.Shard{5: shard}))
	told.expect(t, "follow 5:5/2/8.1/true/[1 2]", "announce []")

	// Without a role it gives its grants back, once the dataplane has none.
	shard.Epoch, shard.Slave, shard.Unsettled = 6, records.Member{}, []records.Member{self}
	got = written(t, step(t, a, 3, stateOf(3, map[records.ShardID]records.Shard{5: shard})))
	told.expect(t, "follow")
	if len(got) != 1 || len(got[0].Unsettled) != 0 || !got[0].Grants[1].Waits || !got[0].Grants[2].Waits || got[0].Grants[3].Holder != other {
		t.Errorf("without a role it reports %+v", got)
	}
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
	told.expect(t, "follow 5:4/1/none/true/[]", "announce [{5 4 true}]")
	step(t, a, 2, &records.State{})
	told.expect(t, "follow 5:4/1/none/true/[]")
	_, err := a.Step(context.Background(), 3, stateOf(4, nil))
	if !errors.Is(err, agent.ErrGone) {
		t.Errorf("with a successor: %v", err)
	}
	told.expect(t, "announce []", "follow")
}

func TestDataplaneIsStuck(t *testing.T) {
	told := &trace{}
	a := agent.New(self, agent.Default, told, told, quiet)
	state := stateOf(3, map[records.ShardID]records.Shard{5: {Epoch: 4, Master: self, Unsettled: []records.Member{self}}})
	step(t, a, 0, state)
	told.lines, told.stuck = nil, true
	if outcome := step(t, a, agent.Default.Stuck-1, state); len(outcome.Writes) != 0 {
		t.Errorf("without a report it writes %+v", outcome.Writes)
	}
	told.expect(t)
	if _, err := a.Step(context.Background(), agent.Default.Stuck, state); err == nil {
		t.Error("the agent goes on")
	}
	told.expect(t, "announce []")
}

// The member says something new at once, but not each load.
func TestPresence(t *testing.T) {
	told := &trace{reports: map[records.ShardID]agent.Report{5: {Load: 0.5, Wanted: 3}}}
	a := agent.New(self, agent.Default, told, told, quiet)
	state := stateOf(3, map[records.ShardID]records.Shard{5: {Epoch: 4, Master: self}})
	says := func(now time.Duration) *agent.Says { return step(t, a, now, state).Says }
	first := says(0)
	if first == nil || says(1) == nil {
		t.Fatal("it says nothing until the store has heard it")
	}
	a.Said(first)
	told.reports[5] = agent.Report{Load: 0.6, Wanted: 3}
	if says(2) != nil || says(agent.Default.LoadPace-1) != nil {
		t.Error("it says each load")
	}
	if is := says(agent.Default.LoadPace); is == nil || is.Presence.Loads[5] != 0.6 {
		t.Errorf("after a while it says %+v", is)
	}
	told.reports[5] = agent.Report{Load: 0.6, Wanted: 4}
	if is := says(3); is == nil || is.Presence.Wanted[5] != 4 {
		t.Errorf("it says %+v", is)
	}
}

func TestRegister(t *testing.T) {
	server := memory.NewServer()
	client := server.Open()
	defer client.Close()
	if _, err := agent.Register(t.Context(), client, 7); err == nil {
		t.Error("a server without a record has registered")
	}
	if err := server.Write(store.Put{Key: "servers/7", Value: []byte(`{"name":"a"}`)}); err != nil {
		t.Fatal(err)
	}
	for process := range uint32(3) {
		if member, err := agent.Register(t.Context(), client, 7); err != nil || member != (records.Member{Server: 7, Process: process + 1}) {
			t.Errorf("%v: %v", member, err)
		}
	}
	// The answer is lost, and nobody gets that number.
	client.SetLink(memory.LosesAnswers)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := agent.Register(ctx, client, 7); err == nil {
		t.Error("registered without an answer")
	}
	if err := server.Write(store.Put{Key: "servers/7", Revision: server.View().Records["servers/7"].Revision, Value: []byte(`{"process":4}`)}); err != nil {
		t.Fatal(err)
	}
	client.SetLink(memory.Works)
	if member, err := agent.Register(t.Context(), client, 7); err != nil || member.Process != 5 {
		t.Errorf("%v: %v", member, err)
	}
}
