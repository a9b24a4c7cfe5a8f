package routes

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/netip"
	"slices"
	"testing"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
)

// refuser is a session that is up, or not, and refuses what it is told.
type refuser struct {
	isUp, refuses bool
	told          []string // what it has not refused
}

func (r *refuser) ListPeer(_ context.Context, _ *api.ListPeerRequest, do func(*api.Peer)) error {
	if r.isUp {
		do(&api.Peer{State: &api.PeerState{SessionState: api.PeerState_SESSION_STATE_ESTABLISHED,
			BfdState: &api.BfdPeerState{SessionState: api.BfdSessionState_BFD_SESSION_STATE_UP}}})
	}
	return nil
}

func (r *refuser) tell(what string) error {
	if r.refuses {
		return errors.New("refused")
	}
	r.told = append(r.told, what)
	return nil
}

func (r *refuser) AddPath(apiutil.AddPathRequest) ([]apiutil.AddPathResponse, error) {
	return nil, r.tell("announced")
}

func (r *refuser) DeletePath(apiutil.DeletePathRequest) error { return r.tell("withdrawn") }

// An announcement, or a withdrawal, that has failed is tried again until the neighbour has been told.
func TestToldAgain(t *testing.T) {
	to := &refuser{isUp: true}
	address := netip.MustParseAddr("10.1.1.1")
	s := &Speaker{config: Config{Log: slog.New(slog.NewTextHandler(io.Discard, nil))}, noted: make(chan struct{}, 1), links: []*link{{session: to,
		Neighbor: Neighbor{Local: netip.MustParseAddr("10.1.1.2"), Address: address, Prefixes: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/26")}}}}}
	if err := s.Announce(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	expect := func(what string, told ...string) {
		t.Helper()
		for range 3 {
			s.look(t.Context())
		}
		if !slices.Equal(to.told, told) {
			t.Errorf("%s: %v instead of %v", what, to.told, told)
		}
		to.told = nil
	}
	to.refuses = true
	expect("while the announcement fails")
	to.refuses = false
	expect("after the announcement has failed", "announced")
	to.refuses, to.isUp = true, false
	expect("while the withdrawal fails")
	to.refuses = false
	expect("after the withdrawal has failed", "withdrawn")
}
