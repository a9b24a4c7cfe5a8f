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
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop()) // errors come to the caller, too
	if config.TLS != (store.TLS{}) {
		c.ClientTLSInfo = transport.TLSInfo{CertFile: config.TLS.Cert, KeyFile: config.TLS.Key, TrustedCAFile: config.TLS.CA, ClientCertAuth: true}
		c.PeerTLSInfo = c.ClientTLSInfo
		// A server with several addresses may connect from another one than its certificate has; etcd would refuse it, silently.
		c.PeerTLSInfo.SkipClientSANVerify = true
	}
	started, err := embed.StartEtcd(c)
	if err != nil {
		return nil, fmt.Errorf("etcd cannot start in %s: %w", config.Dir, err)
	}
	select {
	case <-started.Server.ReadyNotify():
		endpoint := *clients
		endpoint.Host = started.Clients[0].Addr().String()
		return &Server{started, endpoint.String()}, nil
	case err = <-started.Err():
	case <-ctx.Done():
		err = fmt.Errorf("most of its cluster is not there: %w", ctx.Err())
	}
	// Close alone waits for ever for the server of clients if etcd was never ready.
	closed := make(chan struct{})
	go func() {
		started.Server.HardStop()
		started.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(5 * time.Second):
	}
	return nil, errors.Join(fmt.Errorf("etcd in %s does not get ready", config.Dir), err)
}

// Close ends the server. If it leads its cluster, another one does first.
func (s *Server) Close() {
	select {
	case <-s.etcd.Server.StopNotify():
	default:
		s.etcd.Close()
	}
	select {
	case <-s.etcd.Server.StopNotify():
	case <-time.After(5 * time.Second):
	}
}
