package records_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"millrace/control/cluster/internal/records"
	"millrace/control/cluster/internal/store"
)

func view(of map[string]string) store.View {
	view := store.View{Records: map[string]store.Record{}, Present: map[string][]byte{}}
	for key, value := range of {
		if name, is := strings.CutPrefix(key, "present/"); is {
			view.Present[name] = []byte(value)
		} else {
			view.Records[key] = store.Record{Value: []byte(value), Revision: 1}
		}
	}
	return view
}

func parse(t *testing.T, of map[string]string) *records.State {
	t.Helper()
	state, err := records.Parse(view(of), nil)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

func TestMember(t *testing.T) {
	for _, text := range []string{"", "7", "7.", ".1", "0.1", "7.0", "7.1.1", "-7.1", "7.1 ", "4294967296.1"} {
		var member records.Member
		if err := member.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is %v", text, member)
		}
	}
	for _, text := range []string{"7.1", "none", "4294967295.4294967295"} {
		var member records.Member
		if err := member.UnmarshalText([]byte(text)); err != nil || member.String() != text {
			t.Errorf("%q is %v: %v", text, member, err)
		}
	}
}

// A record that cannot be read stays as it was. What another version may have added is passed over.
func TestParse(t *testing.T) {
	good := map[string]string{"servers/7": `{"name":"a","process":3,"new":1}`, "shards/5": `{"epoch":4,"master":"7.3","grants":{"7.3":"2"}}`,
		"present/7.3": `{"loads":{"5":0.5}}`, "leader": `{"member":"7.3","term":2}`, "other/1": "?", "present/someone": "?"}
	state := parse(t, good)
	if state.Shards[5].Value.Grants[2].Holder != (records.Member{Server: 7, Process: 3}) || state.Leader.Value.Term != 2 || state.Present[records.Member{Server: 7, Process: 3}].Loads[5] != 0.5 {
		t.Errorf("read as %+v", state)
	}
	bad := view(map[string]string{"servers/7": `{`, "shards/5": `{"master":"x"}`, "shards/6": `[]`, "present/7.3": `{"loads":{"5":0.5}}`, "leader": `{"member":"7.3","term":2}`})
	for key, record := range bad.Records {
		record.Revision = 2
		bad.Records[key] = record
	}
	next, err := records.Parse(bad, state)
	if err == nil || next.Shards[5].Value.Epoch != 4 || next.Shards[5].Revision != 1 || next.Servers[7].Value.Process != 3 || len(next.Shards) != 1 {
		t.Errorf("read as %+v: %v", next, err)
	}
}

// A view may have a shard's record, and not yet the record of the server of its master: then the shard is as it was.
func TestParseAhead(t *testing.T) {
	before := parse(t, map[string]string{"servers/7": `{"process":3}`, "shards/5": `{"epoch":4,"master":"7.3"}`})
	ahead := view(map[string]string{"servers/7": `{"process":3}`, "shards/5": `{"epoch":5,"master":"none","slave":"7.4"}`, "shards/6": `{"master":"8.1"}`})
	ahead.Records["shards/5"] = store.Record{Value: ahead.Records["shards/5"].Value, Revision: 2}
	between, err := records.Parse(ahead, before)
	if err != nil || between.Shards[5].Value.Epoch != 4 || len(between.Shards) != 1 {
		t.Errorf("read as %+v: %v", between.Shards, err)
	}
	ahead.Records["servers/7"] = store.Record{Value: []byte(`{"process":4,"instances":{"3":"x","4":"y"}}`), Revision: 3}
	after, err := records.Parse(ahead, between)
	if err != nil || after.Shards[5].Value.Epoch != 5 {
		t.Errorf("read as %+v: %v", after.Shards, err)
	}
	for member, want := range map[records.Member]string{{Server: 7, Process: 3}: "x", {Server: 7, Process: 4}: "y", {Server: 7, Process: 2}: "", {Server: 8, Process: 1}: ""} {
		if is := after.InstanceOf(member); is != want {
			t.Errorf("%v is %q", member, is)
		}
	}
}

func TestTroubles(t *testing.T) {
	cluster := map[string]string{"servers/1": `{"process":2}`, "servers/2": `{"process":2}`, "servers/3": `{"process":1,"draining":true}`,
		"servers/4": `{"process":1}`, "present/1.2": `{}`, "present/3.1": `{}`, "present/4.1": `{"unwell":"a link is down"}`}
	for _, test := range []struct {
		shard string
		want  []string
	}{
		{`{"master":"1.2","slave":"3.1","in_sync":true}`, nil},
		{`{"master":"1.2","slave":"3.1"}`, []string{"the slave 3.1 is not in sync yet, as far as the master 1.2 has said"}},
		{`{"master":"1.2","slave":"none"}`, []string{"there is no slave", "no other server is up that does not drain"}},
		{`{"master":"4.1","slave":"3.1","in_sync":true}`, []string{"the master 4.1 is unwell: a link is down"}},
		{`{"master":"3.1","slave":"none"}`, []string{"there is no slave"}},
		{`{"master":"2.1","slave":"2.2"}`, []string{"the master 2.1 is gone", "the slave 2.2 is lost"}},
		{`{"master":"1.2","slave":"3.1","in_sync":true,"unsettled":["2.2","2.1","1.2"]}`,
			[]string{"process 2 of server 2 is lost, and may go on as before, until server 2 runs millrace again, or you say that it has ended: millctl cluster gone 2"}},
		{`{"master":"1.2","slave":"3.1","in_sync":true,"unsettled":["2.2"],"grants":{"1.2":"1"}}`,
			[]string{"process 2 of server 2 is lost, and may go on as before, and its ports rest, until server 2 runs millrace again, or you say that it has ended: millctl cluster gone 2"}},
		{`{"master":"1.2","slave":"3.1","in_sync":true,"grants":{"1.2":"1","2.2":"2,4","waits":"3"}}`,
			[]string{"grants that are still with 2.2: 2"}},
		{`{"master":"2.2","slave":"3.1","grants":{"1.2":"1","waits":"3"}}`, []string{"the master 2.2 is lost", "grants that wait for a master: 1"}},
		{`{"master":"1.2","slave":"3.1","in_sync":true,"grants":{"1.2":"1","4.1":"2,4","waits":"3"}}`, nil},
	} {
		cluster["shards/5"] = test.shard
		if is := parse(t, cluster).Troubles(5); !slices.Equal(is, test.want) {
			t.Errorf("%s: %q", test.shard, is)
		}
	}
}

func TestClusterTroubles(t *testing.T) {
	is := parse(t, map[string]string{"servers/1": `{"process":2}`, "servers/2": `{"process":1}`, "servers/3": `{"process":1}`, "servers/4": `{"process":1}`,
		"present/1.1": `{"disagrees":{"4":"it is gone"}}`, "present/1.2": `{"disagrees":{"2":"customers differ","3":""},"other_layouts":[2,4]}`,
		"present/2.1": `{"disagrees":{"1":"customers differ"}}`, "present/3.1": `{}`, "present/4.1": `{"other_layouts":[1,3]}`,
		"shards/5": `{"master":"1.2","slave":"3.1","in_sync":true,"lacks_connections":true}`, "shards/6": `{"master":"1.2","slave":"3.1","lacks_connections":true}`,
		"shards/7": `{"master":"1.2","slave":"3.1"}`, "shards/8": `{"master":"2.1","slave":"1.1","lacks_connections":true}`}).ClusterTroubles()
	const layouts = " have different functions, or versions: a function that only one has, such as a firewall, does not act at the other"
	if want := []string{"servers 1 and 2 disagree: customers differ, so nothing is copied between them", "servers 1 and 3 disagree, so nothing is copied between them",
		"servers 1 and 4" + layouts, "servers 3 and 4" + layouts,
		"2 shards: server 3 refused connections of the copy (compare functions, pools and table sizes)"}; !slices.Equal(is, want) {
		t.Errorf("%q instead of %q", is, want)
	}
}

func TestGrants(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		grants := records.Grants{}
		for number := range uint32(random.IntN(60)) {
			switch random.IntN(4) {
			case 0:
				grants[number] = records.Grant{Waits: true}
			case 1, 2:
				grants[number] = records.Grant{Holder: records.Member{Server: records.ServerID(1 + random.IntN(2)), Process: 1}}
			}
		}
		text, err := json.Marshal(grants)
		if err != nil {
			t.Fatal(err)
		}
		var again records.Grants
		if err := json.Unmarshal(text, &again); err != nil || !maps.Equal(again, grants) {
			t.Fatalf("%s: %v instead of %v: %v", text, again, grants, err)
		}
	}
	text, err := json.Marshal(records.Grants{0: {Waits: true}, 3: {Waits: true}, 4: {Waits: true}, 5: {Waits: true}})
	if err != nil || string(text) != `{"waits":"0,3-5"}` {
		t.Errorf("%s: %v", text, err)
	}
	for _, bad := range []string{`{"7.3":""}`, `{"7.3":"3-1"}`, `{"7.3":"1-"}`, `{"7.3":"-1"}`, `{"7.3":"0-4294967295"}`, `{"0.1":"1"}`, `{"7.3":"1-3","7.4":"2"}`, `[]`, `{"7.3":7}`} {
		var grants records.Grants
		if err := json.Unmarshal([]byte(bad), &grants); err == nil {
			t.Errorf("%s is %v", bad, grants)
		}
	}
}

// Fields of a newer version stay, and fields that are empty now do not.
func TestPut(t *testing.T) {
	state := parse(t, map[string]string{"servers/7": `{"process":3}`, "shards/5": `{"epoch":4,"new":{"x":[1,2]},"in_sync":true,"master":"7.3","slave":"none","grants":{"7.3":"1"},"grant_count":2}`, "shards/05": "?"})
	next := state.Shards[5].Value.Clone()
	next.Epoch, next.InSync = 5, false
	delete(next.Grants, 1)
	put := state.Shards[5].Put("shards/5", next)
	if want := `{"epoch":5,"grant_count":2,"master":"7.3","new":{"x":[1,2]},"slave":"none"}`; string(put.Value) != want || put.Revision != 1 || put.Key != "shards/5" {
		t.Errorf("%s at %d instead of %s", put.Value, put.Revision, want)
	}
}
