// Package units asks systemd about units, and has it start and stop them, by the program systemctl.
package units

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// Manager is the systemd of this machine.
type Manager struct{}

// Unit is what systemd says of one.
type Unit struct {
	Name    string // "millrace@a"
	MainPID int    // 0: it has no process
	Result  string // "success", or how its last process ended: "exit-code"

	load, active, file, invocation string
}

// IsThere says whether systemd has a file for it.
func (u Unit) IsThere() bool { return u.load == "loaded" }

// Runs says whether it does, or is about to, or about to end.
func (u Unit) Runs() bool {
	switch u.active {
	case "active", "activating", "reloading", "deactivating":
		return u.MainPID != 0
	}
	return false
}

// HasFailed says whether its last process has ended by itself, though it may be started again.
func (u Unit) HasFailed() bool {
	return u.active == "failed" || u.active == "inactive" || (u.active == "activating" && u.MainPID == 0)
}

// IsEnabled says whether it starts with the machine.
func (u Unit) IsEnabled() bool { return u.file == "enabled" }

// Show asks for a unit.
func (m Manager) Show(ctx context.Context, name string) (Unit, error) {
	text, err := systemctl(ctx, "show", "--property=LoadState,ActiveState,UnitFileState,MainPID,Result,InvocationID", name+".service")
	if err != nil {
		return Unit{}, err
	}
	unit := Unit{Name: name}
	for _, line := range strings.Split(text, "\n") {
		property, value, _ := strings.Cut(line, "=")
		switch property {
		case "LoadState":
			unit.load = value
		case "ActiveState":
			unit.active = value
		case "UnitFileState":
			unit.file = value
		case "MainPID":
			unit.MainPID, _ = strconv.Atoi(value)
		case "InvocationID":
			unit.invocation = value
		case "Result":
			unit.Result = value
		}
	}
	return unit, nil
}

const byHand = "start the new millrace with --take-over by hand (docs/run.md)"

// Do is "start", "stop", "enable" or "disable"; it returns when that is done, or has failed.
func (m Manager) Do(ctx context.Context, what, name string) error {
	_, err := systemctl(ctx, what, name+".service")
	return err
}

// Errors is what millrace's latest process in that unit said, warnings left out: where it did not start, why. Nothing where
// there is no journal.
func (m Manager) Errors(ctx context.Context, name string) (lines []string) {
	unit, err := m.Show(ctx, name)
	if err != nil || unit.invocation == "" {
		return nil
	}
	text, err := exec.CommandContext(ctx, "journalctl", "--quiet", "--no-pager", "--output=cat",
		"_SYSTEMD_INVOCATION_ID="+unit.invocation).Output()
	if err != nil {
		return nil
	}
	for _, line := range strings.Split(string(text), "\n") {
		said := strings.TrimPrefix(line, "millrace: ")
		if said != line && !strings.HasPrefix(said, "warning: ") {
			lines = append(lines, said)
		}
	}
	return lines
}

func systemctl(ctx context.Context, args ...string) (string, error) {
	var out, complaint bytes.Buffer
	command := exec.CommandContext(ctx, "systemctl", append([]string{"--no-ask-password"}, args...)...)
	command.Stdout, command.Stderr = &out, &complaint
	err := command.Run()
	switch {
	case err == nil:
		return out.String(), nil
	case ctx.Err() != nil:
		return "", ctx.Err()
	case errors.Is(err, exec.ErrNotFound):
		return "", errors.New("there is no systemctl here: " + byHand)
	}
	first, _, _ := strings.Cut(strings.TrimSpace(complaint.String()), "\n")
	// Its words where another program is the first of all, as in a container.
	if strings.Contains(first, "not been booted with systemd") || strings.Contains(first, "Failed to connect to bus") {
		return "", errors.New("systemd does not run here: " + byHand)
	}
	if first == "" {
		first = err.Error()
	}
	return "", fmt.Errorf("systemctl: %s", first)
}
