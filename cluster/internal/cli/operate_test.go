package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/control/cluster/internal/config"
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

// bench is a store with servers, one, two and so on, without agents and managers.
type bench struct {
	*testing.T
	*cluster
	server   *memory.Server
	out, err text
}

const shard = records.ShardID(5)

// well is what a server says that has nothing to say.
var well = records.Presence{}

// newBench returns a bench with the servers that say this of themselves.
func newBench(t *testing.T, says ...records.Presence) *bench {
	t.Helper()
	b := &bench{T: t, server: memory.NewServer()}
	client := b.server.Open()
	t.Cleanup(func() { _ = client.Close() })
	b.cluster = &cluster{Store: client, app: &app{out: &b.out, err: &b.err}, config: &config.Config{Cluster: "rig"}, rest: time.Hour}
	for n, is := range says {
		id := records.ServerID(n + 1)
		b.put(id.Key(), records.Server{Name: []string{"one", "two", "three"}[n], Process: 1, Instances: map[uint32]string{1: fmt.Sprint("instance ", id)}})
		bytes, err := json.Marshal(is)
		if err != nil {
			t.Fatal(err)
		}
		b.server.Present(member(id).String(), bytes)
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
	b := newBench(t, well, well, well)
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
	b := newBench(t, well, well, well)
	b.rest = time.Millisecond
	b.put(shard.Key(), is(4))
	if err := b.begin(func() error { return b.moveShard(t.Context(), shard, "two") })(); err != nil || b.shard().Master != member(2) {
		t.Errorf("%+v: %v", b.shard(), err)
	}
}

func TestDrainSaysThatPortsRest(t *testing.T) {
	b := newBench(t, well, well, well)
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
	b := newBench(t, well, well, well)
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
	b := newBench(t, well, well, well)
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

func TestDrainBesideAnUnwell(t *testing.T) {
	b := newBench(t, well, records.Presence{Unwell: "no switch"})
	if err := b.takeOut(t.Context(), "one"); err == nil || !strings.Contains(err.Error(), "one is the only server that is up") {
		t.Errorf("the only server to which packets come drains: %v", err)
	}
	if err := b.takeOut(t.Context(), "two"); err != nil {
		t.Error(err)
	}
}

// held lets two writes go at the same time: both have read before either writes.
type held struct {
	store.Store
	both *sync.WaitGroup
	once sync.Once
}

func (h *held) Write(ctx context.Context, puts ...store.Put) error {
	h.once.Do(func() { h.both.Done(); h.both.Wait() })
	return h.Store.Write(ctx, puts...)
}

func TestDrainTogether(t *testing.T) {
	b := newBench(t, well, well)
	var both, ends sync.WaitGroup
	both.Add(2)
	errs := make([]error, 2)
	for n, name := range []string{"one", "two"} {
		ends.Go(func() {
			errs[n] = (&cluster{&held{Store: b.Store, both: &both}, b.app, b.config, b.rest}).takeOut(t.Context(), name)
		})
	}
	ends.Wait()
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Errorf("two servers drain at the same time: %v", errs)
	}
}

func TestStatusOfDamage(t *testing.T) {
	b := newBench(t, well, well)
	b.put(records.ClusterKey, records.Cluster{Shards: 4})
	b.put(records.ShardID(0).Key(), is(1))
	refused := is(1)
	refused.LacksConnections = true
	b.put(records.ShardID(1).Key(), refused)
	if err := b.Write(t.Context(), store.Put{Key: records.ShardID(2).Key(), Value: []byte("{")}); err != nil {
		t.Fatal(err)
	}
	state, err := b.state(t.Context())
	if err == nil || state == nil {
		t.Fatalf("%+v: %v", state, err)
	}
	if err := b.show(reportOf("rig", state), state, false); err != nil {
		t.Error(err)
	}
	for _, line := range []string{"shards 2-3: the store has no record that can be used", "1 shards: server 2 refused connections", "1 of 4 shards have two copies in sync"} {
		if !strings.Contains(b.out.String(), "\n"+line) {
			t.Errorf("%q lacks %q", b.out.String(), line)
		}
	}
}

// Output that cannot be written is an error.
func TestOutputIsLost(t *testing.T) {
	full := fullDisk{errors.New("no space left on device")}
	var said strings.Builder
	if status := Run(t.Context(), []string{"init", t.TempDir() + "/c", "a=192.0.2.1", "b=192.0.2.2", "c=192.0.2.3"}, full, &said); status != 1 || said.String() != "millctl: no space left on device\n" {
		t.Errorf("%d: %s", status, said.String())
	}
	for _, to := range []io.Writer{full, io.Discard} {
		b, waited := newBench(t, well), false
		if err := b.awaitSaying(t.Context(), to, func(*records.State) string {
			if waited {
				return ""
			}
			waited = true
			return "waits"
		}); err != nil || (b.lost != nil) != (to == full) {
			t.Errorf("%v, lost: %v", err, b.lost)
		}
	}
}

type fullDisk struct{ error }

func (f fullDisk) Write([]byte) (int, error) { return 0, f.error }
