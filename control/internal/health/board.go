// Package health checks backends and reports to millrace which of them are healthy.
//
// Board decides when each backend is checked, and which states are reported to millrace. It has no clock and
// no socket: its methods get the time and the results, and return jobs and events. check.go makes the checks,
// and runner.go is the loop around both. testdata/*.txt are scenarios with the full expected trace.
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

// Target is one backend in one service, by the API's names. Each target has its own state of health.
type Target struct{ Service, Backend string }

func (t Target) String() string { return t.Backend + " of " + t.Service }

// Check describes an attempt to reach a backend at the address To. Path and Host are for http; if Host is empty, the Host
// header is To. The port of To is 0 for icmp.
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

// Event is the new state of a target, for millrace and the log, if Tell is true; otherwise a remark for the log only.
type Event struct {
	Target
	Tell, Healthy bool
	Why           string
}

// Board is for one goroutine. Times are milliseconds of any monotonic clock.
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
	noted      bool   // an event has said that the target is not checked
	life       uint64 // a number that no earlier target of the same name had
}

// NewBoard returns a board without targets.
func NewBoard() *Board { return &Board{watched: map[Target]*watched{}} }

// Configure replaces the targets by the backends of millrace's services. A new target begins in the state
// that millrace has for it. If millrace has another state for a known target, because it was restarted or
// a message was lost, an event reports the state again.
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
	case w.dueMs > nowMs+w.intervalMs: // the interval was longer before
		w.dueMs = nowMs + w.intervalMs
	}
	if w.Healthy == backend.Healthy {
		return nil
	}
	return []Event{{Target: target, Tell: true, Healthy: w.Healthy, Why: "millrace had another state"}}
}

const never = int64(1)<<62 - 1

// note returns an event that says why the target is not checked; none if an event has said so since the
// target was last checked.
func (w *watched) note(target Target, problem string) []Event {
	if w.noted {
		return nil
	}
	w.noted = true
	return []Event{{Target: target, Why: problem}}
}

// noteEnd returns an event if the target was not checked before, and now is checked again.
func (w *watched) noteEnd(target Target) []Event {
	if !w.noted {
		return nil
	}
	w.noted = false
	return []Event{{Target: target, Why: "checked again"}}
}

// checkOf returns the check of a backend. Its port is the configured one, or else the backend's, or else
// the service's.
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

// problem returns why the check cannot be made, or "". Such a problem never makes a backend unhealthy.
func (c Check) problem() string {
	if checks[c.Kind] == nil {
		return fmt.Sprintf("not checked: the check %q is unknown to this millctl", c.Kind)
	}
	if c.Kind != "icmp" && c.To.Port() == 0 {
		return "not checked: neither the check, the backend nor the service has a port"
	}
	return ""
}

// errNotTried is the wrapped error of a check that could not be made. Such an outcome says nothing about
// the backend.
var errNotTried = errors.New("not checked")

// spread returns the delay of a target's first check within the interval. It depends on the target's name,
// so that not all checks are made at once.
func spread(target Target, intervalMs int64) int64 {
	if intervalMs <= 0 {
		return 0
	}
	hash := fnv.New32a()
	hash.Write([]byte(target.String()))
	return int64(hash.Sum32()) % intervalMs
}

// Due returns the checks that are due, in the order of their times. A check that still runs is not
// returned again.
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

// nextMs returns the time of the next check: an interval after `lastMs`, when the last check was due, or an
// interval after now if that time has passed. So checks that were missed are not made up for.
func nextMs(lastMs, intervalMs, nowMs int64) int64 {
	next := lastMs + intervalMs
	if next <= nowMs {
		return nowMs + intervalMs
	}
	return next
}

// Result notes the outcome of a job, nil if the backend is well, and returns the events that follow.
func (b *Board) Result(job Job, outcome error) []Event {
	w := b.watched[job.Target]
	if w == nil || w.life != job.life {
		return nil // the target was removed from the configuration meanwhile
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
