package storetest

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Proxy is a Link by TCP.
type Proxy struct {
	to       string
	listener net.Listener

	mu     sync.Mutex
	change *sync.Cond
	state  state
	open   map[net.Conn]bool
}

type state int

const (
	works state = iota
	cut
	frozen
	losesAnswers
)

// NewProxy returns a proxy for an address. It ends with the test.
func NewProxy(t *testing.T, to string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{to: to, listener: listener, open: map[net.Conn]bool{}}
	p.change = sync.NewCond(&p.mu)
	go p.accept()
	t.Cleanup(func() {
		_ = listener.Close()
		p.set(cut)
	})
	return p
}

// Address is where the proxy listens.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Cut is Link.Cut.
func (p *Proxy) Cut() { p.set(cut) }

// Freeze is Link.Freeze.
func (p *Proxy) Freeze() { p.set(frozen) }

// LoseAnswers is Link.LoseAnswers.
func (p *Proxy) LoseAnswers() { p.set(losesAnswers) }

// Heal is Link.Heal.
func (p *Proxy) Heal() { p.set(works) }

func (p *Proxy) set(state state) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = state
	if state == cut {
		for connection := range p.open {
			_ = connection.Close()
		}
	}
	p.change.Broadcast()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.to)
		if err != nil || !p.keep(client, server) {
			_ = client.Close()
			continue
		}
		go p.carry(client, server, false)
		go p.carry(server, client, true)
	}
}

func (p *Proxy) keep(client, server net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == cut {
		_ = server.Close()
		return false
	}
	p.open[client], p.open[server] = true, true
	return true
}

func (p *Proxy) carry(from, to net.Conn, isAnswer bool) {
	defer func() {
		_ = from.Close()
		_ = to.Close()
		p.mu.Lock()
		delete(p.open, from)
		delete(p.open, to)
		p.mu.Unlock()
	}()
	bytes := make([]byte, 64*1024)
	for {
		n, err := from.Read(bytes)
		if n > 0 && p.passes(isAnswer) {
			if _, err := to.Write(bytes[:n]); err != nil {
				return
			}
		}
		if err != nil {
			if err == io.EOF {
				p.passes(isAnswer) // behind what was held back
			}
			return
		}
	}
}

// passes waits while the link is frozen. It returns false if what was read is thrown away.
func (p *Proxy) passes(isAnswer bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.state == frozen {
		p.change.Wait()
	}
	return p.state == works || p.state == losesAnswers && !isAnswer
}
