package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"millrace/control/internal/balance"
)

func (a *app) top() *cobra.Command {
	interval, once := time.Second, false
	command := &cobra.Command{
		Use:   "top [--interval TIME] [--once]",
		Short: "Watch the rates: by worker, service, backend and reason of drops",
		Long: `Shows the rates of the last second, and updates them: by worker, service, backend (the
busiest first) and reason of drops. q or Ctrl-C ends it. Needs a terminal, unless --once
is given, which prints the rates of one interval and ends. For other programs there are
"millctl stats --json", with counters since the start, and "millctl exporter".`,
		Example: `  millctl top --interval 5s
  millctl top --once | grep hop_limit`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if once {
				return a.showOnce(command.Context(), interval)
			}
			out, ok := terminal(a.out)
			if !ok {
				return usage("top needs a terminal: give --once for the rates of one interval")
			}
			ctx, stop := signal.NotifyContext(command.Context(), syscall.SIGTERM, syscall.SIGHUP)
			defer stop()
			return watch(ctx, a.client(), out, interval)
		},
	}
	command.Flags().Var(period{&interval}, "interval", "time between two readings, as 500ms or 2s")
	command.Flags().BoolVar(&once, "once", false, "print the rates of one interval, and end")
	return command
}

func (a *app) showOnce(ctx context.Context, interval time.Duration) error {
	before, err := a.client().Stats(ctx)
	if err != nil {
		return err
	}
	read := time.Now()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(interval):
	}
	after, err := a.client().Stats(ctx)
	if err != nil {
		return err
	}
	fmt.Fprint(a.out, rates{&before, &after, time.Since(read).Seconds()}.screen(styleOf(a.out).bold))
	return nil
}

// Escape sequences of the terminal. enterScreen switches to the alternate screen, hides the cursor, and
// makes the terminal cut long lines instead of wrapping them.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l\x1b[?7l"
	leaveScreen = "\x1b[?7h\x1b[?25h\x1b[?1049l"
	home        = "\x1b[H"
	clearLine   = "\x1b[K\r\n"
	clearRest   = "\x1b[J"
)

func watch(ctx context.Context, client *balance.Client, out *os.File, interval time.Duration) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	var hasQuit atomic.Bool
	err := show(ctx, client, out, interval, func(key byte) {
		hasQuit.Store(key == 'q')
		end()
	})
	switch {
	case hasQuit.Load():
		return nil
	case ctx.Err() != nil: // the interrupt has caused err
		return errInterrupted
	}
	return err
}

// show draws the rates until the context ends. It calls onEnd with the key q or Ctrl-C, also while it
// waits for an answer of millrace: in raw mode Ctrl-C is a key, and no signal.
func show(ctx context.Context, client *balance.Client, out *os.File, interval time.Duration, onEnd func(key byte)) error {
	before, err := client.Stats(ctx)
	if err != nil {
		return err
	}
	if was, err := term.MakeRaw(int(os.Stdin.Fd())); err == nil {
		defer term.Restore(int(os.Stdin.Fd()), was)
		go readKeys(onEnd)
	}
	fmt.Fprint(out, enterScreen)
	defer fmt.Fprint(out, leaveScreen)

	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	view := rates{&before, &before, 1}
	for read := time.Now(); ; {
		draw(out, view)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
		after, err := client.Stats(ctx)
		if err != nil {
			return err
		}
		now := time.Now()
		view = rates{view.after, &after, now.Sub(read).Seconds()}
		read = now
	}
}

const ctrlC = 3

func readKeys(onEnd func(key byte)) {
	key := make([]byte, 1)
	for {
		if n, err := os.Stdin.Read(key); err != nil || n == 0 {
			return
		}
		if key[0] == 'q' || key[0] == ctrlC {
			onEnd(key[0])
			return
		}
	}
}

func draw(out *os.File, view rates) {
	lines := strings.Split(strings.TrimRight(view.screen(styleOf(out).bold), "\n"), "\n")
	if _, height, err := term.GetSize(int(out.Fd())); err == nil && len(lines) >= height && height > 1 {
		hidden := len(lines) - height + 2
		lines = append(lines[:height-2], fmt.Sprintf("... and %d more lines: make the window higher to see them", hidden))
	}
	fmt.Fprint(out, home+strings.Join(lines, clearLine)+clearLine+clearRest)
}
