package api

import "net/netip"

// What the API's objects hold, as far as millctl shows it; what is unknown is passed over, so that a
// newer millrace can say more. The meaning of each field is in docs/control.md and, of Stats, in
// docs/stats.schema.json.

// Counts are packets, connections, ... by reason.
type Counts map[string]uint64

// Sum is all of them together.
func (c Counts) Sum() (sum uint64) {
	for _, count := range c {
		sum += count
	}
	return sum
}

// Stats is the answer to GET /stats, without what is the function's: everything counts since the start.
type Stats struct {
	Version     string
	Input       string
	Packets     Packets
	Connections Connections
	Table       Table
	ElapsedS    float64 `json:"elapsed_s"`
	NsPerPacket float64 `json:"ns_per_packet"`
	Workers     []Worker
	Ports       []Port
	Warnings    []string
}

// Packets by what became of them: in + generated = out + dropped + consumed + held, at rest.
type Packets struct {
	In, Out             uint64
	BytesIn             uint64 `json:"bytes_in"`
	BytesOut            uint64 `json:"bytes_out"`
	Dropped, Untracked  Counts
	Tracked, Stateless  uint64
	Related             uint64 // ICMP errors about what was served
	Generated, Consumed uint64
	Held                uint64
}

// Connections are counted for all workers together.
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

// Table is the tables' configuration and memory, all workers together.
type Table struct {
	Scheme, Sharing string
	Capacity        uint64
	CapacityV6      uint64 `json:"capacity_v6"`
	Load            float64
	Bytes           uint64
	Pages           string
}

// Worker is one thread's part.
type Worker struct {
	Packets     uint64
	Share       float64
	Connections uint64
	NsPerPacket float64 `json:"ns_per_packet"`
	Waited      float64 // of its time, since the start
	WaitedNs    uint64  `json:"waited_ns"`
}

// Port is what a device counts.
type Port struct {
	Name, Device    string
	LinkIsUp        bool `json:"link_is_up"`
	In, Out, Missed uint64
	Silent          []string
	Rivals          []Rival
	Foreign         []string // addresses that the kernel answers for on the device itself
	Kernel          *KernelSide
}

// Rival is a station on a port's link that answers for a virtual address, too. Neighbour is the address of the
// backend or router that has its MAC, where one has.
type Rival struct {
	Address, Mac string
	Neighbour    *string
}

// KernelSide is what a port's interface of the kernel's counts: frames that the kernel got, that it sent, those that
// found no room on their way to it, and those that it sent although they are longer than the port's MTU.
type KernelSide struct {
	Interface          string
	Given, Taken, Full uint64
	TooLong            uint64   `json:"too_long"`
	Gone               bool     // somebody has taken the interface away
	Foreign            []string // addresses that somebody else has given it
}

// Tuple is where a packet comes from and goes to.
type Tuple struct{ Source, Destination netip.AddrPort }

// Original is the tuple of the originator's packets.
func (c *Connection) Original() Tuple {
	return Tuple{
		netip.AddrPortFrom(c.Source, c.SourcePort),
		netip.AddrPortFrom(c.Destination, c.DestinationPort),
	}
}

// Reply is the tuple of what the other side sends: the reverse, where nothing is translated.
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

// Explanation is the answer to GET /explain. Worker is nil where no worker is the packet's own.
type Explanation struct {
	Worker     *int
	Side       *string
	Service    *string
	Backend    *string
	Connection *Connection
	Verdict    string
	Why        string
}

// Reloaded is the answer to POST /reload.
type Reloaded struct {
	Services, Backends uint64
	TookMs             float64 `json:"took_ms"`
	Warnings           []string
}

// Shards is what GET /shards answers. There are none where each worker serves what it receives.
type Shards struct {
	Workers int     `json:"workers"`
	InUse   int     `json:"in_use"` // the first so many are meant to have shards
	Level   bool    `json:"level"`  // they may move, and do so by themselves
	Shards  []Shard `json:"shards"`
}

// Shard is an entry of the indirection table.
type Shard struct {
	Shard   int    `json:"shard"`
	Worker  int    `json:"worker"`
	Packets uint64 `json:"packets"` // served so far
	Moves   uint64 `json:"moves"`
}

// MovedShard is what POST /shards/move answers.
type MovedShard struct {
	Shard  int     `json:"shard"`
	Worker int     `json:"worker"`
	TookMs float64 `json:"took_ms"`
}
