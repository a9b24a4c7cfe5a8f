package cli

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"millrace/control/internal/api"
)

func (a *app) explain() *cobra.Command {
	customer := ""
	command := &cobra.Command{
		Use:   "explain PROTOCOL SOURCE:PORT DESTINATION:PORT [--customer NAME]",
		Short: "Say what would become of a packet, and why",
		Long: `Says what would become of a packet between these two ends: which worker it goes to,
which rule, service and backend it gets, which public port, or why it is dropped. Nothing is sent, and nothing
changes. IPv6 addresses stand in brackets before a port. Leave the ports out for a
protocol that has none; for an ICMP query give its identifier as both ports.`,
		Example: `  millctl explain tcp 198.51.100.7:40000 203.0.113.10:80
  millctl explain udp 10.0.0.5:4000 192.0.2.1:53 --customer access.100
  millctl explain udp '[2001:db8::7]:53124' '[2001:db8:10::]:53'`,
		Args: exactly("PROTOCOL", "SOURCE:PORT", "DESTINATION:PORT"),
		RunE: func(command *cobra.Command, args []string) error {
			flow, err := flowOf(args[0], args[1], args[2])
			if err != nil {
				return err
			}
			if customer != "" {
				flow.Set("customer", customer)
			}
			answer, err := a.client().Explain(command.Context(), flow)
			if err != nil {
				return err
			}
			a.sayWhy(&answer)
			return nil
		},
	}
	command.Flags().StringVar(&customer, "customer", "", "the packet comes from this customer's tunnel or VLAN")
	return command
}

func flowOf(protocol, source, destination string) (url.Values, error) {
	protocol = strings.ToLower(protocol)
	flow := url.Values{"protocol": {protocol}}
	for _, end := range []struct{ name, text string }{{"source", source}, {"destination", destination}} {
		address, err := parseEnd(end.text)
		if err != nil || (address.Port() == 0 && hasPorts[protocol]) {
			return nil, usage("%s: %q is no address with a port: give one as 192.0.2.1:80 or [2001:db8::1]:80", end.name, end.text)
		}
		flow.Set(end.name, address.Addr().String())
		flow.Set(end.name+"_port", strconv.Itoa(int(address.Port())))
	}
	return flow, nil
}

var hasPorts = map[string]bool{"tcp": true, "udp": true, "sctp": true, "udplite": true, "dccp": true}

// parseEnd reads an address with a port, or an address alone: the port is then 0.
func parseEnd(text string) (netip.AddrPort, error) {
	if address, err := netip.ParseAddr(text); err == nil {
		return netip.AddrPortFrom(address, 0), nil
	}
	return netip.ParseAddrPort(text)
}

func (a *app) sayWhy(answer *api.Explanation) {
	worker := "-"
	if answer.Worker != nil {
		worker = strconv.Itoa(*answer.Worker)
	}
	a.say("%s: %s", answer.Verdict, answer.Why)
	a.say("  worker      %s", worker)
	if answer.Rule != nil {
		a.say("  rule        %s", *answer.Rule)
	}
	if answer.Service != nil { // the load balancer is in use
		a.say("  service     %s", orDash(answer.Service))
		a.say("  backend     %s", orDash(answer.Backend))
	}
	c := answer.Connection
	if c == nil {
		a.say("  connection  none")
		return
	}
	original, reply := c.Original(), c.Reply()
	a.say("  connection  %s, idle %s", c.State, seconds(c.IdleMs))
	a.say("  side        %s", orDash(answer.Side))
	a.say("  originator  %s -> %s", end(original.Source), end(original.Destination))
	a.say("  reply       %s -> %s", end(reply.Source), end(reply.Destination))
}
