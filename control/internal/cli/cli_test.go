package cli

import (
	"bytes"
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/control/internal/api"
	"millrace/control/internal/apitest"
)

var update = flag.Bool("update", false, "write the golden files anew")

// result is the exit status and the output of a command line.
type result struct {
	status   int
	out, err string
}

func run(t *testing.T, socket string, args ...string) result {
	t.Helper()
	return runIn(context.Background(), socket, args...)
}

func runIn(ctx context.Context, socket string, args ...string) result {
	var out, err bytes.Buffer
	status := Run(ctx, append(args, "--socket", socket), &out, &err)
	return result{status, out.String(), err.String()}
}

func expect(t *testing.T, got, want result) {
	t.Helper()
	if got != want {
		t.Errorf("\n got %d\n%s%s\nwant %d\n%s%s", got.status, got.out, got.err, want.status, want.out, want.err)
	}
}

func testdata(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// golden compares the output with a golden file in testdata; -update writes the file anew.
func golden(t *testing.T, name, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(filepath.Join("testdata", name), []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want := testdata(t, name); got != want {
		t.Errorf("%s:\n got\n%s\nwant\n%s", name, got, want)
	}
}

// TestCommands checks the request that each command sends, and its output.
func TestCommands(t *testing.T) {
	server := apitest.New(t)
	server.On("POST /kill", apitest.Text(200, `{"killed": 1234}`))
	server.On("POST /drain", apitest.Text(200, `{"backends": 1}`))
	server.On("POST /reload", apitest.Text(200, `{"services": 2, "backends": 4, "nat_rules": 1, "firewall_rules": 3, "ended": 17, "took_ms": 1.25, "warnings": []}`))
	for _, c := range []struct {
		args       []string
		what       string
		query, out string
	}{
		{[]string{"kill", "--backend", "10.0.0.1:8000", "--source-port=1"}, "POST /kill",
			"backend=10.0.0.1%3A8000&source_port=1", "1,234 connections ended\n"},
		{[]string{"kill", "--all"}, "POST /kill", "all=true", "1,234 connections ended\n"},
		{[]string{"kill", "--state", "established", "--silent"}, "POST /kill",
			"silent=true&state=established", "1,234 connections ended\n"},
		{[]string{"kill", "--state", "ESTABLISHED", "--protocol", "TCP"}, "POST /kill",
			"protocol=tcp&state=established", "1,234 connections ended\n"},
		{[]string{"kill", "--destination", "203.0.113.10:80", "--source", "[2001:db8::7]:53"}, "POST /kill",
			"destination=203.0.113.10&destination_port=80&source=2001%3Adb8%3A%3A7&source_port=53", "1,234 connections ended\n"},
		{[]string{"drain", "10.0.0.1:8000"}, "POST /drain", "backend=10.0.0.1%3A8000&drained=true",
			"10.0.0.1:8000 gets no new connections, in 1 service\n"},
		{[]string{"drain", "fd00::1", "--undo", "--service", "203.0.113.10:80/tcp"}, "POST /drain",
			"backend=fd00%3A%3A1&drained=false&service=203.0.113.10%3A80%2Ftcp",
			"fd00::1 gets new connections again, in 1 service\n"},
		{[]string{"drain", "10.0.0.1", "--service", "203.0.113.0/24 port 80/tcp"}, "POST /drain",
			"backend=10.0.0.1&drained=true&service=203.0.113.0%2F24%20port%2080%2Ftcp",
			"10.0.0.1 gets no new connections, in 1 service\n"},
		{[]string{"reload"}, "POST /reload", "", "4 backends, 3 firewall rules, 1 NAT rule, 2 services, in 1.2 ms; 17 connections ended\n"},
	} {
		expect(t, run(t, server.Socket, c.args...), result{done, c.out, ""})
		asked := server.Asked()
		last := asked[len(asked)-1]
		if last.What != c.what || last.Raw != c.query {
			t.Errorf("%v asked %s?%s, want %s?%s", c.args, last.What, last.Raw, c.what, c.query)
		}
	}
}

// If millrace refuses a value (400), the exit status is that of a wrong command line; after other refusals it is 1.
func TestWhoseMistakeItIs(t *testing.T) {
	server := apitest.New(t)
	for _, c := range []struct{ httpStatus, status int }{{400, wrongUsage}, {404, failed}, {409, failed}, {422, failed}} {
		server.On("POST /drain", apitest.Text(c.httpStatus, `{"error": "no"}`))
		server.On("GET /connections", apitest.Text(c.httpStatus, `{"error": "no"}`))
		for _, args := range [][]string{{"drain", "x"}, {"connections", "--protocol", "tpc"}} {
			expect(t, run(t, server.Socket, args...), result{c.status, "", "millctl: no\n"})
		}
	}
}

// A wrong command line sends no request.
func TestWrongCommandLines(t *testing.T) {
	server := apitest.New(t)
	for _, c := range []struct {
		args []string
		err  string
	}{
		{nil, "a command is needed: millctl --help lists them"},
		{[]string{"stat"}, "stat is no command of millctl: the nearest is stats (millctl --help shows what there is)"},
		{[]string{"Statz"}, "Statz is no command of millctl: the nearest is stats (millctl --help shows what there is)"},
		{[]string{"weather"}, "weather is no command of millctl (millctl --help shows what there is)"},
		{[]string{"stats", "--jsn"}, "--jsn is no option: the nearest is --json (millctl stats --help shows what there is)"},
		{[]string{"stats", "--sock", "x"}, "--sock is no option: the nearest is --socket (millctl stats --help shows what there is)"},
		{[]string{"stats", "--yaml"}, "--yaml is no option (millctl stats --help shows what there is)"},
		{[]string{"stats", "-x"}, "unknown shorthand flag: 'x' in -x (millctl stats --help shows what there is)"},
		{[]string{"shards", "move", "-1", "0"}, "-1 is negative: give a number from 0 on (millctl shards move --help shows what there is)"},
		{[]string{"explain", "tcp", "10.0.0.1:80"}, "2 given: give PROTOCOL SOURCE:PORT DESTINATION:PORT (millctl explain --help shows what there is)"},
		{[]string{"drain", "10.0.0.1", "10.0.0.2"}, "2 given: give BACKEND (millctl drain --help shows what there is)"},
		{[]string{"explain", "udp", "10.0.0.1:53", "10.0.0.2"},
			`destination: "10.0.0.2" is no address with a port: give one as 192.0.2.1:80 or [2001:db8::1]:80`},
		{[]string{"explain", "tcp", "10.0.0.1:80", "2001:db8::1]:80"},
			`destination: "2001:db8::1]:80" is no address with a port: give one as 192.0.2.1:80 or [2001:db8::1]:80`},
		{[]string{"kill"}, "no connections are selected: give a filter, as --backend 10.0.0.1:8000, or --all"},
		{[]string{"kill", "--state", ""}, `invalid argument "" for "--state" flag: the value is empty: give a value, or leave the option out (millctl kill --help shows what there is)`},
		{[]string{"kill", "--all", "--protocol", "tcp"}, "--all and a filter contradict each other: give one of them"},
		{[]string{"connections", "--format", "xml"}, "--format xml is unknown: give table, json or conntrack"},
		{[]string{"connections", "--state", "sleeping"}, "--state sleeping is unknown: give one of " + strings.Join(api.States, ", ")},
		{[]string{"kill", "--source", "10.0.0.1:80", "--source-port", "80"}, "--source has a port: leave out --source-port"},
		{[]string{"top"}, "top needs a terminal: give --once for the rates of one interval"},
		{[]string{"top", "--interval", "0"}, `invalid argument "0" for "--interval" flag: give a time above 0, as 1s or 500ms (millctl top --help shows what there is)`},
		{[]string{"trace", "--packets", "x"}, `invalid argument "x" for "--packets" flag: give a number from 0 to 4294967295 (millctl trace --help shows what there is)`},
	} {
		expect(t, run(t, server.Socket, c.args...), result{wrongUsage, "", "millctl: " + c.err + "\n"})
	}
	if asked := server.Asked(); len(asked) > 0 {
		t.Errorf("asked: %v", asked)
	}
}

func TestRefusals(t *testing.T) {
	server := apitest.New(t)
	server.On("POST /reload", apitest.Text(422, `{"error": "a.toml:3: port: 99999 is out of range\na.toml:9: unknown key"}`))
	server.On("GET /stats", apitest.Text(502, "<html>"))
	server.On("POST /kill", apitest.Text(200, "killed"))
	server.On("GET /connections", apitest.Text(200, `{"protocol": "tcp", "sou`))
	for _, c := range []struct {
		args []string
		err  string
	}{
		{[]string{"reload"}, "millctl: the configuration is wrong, nothing has changed:\nmillctl: a.toml:3: port: 99999 is out of range\nmillctl: a.toml:9: unknown key\n"},
		{[]string{"drain", "x"}, "millctl: no such thing: POST /drain\n"},
		{[]string{"stats"}, "millctl: the socket answers 502 Bad Gateway, which is not how millrace refuses: is it another program's?\n"},
		{[]string{"kill", "--all"}, "millctl: the answer to /kill was not understood: invalid character 'k' looking for beginning of value\n"},
		{[]string{"connections", "--format", "conntrack"}, "millctl: the answer broke off: unexpected EOF\n"},
	} {
		expect(t, run(t, server.Socket, c.args...), result{failed, "", c.err})
	}
}

// The version in the source is that of CMakeLists.txt, so that any build of millctl has it.
func TestVersionIsMillraces(t *testing.T) {
	text, err := os.ReadFile("../../../CMakeLists.txt")
	if err != nil {
		t.Skip(err) // control/ was copied without CMakeLists.txt, which has the version to compare with
	}
	if want := "project(millrace VERSION " + Version + " "; !strings.Contains(string(text), want) {
		t.Errorf("CMakeLists.txt has no %q", want)
	}
}

func TestHelpOfDrain(t *testing.T) {
	if got := run(t, "none", "drain", "--help"); !strings.Contains(got.out, "its connections\ngo on.") {
		t.Error(got.out)
	}
}

func TestSocketsThatDoNotOpen(t *testing.T) {
	folder := t.TempDir()
	missing, dead := filepath.Join(folder, "missing"), filepath.Join(folder, "dead")
	if err := os.WriteFile(dead, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for socket, advice := range map[string]string{
		missing: "no such socket: is millrace running? `millrace run` makes it; give another path with --socket",
		dead:    "no process listens there: the millrace that made the socket has ended; start millrace again, or give another path with --socket",
	} {
		for _, command := range [][]string{{"stats"}, {"connections"}, {"reload"}, {"health"}} {
			expect(t, run(t, socket, command...), result{unopened, "", "millctl: " + socket + ": " + advice + "\n"})
		}
	}
}

func TestExitStatusesAreMillraces(t *testing.T) {
	if got := [...]int{done, failed, wrongUsage, unopened, interrupted}; got != [...]int{0, 1, 2, 3, 130} {
		t.Error(got)
	}
}

// Each command fails if its output cannot be written.
func TestFullDisk(t *testing.T) {
	server := apitest.New(t)
	for _, what := range []string{"GET /stats", "GET /explain", "POST /reload", "POST /kill"} {
		server.On(what, apitest.Text(200, "{}"))
	}
	server.On("GET /services", apitest.Text(200, "[]"))
	server.On("GET /connections", apitest.Text(200, testdata(t, "connections.jsonl")))
	for _, command := range [][]string{{"stats"}, {"stats", "--json"}, {"connections"}, {"connections", "--format=json"},
		{"connections", "--format=conntrack"}, {"explain", "tcp", "10.0.0.1:1", "10.0.0.2:2"}, {"reload"}, {"kill", "--all"}} {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Skip(err) // no /dev/full on this system
		}
		defer full.Close()
		var text bytes.Buffer
		status := Run(context.Background(), append(command, "--socket", server.Socket), full, &text)
		if status != failed || text.String() != "millctl: write /dev/full: no space left on device\n" {
			t.Errorf("%v: %d %s", command, status, text.String())
		}
	}
}

func TestInterrupted(t *testing.T) {
	server := apitest.New(t)
	server.On("GET /services", apitest.Text(200, "[]"))
	server.On("GET /stats", apitest.Text(200, "{}"))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, command := range []string{"stats", "health", "exporter"} {
		args := []string{command}
		if command == "exporter" {
			args = append(args, "--listen", "127.0.0.1:0")
		}
		got := runIn(ctx, server.Socket, args...)
		if got.status != interrupted || got.err != "" {
			t.Errorf("%s: %+v", command, got)
		}
	}
}
