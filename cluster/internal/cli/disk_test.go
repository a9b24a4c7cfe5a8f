package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"millrace/control/cluster/internal/cli"
	"millrace/control/cluster/internal/dataplane/dataplanetest"
	"millrace/control/cluster/internal/store"
	"millrace/control/cluster/internal/store/etcd"
)

// An agent whose etcd has no room on its disk any more says so, and ends with status 3, so that it is started anew. Its millrace goes on.
func TestDiskIsFull(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=200m"); err != nil {
		t.Skipf("no file system for this test alone: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	plane := dataplanetest.New(t, 1)
	clients, peers, file := "http://"+free(t, "127.0.0.1"), "http://"+free(t, "127.0.0.1"), filepath.Join(dir, "agent.toml")
	text := fmt.Sprintf("name = \"one\"\nsocket = %q\n[store]\netcd = [%q]\n[etcd]\ndir = %q\nclients = %q\ncluster = { one = %q }\n",
		plane.Socket, clients, filepath.Join(dir, "etcd"), clients, peers)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	var said bytes.Buffer
	status := make(chan int, 1)
	go func() { status <- cli.Run(ctx, []string{"agent", "--config", file}, io.Discard, &said) }()
	for ; plane.HasNothing() && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
	}
	fill, err := os.Create(filepath.Join(dir, "fill"))
	if err != nil {
		t.Fatal(err)
	}
	defer fill.Close()
	for piece := make([]byte, 1<<16); err == nil; {
		_, err = fill.Write(piece)
	}
	client, err := etcd.Open(etcd.Config{Endpoints: []string{clients}, Prefix: "/x/", Session: time.Second, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for n := 0; ctx.Err() == nil && len(status) == 0; n++ {
		limited, cancel := context.WithTimeout(ctx, time.Second)
		_ = client.Write(limited, store.Put{Key: fmt.Sprint(n), Value: bytes.Repeat([]byte("x"), 1<<18)})
		cancel()
	}
	if is := <-status; is != 3 {
		t.Errorf("the agent ends with %d", is)
	}
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "millctl: this server's etcd does not run: ") || !strings.Contains(last, "no space left on device") {
		t.Errorf("it says %q", last)
	}
	if plane.HasNothing() {
		t.Error("its millrace has given everything up")
	}
}
