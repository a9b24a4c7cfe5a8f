package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"millrace/control/cluster/internal/records"
)

// report is what `status --json` prints. docs/cluster.md describes it.
type report struct {
	Cluster string         `json:"cluster"`
	Leader  uint32         `json:"leader"` // the server whose manager leads; 0: none that is present
	Servers []serverReport `json:"servers"`
	Shards  []shardReport  `json:"shards"`
	// Troubles are between servers, although shards may have two copies in sync.
	Troubles []string `json:"troubles"`
}

type serverReport struct {
	Server   uint32  `json:"server"`
	Name     string  `json:"name"`
	Rack     string  `json:"rack"`
	Capacity float64 `json:"capacity"`
	State    string  `json:"state"`
	Why      string  `json:"why"` // it is unwell
	Process  uint32  `json:"process"`
	Instance string  `json:"instance"`
	Address  string  `json:"address"`
	Masters  int     `json:"masters"`
	Slaves   int     `json:"slaves"`
	Load     float64 `json:"load"` // packets a second of the shards of which it is the master
}

type shardReport struct {
	Shard    uint32   `json:"shard"`
	Epoch    uint64   `json:"epoch"`
	Master   uint32   `json:"master"` // a server; 0: none
	Slave    uint32   `json:"slave"`
	InSync   bool     `json:"in_sync"`
	Settled  bool     `json:"settled"`
	Lacks    bool     `json:"lacks_connections"` // the slave refused some of the copy
	Troubles []string `json:"troubles"`
}

func stateOf(state *records.State, id records.ServerID) (is, why string) {
	server, member := state.Servers[id].Value, newest(state, id)
	switch presence, isPresent := state.Present[member]; {
	case !isPresent && state.InstanceOf(member) == "":
		return "gone", ""
	case !isPresent:
		return "lost", ""
	case presence.Unwell != "":
		return "unwell", presence.Unwell
	case server.Draining:
		return "drains", ""
	case server.Spare:
		return "spare", ""
	}
	return "up", ""
}

func reportOf(name string, state *records.State) report {
	r := report{Cluster: name, Servers: []serverReport{}, Shards: []shardReport{}, Troubles: append([]string{}, state.ClusterTroubles()...)}
	if leader := state.Leader.Value.Member; state.IsPresent(leader) {
		r.Leader = uint32(leader.Server)
	}
	for _, id := range slices.Sorted(maps.Keys(state.Servers)) {
		server, member := state.Servers[id].Value, newest(state, id)
		one := serverReport{Server: uint32(id), Name: server.Name, Rack: server.Rack, Capacity: server.Capacity, Process: server.Process,
			Instance: state.InstanceOf(member), Address: server.Address}
		one.State, one.Why = stateOf(state, id)
		one.Masters, one.Slaves = copies(state, id)
		for _, load := range state.Present[member].Loads {
			one.Load += load
		}
		r.Servers = append(r.Servers, one)
	}
	for _, id := range slices.Sorted(maps.Keys(state.Shards)) {
		shard := state.Shards[id].Value
		one := shardReport{Shard: uint32(id), Epoch: shard.Epoch, Master: uint32(shard.Master.Server), Slave: uint32(shard.Slave.Server),
			InSync: shard.InSync, Settled: !slices.ContainsFunc(shard.Unsettled, func(m records.Member) bool { return !state.IsGone(m) }), Lacks: shard.LacksConnections, Troubles: []string{}}
		one.Troubles = append(one.Troubles, state.Troubles(id)...)
		r.Shards = append(r.Shards, one)
	}
	return r
}

func (a *app) status() *cobra.Command {
	asJSON, perShard := false, false
	command := &cobra.Command{
		Use:   "status [--shards] [--json]",
		Short: "Show servers, shards, and what is not as it should be",
		Long: `Shows the servers, how many shards each is the master and the slave of, and what is not as it should be. A server that is lost
has not been heard of by the store; one that is gone is known to do nothing any more; one that is unwell cannot reach the switches of one side.`,
		Args: cobra.NoArgs,
		RunE: a.with(func(ctx context.Context, c *cluster, _ []string) error {
			state, err := c.state(ctx)
			if err != nil {
				return err
			}
			is := reportOf(c.config.Cluster, state)
			if asJSON {
				text, err := json.MarshalIndent(is, "", "  ")
				c.say("%s", text)
				return err
			}
			return c.show(is, state, perShard)
		}),
	}
	command.Flags().BoolVar(&perShard, "shards", false, "show each shard")
	command.Flags().BoolVar(&asJSON, "json", false, "print a JSON object; docs/cluster.md describes it")
	return command
}

func (c *cluster) show(is report, state *records.State, perShard bool) error {
	table := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "server\tname\track\tstate\tmasters\tslaves\tpackets/s\taddress")
	for _, one := range is.Servers {
		what := one.State
		if one.Server == is.Leader {
			what += ", leads"
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%d\t%d\t%.0f\t%s\n", one.Server, one.Name, dash(one.Rack), what, one.Masters, one.Slaves, one.Load, dash(one.Address))
	}
	if perShard {
		fmt.Fprintln(table, "\nshard\tmaster\tslave\tin sync\tepoch")
		for _, one := range is.Shards {
			fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%d\n", one.Shard, nameOf(state, records.ServerID(one.Master)), nameOf(state, records.ServerID(one.Slave)),
				map[bool]string{true: "yes", false: "no"}[one.InSync], one.Epoch)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, one := range is.Servers {
		if one.Why != "" {
			c.say("%s is unwell: %s", one.Name, one.Why)
		}
	}
	// A trouble that many shards have is said once.
	shards := map[string][]uint32{}
	for _, one := range is.Shards {
		for _, trouble := range one.Troubles {
			shards[trouble] = append(shards[trouble], one.Shard)
		}
	}
	for _, trouble := range slices.Sorted(maps.Keys(shards)) {
		c.say("shards %s: %s", records.Ranges(shards[trouble]), trouble)
	}
	for _, trouble := range is.Troubles {
		c.say("%s", trouble)
	}
	complete := 0
	for _, one := range state.Shards {
		if one.Value.InSync && !one.Value.LacksConnections && state.IsPresent(one.Value.Master) && state.IsPresent(one.Value.Slave) {
			complete++
		}
	}
	if complete == len(state.Shards) {
		c.say("all %d shards have two copies in sync", complete)
	} else {
		c.say("%d of %d shards have two copies in sync", complete, len(state.Shards))
	}
	return nil
}

func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}
