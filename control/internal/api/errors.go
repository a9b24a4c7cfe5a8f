package api

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Refused is millrace's refusal of a request. Text has a line for each problem.
type Refused struct {
	Status int
	Text   string
}

func (r *Refused) Error() string { return r.Text }

// Unreachable means that the socket could not be opened; its message says what to do about it.
type Unreachable struct {
	Socket string
	Err    error
}

func (u *Unreachable) Unwrap() error { return u.Err }

func (u *Unreachable) Error() string {
	return fmt.Sprintf("%s: %s", u.Socket, u.advice())
}

// isAnothers returns true if `socket` is this user's default socket and not root's, and root's socket, `roots`, exists.
func isAnothers(socket, roots string) bool {
	_, err := os.Stat(roots)
	return err == nil && socket == DefaultSocket() && socket != roots
}

func (u *Unreachable) advice() string {
	switch {
	case errors.Is(u.Err, fs.ErrNotExist) && isAnothers(u.Socket, rootsSocket):
		return "no such socket, but root's millrace has one: run millctl as root (sudo)"
	case errors.Is(u.Err, fs.ErrNotExist):
		return "no such socket: is millrace running? `millrace run` makes it; give another path with --socket"
	case errors.Is(u.Err, fs.ErrPermission):
		return "permission denied: only the user that runs millrace may open it; run millctl as that user, or with sudo"
	case errors.Is(u.Err, syscall.ECONNREFUSED):
		return "no process listens there: the millrace that made the socket has ended; start millrace again, or give another path with --socket"
	}
	return "cannot be opened: " + u.Err.Error() + "; give another path with --socket"
}
