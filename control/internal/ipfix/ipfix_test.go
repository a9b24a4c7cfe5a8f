package ipfix

import (
	"encoding/binary"
	"net"
	"strings"
	"testing"
	"time"
)

// collector receives messages at a socket of its own.
type collector struct {
	*testing.T
	net.PacketConn
}

func listen(t *testing.T, address string) collector {
	t.Helper()
	connection, err := net.ListenPacket("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { connection.Close() })
	return collector{t, connection}
}

// message is the header of a received message, the id of its set, and the set's records.
type message struct {
	sequence uint32
	set      uint16
	records  []byte
}

func (c collector) next() message {
	c.Helper()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	bytes := make([]byte, 1<<16)
	n, _, err := c.ReadFrom(bytes)
	if err != nil {
		c.Fatal(err)
	}
	bytes = bytes[:n]
	u16 := binary.BigEndian.Uint16
	if u16(bytes) != 10 || int(u16(bytes[2:])) != n || int(u16(bytes[18:])) != n-16 {
		c.Fatalf("a wrong header: % x", bytes[:20])
	}
	return message{binary.BigEndian.Uint32(bytes[8:]), u16(bytes[16:]), bytes[20:]}
}

func newExporter(t *testing.T, to net.Addr) (*Exporter, *Template, *Template) {
	t.Helper()
	e, err := New(to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	names, err := e.Template("observationTimeMilliseconds", "selectorName")
	if err != nil {
		t.Fatal(err)
	}
	ports, err := e.Template("sourceTransportPort")
	if err != nil {
		t.Fatal(err)
	}
	return e, names, ports
}

func (c collector) expectTemplates(e *Exporter) {
	c.Helper()
	for i, want := range []string{"\x01\x00\x00\x02\x01\x43\x00\x08\x01\x4f\xff\xff", "\x01\x01\x00\x01\x00\x07\x00\x02"} {
		if got := c.next(); got.set != 2 || string(got.records) != want {
			c.Errorf("template %d: %+v", i, got)
		}
	}
}

func check(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestMessages(t *testing.T) {
	c := listen(t, "127.0.0.1:0")
	e, names, ports := newExporter(t, c.LocalAddr())
	now := time.UnixMilli(0x0102030405)
	e.now = func() time.Time { return now }
	check(t, e.Add(names, now, "ab"), e.Add(ports, uint16(80)), e.Add(names, now, ""), e.Flush(), e.Flush())
	c.expectTemplates(e)
	const stamp = "\x00\x00\x00\x01\x02\x03\x04\x05"
	if got := c.next(); got.sequence != 0 || got.set != 256 || string(got.records) != stamp+"\x02ab"+stamp+"\x00" {
		t.Errorf("%+v", got)
	}
	// The sequence number counts the data records in earlier messages (RFC 7011, 3.1).
	if got := c.next(); got.sequence != 2 || got.set != 257 || string(got.records) != "\x00\x50" {
		t.Errorf("%+v", got)
	}
	now = now.Add(refresh - 1)
	check(t, e.Add(ports, uint16(81)), e.Flush())
	if got := c.next(); got.sequence != 3 || got.set != 257 {
		t.Errorf("%+v", got)
	}
	now = now.Add(1)
	check(t, e.Add(ports, uint16(82)), e.Flush())
	c.expectTemplates(e)
	if got := c.next(); got.sequence != 4 || string(got.records) != "\x00\x52" {
		t.Errorf("%+v", got)
	}
}

func TestMessagesAreShort(t *testing.T) {
	c := listen(t, "127.0.0.1:0")
	e, names, _ := newExporter(t, c.LocalAddr())
	const records = 100
	for i := 0; i < records; i++ {
		check(t, e.Add(names, time.Now(), strings.Repeat("x", i)))
	}
	long := strings.Repeat("y", 5000)
	check(t, e.Add(names, time.Now(), long), e.Flush())
	c.expectTemplates(e)
	seen := 0
	for seen < records {
		got := c.next()
		if size := 20 + len(got.records); size > maxMessage || int(got.sequence) != seen {
			t.Fatalf("a message of %d bytes, with number %d behind %d records", size, got.sequence, seen)
		}
		for rest := got.records; len(rest) > 0; seen++ {
			length := int(rest[8])
			if length != seen {
				t.Fatalf("record %d: %d bytes of text", seen, length)
			}
			rest = rest[9+length:]
		}
	}
	if got := c.next(); !strings.HasSuffix(string(got.records), "\xff\x13\x88"+long) {
		t.Error("a long record is not alone in its message")
	}
}

// A collector that begins to listen later gets the templates before the records.
func TestCollectorThatRestarts(t *testing.T) {
	c := listen(t, "127.0.0.1:0")
	e, _, ports := newExporter(t, c.LocalAddr())
	check(t, e.Add(ports, uint16(1)), e.Flush())
	c.Close()
	failures := 0
	for i := 0; i < 10; i++ {
		check(t, e.Add(ports, uint16(2)))
		if e.Flush() != nil {
			failures++
		}
	}
	if failures == 0 {
		t.Error("a collector that does not listen was not noticed")
	}
	again := listen(t, c.LocalAddr().String())
	check(t, e.Add(ports, uint16(3)))
	e.Flush() // its error may concern an earlier message
	again.expectTemplates(e)
	if got := again.next(); got.sequence != 11 || string(got.records) != "\x00\x03" {
		t.Errorf("%+v", got)
	}
}

func TestWrongValues(t *testing.T) {
	e, names, ports := newExporter(t, listen(t, "127.0.0.1:0").LocalAddr())
	for _, err := range []error{e.Add(ports, "80"), e.Add(ports), e.Add(names, time.Now(), uint16(1)), e.Add(ports, 80)} {
		if err == nil {
			t.Error("a wrong value was accepted")
		}
	}
	if _, err := e.Template("noSuchElement"); err == nil {
		t.Error("an unknown element was accepted")
	}
}
