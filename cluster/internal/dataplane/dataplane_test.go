package dataplane_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"millrace/control/cluster/internal/agent"
	"millrace/control/cluster/internal/dataplane"
	"millrace/control/cluster/internal/dataplane/dataplanetest"
	"millrace/control/cluster/internal/records"
	"millrace/control/internal/apitest"
)

const idle = `{"server": 3, "instance": "00000000000000aa", "address": "10.9.0.3", "shards": 128, "followed": true, "reports": []}`

func TestOrdersAndReports(t *testing.T) {
	millrace := apitest.New(t)
	millrace.On("PUT /cluster", apitest.Text(http.StatusOK, idle))
	plane, err := dataplane.Open(t.Context(), millrace.Socket)
	if err != nil || plane.Identity() != (agent.Identity{Server: 3, Instance: "00000000000000aa", Address: "10.9.0.3", Shards: 128}) {
		t.Fatalf("%+v: %v", plane, err)
	}
	millrace.On("PUT /cluster", apitest.Text(http.StatusOK, `{"instance": "00000000000000aa", "followed": true,
		"reports": [{"shard": 5, "in_sync": true, "packets": 10, "wanted": 4, "lacks_ports": true, "lacks_connections": true, "withdrawn": "1-2"}]}`))
	self, other := records.Member{Server: 3, Process: 1}, records.Member{Server: 2, Process: 7}
	orders := agent.Orders{Peers: []agent.Peer{{Server: 2, Instance: "00000000000000bb", Address: "10.9.0.2"}}, Shards: []agent.Order{
		{Shard: 5, Epoch: 4, Master: agent.Holder{Member: self, Instance: "00000000000000aa"}, Slave: agent.Holder{Member: other, Instance: "00000000000000bb"},
			Settled: true, Grants: []uint32{1, 2, 9}}, {Shard: 6}}}
	answer, err := plane.Follow(t.Context(), orders)
	if is := answer.Reports[5]; err != nil || len(answer.Reports) != 1 || !is.InSync || is.Wanted != 4 || len(is.Withdrawn) != 2 || is.Load != 0 || !is.LacksPorts || !is.LacksConnections {
		t.Errorf("%+v: %v", answer, err)
	}
	asked := millrace.Asked()
	// A shard that nobody has had is not named.
	const want = `{"members":[{"server":2,"instance":"00000000000000bb","address":"10.9.0.2"}],` +
		`"shards":[{"shard":5,"epoch":4,"master":"00000000000000aa","slave":"00000000000000bb","settled":true,"grants":"1-2,9"}]}`
	if asked[0].Body != `{"members":[],"shards":[]}` || !sameJSON(t, asked[1].Body, want) {
		t.Errorf("told: %q", asked)
	}

	// A report that does not say so, or denies it, means that the copy lacks nothing.
	for _, says := range []string{"", `, "lacks_ports": false, "lacks_connections": false`} {
		millrace.On("GET /cluster", apitest.Text(http.StatusOK, `{"instance": "00000000000000aa", "followed": true, "reports": [{"shard": 5`+says+`}]}`))
		answer, err = plane.Follow(t.Context(), orders)
		if is := answer.Reports[5]; err != nil || len(answer.Reports) != 1 || is.LacksPorts || is.LacksConnections {
			t.Errorf("%s: %+v: %v", says, answer, err)
		}
	}

	// Orders that have not changed are not told again, unless an answer was lost.
	millrace.On("GET /cluster", apitest.Text(http.StatusOK, `{"instance": "00000000000000aa", "followed": false}`))
	if _, err := plane.Follow(t.Context(), orders); !errors.Is(err, agent.ErrNotYet) {
		t.Errorf("while workers do not follow: %v", err)
	}
	millrace.On("PUT /cluster", apitest.Text(http.StatusConflict, `{"error": "no"}`))
	if _, err := plane.Follow(t.Context(), agent.Orders{}); err == nil || err.Error() != "no" {
		t.Errorf("refused: %v", err)
	}
	if _, err := plane.Follow(t.Context(), orders); err == nil {
		t.Error("after a refusal the earlier orders are not told again")
	}
}

func sameJSON(t *testing.T, a, b string) bool {
	t.Helper()
	var texts [2]string
	for n, text := range []string{a, b} {
		var value any
		if err := json.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		bytes, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		texts[n] = string(bytes)
	}
	return texts[0] == texts[1]
}

// Servers that millrace has never heard neither disagree nor differ.
func TestOthers(t *testing.T) {
	millrace := apitest.New(t)
	millrace.On("PUT /cluster", apitest.Text(http.StatusOK, idle))
	plane, err := dataplane.Open(t.Context(), millrace.Socket)
	if err != nil {
		t.Fatal(err)
	}
	millrace.On("GET /cluster", apitest.Text(http.StatusOK, `{"instance": "00000000000000aa", "followed": true, "members": [
		{"server": 7, "heard": true, "agrees": true, "same_layout": false, "disagreement": ""},
		{"server": 6, "heard": true, "agrees": false, "same_layout": true},
		{"server": 5, "heard": false, "agrees": false, "same_layout": true, "disagreement": "customers differ"},
		{"server": 4, "heard": false, "agrees": false, "same_layout": null},
		{"server": 2, "heard": true, "agrees": true, "same_layout": true, "disagreement": ""},
		{"server": 1, "heard": true, "agrees": true, "same_layout": false}]}`))
	answer, err := plane.Follow(t.Context(), agent.Orders{})
	if err != nil || !maps.Equal(answer.Disagrees, map[records.ServerID]string{6: "", 5: "customers differ"}) || !slices.Equal(answer.OtherLayouts, []records.ServerID{1, 7}) {
		t.Errorf("%+v: %v", answer, err)
	}
}

// Others count the copies here as gone once Open has returned: so it waits until millrace has given all of them up.
func TestOpenWaits(t *testing.T) {
	millrace := dataplanetest.New(t, 2)
	const length = 300 * time.Millisecond
	millrace.TakeTime(length)
	start := time.Now()
	if _, err := dataplane.Open(t.Context(), millrace.Socket); err != nil || time.Since(start) < length || millrace.Puts != 1 {
		t.Errorf("opened after %v with %d orders: %v", time.Since(start), millrace.Puts, err)
	}
	millrace.TakeTime(time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	if _, err := dataplane.Open(ctx, millrace.Socket); err == nil {
		t.Error("opened a millrace that has not given everything up")
	}
}

func TestAnotherProcess(t *testing.T) {
	millrace := dataplanetest.New(t, 2)
	plane, err := dataplane.Open(t.Context(), millrace.Socket)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := plane.Follow(t.Context(), agent.Orders{}); err != nil {
		t.Fatal(err)
	}
	millrace.Restart()
	if _, err := plane.Follow(t.Context(), agent.Orders{}); !errors.Is(err, agent.ErrRestarted) {
		t.Errorf("another process: %v", err)
	}
	gone := apitest.New(t)
	gone.On("PUT /cluster", apitest.Text(http.StatusOK, idle))
	if plane, err = dataplane.Open(t.Context(), gone.Socket); err != nil {
		t.Fatal(err)
	}
	gone.Socket += "x"
	if _, err := dataplane.Open(t.Context(), gone.Socket); err == nil {
		t.Error("opened nothing")
	}
}
