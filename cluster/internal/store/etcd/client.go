// Package etcd is a store in etcd: a cluster of its own, or servers within the agents' processes.
//
// A record is a key, and its revision is etcd's. A member that is present is a key with a lease.
package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"millrace/control/cluster/internal/store"
)

// Config are a client's settings.
type Config struct {
	Endpoints []string // such as https://10.0.0.1:2379
	Prefix    string   // of all keys, such as /millrace/one/
	TLS       store.TLS
	// Session is how long the client may be silent until its member is not present any more: whole seconds.
	Session time.Duration
	Log     *slog.Logger
}

// Client is a Store.
type Client struct {
	config Config
	etcd   *clientv3.Client   // asks all servers in turn
	each   []*clientv3.Client // one for each server, for watches: else nothing keeps the next one from going to the same server
	ctx    context.Context
	cancel context.CancelFunc
	keeper sync.WaitGroup
	begin  sync.Once
	tells  chan chan error // the keeper tells what the member says

	mu     sync.Mutex
	member string
	says   []byte
}

const (
	records = "records/"
	present = "present/"
	retry   = 200 * time.Millisecond
	answer  = 2 * time.Second        // for requests that nobody has limited
	turn    = 700 * time.Millisecond // for an answer to a request that may be made twice, until another server is asked
	pace    = 500 * time.Millisecond // how often a watch asks its server whether it is there
	silence = 2 * time.Second        // until a watch turns to another server
)

// Open returns a client, which need not have reached the store yet.
func Open(config Config) (*Client, error) {
	tls, err := config.TLS.Config()
	if err != nil {
		return nil, err
	}
	// gRPC asks a connection each 10 s whether its server is there. If the server's machine is silent for a second when it has something to
	// acknowledge, the connection ends at once. A server that hangs is noticed by neither: so requests are made again, of the next server in turn.
	open := func(endpoints ...string) (*clientv3.Client, error) {
		return clientv3.New(clientv3.Config{Endpoints: endpoints, TLS: tls, DialTimeout: time.Second,
			DialKeepAliveTime: 5 * time.Second, DialKeepAliveTimeout: time.Second, Logger: zap.NewNop()})
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &Client{config: config, ctx: ctx, cancel: cancel, tells: make(chan chan error)}
	if c.etcd, err = open(config.Endpoints...); err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	for _, endpoint := range config.Endpoints {
		one, err := open(endpoint)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("etcd: %w", err), c.Close())
		}
		c.each = append(c.each, one)
	}
	return c, nil
}

// Read is Store.Read.
func (c *Client) Read(ctx context.Context) (store.View, error) {
	var view store.View
	err := inTurn(ctx, func(ctx context.Context) (err error) {
		view, _, err = c.read(ctx, c.etcd)
		return err
	})
	return view, err
}

func (c *Client) read(ctx context.Context, from *clientv3.Client) (store.View, int64, error) {
	view := store.View{Records: map[string]store.Record{}, Present: map[string][]byte{}}
	all, err := from.Get(ctx, c.config.Prefix, clientv3.WithPrefix())
	if err != nil {
		return view, 0, fmt.Errorf("etcd: %w", err)
	}
	for _, key := range all.Kvs {
		c.see(view, key)
	}
	return view, all.Header.Revision, nil
}

// inTurn makes a request until it is answered, or ctx ends: each time of another server, as the client takes them in turn.
func inTurn(ctx context.Context, request func(context.Context) error) error {
	for {
		limited, cancel := context.WithTimeout(ctx, turn)
		err := request(limited)
		isLate := err != nil && limited.Err() != nil
		cancel()
		if !isLate || ctx.Err() != nil {
			return err
		}
	}
}

// see takes a key into a view.
func (c *Client) see(view store.View, pair *mvccpb.KeyValue) {
	key := strings.TrimPrefix(string(pair.Key), c.config.Prefix)
	if name, is := strings.CutPrefix(key, records); is {
		view.Records[name] = store.Record{Value: pair.Value, Revision: pair.ModRevision}
	}
	if name, is := strings.CutPrefix(key, present); is {
		view.Present[name] = pair.Value
	}
}

// Watch is Store.Watch.
func (c *Client) Watch(ctx context.Context) <-chan store.View {
	views := make(chan store.View, 1)
	go func() {
		defer close(views)
		for turn := rand.IntN(len(c.each)); ctx.Err() == nil && c.ctx.Err() == nil; turn++ {
			if err := c.watch(ctx, c.each[turn%len(c.each)], views); err != nil && ctx.Err() == nil && c.ctx.Err() == nil {
				c.config.Log.Warn("the watch of the store begins anew", "error", err)
				sleep(ctx, retry)
			}
		}
	}()
	return views
}

// watch reads all of a server, and then follows what changes until the watch ends: etcd may have forgotten changes that are still to come.
func (c *Client) watch(ctx context.Context, server *clientv3.Client, views chan store.View) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.ctx, cancel)()
	limited, cancelRead := context.WithTimeout(ctx, answer)
	view, revision, err := c.read(limited, server)
	cancelRead()
	if err != nil {
		return err
	}
	store.Offer(views, view)
	// A server without a leader does not hear of changes; the watch then goes on at another one. It begins with what has been read: of a watch that
	// begins with a later revision etcd says no progress until there is one.
	required := clientv3.WithRequireLeader(ctx)
	changes := server.Watch(required, c.config.Prefix, clientv3.WithPrefix(), clientv3.WithRev(revision))
	heard, tick := time.Now(), time.NewTicker(pace)
	defer tick.Stop()
	for {
		select {
		case change, isOpen := <-changes:
			if !isOpen {
				return errors.New("the watch has ended")
			}
			if err := change.Err(); err != nil {
				return err
			}
			heard = time.Now()
			if len(change.Events) > 0 { // otherwise the answer that it is there
				view = c.after(view, change)
				store.Offer(views, view)
			}
		case <-tick.C:
			if time.Since(heard) > silence {
				return fmt.Errorf("the watch's server has been silent for %v", silence)
			}
			limited, cancel := context.WithTimeout(required, pace)
			_ = server.RequestProgress(limited)
			cancel()
		}
	}
}

// after returns the view after a change.
func (c *Client) after(view store.View, change clientv3.WatchResponse) store.View {
	view = store.View{Records: maps.Clone(view.Records), Present: maps.Clone(view.Present)}
	for _, event := range change.Events {
		if event.Type == clientv3.EventTypeDelete {
			delete(view.Present, strings.TrimPrefix(string(event.Kv.Key), c.config.Prefix+present))
		} else {
			c.see(view, event.Kv)
		}
	}
	return view
}

// Write is Store.Write.
func (c *Client) Write(ctx context.Context, puts ...store.Put) error {
	var conditions []clientv3.Cmp
	var operations []clientv3.Op
	for _, put := range puts {
		key := c.config.Prefix + records + put.Key
		conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(key), "=", put.Revision))
		if put.Value != nil {
			operations = append(operations, clientv3.OpPut(key, string(put.Value)))
		}
	}
	result, err := c.etcd.Txn(ctx).If(conditions...).Then(operations...).Commit()
	if err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	if !result.Succeeded {
		return store.ErrConflict
	}
	return nil
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

// keep has a session as long as the client is open.
func (c *Client) keep() {
	for c.ctx.Err() == nil {
		if err := c.keepOne(); err != nil && c.ctx.Err() == nil {
			c.config.Log.Warn("the member has no session at the store", "error", err)
			sleep(c.ctx, retry)
		}
	}
}

func (c *Client) keepOne() error {
	lease, err := c.newLease()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- c.keepAlive(ctx, lease) }()
	if err := c.tell(lease); err != nil {
		return err
	}
	for {
		select {
		case told := <-c.tells:
			err := c.tell(lease)
			told <- err
			if errors.Is(err, rpctypes.ErrLeaseNotFound) {
				return err
			}
		case err := <-ended:
			if c.ctx.Err() == nil {
				return err
			}
			return c.revoke(lease)
		case <-c.ctx.Done():
			return c.revoke(lease)
		}
	}
}

func (c *Client) newLease() (clientv3.LeaseID, error) {
	limited, cancel := context.WithTimeout(c.ctx, answer)
	defer cancel()
	var lease *clientv3.LeaseGrantResponse
	err := inTurn(limited, func(ctx context.Context) (err error) {
		lease, err = c.etcd.Grant(ctx, int64(c.config.Session/time.Second))
		return err
	})
	if err != nil {
		return clientv3.NoLease, fmt.Errorf("etcd: %w", err)
	}
	return lease.ID, nil
}

// keepAlive keeps a lease until ctx or the lease ends. It asks several times in a session, whether or not there have been answers: each time
// of another server, so that one that hangs costs nothing.
func (c *Client) keepAlive(ctx context.Context, lease clientv3.LeaseID) error {
	const times = 5
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan error, times+1) // more are not under way at a time
	heard, tick := time.Now(), time.NewTicker(c.config.Session/times)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-answers:
			if errors.Is(err, rpctypes.ErrLeaseNotFound) {
				return errors.New("the session has ended")
			}
			if err == nil {
				heard = time.Now()
			}
		case <-tick.C:
			if time.Since(heard) > c.config.Session {
				return errors.New("the store has not answered for a session")
			}
			go func() {
				limited, cancel := context.WithTimeout(ctx, c.config.Session)
				defer cancel()
				_, err := c.etcd.KeepAliveOnce(limited, lease)
				select {
				case answers <- err:
				case <-ctx.Done():
				}
			}()
		}
	}
}

// revoke ends a lease, so that the member is absent at once.
func (c *Client) revoke(lease clientv3.LeaseID) error {
	limited, cancel := context.WithTimeout(context.Background(), answer)
	defer cancel()
	return inTurn(limited, func(ctx context.Context) error {
		_, err := c.etcd.Revoke(ctx, lease)
		return err
	})
}

// tell makes the member present with what it says. A session that has expired cannot.
func (c *Client) tell(lease clientv3.LeaseID) error {
	c.mu.Lock()
	member, says := c.member, string(c.says)
	c.mu.Unlock()
	limited, cancel := context.WithTimeout(c.ctx, answer)
	defer cancel()
	return inTurn(limited, func(ctx context.Context) error {
		_, err := c.etcd.Put(ctx, c.config.Prefix+present+member, says, clientv3.WithLease(lease))
		return err
	})
}

// Close is Store.Close.
func (c *Client) Close() error {
	c.cancel()
	c.keeper.Wait()
	for _, one := range append(c.each, c.etcd) {
		if err := one.Close(); err != nil && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("etcd: %w", err)
		}
	}
	return nil
}

func sleep(ctx context.Context, time_ time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(time_):
	}
}
