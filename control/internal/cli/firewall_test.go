package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"millrace/control/internal/apitest"
)

const firewallRules = `[
	{"rule": "web", "action": "accept", "gone": false, "connections": 1200, "live": 7, "packets": 30000, "bytes": 4000000,
	 "replies": 20000, "reply_bytes": 90000000, "refused": 0, "refused_bytes": 0},
	{"rule": "unused", "action": "drop", "gone": false, "connections": 0, "live": 0, "packets": 0, "bytes": 0,
	 "replies": 0, "reply_bytes": 0, "refused": 0, "refused_bytes": 0},
	{"rule": "default", "action": "drop", "gone": false, "connections": 0, "live": 0, "packets": 0, "bytes": 0,
	 "replies": 0, "reply_bytes": 0, "refused": 12, "refused_bytes": 720},
	{"rule": "old", "action": "accept", "gone": true, "connections": 3, "live": 1, "packets": 9, "bytes": 900,
	 "replies": 8, "reply_bytes": 800, "refused": 0, "refused_bytes": 0}]`

func TestFirewallRules(t *testing.T) {
	server := apitest.New(t)
	server.On("GET /firewall/rules", apitest.Text(200, firewallRules))
	got := run(t, server.Socket, "firewall", "rules")
	expect(t, got, result{done, got.out, ""})
	golden(t, "firewall_rules.txt", got.out+"\n"+run(t, server.Socket, "firewall", "rules", "--all").out)
	expect(t, run(t, server.Socket, "firewall", "rules", "--json"), result{done, firewallRules + "\n", ""})
}

func TestRulesOfConnections(t *testing.T) {
	connection := `{"protocol": "tcp", "source": "192.0.2.1", "source_port": 1, "destination": "192.0.2.2", "destination_port": 80,
		"state": "established", "idle_ms": 0, "expires_ms": null, "worker": 0, "rule": "web"}`
	line := strings.Join(strings.Fields(connection), " ")
	server := apitest.New(t)
	server.On("GET /connections", apitest.Text(200, line+"\n"))
	server.On("GET /explain", apitest.Text(200, `{"worker": 0, "side": "originator", "rule": "web", "connection": null,
		"verdict": "tracked", "why": "the rule"}`))
	expect(t, run(t, server.Socket, "connections"), result{done,
		"protocol  source       destination   state         idle  expires in  worker  rule\n" +
			"tcp       192.0.2.1:1  192.0.2.2:80  established  0.0 s       never       0  web\n", ""})
	expect(t, run(t, server.Socket, "explain", "tcp", "192.0.2.1:1", "192.0.2.2:80"), result{done,
		"tracked: the rule\n  worker      0\n  rule        web\n  connection  none\n", ""})
}

func TestFirewallSets(t *testing.T) {
	server := apitest.New(t)
	server.On("GET /firewall/sets", apitest.Text(200, `[
		{"set": "blocked", "prefixes": ["192.0.2.0/24", "2001:db8::7"], "changed": true},
		{"set": "trusted", "prefixes": [], "changed": false}]`))
	expect(t, run(t, server.Socket, "firewall", "sets"), result{done,
		"blocked: 2 prefixes, not those of the file\n  192.0.2.0/24\n  2001:db8::7\ntrusted: 0 prefixes\n", ""})
}

func TestFirewallSetChanges(t *testing.T) {
	server := apitest.New(t)
	server.On("POST /firewall/set", apitest.Text(200, `{"set": "blocked", "prefixes": 1, "changed": 2, "ended": 3}`))
	list := filepath.Join(t.TempDir(), "list")
	os.WriteFile(list, []byte("# all of them\n192.0.2.7 # one\n\n 2001:db8::/32\n"), 0o644)
	for _, c := range []struct {
		args        []string
		query, body string
	}{
		{[]string{"add", "blocked", "192.0.2.7", "2001:db8::/32"}, "action=add&set=blocked", "192.0.2.7\n2001:db8::/32"},
		{[]string{"remove", "blocked", "192.0.2.7"}, "action=remove&set=blocked", "192.0.2.7"},
		{[]string{"replace", "blocked", "--file", list}, "action=replace&set=blocked", "192.0.2.7\n2001:db8::/32"},
		{[]string{"reset", "blocked"}, "action=reset&set=blocked", ""},
	} {
		expect(t, run(t, server.Socket, append([]string{"firewall", "set"}, c.args...)...), result{done, "blocked has 1 prefix after 2 changes; 3 connections ended\n", ""})
		asked := server.Asked()
		last := asked[len(asked)-1]
		if last.What != "POST /firewall/set" || last.Raw != c.query || last.Body != c.body {
			t.Errorf("%v asked %s?%s with %q, want %s with %q", c.args, last.What, last.Raw, last.Body, c.query, c.body)
		}
	}
	for _, c := range []struct {
		args []string
		err  string
	}{
		{[]string{"firewall"}, "a command is needed: millctl firewall --help lists them"},
		{[]string{"firewall", "rule"}, "rule is no command of millctl firewall: the nearest is rules (millctl firewall --help shows what there is)"},
		{[]string{"firewall", "set"}, "a command is needed: millctl firewall set --help lists them"},
		{[]string{"firewall", "set", "add"}, "SET is missing: give the set's name, and prefixes (millctl firewall set add --help shows what there is)"},
		{[]string{"firewall", "set", "add", "blocked"}, "there are no prefixes: give at least one, or --file (millctl firewall set add --help shows what there is)"},
		{[]string{"firewall", "set", "add", "blocked", "--file", "/nowhere"}, "open /nowhere: no such file or directory"},
	} {
		expect(t, run(t, server.Socket, c.args...), result{wrongUsage, "", "millctl: " + c.err + "\n"})
	}
}
