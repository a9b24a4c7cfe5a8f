// Package apitest stands in for millrace: a server at a real Unix socket, for tests.
package apitest

import (
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Server answers what the test has said, and remembers what it was asked.
type Server struct {
	Socket string

	mutex   sync.Mutex
	answers map[string]http.HandlerFunc
	asked   []Request
}

// Request is one that came: "GET /stats", and its query; Raw is that as it came.
type Request struct {
	What  string
	Query url.Values
	Raw   string
}

// New starts a server that refuses everything with 404.
func New(t testing.TB) *Server {
	t.Helper()
	// t.TempDir may have a longer path than a socket can.
	folder, err := os.MkdirTemp("", "millctl")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Socket: filepath.Join(folder, "s"), answers: map[string]http.HandlerFunc{}}
	s.Listen(t)
	t.Cleanup(func() { os.RemoveAll(folder) })
	return s
}

// Listen starts it (again, after its stop was called), and answers what stops it.
func (s *Server) Listen(t testing.TB) (stop func()) {
	t.Helper()
	listener, err := net.Listen("unix", s.Socket)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(s)
	server.Listener.Close()
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	return server.Close
}

// On says what a request is answered; "GET /stats" is one.
func (s *Server) On(what string, answer http.HandlerFunc) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.answers[what] = answer
}

// Text answers with that status and body.
func Text(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		w.Write([]byte(body))
	}
}

// Asked is all requests that came so far.
func (s *Server) Asked() []Request {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return append([]Request(nil), s.asked...)
}

// ServeHTTP answers, and remembers.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	what := r.Method + " " + r.URL.Path
	s.mutex.Lock()
	s.asked = append(s.asked, Request{what, r.URL.Query(), r.URL.RawQuery})
	answer := s.answers[what]
	s.mutex.Unlock()
	if answer == nil {
		answer = Text(http.StatusNotFound, `{"error": "no such thing: `+what+`"}`)
	}
	answer(w, r)
}
