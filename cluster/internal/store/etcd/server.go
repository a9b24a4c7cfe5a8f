package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"millrace/control/cluster/internal/store"
)

// ServerConfig are the settings of a server within this process.
type ServerConfig struct {
	Name    string
	Dir     string // of its data
	Clients string // URL at which it serves clients; port 0 is any free one
	Peers   string // URL at which other servers reach it
	// Cluster are the URLs for peers of all servers that begin a cluster together, by name, this one included.
	Cluster map[string]string
	Joins   bool // the cluster is there already, and knows of this server
	TLS     store.TLS
}

// Server is a server of etcd within this process.
type Server struct {
	etcd *embed.Etcd
	// Endpoint is the URL at which it serves clients.
	Endpoint string
	// Ended gets the reason if the server ends without Close, such as a full disk.
	Ended <-chan error

	died    death
	closing context.Context
	close   context.CancelFunc
}

// patience is how long a server is waited for that is closed.
const patience = 5 * time.Second

// death gets the reason for which etcd would end the process. The goroutine that says so goes no further, and may hold locks for ever: nothing of that
// server can be closed any more.
type death chan error

// OnWrite is zapcore.CheckWriteHook: etcd ends a process by a message of the level Fatal, or Panic.
func (d death) OnWrite(entry *zapcore.CheckedEntry, fields []zapcore.Field) {
	reason := errors.New(entry.Message)
	for _, field := range fields {
		if err, is := field.Interface.(error); is {
			reason = fmt.Errorf("%w: %w", reason, err)
		}
	}
	select {
	case d <- reason:
	default: // there is a reason already
	}
	select {}
}

// Serve starts a server, and waits until it can serve: until most of its cluster is there.
func Serve(ctx context.Context, config ServerConfig) (*Server, error) {
	clients, err := url.Parse(config.Clients)
	if err != nil {
		return nil, fmt.Errorf("URL for etcd's clients: %w", err)
	}
	peers, err := url.Parse(config.Peers)
	if err != nil {
		return nil, fmt.Errorf("URL for etcd's peers: %w", err)
	}
	c := embed.NewConfig()
	c.Name, c.Dir = config.Name, config.Dir
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{*clients}, []url.URL{*clients}
	c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{*peers}, []url.URL{*peers}
	c.InitialCluster = ""
	for name, at := range config.Cluster {
		c.InitialCluster += "," + name + "=" + at
	}
	if c.InitialCluster != "" {
		c.InitialCluster = c.InitialCluster[1:]
	}
	if config.Joins {
		c.ClusterState = embed.ClusterStateFlagExisting
	}
	// Nobody reads old revisions.
	c.AutoCompactionMode, c.AutoCompactionRetention = embed.CompactorModeRevision, "1000"
	died := make(death, 1)
	// Other errors come to the caller, too.
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop().WithOptions(zap.WithFatalHook(died), zap.WithPanicHook(died)))
	if config.TLS != (store.TLS{}) {
		c.ClientTLSInfo = transport.TLSInfo{CertFile: config.TLS.Cert, KeyFile: config.TLS.Key, TrustedCAFile: config.TLS.CA, ClientCertAuth: true}
		c.PeerTLSInfo = c.ClientTLSInfo
		// A server with several addresses may connect from another one than its certificate has; etcd would refuse it, silently.
		c.PeerTLSInfo.SkipClientSANVerify = true
	}
	started, err := start(ctx, c, died)
	if err != nil {
		return nil, fmt.Errorf("etcd cannot start in %s: %w", config.Dir, err)
	}
	select {
	case <-started.Server.ReadyNotify():
		endpoint := *clients
		endpoint.Host = started.Clients[0].Addr().String()
		ended := make(chan error, 1)
		s := &Server{etcd: started, Endpoint: endpoint.String(), Ended: ended, died: died}
		s.closing, s.close = context.WithCancel(context.WithoutCancel(ctx))
		go s.watch(config.Dir, ended)
		return s, nil
	case err := <-died:
		return nil, fmt.Errorf("etcd in %s does not get ready: %w", config.Dir, err)
	case err = <-started.Err():
	case <-ctx.Done():
		err = fmt.Errorf("most of its cluster is not there: %w", ctx.Err())
	}
	within(patience, func() { hardStop(started) })
	return nil, fmt.Errorf("etcd in %s does not get ready: %w", config.Dir, err)
}

// hardStop ends a server that was never ready: Close alone waits for ever for the part of it that serves clients.
func hardStop(started *embed.Etcd) {
	started.Server.HardStop()
	started.Close()
}

// within does something, and waits no longer than that for it.
func within(length time.Duration, do func()) {
	done := make(chan struct{})
	go func() {
		do()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(length):
	}
}

// start starts etcd, and waits no longer for it than until ctx ends: etcd itself waits without a limit while another process has its data open.
func start(ctx context.Context, c *embed.Config, died death) (*embed.Etcd, error) {
	type result struct {
		etcd *embed.Etcd
		err  error
	}
	started := make(chan result, 1)
	go func() {
		etcd, err := embed.StartEtcd(c)
		started <- result{etcd, err}
	}()
	select {
	case is := <-started:
		return is.etcd, is.err
	case err := <-died:
		return nil, err
	case <-ctx.Done():
		go func() {
			if is := <-started; is.etcd != nil {
				hardStop(is.etcd)
			}
		}()
		return nil, ctx.Err()
	}
}

// watch waits until the server ends by itself.
func (s *Server) watch(dir string, ended chan<- error) {
	var reason error
	select {
	case <-s.closing.Done():
		return
	case reason = <-s.died:
		select {
		case s.died <- reason: // for Close
		default: // there is another one
		}
	case reason = <-s.etcd.Err():
	case <-s.etcd.Server.StopNotify():
		reason = errors.New("its server has stopped: has it been removed from its cluster?")
	}
	if s.closing.Err() == nil {
		ended <- fmt.Errorf("etcd in %s has ended: %w", dir, reason)
	}
}

// Close ends the server. If it leads its cluster, another one does first.
func (s *Server) Close() {
	s.close()
	if len(s.died) > 0 {
		return
	}
	select {
	case <-s.etcd.Server.StopNotify():
	default:
		within(2*patience, s.etcd.Close) // it hands its leadership over, and etcd may die meanwhile
	}
	select {
	case <-s.etcd.Server.StopNotify():
	case <-time.After(patience):
	}
}
