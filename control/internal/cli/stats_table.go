package cli

import (
	"fmt"
	"io"
	"sort"
	"strings"

	"millrace/control/internal/api"
	"millrace/control/internal/balance"
)

// showStats prints the statistics. `services` says why a backend gets no new connections; the statistics
// do not have that.
func showStats(out io.Writer, s *balance.Stats, services []balance.Service) {
	why := map[[2]string]string{}
	for _, service := range services {
		for _, b := range service.Backends {
			why[[2]string{service.Service, b.Name()}] = strings.TrimPrefix(yes(b.Drained, ", drained")+yes(!b.Healthy, ", unhealthy"), ", ")
		}
	}

	fmt.Fprintf(out, "millrace %s, %s, up %s\n\n", s.Version, s.Input, seconds(uint64(s.ElapsedS*1000)))
	showPackets(out, &s.Packets)
	showConnections(out, s)
	for _, service := range s.Services {
		showService(out, service, s.Backends, why)
	}
	showPorts(out, s.Ports)
	showWorkers(out, s.Workers)
	for _, warning := range s.Warnings {
		fmt.Fprintf(out, "\nwarning: %s", warning)
	}
	if len(s.Warnings) > 0 {
		fmt.Fprintln(out)
	}
}

func showPackets(out io.Writer, p *api.Packets) {
	t := newTable(out, "", "packets", ">count", ">share", "")
	row := func(name string, n uint64, what string) {
		t.row(name, grouped(n), share(n, p.In+p.Generated), what)
	}
	row("in", p.In, grouped(p.BytesIn)+" bytes")
	row("out", p.Out, grouped(p.BytesOut)+" bytes")
	row("dropped", p.Dropped.Sum(), "")
	row("tracked", p.Tracked, "")
	rowUnless0 := func(name string, n uint64, what string) {
		if n != 0 {
			row(name, n, what)
		}
	}
	rowUnless0("stateless", p.Stateless, "served without an entry")
	rowUnless0("related", p.Related, "ICMP errors about what was served")
	rowUnless0("generated", p.Generated, "made by millrace (ARP, neighbour discovery, ICMP, RSTs) or sent by the kernel")
	rowUnless0("consumed", p.Consumed, "for the host itself or the kernel")
	rowUnless0("held", p.Held, "until their next hops are known")
	rowUnless0("hopped", p.Hopped, "to the servers that serve them")
	for _, reason := range byCount(p.Untracked) {
		row(reason, p.Untracked[reason], "passed untouched")
	}
	for _, reason := range byCount(p.Dropped) {
		row(reason, p.Dropped[reason], "dropped"+why(reason))
	}
	t.flush()
}

// why returns an explanation of a reason that may be due to another machine's configuration, or "".
func why(reason string) string {
	if reason != "martian_source" {
		return ""
	}
	return ": their source is millrace's own address, or one that no host may have; if a dsr backend sent them, its route to clients leads through millrace"
}

// byCount returns the reasons, the most frequent first.
func byCount(counts api.Counts) []string {
	var names []string
	for name := range counts {
		names = append(names, name)
	}
	sort.Slice(names, func(i, j int) bool {
		a, b := counts[names[i]], counts[names[j]]
		return a > b || (a == b && names[i] < names[j])
	})
	return names
}

func showConnections(out io.Writer, s *balance.Stats) {
	c := &s.Connections
	fmt.Fprintln(out)
	t := newTable(out, "", "connections", ">count", "")
	t.row("live", grouped(c.Live), fmt.Sprintf("room for %s IPv4 and %s IPv6, load %.1f %%",
		grouped(s.Table.Capacity), grouped(s.Table.CapacityV6), 100*s.Table.Load))
	t.row("peak", grouped(c.Peak), counted(s.Spread.Moves))
	t.row("opened", grouped(c.Opened), "")
	if c.TakenOver != 0 {
		t.row("taken_over", grouped(c.TakenOver), "that another process had opened")
	}
	for _, reason := range byCount(c.Closed) {
		t.row(reason, grouped(c.Closed[reason]), "closed")
	}
	for _, line := range []struct {
		name  string
		count uint64
		what  string
	}{
		{"refused", c.Refused, "packets: no place, or no backend"},
		{"over_budget", c.OverBudget, "packets: too many half open"},
		{"collisions", c.Collisions, "choices of a backend given up"},
		{"resets_ignored", c.ResetsIgnored, "RSTs out of sequence, ABORTs with a wrong tag"},
	} {
		if line.count != 0 {
			t.row(line.name, grouped(line.count), line.what)
		}
	}
	t.flush()
}

// counted says how exact the peak is after that number of moves of shards.
func counted(moves uint64) string {
	if moves == 0 {
		return ""
	}
	return "an upper bound: a connection that moved may count for both workers"
}

func showService(out io.Writer, service balance.ServiceStats, backends []balance.BackendStats, why map[[2]string]string) {
	fmt.Fprintf(out, "\n%s\n", describe(service))
	t := newTable(out, "  ", "backend", ">packets", ">share", ">bytes", ">replies", ">bytes", ">connections", ">established", ">live", ">weight", "")
	own := backendsOf(service, backends)
	var packets uint64
	for _, b := range own {
		packets += b.Packets
	}
	for _, b := range own {
		t.row(b.Address, grouped(b.Packets), share(b.Packets, packets), grouped(b.Bytes), grouped(b.Replies),
			grouped(b.ReplyBytes), grouped(b.Connections), grouped(b.Established), grouped(b.Live), grouped(b.Weight), yes(b.Draining, "draining")+why[[2]string{b.Service, b.Address}])
	}
	t.flush()
}

func backendsOf(service balance.ServiceStats, all []balance.BackendStats) (own []balance.BackendStats) {
	for _, b := range all {
		if b.Service == service.Service {
			own = append(own, b)
		}
	}
	return own
}

// describe returns a line such as "203.0.113.10:80/tcp (maglev, dsr), 12 established, 3 without a backend".
func describe(s balance.ServiceStats) string {
	forward := ""
	if s.Forward != "" && s.Forward != "nat" {
		forward = ", " + s.Forward
	}
	text := fmt.Sprintf("%s (%s%s), %s established", s.Service, s.Scheduler, forward, grouped(s.Established))
	if s.MaxConnections != nil {
		text += fmt.Sprintf(" of at most %s (the limit refused a connection %s)", grouped(*s.MaxConnections), count(s.Limited, "time"))
	}
	if s.Refused != 0 {
		text += fmt.Sprintf(", %s without a backend", grouped(s.Refused))
	}
	if s.Collisions != 0 {
		text += fmt.Sprintf(", %s another backend chosen", count(s.Collisions, "time"))
	}
	if s.Stateless != 0 {
		text += fmt.Sprintf(", %s served without an entry", count(s.Stateless, "packet"))
	}
	return text + yes(s.Draining, ", draining")
}

func showPorts(out io.Writer, ports []api.Port) {
	if len(ports) == 0 {
		return
	}
	fmt.Fprintln(out)
	t := newTable(out, "", "port", "device", "link", ">in", ">out", ">missed")
	for _, p := range ports {
		device := p.Device
		if p.VLAN != 0 {
			device += fmt.Sprintf(", VLAN %d", p.VLAN)
		}
		t.row(p.Name, device, map[bool]string{true: "up", false: "down"}[p.LinkIsUp], grouped(p.In),
			grouped(p.Out), grouped(p.Missed))
	}
	t.flush()
	for _, p := range ports {
		if k := p.Kernel; k != nil {
			fmt.Fprintf(out, "%s: the kernel got %s by %s, and sent %s; dropped on the way to the kernel for lack of room: %s\n", p.Name, count(k.Given, "frame"), k.Interface,
				grouped(k.Taken), grouped(k.Full))
			if k.TooLong != 0 {
				fmt.Fprintf(out, "%s: the kernel sent %s longer than the port's MTU by %s, which went no further\n", p.Name,
					count(k.TooLong, "frame"), k.Interface)
			}
			if k.Gone {
				fmt.Fprintf(out, "%s: %s is gone: it comes back with a restart, or millctl upgrade\n", p.Name, k.Interface)
			}
			for _, address := range k.Foreign {
				fmt.Fprintf(out, "%s: %s has %s, which is not among the port's addresses: nothing reaches it\n", p.Name, k.Interface, address)
			}
		}
		for _, address := range p.Foreign {
			fmt.Fprintf(out, "%s: the kernel has %s on %s: millrace will not start with it\n", p.Name, address, p.Device)
		}
		for _, address := range p.Silent {
			fmt.Fprintf(out, "%s: %s does not answer, so nothing reaches it\n", p.Name, address)
		}
		for _, r := range p.Rivals {
			fmt.Fprintf(out, "%s: %s\n", p.Name, rivalry(r))
		}
	}
}

// rivalry returns a line about another station that answers for a virtual address. If an address of the
// station is known, the line also says what to do.
func rivalry(r api.Rival) string {
	const what = "%s answers for %s, too, so clients may pass millrace by"
	if r.Neighbour == nil {
		return fmt.Sprintf(what, r.Mac, r.Address)
	}
	return fmt.Sprintf(what+": stop it answering for that address (docs/balance.md#direct-server-return)",
		fmt.Sprintf("%s (%s)", *r.Neighbour, r.Mac), r.Address)
}

func showWorkers(out io.Writer, workers []api.Worker) {
	fmt.Fprintln(out)
	t := newTable(out, "", ">worker", ">packets", ">share", ">connections", ">ns/packet", ">busy")
	for n, w := range workers {
		t.row(fmt.Sprint(n), grouped(w.Packets), fmt.Sprintf("%.1f %%", 100*w.Share), grouped(w.Connections),
			fmt.Sprintf("%.1f", w.NsPerPacket), fmt.Sprintf("%.1f %%", 100*(1-w.Waited)))
	}
	t.flush()
}
