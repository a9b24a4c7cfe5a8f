package zookeeper_test

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"millrace/control/cluster/internal/store"
	"millrace/control/cluster/internal/store/storetest"
	"millrace/control/cluster/internal/store/zookeeper"
)

var quiet = slog.New(slog.NewTextHandler(io.Discard, nil))

const session = 4 * time.Second

// backend is a server of its own, reached by TLS.
type backend struct {
	tls     store.TLS
	address string
}

func (b backend) config(address string) zookeeper.Config {
	return zookeeper.Config{Servers: []string{address}, Root: "/millrace/test", TLS: b.tls, Session: session, Log: quiet}
}

func (b backend) Open(t *testing.T) (store.Store, storetest.Link) {
	t.Helper()
	proxy := storetest.NewProxy(t, b.address)
	client, err := zookeeper.Open(b.config(proxy.Address()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return client, proxy
}

// Forget does nothing: ZooKeeper has no history.
func (b backend) Forget(*testing.T) {}

func (b backend) Expire(*testing.T, store.Store) { time.Sleep(session + 1500*time.Millisecond) }

// jars are those of Debian's package zookeeper. The first one names most of the others that it needs.
const jars = "/usr/share/java/zookeeper.jar"
const moreJars = ":/usr/share/java/netty-codec.jar:/usr/share/java/slf4j-nop.jar"

func serve(t *testing.T) backend {
	t.Helper()
	if _, err := os.Stat(jars); err != nil {
		t.Skipf("no ZooKeeper here (package zookeeper): %v", err)
	}
	java, err := exec.LookPath("java")
	if err != nil {
		t.Skipf("no Java here, which ZooKeeper needs: %v", err)
	}
	dir := t.TempDir()
	tls := storetest.Certificates(t)
	pair := filepath.Join(dir, "pair.pem") // as ZooKeeper wants it: in one file
	if err := os.WriteFile(pair, append(read(t, tls.Key), read(t, tls.Cert)...), 0o600); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "zoo.cfg")
	lines := []string{"tickTime=500", "dataDir=" + dir, "secureClientPortAddress=127.0.0.1", "secureClientPort=" + port, "admin.enableServer=false",
		"serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory", "ssl.clientAuth=need",
		"ssl.keyStore.location=" + pair, "ssl.keyStore.type=PEM", "ssl.trustStore.location=" + tls.CA, "ssl.trustStore.type=PEM"}
	if err := os.WriteFile(config, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	server := exec.Command(java, "-Xmx256m", "-Dzookeeper.jmx.log4j.disable=true", "-cp", jars+moreJars, "org.apache.zookeeper.server.ZooKeeperServerMain", config)
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	server.Stdout, server.Stderr = log, log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		connection, err := net.Dial("tcp", address)
		if err == nil {
			_ = connection.Close()
			return backend{tls, address}
		}
		if time.Now().After(end) {
			t.Fatalf("ZooKeeper does not serve: %v\n%s", err, read(t, log.Name()))
		}
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	bytes, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return bytes
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

func TestStore(t *testing.T) { storetest.Run(t, serve(t)) }

func TestCluster(t *testing.T) { storetest.RunCluster(t, serve(t)) }

// A client without a certificate of the authority reads nothing.
func TestStrangers(t *testing.T) {
	b := serve(t)
	stranger := storetest.Certificates(t)
	for n, tls := range []store.TLS{stranger, {Cert: stranger.Cert, Key: stranger.Key, CA: b.tls.CA}, {}} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { storetest.Stranger(t, openAs(b, tls)) })
	}
	storetest.Member(t, openAs(b, b.tls))
}

func openAs(b backend, tls store.TLS) func() (store.Store, error) {
	return func() (store.Store, error) {
		config := b.config(b.address)
		config.TLS = tls
		return zookeeper.Open(config)
	}
}
