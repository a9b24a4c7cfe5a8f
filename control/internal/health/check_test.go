package health

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"
)

// ample is a timeout that passes in these tests only if a check gets no answer.
const ample = time.Minute

func listen(t *testing.T, address string) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		// For example on a system without IPv6.
		t.Skipf("cannot listen at %s: %v", address, err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}

func addressOf(listener net.Listener) netip.AddrPort {
	return listener.Addr().(*net.TCPAddr).AddrPort()
}

func try(kind string, to netip.AddrPort, path string, timeout time.Duration) string {
	if err := Try(context.Background(), Check{Kind: kind, To: to, Path: path, Timeout: timeout}); err != nil {
		return err.Error()
	}
	return "well"
}

func TestTCP(t *testing.T) {
	for _, loopback := range []string{"127.0.0.1:0", "[::1]:0"} {
		listener := listen(t, loopback)
		to := addressOf(listener)
		if got := try("tcp", to, "", ample); got != "well" {
			t.Errorf("%s: %s", to, got)
		}
		listener.Close()
		if got := try("tcp", to, "", ample); got != "connection refused" {
			t.Errorf("%s, closed: %s", to, got)
		}
	}
}

func TestHTTP(t *testing.T) {
	hang := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/well":
		case "/query":
			if r.URL.RawQuery != "full=1" || r.Method != "GET" {
				w.WriteHeader(400)
			}
		case "/moved":
			http.Redirect(w, r, "/nowhere", http.StatusFound)
		case "/hang":
			<-hang
		default:
			w.WriteHeader(503)
		}
	}))
	defer server.Close()
	defer close(hang)
	to := addressOf(server.Listener)
	for path, want := range map[string]string{
		"/well":         "well",
		"/query?full=1": "well",
		"/moved":        "well",
		"/nowhere":      "HTTP 503 Service Unavailable",
	} {
		if got := try("http", to, path, ample); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if got := try("http", to, "/hang", time.Millisecond); got != "no answer in 1ms" {
		t.Errorf("/hang: %s", got)
	}
}

// The request has the configured host, by which a server with many sites chooses the site.
func TestHostOfHTTP(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Host != "www.example.com" {
			w.WriteHeader(421)
		}
	}))
	defer server.Close()
	check := Check{Kind: "http", To: addressOf(server.Listener), Path: "/", Host: "www.example.com", Timeout: ample}
	if err := Try(context.Background(), check); err != nil {
		t.Error(err)
	}
	check.Host = ""
	if err := Try(context.Background(), check); err == nil || err.Error() != "HTTP 421 Misdirected Request" {
		t.Error(err)
	}
}

func TestHTTPOfAnotherProtocol(t *testing.T) {
	listener := listen(t, "127.0.0.1:0")
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			connection.Write([]byte("220 mail.example ESMTP\r\n"))
			connection.Close()
		}
	}()
	if got := try("http", addressOf(listener), "/", ample); got == "well" {
		t.Error("a greeting of SMTP counts as an answer of HTTP")
	}
}

func TestICMP(t *testing.T) {
	for _, loopback := range []string{"127.0.0.1", "::1"} {
		t.Run(loopback, func(t *testing.T) {
			listen(t, net.JoinHostPort(loopback, "0")) // skips an address family that is missing
			to := netip.AddrPortFrom(netip.MustParseAddr(loopback), 0)
			err := Try(context.Background(), Check{Kind: "icmp", To: to, Timeout: ample})
			if errors.Is(err, errNotTried) {
				t.Skip(err) // this user may not send ICMP
			}
			if err != nil {
				t.Error(err)
			}
			// A timeout of 0 has passed before the answer is read.
			if got := try("icmp", to, "", 0); got != "no answer in 0s" {
				t.Error(got)
			}
		})
	}
}

// Errors that come from this machine say nothing about a backend.
func TestOurOwnFailures(t *testing.T) {
	for number, isOurs := range map[syscall.Errno]bool{
		syscall.EMFILE: true, syscall.ENFILE: true, syscall.ENOBUFS: true, syscall.ENOMEM: true,
		syscall.EADDRNOTAVAIL: true, syscall.EAFNOSUPPORT: true, syscall.ENETUNREACH: true,
		syscall.ECONNREFUSED: false, syscall.EHOSTUNREACH: false, syscall.ECONNRESET: false,
	} {
		got := reason(Check{}, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", number)})
		want := number.Error()
		if isOurs {
			want = "not checked: " + want
		}
		if number == syscall.ENETUNREACH {
			want += ": give this machine a route to it, for example by the key kernel of a port (docs/control.md#millctl-health)"
		}
		if got.Error() != want || errors.Is(got, errNotTried) != isOurs {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
