package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/control/cluster/internal/records"
	"millrace/control/cluster/internal/store"
	"millrace/control/cluster/internal/store/memory"
)

// text is what a command prints, while it runs.
type text struct {
	mu    sync.Mutex
	bytes bytes.Buffer
}

func (t *text) Write(bytes []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bytes.Write(bytes)
}

func (t *text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bytes.String()
}

// bench is a store with three servers, one, two and three, without agents and managers.
type bench struct {
	*testing.T
	*cluster
	server   *memory.Server
	out, err text
}

const shard = records.ShardID(5)

func newBench(t *testing.T) *bench {
	b := &bench{T: t, server: memory.NewServer()}
	client := b.server.Open()
	t.Cleanup(func() { _ = client.Close() })
	b.cluster = &cluster{Store: client, app: &app{out: &b.out, err: &b.err}, rest: time.Hour}
	for n, name := range []string{"one", "two", "three"} {
		id := records.ServerID(n + 1)
		b.put(id.Key(), records.Server{Name: name, Process: 1})
		b.server.Present(member(id).String(), []byte("{}"))
	}
	return b
}

func member(server records.ServerID) records.Member {
	return records.Member{Server: server, Process: 1}
}

func (b *bench) put(key string, value any) {
	b.Helper()
	bytes, err := json.Marshal(value)
	if err == nil {
		err = b.server.Write(store.Put{Key: key, Revision: b.server.View().Records[key].Revision, Value: bytes})
	}
	if err != nil {
		b.Fatal(err)
	}
}

// is returns a shard with grants whose master is server 1, and whose slave is server 2, in sync.
func is(epoch uint64) records.Shard {
	return records.Shard{Epoch: epoch, Master: member(1), Slave: member(2), InSync: true, GrantCount: 64,
		Grants: records.Grants{0: {Holder: member(1)}, 1: {Holder: member(2)}}}
}

func (b *bench) shard() records.Shard {
	b.Helper()
	var is records.Shard
	if err := json.Unmarshal(b.server.View().Records[shard.Key()].Value, &is); err != nil {
		b.Fatal(err)
	}
	return is
}

// begin runs a command, and returns a function that waits until it ends.
func (b *bench) begin(do func() error) (end func() error) {
	ended := make(chan error, 1)
	go func() { ended <- do() }()
	return func() error {
		select {
		case err := <-ended:
			return err
		case <-time.After(30 * time.Second):
			return fmt.Errorf("not ended after 30 s: %s%s", b.out.String(), b.err.String())
		}
	}
}

func (b *bench) await(what string, is func() bool) {
	b.Helper()
	for range 300 {
		if is() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	b.Fatalf("not so: %s: %s%s", what, b.out.String(), b.err.String())
}

// Until the slave's ports have rested new sessions would get none from it.
func TestMoveWaitsForPorts(t *testing.T) {
	b := newBench(t)
	b.put(shard.Key(), is(4))
	end := b.begin(func() error { return b.moveShard(t.Context(), shard, "two") })
	b.await("it says what it waits for", func() bool {
		return b.err.String() == "waiting until ports of shard 5 have rested at two, for 1h0m0s at most\n"
	})
	if b.shard().Epoch != 4 {
		t.Errorf("it has not waited: %+v", b.shard())
	}
	ready := is(4)
	ready.Ready = true
	b.put(shard.Key(), ready)
	if err := end(); err != nil || b.shard().Epoch != 5 || b.shard().Master != member(2) {
		t.Errorf("%+v: %v", b.shard(), err)
	}
}

func TestMoveDoesNotWaitForEver(t *testing.T) {
	b := newBench(t)
	b.rest = time.Millisecond
	b.put(shard.Key(), is(4))
	if err := b.begin(func() error { return b.moveShard(t.Context(), shard, "two") })(); err != nil || b.shard().Master != member(2) {
		t.Errorf("%+v: %v", b.shard(), err)
	}
}

func TestDrainSaysThatPortsRest(t *testing.T) {
	b := newBench(t)
	b.put(shard.Key(), is(4))
	end := b.begin(func() error { return b.awaitDrained(t.Context(), "one") })
	b.await("it says what it waits for", func() bool {
		return b.out.String() == "one is the master of 1 shards, and the slave of 0; waits until ports have rested: 1 shards\n"
	})
	moved := is(5)
	moved.Master, moved.Slave = member(2), member(3)
	b.put(shard.Key(), moved)
	if err := end(); err != nil || !strings.HasSuffix(b.out.String(), "one is out of use, and has no shards\n") {
		t.Errorf("%s: %v", b.out.String(), err)
	}
}

// A command that waits for copies says what is in their way.
func TestWaitsForCopies(t *testing.T) {
	b := newBench(t)
	late := is(4)
	late.InSync = false
	b.put(shard.Key(), late)
	b.server.Present(member(1).String(), []byte(`{"disagrees":{"2":"customers differ"}}`))
	const why = " (servers 1 and 2 disagree: customers differ, so nothing is copied between them)\n"
	for what, do := range map[string]func() error{"waiting until all shards have two copies in sync": func() error { return b.awaitSync(t.Context()) },
		"waiting until the slave of shard 5 is in sync":         func() error { return b.moveShard(t.Context(), shard, "two") },
		"waiting until the copies at other servers are in sync": func() error { return b.awaitDrained(t.Context(), "three") }} {
		b.begin(do)
		b.await(what, func() bool { return strings.Contains(b.out.String(), what+why) })
	}
}

// A slave that refused connections does not become the master by plan: a drain that cannot end says so, and ends.
func TestRefused(t *testing.T) {
	b := newBench(t)
	b.rest = 0
	refused := is(4)
	refused.Ready, refused.LacksConnections = true, true
	b.put(shard.Key(), refused)
	const why = "1 shards: server 2 refused connections of the copy (compare functions, pools and table sizes)"
	if err := b.moveShard(t.Context(), shard, "two"); err == nil || !strings.HasPrefix(err.Error(), why) || b.shard().Epoch != 4 {
		t.Errorf("moved: %v", err)
	}
	err := b.begin(func() error { return b.awaitDrained(t.Context(), "one") })()
	if err == nil || err.Error() != "one is out of use, and stays the master of 1 shards: "+why+". millctl cluster return one takes it into use again" {
		t.Errorf("drained: %v", err)
	}
	b.rest = time.Hour
	end := b.begin(func() error { return b.awaitDrained(t.Context(), "one") })
	b.await("it says what it waits for", func() bool { return strings.HasSuffix(b.out.String(), "the slave of 0; "+why+"\n") })
	moved := is(5)
	moved.Master, moved.Slave = member(2), member(3)
	b.put(shard.Key(), moved)
	if err := end(); err != nil {
		t.Errorf("drained: %v", err)
	}
}
