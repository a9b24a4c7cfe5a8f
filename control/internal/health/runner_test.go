package health

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"testing"

	"millrace/control/internal/apitest"
	"millrace/control/internal/balance"
)

// dataplane stands in for a millrace with one service; it answers the requests that a Runner sends.
type dataplane struct {
	*apitest.Server
	mutex    sync.Mutex
	services []balance.Service
	told     chan string
}

func newDataplane(t *testing.T, backends ...netip.AddrPort) *dataplane {
	d := &dataplane{Server: apitest.New(t), told: make(chan string, 100)}
	service := balance.Service{Service: "web:80/tcp"}
	service.Health = &balance.Health{Check: "tcp", IntervalMs: 5, TimeoutMs: 3_600_000, Rise: 2, Fall: 2}
	for _, backend := range backends {
		service.Backends = append(service.Backends, balance.Backend{Address: backend.Addr(), Port: backend.Port(), Healthy: true})
	}
	d.services = []balance.Service{service}
	d.On("GET /services", d.answer)
	d.On("POST /health", d.hear)
	return d
}

// answer writes the services with the names of docs/control.md; encoding balance.Service would write Go's
// names of the fields.
func (d *dataplane) answer(w http.ResponseWriter, _ *http.Request) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	type object = map[string]any
	var services []object
	for _, s := range d.services {
		var backends []object
		for _, b := range s.Backends {
			backends = append(backends, object{"address": b.Address, "port": b.Port, "weight": 1, "drained": false, "healthy": b.Healthy})
		}
		services = append(services, object{"service": s.Service, "backends": backends, "health": object{
			"check": s.Health.Check, "interval_ms": s.Health.IntervalMs, "timeout_ms": s.Health.TimeoutMs,
			"rise": s.Health.Rise, "fall": s.Health.Fall}})
	}
	json.NewEncoder(w).Encode(services)
}

func (d *dataplane) hear(w http.ResponseWriter, r *http.Request) {
	d.set(r.URL.Query().Get("backend"), r.URL.Query().Get("healthy") == "true")
	d.told <- r.URL.RawQuery
	w.Write([]byte(`{"backends": 1}`))
}

func (d *dataplane) set(backend string, healthy bool) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for i := range d.services[0].Backends {
		if b := &d.services[0].Backends[i]; b.Name() == backend {
			b.Healthy = healthy
		}
	}
}

func query(backend netip.AddrPort, healthy string) string {
	return "backend=127.0.0.1%3A" + backend.String()[len("127.0.0.1:"):] + "&healthy=" + healthy + "&service=web%3A80%2Ftcp"
}

func (d *dataplane) expect(t *testing.T, want string) {
	t.Helper()
	if got := <-d.told; got != want {
		t.Fatalf("told %s, want %s", got, want)
	}
}

// A Runner with real sockets: one backend becomes unhealthy and healthy again while the check of another
// backend never ends; millrace is restarted, and does not answer for a while.
func TestRunner(t *testing.T) {
	one, hanging := listen(t, "127.0.0.1:0"), listen(t, "127.0.0.1:0")
	backend := addressOf(one)
	d := newDataplane(t, addressOf(hanging), backend)
	ctx, cancel := context.WithCancel(context.Background())
	logs := make(chan string, 1000)
	runner := Runner{
		Client: balance.New(d.Socket),
		Try: func(ctx context.Context, check Check) error {
			if check.To == addressOf(hanging) {
				<-ctx.Done()
				return ctx.Err()
			}
			return Try(ctx, check)
		},
		Log: func(line string) { logs <- line },
	}
	ended := make(chan error)
	go func() { ended <- runner.Run(ctx) }()

	one.Close()
	d.expect(t, query(backend, "false"))
	d.set(backend.String(), true) // a restarted millrace takes all backends for healthy
	d.expect(t, query(backend, "false"))
	one, err := net.Listen("tcp", backend.String())
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	d.expect(t, query(backend, "true"))

	d.On("GET /services", apitest.Text(409, `{"error": "not now"}`))
	for line := range logs {
		if line == "millrace does not answer (not now); the checks go on" {
			break
		}
		if line == "millrace answers again" {
			t.Error("it was not away")
		}
	}
	d.set(backend.String(), false) // millrace's state when it answers again
	d.On("GET /services", d.answer)
	d.expect(t, query(backend, "true"))

	cancel()
	if err := <-ended; err != context.Canceled {
		t.Error(err)
	}
	close(d.told)
	for more := range d.told {
		t.Errorf("told, too: %s", more)
	}
}

// A board that is asked as often as the Runner asks keeps the shortest interval that a configuration may
// have (docs/configuration.md).
func TestTheShortestInterval(t *testing.T) {
	backend := balance.Backend{Address: netip.MustParseAddr("10.0.0.1"), Port: 80, Healthy: true}
	service := balance.Service{Service: "web:80/tcp", Backends: []balance.Backend{backend},
		Health: &balance.Health{Check: "tcp", IntervalMs: 10, Rise: 1, Fall: 1}}
	board, checks := NewBoard(), 0
	board.Configure(0, []balance.Service{service})
	for nowMs := int64(0); nowMs < 1000; nowMs += lookEvery.Milliseconds() {
		for _, job := range board.Due(nowMs) {
			board.Result(job, nil)
			checks++
		}
	}
	if checks < 99 { // the first check is made up to an interval after the start
		t.Errorf("%d checks in a second, want 100", checks)
	}
}

// The functions of a process do not change, but another process, which has services, may take over.
func TestAMillraceWithoutServices(t *testing.T) {
	const needs = `{"error": "/services needs the function \"balance\", which the configuration does not choose"}`
	for _, c := range []struct {
		status     int
		body, says string
	}{
		{404, needs, "no service is there to check: this millrace runs without the function balance; waiting for a millrace that has it"},
		{200, "[]", "no service has `health` in its configuration; waiting for one"},
	} {
		server := apitest.New(t)
		server.On("GET /services", apitest.Text(c.status, c.body))
		ctx, cancel := context.WithCancel(context.Background())
		var said []string
		runner := Runner{Client: balance.New(server.Socket), Log: func(line string) {
			said = append(said, line)
			cancel()
		}}
		runner.Run(ctx)
		cancel()
		if len(said) == 0 || said[0] != c.says {
			t.Errorf("%d: said %q, want %q", c.status, said, c.says)
		}
	}
}
