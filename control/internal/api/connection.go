package api

import (
	"bufio"
	"fmt"
	"io"
	"net/netip"

	"github.com/valyala/fastjson"
)

// Connection is a line of GET /connections. ExpiresMs is nil where connections are kept for ever;
// Reply is there where replies are translated.
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

	ReplySource          netip.Addr
	ReplySourcePort      uint16
	ReplyDestination     netip.Addr
	ReplyDestinationPort uint16
}

// EachConnection calls `take` for each of the lines, of which it holds one.
func EachConnection(lines io.Reader, take func(*Connection) error) error {
	reader := bufio.NewReaderSize(lines, 1<<16)
	var parser fastjson.Parser
	for {
		line, err := reader.ReadSlice('\n')
		if err == io.EOF && len(line) == 0 {
			return nil
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		var c Connection
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

// UnmarshalJSON reads the one of an explanation.
func (c *Connection) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	return c.read(&fastjson.Parser{}, text)
}

// A list may have millions, for which encoding/json takes several times as long.
func (c *Connection) read(parser *fastjson.Parser, text []byte) error {
	object, err := parser.ParseBytes(text)
	if err != nil {
		return err
	}
	r := reader{object: object}
	*c = Connection{
		Protocol:             r.text("protocol"),
		Source:               r.address("source"),
		SourcePort:           uint16(object.GetUint("source_port")),
		Destination:          r.address("destination"),
		DestinationPort:      uint16(object.GetUint("destination_port")),
		State:                r.text("state"),
		IdleMs:               object.GetUint64("idle_ms"),
		Worker:               object.GetInt("worker"),
		Service:              r.text("service"),
		Backend:              r.text("backend"),
		ReplySource:          r.address("reply_source"),
		ReplySourcePort:      uint16(object.GetUint("reply_source_port")),
		ReplyDestination:     r.address("reply_destination"),
		ReplyDestinationPort: uint16(object.GetUint("reply_destination_port")),
	}
	if expires := object.Get("expires_ms"); expires != nil && expires.Type() == fastjson.TypeNumber {
		ms := expires.GetUint64()
		c.ExpiresMs = &ms
	}
	return r.err
}

// reader remembers the first text that is no address.
type reader struct {
	object *fastjson.Value
	err    error
}

func (r *reader) text(key string) string { return string(r.object.GetStringBytes(key)) }

func (r *reader) address(key string) netip.Addr {
	text := r.text(key)
	if text == "" {
		return netip.Addr{}
	}
	address, err := netip.ParseAddr(text)
	if err != nil && r.err == nil {
		r.err = err
	}
	return address
}
