// Package balance is what millctl knows of one function of millrace, the load balancer: its part of the statistics, its
// services, and its commands. What holds for every function is in package api.
package balance

import (
	"net/netip"

	"millrace/control/internal/api"
)

// Stats is the answer to GET /stats, with what the load balancer adds.
type Stats struct {
	api.Stats
	Services []ServiceStats
	Backends []BackendStats
}

// ServiceStats is what one service did. MaxConnections is nil without a limit.
type ServiceStats struct {
	Service, Scheduler, Forward  string
	Draining                     bool
	Established                  uint64
	MaxConnections               *uint64 `json:"max_connections"`
	Limited, Refused, Collisions uint64
	Stateless                    uint64
}

// BackendStats is what one backend of one service got. Of its Live connections those are Established that were proved
// to be real and have not ended.
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

// Service is an element of GET /services: configuration, and what was told since.
type Service struct {
	Service  string
	Address  string
	Port     uint16
	Protocol string
	Health   *Health
	Backends []Backend
}

// Health says how a service's backends are checked. Port is 0, and Host empty, where none is configured.
type Health struct {
	Check      string
	Path       string
	Host       string
	Port       uint16
	IntervalMs int64 `json:"interval_ms"`
	TimeoutMs  int64 `json:"timeout_ms"`
	Rise, Fall int
}

// Backend is one server of a service; its port is 0 where the packet's stays.
type Backend struct {
	Address          netip.Addr
	Port             uint16
	Weight           uint64
	Drained, Healthy bool
}

// Name is the backend as the API's requests name it: without a port where it has none of its own.
func (b Backend) Name() string {
	if b.Port == 0 {
		return b.Address.String()
	}
	return netip.AddrPortFrom(b.Address, b.Port).String()
}
