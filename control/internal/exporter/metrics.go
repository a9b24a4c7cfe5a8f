package exporter

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"millrace/control/internal/api"
	"millrace/control/internal/balance"
	"millrace/control/internal/firewall"
	"millrace/control/internal/nat"
)

func gauge(name, help string, read func(state, add), labels ...string) *metric {
	return &metric{prometheus.NewDesc("millrace_"+name, help, labels, nil), prometheus.GaugeValue, read, false}
}

func counter(name, help string, read func(state, add), labels ...string) *metric {
	return &metric{prometheus.NewDesc("millrace_"+name, help, labels, nil), prometheus.CounterValue, read, false}
}

// metrics is the list of all metrics. Counters count since millrace started.
var metrics = []*metric{
	{prometheus.NewDesc("millrace_up", "Whether millrace answered.", nil, nil), prometheus.GaugeValue,
		func(s state, add add) { add(one(s.up)) }, true},
	gauge("build_info", "1, with millrace's version.",
		func(s state, add add) { add(1, s.stats.Version) }, "version"),
	gauge("uptime_seconds", "Time that the slowest worker has spent in its loop.",
		func(s state, add add) { add(s.stats.ElapsedS) }),

	counter("packets_total", "Packets received (in), sent (out), made by millrace or sent by its kernel (generated), and for the host itself (consumed).",
		func(s state, add add) {
			p := s.stats.Packets
			add(float64(p.In), "in")
			add(float64(p.Out), "out")
			add(float64(p.Generated), "generated")
			add(float64(p.Consumed), "consumed")
		}, "direction"),
	counter("bytes_total", "Bytes of received packets (in), and of the received packets that were sent on (out).",
		func(s state, add add) {
			add(float64(s.stats.Packets.BytesIn), "in")
			add(float64(s.stats.Packets.BytesOut), "out")
		}, "direction"),
	gauge("packets_held", "Packets that wait until their next hop is known.",
		func(s state, add add) { add(float64(s.stats.Packets.Held)) }),
	counter("verdict_packets_total", "Packets by verdict, and what became of them: served, passed untouched or dropped.",
		func(s state, add add) {
			p := s.stats.Packets
			add(float64(p.Tracked), "tracked", "served")
			add(float64(p.Stateless), "stateless", "served")
			add(float64(p.Related), "related", "served")
			each(p.Untracked, "passed", add)
			each(p.Dropped, "dropped", add)
		}, "verdict", "outcome"),

	gauge("connections", "Live connections.",
		func(s state, add add) { add(float64(s.stats.Connections.Live)) }),
	gauge("connections_peak", "The most connections that were live at once; with several workers the sum of the workers' maxima.",
		func(s state, add add) { add(float64(s.stats.Connections.Peak)) }),
	counter("connections_opened_total", "New connections that got an entry.",
		func(s state, add add) { add(float64(s.stats.Connections.Opened)) }),
	counter("connections_taken_over_total", "Connections that another process had opened.",
		func(s state, add add) { add(float64(s.stats.Connections.TakenOver)) }),
	counter("connections_closed_total", "Connections that ended, by reason.",
		func(s state, add add) {
			for reason, n := range s.stats.Connections.Closed {
				add(float64(n), reason)
			}
		}, "reason"),
	counter("connections_refused_packets_total", "Packets of new connections that found no place or no backend.",
		func(s state, add add) { add(float64(s.stats.Connections.Refused)) }),
	counter("connections_over_budget_packets_total", "Packets of new connections that got no entry because too many were half open.",
		func(s state, add add) { add(float64(s.stats.Connections.OverBudget)) }),
	counter("resets_ignored_total", "RSTs out of sequence and ABORTs with a wrong tag, which closed nothing.",
		func(s state, add add) { add(float64(s.stats.Connections.ResetsIgnored)) }),

	gauge("table_capacity_connections", "Connections that the tables promise room for.",
		func(s state, add add) {
			add(float64(s.stats.Table.Capacity), "ipv4")
			add(float64(s.stats.Table.CapacityV6), "ipv6")
		}, "family"),
	gauge("table_load_ratio", "Live connections divided by the slots of all tables; a connection with replies takes two slots.",
		func(s state, add add) { add(s.stats.Table.Load) }),
	gauge("table_size_bytes", "Memory of all tables.",
		func(s state, add add) { add(float64(s.stats.Table.Bytes)) }),

	gauge("workers_in_use", "Workers in use: all, or with workers = \"auto\" as few as the load needs.",
		func(s state, add add) {
			if s.stats.Spread.WorkersInUse > 0 {
				add(float64(s.stats.Spread.WorkersInUse))
			}
		}),
	counter("shard_moves_total", "Moves of shards from one worker to another.",
		func(s state, add add) { add(float64(s.stats.Spread.Moves)) }),
	counter("worker_packets_total", "Packets of each worker.",
		workers(func(w api.Worker) float64 { return float64(w.Packets) }), "worker"),
	counter("worker_connections_opened_total", "Connections that each worker opened.",
		workers(func(w api.Worker) float64 { return float64(w.Connections) }), "worker"),
	gauge("worker_waited_ratio", "Share of the time since the start in which the worker had no packet, or waited for locks.",
		workers(func(w api.Worker) float64 { return w.Waited }), "worker"),

	gauge("port_link_up", "Whether the port's link is up.",
		ports(func(p api.Port) float64 { return one(p.LinkIsUp) }), "port"),
	counter("port_received_packets_total", "Packets received from the port's device; on a device with VLANs, packets of the port.",
		ports(func(p api.Port) float64 { return float64(p.In) }), "port"),
	counter("port_sent_packets_total", "Packets that the port's device accepted for sending; on a device with VLANs, packets of the port.",
		ports(func(p api.Port) float64 { return float64(p.Out) }), "port"),
	counter("port_missed_packets_total", "Packets that the port's device dropped because there was no room or memory; the same for all ports that share a device.",
		ports(func(p api.Port) float64 { return float64(p.Missed) }), "port"),

	gauge("port_silent_neighbours", "Next hops of backends and routes that do not answer ARP or neighbour discovery.",
		ports(func(p api.Port) float64 { return float64(len(p.Silent)) }), "port"),
	gauge("port_rivals", "Stations on the port's link that answer for a virtual address, too.",
		ports(func(p api.Port) float64 { return float64(len(p.Rivals)) }), "port"),
	counter("port_kernel_packets_total", "Packets on the kernel's interface beside the port: that the kernel got (given), that it sent (taken), that found no room on their way to the kernel (full), and that the kernel sent although they are longer than the port's MTU (too_long).",
		func(s state, add add) {
			for _, p := range s.stats.Ports {
				if p.Kernel != nil {
					add(float64(p.Kernel.Given), p.Name, "given")
					add(float64(p.Kernel.Taken), p.Name, "taken")
					add(float64(p.Kernel.Full), p.Name, "full")
					add(float64(p.Kernel.TooLong), p.Name, "too_long")
				}
			}
		}, "port", "outcome"),

	gauge("service_established_connections", "Live connections of the service that were proved to be real and that the two sides have not ended.",
		services(func(s balance.ServiceStats) float64 { return float64(s.Established) }), "service"),
	gauge("service_max_connections", "The service's limit of established connections, if it has one.",
		func(s state, add add) {
			for _, service := range s.stats.Services {
				if service.MaxConnections != nil {
					add(float64(*service.MaxConnections), service.Service)
				}
			}
		}, "service"),
	counter("service_limited_total", "How often the service's limit refused a connection.",
		services(func(s balance.ServiceStats) float64 { return float64(s.Limited) }), "service"),
	counter("service_refused_connections_total", "New connections of the service, and packets without an entry, that found no backend, without those that no_backend let pass.",
		services(func(s balance.ServiceStats) float64 { return float64(s.Refused) }), "service"),
	counter("service_collisions_total", "Choices of a backend given up because the reply key belonged to another connection.",
		services(func(s balance.ServiceStats) float64 { return float64(s.Collisions) }), "service"),
	counter("service_stateless_packets_total", "Packets of the service served without an entry.",
		services(func(s balance.ServiceStats) float64 { return float64(s.Stateless) }), "service"),

	gauge("backend_connections", "Live connections of the backend.",
		backends(func(b balance.BackendStats) float64 { return float64(b.Live) }), "service", "backend"),
	gauge("backend_established_connections", "Live connections of the backend that were proved to be real and that the two sides have not ended.",
		backends(func(b balance.BackendStats) float64 { return float64(b.Established) }), "service", "backend"),
	counter("backend_connections_opened_total", "Connections that were assigned to the backend.",
		backends(func(b balance.BackendStats) float64 { return float64(b.Connections) }), "service", "backend"),
	counter("backend_sent_packets_total", "Packets sent to the backend.",
		backends(func(b balance.BackendStats) float64 { return float64(b.Packets) }), "service", "backend"),
	counter("backend_received_packets_total", "Replies received from the backend.",
		backends(func(b balance.BackendStats) float64 { return float64(b.Replies) }), "service", "backend"),
	counter("backend_sent_bytes_total", "Bytes of packets sent to the backend.",
		backends(func(b balance.BackendStats) float64 { return float64(b.Bytes) }), "service", "backend"),
	counter("backend_received_bytes_total", "Bytes of replies received from the backend.",
		backends(func(b balance.BackendStats) float64 { return float64(b.ReplyBytes) }), "service", "backend"),
	gauge("backend_weight", "The backend's weight: its share of new connections, relative to the service's other backends.",
		configured(func(b balance.Backend) float64 { return float64(b.Weight) }), "service", "backend"),
	gauge("backend_healthy", "Whether the backend is marked as healthy.",
		configured(func(b balance.Backend) float64 { return one(b.Healthy) }), "service", "backend"),
	gauge("backend_drained", "Whether the backend was drained by a command, and so gets no new connections.",
		configured(func(b balance.Backend) float64 { return one(b.Drained) }), "service", "backend"),

	gauge("firewall_rule_connections", "Live connections that the rule has accepted.",
		rules(func(r firewall.Rule) float64 { return float64(r.Live) }), "rule"),
	counter("firewall_rule_connections_opened_total", "Connections that the rule has accepted.",
		rules(func(r firewall.Rule) float64 { return float64(r.Connections) }), "rule"),
	counter("firewall_rule_packets_total", "Packets of the originators of connections that the rule has accepted.",
		rules(func(r firewall.Rule) float64 { return float64(r.Packets) }), "rule"),
	counter("firewall_rule_bytes_total", "Bytes of the originators of connections that the rule has accepted.",
		rules(func(r firewall.Rule) float64 { return float64(r.Bytes) }), "rule"),
	counter("firewall_rule_reply_packets_total", "Replies in connections that the rule has accepted.",
		rules(func(r firewall.Rule) float64 { return float64(r.Replies) }), "rule"),
	counter("firewall_rule_reply_bytes_total", "Bytes of replies in connections that the rule has accepted.",
		rules(func(r firewall.Rule) float64 { return float64(r.ReplyBytes) }), "rule"),
	counter("firewall_rule_refused_packets_total", "Packets that would have begun a connection, and that the rule has dropped.",
		rules(func(r firewall.Rule) float64 { return float64(r.Refused) }), "rule"),
	counter("firewall_rule_limited_packets_total", "Packets that would have begun a connection, and that the rule's limit has dropped.",
		rules(func(r firewall.Rule) float64 { return float64(r.Limited) }), "rule"),
	counter("firewall_rule_logged_events_total", "Events of the rule that were written into the log.",
		rules(func(r firewall.Rule) float64 { return float64(r.Logged) }), "rule"),
	counter("firewall_rule_not_logged_events_total", "Events of the rule that were above the log's rate, and are not in the log.",
		rules(func(r firewall.Rule) float64 { return float64(r.NotLogged) }), "rule"),

	gauge("nat_pool_blocks", "Port blocks that the pool has.",
		pools(func(p nat.Pool) float64 { return float64(p.Blocks) }), "pool"),
	gauge("nat_pool_blocks_held", "Port blocks of the pool that customers have, also those without a mapping.",
		pools(func(p nat.Pool) float64 { return float64(p.Held) }), "pool"),
	gauge("nat_pool_blocks_resting", "Port blocks of the pool that customers have, without a mapping.",
		pools(func(p nat.Pool) float64 { return float64(p.Resting) }), "pool"),
	gauge("nat_pool_free_ports", "Ports of the pool's blocks without a mapping, of each protocol.",
		pools(func(p nat.Pool) float64 { return float64(p.FreePorts) }), "pool"),
	gauge("nat_pool_nearly_empty", "1 once 90 % of the pool's blocks have mappings, until less than 80 % have.",
		pools(func(p nat.Pool) float64 { return one(p.NearlyEmpty) }), "pool"),
	gauge("nat_pool_customers", "Customers with sessions by the pool.",
		pools(func(p nat.Pool) float64 { return float64(p.Customers) }), "pool"),
	gauge("nat_pool_sessions", "Live sessions by the pool.",
		pools(func(p nat.Pool) float64 { return float64(p.Sessions) }), "pool"),
	gauge("nat_pool_mappings", "Public ports of the pool that are in use.",
		pools(func(p nat.Pool) float64 { return float64(p.Mappings) }), "pool"),
	counter("nat_pool_no_port_total", "Sessions that were refused because no public port was free.",
		pools(func(p nat.Pool) float64 { return float64(p.NoPort) }), "pool"),
	counter("nat_pool_over_limit_total", "Sessions that were refused because their customer had as many as he may have.",
		pools(func(p nat.Pool) float64 { return float64(p.OverLimit) }), "pool"),
	counter("nat_pool_no_record_total", "Sessions that were refused because the log could not record the port block that they needed.",
		pools(func(p nat.Pool) float64 { return float64(p.NoRecord) }), "pool"),

	counter("nat_log_written_total", "Records of the log of port blocks that were written there.",
		logs(func(l nat.Log) float64 { return float64(l.Written) }), "to"),
	counter("nat_log_lost_total", "Records of the log of port blocks that are missing there.",
		logs(func(l nat.Log) float64 { return float64(l.Lost) }), "to"),
	gauge("nat_log_failing", "1 while the log of port blocks cannot be written there.",
		logs(func(l nat.Log) float64 { return one(l.FailingSince != nil) }), "to"),
}

func one(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func each(counts api.Counts, outcome string, add add) {
	for verdict, n := range counts {
		add(float64(n), verdict, outcome)
	}
}

func workers(value func(api.Worker) float64) func(state, add) {
	return func(s state, add add) {
		for n, w := range s.stats.Workers {
			add(value(w), strconv.Itoa(n))
		}
	}
}

func ports(value func(api.Port) float64) func(state, add) {
	return func(s state, add add) {
		for _, p := range s.stats.Ports {
			add(value(p), p.Name)
		}
	}
}

func services(value func(balance.ServiceStats) float64) func(state, add) {
	return func(s state, add add) {
		for _, service := range s.stats.Services {
			add(value(service), service.Service)
		}
	}
}

func backends(value func(balance.BackendStats) float64) func(state, add) {
	return func(s state, add add) {
		for _, b := range s.stats.Backends {
			add(value(b), b.Service, b.Address)
		}
	}
}

func rules(value func(firewall.Rule) float64) func(state, add) {
	return func(s state, add add) {
		for _, r := range s.stats.Rules {
			add(value(r), r.Rule)
		}
	}
}

func pools(value func(nat.Pool) float64) func(state, add) {
	return func(s state, add add) {
		for _, p := range s.stats.Pools {
			add(value(p), p.Pool)
		}
	}
}

func logs(value func(nat.Log) float64) func(state, add) {
	return func(s state, add add) {
		for _, l := range s.stats.Logs {
			add(value(l), l.To)
		}
	}
}

func configured(value func(balance.Backend) float64) func(state, add) {
	return func(s state, add add) {
		for _, service := range s.services {
			for _, b := range service.Backends {
				add(value(b), service.Service, b.Name())
			}
		}
	}
}
