package records

import (
	"fmt"
	"maps"
	"slices"
)

// Troubles returns why a shard has not two copies in sync, or cannot use all of its ports: in words. Nothing if all is well.
func (s *State) Troubles(id ShardID) (troubles []string) {
	shard := s.Shards[id].Value
	say := func(format string, values ...any) { troubles = append(troubles, fmt.Sprintf(format, values...)) }
	s.sayOfCopy(say, "master", shard.Master)
	s.sayOfCopy(say, "slave", shard.Slave)
	if s.IsPresent(shard.Master) && s.IsPresent(shard.Slave) && !shard.InSync {
		say("the slave %v is not in sync yet, as far as the master %v has said", shard.Slave, shard.Master)
	}
	if shard.Slave.IsNone() && !s.hasRoomBeside(shard.Master) {
		say("no other server is up that does not drain")
	}
	for _, member := range shard.Unsettled {
		if !s.IsGone(member) && !s.IsPresent(member) {
			rest := ""
			if len(shard.Grants) > 0 {
				rest = ", and its ports rest"
			}
			say("process %d of server %d is lost, and may go on as before%s, until server %d runs millrace again, or you say that it has ended: millctl cluster gone %d",
				member.Process, member.Server, rest, member.Server, member.Server)
		}
	}
	// A grant that moves from one present member to another is no trouble.
	counts := map[string]int{}
	for _, grant := range shard.Grants {
		switch {
		case grant.Waits && !s.IsPresent(shard.Master):
			counts["wait for a master"]++
		case !grant.Waits && grant.Holder != shard.Master && grant.Holder != shard.Slave && !s.IsPresent(grant.Holder):
			counts["are still with "+grant.Holder.String()]++
		}
	}
	for _, where := range slices.Sorted(maps.Keys(counts)) {
		say("grants that %s: %d", where, counts[where])
	}
	return troubles
}

func (s *State) sayOfCopy(say func(string, ...any), role string, member Member) {
	switch {
	case member.IsNone():
		say("there is no %s", role)
	case s.IsGone(member):
		say("the %s %v is gone", role, member)
	case !s.IsPresent(member):
		say("the %s %v is lost", role, member)
	case s.Present[member].Unwell != "":
		say("the %s %v is unwell: %s", role, member, s.Present[member].Unwell)
	}
}

// hasRoomBeside returns true if another server than the member's could have a copy.
func (s *State) hasRoomBeside(member Member) bool {
	for id, server := range s.Servers {
		other := Member{id, server.Value.Process}
		if id != member.Server && server.Value.IsInUse() && s.IsPresent(other) && s.Present[other].Unwell == "" {
			return true
		}
	}
	return false
}
