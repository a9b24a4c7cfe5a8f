"""The frames of kernel_forwarding_test.py, which a router takes in, forwards, drops or answers.

Each frame has a mark, which is also in the packet that the router forwards, or in the ICMP error or echo reply that it sends.
"""

import socket
import struct
from typing import NamedTuple

from packets import checksum

OUR_MACS = {"outside": bytes.fromhex("020000000a02"), "inside": bytes.fromhex("020000000b02")}
THEIR_MACS = {"outside": bytes.fromhex("020000000a01"), "inside": bytes.fromhex("020000000b01")}
OTHER_MAC, TO_ALL = bytes.fromhex("020000009999"), b"\xff" * 6
ICMP, UDP, ICMPV6, FRAGMENT = 1, 17, 58, 44
CLOSED_PORT, SERVICE_PORT = 9, 80

# The addresses of each family: `host` is reached by a route, `near` is on the inner link.
NAMES = {
    4: {
        "outside": "198.51.100.2", "inside": "10.0.0.254", "virtual": "203.0.113.10", "gateway": "198.51.100.1",
        "host": "192.0.2.7", "behind": "192.0.2.0/24", "near": "10.0.0.7", "far": "172.16.0.1", "bits": 24,
    },
    6: {
        "outside": "2001:db8::2", "inside": "fd00::fe", "virtual": "2001:db8:1::10", "gateway": "2001:db8::1",
        "host": "2001:db8:7::7", "behind": "2001:db8:7::/64", "near": "fd00::7", "far": "3fff::1", "bits": 64,
    },
}
# Addresses with a meaning of their own: RFC 1122 3.2.1.3, RFC 1812 4.2.2.11 and 5.3.7, RFC 6890, RFC 4291 2.5 and 2.7, RFC 3879.
SPECIAL = {
    4: [
        "0.0.0.0", "0.0.0.1", "10.0.0.0", "10.0.0.255", "100.64.0.1", "127.0.0.1", "127.255.255.255", "169.254.0.1",
        "169.254.255.255", "172.16.0.1", "192.0.0.8", "192.0.2.1", "192.88.99.1", "192.168.0.1", "198.18.0.1", "198.51.100.0",
        "198.51.100.255", "203.0.113.1", "203.0.113.255", "223.255.255.255", "224.0.0.1", "224.0.0.5", "232.1.1.1",
        "239.255.255.255", "240.0.0.1", "255.0.0.1", "255.255.255.254", "255.255.255.255",
    ],
    6: [
        "::", "::1", "::2", "::192.0.2.1", "::ffff:192.0.2.1", "::ffff:127.0.0.1", "64:ff9b::1", "64:ff9b:1::1", "100::1", "2001::1",
        "2001:2::1", "2001:db8::99", "2001:10::1", "2002::1", "3fff::1", "fc00::1", "fd00::", "fe80::99", "febf::1", "fec0::1",
        "ff00::1", "ff01::1", "ff02::1", "ff02::5", "ff05::2", "ff0e::1", "ffff::1",
    ],
}
TAGS = {
    "VLAN 0": "8100a000", "VLAN 0 in 0": "8100a00081000000", "VLAN 0, service tag": "88a80000", "VLAN 0 in 0, service tag": "88a8000081000000",
    "VLAN 100": "81000064", "VLAN 5 in 6": "88a8000581000006", "VLAN 100 in 0": "8100000081000064", "VLAN 0 in 100": "8100006481000000",
    "VLAN 0, old service tag": "91000000", "VLAN 100, old service tag": "91000064",
}


class Frame(NamedTuple):
    name: str
    link: str  # the link on which the frame arrives
    data: bytes
    mark: bytes


def address(text):
    return socket.inet_pton(socket.AF_INET6 if ":" in text else socket.AF_INET, text)


def group_mac(to):
    ip = address(to)
    return b"\x33\x33" + ip[12:] if len(ip) == 16 else bytes((1, 0, 0x5E, ip[1] & 127)) + ip[2:]


def datagram(source, to, protocol, body, hops=64, fragment=0, ident=7):
    if ":" in source:
        if fragment:
            body = struct.pack(">BBHI", protocol, 0, (fragment & 0x1FFF) << 3 | fragment >> 13 & 1, ident) + body
            protocol = FRAGMENT
        return struct.pack(">IHBB", 6 << 28, len(body), protocol, hops) + address(source) + address(to) + body
    header = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(body), ident, fragment, hops, protocol, 0) + address(source) + address(to)
    return header[:10] + checksum(header).to_bytes(2, "big") + header[12:] + body


def summed(source, to, protocol, body, at):
    pseudo = b"" if protocol == ICMP else address(source) + address(to) + struct.pack(">II", len(body), protocol)
    return body[:at] + checksum(pseudo + body).to_bytes(2, "big") + body[at + 2 :]


def udp(source, to, data, port=CLOSED_PORT, **more):
    body = struct.pack(">HHHH", 4000, port, 8 + len(data), 0) + data
    return datagram(source, to, UDP, summed(source, to, UDP, body, 6), **more)


def ping(source, to, data, **more):
    kind, protocol = (128, ICMPV6) if ":" in source else (8, ICMP)
    body = struct.pack(">BBHHH", kind, 0, 0, 7, 1) + data
    return datagram(source, to, protocol, summed(source, to, protocol, body, 2), **more)


class Table:
    def __init__(self):
        self.frames = []

    def add(self, name, packet, link="outside", mac=None, tags=b"", kind=None):
        """Adds a frame; `packet(mark)` returns the frame's packet, with that mark in it."""
        mark = b"mark%05d" % len(self.frames)
        packet = packet(mark)
        if kind is None:
            kind = b"\x86\xdd" if packet[0] >> 4 == 6 else b"\x08\x00"
        frame = (mac or OUR_MACS[link]) + THEIR_MACS[link] + tags + kind + packet
        self.frames.append(Frame(name, link, frame.ljust(60, b"\0"), mark))


def addresses(table, family):
    n = NAMES[family]
    own = [n["outside"], n["inside"], n["virtual"]]
    for source in SPECIAL[family] + own:
        for what, to in (("near", n["near"]), ("far", n["far"]), ("inside", n["inside"]), ("virtual", n["virtual"])):
            table.add(f"{source} to {what}", lambda m, s=source, t=to: udp(s, t, m))
            if what in ("inside", "virtual"):
                table.add(f"{source} pings {what}", lambda m, s=source, t=to: ping(s, t, m))
    for source in SPECIAL[family] + own:
        table.add(f"{source} to far, from inside", lambda m, s=source: udp(s, n["host"], m), link="inside")
    for to in SPECIAL[family]:
        ip = address(to)
        is_group = ip[0] == 0xFF if family == 6 else ip[0] in range(224, 240)
        mac = group_mac(to) if is_group else TO_ALL if to == "255.255.255.255" else None
        for link, source in (("outside", n["host"]), ("inside", n["near"])):
            table.add(f"to {to}, from {link}", lambda m, t=to, s=source: udp(s, t, m), link=link, mac=mac)
            table.add(f"pings {to}, from {link}", lambda m, t=to, s=source: ping(s, t, m), link=link, mac=mac)
        if is_group or to.endswith(".255"):
            table.add(f"to {to} in a frame to all", lambda m, t=to: udp(n["host"], t, m), mac=TO_ALL)
            table.add(f"to {to} in a frame to us", lambda m, t=to: udp(n["host"], t, m))


def link_layer(table, family):
    n = NAMES[family]
    macs = {"us": None, "another station": OTHER_MAC, "all": TO_ALL, "a group": group_mac("ff02::1" if family == 6 else "224.0.0.1"),
            "our other port": OUR_MACS["inside"]}
    destinations = {"near": n["near"], "inside": n["inside"], "virtual": n["virtual"], "nowhere": "8.8.8.8" if family == 4 else "2600::1"}
    kinds = {"datagram": udp, "ping": ping, "last hop": lambda s, t, m: udp(s, t, m, hops=1)}
    for to_name, to in destinations.items():
        for kind_name, kind in kinds.items():
            def packet(m, kind=kind, to=to):
                return kind(n["host"], to, m)

            for mac_name, mac in macs.items():
                table.add(f"{kind_name} to {to_name} in a frame to {mac_name}", packet, mac=mac)
            for name, tags in TAGS.items():
                table.add(f"{kind_name} to {to_name}, {name}", packet, tags=bytes.fromhex(tags))
            table.add(f"{kind_name} to {to_name} in a frame to another station, VLAN 0", packet, mac=OTHER_MAC, tags=bytes.fromhex("81000000"))
            ppp = b"\x00\x57" if family == 6 else b"\x00\x21"
            table.add(f"{kind_name} to {to_name}, PPPoE", lambda m, p=packet: b"\x11\x00\x00\x01" + struct.pack(">H", 2 + len(p(m))) + ppp + p(m),
                      kind=b"\x88\x64")
            table.add(f"{kind_name} to {to_name}, MPLS", lambda m, p=packet: bytes.fromhex("00064140") + p(m), kind=b"\x88\x47")
            table.add(f"{kind_name} to {to_name}, MPLS in VLAN 0", lambda m, p=packet: bytes.fromhex("00064140") + p(m),
                      tags=bytes.fromhex("81000000"), kind=b"\x88\x47")
            type_ = b"\x86\xdd" if family == 6 else b"\x08\x00"
            table.add(f"{kind_name} to {to_name}, SNAP", lambda m, p=packet: b"\xaa\xaa\x03\0\0\0" + type_ + p(m),
                      kind=struct.pack(">H", 8 + len(packet(b"mark00000"))))


def fragments(table, family):
    n = NAMES[family]
    for to in ("near", "far"):
        for ident, (offset, more) in enumerate(((3, 0x2000), (3, 0), (100, 0))):
            table.add(f"the first fragment to {to}, {offset} {more}",
                      lambda m, t=n[to], i=ident: udp(n["host"], t, m.ljust(16), fragment=0x2000, ident=i))
            table.add(f"a later fragment to {to}, {offset} {more}",
                      lambda m, t=n[to], f=more | offset, i=ident: datagram(n["host"], t, UDP, m.ljust(16), fragment=f, ident=i))


def broken_headers(table, family):
    """Adds packets with headers that a router must check (RFC 1812, 5.2.2): whole packets and fragments, with and without a tag."""
    n = NAMES[family]

    def changed(packet, at, word, is_summed=True):
        packet = packet[:at] + struct.pack(">H", word) + packet[at + 2 :]
        if family == 6 or not is_summed:
            return packet
        return packet[:10] + checksum(packet[:10] + b"\0\0" + packet[12:20]).to_bytes(2, "big") + packet[12:]

    length_at = 4 if family == 6 else 2
    kinds = {"datagram": udp, "fragment": lambda s, t, m: udp(s, t, m, fragment=0x2000), "ping": ping}
    for kind_name, kind in kinds.items():
        for to_name in ("near", "far", "inside", "virtual"):
            for tag in ("", "VLAN 0"):
                def add(what, change, to=n[to_name], tags=bytes.fromhex(TAGS.get(tag, "")), kind=kind, name=f"{kind_name} to {to_name} {tag}"):
                    table.add(f"{name}, {what}", lambda m: change(kind(n["host"], to, m.ljust(48))), tags=tags)

                add("longer than its frame", lambda p: changed(p, length_at, len(p) + 1 - (40 if family == 6 else 0)))
                add("much longer than its frame", lambda p: changed(p, length_at, 1400))
                if family == 4:
                    add("of no length", lambda p: changed(p, length_at, 0))
                    add("with another checksum", lambda p: changed(p, 10, int.from_bytes(p[10:12], "big") ^ 1, False))
                    add("without a checksum", lambda p: changed(p, 10, 0, False))


def sources_for_rpf(table, family):
    """Adds packets that arrive from one link, and whose source is routed to that link, to the other link, or nowhere. The names
    of a case's IPv4 and IPv6 packets differ only in the family."""
    n = NAMES[family] | {"unrouted": "9.9.9.9" if family == 4 else "2620::1"}
    for link, to in (("outside", "near"), ("inside", "host"), ("outside", "inside"), ("inside", "virtual")):
        for source in ("near", "far", "host", "gateway", "unrouted"):
            table.add(f"IPv{family}: {source} to {to}, from {link}", lambda m, s=n[source], t=n[to]: udp(s, t, m), link=link)


def whole():
    table = Table()
    for family in NAMES:
        addresses(table, family)
        link_layer(table, family)
        fragments(table, family)
        broken_headers(table, family)
    return table.frames


def for_rpf():
    table = Table()
    for family in NAMES:
        sources_for_rpf(table, family)
    return table.frames
