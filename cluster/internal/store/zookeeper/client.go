// Package zookeeper is a store in ZooKeeper.
//
// A record is a node, and its revision is one more than the node's version. Records are never deleted, so versions do not come again. A member
// that is present is an ephemeral node.
package zookeeper

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"millrace/control/cluster/internal/store"
)

// Config are a client's settings.
type Config struct {
	Servers []string // such as 10.0.0.1:2281
	Root    string   // node of the cluster, such as /millrace/one
	TLS     store.TLS
	// Session is how long the client may be silent until its member is not present any more. The servers' tickTime bounds it: 2 to 20 ticks.
	Session time.Duration
	Log     *slog.Logger
}

// Client is a Store.
type Client struct {
	config Config
	zk     *zk.Conn
	ctx    context.Context
	cancel context.CancelFunc
	keeper sync.WaitGroup
	begin  sync.Once
	close  sync.Once
	// The keeper tells what the member says, when it is asked to, and for each connection.
	tells     chan chan error
	connected chan struct{}

	mu     sync.Mutex
	hasRun bool // there are the nodes above records and members
	member string
	says   []byte
}

const retry = 200 * time.Millisecond

var everybody = zk.WorldACL(zk.PermAll) // who is let in at all, by TLS

// Open returns a client, which need not have reached the store yet.
func Open(config Config) (*Client, error) {
	tlsConfig, err := config.TLS.Config()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &Client{config: config, ctx: ctx, cancel: cancel, tells: make(chan chan error), connected: make(chan struct{}, 1)}
	dial := func(network, address string, timeout time.Duration) (net.Conn, error) {
		dialer := &net.Dialer{Timeout: timeout}
		if tlsConfig == nil {
			return dialer.Dial(network, address)
		}
		return tls.DialWithDialer(dialer, network, address, tlsConfig)
	}
	note := func(event zk.Event) {
		if event.State == zk.StateHasSession {
			select {
			case c.connected <- struct{}{}:
			default:
			}
		}
	}
	c.zk, _, err = zk.Connect(config.Servers, config.Session, zk.WithDialer(dial), zk.WithEventCallback(note), zk.WithLogger(logger{config.Log}), zk.WithLogInfo(false))
	if err != nil {
		cancel()
		return nil, fmt.Errorf("zookeeper: %w", err)
	}
	return c, nil
}

// logger passes the library's remarks on.
type logger struct{ to *slog.Logger }

func (l logger) Printf(format string, values ...any) {
	l.to.Debug(fmt.Sprintf("zookeeper: "+format, values...))
}

func (c *Client) records() string { return c.config.Root + "/records" }
func (c *Client) present() string { return c.config.Root + "/present" }

func (c *Client) record(key string) string { return c.records() + "/" + url.PathEscape(key) }

func revision(stat *zk.Stat) int64 { return int64(stat.Version) + 1 }

// do makes a request, again while there is no server that it could be sent to, and until ctx ends. Before, it makes sure that there are the nodes that
// all others are in.
func do[Result any](ctx context.Context, c *Client, request func() (Result, error)) (Result, error) {
	type answer struct {
		result Result
		err    error
	}
	answers := make(chan answer, 1)
	go func() {
		var got answer
		for again := true; again; again = errors.Is(got.err, zk.ErrNoServer) && ctx.Err() == nil && c.ctx.Err() == nil {
			if got.err = c.prepare(); got.err == nil {
				got.result, got.err = request()
			}
		}
		answers <- got
	}()
	var none Result
	select {
	case got := <-answers:
		if got.err != nil && !errors.Is(got.err, store.ErrConflict) {
			return none, fmt.Errorf("zookeeper: %w", got.err)
		}
		return got.result, got.err
	case <-ctx.Done():
		return none, ctx.Err()
	case <-c.ctx.Done():
		return none, c.ctx.Err()
	}
}

// prepare makes the nodes above records and members.
func (c *Client) prepare() error {
	c.mu.Lock()
	has := c.hasRun
	c.mu.Unlock()
	if has {
		return nil
	}
	for _, path := range []string{c.records(), c.present()} {
		for n := range path {
			if n == 0 || path[n] != '/' {
				continue
			}
			if err := c.makeNode(path[:n]); err != nil {
				return err
			}
		}
		if err := c.makeNode(path); err != nil {
			return err
		}
	}
	c.mu.Lock()
	c.hasRun = true
	c.mu.Unlock()
	return nil
}

func (c *Client) makeNode(path string) error {
	if _, err := c.zk.Create(path, nil, 0, everybody); err != nil && !errors.Is(err, zk.ErrNodeExists) {
		return err
	}
	return nil
}

// Read is Store.Read.
func (c *Client) Read(ctx context.Context) (store.View, error) {
	return do(ctx, c, func() (store.View, error) {
		if _, err := c.zk.Sync(c.config.Root); err != nil { // this server may be behind
			return store.View{}, err
		}
		view := store.View{Records: map[string]store.Record{}, Present: map[string][]byte{}}
		err := c.each(c.records(), func(name string, value []byte, stat *zk.Stat) error {
			key, err := url.PathUnescape(name)
			view.Records[key] = store.Record{Value: value, Revision: revision(stat)}
			return err
		})
		if err == nil {
			err = c.each(c.present(), func(name string, value []byte, _ *zk.Stat) error {
				view.Present[name] = value
				return nil
			})
		}
		return view, err
	})
}

// each calls a function for the nodes in a node, one after the other. They are read at the same time.
func (c *Client) each(in string, see func(name string, value []byte, stat *zk.Stat) error) error {
	names, _, err := c.zk.Children(in)
	if err != nil {
		return err
	}
	const together = 32
	var all sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	turn := make(chan struct{}, together)
	for _, name := range names {
		turn <- struct{}{}
		all.Go(func() {
			value, stat, err := c.zk.Get(in + "/" + name)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				err = see(name, value, stat)
			}
			if err != nil && !errors.Is(err, zk.ErrNoNode) { // a member that has gone meanwhile
				errs = append(errs, err)
			}
			<-turn
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// Write is Store.Write.
func (c *Client) Write(ctx context.Context, puts ...store.Put) error {
	_, err := do(ctx, c, func() (struct{}, error) {
		var operations []any
		for _, put := range puts {
			operations = append(operations, c.operations(put)...)
		}
		_, err := c.zk.Multi(operations...)
		if errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNodeExists) || errors.Is(err, zk.ErrNoNode) {
			err = store.ErrConflict
		}
		return struct{}{}, err
	})
	return err
}

func (c *Client) operations(put store.Put) []any {
	path := c.record(put.Key)
	switch {
	case put.Revision == 0 && put.Value != nil:
		return []any{&zk.CreateRequest{Path: path, Data: put.Value, Acl: everybody}}
	case put.Revision == 0: // that there is no such node
		return []any{&zk.CreateRequest{Path: path, Acl: everybody}, &zk.DeleteRequest{Path: path, Version: -1}}
	case put.Value == nil:
		return []any{&zk.CheckVersionRequest{Path: path, Version: int32(put.Revision - 1)}}
	default:
		return []any{&zk.SetDataRequest{Path: path, Data: put.Value, Version: int32(put.Revision - 1)}}
	}
}

// Present is Store.Present.
func (c *Client) Present(ctx context.Context, member string, says []byte) error {
	c.mu.Lock()
	c.member, c.says = member, bytes.Clone(says)
	c.mu.Unlock()
	c.begin.Do(func() { c.keeper.Go(c.keep) })
	told := make(chan error, 1)
	select {
	case c.tells <- told:
		return <-told
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

// keep makes the member present with each request, and again with each session, as long as the client is open.
func (c *Client) keep() {
	again := make(<-chan time.Time)
	for {
		var told chan error
		select {
		case told = <-c.tells:
		case <-c.connected:
		case <-again:
		case <-c.ctx.Done():
			return
		}
		limited, cancel := context.WithTimeout(c.ctx, 2*time.Second)
		_, err := do(limited, c, func() (struct{}, error) { return struct{}{}, c.tell() })
		cancel()
		if told != nil {
			told <- err
		}
		if err != nil && c.ctx.Err() == nil {
			c.config.Log.Warn("the store may not know that the member is present", "error", err)
			again = time.After(retry)
		}
	}
}

func (c *Client) tell() error {
	c.mu.Lock()
	path, says := c.present()+"/"+c.member, c.says
	c.mu.Unlock()
	value, stat, err := c.zk.Get(path)
	create := &zk.CreateRequest{Path: path, Data: says, Acl: everybody, Flags: zk.FlagEphemeral}
	switch {
	case errors.Is(err, zk.ErrNoNode):
		_, err = c.zk.Multi(create)
	case err != nil:
	case stat.EphemeralOwner != c.zk.SessionID(): // it will end with an earlier session
		_, err = c.zk.Multi(&zk.DeleteRequest{Path: path, Version: stat.Version}, create)
	case !bytes.Equal(value, says):
		_, err = c.zk.Set(path, says, stat.Version)
	}
	return err
}

// Close is Store.Close.
func (c *Client) Close() error {
	c.close.Do(func() {
		c.cancel()
		c.keeper.Wait()
		c.zk.Close()
	})
	return nil
}

func sleep(ctx context.Context, length time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(length):
	}
}

// name returns the last part of a path.
func name(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }
