// Package routes announces a member's shards to the switches, by BGP. It watches the links by BFD.
//
// A worker has a link on each side, with an interface of its own. A shard's packets must come to the same worker on all of them, so routes are
// announced only while all links are up. The speaker only connects and never listens, and takes no routes from its neighbours.
//
// GoBGP does not look at the TTL of the BFD packets that it gets. The kernel, or the dataplane before it, must drop those below 255 (RFC 5881, section 5).
package routes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"

	"millrace/cluster/internal/agent"
	"millrace/cluster/internal/records"
)

// Link is a link to a switch.
type Link struct {
	Device      string     // name of the interface
	Local       netip.Addr // address of the interface: where packets are to be sent to
	Neighbor    netip.Addr // of the same family
	NeighborASN uint32
	Password    string // for TCP-MD5 (RFC 2385); empty: none
	// TTLSecurity lets both ends send BGP with a TTL of 255, and take nothing less (RFC 5082). If FRR 8.4 has it ("ttl-security hops 1"), it sends BFD to
	// the port of neighbours that are several hops away, and BFD does not come up.
	TTLSecurity bool
	// Prefixes are the destinations of each shard's packets at this link, of the same family.
	Prefixes map[records.ShardID][]netip.Prefix
}

// Config are a speaker's settings.
type Config struct {
	ASN      uint32 // of all servers: switches compare MEDs only within one
	RouterID netip.Addr
	// Interval is between two BFD packets. A link is down when none has come for Multiplier intervals.
	Interval   time.Duration
	Multiplier int
	Links      []Link
	Log        *slog.Logger
}

// Speaker is agent.Routes.
type Speaker struct {
	config Config
	links  []*link
	stop   context.CancelFunc
	watch  sync.WaitGroup

	mu     sync.Mutex
	routes []agent.Route
	areUp  bool
}

// link is a link with a BGP server of its own, which knows neighbours by their addresses alone.
type link struct {
	Link
	bgp       *server.BgpServer
	announced map[netip.Prefix]agent.Route
}

// Open returns a speaker, which connects to its neighbours by and by.
func Open(ctx context.Context, config Config) (*Speaker, error) {
	s := &Speaker{config: config}
	for _, at := range config.Links {
		link := &link{at, server.NewBgpServer(server.LoggerOption(config.Log, new(slog.LevelVar))), map[netip.Prefix]agent.Route{}}
		go link.bgp.Serve()
		s.links = append(s.links, link)
		if err := s.connect(ctx, link); err != nil {
			s.Close()
			return nil, fmt.Errorf("BGP with %v at %s: %w", at.Neighbor, at.Device, err)
		}
	}
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.watch.Go(func() { s.follow(ctx) })
	return s, nil
}

func (s *Speaker) connect(ctx context.Context, link *link) error {
	if link.Local.Is4() != link.Neighbor.Is4() {
		return fmt.Errorf("the address %v and the neighbour's %v must be of the same family", link.Local, link.Neighbor)
	}
	err := link.bgp.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{Asn: s.config.ASN, RouterId: s.config.RouterID.String(),
		ListenPort: -1, BindToDevice: link.Device}})
	if err != nil {
		return err
	}
	if err := onlyOwn(ctx, link.bgp); err != nil {
		return err
	}
	family := &api.Family{Afi: api.Family_AFI_IP, Safi: api.Family_SAFI_UNICAST}
	if link.Local.Is6() {
		family.Afi = api.Family_AFI_IP6
	}
	interval := uint32(s.config.Interval / time.Microsecond)
	return link.bgp.AddPeer(ctx, &api.AddPeerRequest{Peer: &api.Peer{
		Conf:        &api.PeerConf{NeighborAddress: link.Neighbor.String(), PeerAsn: link.NeighborASN, AuthPassword: link.Password},
		Transport:   &api.Transport{LocalAddress: link.Local.String(), BindInterface: link.Device},
		TtlSecurity: &api.TtlSecurity{Enabled: link.TTLSecurity, TtlMin: 255},
		Timers:      &api.Timers{Config: &api.TimersConfig{ConnectRetry: 1, HoldTime: 3, KeepaliveInterval: 1, IdleHoldTimeAfterReset: 1}},
		AfiSafis:    []*api.AfiSafi{{Config: &api.AfiSafiConfig{Family: family, Enabled: true}}},
		Bfd: &api.BfdPeerConfig{Enabled: true, Port: server.BfdServerPort, DesiredMinimumTxInterval: interval, RequiredMinimumReceive: interval,
			DetectionMultiplier: uint32(s.config.Multiplier)},
	}})
}

// onlyOwn makes a server take no routes but those that it announces itself.
func onlyOwn(ctx context.Context, in *server.BgpServer) error {
	policy := &api.Policy{Name: "own", Statements: []*api.Statement{{Name: "own",
		Conditions: &api.Conditions{RouteType: api.Conditions_ROUTE_TYPE_LOCAL}, Actions: &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT}}}}
	if err := in.AddPolicy(ctx, &api.AddPolicyRequest{Policy: policy}); err != nil {
		return err
	}
	return in.SetPolicyAssignment(ctx, &api.SetPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{Name: "global",
		Direction: api.PolicyDirection_POLICY_DIRECTION_IMPORT, Policies: []*api.Policy{policy}, DefaultAction: api.RouteAction_ROUTE_ACTION_REJECT}})
}

// follow announces routes when all links are up, and withdraws them when one is not.
func (s *Speaker) follow(ctx context.Context) {
	tick := time.NewTicker(s.config.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		areUp := true
		for _, link := range s.links {
			areUp = areUp && link.isUp(ctx)
		}
		s.mu.Lock()
		if areUp != s.areUp {
			s.areUp = areUp
			s.config.Log.Info("links", "up", areUp)
			if err := s.apply(); err != nil {
				s.config.Log.Error("routes", "error", err)
			}
		}
		s.mu.Unlock()
	}
}

// isUp returns true if the session is established and BFD is up. A neighbour's session is reset if BFD does not come up behind it.
func (l *link) isUp(ctx context.Context) (up bool) {
	err := l.bgp.ListPeer(ctx, &api.ListPeerRequest{Address: l.Neighbor.String()}, func(peer *api.Peer) {
		up = peer.State.SessionState == api.PeerState_SESSION_STATE_ESTABLISHED &&
			peer.State.BfdState.GetSessionState() == api.BfdSessionState_BFD_SESSION_STATE_UP
	})
	return up && err == nil
}

// Announce is Routes.Announce.
func (s *Speaker) Announce(_ context.Context, routes []agent.Route) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.routes = slices.Clone(routes)
	return s.apply()
}

// apply tells the neighbours what has changed. s.mu must be held.
func (s *Speaker) apply() error {
	var errs []error
	for _, link := range s.links {
		want := map[netip.Prefix]agent.Route{}
		for _, route := range s.routes {
			for _, prefix := range link.Prefixes[route.Shard] {
				if s.areUp {
					want[prefix] = route
				}
			}
		}
		for prefix, route := range link.announced {
			if _, stays := want[prefix]; !stays {
				errs = append(errs, link.withdraw(s.config.ASN, prefix, route))
			}
		}
		for prefix, route := range want {
			if was, is := link.announced[prefix]; !is || was != route {
				errs = append(errs, link.announce(s.config.ASN, prefix, route))
			}
		}
	}
	return errors.Join(errs...)
}

func (l *link) announce(asn uint32, prefix netip.Prefix, route agent.Route) error {
	path, err := l.path(asn, prefix, route)
	if err != nil {
		return err
	}
	done, err := l.bgp.AddPath(apiutil.AddPathRequest{Paths: []*apiutil.Path{path}})
	if err == nil && len(done) > 0 {
		err = done[0].Error
	}
	if err != nil {
		return fmt.Errorf("route to %v at %s: %w", prefix, l.Device, err)
	}
	l.announced[prefix] = route
	return nil
}

func (l *link) withdraw(asn uint32, prefix netip.Prefix, route agent.Route) error {
	path, err := l.path(asn, prefix, route)
	if err == nil {
		err = l.bgp.DeletePath(apiutil.DeletePathRequest{Paths: []*apiutil.Path{path}})
	}
	if err != nil {
		return fmt.Errorf("withdrawal of the route to %v at %s: %w", prefix, l.Device, err)
	}
	delete(l.announced, prefix)
	return nil
}

// path returns a route as BGP has it. A slave's has a longer path, which makes it second best. Of two masters' routes the one of the
// newer epoch has the smaller MED, which is better.
func (l *link) path(asn uint32, prefix netip.Prefix, route agent.Route) (*apiutil.Path, error) {
	nlri, err := bgp.NewIPAddrPrefix(prefix)
	if err != nil {
		return nil, err
	}
	attributes := []bgp.PathAttributeInterface{bgp.NewPathAttributeOrigin(bgp.BGP_ORIGIN_ATTR_TYPE_IGP),
		bgp.NewPathAttributeMultiExitDisc(^uint32(route.Epoch))}
	if !route.Best {
		attributes = append(attributes, bgp.NewPathAttributeAsPath([]bgp.AsPathParamInterface{
			bgp.NewAs4PathParam(bgp.BGP_ASPATH_ATTR_TYPE_SEQ, []uint32{asn, asn})}))
	}
	family := bgp.RF_IPv4_UC
	if prefix.Addr().Is4() {
		next, err := bgp.NewPathAttributeNextHop(l.Local)
		if err != nil {
			return nil, err
		}
		attributes = append(attributes, next)
	} else {
		family = bgp.RF_IPv6_UC
		reach, err := bgp.NewPathAttributeMpReachNLRI(family, []bgp.PathNLRI{{NLRI: nlri}}, l.Local)
		if err != nil {
			return nil, err
		}
		attributes = append(attributes, reach)
	}
	return &apiutil.Path{Family: family, Nlri: nlri, Attrs: attributes}, nil
}

// Close ends the sessions, and with them the routes.
func (s *Speaker) Close() {
	if s.stop != nil {
		s.stop()
		s.watch.Wait()
	}
	for _, link := range s.links {
		link.bgp.Stop()
	}
}
