// Package nat has the API of one function of millrace, NAT: its part of the statistics, and its commands.
package nat

import (
	"context"
	"net/http"
	"net/url"

	"millrace/control/internal/api"
)

// Client sends requests to a millrace that has the function NAT. Several goroutines may use it at once.
type Client struct{ *api.Client }

// New returns a client. Each of its requests opens a connection of its own.
func New(socket string) *Client { return &Client{api.New(socket)} }

// Pool has the numbers of one pool.
type Pool struct {
	Pool                string
	Addresses, Blocks   uint64
	Held, Resting       uint64 // blocks that customers have, and of these, those without a mapping
	MostHeld            uint64 `json:"most_held"`    // high-water mark of Held
	FreePorts           uint64 `json:"free_ports"`   // of blocks without a mapping
	NearlyEmpty         bool   `json:"nearly_empty"` // an alarm
	Customers, Sessions uint64
	Mappings            uint64
	NoPort              uint64      `json:"no_port"`    // sessions refused, as no port was free
	OverLimit           uint64      `json:"over_limit"` // sessions refused, as their customer has as many as he may have
	NoRecord            uint64      `json:"no_record"`  // sessions refused, as the log could not record a block
	Nearest             []NearLimit // the nearest first; only of GET /nat/pools
}

// NearLimit is a customer near to a limit of his pool.
type NearLimit struct {
	Customer string
	Blocks   uint64
	Ports    uint64 // of the protocol of which he uses the most
	Sessions uint64
	Percent  uint64 // of the sessions, or of the ports, that he may have
}

// Block is a port block that a customer has.
type Block struct {
	Pool, Address string
	FirstPort     uint16 `json:"first_port"`
	LastPort      uint16 `json:"last_port"`
	Mappings      uint64
	Sessions      uint64 // of the customer, in all of his blocks of the pool
	MostSessions  uint64 `json:"most_sessions"` // that he may have; 0 if the pool is gone
	MostBlocks    uint64 `json:"most_blocks"`
}

// Range is what a deterministic pool gives a customer.
type Range struct {
	Pool, Address string
	FirstPort     uint16 `json:"first_port"`
	LastPort      uint16 `json:"last_port"`
}

// Forward is a public end, "198.51.100.1:8443/tcp", or a whole address, "198.51.100.1", that is the inside end's for good.
type Forward struct {
	Public, Inside string
}

// Customer is what a customer has.
type Customer struct {
	Customer string // his name
	Ranges   []Range
	Blocks   []Block
	Forwards []Forward
}

// Log is one place where the log of port blocks is written: a file, or a collector.
type Log struct {
	To            string
	Written, Lost uint64  // records
	FailingSince  *string `json:"failing_since"` // nil while it can be written
	Error         *string
}

// Pools is GET /nat/pools.
func (c *Client) Pools(ctx context.Context) (pools []Pool, err error) {
	err = c.Call(ctx, http.MethodGet, "/nat/pools", nil, &pools)
	return pools, err
}

// Log is GET /nat/log: the places where the log of port blocks is written; none if there is no log.
func (c *Client) Log(ctx context.Context) (places []Log, err error) {
	err = c.Call(ctx, http.MethodGet, "/nat/log", nil, &places)
	return places, err
}

// Customer is GET /nat/customer: what the customer with that address or name has.
func (c *Client) Customer(ctx context.Context, customer string) (is Customer, err error) {
	err = c.Call(ctx, http.MethodGet, "/nat/customer", url.Values{"customer": {customer}}, &is)
	return is, err
}
