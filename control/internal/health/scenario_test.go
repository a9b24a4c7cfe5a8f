package health

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"millrace/control/internal/balance"
)

var update = flag.Bool("update", false, "write the traces anew")

// scenario plays a text of steps. Below each step, in lines that begin with ">", are the jobs and events
// that the board returns.
//
//	service NAME KIND[:PORT] INTERVAL rise N fall N: BACKEND+ BACKEND-   a service; + healthy, - not
//	service NAME none: BACKEND+                                   a service without health checks
//	read                                                          the board gets the services above
//	at MS                                                         the time is MS; due checks begin
//	good BACKEND, bad BACKEND, unable BACKEND                     the outcome of a running check
type scenario struct {
	t        *testing.T
	board    *Board
	nowMs    int64
	services []balance.Service
	running  map[string]Job
	trace    strings.Builder
}

func TestScenarios(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(paths) == 0 {
		t.Fatal("no scenarios", err)
	}
	for _, path := range paths {
		t.Run(filepath.Base(path), func(t *testing.T) { play(t, path) })
	}
}

func play(t *testing.T, path string) {
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := &scenario{t: t, board: NewBoard(), running: map[string]Job{}}
	for _, line := range strings.Split(strings.TrimRight(string(text), "\n"), "\n") {
		if strings.HasPrefix(line, ">") {
			continue
		}
		fmt.Fprintln(&s.trace, line)
		if words := strings.Fields(line); len(words) > 0 && words[0] != "#" {
			s.step(words)
		}
	}
	if *update {
		os.WriteFile(path, []byte(s.trace.String()), 0o644)
	} else if s.trace.String() != string(text) {
		t.Errorf("became\n%s", s.trace.String())
	}
}

func (s *scenario) step(words []string) {
	switch words[0] {
	case "service":
		s.services = append(s.services, s.service(words[1:]))
	case "read":
		s.say(s.board.Configure(s.nowMs, s.services))
		s.services = nil
	case "at":
		s.nowMs = s.number(words[1])
		for _, job := range s.board.Due(s.nowMs) {
			s.running[job.Backend] = job
			fmt.Fprintf(&s.trace, "> check %s: %s %s%s\n", job.Target, job.Kind, job.To, job.Path)
		}
	default:
		outcome, known := map[string]error{"good": nil, "bad": errors.New("refused"), "unable": errNotTried}[words[0]]
		if !known {
			s.t.Fatalf("no step %q", words[0])
		}
		s.say(s.board.Result(s.running[words[1]], outcome))
	}
}

func (s *scenario) say(events []Event) {
	for _, event := range events {
		if event.Tell {
			fmt.Fprintf(&s.trace, "> tell %s is %s: %s\n", event.Target, stateName(event.Healthy), event.Why)
		} else {
			fmt.Fprintf(&s.trace, "> note %s: %s\n", event.Target, event.Why)
		}
	}
}

func (s *scenario) service(words []string) balance.Service {
	service := balance.Service{Service: words[0]}
	if at, err := netip.ParseAddrPort(strings.TrimSuffix(words[0], "/tcp")); err == nil {
		service.Port = at.Port()
	}
	words = words[1:]
	if words[0] != "none:" {
		kind, port, _ := strings.Cut(words[0], ":")
		service.Health = &balance.Health{Check: kind, Port: uint16(s.number("0" + port)), Path: "/well", TimeoutMs: 500, IntervalMs: s.number(words[1]),
			Rise: int(s.number(words[3])), Fall: int(s.number(strings.TrimSuffix(words[5], ":")))}
		words = words[5:]
	}
	for _, word := range words[1:] {
		service.Backends = append(service.Backends, s.backend(word))
	}
	return service
}

func (s *scenario) backend(word string) balance.Backend {
	name, healthy := word[:len(word)-1], strings.HasSuffix(word, "+")
	if address, err := netip.ParseAddr(name); err == nil {
		return balance.Backend{Address: address, Healthy: healthy}
	}
	address, err := netip.ParseAddrPort(name)
	if err != nil {
		s.t.Fatal(err)
	}
	return balance.Backend{Address: address.Addr(), Port: address.Port(), Healthy: healthy}
}

func (s *scenario) number(word string) int64 {
	number, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		s.t.Fatal(err)
	}
	return number
}
