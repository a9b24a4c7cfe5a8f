package manager

import (
	"time"

	"millrace/control/cluster/internal/placement"
	"millrace/control/cluster/internal/records"
	"millrace/control/cluster/internal/store"
)

// sampling is how often the load of all shards is noted.
const sampling = 10 * time.Second

// scale takes servers in and out of use. A server that is taken out loses its shards as one that drains does.
func (m *Manager) scale(now time.Duration, state *records.State) []Write {
	if m.config.Elasticity == nil {
		return nil
	}
	m.sample(now)
	servers := map[records.ServerID]placement.Spare{}
	for id, server := range state.Servers {
		// A server that an operator drains, or that is lost, is no spare.
		if state := m.servers[id]; state.what.state != placement.Lost && !server.Value.Draining {
			servers[id] = placement.Spare{Capacity: server.Value.Capacity, InUse: !server.Value.Spare, For: now - state.since}
		}
	}
	decision := m.config.Elasticity.Next(now, m.samples, servers)
	isNew := decision.Server != m.scaled.Server || decision.InUse != m.scaled.InUse
	m.scaled = decision
	if decision.Server == 0 {
		return nil
	}
	if m.config.DryRun {
		if isNew {
			m.log.Info("dry run: the manager would change which servers are in use", "server", decision.Server, "use", decision.InUse, "reason", decision.Reason)
		}
		return nil
	}
	server := state.Servers[decision.Server]
	next := server.Value
	next.Spare = !decision.InUse
	return []Write{{[]store.Put{server.Put(decision.Server.Key(), next), state.Leader.Check(records.LeaderKey)}, decision.Reason}}
}

func (m *Manager) sample(now time.Duration) {
	if last := len(m.samples) - 1; last >= 0 && now < m.samples[last].At+sampling {
		return
	}
	var load float64
	for _, of := range m.loads {
		load += of
	}
	m.samples = append(m.samples, placement.Sample{At: now, Load: load})
	// One sample before the longest time shows that the others cover it.
	for oldest := now - max(m.config.Elasticity.In, m.config.Elasticity.Out); len(m.samples) > 1 && m.samples[1].At <= oldest; {
		m.samples = m.samples[1:]
	}
}
