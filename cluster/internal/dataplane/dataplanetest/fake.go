// Package dataplanetest stands in for millrace's part of a cluster, at a real Unix socket. All planes of a test hear each other, and are in sync at once.
package dataplanetest

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"millrace/control/cluster/internal/records"
)

// Shards is how many each plane has.
const Shards = 128

// Wanted is how many grants of a shard a plane wants. A master that is in sync hands back all others.
const Wanted = 32

// Plane is one server's.
type Plane struct {
	*testing.T
	Socket string
	// Marker is the path of a file whose presence makes another process of millrace begin; it is removed then.
	Marker string

	mu        sync.Mutex
	server    int
	processes int
	silent    bool
	differs   int    // the server that it disagrees with; 0: none
	why       string // it does
	givesUpIn time.Duration
	busyUntil time.Time // with giving everything up
	epochs    map[int]order
	orders    body
	Puts      int // so far
}

type order struct {
	Shard         int
	Epoch         uint64
	Master, Slave string
	Settled       bool
	Grants        string
}

type body struct {
	Members []struct {
		Server            int
		Instance, Address string
	}
	Shards []order
}

// New returns the plane of a server.
func New(t *testing.T, server int) *Plane {
	t.Helper()
	folder, err := os.MkdirTemp("", "plane") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	p := &Plane{T: t, Socket: filepath.Join(folder, "s"), Marker: filepath.Join(folder, "restart"), server: server, epochs: map[int]order{}}
	listener, err := net.Listen("unix", p.Socket)
	if err != nil {
		t.Fatal(err)
	}
	serving := httptest.NewUnstartedServer(p)
	serving.Listener.Close()
	serving.Listener = listener
	serving.Start()
	t.Cleanup(serving.Close)
	p.Restart()
	return p
}

// Restart lets another process begin, without orders.
func (p *Plane) Restart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.restart()
}

func (p *Plane) restart() {
	p.processes++
	p.epochs, p.orders = map[int]order{}, body{}
}

// Silence makes the plane answer with errors, or not any more.
func (p *Plane) Silence(is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = is
}

// TakeTime lets the plane take that long to give everything up, as with many connections.
func (p *Plane) TakeTime(length time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.givesUpIn = length
}

// Differ lets the plane disagree with a server, for that reason; with 0, with none.
func (p *Plane) Differ(server int, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.differs, p.why = server, why
}

// Instance returns the name of the present process.
func (p *Plane) Instance() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.instance()
}

// HasNothing returns true if the plane has no copies.
func (p *Plane) HasNothing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.isFollowed() {
		return false
	}
	for _, one := range p.orders.Shards {
		if one.Master == p.instance() || one.Slave == p.instance() {
			return false
		}
	}
	return true
}

// Grants returns the numbers of a shard's grants that the plane has been ordered to have.
func (p *Plane) Grants(shard int) []uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.orders.Shards {
		if one.Shard == shard {
			return p.numbers(one.Grants)
		}
	}
	return nil
}

func (p *Plane) isFollowed() bool { return !time.Now().Before(p.busyUntil) }

func (p *Plane) numbers(grants string) []uint32 {
	numbers, err := records.ParseRanges(grants)
	if err != nil {
		p.Errorf("server %d: %v", p.server, err)
	}
	return numbers
}

func (p *Plane) instance() string { return fmt.Sprintf("%08x%08x", p.server, p.processes) }

// ServeHTTP answers GET and PUT /cluster.
func (p *Plane) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if os.Remove(p.Marker) == nil {
		p.restart()
	}
	refuse := func(format string, values ...any) {
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": fmt.Sprintf(format, values...)})
	}
	if p.silent || r.URL.Path != "/cluster" {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	if r.Method == http.MethodPut {
		p.Puts++
		var orders body
		if err := json.NewDecoder(r.Body).Decode(&orders); err != nil {
			refuse("%v", err)
			return
		}
		if wrong := p.take(orders); wrong != "" {
			p.Errorf("server %d: %s", p.server, wrong)
			refuse("%s", wrong)
			return
		}
	}
	_ = json.NewEncoder(w).Encode(p.status())
}

func (p *Plane) take(orders body) string {
	for _, one := range orders.Shards {
		was, is := p.epochs[one.Shard]
		switch {
		case one.Epoch == 0:
			return "epoch 0"
		case one.Shard < 0 || one.Shard >= Shards:
			return fmt.Sprintf("shard %d", one.Shard)
		case is && one.Epoch < was.Epoch:
			return fmt.Sprintf("shard %d: epoch %d after %d", one.Shard, one.Epoch, was.Epoch)
		case is && one.Epoch == was.Epoch && (one.Master != was.Master || one.Slave != was.Slave):
			return fmt.Sprintf("shard %d: epoch %d has other copies than before", one.Shard, one.Epoch)
		}
		p.epochs[one.Shard] = one
	}
	if len(orders.Shards) == 0 {
		p.busyUntil = time.Now().Add(p.givesUpIn)
	}
	p.orders = orders
	return ""
}

func (p *Plane) status() map[string]any {
	addresses := map[string]string{}
	for _, one := range p.orders.Members {
		addresses[one.Instance] = one.Address
	}
	reports := []map[string]any{}
	for _, one := range p.orders.Shards {
		role := map[string]string{one.Slave: "slave", one.Master: "master"}[p.instance()]
		if role == "" {
			continue
		}
		inSync := addresses[one.Master] != "" && addresses[one.Slave] != ""
		withdrawn := ""
		if numbers := p.numbers(one.Grants); role == "master" && inSync && len(numbers) > Wanted {
			withdrawn = records.Ranges(numbers[Wanted:])
		}
		reports = append(reports, map[string]any{"shard": one.Shard, "epoch": one.Epoch, "role": role, "packets": 0, "wanted": Wanted, "withdrawn": withdrawn,
			"in_sync": inSync})
	}
	members := []map[string]any{}
	for _, one := range p.orders.Members {
		if one.Server != p.server {
			why := ""
			if one.Server == p.differs {
				why = p.why
			}
			members = append(members, map[string]any{"server": one.Server, "instance": one.Instance, "address": one.Address, "heard": true,
				"agrees": why == "", "same_layout": true, "disagreement": why})
		}
	}
	return map[string]any{"server": p.server, "instance": p.instance(), "address": fmt.Sprint("10.9.0.", p.server), "port": 7471, "shards": Shards,
		"agreement": "1a2b3c4d", "version": 1, "followed": p.isFollowed(), "members": members, "reports": reports, "counters": map[string]int{}}
}
