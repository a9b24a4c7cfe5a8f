// Package health checks backends and tells millrace which of them are healthy.
//
// Board decides what is checked when, and what is told: a core without clock or socket, which takes
// the time and messages and gives messages. The checks themselves (check.go) and the loop around all
// of it (runner.go) stand at the edge. testdata/*.txt are scenarios with the full expected trace.
package health

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"sort"
	"time"

	"millrace/control/internal/balance"
)

// Target is what has a state of health: one backend in one service, by the API's names.
type Target struct{ Service, Backend string }

func (t Target) String() string { return t.Backend + " of " + t.Service }

// Check is one attempt that is to be made. Path and Host are http's, Host empty where the request names To; icmp has
// no port.
type Check struct {
	Kind    string
	To      netip.AddrPort
	Path    string
	Host    string
	Timeout time.Duration
}

// Job is a check that is due. Its result goes to Board.Result.
type Job struct {
	Target
	Check
	life uint64
}

// Event is what the outside is to know: that a target's state is to be told (Tell), or a remark.
type Event struct {
	Target
	Tell, Healthy bool
	Why           string
}

// Board is not for several goroutines. Times are milliseconds of any clock that only goes forward.
type Board struct {
	watched map[Target]*watched
	lives   uint64
}

type watched struct {
	Streak
	check      Check
	intervalMs int64
	rise, fall int
	dueMs      int64
	running    bool
	noted      bool   // that it is not checked
	life       uint64 // tells a target from an earlier one of the same name
}

// NewBoard watches nothing yet.
func NewBoard() *Board { return &Board{watched: map[Target]*watched{}} }

// Configure takes what millrace says it has. A new target begins in the state that millrace believes;
// where it believes otherwise of an old one, because it was started again or did not hear, it is told
// again.
func (b *Board) Configure(nowMs int64, services []balance.Service) (events []Event) {
	wanted := map[Target]bool{}
	for _, service := range services {
		if service.Health == nil {
			continue
		}
		for _, backend := range service.Backends {
			target := Target{service.Service, backend.Name()}
			wanted[target] = true
			events = append(events, b.configure(nowMs, target, service, backend)...)
		}
	}
	for target := range b.watched {
		if !wanted[target] {
			delete(b.watched, target)
		}
	}
	return events
}

func (b *Board) configure(nowMs int64, target Target, service balance.Service, backend balance.Backend) []Event {
	w, known := b.watched[target]
	if !known {
		b.lives++
		w = &watched{Streak: Streak{Healthy: backend.Healthy}, life: b.lives}
		w.dueMs = nowMs + spread(target, service.Health.IntervalMs)
		b.watched[target] = w
	}
	w.check = checkOf(service, backend)
	w.intervalMs, w.rise, w.fall = service.Health.IntervalMs, service.Health.Rise, service.Health.Fall
	if problem := w.check.problem(); problem != "" {
		w.dueMs = never
		return w.note(target, problem)
	}
	switch {
	case w.dueMs == never:
		w.dueMs = nowMs
	case w.dueMs > nowMs+w.intervalMs: // it was longer before
		w.dueMs = nowMs + w.intervalMs
	}
	if w.Healthy == backend.Healthy {
		return nil
	}
	return []Event{{Target: target, Tell: true, Healthy: w.Healthy, Why: "millrace had it otherwise"}}
}

const never = int64(1)<<62 - 1

// note says once why a target is not checked.
func (w *watched) note(target Target, problem string) []Event {
	if w.noted {
		return nil
	}
	w.noted = true
	return []Event{{Target: target, Why: problem}}
}

// noteEnd says that a target is checked which was not.
func (w *watched) noteEnd(target Target) []Event {
	if !w.noted {
		return nil
	}
	w.noted = false
	return []Event{{Target: target, Why: "checked again"}}
}

// The configured port, or the backend's, or the service's where that is none.
func checkOf(service balance.Service, backend balance.Backend) Check {
	port := firstOf(service.Health.Port, backend.Port, service.Port)
	if service.Health.Check == "icmp" {
		port = 0
	}
	return Check{service.Health.Check, netip.AddrPortFrom(backend.Address, port), service.Health.Path, service.Health.Host,
		time.Duration(service.Health.TimeoutMs) * time.Millisecond}
}

func firstOf(ports ...uint16) uint16 {
	for _, port := range ports {
		if port != 0 {
			return port
		}
	}
	return 0
}

// problem says why it cannot be made; a backend never falls because of that.
func (c Check) problem() string {
	if checks[c.Kind] == nil {
		return fmt.Sprintf("not checked: the check %q is unknown to this millctl", c.Kind)
	}
	if c.Kind != "icmp" && c.To.Port() == 0 {
		return "not checked: neither the check, the backend nor the service has a port"
	}
	return ""
}

// errNotTried is in a check's outcome where it says nothing about the backend: we could not make it.
var errNotTried = errors.New("not checked")

// spread is when in its interval a target is checked first, so that not all are at once: by its name.
func spread(target Target, intervalMs int64) int64 {
	if intervalMs <= 0 {
		return 0
	}
	hash := fnv.New32a()
	hash.Write([]byte(target.String()))
	return int64(hash.Sum32()) % intervalMs
}

// Due starts the checks whose time has come, in the order of their times. One that still runs is not
// started again.
func (b *Board) Due(nowMs int64) (jobs []Job) {
	due := map[Target]int64{}
	for target, w := range b.watched {
		if w.running || w.dueMs > nowMs {
			continue
		}
		due[target] = w.dueMs
		jobs = append(jobs, Job{target, w.check, w.life})
		w.running = true
		w.dueMs = nextMs(w.dueMs, w.intervalMs, nowMs)
	}
	sort.Slice(jobs, func(i, j int) bool {
		a, b := jobs[i].Target, jobs[j].Target
		return due[a] < due[b] || (due[a] == due[b] && a.String() < b.String())
	})
	return jobs
}

// An interval after the last time; what was missed is not made up for.
func nextMs(lastMs, intervalMs, nowMs int64) int64 {
	next := lastMs + intervalMs
	if next <= nowMs {
		return nowMs + intervalMs
	}
	return next
}

// Result takes the outcome of a job, nil where the backend is well.
func (b *Board) Result(job Job, outcome error) []Event {
	w := b.watched[job.Target]
	if w == nil || w.life != job.life {
		return nil // it was taken out of the configuration meanwhile
	}
	w.running = false
	if errors.Is(outcome, errNotTried) {
		return w.note(job.Target, outcome.Error())
	}
	events := w.noteEnd(job.Target)
	if !w.Observe(outcome == nil, w.rise, w.fall) {
		return events
	}
	why := fmt.Sprintf("%d good in a row", w.rise)
	if outcome != nil {
		why = fmt.Sprintf("%v, %d in a row", outcome, w.fall)
	}
	return append(events, Event{Target: job.Target, Tell: true, Healthy: w.Healthy, Why: why})
}
