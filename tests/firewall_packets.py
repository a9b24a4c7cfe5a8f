"""Makes packets of the conversations that kernel_firewall_test.py sends, from their IP header on, and says what a packet is."""

import struct
from typing import NamedTuple

from packets import SCTP, TCP, UDP, UDP_LITE, checksum, crc32c
from router_frames import FRAGMENT, ICMP, ICMPV6, address, datagram, summed

GRE, ESP, AH, UNKNOWN, NO_NEXT, HOP_BY_HOP, ROUTING, DESTINATION = 47, 50, 51, 253, 59, 0, 43, 60
FLAGS = "FSRPAUEC"  # of TCP, from the lowest bit
MASK = 0xFFFFFFFF


class Hosts(NamedTuple):
    """The addresses of a conversation: of the two hosts, and of a router behind each of them."""

    client: str
    server: str
    near_client: str
    near_server: str

    @property
    def family(self):
        return 6 if ":" in self.client else 4

    def of(self, by_client):
        """Returns source and destination of a packet."""
        return (self.client, self.server) if by_client else (self.server, self.client)


def spoiled(body, at):
    """Returns `body` with another checksum, which is at `at`, than the right one."""
    return body[:at] + bytes((body[at] ^ 0x55,)) + body[at + 1 :]


def tcp(source, to, ports, flags, seq=0, ack=0, data=b"", window=8192, options=b"", is_bad=False, **more):
    options += b"\1" * (-len(options) % 4)
    bits = sum(1 << FLAGS.index(flag) for flag in flags)
    head = struct.pack(">HHIIBBHHH", *ports, seq & MASK, ack & MASK, (5 + len(options) // 4) << 4, bits, window, 0, 0)
    body = summed(source, to, TCP, head + options + data, 16)
    return datagram(source, to, TCP, spoiled(body, 16) if is_bad else body, **more)


def udp(source, to, ports, data=b"data", summing=None, length=None, **more):
    """`summing`: "none" or "bad" in place of the right one. `length`: another length than the right one."""
    body = struct.pack(">HHHH", *ports, 8 + len(data) if length is None else length, 0) + data
    if summing != "none":
        body = summed(source, to, UDP, body, 6)
    return datagram(source, to, UDP, spoiled(body, 6) if summing == "bad" else body, **more)


def udp_lite(source, to, ports, data=b"data", coverage=8, is_bad=False):
    """`coverage`: bytes that the checksum covers (RFC 3828, 3.1). The pseudo-header has the whole length."""
    body = struct.pack(">HHHH", *ports, coverage, 0) + data
    covered = body[: coverage or len(body)]
    pseudo = address(source) + address(to) + struct.pack(">II", len(body), UDP_LITE)
    body = body[:6] + (checksum(pseudo + covered) or 0xFFFF).to_bytes(2, "big") + body[8:]
    return datagram(source, to, UDP_LITE, spoiled(body, 6) if is_bad else body)


def sctp(source, to, ports, tag, *chunks, is_bad=False):
    """A chunk is (type, flags, value)."""
    body = struct.pack(">HHII", *ports, tag, 0)
    for kind, flags, value in chunks:
        body += struct.pack(">BBH", kind, flags, 4 + len(value)) + value + bytes(-len(value) % 4)
    body = body[:8] + crc32c(body) + body[12:]
    return datagram(source, to, SCTP, spoiled(body, 8) if is_bad else body)


def icmp(source, to, kind, code=0, rest=0, data=b"", is_bad=False, **more):
    """`rest`: the second word, which holds an identifier and a number, or a pointer, or an MTU."""
    protocol = ICMPV6 if ":" in source else ICMP
    body = summed(source, to, protocol, struct.pack(">BBHI", kind, code, 0, rest) + data, 2)
    return datagram(source, to, protocol, spoiled(body, 2) if is_bad else body, **more)


def protocol_of(kind, family):
    return ICMPV6 if kind == "icmp" and family == 6 else {"icmp": ICMP, "gre": GRE, "esp": ESP, "ah": AH, "unknown": UNKNOWN}[kind]


def behind(packet):
    """Returns where the IP header ends: IPv4's with its options, IPv6's without extension headers."""
    return (packet[0] & 15) * 4 if packet[0] >> 4 == 4 else 40


def extended(packet, *headers):
    """Puts extension headers, given as (protocol, bytes without the first one), behind the IPv6 header."""
    inserted, last = b"", packet[6]
    for protocol, rest in reversed(headers):
        inserted, last = bytes((last,)) + rest + inserted, protocol
    length = struct.pack(">HB", len(packet) - 40 + len(inserted), last)
    return packet[:4] + length + packet[7:40] + inserted + packet[40:]


def with_options(packet, options):
    """Returns an IPv4 packet with these options."""
    header = bytes((0x45 + len(options) // 4, 0)) + struct.pack(">H", len(packet) + len(options)) + packet[4:10] + b"\0\0" + packet[12:20] + options
    return with_header_checksum(header + packet[20:])


def with_header_checksum(packet):
    end = behind(packet)
    return packet[:10] + checksum(packet[:10] + b"\0\0" + packet[12:end]).to_bytes(2, "big") + packet[12:]


def fragment(packet, begin, end=None, ident=None):
    """Returns the fragment of a packet that has the bytes from `begin` up to `end` of its IP payload."""
    body = packet[behind(packet) :]
    is_last = end is None or end >= len(body)
    part = body[begin:end]
    if packet[0] >> 4 == 6:
        head = struct.pack(">BBHI", packet[6], 0, begin | (not is_last), 77 if ident is None else ident)
        return packet[:4] + struct.pack(">HB", len(part) + 8, FRAGMENT) + packet[7:40] + head + part
    words = struct.pack(">HHH", 20 + len(part), 77 if ident is None else ident, begin >> 3 | (0 if is_last else 0x2000))
    return with_header_checksum(packet[:2] + words + packet[8:20] + part)


def is_fragment(packet):
    if packet[0] >> 4 == 6:
        return packet[6] == FRAGMENT
    return bool(int.from_bytes(packet[6:8], "big") & 0x3FFF)


def place_of(packet):
    """Returns what identifies a fragment's datagram, the fragment's offset, True if more follow, and its bytes."""
    if packet[0] >> 4 == 6:
        word = int.from_bytes(packet[42:44], "big")
        return (packet[8:40] + packet[44:48], word & 0xFFF8, bool(word & 1), packet[48:])
    word = int.from_bytes(packet[6:8], "big")
    return (packet[12:20] + packet[4:6] + packet[9:10], (word & 0x1FFF) << 3, bool(word & 0x2000), packet[20:])


def without_hops(packet):
    """Returns a packet without what each router changes: the TTL or hop limit, and the IPv4 header's checksum."""
    if packet[0] >> 4 == 6:
        return packet[:7] + b"\0" + packet[8:]
    return packet[:8] + b"\0" + packet[9:10] + b"\0\0" + packet[12:]


def is_of(packet):
    """Returns source and destination of a packet, as bytes."""
    return (packet[8:24], packet[24:40]) if packet[0] >> 4 == 6 else (packet[12:16], packet[16:20])


def length_of(packet):
    """Returns the length that the IP header gives: a frame may be longer."""
    return 40 + int.from_bytes(packet[4:6], "big") if packet[0] >> 4 == 6 else int.from_bytes(packet[2:4], "big")


def answer_in_words(packet, sent):
    """Returns what a router's own packet says about the packet `sent`."""
    family = packet[0] >> 4
    protocol, at = (packet[6], 40) if family == 6 else (packet[9], behind(packet))
    if protocol == TCP:
        ports, seq, ack, flags = packet[at : at + 4], *struct.unpack(">II", packet[at + 4 : at + 12]), packet[at + 13]
        asked = sent[behind(sent) :][:4]
        said = "RST" if flags & 4 else "TCP"
        numbers = f"seq {seq}" + (f" ack {ack}" if flags & 16 else "")
        return f"{said} {numbers}" if ports == asked[2:] + asked[:2] else f"{said} to other ports"
    if protocol == (ICMPV6 if family == 6 else ICMP):
        quoted = without_hops(packet[at + 8 :])
        known = quoted[: behind(sent) + 8] == without_hops(sent)[: behind(sent) + 8]
        return f"ICMP {packet[at]}/{packet[at + 1]}" + ("" if known else " about another packet")
    return f"protocol {protocol}"
