package cli

import (
	"strings"
	"testing"

	"millrace/control/internal/apitest"
)

const inSync = `{"number": 1, "active": true, "role": "master", "epoch": 3, "shards": 512, "shards_in_sync": 512, "in_sync": true,
 "settled": true, "gives": true, "ready": true, "disagreement": "", "counters": {"applied": 7},
 "other": {"heard": true, "number": 2, "active": false, "role": "slave", "in_sync": true, "same_layout": true}}`

const alone = `{"number": 2, "active": false, "role": "none", "epoch": 0, "shards": 512, "shards_in_sync": 3, "in_sync": false,
 "settled": false, "gives": false, "ready": false, "disagreement": "both servers have the same number: one must be 1, the other 2",
 "counters": {}, "other": null}`

const said = "server       packets and copy  in sync                 heard\n" +
	"1, this one  active, master    yes, 512 of 512 shards  -\n" +
	"2            standby, slave    yes                     yes\n"

func TestPairStatus(t *testing.T) {
	server := apitest.New(t)
	server.On("GET /pair", apitest.Text(200, inSync))
	expect(t, run(t, server.Socket, "pair", "status"), result{done, said, ""})
	expect(t, run(t, server.Socket, "pair", "status", "--json"), result{done, inSync + "\n", ""})
	expect(t, run(t, server.Socket, "pair", "ready"), result{done, "ready\n", ""})
	server.On("GET /pair", apitest.Text(200, strings.Replace(inSync, `"same_layout": true`, `"same_layout": false`, 1)))
	expect(t, run(t, server.Socket, "pair", "status"), result{done, said +
		"the servers have different functions, or versions: a function that only one has, such as a firewall, does not act at the other\n", ""})
	server.On("GET /pair", apitest.Text(200, strings.Replace(inSync, `, "same_layout": true`, "", 1)))
	expect(t, run(t, server.Socket, "pair", "status"), result{done, said, ""})
	server.On("GET /pair", apitest.Text(200, strings.Replace(inSync, `"heard": true`, `"heard": false`, 1)))
	expect(t, run(t, server.Socket, "pair", "status"), result{done, strings.Replace(said, "yes                     yes", "yes                     no", 1) +
		"server 2 is not heard now: its line shows what it said last\n", ""})
	server.On("GET /pair", apitest.Text(200, alone))
	expect(t, run(t, server.Socket, "pair", "status"), result{done,
		"server       packets and copy  in sync              heard\n" +
			"2, this one  standby           no, 3 of 512 shards  -\n" +
			"nothing is copied: both servers have the same number: one must be 1, the other 2\n", ""})
	expect(t, run(t, server.Socket, "pair", "ready"),
		result{failed, "", "millctl: not ready: both servers have the same number: one must be 1, the other 2\n"})
	server.On("GET /pair", apitest.Text(200, strings.Replace(alone, "both servers have the same number: one must be 1, the other 2", "", 1)))
	expect(t, run(t, server.Socket, "pair", "status"), result{done,
		"server       packets and copy  in sync              heard\n" +
			"2, this one  standby           no, 3 of 512 shards  -\n" +
			"the other server has never been heard\n" +
			"not settled: a process of the other server may go on with connections that this one has ended (millctl pair gone)\n" +
			"customers get no ports from this server yet: what it gave before may still be in use\n", ""})
	expect(t, run(t, server.Socket, "pair", "ready"), result{failed, "", "millctl: not ready: customers get no ports from this server yet\n"})
}

func TestPairIsTold(t *testing.T) {
	server := apitest.New(t)
	for _, word := range []string{"active", "standby", "gone"} {
		server.On("POST /pair/"+word, apitest.Text(200, inSync))
		expect(t, run(t, server.Socket, "pair", word), result{done, said, ""})
	}
	server.On("POST /pair/gone", apitest.Text(409, `{"error": "the other server is not gone"}`))
	expect(t, run(t, server.Socket, "pair", "gone"), result{failed, "", "millctl: the other server is not gone\n"})
}
