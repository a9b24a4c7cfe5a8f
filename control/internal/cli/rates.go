package cli

import (
	"bytes"
	"fmt"
	"math"
	"sort"

	"millrace/control/internal/api"
	"millrace/control/internal/balance"
)

// rates are the changes between two readings of the statistics, per second. They need neither clock nor
// terminal: top.go has both.
type rates struct {
	before, after *balance.Stats
	seconds       float64
}

// rate returns the change of a counter per second. A counter that went back has begun again at 0:
// millrace was restarted.
func (r rates) rate(before, after uint64) float64 {
	if after < before {
		before = 0
	}
	return float64(after-before) / r.seconds
}

func perSecond(rate float64) string {
	if rate != 0 && rate < 10 {
		return fmt.Sprintf("%.1f", rate)
	}
	return grouped(uint64(rate + 0.5))
}

func (r rates) text(before, after uint64) string { return perSecond(r.rate(before, after)) }

// screen returns all lines of the view.
func (r rates) screen(bold func(string) string) string {
	var out bytes.Buffer
	r.head(&out)
	for _, part := range []func(*table){r.workers, r.drops, r.services, r.backends} {
		t := &table{}
		part(t)
		if len(t.pending) > 0 {
			fmt.Fprintln(&out)
			t.writeTo(&out, bold)
		}
	}
	return out.String()
}

func (r rates) head(out *bytes.Buffer) {
	b, a := r.before, r.after
	fmt.Fprintf(out, "millrace %s, %s, up %s\n", a.Version, a.Input, seconds(uint64(a.ElapsedS*1000)))
	fmt.Fprintf(out, "packets a second: %s in, %s out, %s dropped\n", r.text(b.Packets.In, a.Packets.In),
		r.text(b.Packets.Out, a.Packets.Out), r.text(b.Packets.Dropped.Sum(), a.Packets.Dropped.Sum()))
	fmt.Fprintf(out, "bits a second: %s in, %s out\n", r.text(8*b.Packets.BytesIn, 8*a.Packets.BytesIn),
		r.text(8*b.Packets.BytesOut, 8*a.Packets.BytesOut))
	fmt.Fprintf(out, "connections: %s live of %s, %s opened a second\n", grouped(a.Connections.Live),
		grouped(a.Table.Capacity+a.Table.CapacityV6), r.text(b.Connections.Opened, a.Connections.Opened))
	if a.Spread.WorkersInUse > 0 {
		r.spread(out)
	}
}

// spread adds a line about the workers in use, if shards have moved or not all workers are in use.
func (r rates) spread(out *bytes.Buffer) {
	before, after := r.before.Spread, r.after.Spread
	if after.Moves > 0 || after.WorkersInUse < len(r.after.Workers) {
		fmt.Fprintf(out, "workers: %d of %d in use, %s shards moved a second\n", after.WorkersInUse, len(r.after.Workers),
			r.text(before.Moves, after.Moves))
	}
}

func (r rates) workers(t *table) {
	t.columns(">worker", ">packets/s", ">share", ">connections/s", ">busy")
	workers := make([]api.Worker, len(r.after.Workers)) // of the first reading
	copy(workers, r.before.Workers)
	var all float64
	for n, w := range r.after.Workers {
		all += r.rate(workers[n].Packets, w.Packets)
	}
	for n, w := range r.after.Workers {
		was, part := workers[n], ""
		if all > 0 {
			part = fmt.Sprintf("%.1f %%", 100*r.rate(was.Packets, w.Packets)/all)
		}
		t.hold(fmt.Sprint(n), r.text(was.Packets, w.Packets), part, r.text(was.Connections, w.Connections),
			fmt.Sprintf("%.1f %%", 100*math.Max(0, 1-r.rate(was.WaitedNs, w.WaitedNs)/1e9)))
	}
}

func (r rates) services(t *table) {
	t.columns("service", ">established", ">no backend/s", ">limited/s", ">stateless/s")
	was := map[string]balance.ServiceStats{}
	for _, s := range r.before.Services {
		was[s.Service] = s
	}
	for _, s := range r.after.Services {
		old := was[s.Service]
		t.hold(s.Service, grouped(s.Established), r.text(old.Refused, s.Refused),
			r.text(old.Limited, s.Limited), r.text(old.Stateless, s.Stateless))
	}
}

// backends adds the backends, the busiest first.
func (r rates) backends(t *table) {
	t.columns("backend", "service", ">packets/s", ">bits/s", ">replies/s", ">bits/s", ">connections/s", ">established", ">live")
	type key struct{ service, address string }
	was := map[key]balance.BackendStats{}
	for _, b := range r.before.Backends {
		was[key{b.Service, b.Address}] = b
	}
	packets := func(b balance.BackendStats) float64 {
		return r.rate(was[key{b.Service, b.Address}].Packets, b.Packets)
	}
	now := append([]balance.BackendStats(nil), r.after.Backends...)
	sort.SliceStable(now, func(i, j int) bool { return packets(now[i]) > packets(now[j]) })
	for _, b := range now {
		old := was[key{b.Service, b.Address}]
		t.hold(b.Address, b.Service, perSecond(packets(b)), r.text(8*old.Bytes, 8*b.Bytes), r.text(old.Replies, b.Replies), r.text(8*old.ReplyBytes, 8*b.ReplyBytes),
			r.text(old.Connections, b.Connections), grouped(b.Established), grouped(b.Live))
	}
}

func (r rates) drops(t *table) {
	t.columns("dropped", ">packets/s", ">in all")
	for _, reason := range byCount(r.after.Packets.Dropped) {
		now := r.after.Packets.Dropped[reason]
		t.hold(reason, r.text(r.before.Packets.Dropped[reason], now), grouped(now))
	}
}
