// Package ipfix sends records by IPFIX over UDP (RFC 7011). The library go-ipfix encodes templates and records; this package
// puts them into messages, which must not be larger than a path can carry.
//
// One goroutine at a time may use an Exporter and its templates.
package ipfix

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/vmware/go-ipfix/pkg/entities"
	"github.com/vmware/go-ipfix/pkg/registry"
)

const (
	version = 10
	// maxMessage is the largest message in bytes, unless a single record is larger: the MTU of the path is not known
	// (RFC 7011, 10.3.3).
	maxMessage = 512
	// refresh is how often templates are sent again while there are records: a collector may have missed them, or have
	// started later (RFC 7011, 8.4).
	refresh        = time.Minute
	firstTemplate  = 256
	observedDomain = 0 // all records are of the whole exporter
)

// Value is a value of an information element.
type Value = entities.InfoElementWithValue

// Exporter sends records to one collector.
type Exporter struct {
	connection net.Conn
	now        func() time.Time
	templates  []*Template
	sequence   uint32    // data records in earlier messages
	sent       time.Time // when the templates were sent last; zero if they must be sent
}

// Template is the list of elements that a record has.
type Template struct {
	id       uint16
	elements []*entities.InfoElement
	waiting  entities.Set // records that are not sent yet; nil if there are none
}

// New returns an exporter that sends to a collector, "ADDRESS:PORT".
func New(collector string) (*Exporter, error) {
	connection, err := net.Dial("udp", collector)
	if err != nil {
		return nil, err
	}
	registry.LoadRegistry()
	return &Exporter{connection: connection, now: time.Now}, nil
}

// Close closes the socket. Records that wait are lost.
func (e *Exporter) Close() error { return e.connection.Close() }

// Template makes a template of IANA's information elements with these names. All templates must be made before the first
// record is added.
func (e *Exporter) Template(names ...string) (*Template, error) {
	template := &Template{id: firstTemplate + uint16(len(e.templates))}
	for _, name := range names {
		element, err := registry.GetInfoElement(name, registry.IANAEnterpriseID)
		if err != nil {
			return nil, err
		}
		template.elements = append(template.elements, element)
	}
	e.templates = append(e.templates, template)
	return template, nil
}

// Add adds a record. The values are in the template's order: uint8, uint16, uint64, string, net.IP or time.Time, as the elements
// demand. Records wait for further ones until Flush, or until a message is full. After an error of the network the records of a
// message are lost, which the collector learns from the sequence number of the next message.
func (e *Exporter) Add(t *Template, values ...any) error {
	if len(values) != len(t.elements) {
		return fmt.Errorf("%d values for %d elements", len(values), len(t.elements))
	}
	record := make([]Value, len(values))
	size := 0
	for i, value := range values {
		var err error
		if record[i], err = valueOf(t.elements[i], value); err != nil {
			return err
		}
		size += record[i].GetLength()
	}
	var failure error
	if t.waiting != nil && entities.MsgHeaderLength+t.waiting.GetSetLength()+size > maxMessage {
		failure = e.send(t)
	}
	if t.waiting == nil {
		set, err := newSet(entities.Data, t.id)
		if err != nil {
			return err
		}
		t.waiting = set
	}
	if err := t.waiting.AddRecord(record, t.id); err != nil {
		return err
	}
	return failure
}

// Flush sends the records that wait.
func (e *Exporter) Flush() error {
	var failure error
	for _, t := range e.templates {
		if t.waiting == nil {
			continue
		}
		if err := e.send(t); err != nil {
			failure = err
		}
	}
	return failure
}

func (e *Exporter) send(t *Template) (failure error) {
	set := t.waiting
	t.waiting = nil
	defer func() { e.sequence += set.GetNumberOfRecords() }() // also of records that are lost
	if now := e.now(); e.sent.IsZero() || now.Sub(e.sent) >= refresh {
		e.sent = now
		failure = e.sendTemplates()
	}
	if err := e.write(set); err != nil {
		failure = err
	}
	return failure
}

func (e *Exporter) sendTemplates() (failure error) {
	for _, t := range e.templates {
		set, err := newSet(entities.Template, t.id)
		if err != nil {
			return err
		}
		record := make([]Value, len(t.elements))
		for i, element := range t.elements {
			if record[i], err = entities.DecodeAndCreateInfoElementWithValue(element, nil); err != nil {
				return err
			}
		}
		if err := set.AddRecord(record, t.id); err != nil {
			return err
		}
		if err := e.write(set); err != nil {
			failure = err
		}
	}
	return failure
}

// write sends a message that consists of one set. An error may concern an earlier message.
func (e *Exporter) write(set entities.Set) error {
	set.UpdateLenInHeader()
	message := entities.NewMessage(false)
	message.SetVersion(version)
	message.SetMessageLen(uint16(entities.MsgHeaderLength + set.GetSetLength()))
	message.SetExportTime(uint32(e.now().Unix()))
	message.SetSequenceNum(e.sequence)
	message.SetObsDomainID(observedDomain)
	bytes := append(message.GetMsgHeader(), set.GetHeaderBuffer()...)
	for _, record := range set.GetRecords() {
		bytes = append(bytes, record.GetBuffer()...)
	}
	_, err := e.connection.Write(bytes)
	if errors.Is(err, syscall.ECONNREFUSED) {
		// No collector listened when an earlier message arrived, and this one has not been sent yet. A collector that listens now
		// does not know the templates.
		e.sent = time.Time{}
		if _, again := e.connection.Write(bytes); again != nil {
			return again
		}
	}
	return err
}

func newSet(kind entities.ContentType, template uint16) (entities.Set, error) {
	set := entities.NewSet(false)
	return set, set.PrepareSet(kind, template)
}

func valueOf(element *entities.InfoElement, value any) (Value, error) {
	switch of := value.(type) {
	case uint8:
		if element.DataType == entities.Unsigned8 {
			return entities.NewUnsigned8InfoElement(element, of), nil
		}
	case uint16:
		if element.DataType == entities.Unsigned16 {
			return entities.NewUnsigned16InfoElement(element, of), nil
		}
	case uint64:
		if element.DataType == entities.Unsigned64 {
			return entities.NewUnsigned64InfoElement(element, of), nil
		}
	case string:
		if element.DataType == entities.String {
			return entities.NewStringInfoElement(element, of), nil
		}
	case net.IP:
		is := of.To4()
		if element.DataType == entities.Ipv6Address {
			is = of.To16()
		}
		if is != nil && len(is) == int(element.Len) {
			return entities.NewIPAddressInfoElement(element, is), nil
		}
	case time.Time:
		if element.DataType == entities.DateTimeMilliseconds {
			return entities.NewDateTimeMillisecondsInfoElement(element, uint64(of.UnixMilli())), nil
		}
	}
	return nil, fmt.Errorf("%v (%T) is no value of %s", value, value, element.Name)
}
