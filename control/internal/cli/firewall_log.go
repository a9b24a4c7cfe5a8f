package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"millrace/control/internal/api"
	"millrace/control/internal/firewall"
)

// retryPause is how long millctl waits before it asks again for the log of a millrace that does not answer.
const retryPause = 200 * time.Millisecond

func (a *app) firewallLog() *cobra.Command {
	follow, onlyNew, collector := false, false, ""
	command := &cobra.Command{
		Use:   "log [--follow [--new]] [--ipfix ADDRESS:PORT]",
		Short: "Show the log of the rules that have log = true",
		Long: `Shows the connections whose first packets met a rule with log = true, or the default with
firewall.log, a line of JSON each (docs/firewall.md): the newest that millrace keeps, 4,095 a
worker; with --follow all later ones, too, until Ctrl-C, also after a take-over or a restart.
"missed" counts events that are in no line before. --ipfix sends the events by IPFIX, over
UDP, and prints nothing.`,
		Example: `  millctl firewall log --follow
  millctl firewall log | jq -r 'select(.action == "drop").source' | sort | uniq -c
  millctl firewall log --follow --ipfix 192.0.2.9:4739`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if onlyNew && !follow {
				return usage("--new leaves nothing to show without --follow: give --follow, too")
			}
			var to logOutput = &logLines{bufio.NewWriter(a.out)}
			if collector != "" {
				exporter, err := firewall.NewCollector(collector)
				if err != nil {
					return usage("--ipfix %s: %v: give the address and port of a collector, such as 192.0.2.9:4739", collector, err)
				}
				defer exporter.Close()
				to = &logRecords{a: a, to: exporter}
			}
			return a.readLog(command.Context(), follow, onlyNew, to)
		},
	}
	command.Flags().BoolVarP(&follow, "follow", "f", false, "go on with later events, until Ctrl-C")
	command.Flags().BoolVar(&onlyNew, "new", false, "leave out the events that are there already")
	command.Flags().Var(text{&collector, "ADDRESS:PORT"}, "ipfix", "send the events to this IPFIX collector")
	return command
}

// logOutput takes whole lines. After flush they are where they should be.
type logOutput interface {
	add(line []byte) error
	flush() error
}

// errOutput wraps the error of an output, after which reading more makes no sense.
type errOutput struct{ error }

// readLog reads the log. If it follows the log, the first request must succeed; later, it waits for a millrace that does not answer.
func (a *app) readLog(ctx context.Context, follow, onlyNew bool, to logOutput) error {
	query := url.Values{}
	if follow {
		query.Set("follow", "true")
	}
	if onlyNew {
		query.Set("new", "true")
	}
	body, err := a.client().Get(ctx, "/firewall/log", query)
	if err != nil {
		return err
	}
	for {
		err := copyLines(to, body)
		body.Close()
		var output errOutput
		switch {
		case errors.As(err, &output):
			return output.error
		case ctx.Err() != nil:
			return ctx.Err()
		case !follow:
			return brokeOff(err)
		}
		a.warn("millrace has ended, or another process takes over: waiting for it")
		// All events of the next process are new.
		if body, err = a.waitForLog(ctx, url.Values{"follow": {"true"}}); err != nil {
			return err
		}
	}
}

func (a *app) waitForLog(ctx context.Context, query url.Values) (io.ReadCloser, error) {
	for {
		body, err := a.client().Get(ctx, "/firewall/log", query)
		var refused *api.Refused
		if err == nil || (errors.As(err, &refused) && refused.Status != http.StatusConflict) {
			return body, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(retryPause):
		}
	}
}

// copyLines copies whole lines, and flushes the output whenever no further line is there.
func copyLines(to logOutput, body io.Reader) error {
	lines := bufio.NewReaderSize(body, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if err == nil {
			err = to.add(line)
		} else if err == io.EOF && len(line) != 0 {
			err = io.ErrUnexpectedEOF
		}
		if err == nil && lines.Buffered() > 0 {
			continue
		}
		if failure := to.flush(); failure != nil {
			return failure
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

type logLines struct{ out *bufio.Writer }

func (l *logLines) add(line []byte) error {
	if _, err := l.out.Write(line); err != nil {
		return errOutput{err}
	}
	return nil
}

func (l *logLines) flush() error {
	if err := l.out.Flush(); err != nil {
		return errOutput{err}
	}
	return nil
}

// logRecords sends events to a collector.
type logRecords struct {
	a      *app
	to     *firewall.Collector
	warned time.Time
}

func (l *logRecords) add(line []byte) error {
	var event firewall.Event
	if err := json.Unmarshal(line, &event); err != nil {
		return fmt.Errorf("the line %q was not understood: %w", line, err)
	}
	l.note(l.to.Add(&event))
	return nil
}

func (l *logRecords) flush() error {
	l.note(l.to.Flush())
	return nil
}

// note warns of an error, at most once a minute: the next record may arrive.
func (l *logRecords) note(err error) {
	if err == nil || time.Since(l.warned) < time.Minute {
		return
	}
	l.warned = time.Now()
	l.a.warn(fmt.Sprintf("events do not reach the collector: %v", err))
}
