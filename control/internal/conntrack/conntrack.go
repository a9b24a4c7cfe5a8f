// Package conntrack writes connections in the format of `conntrack -L`, so that programs which read the
// kernel's list can read millrace's. The format is that of libnetfilter_conntrack 1.0.9;
// testdata/kernel.txt was printed by conntrack 1.4.7 itself.
package conntrack

import (
	"fmt"
	"strconv"
	"strings"

	"millrace/control/internal/api"
)

// detail returns the part of a protocol's tuple that follows the addresses.
type detail func(from, to uint16, echo uint8) string

func ports(from, to uint16, _ uint8) string { return fmt.Sprintf("sport=%d dport=%d ", from, to) }
func keys(from, to uint16, _ uint8) string  { return fmt.Sprintf("srckey=0x%x dstkey=0x%x ", from, to) }

// query is the detail of ICMP. millrace's key of an ICMP query has the identifier as both ports, but not
// the type: the query is written as an echo, since nearly all are echoes.
func query(id, _ uint16, echo uint8) string { return fmt.Sprintf("type=%d code=0 id=%d ", echo, id) }

type protocol struct {
	name        string
	number      uint8
	ours        string // millrace's name, where the library has none
	detail      detail
	echo, reply uint8 // types of ICMP
	hasState    bool
}

// protocols have the names that libnetfilter_conntrack has for them. millrace has numbers for others.
var protocols = []protocol{
	{name: "tcp", number: 6, detail: ports, hasState: true},
	{name: "udp", number: 17, detail: ports},
	{name: "sctp", number: 132, detail: ports, hasState: true},
	{name: "icmp", number: 1, detail: query, echo: 8, reply: 0},
	{name: "icmpv6", number: 58, detail: query, echo: 128, reply: 129},
	{name: "dccp", number: 33, detail: ports},
	{name: "gre", number: 47, detail: keys},
	{name: "udplite", number: 136, detail: ports},
	{name: "unknown", number: 50, ours: "esp", detail: nothing},
	{name: "unknown", number: 51, ours: "ah", detail: nothing},
}

func nothing(uint16, uint16, uint8) string { return "" }

func protocolOf(text string) protocol {
	number, _ := strconv.ParseUint(text, 10, 8)
	for _, known := range protocols {
		if known.name == text || (known.ours != "" && known.ours == text) || known.number == uint8(number) {
			return known
		}
	}
	return protocol{name: "unknown", number: uint8(number), detail: nothing}
}

// ProtocolNumber returns the number of a protocol that millrace has named; numbers are texts there, too.
func ProtocolNumber(name string) uint8 { return protocolOf(name).number }

// state is how the kernel would list a connection in a state of millrace's (docs/states.md): the state's
// name, whether a reply was seen, and whether the kernel would keep the connection when its table is full.
type state struct {
	name             string
	replied, assured bool
}

var states = map[string]state{
	"none":                   {name: "NONE"},
	"syn_sent":               {name: "SYN_SENT"},
	"syn_sent2":              {name: "SYN_SENT2", replied: true},
	"syn_received":           {name: "SYN_RECV", replied: true},
	"established":            {name: "ESTABLISHED", replied: true, assured: true},
	"fin_wait":               {name: "FIN_WAIT", replied: true, assured: true},
	"close_wait":             {name: "CLOSE_WAIT", replied: true, assured: true},
	"last_ack":               {name: "LAST_ACK", replied: true, assured: true},
	"time_wait":              {name: "TIME_WAIT", replied: true, assured: true},
	"closed":                 {name: "CLOSE", replied: true, assured: true},
	"midstream":              {name: "ESTABLISHED"}, // the kernel's state of a connection whose SYN it did not see
	"udp_unreplied":          {},
	"udp":                    {replied: true},
	"udp_stream":             {replied: true, assured: true},
	"sctp_cookie_wait":       {name: "COOKIE_WAIT"},
	"sctp_cookie_sent":       {name: "COOKIE_WAIT", replied: true},
	"sctp_cookie_echoed":     {name: "COOKIE_ECHOED", replied: true},
	"sctp_established":       {name: "ESTABLISHED", replied: true, assured: true},
	"sctp_shutdown_sent":     {name: "SHUTDOWN_SENT", replied: true, assured: true},
	"sctp_shutdown_received": {name: "SHUTDOWN_RECD", replied: true, assured: true},
	"sctp_shutdown_ack_sent": {name: "SHUTDOWN_ACK_SENT", replied: true, assured: true},
	"sctp_closed":            {name: "CLOSED", replied: true, assured: true},
	"sctp_aborted":           {name: "CLOSED", replied: true, assured: true},
	"sctp_midstream":         {name: "HEARTBEAT_SENT"},
	"icmp_unreplied":         {},
	"icmp":                   {replied: true},
	"other_unreplied":        {},
	"other":                  {replied: true},
}

// Line returns the connection as conntrack lists it, without a newline. A state that is not in `states` is
// written in capitals.
func Line(c *api.Connection) string {
	protocol := protocolOf(c.Protocol)
	is, known := states[c.State]
	if !known {
		is = state{name: strings.ToUpper(c.State), replied: true}
	}

	var line strings.Builder
	fmt.Fprintf(&line, "%-8s %d ", protocol.name, protocol.number)
	if c.ExpiresMs != nil {
		fmt.Fprintf(&line, "%d ", *c.ExpiresMs/1000)
	}
	if protocol.hasState {
		line.WriteString(is.name + " ")
	}
	line.WriteString(tuple(c.Original(), protocol.detail, protocol.echo))
	line.WriteString(flag("[UNREPLIED] ", !is.replied))
	line.WriteString(tuple(c.Reply(), protocol.detail, protocol.reply))
	line.WriteString(flag("[ASSURED] ", is.assured))
	line.WriteString("mark=0 use=1")
	return line.String()
}

func tuple(t api.Tuple, more detail, echo uint8) string {
	from, to := t.Source, t.Destination
	return fmt.Sprintf("src=%s dst=%s ", from.Addr(), to.Addr()) + more(from.Port(), to.Port(), echo)
}

func flag(text string, is bool) string {
	if is {
		return text
	}
	return ""
}
