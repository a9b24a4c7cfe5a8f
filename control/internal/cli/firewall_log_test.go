package cli

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"millrace/control/internal/apitest"
)

const (
	accepted = `{"time":"2026-11-28T01:02:03.004Z","rule":"web","action":"accept","verdict":"tracked","from":"outside","to":"inside",` +
		`"interface":"wan","protocol":"tcp","source":"192.0.2.1","destination":"203.0.113.10","source_port":1024,"destination_port":80,` +
		`"translated_destination":"10.0.0.1","translated_destination_port":8000,"length":74,"worker":0,"missed":2}` + "\n"
	denied = `{"time":"2026-11-28T01:02:03.004Z","rule":"default","action":"drop","verdict":"denied","from":null,"to":null,` +
		`"interface":null,"protocol":"icmpv6","source":"2001:db8::1","destination":"2001:db8::2","icmp_type":128,"icmp_code":0,` +
		`"length":118,"worker":1,"missed":3}` + "\n"
)

func TestFirewallLog(t *testing.T) {
	server := apitest.New(t)
	server.On("GET /firewall/log", apitest.Text(200, accepted+denied))
	expect(t, run(t, server.Socket, "firewall", "log"), result{done, accepted + denied, ""})
	if last := server.Asked()[0]; last.Raw != "" {
		t.Error(last)
	}
	expect(t, run(t, server.Socket, "firewall", "log", "--new"),
		result{wrongUsage, "", "millctl: --new leaves nothing to show without --follow: give --follow, too\n"})
}

func TestFirewallLogHasWholeLines(t *testing.T) {
	server := apitest.New(t)
	server.On("GET /firewall/log", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "10000")
		w.Write([]byte(accepted + denied[:50]))
	})
	expect(t, run(t, server.Socket, "firewall", "log"), result{failed, accepted, "millctl: the answer broke off: unexpected EOF\n"})
}

// lockedBuffer may be written and read at once.
type lockedBuffer struct {
	mutex sync.Mutex
	text  bytes.Buffer
}

func (b *lockedBuffer) Write(text []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.text.Write(text)
}

func (b *lockedBuffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.text.String()
}

// Each millrace says one line and ends. The second one does not answer at first.
func TestFirewallLogFollows(t *testing.T) {
	server := apitest.New(t)
	var asked int
	server.On("GET /firewall/log", func(w http.ResponseWriter, r *http.Request) {
		switch asked++; asked {
		case 1:
			w.Write([]byte(accepted))
		case 2:
			apitest.Text(409, `{"error": "millrace is starting or ending: ask again"}`)(w, r)
		default:
			w.Write([]byte(denied))
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var out, warnings lockedBuffer
	status := make(chan int)
	go func() {
		status <- Run(ctx, []string{"firewall", "log", "--follow", "--new", "--socket", server.Socket}, &out, &warnings)
	}()
	for deadline := time.Now().Add(20 * time.Second); out.String() != accepted+denied; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal(out.String(), warnings.String())
		}
	}
	cancel()
	if got := <-status; got != interrupted {
		t.Error(got)
	}
	if got := warnings.String(); got != "millctl: warning: millrace has ended, or another process takes over: waiting for it\n" {
		t.Error(got)
	}
	requests := server.Asked()
	if requests[0].Raw != "follow=true&new=true" || requests[2].Raw != "follow=true" {
		t.Error(requests)
	}
}

// A millrace without a firewall that takes over ends the log.
func TestFirewallLogEnds(t *testing.T) {
	server := apitest.New(t)
	var asked int
	server.On("GET /firewall/log", func(w http.ResponseWriter, r *http.Request) {
		if asked++; asked > 1 {
			apitest.Text(404, `{"error": "needs the function \"firewall\""}`)(w, r)
		}
	})
	got := run(t, server.Socket, "firewall", "log", "--follow")
	if got.status != failed || !strings.HasSuffix(got.err, "\nmillctl: needs the function \"firewall\"\n") {
		t.Errorf("%+v", got)
	}
}

func TestFirewallLogByIPFIX(t *testing.T) {
	server := apitest.New(t)
	server.On("GET /firewall/log", apitest.Text(200, accepted+denied))
	collector, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer collector.Close()
	expect(t, run(t, server.Socket, "firewall", "log", "--ipfix", collector.LocalAddr().String()), result{done, "", ""})
	var records [][]byte
	for i := 0; i < 4; i++ { // two templates, two records
		message := make([]byte, 1024)
		collector.SetReadDeadline(time.Now().Add(10 * time.Second))
		n, _, err := collector.ReadFrom(message)
		if err != nil {
			t.Fatal(err)
		}
		if i >= 2 {
			records = append(records, message[20:n])
		}
	}
	const stamp = "\x00\x00\x01\xa2\x1f\xac\x6a\xfc"
	for i, want := range []string{
		stamp + "\xc0\x00\x02\x01\xcb\x00\x71\x0a" + "\x04\x00\x00\x50" + "\x0a\x00\x00\x01\x1f\x40" + "\x06\x00\x00\x01\x40\x00\x4a" +
			"\x00\x00\x00\x00\x00\x00\x00\x02" + "\x03web\x03wan",
		stamp + v6(1) + v6(2) + "\x00\x00\x00\x00" + v6(2) + "\x00\x00" + "\x3a\x80\x00\x03\x82\x00\x76" +
			"\x00\x00\x00\x00\x00\x00\x00\x05" + "\x07default\x00",
	} {
		if string(records[i]) != want {
			t.Errorf("record %d:\n got % x\nwant % x", i, records[i], want)
		}
	}
	got := run(t, server.Socket, "firewall", "log", "--ipfix", "nowhere")
	if got.status != wrongUsage || !strings.HasSuffix(got.err, "give the address and port of a collector, such as 192.0.2.9:4739\n") {
		t.Errorf("%+v", got)
	}
}

func v6(host byte) string {
	return "\x20\x01\x0d\xb8" + strings.Repeat("\x00", 11) + string(rune(host))
}
