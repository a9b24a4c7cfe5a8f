// Package balance has the API of one function of millrace, the load balancer: its part of the statistics, its services,
// and its commands. The API that all functions share is in package api.
package balance

import (
	"net/netip"

	"millrace/control/internal/api"
)

// Stats is the answer to GET /stats, with the load balancer's part.
type Stats struct {
	api.Stats
	Services []ServiceStats
	Backends []BackendStats
}

// ServiceStats has the counters of one service. MaxConnections is nil if it has no limit.
type ServiceStats struct {
	Service, Scheduler, Forward  string
	Draining                     bool
	Established                  uint64
	MaxConnections               *uint64 `json:"max_connections"`
	Limited, Refused, Collisions uint64
	Stateless                    uint64
}

// BackendStats has the counters of one backend of one service. Established counts the live connections that were proved
// to be real and that neither side has ended.
type BackendStats struct {
	Address, Service  string
	Weight            uint64
	Draining          bool
	Packets, Replies  uint64
	Bytes             uint64
	ReplyBytes        uint64 `json:"reply_bytes"`
	Connections, Live uint64
	Established       uint64
}

// Service is an element of GET /services: its configuration, with the marks that POST /drain and POST /health have set.
type Service struct {
	Service  string
	Address  string
	Port     uint16
	Protocol string
	Health   *Health
	Backends []Backend
}

// Health describes how a service's backends are checked. Port is 0, and Host empty, if they are not configured.
type Health struct {
	Check      string
	Path       string
	Host       string
	Port       uint16
	IntervalMs int64 `json:"interval_ms"`
	TimeoutMs  int64 `json:"timeout_ms"`
	Rise, Fall int
}

// Backend is one server of a service. Port is 0 if packets keep their destination port.
type Backend struct {
	Address          netip.Addr
	Port             uint16
	Weight           uint64
	Drained, Healthy bool
}

// Name returns the backend's name in the API's requests: without a port if Port is 0.
func (b Backend) Name() string {
	if b.Port == 0 {
		return b.Address.String()
	}
	return netip.AddrPortFrom(b.Address, b.Port).String()
}
