// Package dataplane tells a server's millrace what to do, through its control socket (docs/control.md, `GET /cluster`).
package dataplane

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"millrace/control/cluster/internal/agent"
	"millrace/control/cluster/internal/records"
	"millrace/control/internal/api"
)

// Status is the answer to GET /cluster, as far as agents need it.
type Status struct {
	Server   records.ServerID
	Instance string
	Address  string
	Shards   uint32
	Wanted   uint32
	Followed bool // all workers do as ordered
	Members  []struct {
		Server       records.ServerID
		Heard        bool
		Agrees       bool
		SameLayout   *bool  `json:"same_layout"` // nil: never heard
		Disagreement string // empty: there is none, or that version does not say
	}
	Reports []struct {
		Shard     records.ShardID
		InSync    bool `json:"in_sync"`
		Packets   uint64
		Wanted    uint32
		Lacks     bool `json:"lacks_ports"`
		Refused   bool `json:"lacks_connections"`
		Withdrawn string
	}
}

// Dataplane is agent.Dataplane. It is for one goroutine.
type Dataplane struct {
	client *api.Client
	is     agent.Identity
	told   string // the orders that are in force; empty: not known
	loads  map[records.ShardID]*rate
}

// Open makes the millrace at that socket give up what it does for the cluster, and returns it once it has: others may then count its copies as gone. With
// many connections this takes longer than a request waits.
func Open(ctx context.Context, socket string) (*Dataplane, error) {
	d := &Dataplane{client: api.New(socket), loads: map[records.ShardID]*rate{}}
	var is Status
	told := body(agent.Orders{})
	if err := d.client.Put(ctx, "/cluster", told, &is); err != nil {
		return nil, err
	}
	if is.Server == 0 || is.Instance == "" || is.Shards == 0 {
		return nil, errors.New("the answer to /cluster lacks the server's number, its instance, or the number of shards: is it another program's?")
	}
	d.is = agent.Identity{Server: is.Server, Instance: is.Instance, Address: is.Address, Shards: is.Shards, Wanted: is.Wanted}
	d.told = told
	if is.Followed {
		return d, nil
	}
	return d, d.GiveUp(ctx)
}

// GiveUp makes millrace give everything up, and waits until it has, or ctx ends.
func (d *Dataplane) GiveUp(ctx context.Context) error {
	const again = 100 * time.Millisecond
	for {
		_, err := d.Follow(ctx, agent.Orders{})
		if !errors.Is(err, agent.ErrNotYet) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", err, ctx.Err())
		case <-time.After(again):
		}
	}
}

// Identity returns what other servers are told of it.
func (d *Dataplane) Identity() agent.Identity { return d.is }

// order is a shard in the body of PUT /cluster.
type order struct {
	Shard   records.ShardID `json:"shard"`
	Epoch   uint64          `json:"epoch"`
	Master  string          `json:"master"`
	Slave   string          `json:"slave"`
	Settled bool            `json:"settled"`
	Grants  string          `json:"grants"`
}

type peer struct {
	Server   records.ServerID `json:"server"`
	Instance string           `json:"instance"`
	Address  string           `json:"address"`
}

func body(orders agent.Orders) string {
	members, shards := []peer{}, []order{}
	for _, one := range orders.Peers {
		members = append(members, peer(one))
	}
	for _, one := range orders.Shards {
		if one.Epoch == 0 { // nobody has had a copy yet
			continue
		}
		shards = append(shards, order{one.Shard, one.Epoch, one.Master.Instance, one.Slave.Instance, one.Settled, records.Ranges(one.Grants)})
	}
	text, err := json.Marshal(map[string]any{"members": members, "shards": shards})
	if err != nil {
		panic(err) // there is nothing in it that could fail
	}
	return string(text)
}

// Follow is agent.Dataplane.Follow. Orders that have not changed are not told again.
func (d *Dataplane) Follow(ctx context.Context, orders agent.Orders) (agent.Answer, error) {
	var is Status
	err := error(nil)
	if text := body(orders); text == d.told {
		err = d.client.Call(ctx, http.MethodGet, "/cluster", nil, &is)
	} else {
		d.told = "" // after an error nobody knows
		if err = d.client.Put(ctx, "/cluster", text, &is); err == nil {
			d.told = text
		}
	}
	var unreachable *api.Unreachable
	if errors.As(err, &unreachable) && ctx.Err() == nil {
		return agent.Answer{}, fmt.Errorf("%w: %w", agent.ErrRestarted, err)
	}
	if err != nil {
		return agent.Answer{}, err
	}
	if is.Instance != d.is.Instance {
		return agent.Answer{}, fmt.Errorf("%w: it is instance %s now, and was %s", agent.ErrRestarted, is.Instance, d.is.Instance)
	}
	if !is.Followed {
		return agent.Answer{}, agent.ErrNotYet
	}
	reports, err := d.reports(time.Now(), is)
	answer := agent.Answer{Reports: reports}
	for _, other := range is.Members {
		if other.Disagreement != "" || other.Heard && !other.Agrees {
			if answer.Disagrees == nil {
				answer.Disagrees = map[records.ServerID]string{}
			}
			answer.Disagrees[other.Server] = other.Disagreement
		}
		if other.SameLayout != nil && !*other.SameLayout {
			answer.OtherLayouts = append(answer.OtherLayouts, other.Server)
		}
	}
	slices.Sort(answer.OtherLayouts)
	return answer, err
}

func (d *Dataplane) reports(now time.Time, is Status) (map[records.ShardID]agent.Report, error) {
	reports := map[records.ShardID]agent.Report{}
	for _, one := range is.Reports {
		withdrawn, err := records.ParseRanges(one.Withdrawn)
		if err != nil {
			return nil, fmt.Errorf("shard %d: %w", one.Shard, err)
		}
		if d.loads[one.Shard] == nil {
			d.loads[one.Shard] = &rate{at: now, count: one.Packets}
		}
		reports[one.Shard] = agent.Report{InSync: one.InSync, Load: d.loads[one.Shard].take(now, one.Packets), Wanted: one.Wanted, LacksPorts: one.Lacks,
			LacksConnections: one.Refused, Withdrawn: withdrawn}
	}
	for id := range d.loads {
		if _, is := reports[id]; !is {
			delete(d.loads, id)
		}
	}
	return reports, nil
}

// rate is how fast a count grows: over the last whole window.
type rate struct {
	at     time.Time // when the window began
	count  uint64    // then
	second float64
}

const window = 5 * time.Second

func (r *rate) take(now time.Time, count uint64) float64 {
	switch length := now.Sub(r.at); {
	case count < r.count:
		*r = rate{at: now, count: count}
	case length >= window:
		*r = rate{now, count, float64(count-r.count) / length.Seconds()}
	}
	return r.second
}
