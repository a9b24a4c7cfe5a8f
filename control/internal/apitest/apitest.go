// Package apitest is a server for tests that stands in for millrace, at a real Unix socket.
package apitest

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Server gives the answers that the test has set, and records the requests.
type Server struct {
	Socket string

	mutex   sync.Mutex
	answers map[string]http.HandlerFunc
	asked   []Request
}

// Request is a recorded request: What is "GET /stats", Raw is the query as received, Query the decoded query, Body what
// follows the headers.
type Request struct {
	What  string
	Query url.Values
	Raw   string
	Body  string
}

// New starts a server that answers all requests with 404.
func New(t testing.TB) *Server {
	t.Helper()
	// The path of t.TempDir may be longer than a socket's path can be.
	folder, err := os.MkdirTemp("", "millctl")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{Socket: filepath.Join(folder, "s"), answers: map[string]http.HandlerFunc{}}
	s.Listen(t)
	t.Cleanup(func() { os.RemoveAll(folder) })
	return s
}

// Listen starts the server, and returns a function that stops it. After a stop, Listen may be called again.
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

// On sets the answer to a request such as "GET /stats".
func (s *Server) On(what string, answer http.HandlerFunc) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.answers[what] = answer
}

// Text returns a handler that answers with that status and body.
func Text(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		w.Write([]byte(body))
	}
}

// Asked returns all requests so far.
func (s *Server) Asked() []Request {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return append([]Request(nil), s.asked...)
}

// ServeHTTP records a request and answers it.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	what := r.Method + " " + r.URL.Path
	body, _ := io.ReadAll(r.Body)
	s.mutex.Lock()
	s.asked = append(s.asked, Request{what, r.URL.Query(), r.URL.RawQuery, string(body)})
	answer := s.answers[what]
	s.mutex.Unlock()
	if answer == nil {
		answer = Text(http.StatusNotFound, `{"error": "no such thing: `+what+`"}`)
	}
	answer(w, r)
}
