// Package units reads the states of systemd's units, and starts and stops units, by the program systemctl.
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

// Unit is the state of a unit.
type Unit struct {
	Name    string // "millrace@a"
	MainPID int    // 0: it has no process
	Result  string // "success", or how the unit's last process failed: "exit-code", for example

	load, active, file, invocation string
}

// IsThere returns true if systemd has a unit file for the unit.
func (u Unit) IsThere() bool { return u.load == "loaded" }

// Runs returns true if the unit has a process, also one that is starting or ending.
func (u Unit) Runs() bool {
	switch u.active {
	case "active", "activating", "reloading", "deactivating":
		return u.MainPID != 0
	}
	return false
}

// HasFailed returns true if the unit's last process has ended, even if systemd may start another.
func (u Unit) HasFailed() bool {
	return u.active == "failed" || u.active == "inactive" || (u.active == "activating" && u.MainPID == 0)
}

// IsEnabled returns true if the unit starts at boot.
func (u Unit) IsEnabled() bool { return u.file == "enabled" }

// Show returns the state of a unit.
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

// Do carries out the command "start", "stop", "enable" or "disable" for a unit, and returns when the command
// is done or has failed.
func (m Manager) Do(ctx context.Context, what, name string) error {
	_, err := systemctl(ctx, what, name+".service")
	return err
}

// Errors returns the messages, without warnings, that the unit's latest millrace has printed: they say why it did not
// start. Errors returns nothing if there is no journal.
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
	// These are systemctl's words if process 1 is not systemd, as in a container.
	if strings.Contains(first, "not been booted with systemd") || strings.Contains(first, "Failed to connect to bus") {
		return "", errors.New("systemd does not run here: " + byHand)
	}
	if first == "" {
		first = err.Error()
	}
	return "", fmt.Errorf("systemctl: %s", first)
}
