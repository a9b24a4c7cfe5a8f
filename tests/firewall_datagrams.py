"""Conversations of UDP, UDP-Lite, SCTP, ICMP and other protocols for kernel_firewall_test.py, and fragments.

A step is (text, True if the client sends the packet, function that makes the packet from the conversation's hosts).
"""

import struct

import firewall_packets as make
from firewall_packets import AH, DESTINATION, ESP, GRE, HOP_BY_HOP, NO_NEXT, ROUTING, UNKNOWN
from firewall_tcp import CLIENT_PORT, DENIED_PORT, OPEN_PORT, REJECTED_PORT, packet_of
from router_frames import datagram

THERE, BACK = (CLIENT_PORT, OPEN_PORT), (OPEN_PORT, CLIENT_PORT)
PINGS = {4: (8, 0), 6: (128, 129)}


def sent(text, make_packet):
    return (f"> {text}", True, make_packet)


def back(text, make_packet):
    return (f"< {text}", False, make_packet)


def both(text, by_client, make_packet):
    """Returns a step; `make_packet` gets source and destination."""
    return (f"{'>' if by_client else '<'} {text}", by_client, lambda hosts: make_packet(*hosts.of(by_client)))


def udp_there(text="datagram", ports=THERE, **more):
    return both(text, True, lambda s, t: make.udp(s, t, ports, **more))


def udp_back(text="reply", ports=BACK, **more):
    return both(text, False, lambda s, t: make.udp(s, t, ports, **more))


def udp():
    yield "UDP: request and reply", [udp_there(), udp_back(), udp_there("again"), udp_back("again")]
    yield "UDP: two requests at once", [udp_there(), udp_there("again"), udp_back()]
    yield "UDP: reply without a request", [udp_back()]
    yield "UDP: reply from another port", [udp_there(), udp_back("from port 79", (79, CLIENT_PORT)), udp_back()]
    yield "UDP: reply to another port", [udp_there(), udp_back("to port 40001", (OPEN_PORT, CLIENT_PORT + 1)), udp_back()]
    yield "UDP: to a denied port", [udp_there(ports=(CLIENT_PORT, DENIED_PORT))] * 2
    yield "UDP: to a rejected port", [udp_there(ports=(CLIENT_PORT, REJECTED_PORT))] * 2
    yield "UDP: to a rejected port, from port 0", [udp_there(ports=(0, REJECTED_PORT))]
    yield "UDP: to a port that no rule names", [udp_there(ports=(CLIENT_PORT, 9))]
    yield "UDP: no checksum", [udp_there(summing="none"), udp_back(summing="none")]
    yield "UDP: a wrong checksum", [udp_there(summing="bad"), udp_there("datagram with the right one"), udp_back(summing="bad"), udp_back()]
    yield "UDP: to a rejected port with a wrong checksum", [udp_there(ports=(CLIENT_PORT, REJECTED_PORT), summing="bad")]
    yield "UDP: a length beyond the packet", [udp_there(length=200), udp_back()]
    yield "UDP: a length below the packet's", [udp_there(data=b"x" * 40, length=20), udp_back()]
    yield "UDP: a length below the header's", [udp_there(length=7), udp_back()]
    yield "UDP: no data", [udp_there(data=b""), udp_back(data=b"")]
    yield "UDP: port 0", [udp_there(ports=(0, OPEN_PORT)), udp_back(ports=(OPEN_PORT, 0))]
    yield "UDP: the same port on both sides", [udp_there(ports=(OPEN_PORT, OPEN_PORT)), udp_back(ports=(OPEN_PORT, OPEN_PORT))]


def udp_lite():
    def there(text="datagram", ports=THERE, **more):
        return both(text, True, lambda s, t: make.udp_lite(s, t, ports, **more))

    def reply(text="reply", ports=BACK, **more):
        return both(text, False, lambda s, t: make.udp_lite(s, t, ports, **more))

    yield "UDP-Lite: request and reply", [there(), reply(), there("again")]
    yield "UDP-Lite: reply without a request", [reply()]
    yield "UDP-Lite: reply from another port", [there(), reply("from port 79", (79, CLIENT_PORT)), reply()]
    yield "UDP-Lite: the whole is covered", [there(coverage=0), reply(coverage=0)]
    yield "UDP-Lite: a wrong checksum", [there(is_bad=True), reply()]
    yield "UDP-Lite: a coverage below the header's", [there(coverage=7), reply()]
    yield "UDP-Lite: a coverage beyond the packet", [there(coverage=200), reply()]


# Chunk types of SCTP (RFC 9260, 3.2).
DATA, INIT, INIT_ACK, SACK, HEARTBEAT, HEARTBEAT_ACK, ABORT, SHUTDOWN, SHUTDOWN_ACK, ERROR, COOKIE_ECHO, COOKIE_ACK = range(12)
SHUTDOWN_COMPLETE = 14
CLIENT_TAG, SERVER_TAG = 0x11111111, 0x22222222
BEGIN = struct.pack(">IIHHI", 0, 9000, 1, 1, 1)  # the first word becomes the sender's tag
CHUNKS = {
    "DATA": (DATA, 3, struct.pack(">IHHI", 1, 0, 0, 0) + b"data"), "SACK": (SACK, 0, struct.pack(">IIHH", 1, 9000, 0, 0)),
    "INIT": (INIT, 0, BEGIN), "INIT ACK": (INIT_ACK, 0, BEGIN + b"\0\7\0\10cook"),
    "COOKIE ECHO": (COOKIE_ECHO, 0, b"cook"), "COOKIE ACK": (COOKIE_ACK, 0, b""), "HEARTBEAT": (HEARTBEAT, 0, b"\0\1\0\10beat"),
    "HEARTBEAT ACK": (HEARTBEAT_ACK, 0, b"\0\1\0\10beat"), "SHUTDOWN": (SHUTDOWN, 0, bytes(4)), "SHUTDOWN ACK": (SHUTDOWN_ACK, 0, b""),
    "SHUTDOWN COMPLETE": (SHUTDOWN_COMPLETE, 0, b""), "ABORT": (ABORT, 0, b""), "ABORT T": (ABORT, 1, b""), "ERROR": (ERROR, 0, b"\0\3\0\10\0\0\0\0"),
}


def chunk(line):
    """Returns the step of a line such as "> DATA": of the client, with the server's tag. A tag or "bad", for a wrong checksum,
    may follow."""
    by_client, (name, *words) = line[0] == ">", line[2:].split(", ")
    tag = 0 if name == "INIT" else SERVER_TAG if by_client else CLIENT_TAG
    ports = THERE
    for word in words:
        tag = int(word[4:], 16) if word.startswith("tag ") else tag
        ports = (CLIENT_PORT, DENIED_PORT) if word == "port 81" else ports
    if not by_client:
        ports = ports[::-1]
    own = struct.pack(">I", CLIENT_TAG if by_client else SERVER_TAG)
    chunks = [(kind, flags, own + value[4:] if kind in (INIT, INIT_ACK) else value)
              for kind, flags, value in (CHUNKS[one] for one in name.split(" + "))]
    return (line, by_client, lambda hosts: make.sctp(*hosts.of(by_client), ports, tag, *chunks, is_bad="bad" in words))


ASSOCIATED = ["> INIT", "< INIT ACK", "> COOKIE ECHO", "< COOKIE ACK"]
SHUT = ["> SHUTDOWN", "< SHUTDOWN ACK", "> SHUTDOWN COMPLETE"]
ASSOCIATIONS = {
    "data both ways, shutdown": [*ASSOCIATED, "> DATA", "< SACK", "< DATA", "> SACK", *SHUT],
    "shutdown by the server": [*ASSOCIATED, "> DATA", "< SACK", "< SHUTDOWN", "> SHUTDOWN ACK", "< SHUTDOWN COMPLETE"],
    "data with the cookie": ["> INIT", "< INIT ACK", "> COOKIE ECHO + DATA", "< COOKIE ACK + SACK", "< DATA"],
    "INIT again": ["> INIT", "> INIT", "< INIT ACK", "< INIT ACK", "> COOKIE ECHO", "> COOKIE ECHO", "< COOKIE ACK"],
    "heartbeats": [*ASSOCIATED, "> HEARTBEAT", "< HEARTBEAT ACK", "< HEARTBEAT", "> HEARTBEAT ACK"],
    "ABORT of the client": [*ASSOCIATED, "> ABORT", "> DATA", "< SACK"],
    "ABORT of the server": [*ASSOCIATED, "< ABORT", "> DATA", "< SACK"],
    "ABORT in answer to INIT": ["> INIT", "< ABORT", "> INIT", "< INIT ACK"],
    "ABORT with its sender's tag": [*ASSOCIATED, f"> ABORT T, tag {CLIENT_TAG:x}", "< DATA"],
    "ABORT with a wrong tag": [*ASSOCIATED, "> ABORT, tag 99", "> DATA", "< SACK"],
    "data with a wrong tag": [*ASSOCIATED, "> DATA, tag 99", "< SACK, tag 99", "> DATA", "< SACK"],
    "COOKIE ECHO with a wrong tag": ["> INIT", "< INIT ACK", "> COOKIE ECHO, tag 99", "> COOKIE ECHO", "< COOKIE ACK"],
    "SHUTDOWN with a wrong tag": [*ASSOCIATED, "> SHUTDOWN, tag 99", "< DATA"],
    "INIT with a tag": ["> INIT, tag 99", "< INIT ACK"],
    "INIT with another chunk": ["> INIT + DATA", "< INIT ACK"],
    "COOKIE ACK behind another chunk": ["> INIT", "< INIT ACK", "> COOKIE ECHO", "< SACK + COOKIE ACK"],
    "a wrong checksum": ["> INIT, bad", "> INIT", "< INIT ACK, bad", "< INIT ACK"],
    "first seen: DATA": ["> DATA", "< SACK"],
    "first seen: INIT ACK": ["> INIT ACK", "< COOKIE ECHO"],
    "first seen: INIT ACK of the server": ["< INIT ACK"],
    "first seen: COOKIE ECHO": ["> COOKIE ECHO", "< COOKIE ACK"],
    "first seen: COOKIE ACK": ["> COOKIE ACK"],
    "first seen: SHUTDOWN": ["> SHUTDOWN", "< SHUTDOWN ACK"],
    "first seen: SHUTDOWN ACK": ["> SHUTDOWN ACK", f"< SHUTDOWN COMPLETE, tag {SERVER_TAG:x}"],
    "first seen: SHUTDOWN COMPLETE": ["> SHUTDOWN COMPLETE"],
    "first seen: ABORT": ["> ABORT"],
    "first seen: HEARTBEAT": ["> HEARTBEAT", "< HEARTBEAT ACK", "> DATA", "< SACK"],
    "first seen: ERROR": ["> ERROR"],
    "INIT answered by data": ["> INIT", "< DATA", "< INIT ACK", "> COOKIE ECHO"],
    "INIT, data at once": ["> INIT", "> DATA", "< INIT ACK"],
    "INIT after the shutdown": [*ASSOCIATED, *SHUT, "> INIT", "< INIT ACK", "> COOKIE ECHO", "< COOKIE ACK", "> DATA"],
    "data after the shutdown": [*ASSOCIATED, *SHUT, "> DATA", "< DATA"],
    "INIT on a live association": [*ASSOCIATED, "> INIT", "< INIT ACK", "> DATA", "< DATA"],
    "INIT of the server on a live association": [*ASSOCIATED, "< INIT", "> INIT ACK", "> DATA"],
    "to a denied port": ["> INIT, port 81"],
}


def sctp():
    for name, lines in ASSOCIATIONS.items():
        yield f"SCTP: {name}", [chunk(line) for line in lines]


def raw(text, by_client, protocol, body):
    return both(text, by_client, lambda s, t: datagram(s, t, protocol, body))


def others():
    key = struct.pack(">HHI", 0x2000, 0x0800, 5)
    kinds = {
        "GRE": (GRE, b"\0\0\x08\0inner packet", b"\0\0\x08\0inner answer"), "GRE with a key": (GRE, key + b"inner", key + b"other"),
        "PPTP's GRE": (GRE, struct.pack(">HHHH", 0x2001, 0x880B, 4, 9) + b"ppp!", struct.pack(">HHHH", 0x2001, 0x880B, 4, 5) + b"ppp!"),
        "ESP": (ESP, struct.pack(">II", 1000, 1) + b"secret", struct.pack(">II", 2000, 1) + b"secret"),
        "an unknown protocol": (UNKNOWN, b"hello", b"there"), "no next header": (NO_NEXT, b"", b""),
    }
    for name, (protocol, there, reply) in kinds.items():
        packet, answer = raw("packet", True, protocol, there), raw("reply", False, protocol, reply)
        yield f"{name}: request and reply", [packet, answer, packet]
        yield f"{name}: other direction first", [answer, packet]
    yield "an unknown protocol: nothing in it", [raw("packet", True, UNKNOWN, b""), raw("reply", False, UNKNOWN, b"")]
    yield "GRE: cut short", [raw("packet", True, GRE, b"\0\0")]
    yield "a protocol that no rule names", [raw("packet", True, 254, b"hello")]
    for name, protocol, there, reply in (("an unknown protocol", UNKNOWN, b"hello", b"there"), ("ESP", ESP, b"12345678", b"23456789")):
        # Authentication header (RFC 4302): next header, length, reserved, SPI, number, check value.
        heads = [struct.pack(">BBHII", protocol, 4, 0, 7, 1) + bytes(12) for _ in range(2)]
        yield f"AH, then {name}", [raw("packet", True, AH, heads[0] + there), raw("reply", False, AH, heads[1] + reply)]


def with_ah(text, by_client):
    def packet(hosts):
        plain = packet_of(text, hosts)
        at = make.behind(plain)
        head = struct.pack(">BBHII", 6, 4, 0, 7, 1) + bytes(12)
        return datagram(*hosts.of(by_client), AH, head + plain[at:])

    return (text, by_client, packet)


def authenticated():
    yield "AH, then TCP", [with_ah(line, line[0] == ">") for line in (">S 0", "<SA 0 1", ">A 1 1", ">A 1 1 10")]
    yield "AH, then TCP without a connection", [with_ah(">A 1 1", True)]
    yield "AH, then TCP to a denied port", [with_ah(">S 0 port=81", True)]


def tcp_step(text, change=lambda packet: packet):
    return (text, text[0] == ">", lambda hosts: change(packet_of(text, hosts)))


PADDING = b"\0\1\4\0\0\0\0"  # an extension header without its first byte: its length, and options that say nothing


def extensions():
    """Headers between IPv6 and TCP, and options of IPv4."""
    kinds = {"hop-by-hop options": [(HOP_BY_HOP, PADDING)], "destination options": [(DESTINATION, PADDING)],
             "both": [(HOP_BY_HOP, PADDING), (DESTINATION, PADDING)], "destination options twice": [(DESTINATION, PADDING)] * 2,
             "an exhausted routing header": [(ROUTING, b"\0\4\0\0\0\0\0")], "eight headers": [(DESTINATION, PADDING)] * 8,
             "nine headers": [(DESTINATION, PADDING)] * 9, "an unknown option": [(DESTINATION, b"\0\x1e\4\0\0\0\0")],
             "an atomic fragment": [(44, b"\0\0\0\0\0\0\7")]}
    for name, headers in kinds.items():
        def change(packet, headers=headers):
            return make.extended(packet, *headers)

        yield f"IPv6 with {name}", [tcp_step(line, change) for line in (">S 0", "<SA 0 1", ">A 1 1", ">A 1 1 10", "<A 1 11")]
        yield f"IPv6 with {name}, to a denied port", [tcp_step(">S 0 port=81", change)]


def options():
    kinds = {"no-operation options": b"\1\1\1\1", "a router alert": b"\x94\4\0\0", "a timestamp": b"\x44\x0c\5\0" + bytes(8)}
    for name, bytes_of_it in kinds.items():
        def change(packet, bytes_of_it=bytes_of_it):
            return make.with_options(packet, bytes_of_it)

        yield f"IPv4 with {name}", [tcp_step(line, change) for line in (">S 0", "<SA 0 1", ">A 1 1", ">A 1 1 10", "<A 1 11")]


def fragments_of(text, make_packet, cuts, order, by_client=True, ident=77):
    """Returns steps that send the fragments [begin, end) of a packet in this order."""
    spans = list(zip(cuts, [*cuts[1:], None], strict=True))
    return [(f"{'>' if by_client else '<'} {text}, bytes {spans[n][0]} to {spans[n][1]}", by_client,
             lambda hosts, n=n: make.fragment(make_packet(hosts), *spans[n], ident)) for n in order]


def fragments():
    def large(hosts, by_client=True, size=600, ports=THERE):
        return make.udp(*hosts.of(by_client), ports if by_client else ports[::-1], bytes(i & 0xFF for i in range(size)))

    def small(hosts):
        return large(hosts, size=40)

    def denied(hosts):
        return large(hosts, ports=(CLIENT_PORT, DENIED_PORT))

    def unasked(hosts):
        return large(hosts, by_client=False)

    request = udp_there()
    three = (0, 200, 400)
    yield "fragments: the first only", [*fragments_of("datagram", large, three, (0,))]
    yield "fragments: a later one only", [*fragments_of("datagram", large, three, (1,))]
    yield "fragments: a later one only, of a live connection", [request, *fragments_of("datagram", large, three, (1,))]
    for order in ((0, 1), (1, 0)):
        yield f"fragments: two, in order {order}", fragments_of("datagram", large, (0, 304), order)
        yield f"fragments: two of a live connection, in order {order}", [request, udp_back(), *fragments_of("datagram", large, (0, 304), order)]
        yield f"fragments: two to a denied port, in order {order}", fragments_of("datagram", denied, (0, 304), order)
        yield f"fragments: two of a reply, in order {order}", [request, *fragments_of("reply", unasked, (0, 304), order, by_client=False)]
        yield f"fragments: two of a reply without a request, in order {order}", fragments_of("reply", unasked, (0, 304), order, by_client=False)
    for order in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)):
        yield f"fragments: three, in order {order}", fragments_of("datagram", large, three, order)
    yield "fragments: one twice", fragments_of("datagram", large, three, (0, 0, 1, 1, 2))
    yield "fragments: tiny", fragments_of("datagram", small, (0, 8, 16), (0, 1, 2))
    yield "fragments: tiny, the last first", fragments_of("datagram", small, (0, 8, 16), (2, 1, 0))
    yield "fragments: two datagrams mixed", [*fragments_of("datagram", large, (0, 304), (0,)), *fragments_of("other", small, (0, 16), (1,), ident=78),
                                             *fragments_of("datagram", large, (0, 304), (1,)), *fragments_of("other", small, (0, 16), (0,), ident=78)]
    first, _, last = fragments_of("datagram", large, three, (0, 1, 2))

    def other(hosts):
        return make.udp(*hosts.of(True), THERE, b"!" * 600)

    for what, begin, end in (("within the first", 8, 104), ("across the end of the first", 104, 400), ("the first again, longer", 0, 304)):
        overlap = (f"> datagram, bytes {begin} to {end}", True, lambda hosts, b=begin, e=end: make.fragment(other(hosts), b, e))
        yield f"fragments: overlap, {what}", [first, overlap, *fragments_of("datagram", large, three, (1,)), last]
    data = fragments_of("data", lambda hosts: packet_of(">A 1 1 100", hosts), (0, 8, 64), (0, 1, 2))
    yield "fragments: TCP's header cut in two", [*(tcp_step(line) for line in (">S 0", "<SA 0 1", ">A 1 1")), *data, tcp_step("<A 1 101")]
    yield "fragments: a SYN cut in two", [*fragments_of("SYN", lambda hosts: packet_of(">S 0", hosts), (0, 16), (0, 1)), tcp_step("<SA 0 1")]

    def ping(hosts):
        return make.icmp(*hosts.of(True), PINGS[hosts.family][0], rest=7 << 16 | 1, data=bytes(300))

    yield "fragments: a ping", fragments_of("ping", ping, (0, 160), (0, 1))
    yield "fragments: a ping, the last first", fragments_of("ping", ping, (0, 160), (1, 0))
