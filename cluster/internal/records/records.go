// Package records is what managers and agents keep in the store: its keys, and its values as JSON.
package records

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strconv"
	"strings"

	"millrace/control/cluster/internal/store"
)

// ServerID numbers the servers of a cluster, from 1 on. 0 is none.
type ServerID uint32

// ShardID numbers the shards of a cluster.
type ShardID uint32

// Member is a process of a server. The processes of a server are numbered from 1 on, so that a server's record tells which
// members of it are gone.
type Member struct {
	Server  ServerID
	Process uint32
}

// Number returns the member's number in messages between dataplanes (src/replicate/message.h).
func (m Member) Number() uint64 { return uint64(m.Server)<<32 | uint64(m.Process) }

// IsNone returns true for the zero value.
func (m Member) IsNone() bool { return m == Member{} }

// String returns the name under which the member is present: "SERVER.PROCESS", and "none" for none.
func (m Member) String() string {
	if m.IsNone() {
		return "none"
	}
	return fmt.Sprintf("%d.%d", m.Server, m.Process)
}

// MarshalText returns the member's name.
func (m Member) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText reads a member's name.
func (m *Member) UnmarshalText(text []byte) error {
	if string(text) == "none" {
		*m = Member{}
		return nil
	}
	server, process, _ := strings.Cut(string(text), ".")
	s, errServer := strconv.ParseUint(server, 10, 32)
	p, errProcess := strconv.ParseUint(process, 10, 32)
	if errServer != nil || errProcess != nil || s == 0 || p == 0 {
		return fmt.Errorf("member %q: must be SERVER.PROCESS, two numbers from 1 on", text)
	}
	*m = Member{ServerID(s), uint32(p)}
	return nil
}

// Server is a server of the cluster, under the key servers/ID.
type Server struct {
	Name     string  `json:"name"`
	Rack     string  `json:"rack,omitempty"`     // empty: not named
	Capacity float64 `json:"capacity"`           // in the unit of loads
	Draining bool    `json:"draining,omitempty"` // as an operator wants
	// Spare servers are not in use: the manager has taken them out, and takes them in again as the load needs it.
	Spare bool `json:"spare,omitempty"`
	// Process is the number of the newest process. All earlier ones are gone: a process takes a number
	// once its predecessor's dataplane has given everything up, and an operator who knows that a server is lost for good takes one.
	Process uint32 `json:"process"`
	// Address is where the other servers' dataplanes reach the newest process's dataplane.
	Address string `json:"address,omitempty"`
	// Wanted is how many grants each copy there should have, until it says so itself: so a shard's first copies have grants from the first assignment on.
	Wanted uint32 `json:"wanted,omitempty"`
	// Instances are the names by which dataplanes know each other (millrace makes one at each start), by number of process: of the newest
	// process, unless nobody is there, and of some before it, since older assignments may name these.
	Instances map[uint32]string `json:"instances,omitempty"`
}

// IsInUse returns true if packets should come to the server.
func (s Server) IsInUse() bool { return !s.Draining && !s.Spare }

// keptInstances is how many processes of a server have their instances in its record.
const keptInstances = 8

// Next returns the server's record with another process, which makes all earlier ones gone. An empty instance is nobody's: the number
// of a process that there never will be.
func (s Server) Next(instance, address string) Server {
	s.Process++
	s.Address = address
	kept := map[uint32]string{}
	for process, of := range s.Instances {
		if process+keptInstances > s.Process {
			kept[process] = of
		}
	}
	if instance != "" {
		kept[s.Process] = instance
	}
	s.Instances = kept
	return s
}

// Shard is a shard's assignment and its grants, under the key shards/ID. Each new assignment has the next epoch.
type Shard struct {
	Epoch  uint64 `json:"epoch"`
	Master Member `json:"master"`
	Slave  Member `json:"slave"`
	// Unsettled are members that had a role in an earlier assignment, and do not follow this one yet. They may go on as before.
	Unsettled []Member `json:"unsettled,omitempty"`
	// InSync is what the master has reported of this epoch.
	InSync bool `json:"in_sync,omitempty"`
	// Ready is what the slave has reported of this epoch: that it could open connections as a master. Only of shards with grants.
	Ready bool `json:"ready,omitempty"`
	// LacksConnections is what the slave has reported of this epoch: it had no place for some connections of the master. They end if it becomes the master.
	LacksConnections bool `json:"lacks_connections,omitempty"`

	Grants     Grants `json:"grants,omitempty"` // numbers are below GrantCount
	GrantCount uint32 `json:"grant_count"`
}

// CouldOpen returns true if the slave, as a master, could open connections.
func (s Shard) CouldOpen() bool { return s.Ready || len(s.Grants) == 0 }

// Clone returns a copy that shares nothing with s.
func (s Shard) Clone() Shard {
	s.Unsettled = append([]Member(nil), s.Unsettled...)
	s.Grants = maps.Clone(s.Grants)
	if s.Grants == nil {
		s.Grants = Grants{}
	}
	return s
}

// GrantsOf returns the numbers of the grants that the member has, in no order.
func (s Shard) GrantsOf(member Member) []uint32 {
	var numbers []uint32
	for number, grant := range s.Grants {
		if grant.Holder == member {
			numbers = append(numbers, number)
		}
	}
	return numbers
}

// Leader names the manager that leads, under the key leader. Each new leader has the next term.
type Leader struct {
	Member Member `json:"member"`
	Term   uint64 `json:"term"`
}

// Presence is what a member says of itself while it is present.
type Presence struct {
	// Unwell is why the member should be the master of no shard, although it goes on: in words. Empty: it is well.
	Unwell string `json:"unwell,omitempty"`
	// Loads are the loads of the shards of which the member is the master.
	Loads map[ShardID]float64 `json:"loads,omitempty"`
	// Wanted are the numbers of grants that the member would like to have of a shard, those that it has included.
	Wanted map[ShardID]uint32 `json:"wanted,omitempty"`
	// Disagrees are the servers with which the member copies nothing, and the reason in words. Empty: its dataplane does not say why.
	Disagrees map[ServerID]string `json:"disagrees,omitempty"`
	// OtherLayouts are the servers, in their order, that have other functions or versions than the member: their records of connections differ.
	OtherLayouts []ServerID `json:"other_layouts,omitempty"`
}

// LeaderKey is the key of the Leader.
const LeaderKey = "leader"

// Cluster is what all servers have in common, under the key cluster.
type Cluster struct {
	Shards uint32 `json:"shards"`
}

// ClusterKey is the key of the Cluster.
const ClusterKey = "cluster"

// Key returns the key of the server's record.
func (id ServerID) Key() string { return "servers/" + strconv.FormatUint(uint64(id), 10) }

// Key returns the key of the shard's record.
func (id ShardID) Key() string { return "shards/" + strconv.FormatUint(uint64(id), 10) }

// Record is a value as it was read.
type Record[Value any] struct {
	Value    Value
	Revision int64
	text     []byte // JSON
}

// Put returns the write of another value in place of the one that was read. Fields that only a newer version knows stay as they are, since
// a cluster's members are upgraded one after the other.
func (r Record[Value]) Put(key string, value Value) store.Put {
	fields := map[string]json.RawMessage{}
	if r.text != nil {
		if err := json.Unmarshal(r.text, &fields); err != nil {
			panic(fmt.Sprintf("%s was read, and cannot be read: %v", key, err))
		}
	}
	known := reflect.TypeFor[Value]()
	for n := range known.NumField() {
		name, _, _ := strings.Cut(known.Field(n).Tag.Get("json"), ",")
		delete(fields, name)
	}
	bytes, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(bytes, &fields)
	}
	if err == nil {
		bytes, err = json.Marshal(fields)
	}
	if err != nil {
		panic(fmt.Sprintf("%s cannot be written: %v", key, err)) // such as a capacity that is not a number
	}
	return store.Put{Key: key, Revision: r.Revision, Value: bytes}
}

// Check returns the condition that the record has not changed since it was read.
func (r Record[Value]) Check(key string) store.Put { return store.Put{Key: key, Revision: r.Revision} }

// State is a view of the store, read.
type State struct {
	Cluster Record[Cluster]
	Leader  Record[Leader]
	Servers map[ServerID]Record[Server]
	Shards  map[ShardID]Record[Shard]
	Present map[Member]Presence
}

// IsGone returns true if the member is known to do nothing any more. It never becomes false again, also not
// in an older view.
func (s *State) IsGone(member Member) bool {
	return member.Process < s.Servers[member.Server].Value.Process
}

// IsPresent returns true if the store has heard of the member lately, and it is not known to be gone.
func (s *State) IsPresent(member Member) bool {
	_, is := s.Present[member]
	return is && !s.IsGone(member)
}

// InstanceOf returns the name of the member's dataplane; empty if nobody knows it any more.
func (s *State) InstanceOf(member Member) string {
	return s.Servers[member.Server].Value.Instances[member.Process]
}

// Parse reads a view. A record that cannot be read, or cannot be true, is as in the earlier state, if there is one; the error names it. So is a shard's record that names
// a process of which the view has not got its server's record yet.
func Parse(view store.View, earlier *State) (*State, error) {
	if earlier == nil {
		earlier = &State{}
	}
	p := parser{}
	s := &State{Cluster: earlier.Cluster, Leader: earlier.Leader, Servers: map[ServerID]Record[Server]{}, Shards: map[ShardID]Record[Shard]{}, Present: map[Member]Presence{}}
	for key, record := range view.Records {
		_, name, _ := strings.Cut(key, "/")
		id, err := strconv.ParseUint(name, 10, 32)
		switch {
		case key == LeaderKey:
			s.Leader = parse(&p, key, record, earlier.Leader)
		case key == ClusterKey:
			s.Cluster = parse(&p, key, record, earlier.Cluster)
		case err != nil: // not of this version
		case ServerID(id).Key() == key:
			keep(s.Servers, ServerID(id), parse(&p, key, record, earlier.Servers[ServerID(id)]))
		case ShardID(id).Key() == key:
			was := earlier.Shards[ShardID(id)]
			is := parse(&p, key, record, was)
			if err := is.Value.check(was.Value); err != nil {
				p.err = errors.Join(p.err, fmt.Errorf("%s in the store cannot be true: %w", key, err))
				is = was
			}
			keep(s.Shards, ShardID(id), is)
		}
	}
	for id, shard := range s.Shards {
		if s.isAhead(shard.Value.Master) || s.isAhead(shard.Value.Slave) {
			delete(s.Shards, id)
			keep(s.Shards, id, earlier.Shards[id])
		}
	}
	for name, says := range view.Present {
		var member Member
		if err := member.UnmarshalText([]byte(name)); err != nil {
			continue // not of this version
		}
		s.Present[member] = parse(&p, "what "+name+" says", store.Record{Value: says, Revision: 1}, Record[Presence]{Value: earlier.Present[member]}).Value
	}
	return s, p.err
}

// mostEpoch is the greatest that millrace takes.
const mostEpoch = 1 << 62

// check returns why the record cannot be that of a shard which was as the earlier one says. Nobody writes such a record, but somebody may have edited it.
func (s Shard) check(was Shard) error {
	switch {
	case s.Epoch < was.Epoch:
		return fmt.Errorf("its epoch is %d, and was %d", s.Epoch, was.Epoch)
	case s.Epoch > mostEpoch:
		return fmt.Errorf("its epoch is %d", s.Epoch)
	case s.Epoch == was.Epoch && was.Epoch != 0 && (s.Master != was.Master || s.Slave != was.Slave):
		return fmt.Errorf("its epoch is %d with other copies than before", s.Epoch)
	case s.Master == s.Slave && !s.Master.IsNone():
		return fmt.Errorf("%v has both copies", s.Master)
	case s.Master.IsNone() && !s.Slave.IsNone():
		return fmt.Errorf("there is a slave, %v, and no master", s.Slave)
	}
	for number := range s.Grants {
		if number >= GrantCount {
			return fmt.Errorf("there is no grant %d", number)
		}
	}
	return nil
}

func (s *State) isAhead(member Member) bool {
	return member.Process > s.Servers[member.Server].Value.Process
}

type parser struct{ err error }

func parse[Value any](p *parser, key string, record store.Record, earlier Record[Value]) Record[Value] {
	if record.Revision == earlier.Revision {
		return earlier
	}
	read := Record[Value]{Revision: record.Revision, text: record.Value}
	if err := json.Unmarshal(record.Value, &read.Value); err != nil {
		p.err = errors.Join(p.err, fmt.Errorf("%s in the store cannot be read: %w", key, err))
		return earlier
	}
	return read
}

// keep adds a record unless it could never be read.
func keep[ID comparable, Value any](to map[ID]Record[Value], id ID, record Record[Value]) {
	if record.Revision != 0 {
		to[id] = record
	}
}
