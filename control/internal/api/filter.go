package api

import "net/url"

// FilterKeys are the parts of a FILTER, as the API names them, and what each means. All that are
// given must hold. millrace itself judges their values, but for names of states, which are listed where one is wrong.
var FilterKeys = []struct{ Key, Type, Meaning string }{
	{"protocol", "NAME", "tcp, udp, sctp, icmp, icmpv6, or a number"},
	{"source", "ADDRESS", "where the connection came from: an address, address:port, or a prefix, as 192.0.2.0/24"},
	{"source_port", "PORT", "its port there; the identifier, of ICMP"},
	{"destination", "ADDRESS", "where it went, before anything was rewritten: an address, address:port, or a prefix"},
	{"destination_port", "PORT", "its port there"},
	{"state", "STATE", "as the list names them: established, syn_sent, udp_stream, ..."},
	{"backend", "BACKEND", "who serves it: an address, or address:port"},
}

// States are the names of connections' states, as docs/states.md has them.
var States = []string{"syn_sent", "syn_sent2", "syn_received", "established", "fin_wait", "close_wait", "last_ack", "time_wait",
	"closed", "midstream", "udp_unreplied", "udp", "udp_stream", "sctp_unreplied", "sctp", "icmp_unreplied", "icmp",
	"other_unreplied", "other"}

// IsState says whether there is a state of that name.
func IsState(name string) bool {
	for _, state := range States {
		if state == name {
			return true
		}
	}
	return false
}

// Filter holds the parts that were given.
type Filter = url.Values
