package records

import (
	"fmt"
	"maps"
	"slices"
	"strings"
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

// ClusterTroubles returns what is not as it should be between servers, although shards may have two copies in sync: in words.
func (s *State) ClusterTroubles() (troubles []string) {
	disagreements, layouts := map[[2]ServerID]map[string]bool{}, map[[2]ServerID]bool{}
	for member, says := range s.Present {
		if s.IsGone(member) {
			continue
		}
		for other, why := range says.Disagrees {
			between := [2]ServerID{min(member.Server, other), max(member.Server, other)}
			if disagreements[between] == nil {
				disagreements[between] = map[string]bool{}
			}
			if why != "" {
				disagreements[between][why] = true
			}
		}
		for _, other := range says.OtherLayouts {
			layouts[[2]ServerID{min(member.Server, other), max(member.Server, other)}] = true
		}
	}
	for _, between := range sortedPairs(disagreements) {
		why := strings.Join(slices.Sorted(maps.Keys(disagreements[between])), ", ")
		if why != "" {
			why = ": " + why
		}
		troubles = append(troubles, fmt.Sprintf("servers %d and %d disagree%s, so nothing is copied between them", between[0], between[1], why))
		delete(layouts, between) // nobody asks for these while nothing is copied
	}
	for _, between := range sortedPairs(layouts) {
		troubles = append(troubles, fmt.Sprintf("servers %d and %d have different functions, or versions: a function that only one has, such as a firewall, does not act at the other",
			between[0], between[1]))
	}
	refused := s.Refused()
	for _, id := range slices.Sorted(maps.Keys(refused)) {
		troubles = append(troubles, Refusal(refused[id], id))
	}
	return troubles
}

// Refusal says that a server, as the slave of that many shards, refused connections.
func Refusal(shards int, id ServerID) string {
	return fmt.Sprintf("%d shards: server %d refused connections of the copy (compare functions, pools and table sizes)", shards, id)
}

// Refused returns of how many shards each server is the slave, and refused connections of the copy. No shard is moved to such a slave by plan.
func (s *State) Refused() map[ServerID]int {
	counts := map[ServerID]int{}
	for _, shard := range s.Shards {
		if shard.Value.LacksConnections && s.IsPresent(shard.Value.Slave) {
			counts[shard.Value.Slave.Server]++
		}
	}
	return counts
}

func sortedPairs[Value any](of map[[2]ServerID]Value) [][2]ServerID {
	return slices.SortedFunc(maps.Keys(of), func(a, b [2]ServerID) int { return slices.Compare(a[:], b[:]) })
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
