package api

import "net/url"

// FilterKeys are the parts of a FILTER by their names in the API, with the type and the meaning of their
// values. A connection matches if it matches all the given parts. millrace checks the values; only the
// names of states are checked here, so that the message can list them.
var FilterKeys = []struct{ Key, Type, Meaning string }{
	{"protocol", "NAME", "tcp, udp, sctp, icmp, icmpv6, udplite, dccp, gre, esp, ah, or a number"},
	{"source", "ADDRESS", "source of the connection: an address, address:port, or a prefix, as 192.0.2.0/24"},
	{"source_port", "PORT", "source port of the connection; for ICMP the identifier"},
	{"destination", "ADDRESS", "destination before it is rewritten: an address, address:port, or a prefix"},
	{"destination_port", "PORT", "destination port before it is rewritten"},
	{"state", "STATE", "state of the connection: established, syn_sent, udp_stream, ..."},
	{"backend", "BACKEND", "backend of the connection: an address, or address:port"},
	{"customer", "NAME", "customer behind a tunnel or in a VLAN, at either end: a name, far end, prefix of far ends, or VLAN (access.100); another customer: --source"},
}

// States are the names of the states of connections (docs/states.md).
var States = []string{"syn_sent", "syn_sent2", "syn_received", "established", "fin_wait", "close_wait", "last_ack", "time_wait",
	"closed", "midstream", "sctp_cookie_wait", "sctp_cookie_sent", "sctp_cookie_echoed", "sctp_established",
	"sctp_shutdown_sent", "sctp_shutdown_received", "sctp_shutdown_ack_sent", "sctp_closed", "sctp_aborted", "sctp_midstream",
	"udp_unreplied", "udp", "udp_stream", "icmp_unreplied", "icmp", "other_unreplied", "other"}

// IsState returns true if there is a state of that name.
func IsState(name string) bool {
	for _, state := range States {
		if state == name {
			return true
		}
	}
	return false
}

// Filter holds the given parts of a FILTER, by their names in the API.
type Filter = url.Values
