package etcd_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"millrace/control/cluster/internal/store"
	"millrace/control/cluster/internal/store/etcd"
	"millrace/control/cluster/internal/store/storetest"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

const session = 2 * time.Second

// backend is a server within this process, reached by TLS.
type backend struct {
	tls    store.TLS
	server *etcd.Server
}

func (b backend) config(endpoint string) etcd.Config {
	return etcd.Config{Endpoints: []string{endpoint}, Prefix: "/millrace/test/", TLS: b.tls, Session: session, Log: quiet}
}

func (b backend) Open(t *testing.T) (store.Store, storetest.Link) {
	t.Helper()
	to, err := url.Parse(b.server.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	proxy := storetest.NewProxy(t, to.Host)
	client, err := etcd.Open(b.config("https://" + proxy.Address()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client, proxy
}

// Forget compacts the history.
func (b backend) Forget(t *testing.T) {
	t.Helper()
	tls, err := b.tls.Config()
	if err != nil {
		t.Fatal(err)
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{b.server.Endpoint}, TLS: tls, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	got, err := client.Get(t.Context(), "x")
	if err == nil {
		_, err = client.Compact(t.Context(), got.Header.Revision)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (b backend) Expire(*testing.T, store.Store) { time.Sleep(session + time.Second) }

func serve(t *testing.T, tls store.TLS) *etcd.Server {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	peers := "https://" + freeAddress(t)
	server, err := etcd.Serve(ctx, etcd.ServerConfig{Name: "one", Dir: t.TempDir(), Clients: "https://127.0.0.1:0", Peers: peers,
		Cluster: map[string]string{"one": peers}, TLS: tls})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	return server
}

// A server that waits for the others of its cluster ends when it is told to.
func TestServerWaits(t *testing.T) {
	tls := storetest.Certificates(t)
	cluster := map[string]string{"one": "https://" + freeAddress(t), "two": "https://" + freeAddress(t), "three": "https://" + freeAddress(t)}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := etcd.Serve(ctx, etcd.ServerConfig{Name: "one", Dir: t.TempDir(), Clients: "https://127.0.0.1:0", Peers: cluster["one"], Cluster: cluster, TLS: tls})
		ended <- err
	}()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("it serves without the others")
		}
	case <-time.After(20 * time.Second):
		t.Error("it does not end")
	}
}

// A watch goes on while nothing changes: its server says that it is there. It is looked at only once it has ended, so that the text is not read
// while it is written.
func TestQuietWatch(t *testing.T) {
	b := backend{tls: storetest.Certificates(t)}
	b.server = serve(t, b.tls)
	var text bytes.Buffer
	config := b.config(b.server.Endpoint)
	config.Log = slog.New(slog.NewTextHandler(&text, nil))
	client, err := etcd.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for range client.Watch(ctx) { // until it ends
	}
	if text.Len() > 0 {
		t.Error(text.String())
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

func TestStore(t *testing.T) {
	tls := storetest.Certificates(t)
	storetest.Run(t, backend{tls, serve(t, tls)})
}

// A client without a certificate of the authority reads nothing.
func TestStrangers(t *testing.T) {
	b := backend{tls: storetest.Certificates(t)}
	b.server = serve(t, b.tls)
	stranger := storetest.Certificates(t)
	for n, tls := range []store.TLS{stranger, {Cert: stranger.Cert, Key: stranger.Key, CA: b.tls.CA}, {}} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { storetest.Stranger(t, openAs(b, tls)) })
	}
	storetest.Member(t, openAs(b, b.tls))
}

func openAs(b backend, tls store.TLS) func() (store.Store, error) {
	return func() (store.Store, error) {
		config := b.config(b.server.Endpoint)
		config.TLS = tls
		return etcd.Open(config)
	}
}

func TestCluster(t *testing.T) {
	tls := storetest.Certificates(t)
	storetest.RunCluster(t, backend{tls, serve(t, tls)})
}

// serveThree returns three servers of one cluster.
func serveThree(t *testing.T, tls store.TLS) (all []*etcd.Server) {
	t.Helper()
	cluster := map[string]string{}
	for _, name := range []string{"one", "two", "three"} {
		cluster[name] = "https://" + freeAddress(t)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	servers := make(chan *etcd.Server, len(cluster))
	for name, peers := range cluster {
		config := etcd.ServerConfig{Name: name, Dir: t.TempDir(), Clients: "https://127.0.0.1:0", Peers: peers, Cluster: cluster, TLS: tls}
		go func() { // each waits for most of the others
			server, err := etcd.Serve(ctx, config)
			if err != nil {
				t.Error(err)
			}
			servers <- server
		}()
	}
	for range cluster {
		server := <-servers
		if server == nil {
			t.FailNow()
		}
		t.Cleanup(server.Close)
		all = append(all, server)
	}
	return all
}

// One of three servers hangs: its machine still takes what is sent to it. Members stay present, and watches go on.
func TestServerHangs(t *testing.T) {
	tls := storetest.Certificates(t)
	var endpoints []string
	var links []*storetest.Proxy
	for _, server := range serveThree(t, tls) {
		to, err := url.Parse(server.Endpoint)
		if err != nil {
			t.Fatal(err)
		}
		links = append(links, storetest.NewProxy(t, to.Host))
		endpoints = append(endpoints, "https://"+links[len(links)-1].Address())
	}
	config := backend{tls: tls}.config("")
	config.Endpoints, config.Session = endpoints, 4*time.Second // a busy machine may be late
	client, err := etcd.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if err := client.Present(t.Context(), "7.1", []byte("here")); err != nil {
		t.Fatal(err)
	}
	watcher, err := etcd.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	views := watcher.Watch(t.Context())
	for n, link := range links {
		link.Freeze()
		var put store.Put
		for try := 0; ; try++ { // a write may be lost at the server that hangs
			put = store.Put{Key: fmt.Sprintf("%d.%d", n, try), Value: []byte("x")}
			limited, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			err := client.Write(limited, put)
			cancel()
			if err == nil {
				break
			}
		}
		seen := false
		for end := time.After(2 * config.Session); end != nil; {
			select {
			case view := <-views:
				if len(view.Present) != 1 {
					t.Errorf("while server %d hangs, the member is absent", n)
				}
				seen = seen || view.Records[put.Key].Revision != 0
			case <-end:
				end = nil
			}
		}
		if !seen {
			t.Errorf("while server %d hangs, a record is not seen", n)
		}
		link.Heal()
	}
}

// Three servers are one store. It goes on without one of them, and a member whose client was connected to that one stays present.
func TestThreeServers(t *testing.T) {
	tls := storetest.Certificates(t)
	all := serveThree(t, tls)
	var endpoints []string
	for _, server := range all {
		endpoints = append(endpoints, server.Endpoint)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	open := func(endpoints ...string) store.Store {
		config := backend{tls: tls}.config("")
		config.Endpoints, config.Session = endpoints, 5*time.Second
		client, err := etcd.Open(config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		return client
	}
	client, observer := open(endpoints...), open(endpoints[1:]...)
	if err := client.Present(ctx, "7.1", []byte("here")); err != nil {
		t.Fatal(err)
	}
	views := observer.Watch(ctx)
	all[0].Close()
	for n := range 10 {
		key := fmt.Sprint("after", n)
		for ctx.Err() == nil { // the servers may be electing a leader
			limited, cancel := context.WithTimeout(ctx, time.Second)
			err := client.Write(limited, store.Put{Key: key, Value: []byte("x")})
			cancel()
			if err == nil || errors.Is(err, store.ErrConflict) { // an earlier try may have been done
				break
			}
		}
	}
	for view := range views {
		if len(view.Present) != 1 {
			t.Error("the member is not present")
		}
		if len(view.Records) == 10 {
			return
		}
	}
	t.Error("not all records were seen")
}
