package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"millrace/control/internal/api"
)

// The exit statuses are the same as millrace's (cli/README.md).
const (
	done        = 0
	failed      = 1
	wrongUsage  = 2
	unopened    = 3
	interrupted = 130
)

type usageError struct{ text string }

func (u usageError) Error() string { return u.text }

func usage(format string, values ...any) error { return usageError{fmt.Sprintf(format, values...)} }

// unopenedFile is the error of a file on the command line that could not be opened.
type unopenedFile struct{ error }

// status prints the error, with "millctl: " before each of its lines, and returns the exit status.
func (a *app) status(ctx context.Context, err error) int {
	switch {
	case err == nil:
		return done
	case ctx.Err() != nil || errors.Is(err, errInterrupted):
		return interrupted
	}
	for _, line := range strings.Split(err.Error(), "\n") {
		fmt.Fprintf(a.err, "millctl: %s\n", line)
	}
	var unreachable *api.Unreachable
	var refused *api.Refused
	switch {
	case errors.As(err, &usageError{}) || (errors.As(err, &refused) && refused.Status == http.StatusBadRequest):
		return wrongUsage
	case errors.As(err, &unreachable) || errors.As(err, &unopenedFile{}):
		return unopened
	}
	return failed
}
