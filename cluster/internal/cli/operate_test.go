package cli

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"

	"millrace/control/cluster/internal/config"
	"millrace/control/cluster/internal/records"
	"millrace/control/cluster/internal/store"
	"millrace/control/cluster/internal/store/memory"
)

// newCluster returns a cluster of servers 1, 2, ... that are present and say this of themselves. Shard 0 is the only one with a record, of four.
func newCluster(t *testing.T, out io.Writer, say ...records.Presence) *cluster {
	server := memory.NewServer()
	client := server.Open()
	t.Cleanup(func() { client.Close() })
	write := func(key string, value any) {
		t.Helper()
		text, err := json.Marshal(value)
		if err == nil {
			err = client.Write(t.Context(), store.Put{Key: key, Value: text})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for n, says := range say {
		id := records.ServerID(n + 1)
		write(id.Key(), records.Server{Name: "abc"[n : n+1], Process: 1, Instances: map[uint32]string{1: "x"}})
		of := server.Open()
		t.Cleanup(func() { of.Close() })
		text, err := json.Marshal(says)
		if err == nil {
			err = of.Present(t.Context(), records.Member{Server: id, Process: 1}.String(), text)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	write(records.ClusterKey, records.Cluster{Shards: 4})
	write(records.ShardID(0).Key(), records.Shard{Epoch: 1, Master: records.Member{Server: 1, Process: 1}, Slave: records.Member{Server: 2, Process: 1}, InSync: true})
	return &cluster{client, &app{out: out}, &config.Config{Cluster: "one"}}
}

func TestDrainBesideAnUnwell(t *testing.T) {
	c := newCluster(t, io.Discard, records.Presence{}, records.Presence{Unwell: "no switch"})
	if err := c.takeOut(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "a is the only server that is up") {
		t.Errorf("the only server to which packets come drains: %v", err)
	}
	if err := c.takeOut(t.Context(), "b"); err != nil {
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
	c := newCluster(t, io.Discard, records.Presence{}, records.Presence{})
	var both, ends sync.WaitGroup
	both.Add(2)
	errs := make([]error, 2)
	for n, name := range []string{"a", "b"} {
		ends.Go(func() {
			errs[n] = (&cluster{&held{Store: c.Store, both: &both}, c.app, c.config}).takeOut(t.Context(), name)
		})
	}
	ends.Wait()
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Errorf("two servers drain at the same time: %v", errs)
	}
}

func TestStatusOfDamage(t *testing.T) {
	var text strings.Builder
	c := newCluster(t, &text, records.Presence{}, records.Presence{})
	if err := c.Write(t.Context(), store.Put{Key: records.ShardID(2).Key(), Value: []byte("{")}); err != nil {
		t.Fatal(err)
	}
	state, err := c.state(t.Context())
	if err == nil || state == nil {
		t.Fatalf("%+v: %v", state, err)
	}
	if err := c.show(reportOf("one", state), state, false); err != nil || !strings.Contains(text.String(), "shards 1-3: the store has no record that can be used") {
		t.Errorf("%s: %v", text.String(), err)
	}
}

// Output that cannot be written is an error.
func TestFullDisk(t *testing.T) {
	full := fullDisk{errors.New("no space left on device")}
	var text strings.Builder
	if status := Run(t.Context(), []string{"init", t.TempDir() + "/c", "a=127.0.0.1", "b=127.0.0.2", "c=127.0.0.3"}, full, &text); status != 1 || text.String() != "millctl: no space left on device\n" {
		t.Errorf("%d: %s", status, text.String())
	}
}

type fullDisk struct{ error }

func (f fullDisk) Write([]byte) (int, error) { return 0, f.error }
