package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"millrace/control/internal/units"
)

// howLong is the time limit of the whole upgrade: the start of the new process and the end of the old one.
const howLong = 3 * time.Minute

func (a *app) upgrade() *cobra.Command {
	return &cobra.Command{
		Use:   "upgrade",
		Short: "Replace the running millrace by the installed one, with all connections",
		Long: `Of the systemd units millrace@a and millrace@b (examples/millrace@.service), starts the one
that does not run, with the program and the configuration that are installed now; changes
that a reload cannot make are allowed. The new unit takes over all connections from the
running unit, which then ends. If the old unit was enabled, the new unit is enabled in
its place. If a step fails before the new unit has taken over, the old unit goes on.`,
		Example: `  sudo install build/release/cli/millrace /usr/local/bin/
  sudo millctl upgrade`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(command.Context(), howLong)
			defer cancel()
			u := upgrade{a, units.Manager{}}
			err := u.run(ctx)
			if err != nil && command.Context().Err() == nil && ctx.Err() != nil {
				return fmt.Errorf("the upgrade is not complete after %.0f minutes: systemctl status 'millrace@*' shows both units", howLong.Minutes())
			}
			return err
		},
	}
}

type upgrade struct {
	*app
	manager units.Manager
}

func (u upgrade) run(ctx context.Context) error {
	from, to, err := u.find(ctx)
	if err != nil {
		return err
	}
	was, err := u.client().Stats(ctx)
	if err != nil {
		return fmt.Errorf("%s runs, and cannot be asked: %w", from.Name, err)
	}
	u.say("%s runs (%s), with %s", from.Name, was.Version, count(was.Connections.Live, "connection"))
	u.say("starting %s, which takes over", to.Name)
	if err := u.manager.Do(ctx, "start", to.Name); err != nil {
		return u.givenUp(ctx, from, to, err)
	}
	if err := u.untilItServes(ctx, to); err != nil {
		return u.givenUp(ctx, from, to, err)
	}
	now, err := u.client().Stats(ctx)
	if err != nil {
		return fmt.Errorf("%s has taken over, and cannot be asked: %w", to.Name, err)
	}
	u.say("%s has taken over %s (%s)", to.Name, count(now.Connections.TakenOver, "connection"), now.Version)
	return u.bow(ctx, from, to)
}

// find returns the unit that runs as `from`, and the unit that does not run as `to`.
func (u upgrade) find(ctx context.Context) (from, to units.Unit, err error) {
	one, err := u.manager.Show(ctx, "millrace@a")
	if err != nil {
		return from, to, err
	}
	other, err := u.manager.Show(ctx, "millrace@b")
	switch {
	case err != nil:
		return from, to, err
	case !one.IsThere() || !other.IsThere():
		return from, to, fmt.Errorf("systemd has no unit millrace@.service: copy examples/millrace@.service to /etc/systemd/system, then systemctl daemon-reload")
	case one.Runs() && other.Runs():
		return from, to, fmt.Errorf("millrace@a and millrace@b both run, so one of them is taking over already: systemctl status 'millrace@*'")
	case one.Runs():
		return one, other, nil
	case other.Runs():
		return other, one, nil
	}
	return from, to, fmt.Errorf("neither millrace@a nor millrace@b runs, so there is nothing to take over: systemctl start millrace@a")
}

// untilItServes waits until the unit's process listens at the control socket, which it takes over last. A
// unit of Type=notify does so as soon as its start has succeeded.
func (u upgrade) untilItServes(ctx context.Context, to units.Unit) error {
	for {
		now, err := u.manager.Show(ctx, to.Name)
		if err != nil {
			return err
		}
		if now.HasFailed() {
			return fmt.Errorf("it has ended (%s)", now.Result)
		}
		if pid, err := u.client().Process(ctx); err == nil && pid == now.MainPID && now.Runs() {
			return nil
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// givenUp stops the unit that failed to take over, so that systemd does not start it again, and returns
// the error to report. If the old unit has ended meanwhile, the new unit is not stopped, so that systemd
// starts it again.
func (u upgrade) givenUp(ctx context.Context, from, to units.Unit, why error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s did not take over: %w", to.Name, why)
	}
	now, err := u.manager.Show(ctx, from.Name)
	if err != nil || !now.Runs() {
		return fmt.Errorf("%s: %w; %s has ended: systemd starts %s again, and journalctl -u %s says why",
			to.Name, why, from.Name, to.Name, to.Name)
	}
	more := "more"
	said := strings.Join(u.manager.Errors(ctx, to.Name), "\n")
	if said == "" {
		said, more = why.Error(), "why"
	}
	text := fmt.Sprintf("%s did not take over: %s\njournalctl -u %s says %s; %s goes on", to.Name, said, to.Name, more, from.Name)
	if err := u.manager.Do(ctx, "stop", to.Name); err != nil {
		text += fmt.Sprintf("\nand %s is still there: %v", to.Name, err)
	}
	return fmt.Errorf("%s", text)
}

// bow waits until the old unit has ended. If the old unit was enabled, it enables the new one in its
// place.
func (u upgrade) bow(ctx context.Context, from, to units.Unit) error {
	for {
		now, err := u.manager.Show(ctx, from.Name)
		if err != nil {
			return err
		}
		if !now.Runs() {
			break
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
	u.say("%s has ended", from.Name)
	to, err := u.manager.Show(ctx, to.Name)
	switch {
	case err != nil:
		return err
	case !from.IsEnabled() && to.IsEnabled():
		u.say("%s starts at boot", to.Name)
		return nil
	case !from.IsEnabled():
		u.say("neither unit starts at boot: systemctl enable %s", to.Name)
		return nil
	}
	// Enabled first, then disabled: if the second step fails, both units start at boot, and one
	// takes over from the other.
	if err := u.manager.Do(ctx, "enable", to.Name); err != nil {
		return fmt.Errorf("%s serves, but will not start at boot: %w", to.Name, err)
	}
	if err := u.manager.Do(ctx, "disable", from.Name); err != nil {
		return fmt.Errorf("%s serves, but %s will start at boot, too: %w", to.Name, from.Name, err)
	}
	u.say("%s starts at boot, in place of %s", to.Name, from.Name)
	return nil
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(100 * time.Millisecond):
		return nil
	}
}
