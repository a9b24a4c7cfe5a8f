package api

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"net/netip"

	"github.com/valyala/fastjson"
)

// Connection is a line of the answer to GET /connections. ExpiresMs is nil if the connection never
// expires; the fields of the reply direction are zero if replies do not pass through millrace.
type Connection struct {
	Protocol        string
	Source          netip.Addr
	SourcePort      uint16
	Destination     netip.Addr
	DestinationPort uint16
	State           string
	IdleMs          uint64
	ExpiresMs       *uint64
	Worker          int
	Service         string
	Backend         string
	Rule            string // of the firewall
	Customer        string // behind a tunnel or in a VLAN

	ReplySource          netip.Addr
	ReplySourcePort      uint16
	ReplyDestination     netip.Addr
	ReplyDestinationPort uint16
}

// EachConnection calls `take` for each line until `take` returns an error, and returns that error. It
// also returns an error if the answer breaks off or cannot be read. It reads one line at a time, and
// overwrites the Connection after `take` has returned.
func EachConnection(lines io.Reader, take func(*Connection) error) error {
	reader := bufio.NewReaderSize(lines, 1<<16)
	var parser fastjson.Parser
	var c Connection
	for {
		line, err := reader.ReadSlice('\n')
		if err == io.EOF && len(line) == 0 {
			return nil
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err == nil {
			err = c.read(&parser, line)
		}
		if err != nil {
			return fmt.Errorf("the answer broke off: %w", err)
		}
		if err := take(&c); err != nil {
			return err
		}
	}
}

// UnmarshalJSON decodes the connection of an explanation; null leaves c unchanged.
func (c *Connection) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	return c.read(&fastjson.Parser{}, text)
}

// read decodes a connection in a fraction of the time that encoding/json takes: a list may have
// millions of lines.
func (c *Connection) read(parser *fastjson.Parser, text []byte) error {
	value, err := parser.ParseBytes(text)
	if err != nil {
		return err
	}
	object, err := value.Object()
	if err != nil {
		return err
	}
	r := reader{object: object}
	*c = Connection{
		Protocol:             r.text("protocol"),
		Source:               r.address("source"),
		SourcePort:           r.port("source_port"),
		Destination:          r.address("destination"),
		DestinationPort:      r.port("destination_port"),
		State:                r.text("state"),
		IdleMs:               r.number("idle_ms"),
		Worker:               int(r.number("worker")),
		Service:              r.text("service"),
		Backend:              r.text("backend"),
		Rule:                 r.text("rule"),
		Customer:             r.text("customer"),
		ReplySource:          r.address("reply_source"),
		ReplySourcePort:      r.port("reply_source_port"),
		ReplyDestination:     r.address("reply_destination"),
		ReplyDestinationPort: r.port("reply_destination_port"),
	}
	if r.value("expires_ms") != nil {
		ms := r.number("expires_ms")
		c.ExpiresMs = &ms
	}
	return r.err
}

// reader reads the values of an object, and keeps the first error. A value that is missing or null is
// read as zero.
type reader struct {
	object *fastjson.Object
	err    error
}

func (r *reader) keep(key string, err error) {
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("%s: %w", key, err)
	}
}

// value returns nil if the value is missing or null.
func (r *reader) value(key string) *fastjson.Value {
	value := r.object.Get(key)
	if value != nil && value.Type() == fastjson.TypeNull {
		return nil
	}
	return value
}

func (r *reader) text(key string) string {
	value := r.value(key)
	if value == nil {
		return ""
	}
	text, err := value.StringBytes()
	r.keep(key, err)
	return string(text)
}

func (r *reader) number(key string) uint64 {
	value := r.value(key)
	if value == nil {
		return 0
	}
	number, err := value.Uint64()
	r.keep(key, err)
	return number
}

func (r *reader) port(key string) uint16 {
	number := r.number(key)
	if number > math.MaxUint16 {
		r.keep(key, fmt.Errorf("%d is no port", number))
	}
	return uint16(number)
}

func (r *reader) address(key string) netip.Addr {
	text := r.text(key)
	if text == "" {
		return netip.Addr{}
	}
	address, err := netip.ParseAddr(text)
	r.keep(key, err)
	return address
}
