package health

import (
	"context"
	"errors"
	"fmt"
	"time"

	"millrace/control/internal/api"
	"millrace/control/internal/balance"
)

// Runner is the loop around Board: it reads millrace's services every second, starts the checks that are
// due, and reports changed states to millrace. One goroutine does everything except the checks, so that
// the services that it reads are never older than its last report.
type Runner struct {
	Client *balance.Client
	Try    func(context.Context, Check) error
	Log    func(line string)
}

const (
	readEvery = time.Second
	lookEvery = 5 * time.Millisecond // between searches for due checks; no interval is under 10 ms
	patience  = 2 * time.Second      // longest wait for an answer of millrace
	atOnce    = 512                  // checks at once; each holds a socket
)

type outcome struct {
	job Job
	err error
}

// Run checks backends until the context ends. If millrace does not answer at the start, Run returns an error
// at once, for the user to read; if millrace does not answer later, Run goes on.
func (r *Runner) Run(ctx context.Context) error {
	services, err := r.Client.Services(ctx)
	if err != nil {
		return err
	}
	board, start := NewBoard(), time.Now()
	nowMs := func() int64 { return time.Since(start).Milliseconds() }
	r.Log(welcome(services))
	r.carryOut(ctx, board.Configure(0, services))

	outcomes, free := make(chan outcome), make(chan struct{}, atOnce)
	read, look := time.NewTicker(readEvery), time.NewTicker(lookEvery)
	defer read.Stop()
	defer look.Stop()
	for away := false; ; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-read.C:
			services, err := r.services(ctx)
			away = r.noteAway(away, err)
			if err == nil {
				r.carryOut(ctx, board.Configure(nowMs(), services))
			}
		case <-look.C:
			for _, job := range board.Due(nowMs()) {
				go r.attempt(ctx, job, free, outcomes)
			}
		case is := <-outcomes:
			r.carryOut(ctx, board.Result(is.job, is.err))
		}
	}
}

func welcome(services []balance.Service) string {
	backends, checked := 0, 0
	for _, service := range services {
		if service.Health != nil {
			checked++
			backends += len(service.Backends)
		}
	}
	if services == nil {
		return "no service is there to check: this millrace runs without the function balance; waiting for a millrace that has it"
	}
	if checked == 0 {
		return "no service has `health` in its configuration; waiting for one"
	}
	return fmt.Sprintf("checking; services: %d, backends: %d", checked, backends)
}

// attempt makes a check as soon as fewer than `atOnce` checks are under way. The timeout begins with the check.
func (r *Runner) attempt(ctx context.Context, job Job, free chan struct{}, outcomes chan<- outcome) {
	free <- struct{}{}
	err := r.Try(ctx, job.Check)
	<-free
	if ctx.Err() != nil {
		return // the check may have failed because Run ends
	}
	select {
	case outcomes <- outcome{job, err}:
	case <-ctx.Done():
	}
}

func (r *Runner) services(ctx context.Context) ([]balance.Service, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return r.Client.Services(ctx)
}

func (r *Runner) noteAway(was bool, err error) bool {
	switch {
	case err != nil && !was:
		r.Log("millrace does not answer (" + err.Error() + "); the checks go on")
	case err == nil && was:
		r.Log("millrace answers again")
	}
	return err != nil
}

// carryOut writes the events to the log, and reports them to millrace until millrace does not answer. A state
// that was not reported is reported again when the services are next read: millrace then has another state.
func (r *Runner) carryOut(ctx context.Context, events []Event) {
	silent := false
	for _, event := range events {
		if !event.Tell {
			r.Log(fmt.Sprintf("%s is %s", event.Target, event.Why))
			continue
		}
		r.Log(fmt.Sprintf("%s is %s: %s", event.Target, stateName(event.Healthy), event.Why))
		if silent {
			continue
		}
		err := r.tell(ctx, event)
		var refused *api.Refused
		if err != nil {
			r.Log(fmt.Sprintf("%s: the state was not reported to millrace: %v", event.Target, err))
			silent = !errors.As(err, &refused)
		}
	}
}

func (r *Runner) tell(ctx context.Context, event Event) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, err := r.Client.Mark(ctx, "health", event.Service, event.Backend, event.Healthy)
	return err
}

func stateName(healthy bool) string {
	if healthy {
		return "up"
	}
	return "down"
}
