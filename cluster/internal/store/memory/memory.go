// Package memory is a store in the memory of a process, for tests and simulations. Clients can be cut off, be delayed, and
// lose answers.
package memory

import (
	"context"
	"maps"
	"sync"

	"millrace/control/cluster/internal/store"
)

// Server is the store. Its methods do not wait, and do nothing by themselves.
type Server struct {
	mu       sync.Mutex
	revision int64
	records  map[string]store.Record
	present  map[string][]byte
	clients  map[*Client]bool
}

// NewServer returns an empty store.
func NewServer() *Server {
	return &Server{records: map[string]store.Record{}, present: map[string][]byte{}, clients: map[*Client]bool{}}
}

// View returns the records and members as they are now.
func (s *Server) View() store.View {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view()
}

func (s *Server) view() store.View {
	return store.View{Records: maps.Clone(s.records), Present: maps.Clone(s.present)}
}

// Write is Store.Write.
func (s *Server) Write(puts ...store.Put) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, put := range puts {
		if s.records[put.Key].Revision != put.Revision {
			return store.ErrConflict
		}
	}
	s.revision++
	for _, put := range puts {
		if put.Value != nil {
			s.records[put.Key] = store.Record{Value: put.Value, Revision: s.revision}
		}
	}
	s.tell()
	return nil
}

// Present makes a member present.
func (s *Server) Present(member string, says []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.present[member] = says
	s.tell()
}

// Lose ends the presence of a member.
func (s *Server) Lose(member string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.present, member)
	s.tell()
}

func (s *Server) tell() {
	for client := range s.clients {
		client.look()
	}
}

// Link is the state of a client's connection.
type Link int

// Links, by what becomes of a client's requests.
const (
	Works        Link = iota
	Cut               // nothing comes through
	Frozen            // requests come through once the link works
	LosesAnswers      // requests come through, and nothing comes back
)

// Client is a Store.
type Client struct {
	server   *Server
	link     Link
	late     []func() // requests that wait in a frozen link
	member   string
	says     []byte
	watchers map[chan store.View]bool
	done     chan struct{}
	close    sync.Once
}

// Open returns a new client.
func (s *Server) Open() *Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &Client{server: s, watchers: map[chan store.View]bool{}, done: make(chan struct{})}
	s.clients[c] = true
	return c
}

// SetLink changes the state of the connection. If it works again, then what was late is done.
func (c *Client) SetLink(link Link) {
	c.server.mu.Lock()
	c.link = link
	var late []func()
	if link == Works {
		late, c.late = c.late, nil
	}
	c.server.mu.Unlock()
	for _, request := range late {
		request()
	}
	if link != Works {
		return
	}
	if c.member != "" {
		c.server.Present(c.member, c.says)
	}
	c.server.mu.Lock()
	c.look()
	c.server.mu.Unlock()
}

// Expire ends the client's session, as a store does that has not heard of it.
func (c *Client) Expire() { c.server.Lose(c.member) }

// look sends the newest view to the client's watches. c.server.mu must be held.
func (c *Client) look() {
	if c.link != Works {
		return
	}
	for to := range c.watchers {
		store.Offer(to, c.server.view())
	}
}

// do makes a request. It waits until ctx ends if there is no answer.
func (c *Client) do(ctx context.Context, request func() error) error {
	c.server.mu.Lock()
	link := c.link
	if link == Frozen {
		c.late = append(c.late, func() { _ = request() })
	}
	c.server.mu.Unlock()
	var err error
	if link == Works || link == LosesAnswers {
		err = request()
	}
	if link != Works {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-c.done:
			return context.Canceled
		}
	}
	return err
}

// Read is Store.Read.
func (c *Client) Read(ctx context.Context) (view store.View, err error) {
	err = c.do(ctx, func() error {
		view = c.server.View()
		return nil
	})
	return view, err
}

// Watch is Store.Watch.
func (c *Client) Watch(ctx context.Context) <-chan store.View {
	views := make(chan store.View, 1)
	c.server.mu.Lock()
	c.watchers[views] = true
	c.look()
	c.server.mu.Unlock()
	go func() {
		select {
		case <-ctx.Done():
		case <-c.done:
		}
		c.server.mu.Lock()
		delete(c.watchers, views)
		c.server.mu.Unlock()
		close(views)
	}()
	return views
}

// Write is Store.Write.
func (c *Client) Write(ctx context.Context, puts ...store.Put) error {
	return c.do(ctx, func() error { return c.server.Write(puts...) })
}

// Present is Store.Present.
func (c *Client) Present(ctx context.Context, member string, says []byte) error {
	c.member, c.says = member, says
	return c.do(ctx, func() error {
		c.server.Present(member, says)
		return nil
	})
}

// Close is Store.Close.
func (c *Client) Close() error {
	c.close.Do(func() {
		close(c.done)
		c.server.mu.Lock()
		delete(c.server.clients, c)
		c.server.mu.Unlock()
		c.server.Lose(c.member)
	})
	return nil
}
