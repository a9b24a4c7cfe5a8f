package etcd

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

func serveIn(t *testing.T, dir string) *Server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	peers := "http://" + listener.Addr().String()
	listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	server, err := Serve(ctx, ServerConfig{Name: "one", Dir: dir, Clients: "http://127.0.0.1:0", Peers: peers, Cluster: map[string]string{"one": peers}})
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// expectEnd waits until the server has ended, and says why. Then Close does not wait for it.
func expectEnd(t *testing.T, server *Server, why string) {
	t.Helper()
	select {
	case reason := <-server.Ended:
		if text := reason.Error(); !strings.Contains(text, why) || strings.Contains(text, "\n") {
			t.Errorf("it has ended: %q", text)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("nobody says that the server has ended")
	}
	server.Close()
}

func TestServerStops(t *testing.T) {
	server := serveIn(t, t.TempDir())
	server.etcd.Server.Stop()
	expectEnd(t, server, "its server has stopped")
}

func TestServerIsClosed(t *testing.T) {
	server := serveIn(t, t.TempDir())
	server.Close()
	select {
	case reason := <-server.Ended:
		t.Errorf("a server that was closed has ended: %v", reason)
	case <-time.After(100 * time.Millisecond):
	}
}

// Another process has the data open, such as an agent that hangs: Serve ends with its context.
func TestDataIsLocked(t *testing.T) {
	dir, err := os.MkdirTemp("", "etcd") // the start goes on behind the test
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.MkdirAll(filepath.Join(dir, "member", "snap"), 0o700); err != nil {
		t.Fatal(err)
	}
	file, err := syscall.Open(filepath.Join(dir, "member", "snap", "db"), syscall.O_RDWR|syscall.O_CREAT|syscall.O_CLOEXEC, 0o600)
	if err == nil {
		err = syscall.Flock(file, syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		const peers = "http://127.0.0.1:0"
		_, err := Serve(ctx, ServerConfig{Name: "one", Dir: dir, Clients: "http://127.0.0.1:0", Peers: peers, Cluster: map[string]string{"one": peers}})
		ended <- err
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it ends: %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it does not end")
	}
}

// Without a hook etcd would end this process, without a word.
func TestDiskIsFull(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=200m"); err != nil {
		t.Skipf("no file system for this test alone: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	server := serveIn(t, filepath.Join(dir, "etcd"))
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Endpoint}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	fill, err := os.Create(filepath.Join(dir, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	for piece := make([]byte, 1<<16); err == nil; {
		_, err = fill.Write(piece)
	}
	fill.Close()
	go func() {
		for t.Context().Err() == nil {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, _ = client.Put(ctx, "x", strings.Repeat("x", 1<<18))
			cancel()
		}
	}()
	expectEnd(t, server, "no space left on device")
}
