package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"millrace/control/internal/api"
	"millrace/control/internal/apitest"
	"millrace/control/internal/balance"
)

func TestStats(t *testing.T) {
	server := apitest.New(t)
	server.On("GET /stats", apitest.Text(200, testdata(t, "stats.json")))
	server.On("GET /services", apitest.Text(200, `[{"service": "203.0.113.10:80/tcp", "backends": [
		{"address": "10.0.0.1", "port": 8000, "weight": 0, "drained": true, "healthy": false}]}]`))
	got := run(t, server.Socket, "stats")
	golden(t, "stats.txt", got.out)
	expect(t, run(t, server.Socket, "stats", "--json"), result{done, testdata(t, "stats.json"), ""})
}

// Packets that millrace generates count as out, so out may be greater than in.
func TestMoreOutThanIn(t *testing.T) {
	server := apitest.New(t)
	server.On("GET /stats", apitest.Text(200, `{"packets": {"in": 10, "out": 12, "generated": 2}}`))
	server.On("GET /services", apitest.Text(200, "[]"))
	got := strings.Split(run(t, server.Socket, "stats").out, "\n")
	if want := "out           12  100.0 %  0 bytes"; strings.TrimSpace(got[4]) != want {
		t.Errorf("%q, want %q", got[4], want)
	}
}

func TestShards(t *testing.T) {
	server := apitest.New(t)
	server.On("GET /shards", apitest.Text(200, `{"workers": 2, "in_use": 2, "level": true, "shards": [
		{"shard": 0, "worker": 1, "packets": 1000, "moves": 2}, {"shard": 1, "worker": 1, "packets": 0, "moves": 0},
		{"shard": 2, "worker": 0, "packets": 3000, "moves": 0}, {"shard": 3, "worker": 1, "packets": 0, "moves": 1}]}`))
	expect(t, run(t, server.Socket, "shards"), result{done, `worker  shards  packets   share
0            1    3,000  75.0 %
1            3    1,000  25.0 %

shard  worker  packets   share  moves
2      0         3,000  75.0 %      0
0      1         1,000  25.0 %      2
`, ""})
	server.On("POST /shards/move", apitest.Text(200, `{"shard": 17, "worker": 0, "took_ms": 1.25}`))
	expect(t, run(t, server.Socket, "shards", "move", "17", "0"), result{done, "worker 0 has shard 17, after 1.2 ms\n", ""})
	server.On("POST /shards/move", apitest.Text(200, `{"shard": 17, "worker": 0, "took_ms": 0}`))
	expect(t, run(t, server.Socket, "shards", "move", "17", "0"), result{done, "worker 0 has shard 17 already\n", ""})
	if asked := server.Asked()[1].Query.Encode(); asked != "shard=17&to=0" {
		t.Errorf("asked for %s", asked)
	}
	if got := run(t, server.Socket, "shards", "move", "x", "0"); got.status != 2 {
		t.Errorf("%+v", got)
	}
	server.On("GET /shards", apitest.Text(200, `{"workers": 2, "in_use": 2, "level": false, "shards": []}`))
	expect(t, run(t, server.Socket, "shards"), result{done, "no shards: the workers share their tables, and each serves what it receives (spread.level = true changes that)\n", ""})
}

func TestConnections(t *testing.T) {
	server := apitest.New(t)
	server.On("GET /connections", apitest.Text(200, testdata(t, "connections.jsonl")))
	for _, format := range []string{"table", "conntrack"} {
		got := run(t, server.Socket, "connections", "--format", format, "--destination-port", "80")
		golden(t, "connections."+format+".txt", got.out)
		if got.status != done || got.err != "" {
			t.Errorf("%+v", got)
		}
	}
	expect(t, run(t, server.Socket, "connections", "--format", "json"),
		result{done, testdata(t, "connections.jsonl"), ""})
	for i, asked := range server.Asked()[:2] {
		if asked.Query.Encode() != "destination_port=80" {
			t.Errorf("request %d had %s", i, asked.Query.Encode())
		}
	}
}

func TestConnectionsOfCustomers(t *testing.T) {
	server := apitest.New(t)
	const line = `{"protocol":"udp","source":"10.9.0.5","source_port":4000,"destination":"203.0.113.1","destination_port":53,` +
		`"state":"udp","idle_ms":0,"expires_ms":1000,"worker":1`
	server.On("GET /connections", apitest.Text(200, line+"}\n"+line+`,"customer":"c17"}`+"\n"+line+`,"customer":"172.17.0.9"}`+"\n"))
	expect(t, run(t, server.Socket, "connections", "--customer", "172.16.0.0/12"), result{done,
		`protocol  source         destination     state   idle  expires in  worker  customer
udp       10.9.0.5:4000  203.0.113.1:53  udp    0.0 s       1.0 s       1
udp       10.9.0.5:4000  203.0.113.1:53  udp    0.0 s       1.0 s       1  c17
udp       10.9.0.5:4000  203.0.113.1:53  udp    0.0 s       1.0 s       1  172.17.0.9
`, ""})
	if asked := server.Asked()[0].Query.Get("customer"); asked != "172.16.0.0/12" {
		t.Errorf("asked for %q", asked)
	}
}

// A long list is printed while it arrives, so the heads are there before the first customer is.
func TestConnectionsOfLateCustomers(t *testing.T) {
	server := apitest.New(t)
	const line = `{"protocol":"udp","source":"10.9.0.5","source_port":4000,"destination":"203.0.113.1","destination_port":53,` +
		`"state":"udp","idle_ms":0,"expires_ms":1000,"worker":1`
	const heads = "protocol  source         destination     state   idle  expires in  worker"
	const row = "udp       10.9.0.5:4000  203.0.113.1:53  udp    0.0 s       1.0 s       1"
	list := strings.Repeat(line+"}\n", 300) + line + `,"customer":"c17"}` + "\n" + line + "}\n"
	server.On("GET /connections", apitest.Text(200, list))
	expect(t, run(t, server.Socket, "connections"), result{done,
		heads + "\n" + strings.Repeat(row+"\n", 300) + heads + "  customer\n" + row + "  c17\n" + row + "  -\n", ""})
	expect(t, run(t, server.Socket, "connections", "--format", "json"), result{done, list, ""})
}

// Sessions of NAT: one from inside, one from outside to a forward, and a connection that is not translated.
func TestConnectionsOfNat(t *testing.T) {
	server := apitest.New(t)
	const from = `{"protocol":"tcp","source":"%s","source_port":1,"destination":"%s","destination_port":2,"state":"established","idle_ms":0,` +
		`"expires_ms":null,"worker":0,"reply_source":"%s","reply_source_port":%d,"reply_destination":"%s","reply_destination_port":%d}` + "\n"
	server.On("GET /connections", apitest.Text(200, fmt.Sprintf(from, "10.0.0.5", "192.0.2.1", "192.0.2.1", 2, "198.51.100.1", 1358)+
		fmt.Sprintf(from, "192.0.2.1", "198.51.100.1", "10.0.0.5", 443, "192.0.2.1", 1)+
		fmt.Sprintf(from, "10.0.0.5", "10.0.0.9", "10.0.0.9", 2, "10.0.0.5", 1)))
	expect(t, run(t, server.Socket, "connections"), result{done,
		`protocol  source       destination     state         idle  expires in  worker  public             inside
tcp       10.0.0.5:1   192.0.2.1:2     established  0.0 s       never       0  198.51.100.1:1358
tcp       192.0.2.1:1  198.51.100.1:2  established  0.0 s       never       0  -                  10.0.0.5:443
tcp       10.0.0.5:1   10.0.0.9:2      established  0.0 s       never       0  -                  -
`, ""})
}

func TestNoConnections(t *testing.T) {
	server := apitest.New(t)
	server.On("GET /connections", apitest.Text(200, ""))
	expect(t, run(t, server.Socket, "connections"),
		result{done, "protocol  source  destination  state  idle  expires in  worker\n", ""})
}

// A list is printed while it arrives: its first lines are printed before its last lines have arrived, and
// only a few rows are held back.
func TestListsAreStreams(t *testing.T) {
	line := strings.SplitAfterN(testdata(t, "connections.jsonl"), "\n", 2)[0]
	const sent = 50_000
	for name, write := range listFormats {
		in, feed := io.Pipe()
		out := &watcher{}
		go func() {
			for i := 0; i < sent; i++ {
				io.WriteString(feed, line)
				if i == sent/2 && out.lines.Load() < sent/4 {
					t.Errorf("%s: %d lines are out after %d", name, out.lines.Load(), i)
				}
			}
			feed.Close()
		}()
		if err := write(out, in); err != nil {
			t.Fatal(err)
		}
		if got := int(out.lines.Load()); got != sent && got != sent+1 {
			t.Errorf("%s: %d lines of %d", name, got, sent)
		}
	}
}

func TestExplain(t *testing.T) {
	server := apitest.New(t)
	lines := strings.Split(testdata(t, "connections.jsonl"), "\n")
	server.On("GET /explain", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("protocol") != "tcp" {
			fmt.Fprintf(w, `{"worker": null, "side": null, "service": null, "backend": null, "connection": null,
				"verdict": "no_service", "why": "no service has that address"}`)
			return
		}
		fmt.Fprintf(w, `{"worker": 1, "side": "originator", "service": "203.0.113.10:80/tcp",
			"backend": "10.0.0.1:8000", "connection": %s, "verdict": "tracked", "why": "it belongs to a connection"}`, lines[0])
	})
	got := run(t, server.Socket, "explain", "tcp", "198.51.100.7:40000", "203.0.113.10:80")
	got.out += run(t, server.Socket, "explain", "udp", "[2001:db8::7]:1", "[2001:db8::8]:2").out
	got.out += run(t, server.Socket, "explain", "icmp", "2001:db8::7", "192.0.2.1").out
	golden(t, "explain.txt", got.out)
	want := []string{
		"destination=203.0.113.10&destination_port=80&protocol=tcp&source=198.51.100.7&source_port=40000",
		"destination=2001%3Adb8%3A%3A8&destination_port=2&protocol=udp&source=2001%3Adb8%3A%3A7&source_port=1",
		"destination=192.0.2.1&destination_port=0&protocol=icmp&source=2001%3Adb8%3A%3A7&source_port=0",
	}
	for i, asked := range server.Asked() {
		if got := asked.Query.Encode(); got != want[i] {
			t.Errorf(" got %s\nwant %s", got, want[i])
		}
	}
}

func TestTopShowsWhatChanged(t *testing.T) {
	var before, after balance.Stats
	text := testdata(t, "stats.json")
	for _, into := range []*balance.Stats{&before, &after} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	after.Packets.In += 3000
	after.Packets.Dropped["hop_limit"] += 3
	after.Packets.BytesIn += 250_000
	after.Workers[0].Packets += 1000
	after.Workers[0].WaitedNs += 500_000_000
	after.Workers[1].WaitedNs += 2_000_000_000
	after.Workers = append(after.Workers, api.Worker{Packets: 5})
	after.Backends[1].Packets += 2_000_000
	after.Backends[1].Bytes += 128_000_000
	after.Backends[1].ReplyBytes += 1_000
	after.Backends[0].Packets = 500 // less than before: millrace was restarted
	after.Services[0].Refused += 8
	golden(t, "top.txt", rates{&before, &after, 2}.screen(style{}.bold))
}

// With --once, top prints its lines for one interval, also without a terminal.
func TestTopOnce(t *testing.T) {
	server := apitest.New(t)
	server.On("GET /stats", apitest.Text(200, testdata(t, "stats.json")))
	for _, interval := range []string{"0.001", "1ms"} {
		got := run(t, server.Socket, "top", "--once", "--interval", interval)
		if got.status != done || !strings.Contains(got.out, "\npackets a second: 0 in, 0 out, 0 dropped\n") ||
			!strings.Contains(got.out, "\n10.0.0.1:8000  203.0.113.10:80/tcp") {
			t.Errorf("%+v", got)
		}
	}
}

func TestProtocolInCapitals(t *testing.T) {
	flow, err := flowOf("TCP", "10.0.0.1:80", "10.0.0.2:80")
	if err != nil || flow.Get("protocol") != "tcp" {
		t.Errorf("%v, %v", flow, err)
	}
}
