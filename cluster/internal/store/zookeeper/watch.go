package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"strings"

	"github.com/go-zookeeper/zk"

	"millrace/control/cluster/internal/store"
)

// Watch is Store.Watch.
func (c *Client) Watch(ctx context.Context) <-chan store.View {
	views := make(chan store.View, 1)
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(c.ctx, cancel)
	go func() {
		defer cancel()
		defer close(views)
		for ctx.Err() == nil {
			if err := c.watch(ctx, views); err != nil && ctx.Err() == nil {
				c.config.Log.Warn("the watch of the store begins anew", "error", err)
				sleep(ctx, retry)
			}
		}
	}()
	return views
}

// watcher reads nodes, each with a watch, and reads them again when they change. Its watches last for a session.
type watcher struct {
	*Client
	ctx    context.Context
	events chan zk.Event
	nodes  map[string]bool // that are watched
	view   store.View
}

func (c *Client) watch(ctx context.Context, views chan store.View) error {
	ctx, cancel := context.WithCancel(ctx) // ends the watches' goroutines
	defer cancel()
	w := &watcher{c, ctx, make(chan zk.Event), map[string]bool{}, store.View{Records: map[string]store.Record{}, Present: map[string][]byte{}}}
	// With a new session the server may be behind what another one has told.
	_, err := do(ctx, c, func() (string, error) { return c.zk.Sync(c.config.Root) })
	for _, path := range []string{c.records(), c.present()} {
		if err == nil {
			err = w.list(path)
		}
	}
	for err == nil {
		// The view that was sent is not changed any more.
		store.Offer(views, store.View{Records: maps.Clone(w.view.Records), Present: maps.Clone(w.view.Present)})
		select {
		case event := <-w.events:
			err = w.see(event)
		case <-ctx.Done():
			return nil
		}
		for more := true; more && err == nil; { // as many as there are, for one view
			select {
			case event := <-w.events:
				err = w.see(event)
			default:
				more = false
			}
		}
	}
	return err
}

func (w *watcher) see(event zk.Event) error {
	switch {
	case event.Err != nil:
		return event.Err
	case event.Type == zk.EventNotWatching:
		return errors.New("the session has ended")
	case event.Path == w.records() || event.Path == w.present():
		return w.list(event.Path)
	default:
		return w.read(event.Path)
	}
}

func (w *watcher) follow(watch <-chan zk.Event) {
	go func() {
		select {
		case event, ok := <-watch:
			if !ok {
				event = zk.Event{Type: zk.EventNotWatching}
			}
			select {
			case w.events <- event:
			case <-w.ctx.Done():
			}
		case <-w.ctx.Done():
		}
	}()
}

// list reads the nodes in a node that are not watched yet.
func (w *watcher) list(in string) error {
	names, err := until(w, func() ([]string, <-chan zk.Event, error) {
		names, _, watch, err := w.zk.ChildrenW(in)
		return names, watch, err
	})
	if err != nil {
		return err
	}
	for _, name := range names {
		if path := in + "/" + name; !w.nodes[path] {
			if err := w.read(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// read reads a node, and watches it from then on.
func (w *watcher) read(path string) error {
	type node struct {
		value []byte
		stat  *zk.Stat
	}
	is, err := until(w, func() (node, <-chan zk.Event, error) {
		value, stat, watch, err := w.zk.GetW(path)
		return node{value, stat}, watch, err
	})
	if errors.Is(err, zk.ErrNoNode) { // a member has gone
		delete(w.nodes, path)
		delete(w.view.Present, name(path))
		return nil
	}
	if err != nil {
		return err
	}
	w.nodes[path] = true
	if strings.HasPrefix(path, w.present()) {
		w.view.Present[name(path)] = is.value
		return nil
	}
	key, err := url.PathUnescape(name(path))
	if err != nil {
		return fmt.Errorf("node %s is no record: %w", path, err)
	}
	w.view.Records[key] = store.Record{Value: is.value, Revision: revision(is.stat)}
	return nil
}

// until makes a request until it is answered. A session outlives its connection, and so do the watches of other nodes.
func until[Result any](w *watcher, request func() (Result, <-chan zk.Event, error)) (Result, error) {
	for {
		result, watch, err := request()
		if err == nil {
			w.follow(watch)
			return result, nil
		}
		if w.ctx.Err() != nil || !errors.Is(err, zk.ErrConnectionClosed) && !errors.Is(err, zk.ErrNoServer) {
			return result, err
		}
		sleep(w.ctx, retry)
	}
}
