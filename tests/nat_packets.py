"""Makes IPv4 packets for tests of NAT, and rewrites them from scratch: no checksum is adjusted where its whole packet is known.

An *end* is (address, port): 4 bytes and a number; a query of ICMP has its identifier in place of a port. A packet is bytes from
the IP header on, without options.
"""

import struct

from packets import ICMP, SCTP, TCP, UDP, UDP_LITE, adjusted, crc32c

IPV4 = struct.Struct(">BBHHHBBH4s4s")
CHECKSUM_AT = {TCP: 16, UDP: 6, UDP_LITE: 6, ICMP: 2}
QUERIES = {8: 0, 13: 14, 15: 16, 17: 18}  # types of requests and of their replies (RFC 792, 950)
ERRORS = {3, 4, 11, 12}
MORE = 0x2000  # more fragments follow


def internet_checksum(data):
    """Returns the Internet checksum (RFC 1071) of bytes that are not all 0. 2^16 is 1 modulo 65535."""
    return -int.from_bytes(data + b"\0" if len(data) % 2 else data, "big") % 65535


def ip(source, to, protocol, body, ident=0, fragment=0):
    """`fragment`: the flags and the offset in 8 bytes, as the header has them."""
    head = IPV4.pack(0x45, 0, 20 + len(body), ident, fragment, 64, protocol, 0, source, to)
    return head[:10] + internet_checksum(head).to_bytes(2, "big") + head[12:] + body


def summed(source, to, protocol, body):
    """Returns the body with the right checksum, whatever is in its place."""
    if protocol == SCTP:
        return body[:8] + crc32c(body[:8] + bytes(4) + body[12:]) + body[12:]
    at = CHECKSUM_AT.get(protocol)
    if at is None:
        return body
    blank = body[:at] + b"\0\0" + body[at + 2 :]
    covered = blank
    if protocol == UDP_LITE:
        covered = blank[: int.from_bytes(body[4:6], "big") or len(body)]
    pseudo = b"" if protocol == ICMP else source + to + struct.pack(">HH", protocol, len(body))
    value = internet_checksum(covered + (b"\0" if len(covered) % 2 else b"") + pseudo)
    if value == 0 and protocol in (UDP, UDP_LITE):
        value = 0xFFFF
    return body[:at] + value.to_bytes(2, "big") + body[at + 2 :]


def udp(source, to, data=b"", ident=0, without_checksum=False):
    body = struct.pack(">HHHH", source[1], to[1], 8 + len(data), 0) + data
    return ip(source[0], to[0], UDP, body if without_checksum else summed(source[0], to[0], UDP, body), ident)


def udp_lite(source, to, data=b"", coverage=8, ident=0):
    body = struct.pack(">HHHH", source[1], to[1], coverage, 0) + data
    return ip(source[0], to[0], UDP_LITE, summed(source[0], to[0], UDP_LITE, body), ident)


FIN, SYN, RST, ACK = 1, 2, 4, 16


def tcp(source, to, flags, seq=0, ack=0, data=b"", ident=0):
    body = struct.pack(">HHIIBBHHH", source[1], to[1], seq & 0xFFFFFFFF, ack & 0xFFFFFFFF, 0x50, flags, 8192, 0, 0) + data
    return ip(source[0], to[0], TCP, summed(source[0], to[0], TCP, body), ident)


DATA, INIT, INIT_ACK, ABORT, COOKIE_ECHO, COOKIE_ACK = 0, 1, 2, 6, 10, 11


def sctp(source, to, tag, kind, value=b"", ident=0):
    chunk = struct.pack(">BBH", kind, 3 if kind == DATA else 0, 4 + len(value)) + value
    body = struct.pack(">HHII", source[1], to[1], tag, 0) + chunk + bytes(-len(chunk) % 4)
    return ip(source[0], to[0], SCTP, summed(source[0], to[0], SCTP, body), ident)


def query(source, to, kind, identifier, data=b"", ident=0):
    body = struct.pack(">BBHHH", kind, 0, 0, identifier, 1) + data
    return ip(source, to, ICMP, summed(source, to, ICMP, body), ident)


def error(source, to, kind, code, quoted, rest=0, ident=0, is_bad=False):
    """An ICMP error; `rest`: its second word."""
    body = summed(source, to, ICMP, struct.pack(">BBHI", kind, code, 0, rest) + quoted)
    if is_bad:
        body = body[:2] + bytes((body[2] ^ 0x40,)) + body[3:]
    return ip(source, to, ICMP, body, ident)


def fragments(packet, cuts):
    """Returns the fragments of a packet that begin at 0 and at these bytes of its IP payload, which are multiples of 8."""
    ident, body = int.from_bytes(packet[4:6], "big"), packet[20:]
    places = [0, *cuts, len(body)]
    return [ip(packet[12:16], packet[16:20], packet[9], body[begin:end], ident, begin >> 3 | (MORE if end < len(body) else 0))
            for begin, end in zip(places, places[1:])]


def header(packet, source, to, hops=None):
    """Returns the IP header of a packet with other addresses, perhaps with another hop limit, and with its checksum made from scratch."""
    head = packet[:8] + (packet[8:9] if hops is None else bytes((hops,))) + packet[9:10] + b"\0\0" + source + to
    return head[:10] + internet_checksum(head).to_bytes(2, "big") + head[12:]


def rewritten(packet, source, to):
    """Returns a packet with other ends, its checksums made from scratch: a whole packet, or a fragment. A datagram of UDP without a
    checksum keeps none. Of a fragment the checksum of layer 4, which covers all fragments, is adjusted by the difference."""
    protocol, fragment = packet[9], int.from_bytes(packet[6:8], "big") & 0x3FFF
    body = packet[20:]
    if fragment & 0x1FFF == 0:
        if protocol == ICMP:
            # Only one of the two ends of a query has the identifier that it leaves with: that of the side that is translated.
            identifier = source[1] if source[1] is not None else to[1]
            new = body[:4] + identifier.to_bytes(2, "big") + body[6:]
        else:
            new = struct.pack(">HH", source[1], to[1]) + body[4:]
        if fragment:
            at = CHECKSUM_AT[protocol]
            old_covered, covered = packet[12:20] + body[:4], source[0] + to[0] + new[:4]
            if protocol == ICMP:
                old_covered, covered = body[4:6], new[4:6]
            value = int.from_bytes(body[at : at + 2], "big")
            body = new[:at] + _adjusted(protocol, value, old_covered, covered) + new[at + 2 :]
        elif protocol == UDP and body[6:8] == b"\0\0":
            body = new
        else:
            body = summed(source[0], to[0], protocol, new)
    return header(packet, source[0], to[0]) + body


def _adjusted(protocol, value, old, new):
    if protocol == UDP and value == 0:
        return b"\0\0"
    value = adjusted(value, old, new)
    if value == 0 and protocol in (UDP, UDP_LITE):
        value = 0xFFFF
    return value.to_bytes(2, "big")


def requoted(packet, source, to, quoted_source, quoted_to):
    """Returns an ICMP error with other addresses, and with other ends in its quote. The quote may end anywhere behind the ports."""
    quote = packet[28:]
    protocol, body = quote[9], quote[20:]
    head = header(quote, quoted_source[0], quoted_to[0])
    if protocol == ICMP:
        identifier = quoted_source[1] if quoted_source[1] is not None else quoted_to[1]
        old, new = body[4:6], identifier.to_bytes(2, "big")
        body = body[:2] + _adjusted(ICMP, int.from_bytes(body[2:4], "big"), old, new) + new + body[6:]
    else:
        new = struct.pack(">HH", quoted_source[1], quoted_to[1])
        at = CHECKSUM_AT.get(protocol)
        if protocol == SCTP:
            end = int.from_bytes(quote[2:4], "big") - 20
            body = new + body[4:]
            if end <= len(body):  # else the CRC, of which the quote has a part, is of more than the quote
                body = summed(b"", b"", SCTP, body[:end]) + body[end:]
        elif at is not None and at + 2 <= len(body):
            old_covered, covered = quote[12:20] + body[:4], quoted_source[0] + quoted_to[0] + new
            value = _adjusted(protocol, int.from_bytes(body[at : at + 2], "big"), old_covered, covered)
            body = new + body[4:at] + value + body[at + 2 :]
        else:
            body = new + body[4:]
    return header(packet, source, to) + summed(source, to, ICMP, packet[20:28] + head + body)
