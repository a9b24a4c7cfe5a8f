package firewall

import (
	"math"
	"net"
	"net/netip"
	"time"

	"millrace/control/internal/conntrack"
	"millrace/control/internal/ipfix"
)

// Event is a line of GET /firewall/log: the decision of a rule about the first packet of a connection.
type Event struct {
	Time                      time.Time
	Rule, Action, Verdict     string
	Interface                 string // name of the port at which the packet arrived; "" if the host itself sent it
	Protocol                  string
	Source, Destination       netip.Addr
	SourcePort                uint16     `json:"source_port"`
	DestinationPort           uint16     `json:"destination_port"`
	ICMPType                  uint8      `json:"icmp_type"`
	ICMPCode                  uint8      `json:"icmp_code"`
	TranslatedDestination     netip.Addr `json:"translated_destination"` // invalid if nothing is translated
	TranslatedDestinationPort uint16     `json:"translated_destination_port"`
	Length                    uint32     // bytes on the wire
	Missed                    uint64     // events before this one that the log does not have
}

// Values of firewallEvent, and of forwardingStatus (RFC 7270, 4.12).
const (
	flowCreated, flowDenied                       = uint8(1), uint8(3)
	forwarded, aclDeny, aclDrop, droppedByPolicer = uint8(64), uint8(129), uint8(130), uint8(138)
)

// Collector sends events by IPFIX. One goroutine at a time may use it.
type Collector struct {
	*ipfix.Exporter
	v4, v6 *ipfix.Template
	missed uint64 // events that are in no record
}

// NewCollector returns a Collector that sends to "ADDRESS:PORT".
func NewCollector(address string) (*Collector, error) {
	exporter, err := ipfix.New(address)
	if err != nil {
		return nil, err
	}
	c := &Collector{Exporter: exporter}
	for _, family := range []struct {
		template **ipfix.Template
		name     string
	}{{&c.v4, "IPv4"}, {&c.v6, "IPv6"}} {
		if *family.template, err = exporter.Template(elements(family.name)...); err != nil {
			exporter.Close()
			return nil, err
		}
	}
	return c, nil
}

func elements(family string) []string {
	return []string{"observationTimeMilliseconds", "source" + family + "Address", "destination" + family + "Address",
		"sourceTransportPort", "destinationTransportPort", "postNATDestination" + family + "Address",
		"postNAPTDestinationTransportPort", "protocolIdentifier", "icmpTypeCode" + family, "firewallEvent", "forwardingStatus",
		"dataLinkFrameSize", "notSentFlowTotalCount", "selectorName", "interfaceName"}
}

// Add adds an event, which waits until Flush or until a message is full. The errors are those of ipfix.Exporter.Add.
func (c *Collector) Add(of *Event) error {
	template := c.v4
	if of.Source.Is6() {
		template = c.v6
	}
	c.missed += of.Missed
	event, status := decision(of)
	translated, port := of.TranslatedDestination, of.TranslatedDestinationPort
	if !translated.IsValid() {
		translated, port = of.Destination, of.DestinationPort
	}
	return c.Exporter.Add(template, of.Time, net.IP(of.Source.AsSlice()), net.IP(of.Destination.AsSlice()), of.SourcePort, of.DestinationPort,
		net.IP(translated.AsSlice()), port, conntrack.ProtocolNumber(of.Protocol), uint16(of.ICMPType)<<8|uint16(of.ICMPCode), event, status,
		frameSize(of.Length), c.missed, of.Rule, of.Interface)
}

func decision(of *Event) (event, status uint8) {
	switch of.Verdict {
	case "tracked":
		return flowCreated, forwarded
	case "rejected":
		return flowDenied, aclDeny
	case "rate_limit":
		return flowDenied, droppedByPolicer
	}
	return flowDenied, aclDrop
}

func frameSize(length uint32) uint16 {
	if length > math.MaxUint16 {
		return math.MaxUint16
	}
	return uint16(length)
}
