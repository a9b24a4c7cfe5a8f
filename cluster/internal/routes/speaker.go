// Package routes announces to the switches that packets may come to this server, by BGP. It watches the links by BFD.
//
// All servers announce the same prefixes at equal cost, so switches spread packets over them. A server that is cut off on one side cannot
// serve what comes on the other one: routes are announced only while each side has a neighbour that is up, and only to those that are. The speaker only
// connects and never listens, and takes no routes from its neighbours.
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
	"strings"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"
)

// Neighbor is a switch at a link.
type Neighbor struct {
	Device   string     // name of the interface
	Local    netip.Addr // address of the interface: where packets are to be sent to
	Address  netip.Addr // of the neighbour, of the same family
	ASN      uint32
	Password string // for TCP-MD5 (RFC 2385); empty: none
	// TTLSecurity lets both ends send BGP with a TTL of 255, and take nothing less (RFC 5082). If FRR 8.4 has it ("ttl-security hops 1"), it sends BFD to
	// the port of neighbours that are several hops away, and BFD does not come up.
	TTLSecurity bool
	Side        string // of neighbours of one side, one must be up; empty is a side, too
	// Prefixes are announced to the neighbour, of the same family.
	Prefixes []netip.Prefix
}

// Config are a speaker's settings.
type Config struct {
	ASN      uint32 // of all servers
	RouterID netip.Addr
	// Interval is between two BFD packets. A link is down when none has come for Multiplier intervals.
	Interval   time.Duration
	Multiplier int
	Neighbors  []Neighbor
	Log        *slog.Logger
}

// Speaker is agent.Routes.
type Speaker struct {
	config  Config
	links   []*link
	stop    context.CancelFunc
	watch   sync.WaitGroup
	changed chan struct{} // a session may have
	noted   chan struct{} // for Changed

	mu   sync.Mutex
	isOn bool
	down []string // sides without a neighbour that is up, in words
	said string   // why not all neighbours have been told, as last logged
}

// link is a link with a BGP server of its own, which knows neighbours by their addresses alone.
type link struct {
	Neighbor
	bgp         *server.BgpServer
	session     session
	isUp        bool
	isAnnounced bool // as last told
	isUnsure    bool // some of that has failed: it must be told again
}

// session is what a link needs of its BGP server once the neighbour is there. Tests have one that fails.
type session interface {
	ListPeer(context.Context, *api.ListPeerRequest, func(*api.Peer)) error
	AddPath(apiutil.AddPathRequest) ([]apiutil.AddPathResponse, error)
	DeletePath(apiutil.DeletePathRequest) error
}

// Open returns a speaker, which connects to its neighbours by and by.
func Open(ctx context.Context, config Config) (*Speaker, error) {
	s := &Speaker{config: config, changed: make(chan struct{}, 1), noted: make(chan struct{}, 1)}
	for _, at := range config.Neighbors {
		link := &link{Neighbor: at, bgp: server.NewBgpServer(server.LoggerOption(config.Log, new(slog.LevelVar)))}
		link.session = link.bgp
		go link.bgp.Serve()
		s.links = append(s.links, link)
		if err := s.connect(ctx, link); err != nil {
			s.Close()
			return nil, fmt.Errorf("BGP with %v at %s: %w", at.Address, at.Device, err)
		}
	}
	s.note()
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	for _, link := range s.links {
		if err := link.bgp.WatchEvent(ctx, server.WatchEventMessageCallbacks{OnPeerUpdate: s.wake}, server.WatchPeer()); err != nil {
			s.Close()
			return nil, fmt.Errorf("BGP with %v at %s: %w", link.Address, link.Device, err)
		}
	}
	s.watch.Go(func() { s.follow(ctx) })
	return s, nil
}

func (s *Speaker) wake(*apiutil.WatchEventMessage_PeerEvent, time.Time) { tell(s.changed) }

// tell puts a value into a channel that has room for one.
func tell(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

func (s *Speaker) connect(ctx context.Context, link *link) error {
	if link.Local.Is4() != link.Address.Is4() {
		return fmt.Errorf("the address %v and the neighbour's %v must be of the same family", link.Local, link.Address)
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
		Conf:        &api.PeerConf{NeighborAddress: link.Address.String(), PeerAsn: link.ASN, AuthPassword: link.Password},
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

// follow watches the links: at each change of a session, since the routes of other links may end with it, and all the time, since BFD that comes up is no such change.
func (s *Speaker) follow(ctx context.Context) {
	tick := time.NewTicker(s.config.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-s.changed:
		}
		s.look(ctx)
	}
}

// look notes which links are up, and tells the neighbours what has changed, and what they could not be told before.
func (s *Speaker) look(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed, unsure := false, false
	for _, link := range s.links {
		if up := link.looksUp(ctx); up != link.isUp {
			s.config.Log.Info("link", "neighbor", link.Address, "device", link.Device, "up", up)
			link.isUp, changed = up, true
		}
		unsure = unsure || link.isUnsure
	}
	if changed {
		s.note()
		tell(s.noted)
	}
	if !changed && !unsure {
		return
	}
	failure := ""
	if err := s.apply(); err != nil {
		failure = err.Error()
	}
	if failure != "" && failure != s.said {
		s.config.Log.Error("routes, which are tried again", "error", failure)
	}
	s.said = failure
}

// looksUp returns true if the session is established and BFD is up. A neighbour's session is reset if BFD does not come up behind it.
func (l *link) looksUp(ctx context.Context) (up bool) {
	err := l.session.ListPeer(ctx, &api.ListPeerRequest{Address: l.Address.String()}, func(peer *api.Peer) {
		up = peer.State.SessionState == api.PeerState_SESSION_STATE_ESTABLISHED &&
			peer.State.BfdState.GetSessionState() == api.BfdSessionState_BFD_SESSION_STATE_UP
	})
	return up && err == nil
}

// note notes which sides are down.
func (s *Speaker) note() {
	neighbors := map[string][]string{}
	isUp := map[string]bool{}
	for _, link := range s.links {
		neighbors[link.Side] = append(neighbors[link.Side], link.Address.String())
		isUp[link.Side] = isUp[link.Side] || link.isUp
	}
	s.down = nil
	for side, of := range neighbors {
		if !isUp[side] {
			s.down = append(s.down, "no BGP and BFD with "+strings.Join(of, ", "))
		}
	}
	slices.Sort(s.down)
}

// Announce is Routes.Announce.
func (s *Speaker) Announce(_ context.Context, isOn bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isOn = isOn
	return s.apply()
}

// Trouble is Routes.Trouble.
func (s *Speaker) Trouble() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.down, "; ")
}

// Changed is Routes.Changed.
func (s *Speaker) Changed() <-chan struct{} { return s.noted }

// apply tells the neighbours what has changed, or failed before. s.mu must be held.
func (s *Speaker) apply() error {
	var errs []error
	for _, link := range s.links {
		if want := s.isOn && len(s.down) == 0 && link.isUp; want != link.isAnnounced || link.isUnsure {
			link.isAnnounced, link.isUnsure = want, false
			for _, prefix := range link.Prefixes {
				if err := link.tell(prefix, want); err != nil {
					link.isUnsure = true
					errs = append(errs, fmt.Errorf("route to %v at %s: %w", prefix, link.Device, err))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// tell announces a route, or withdraws it.
func (l *link) tell(prefix netip.Prefix, isOn bool) error {
	path, err := l.path(prefix)
	if err != nil {
		return err
	}
	if !isOn {
		return l.session.DeletePath(apiutil.DeletePathRequest{Paths: []*apiutil.Path{path}})
	}
	done, err := l.session.AddPath(apiutil.AddPathRequest{Paths: []*apiutil.Path{path}})
	if err == nil && len(done) > 0 {
		err = done[0].Error
	}
	return err
}

// path returns a route as BGP has it.
func (l *link) path(prefix netip.Prefix) (*apiutil.Path, error) {
	nlri, err := bgp.NewIPAddrPrefix(prefix)
	if err != nil {
		return nil, err
	}
	family, next := bgp.RF_IPv4_UC, bgp.PathAttributeInterface(nil)
	if prefix.Addr().Is4() {
		next, err = bgp.NewPathAttributeNextHop(l.Local)
	} else {
		family = bgp.RF_IPv6_UC
		next, err = bgp.NewPathAttributeMpReachNLRI(family, []bgp.PathNLRI{{NLRI: nlri}}, l.Local)
	}
	if err != nil {
		return nil, err
	}
	origin := bgp.NewPathAttributeOrigin(bgp.BGP_ORIGIN_ATTR_TYPE_IGP)
	return &apiutil.Path{Family: family, Nlri: nlri, Attrs: []bgp.PathAttributeInterface{origin, next}}, nil
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
