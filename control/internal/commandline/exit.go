// Package commandline is what millctl's programs have in common: exit statuses, and what they say of a wrong command line.
package commandline

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"millrace/control/internal/api"
)

// The exit statuses are the same as millrace's (cli/README.md).
const (
	Done        = 0
	Failed      = 1
	WrongUsage  = 2
	Unopened    = 3
	Interrupted = 130
)

type usageError struct{ text string }

func (u usageError) Error() string { return u.text }

// Usage returns the error of a wrong command line, or of a wrong configuration.
func Usage(format string, values ...any) error { return usageError{fmt.Sprintf(format, values...)} }

// UnopenedFile is the error of a file, or a program, that could not be opened.
type UnopenedFile struct{ Err error }

func (u UnopenedFile) Error() string { return u.Err.Error() }

// Unwrap returns why it could not be opened.
func (u UnopenedFile) Unwrap() error { return u.Err }

// ErrInterrupted ends a command that the user has interrupted.
var ErrInterrupted = errors.New("interrupted")

// Status prints the error, with "millctl: " before each of its lines, and returns the exit status.
func Status(ctx context.Context, to io.Writer, err error) int {
	switch {
	case err == nil:
		return Done
	case ctx.Err() != nil || errors.Is(err, ErrInterrupted):
		return Interrupted
	}
	for _, line := range strings.Split(err.Error(), "\n") {
		fmt.Fprintf(to, "millctl: %s\n", line)
	}
	var unreachable *api.Unreachable
	var refused *api.Refused
	switch {
	case errors.As(err, &usageError{}) || (errors.As(err, &refused) && refused.Status == http.StatusBadRequest):
		return WrongUsage
	case errors.As(err, &unreachable) || errors.As(err, &UnopenedFile{}):
		return Unopened
	}
	return Failed
}

// Execute runs a program's command line, and returns its error. `root` must not have run yet.
func Execute(ctx context.Context, root *cobra.Command, args []string) error {
	started := false // once cobra has accepted the command line: later errors are not errors of usage
	root.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetFlagErrorFunc(NoOption)
	// Leaves the line "millctl [command]" out for commands that can themselves be run.
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "{{if .HasAvailableSubCommands}}\n  {{.CommandPath}}",
		"{{if and .HasAvailableSubCommands (not .Runnable)}}\n  {{.CommandPath}}", 1))
	for _, command := range append(root.Commands(), root) {
		command.DisableFlagsInUseLine = true
		command.Flags().SortFlags = false
		command.ValidArgsFunction = cobra.NoFileCompletions
	}
	root.SetArgs(args)
	command, err := root.ExecuteContextC(ctx)
	if err != nil && !started { // the text is cobra's
		return Usage("%v (%s --help shows what there is)", err, command.CommandPath())
	}
	return err
}
