package api

import (
	"encoding/json"
	"net/netip"
	"sort"
	"strconv"
)

// The types of this file hold the fields of the API's objects that millctl shows. Other fields are
// ignored, so that a newer millrace may add some. docs/control.md describes the fields, and
// docs/stats.schema.json those of Stats.

// Counts are numbers of packets or connections by reason.
type Counts map[string]uint64

// Sum returns the sum over all reasons.
func (c Counts) Sum() (sum uint64) {
	for _, count := range c {
		sum += count
	}
	return sum
}

// Stats is the answer to GET /stats without the parts of the configured function. Counters count since
// millrace started.
type Stats struct {
	Version     string
	Input       string
	Packets     Packets
	Connections Connections
	Table       Table
	Spread      Spread
	ElapsedS    float64 `json:"elapsed_s"`
	NsPerPacket float64 `json:"ns_per_packet"`
	Workers     []Worker
	Ports       []Port
	Warnings    []string
}

// Packets counts packets by their verdicts. While no packet is in flight: in + generated = out +
// dropped + consumed + held + hopped.
type Packets struct {
	In, Out             uint64
	BytesIn             uint64 `json:"bytes_in"`
	BytesOut            uint64 `json:"bytes_out"`
	Dropped, Untracked  Counts
	Tracked, Stateless  uint64
	Related             uint64 // ICMP errors about packets that were served
	Generated, Consumed uint64
	Held, Hopped        uint64
}

// Connections counts the connections of all workers together.
type Connections struct {
	Opened        uint64
	TakenOver     uint64 `json:"taken_over"`
	Closed        Counts
	Live, Peak    uint64
	Refused       uint64
	RefusedEarly  uint64 `json:"refused_early"`
	OverBudget    uint64 `json:"over_budget"`
	Collisions    uint64
	ResetsIgnored uint64 `json:"resets_ignored"`
}

// Table has the configuration of the tables, and the memory of all workers' tables together.
type Table struct {
	Scheme, Sharing string
	Capacity        uint64
	CapacityV6      uint64 `json:"capacity_v6"`
	Load            float64
	Bytes           uint64
	Pages           string
}

// Spread says how many workers are in use, 0 if millrace does not say it, and counts the moves of shards.
type Spread struct {
	WorkersInUse int `json:"workers_in_use"`
	Moves        uint64
}

// Worker counts the packets, connections and time of one worker.
type Worker struct {
	Packets     uint64
	Share       float64
	Connections uint64
	NsPerPacket float64 `json:"ns_per_packet"`
	Waited      float64 // the share of the time since the start in which the worker waited, 0 to 1
	WaitedNs    uint64  `json:"waited_ns"`
}

// Port has the counters of a port, and what is wrong with the port's neighbours. `Missed` and `LinkIsUp` are of the
// port's device, which several ports may share.
type Port struct {
	Name, Device    string
	VLAN            int  // 0: the port's frames have no tag
	LinkIsUp        bool `json:"link_is_up"`
	In, Out, Missed uint64
	Silent          []string
	Rivals          []Rival
	Foreign         []string // addresses that the kernel has on the device itself
	Kernel          *KernelSide
}

// Rival is another station on a port's link that answers for a virtual address. Neighbour is the address of the
// backend or router with the same MAC; nil if there is none.
type Rival struct {
	Address, Mac string
	Neighbour    *string
}

// KernelSide counts the frames on the kernel's interface beside a port. `Given`: passed to the kernel; `Taken`: sent by
// the kernel; `Full`: dropped because there was no room on the way to the kernel; `TooLong`: sent by the kernel, and
// dropped because they are longer than the port's MTU.
type KernelSide struct {
	Interface          string
	Given, Taken, Full uint64
	TooLong            uint64   `json:"too_long"`
	Gone               bool     // the interface was deleted
	Foreign            []string // addresses that another program has given the interface
}

// Tuple has the source and the destination of a packet.
type Tuple struct{ Source, Destination netip.AddrPort }

// Original returns the tuple of packets in the originator direction.
func (c *Connection) Original() Tuple {
	return Tuple{
		netip.AddrPortFrom(c.Source, c.SourcePort),
		netip.AddrPortFrom(c.Destination, c.DestinationPort),
	}
}

// Reply returns the tuple of packets in the reply direction: the reverse of Original if replies do not pass through millrace.
func (c *Connection) Reply() Tuple {
	if !c.ReplySource.IsValid() {
		original := c.Original()
		return Tuple{original.Destination, original.Source}
	}
	return Tuple{
		netip.AddrPortFrom(c.ReplySource, c.ReplySourcePort),
		netip.AddrPortFrom(c.ReplyDestination, c.ReplyDestinationPort),
	}
}

// Explanation is the answer to GET /explain. Worker is nil if the packet belongs to no particular worker.
type Explanation struct {
	Worker     *int
	Side       *string
	Service    *string
	Backend    *string
	Rule       *string // of the firewall
	Connection *Connection
	Verdict    string
	Why        string
}

// Reloaded is the answer to POST /reload.
type Reloaded struct {
	Counts   []NamedCount `json:"-"` // what the configuration has: "services", "rules", ..., sorted by name
	Ended    uint64       // connections that the new configuration ends
	TookMs   float64      `json:"took_ms"`
	Warnings []string
}

// NamedCount is how many there are of something. The name is a plural.
type NamedCount struct {
	Name  string
	Count uint64
}

// UnmarshalJSON implements json.Unmarshaler. Every unknown number is a count.
func (r *Reloaded) UnmarshalJSON(text []byte) error {
	type plain Reloaded
	if err := json.Unmarshal(text, (*plain)(r)); err != nil {
		return err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	for _, known := range []string{"ended", "took_ms", "warnings"} {
		delete(all, known)
	}
	for name, value := range all {
		if n, err := strconv.ParseUint(string(value), 10, 64); err == nil {
			r.Counts = append(r.Counts, NamedCount{name, n})
		}
	}
	sort.Slice(r.Counts, func(a, b int) bool { return r.Counts[a].Name < r.Counts[b].Name })
	return nil
}

// Shards is the answer to GET /shards. The list is empty if workers share tables, so that there are no shards.
type Shards struct {
	Workers int     `json:"workers"`
	InUse   int     `json:"in_use"` // the number of workers, from worker 0 on, that are to have shards
	Level   bool    `json:"level"`  // shards may be moved, and move by themselves to idle workers
	Shards  []Shard `json:"shards"`
}

// Shard is an entry of the indirection table from hash to worker.
type Shard struct {
	Shard   int    `json:"shard"`
	Worker  int    `json:"worker"`
	Packets uint64 `json:"packets"` // served since the start
	Moves   uint64 `json:"moves"`
}

// MovedShard is the answer to POST /shards/move.
type MovedShard struct {
	Shard  int     `json:"shard"`
	Worker int     `json:"worker"`
	TookMs float64 `json:"took_ms"`
}

// Pair is what a server of a pair knows of both.
type Pair struct {
	Number       int
	Active       bool   // packets go to it
	Role         string // master, slave or none
	Epoch        uint64
	Shards       int
	ShardsInSync int  `json:"shards_in_sync"`
	InSync       bool `json:"in_sync"`
	Settled      bool // no other process has connections that have ended here
	Gives        bool // customers get what the function gives, such as ports
	Ready        bool // packets may come to this server
	Disagreement string
	Other        *OtherServer // nil: it has never been heard
	Counters     map[string]uint64
}

// OtherServer is the other server of a pair, as it was last heard.
type OtherServer struct {
	Heard  bool // within the last second
	Number int
	Active bool
	Role   string
	InSync bool `json:"in_sync"`
	// SameLayout is false if the server has other functions, or is of another version; nil if an earlier version did not say.
	SameLayout *bool `json:"same_layout"`
}
