package health

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"syscall"
)

// checks has a function for each kind of check, by name. The function returns nil if the backend is well;
// the context has the timeout.
var checks = map[string]func(context.Context, Check) error{
	"tcp":  checkTCP,
	"http": checkHTTP,
	"icmp": checkICMP,
}

// Try makes one check. It returns nil if the backend is well, or else an error that says in a few words
// why not.
func Try(ctx context.Context, check Check) error {
	ctx, cancel := context.WithTimeout(ctx, check.Timeout)
	defer cancel()
	if err := checks[check.Kind](ctx, check); err != nil {
		return reason(check, err)
	}
	return nil
}

func reason(check Check, err error) error {
	var number syscall.Errno
	switch {
	case errors.Is(err, errNotTried):
		return err
	case errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("no answer in %s", check.Timeout)
	case !errors.As(err, &number):
		return err
	case number == syscall.ENETUNREACH:
		return fmt.Errorf("%w: %v: give this machine a route to it, for example by the key kernel of a port (docs/control.md#millctl-health)",
			errNotTried, number)
	case isOurs(number):
		return fmt.Errorf("%w: %v", errNotTried, number)
	}
	return number
}

// isOurs returns true if this machine failed before anything was sent: it lacks descriptors, memory, free
// ports, the address family, or a route.
func isOurs(number syscall.Errno) bool {
	switch number {
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL, syscall.EAFNOSUPPORT,
		syscall.ENETUNREACH:
		return true
	}
	return false
}

func checkTCP(ctx context.Context, check Check) error {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", check.To.String())
	if err != nil {
		return err
	}
	return connection.Close()
}

// browser is the client of HTTP checks. It opens a connection for each check, and does not follow
// redirections: a redirection is an answer.
var browser = &http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true, Proxy: nil},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

func checkHTTP(ctx context.Context, check Check) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+check.To.String()+check.Path, nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", "millctl-health")
	request.Host = check.Host
	answer, err := browser.Do(request)
	if err != nil {
		return err
	}
	answer.Body.Close()
	if answer.StatusCode < 200 || answer.StatusCode > 399 {
		return errors.New("HTTP " + answer.Status)
	}
	return nil
}
