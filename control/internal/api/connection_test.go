package api

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
)

const line = `{"protocol":"tcp","source":"198.51.100.7","source_port":6000,"destination":"203.0.113.10",` +
	`"destination_port":80,"state":"established","idle_ms":12,"expires_ms":null,"worker":3,` +
	`"service":"203.0.113.10:80/tcp","backend":"10.0.0.1:8000"}` + "\n"

func TestEachConnection(t *testing.T) {
	expiring := strings.Replace(line, `null`, `7000`, 1)
	reply := strings.Replace(expiring, `}`, `,"reply_source":"fd00::1","reply_source_port":8000,`+
		`"reply_destination":"198.51.100.7","reply_destination_port":6000}`, 1)
	var all []Connection
	err := EachConnection(strings.NewReader(line+reply+line), func(c *Connection) error {
		all = append(all, *c)
		return nil
	})
	if err != nil || len(all) != 3 {
		t.Fatal(len(all), err)
	}
	want := Connection{
		Protocol: "tcp", Source: netip.MustParseAddr("198.51.100.7"), SourcePort: 6000,
		Destination: netip.MustParseAddr("203.0.113.10"), DestinationPort: 80, State: "established",
		IdleMs: 12, Worker: 3, Service: "203.0.113.10:80/tcp", Backend: "10.0.0.1:8000",
	}
	if all[0] != want || all[2] != want {
		t.Error(all[0], all[2])
	}
	if all[1].ExpiresMs == nil || *all[1].ExpiresMs != 7000 ||
		all[1].ReplySource != netip.MustParseAddr("fd00::1") || all[1].ReplyDestinationPort != 6000 {
		t.Error(all[1])
	}
}

func TestEachConnectionEnds(t *testing.T) {
	enough := errors.New("enough")
	taken := 0
	err := EachConnection(strings.NewReader(line+line), func(*Connection) error {
		taken++
		return enough
	})
	if err != enough || taken != 1 {
		t.Error(taken, err)
	}
}

func TestBrokenLines(t *testing.T) {
	for _, broken := range []string{
		line[:len(line)-1], // without the end of the line
		line[:40],
		"\n", "7\n", "[]\n", "null\n",
		strings.Replace(line, `6000`, `70000`, 1),
		strings.Replace(line, `6000`, `"6000"`, 1),
		strings.Replace(line, `12`, `-12`, 1),
		strings.Replace(line, `"tcp"`, `6`, 1),
		strings.Replace(line, `198.51.100.7`, `198.51.100`, 1),
		strings.Replace(line, `null`, `"never"`, 1),
	} {
		taken := 0
		err := EachConnection(strings.NewReader(line+broken), func(*Connection) error {
			taken++
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), "broke off") || taken != 1 {
			t.Error(broken, taken, err)
		}
	}
}
