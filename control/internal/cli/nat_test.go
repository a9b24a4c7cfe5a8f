package cli

import (
	"testing"

	"millrace/control/internal/apitest"
)

func TestNatPools(t *testing.T) {
	const pools = `[{"pool": "homes", "addresses": 64, "blocks": 8064, "held": 12, "resting": 2, "most_held": 40, "free_ports": 4123648,
	 "nearly_empty": false, "customers": 10, "sessions": 1234, "mappings": 1000, "no_port": 0, "over_limit": 7, "no_record": 0, "nearest": [
	 {"customer": "10.0.0.5", "blocks": 4, "ports": 1947, "sessions": 2012, "percent": 95},
	 {"customer": "c17", "blocks": 1, "ports": 12, "sessions": 15, "percent": 0}]},
	 {"pool": "offices", "addresses": 1, "blocks": 126, "held": 126, "resting": 0, "most_held": 126, "free_ports": 0,
	 "nearly_empty": true, "customers": 126, "sessions": 126, "mappings": 126, "no_port": 3, "over_limit": 0, "no_record": 12, "nearest": []}]`
	server := apitest.New(t)
	server.On("GET /nat/pools", apitest.Text(200, pools))
	expect(t, run(t, server.Socket, "nat", "pools"), result{done,
		"pool     addresses  blocks  held  resting  most held  free ports  customers  sessions  mappings  no port  over limit  no record  alarm\n" +
			"homes           64   8,064    12        2         40   4,123,648         10     1,234     1,000        0           7          0  -\n" +
			"offices          1     126   126        0        126           0        126       126       126        3           0         12  nearly empty\n" +
			"\n" +
			"nearest to a limit  pool   blocks  ports  sessions  used\n" +
			"10.0.0.5            homes       4  1,947     2,012  95 %\n" +
			"c17                 homes       1     12        15   0 %\n", ""})
	expect(t, run(t, server.Socket, "nat", "pools", "--json"), result{done, pools + "\n", ""})
}

func TestNatLog(t *testing.T) {
	const places = `[{"to": "/var/log/millrace/nat.jsonl", "written": 1234, "lost": 0, "failing_since": null, "error": null},
	 {"to": "203.0.113.9:4739", "written": 1000, "lost": 7, "failing_since": "2026-11-28T12:00:00.000Z", "error": "no route"}]`
	server := apitest.New(t)
	server.On("GET /nat/log", apitest.Text(200, places))
	expect(t, run(t, server.Socket, "nat", "log"), result{done,
		"log                          written  lost  failing since             error\n" +
			"/var/log/millrace/nat.jsonl    1,234     0  -                         -\n" +
			"203.0.113.9:4739               1,000     7  2026-11-28T12:00:00.000Z  no route\n", ""})
	expect(t, run(t, server.Socket, "nat", "log", "--json"), result{done, places + "\n", ""})
	server.On("GET /nat/log", apitest.Text(200, `[]`))
	expect(t, run(t, server.Socket, "nat", "log"), result{done, "there is no log: the configuration has no [nat.log]\n", ""})
}

func TestNatCustomer(t *testing.T) {
	server := apitest.New(t)
	server.On("GET /nat/customer", apitest.Text(200, `{"forwards": [], "blocks": [
		{"pool": "homes", "address": "198.51.100.1", "first_port": 1024, "last_port": 1535, "mappings": 12, "sessions": 15, "most_sessions": 16000, "most_blocks": 4},
		{"pool": "homes", "address": "198.51.100.1", "first_port": 2048, "last_port": 2559, "mappings": 0, "sessions": 15, "most_sessions": 16000, "most_blocks": 4}]}`))
	expect(t, run(t, server.Socket, "nat", "customer", "10.0.0.5"), result{done,
		"pool   public address  ports      mappings\n" +
			"homes  198.51.100.1    1024-1535        12\n" +
			"homes  198.51.100.1    2048-2559         0\n15 sessions of at most 16,000; 2 blocks of at most 4\n", ""})
	asked := server.Asked()
	if last := asked[len(asked)-1]; last.Raw != "customer=10.0.0.5" {
		t.Errorf("asked for %s", last.Raw)
	}
	server.On("GET /nat/customer", apitest.Text(200, `{"blocks": []}`))
	expect(t, run(t, server.Socket, "nat", "customer", "10.0.0.4/31", "--json"), result{done, `{"blocks": []}` + "\n", ""})
	asked = server.Asked()
	if last := asked[len(asked)-1]; last.Raw != "customer=10.0.0.4%2F31" {
		t.Errorf("asked for %s", last.Raw)
	}
	server.On("GET /nat/customer", apitest.Text(200, `{"ranges": [{"pool": "homes", "address": "198.51.100.1", "first_port": 1024,
		"last_port": 3071}], "forwards": [], "blocks": []}`))
	expect(t, run(t, server.Socket, "nat", "customer", "10.0.0.5"), result{done, "the pool homes gives 10.0.0.5 the ports 1024-3071 of 198.51.100.1\n", ""})
	server.On("GET /nat/customer", apitest.Text(200, `{"forwards": [], "blocks": []}`))
	expect(t, run(t, server.Socket, "nat", "customer", "10.0.0.5"), result{done, "10.0.0.5 has no public ports\n", ""})
	server.On("GET /nat/customer", apitest.Text(200, `{"forwards": [{"public": "198.51.100.1:8443/tcp", "inside": "10.0.0.5:443"},
		{"public": "198.51.100.80", "inside": "10.0.0.5"}], "blocks": []}`))
	expect(t, run(t, server.Socket, "nat", "customer", "10.0.0.5"), result{done,
		"forward                inside\n198.51.100.1:8443/tcp  10.0.0.5:443\n198.51.100.80          10.0.0.5\n", ""})
}
