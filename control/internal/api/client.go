// Package api speaks to a running millrace through its control socket: HTTP/1.1 over a Unix socket,
// as docs/control.md describes it.
//
// A Client may be used by several goroutines at once. Errors are *Unreachable (the socket could not be
// opened), *Refused (millrace refused the request, and says why), or the error of the context; any
// other error means that the answer broke off or was not understood.
package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// rootsSocket is the path at which root's millrace listens by default.
const rootsSocket = "/run/millrace.sock"

// DefaultSocket returns the path at which `millrace run` listens unless --control says otherwise: in
// /run for root, in the session's runtime folder for other users.
func DefaultSocket() string {
	if os.Geteuid() == 0 {
		return rootsSocket
	}
	runtime := os.Getenv("XDG_RUNTIME_DIR")
	if runtime == "" {
		runtime = fmt.Sprintf("/run/user/%d", os.Geteuid())
	}
	return filepath.Join(runtime, "millrace.sock")
}

// Client asks the millrace behind one socket.
type Client struct {
	socket string
	http   *http.Client
}

// New returns a client. Each of its requests opens a connection of its own.
func New(socket string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		connection, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err != nil && ctx.Err() == nil {
			return nil, &Unreachable{Socket: socket, Err: err}
		}
		return connection, err
	}
	// No connection is kept for the next request: by then another process may have taken over.
	return &Client{socket, &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true, DisableCompression: true}}}
}

// Stats is GET /stats.
func (c *Client) Stats(ctx context.Context) (stats Stats, err error) {
	err = c.Call(ctx, http.MethodGet, "/stats", nil, &stats)
	return stats, err
}

// Pair is GET /pair: the two servers of a pair.
func (c *Client) Pair(ctx context.Context) (pair Pair, err error) {
	err = c.Call(ctx, http.MethodGet, "/pair", nil, &pair)
	return pair, err
}

// TellPair is POST /pair/active, /pair/standby or /pair/gone.
func (c *Client) TellPair(ctx context.Context, word string) (pair Pair, err error) {
	err = c.Call(ctx, http.MethodPost, "/pair/"+word, nil, &pair)
	return pair, err
}

// Explain is GET /explain: the verdict that a packet of that flow would get, and why.
func (c *Client) Explain(ctx context.Context, flow url.Values) (answer Explanation, err error) {
	err = c.Call(ctx, http.MethodGet, "/explain", flow, &answer)
	return answer, err
}

// Shards is GET /shards: the shards, and the worker of each.
func (c *Client) Shards(ctx context.Context) (shards Shards, err error) {
	err = c.Call(ctx, http.MethodGet, "/shards", nil, &shards)
	return shards, err
}

// MoveShard is POST /shards/move.
func (c *Client) MoveShard(ctx context.Context, shard, to string) (moved MovedShard, err error) {
	err = c.Call(ctx, http.MethodPost, "/shards/move", url.Values{"shard": {shard}, "to": {to}}, &moved)
	return moved, err
}

// Reload is POST /reload.
func (c *Client) Reload(ctx context.Context) (done Reloaded, err error) {
	err = c.Call(ctx, http.MethodPost, "/reload", nil, &done)
	return done, err
}

// Kill is POST /kill; it returns how many connections were ended.
func (c *Client) Kill(ctx context.Context, filter url.Values) (int64, error) {
	var done struct{ Killed int64 }
	err := c.Call(ctx, http.MethodPost, "/kill", filter, &done)
	return done.Killed, err
}

// Process returns the process id of the process that listens at the socket.
func (c *Client) Process(ctx context.Context) (int, error) {
	connection, err := (&net.Dialer{}).DialContext(ctx, "unix", c.socket)
	if err != nil {
		return 0, &Unreachable{Socket: c.socket, Err: err}
	}
	defer connection.Close()
	raw, err := connection.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *syscall.Ucred
	var failure error
	if err := raw.Control(func(fd uintptr) {
		peer, failure = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if failure != nil {
		return 0, failure
	}
	return int(peer.Pid), nil
}

// Get sends any GET request and returns the body of the answer unread: for streams, and for JSON that
// is passed on unchanged. The caller must close the body.
func (c *Client) Get(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	return c.send(ctx, http.MethodGet, path, query, nil)
}

// Call sends a request and decodes the JSON answer into a value. The package of a function of
// millrace, such as balance, sends its requests by Call.
func (c *Client) Call(ctx context.Context, method, path string, query url.Values, into any) error {
	return c.call(ctx, method, path, query, nil, into)
}

// Send is Call for a POST request with text as its body.
func (c *Client) Send(ctx context.Context, path string, query url.Values, text string, into any) error {
	return c.call(ctx, http.MethodPost, path, query, strings.NewReader(text), into)
}

// Put is Send for a PUT request.
func (c *Client) Put(ctx context.Context, path, text string, into any) error {
	return c.call(ctx, http.MethodPut, path, nil, strings.NewReader(text), into)
}

func (c *Client) call(ctx context.Context, method, path string, query url.Values, text io.Reader, into any) error {
	body, err := c.send(ctx, method, path, query, text)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(into); err != nil {
		return fmt.Errorf("the answer to %s was not understood: %w", path, err)
	}
	return nil
}

func (c *Client) send(ctx context.Context, method, path string, query url.Values, body io.Reader) (io.ReadCloser, error) {
	// Encode writes a space as "+", which some servers read as a plus; all read "%20" as a space.
	text := strings.ReplaceAll(query.Encode(), "+", "%20")
	where := url.URL{Scheme: "http", Host: "millrace", Path: path, RawQuery: text}
	request, err := http.NewRequestWithContext(ctx, method, where.String(), body)
	if err != nil {
		return nil, err
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, withoutURL(err)
	}
	if answer.StatusCode != http.StatusOK {
		defer answer.Body.Close()
		return nil, refusal(answer)
	}
	return answer.Body, nil
}

// withoutURL strips the URL from an error: all requests go to one socket, so the URL is no news.
func withoutURL(err error) error {
	if wrapped, ok := err.(*url.Error); ok {
		return wrapped.Err
	}
	return err
}

// maxErrorBytes is the largest part of a refusal that is read: another program than millrace may have sent the refusal.
const maxErrorBytes = 1 << 20

func refusal(answer *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxErrorBytes))
	var body struct{ Error string }
	if json.Unmarshal(text, &body) != nil || body.Error == "" {
		body.Error = "the socket answers " + answer.Status + ", which is not how millrace refuses: is it another program's?"
	}
	return &Refused{Status: answer.StatusCode, Text: strings.TrimRight(body.Error, "\n")}
}
