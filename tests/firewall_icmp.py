"""Conversations with ICMP for kernel_firewall_test.py: queries, and errors about connections."""

import ipaddress

import firewall_packets as make
from firewall_datagrams import BACK, PINGS, THERE, both, chunk, raw, tcp_step, udp_back, udp_there
from firewall_packets import GRE
from firewall_tcp import packet_of
from router_frames import datagram, summed

# Errors: name, type, code, second word, by family.
ERRORS = {
    4: [("no net", 3, 0, 0), ("no host", 3, 1, 0), ("no port", 3, 3, 0), ("too big", 3, 4, 1280), ("prohibited", 3, 13, 0), ("hop limit", 11, 0, 0),
        ("reassembly", 11, 1, 0), ("parameter problem", 12, 0, 9 << 24), ("source quench", 4, 0, 0), ("redirect", 5, 1, 0x0A000001),
        ("unreachable, unknown code", 3, 77, 0)],
    6: [("no route", 1, 0, 0), ("no host", 1, 3, 0), ("no port", 1, 4, 0), ("too big", 2, 0, 1280), ("prohibited", 1, 1, 0), ("hop limit", 3, 0, 0),
        ("reassembly", 3, 1, 0), ("parameter problem", 4, 0, 6), ("unknown error", 100, 0, 0), ("unreachable, unknown code", 1, 77, 0)],
}
UNREACHABLE = {4: (3, 3), 6: (1, 4)}


def ping(by_client=True, text=None, number=1, ident=7, **more):
    """Returns the step of an echo request of the client, or of the reply to it."""
    def packet(hosts):
        return make.icmp(*hosts.of(by_client), PINGS[hosts.family][not by_client], rest=ident << 16 | number, data=b"0123456789", **more)

    return (f"{'>' if by_client else '<'} {text or ('echo' if by_client else 'echo reply')}", by_client, packet)


def query(text, by_client, kind, code=0, ident=7, data=bytes(12)):
    return both(text, by_client, lambda s, t: make.icmp(s, t, kind, code, ident << 16 | 1, data))


def queries(family):
    kinds = [("timestamp", 13, 14), ("information", 15, 16), ("address mask", 17, 18), ("extended echo", 42, 43)]
    if family == 6:
        kinds = [("extended echo", 160, 161), ("node information", 139, 140)]
    for name, kind, answer in kinds:
        yield f"ICMP {name}: request and reply", [query("request", True, kind), query("reply", False, answer), query("request", True, kind)]
        yield f"ICMP {name}: reply without a request", [query("reply", False, answer)]
    yield "ICMP echo: request and reply", [ping(), ping(False), ping(True, "again", 2), ping(False, "again", 2), ping(False, "once more", 2)]
    yield "ICMP echo: reply without a request", [ping(False)]
    yield "ICMP echo: reply with another identifier", [ping(), ping(False, "other identifier", ident=8), ping(False)]
    request, reply = PINGS[family]
    yield "ICMP echo: request of the other side with the same identifier", [
        ping(), query("echo", False, request), query("echo reply", True, reply), ping(False)]
    yield "ICMP echo: request with a wrong checksum", [ping(is_bad=True), ping(False), ping()]
    yield "ICMP echo: reply with a wrong checksum", [ping(), ping(False, is_bad=True)]
    yield "ICMP echo: code 5", [ping(code=5), ping(False, code=5)]
    yield "ICMP echo: reply with another code", [ping(), ping(False, code=5)]
    protocol = make.protocol_of("icmp", family)
    four_bytes = bytes((request, 0, 0, 0))
    yield "ICMP echo: 4 bytes", [both("echo", True, lambda s, t: datagram(s, t, protocol, summed(s, t, protocol, four_bytes, 2)))]
    for kind in ((1, 2, 7, 6, 9, 10, 19, 30, 40, 44, 200, 255) if family == 4 else (0, 5, 127, 138, 150, 154, 200, 255)):
        yield f"ICMP type {kind}: a message", [query("message", True, kind)]
        yield f"ICMP type {kind}: back", [ping(), query("message", False, kind), ping(False)]


def error(text, about, kind, code, rest=0, by_client=False, change=lambda quote: quote, behind=b"", of="host", is_bad=False):
    """Returns the step of an error about the packet `about(hosts)`, which the other side has sent. `of`: "host", its receiver,
    "router", one in between, or "other", from the other end of the network."""
    def packet(hosts):
        quoted = about(hosts)
        source, to = hosts.of(by_client)
        near = hosts.near_client if by_client else hosts.near_server
        far = hosts.near_server if by_client else hosts.near_client
        source = {"host": source, "router": near, "other": far}[of]
        word = rest(quoted) if callable(rest) else rest
        return make.icmp(source, to, kind, code, word, change(quoted) + behind, is_bad=is_bad)

    return (f"{'>' if by_client else '<'} {text}", by_client, packet)


def there(hosts):
    return make.udp(hosts.client, hosts.server, THERE, b"datagram that is quoted")


def reply(hosts):
    return make.udp(hosts.server, hosts.client, BACK, b"reply that is quoted")


def errors(family):
    lived = [udp_there(), udp_back()]
    unreachable = UNREACHABLE[family]
    head = 20 if family == 4 else 40
    for name, kind, code, rest in ERRORS[family]:
        yield f"ICMP {name}: about a request", [udp_there(), error("error", there, kind, code, rest)]
        yield f"ICMP {name}: about a live connection, of a router", [*lived, error("error", there, kind, code, rest, of="router")]
        yield f"ICMP {name}: about a reply", [*lived, error("error", reply, kind, code, rest, by_client=True)]
        yield f"ICMP {name}: about no connection", [error("error", there, kind, code, rest)]

    def about(name, change, about_it=there, **more):
        return f"ICMP error: {name}", [*lived, error("error", about_it, *unreachable, change=change, **more), udp_back("reply after it")]

    yield about("the quote has 8 bytes behind its header", lambda q: q[: head + 8])
    yield about("the quote has 4 bytes behind its header", lambda q: q[: head + 4])
    yield about("the quote has 2 bytes behind its header", lambda q: q[: head + 2])
    yield about("the quote has half a header", lambda q: q[:12])
    yield about("no quote", lambda q: b"")
    yield about("the quote's checksum is wrong", lambda q: make.spoiled(q, head + 6))
    if family == 4:
        yield about("the quote's header checksum is wrong", lambda q: make.spoiled(q, 10))
        yield about("the quote's total length is 0", lambda q: q[:2] + b"\0\0" + q[4:])
    yield about("the quote has no hops left", lambda q: q[:8] + b"\0" + q[9:] if family == 4 else q[:7] + b"\0" + q[8:])
    others = ("fd00::1", "fd00::2") if family == 4 else ("10.9.9.1", "10.9.9.2")
    yield about("the quote is of the other family", lambda q: datagram(*others, 17, q[head:]))
    yield about("its checksum is wrong", lambda q: q, is_bad=True)
    yield about("from the other side of the firewall", lambda q: q, of="other")
    yield about("the quote went in the same direction", lambda q: q, about_it=reply)
    yield about("the quote has another source", lambda q: make.spoiled(q, 15 if family == 4 else 23))
    yield about("the quote has another port", lambda q: q[: head + 2] + b"\0\7" + q[head + 4 :])
    # Extensions behind a quote padded to 128 bytes (RFC 4884, 4): its length is in words of 4 or 8 bytes.
    extension = bytes.fromhex("2000dfff")
    length = 32 << 16 if family == 4 else 16 << 24
    yield about("with an extension (RFC 4884)", lambda q: q.ljust(128, b"\0"), rest=length, behind=extension)
    yield about("with a length beyond its end (RFC 4884)", lambda q: q, rest=length)
    yield about("about an error", lambda q: make.icmp(*ends_of(q), *unreachable, data=q))
    yield about("with a quote that is a later fragment", lambda q: make.fragment(q, 8))
    yield about("with a quote that is a first fragment", lambda q: make.fragment(q, 0, 16))
    # The connections of the other protocols.
    syn = [tcp_step(">S 0")]
    opened = [*syn, tcp_step("<SA 0 1"), tcp_step(">A 1 1"), tcp_step(">A 1 1 10")]

    def segment(line):
        return lambda hosts: packet_of(line, hosts)

    yield "ICMP error: about a SYN", [*syn, error("error", segment(">S 0"), *unreachable), tcp_step("<SA 0 1")]
    yield "ICMP error: about data", [*opened, error("error", segment(">A 1 1 10"), *unreachable), tcp_step("<A 1 11")]
    yield "ICMP error: about 8 bytes of data", [*opened, error("error", segment(">A 1 1 10"), *unreachable, change=lambda q: q[: head + 8])]
    yield "ICMP error: about data outside the window", [*opened, error("error", segment(">A 9000000 1 10"), *unreachable), tcp_step("<A 1 11")]
    yield "ICMP error: about data of the server", [
        *opened, tcp_step("<A 1 11 10"), error("error", segment("<A 1 11 10"), *unreachable, by_client=True)]
    yield "ICMP error: about TCP without a connection", [error("error", segment(">A 1 1 10"), *unreachable)]
    yield "ICMP error: about a refused SYN", [tcp_step(">S 0 port=81"), error("error", segment(">S 0 port=81"), *unreachable)]

    def request(hosts):
        return make.icmp(hosts.client, hosts.server, PINGS[family][0], rest=7 << 16 | 1, data=b"0123456789")

    def answer(hosts):
        return make.icmp(hosts.server, hosts.client, PINGS[family][1], rest=7 << 16 | 1, data=b"0123456789")

    yield "ICMP error: about a ping", [ping(), error("error", request, *unreachable), ping(False)]
    yield "ICMP error: about the answer to a ping", [ping(), ping(False), error("error", answer, *unreachable, by_client=True)]
    yield "ICMP error: about a ping that was not sent", [error("error", request, *unreachable)]
    yield "ICMP error: about GRE", [raw("packet", True, GRE, b"\0\0\x08\0inner packet"),
                                    error("error", lambda h: datagram(h.client, h.server, GRE, b"\0\0\x08\0inner packet"), *unreachable)]
    yield "ICMP error: about SCTP", [chunk("> INIT"), error("error", chunk("> INIT")[2], *unreachable), chunk("< INIT ACK")]
    yield "ICMP error: about UDP-Lite", [both("datagram", True, lambda s, t: make.udp_lite(s, t, THERE)),
                                         error("error", lambda h: make.udp_lite(h.client, h.server, THERE), *unreachable)]



def ends_of(packet):
    """Returns source and destination of a packet, as text."""
    return [str(ipaddress.ip_address(one)) for one in make.is_of(packet)]
