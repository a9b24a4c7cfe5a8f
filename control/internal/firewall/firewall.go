// Package firewall has the API of one function of millrace, the firewall: its part of the statistics, and its commands.
package firewall

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"millrace/control/internal/api"
)

// Client sends requests to a millrace that has the function firewall. Several goroutines may use it at once.
type Client struct{ *api.Client }

// New returns a client. Each of its requests opens a connection of its own.
func New(socket string) *Client { return &Client{api.New(socket)} }

// Rule has the counters of one rule, or of the default. Refused counts packets that would have begun a connection.
type Rule struct {
	Rule, Action      string
	Gone              bool // no longer configured, but connections live that the rule accepted
	Connections, Live uint64
	Packets, Replies  uint64
	Bytes             uint64
	ReplyBytes        uint64 `json:"reply_bytes"`
	Refused           uint64
	RefusedBytes      uint64 `json:"refused_bytes"`
	Limited           uint64 // packets above the rule's limit
	Logged            uint64 // events in the log
	NotLogged         uint64 `json:"not_logged"` // events above the log's rate
}

// Set is a set with its prefixes. Changed: a command has changed it since the configuration was read.
type Set struct {
	Set      string
	Prefixes []string
	Changed  bool
}

// Rules is GET /firewall/rules: the rules in their order, then the default, then rules that are gone.
func (c *Client) Rules(ctx context.Context) (rules []Rule, err error) {
	err = c.Call(ctx, http.MethodGet, "/firewall/rules", nil, &rules)
	return rules, err
}

// Sets is GET /firewall/sets.
func (c *Client) Sets(ctx context.Context) (sets []Set, err error) {
	err = c.Call(ctx, http.MethodGet, "/firewall/sets", nil, &sets)
	return sets, err
}

// SetChanged is the answer to POST /firewall/set.
type SetChanged struct {
	Prefixes uint64 // that the set has now
	Changed  uint64 // prefixes that are new in the set, and those that it no longer has
	Ended    uint64 // connections that the rules no longer accept
}

// Change is POST /firewall/set. The action is "add", "remove", "replace" or "reset".
func (c *Client) Change(ctx context.Context, set, action string, prefixes []string) (done SetChanged, err error) {
	query := url.Values{"set": {set}, "action": {action}}
	err = c.Send(ctx, "/firewall/set", query, strings.Join(prefixes, "\n"), &done)
	return done, err
}
