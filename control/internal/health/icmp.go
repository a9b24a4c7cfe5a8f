package health

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
)

// family has the differences between IPv4 and IPv6. Members of the groups in net.ipv4.ping_group_range may
// open a ping socket; a raw socket needs CAP_NET_RAW.
type family struct {
	ping, raw, any string
	request, reply icmp.Type
	protocol       int
}

var (
	v4 = family{"udp4", "ip4:icmp", "0.0.0.0", ipv4.ICMPTypeEcho, ipv4.ICMPTypeEchoReply, 1}
	v6 = family{"udp6", "ip6:ipv6-icmp", "::", ipv6.ICMPTypeEchoRequest, ipv6.ICMPTypeEchoReply, 58}
)

func familyOf(address netip.Addr) family {
	if address.Is4() || address.Is4In6() {
		return v4
	}
	return v6
}

func checkICMP(ctx context.Context, check Check) error {
	is := familyOf(check.To.Addr())
	socket, to, err := is.open(check.To.Addr())
	if err != nil {
		return err
	}
	defer socket.Close()
	if deadline, has := ctx.Deadline(); has {
		socket.SetDeadline(deadline)
	}
	// The reply is recognised by its data: a raw socket receives replies to other programs, too.
	nonce := make([]byte, 24)
	if _, err := rand.Read(nonce); err != nil {
		return err
	}
	id := int(nonce[0])<<8 | int(nonce[1]) // a ping socket replaces the id by one of its own
	echo := icmp.Message{Type: is.request, Body: &icmp.Echo{ID: id, Seq: 1, Data: nonce}}
	packet, err := echo.Marshal(nil)
	if err != nil {
		return err
	}
	if _, err := socket.WriteTo(packet, to); err != nil {
		return err
	}
	return is.awaitReply(socket, nonce)
}

func (is family) open(address netip.Addr) (*icmp.PacketConn, net.Addr, error) {
	ip := net.IP(address.AsSlice())
	socket, err := icmp.ListenPacket(is.ping, is.any)
	if err == nil {
		return socket, &net.UDPAddr{IP: ip, Zone: address.Zone()}, nil
	}
	if socket, err = icmp.ListenPacket(is.raw, is.any); err == nil {
		return socket, &net.IPAddr{IP: ip, Zone: address.Zone()}, nil
	}
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("%w: icmp needs CAP_NET_RAW, or a group in net.ipv4.ping_group_range", errNotTried)
	}
	return nil, nil, err
}

func (is family) awaitReply(socket *icmp.PacketConn, nonce []byte) error {
	for buffer := make([]byte, 1500); ; {
		length, _, err := socket.ReadFrom(buffer)
		if err != nil {
			return err
		}
		message, err := icmp.ParseMessage(is.protocol, buffer[:length])
		if err != nil || message.Type != is.reply {
			continue
		}
		if echo, ok := message.Body.(*icmp.Echo); ok && bytes.Equal(echo.Data, nonce) {
			return nil
		}
	}
}
