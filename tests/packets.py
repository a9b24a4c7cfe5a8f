"""Finds the headers of a packet and does one's complement arithmetic, independently of millrace.

`dissect` returns a `Flow`: the key of the packet's flow, and the places of the fields that a load balancer
may rewrite. The module was written from the RFCs and from the text of the design, not from millrace's code.
"""

from typing import NamedTuple

import captures

ICMP, TCP, UDP, DCCP, ICMPV6, SCTP, UDP_LITE = 1, 6, 17, 33, 58, 132, 136
_HOP_BY_HOP, _ROUTING, _FRAGMENT, _DESTINATION = 0, 43, 44, 60
# Types of ICMP errors (RFC 792, 4443).
_ERRORS = {ICMP: {3, 4, 11, 12}, ICMPV6: set(range(128))}
# Types of errors with a field for the length of the quote; the place of this field, and its unit in bytes (RFC 4884, 4).
_QUOTED = {ICMP: ({3, 11, 12}, 5, 4), ICMPV6: ({1, 3}, 4, 8)}
# Types of queries, which have an identifier (RFC 792, 950, 4443, 8335).
_QUERIES = {ICMP: {0, 8, 13, 14, 15, 16, 17, 18, 42, 43}, ICMPV6: {128, 129, 160, 161}}

_TAGS = {0x8100, 0x88A8, 0x9100, 0x9200}
_MPLS = {0x8847, 0x8848}
_PPPOE = 0x8864
_PPP_IP = {0x21: 0x0800, 0x57: 0x86DD}

# Bytes of the layer 4 headers of the protocols with ports.
_L4_MINIMUM = {TCP: 20, UDP: 8, DCCP: 12, SCTP: 12, UDP_LITE: 8}
# Places, in the layer 4 header, of checksums that also cover a pseudo-header with the addresses (RFC 9293, 768, 8200, 4340, 3828).
L4_CHECKSUM = {TCP: 16, UDP: 6, ICMPV6: 2, DCCP: 6, UDP_LITE: 6}


class Flow(NamedTuple):
    key: bytes  # family, protocol, source, destination, ports: equal for packets of one flow
    family: int
    protocol: int
    l3: int
    l4: int
    end: int  # one past the last captured byte of the IP packet
    l4_wire: int  # bytes behind the headers on the wire, according to the IP header
    fragment: bool  # the first of several fragments
    ports: int  # the place of the source port, which the destination port follows; or 0
    whole: bool  # the layer 4 header is complete and consistent, and IPv4 options name no further hop


class Quote(NamedTuple):
    """An ICMP error, and the quoted packet in it, which the error's receiver had sent."""

    family: int
    l3: int
    icmp: int
    end: int  # one past the error's last captured byte
    at: int  # the beginning of the quoted packet
    quote_end: int  # one past the last quoted byte
    flow: Flow  # the flow of the quoted packet; the flow's places count from `at`


def _behind_ethernet(data, at, kind):
    """Returns the place of the IP header behind an EtherType and any tags, and its family; or None."""
    length = len(data)
    while True:
        if kind == 0x0800:
            return at, 4
        if kind == 0x86DD:
            return at, 6
        if kind in _TAGS:
            if at + 4 > length:
                return None
            kind = data[at + 2] << 8 | data[at + 3]
            at += 4
        elif kind in _MPLS:
            while True:
                if at + 4 > length:
                    return None
                bottom = data[at + 2] & 1
                at += 4
                if bottom:
                    break
            return _by_nibble(data, at)
        elif kind == _PPPOE:
            if at + 8 > length or data[at] != 0x11 or data[at + 1] != 0:
                return None
            short = data[at + 6] & 1  # the protocol is one byte if the first is odd (RFC 1661, 6.5)
            kind = _PPP_IP.get(data[at + 6] if short else data[at + 6] << 8 | data[at + 7], 0)
            at += 7 if short else 8
        elif kind < 1536 and data[at : at + 6] == b"\xaa\xaa\x03\x00\x00\x00" and at + 8 <= length:
            kind = data[at + 6] << 8 | data[at + 7]
            if kind < 1536:
                return None
            at += 8
        else:
            return None


def _by_nibble(data, at):
    if at >= len(data) or data[at] >> 4 not in (4, 6):
        return None
    return at, data[at] >> 4


def find_ip(link_type, data):
    if link_type == captures.ETHERNET:
        if len(data) < 14:
            return None
        return _behind_ethernet(data, 14, data[12] << 8 | data[13])
    if link_type == captures.SLL:
        return _behind_ethernet(data, 16, data[14] << 8 | data[15]) if len(data) >= 16 else None
    if link_type == captures.SLL2:
        return _behind_ethernet(data, 20, data[0] << 8 | data[1]) if len(data) >= 20 else None
    return _by_nibble(data, 0)


def _v4(data, l3):
    """Returns (l4, protocol, one past the IP packet on the wire, more fragments follow) or None."""
    first = data[l3]
    header = (first & 15) * 4
    total = data[l3 + 2] << 8 | data[l3 + 3]
    if first >> 4 != 4 or header < 20 or l3 + header > len(data):
        return None
    if total == 0:  # segmentation offload: the length was not known at capture
        total = len(data) - l3
    if total < header or (data[l3 + 6] & 0x1F) or data[l3 + 7]:
        return None
    return l3 + header, data[l3 + 9], l3 + total, bool(data[l3 + 6] & 0x20)


def _v6(data, l3):
    if data[l3] >> 4 != 6:
        return None
    payload = data[l3 + 4] << 8 | data[l3 + 5]
    kind, at = data[l3 + 6], l3 + 40
    fragment = False
    jumbogram = payload == 0 and kind == _HOP_BY_HOP  # RFC 2675
    wire_end = len(data) if jumbogram else at + payload
    end = min(len(data), wire_end)
    while kind in (_HOP_BY_HOP, _ROUTING, _FRAGMENT, _DESTINATION):
        if at + 8 > end:
            return None
        if kind == _ROUTING and data[at + 3]:
            return None  # the destination address is that of a hop, not of the receiver
        if kind == _FRAGMENT:
            if data[at + 2] or data[at + 3] & 0xF8:
                return None
            fragment = bool(data[at + 3] & 1)
            size = 8
        else:
            size = (data[at + 1] + 1) * 8
        kind = data[at]
        at += size
    return (at, kind, wire_end, fragment) if at <= end else None


def _source_routed(data, at, end):
    """Returns True if IPv4 options name a further hop (RFC 791, loose and strict source routing)."""
    while at + 3 <= end and data[at] != 0:
        if data[at] == 1:
            at += 1
            continue
        if data[at] in (0x83, 0x89):
            return data[at + 2] <= data[at + 1]
        at += data[at + 1] or end
    return False


def _ip(link_type, data):
    """Returns (l3, family, addresses, l4, protocol, one past the IP packet on the wire, first of several
    fragments) or None."""
    found = find_ip(link_type, data)
    if found is None:
        return None
    l3, family = found
    at, header, read = (l3 + 12, 20, _v4) if family == 4 else (l3 + 8, 40, _v6)
    if l3 + header > len(data):
        return None
    behind = read(data, l3)
    return behind and (l3, family, data[at : l3 + header], *behind)


def dissect(link_type, data):
    """Returns the packet's `Flow`, or None if it has none (no IP, a later fragment, cut too short, ...)."""
    found = _ip(link_type, data)
    if found is None:
        return None
    l3, family, addresses, l4, protocol, wire_end, fragment = found
    length = len(data)
    end = wire_end if wire_end < length else length
    ports, identity = 0, b""
    options = family == 4 and data[l3] & 15 > 5
    whole = not (options and _source_routed(data, l3 + 20, l3 + (data[l3] & 15) * 4))
    if protocol in _L4_MINIMUM:
        if l4 + 4 > end:
            return None
        ports, identity = l4, data[l4 : l4 + 4]
        whole = whole and l4 + _L4_MINIMUM[protocol] <= end
        if protocol == TCP and whole:
            header = (data[l4 + 12] >> 4) * 4
            whole = header >= 20 and l4 + header <= end
        elif protocol == UDP and whole:
            claimed = data[l4 + 4] << 8 | data[l4 + 5]
            whole = 8 <= claimed <= wire_end - l4
    elif protocol == ICMP or protocol == ICMPV6:
        if (protocol == ICMP) == (family == 4):
            if l4 + 6 > end or data[l4] not in _QUERIES[protocol]:
                return None
            identity = data[l4 + 4 : l4 + 6]
    key = bytes((family, protocol)) + addresses + identity
    return Flow(key, family, protocol, l3, l4, end, wire_end - l4, fragment, ports, whole)


def quote_of(link_type, data):
    """Returns the packet's `Quote`, or None if it is no ICMP error, if the quoted packet has no flow, or if
    the error's receiver has not sent the quoted packet."""
    found = _ip(link_type, data)
    if found is None or found[4] != (ICMP if found[1] == 4 else ICMPV6):
        return None
    l3, family, addresses, icmp, protocol, wire_end, _ = found
    end = min(wire_end, len(data))
    at = quote_end = icmp + 8
    if at > end or data[icmp] not in _ERRORS[protocol]:
        return None
    kinds, place, unit = _QUOTED[protocol]
    told = data[icmp + place] * unit if data[icmp] in kinds else 0
    quote_end = min(at + told, end) if told else end
    flow = dissect(captures.RAW, data[at:quote_end])
    if flow is None or flow.family != family:
        return None
    size = len(addresses) // 2
    if flow.key[2 : 2 + size] != addresses[size:]:
        return None
    return Quote(family, l3, icmp, end, at, quote_end, flow)


class Part(NamedTuple):
    """A fragment of a datagram."""

    datagram: bytes  # family, addresses, identification, in IPv4 the protocol: equal for fragments of one datagram (RFC 791, 8200)
    is_later: bool
    addresses: int  # the place of the source address, which the destination address follows
    size: int  # bytes of an address
    rest: bytes  # all bytes but those of the addresses and of IPv4's checksum


def part_of(link_type, data):
    """Returns the packet's `Part`, or None if it is no fragment."""
    found = find_ip(link_type, data)
    if found is None:
        return None
    l3, family = found
    at, size, header = (l3 + 12, 4, 20) if family == 4 else (l3 + 8, 16, 40)
    behind = at + 2 * size
    if len(data) < l3 + header or data[l3] >> 4 != family:
        return None
    if family == 4:
        field = int.from_bytes(data[l3 + 6 : l3 + 8], "big") & 0x3FFF
        ident, offset = data[l3 + 4 : l3 + 6] + data[l3 + 9 : l3 + 10], field & 0x1FFF
        rest = data[: l3 + 10] + data[behind:]
    else:
        kind, place = data[l3 + 6], l3 + 40
        while kind in (_HOP_BY_HOP, _ROUTING, _DESTINATION) and place + 8 <= len(data):
            kind, place = data[place], place + (data[place + 1] + 1) * 8
        if kind != _FRAGMENT or place + 8 > len(data):
            return None
        field = int.from_bytes(data[place + 2 : place + 4], "big") & 0xFFF9
        ident, offset = data[place + 4 : place + 8], field & 0xFFF8
        rest = data[:at] + data[behind:]
    if not field:
        return None
    return Part(bytes((family,)) + data[at:behind] + ident, offset != 0, at, size, rest)


def reversed_key(flow):
    """Returns the `key` of packets in the other direction."""
    size = 4 if flow.family == 4 else 16
    rest = flow.key[2 + 2 * size :]
    if flow.ports:
        rest = rest[2:] + rest[:2]
    return flow.key[:2] + flow.key[2 + size : 2 + 2 * size] + flow.key[2 : 2 + size] + rest


def sum16(data):
    """Returns the one's complement sum of `data`, an even number of bytes, as a residue modulo 65535."""
    return int.from_bytes(data, "big") % 65535  # 2^16 is 1 modulo 65535, so the number and the sum of its 16-bit words have one residue


def adjusted(checksum, old, new):
    """Returns the checksum after the covered bytes `old` became `new` (RFC 1624, equation 3)."""
    total = (~checksum & 0xFFFF) + (~sum16(old) & 0xFFFF) + sum16(new)
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def checksum(data):
    """Returns the Internet checksum (RFC 1071) of `data`, which must have a byte that is not 0."""
    return ~(sum16(data + b"\0" if len(data) % 2 else data) or 0xFFFF) & 0xFFFF


def is_wrong_error(link_type, data):
    """Returns True if the packet is a whole ICMP error with a quote and with a wrong checksum."""
    quote = quote_of(link_type, data)
    if quote is None or _ip(link_type, data)[5] > len(data):
        return False
    message = data[quote.icmp : quote.end]
    pseudo = b"" if quote.family == 4 else data[quote.l3 + 8 : quote.l3 + 40] + len(message).to_bytes(4, "big") + b"\0\0\0\x3a"
    return checksum(pseudo + message) != 0


def _crc32c_table():
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_CRC32C = _crc32c_table()


def crc32c_change(change, behind):
    """Returns the number to XOR with the CRC32c of a message (RFC 9260, appendix A) if bytes before its last
    `behind` bytes were XORed with `change`. The CRC is linear, so the message's other bytes do not matter."""
    crc = 0
    for byte in change:
        crc = _CRC32C[(crc ^ byte) & 0xFF] ^ crc >> 8
    for _ in range(behind):
        crc = _CRC32C[crc & 0xFF] ^ crc >> 8
    return crc


def crc32c(message):
    """Returns the CRC32c of `message` as SCTP has it, in the order of its bytes (RFC 9260, appendix A)."""
    crc = 0xFFFFFFFF
    for byte in message:
        crc = _CRC32C[(crc ^ byte) & 0xFF] ^ crc >> 8
    return (crc ^ 0xFFFFFFFF).to_bytes(4, "little")
