package conntrack

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"millrace/control/internal/api"
)

func lines(t *testing.T, path string) []string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

func connection(t *testing.T, line string) *api.Connection {
	t.Helper()
	var c api.Connection
	if err := json.Unmarshal([]byte(line), &c); err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return &c
}

// kernel.txt was printed by conntrack 1.4.7, for entries that conntrack had created (HEARTBEAT_SENT, which it
// cannot create, was printed for a heartbeat); millrace.jsonl has the same connections in the form in which millrace lists them.
func TestLinesAreConntracksOwn(t *testing.T) {
	kernel, ours := lines(t, "testdata/kernel.txt"), lines(t, "testdata/millrace.jsonl")
	if len(kernel) != len(ours) {
		t.Fatalf("%d lines of the kernel's, %d of ours", len(kernel), len(ours))
	}
	seen := map[string]bool{}
	for i, line := range ours {
		c := connection(t, line)
		seen[c.State] = true
		if got := Line(c); got != kernel[i] {
			t.Errorf("%s\n got %s\nwant %s", line, got, kernel[i])
		}
	}
	for name := range states {
		if !seen[name] && name != "none" {
			t.Errorf("no line has the state %s", name)
		}
	}
}

func TestWhatIsNotKnown(t *testing.T) {
	const ends = `"source": "192.0.2.1", "source_port": 1, "destination": "192.0.2.2", "destination_port": 2`
	for _, c := range []struct{ what, json, want string }{
		{"kept for ever", `{"protocol": "udp", "state": "udp", "expires_ms": null, ` + ends + `}`,
			"udp      17 src=192.0.2.1 dst=192.0.2.2 sport=1 dport=2 src=192.0.2.2 dst=192.0.2.1 sport=2 dport=1 mark=0 use=1"},
		{"a newer state", `{"protocol": "tcp", "state": "stalled", "expires_ms": 1999, ` + ends + `}`,
			"tcp      6 1 STALLED src=192.0.2.1 dst=192.0.2.2 sport=1 dport=2 src=192.0.2.2 dst=192.0.2.1 sport=2 dport=1 mark=0 use=1"},
		{"GRE, whose keys are not read", `{"protocol": "gre", "state": "other", "expires_ms": 0, "source": "192.0.2.1", "destination": "192.0.2.2"}`,
			"gre      47 0 src=192.0.2.1 dst=192.0.2.2 srckey=0x0 dstkey=0x0 src=192.0.2.2 dst=192.0.2.1 srckey=0x0 dstkey=0x0 mark=0 use=1"},
	} {
		if got := Line(connection(t, c.json)); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.what, got, c.want)
		}
	}
}
