#!/usr/bin/python3
"""Writes the seed corpus of src/parse/parse_fuzz.cc: a small file for each kind of packet.

    make_corpus.py DIRECTORY

The first byte of a file is the link type (0 Ethernet, 1 raw IP, 2 and 3 Linux cooked), the rest is
the packet. Everything is made here, byte by byte; nothing comes from a capture.
"""

import pathlib
import struct
import sys

ETHERNET, RAW, COOKED, COOKED2 = range(4)
TCP, UDP, SCTP, ICMP, ICMP6, AH = 6, 17, 132, 1, 58, 51
V4, V6, VLAN, QINQ, OLD_QINQ, MPLS, PPPOE = 0x0800, 0x86DD, 0x8100, 0x88A8, 0x9100, 0x8847, 0x8864


def u16(*values):
    return struct.pack(f">{len(values)}H", *values)


def ethernet(kind):
    return bytes(range(12)) + u16(kind)


def tag(kind):
    return u16(5, kind)


def label(value, bottom):
    return struct.pack(">I", value << 12 | bottom << 8 | 64)


def snap(oui, kind):
    return b"\xaa\xaa\x03" + oui.to_bytes(3, "big") + u16(kind)


def pppoe(protocol):
    return b"\x11\x00" + u16(1, 100) + protocol


def cooked(kind):
    return u16(0, 1, 6) + bytes(8) + u16(kind)


def cooked2(kind):
    return u16(kind) + bytes(18)


def ip4(protocol, payload, options=b"", fragment=0, total=None):
    header = 20 + len(options)
    total = header + len(payload) if total is None else total
    return (bytes([0x40 | header // 4, 0]) + u16(total, 1, fragment)
            + bytes([64, protocol]) + u16(0x1234) + b"\xc0\x00\x02\x01\xc6\x33\x64\x02"
            + options + payload)  # fmt: skip


def ip6(protocol, payload, length=None):
    length = len(payload) if length is None else length
    address = b"\x20\x01\x0d\xb8" + bytes(11)
    return (b"\x60\0\0\0" + u16(length) + bytes([protocol, 64])
            + address + b"\x01" + address + b"\x02" + payload)  # fmt: skip


def options(following, eights=1, segments_left=0):
    return bytes([following, eights - 1, 0, segments_left]) + bytes(8 * eights - 4)


def fragment(following, offset, more):
    return bytes([following, 0]) + u16(offset << 3 | more) + bytes(4)


def authentication(following, words=6):
    return bytes([following, words - 2]) + bytes(words * 4 - 2)


def tcp(checksum=0xABCD):
    return u16(1024, 443) + bytes(8) + b"\x50\x10" + u16(512, checksum, 0) + b"hello"


def syn(options):
    return tcp()[:12] + bytes([(20 + len(options)) << 2, 2]) + tcp()[14:20] + options


def udp(checksum=0xABCD):
    return u16(1024, 53, 12, checksum) + b"data"


def sctp(chunks=b"\x03\x00\x00\x10" + bytes(12), tag=77):
    return u16(1024, 5000) + struct.pack(">I", tag) + bytes(4) + chunks


def chunk(kind, value=0, flags=0):
    return bytes([kind, flags]) + u16(4 + value) + bytes(value + 3 & ~3)


def init(kind, tag):
    return bytes([kind, 0]) + u16(20) + struct.pack(">I", tag) + bytes(12)


def icmp(kind):
    return bytes([kind, 0]) + u16(0xABCD, 77, 1) + bytes(8)


def links():
    plain4, plain6 = ip4(TCP, tcp()), ip6(TCP, tcp())
    yield "ethernet-v4", ETHERNET, ethernet(V4) + plain4
    yield "ethernet-v6", ETHERNET, ethernet(V6) + plain6
    yield "ethernet-arp", ETHERNET, ethernet(0x0806) + bytes(46)
    yield "ethernet-padded", ETHERNET, ethernet(V4) + plain4 + bytes(9)
    for name, outer in ("vlan", VLAN), ("qinq", QINQ), ("old-qinq", OLD_QINQ):
        yield name, ETHERNET, ethernet(outer) + tag(VLAN) + tag(V4) + plain4
    yield "tags-too-many", ETHERNET, ethernet(VLAN) + tag(VLAN) * 17 + tag(V4) + plain4
    yield "mpls-v4", ETHERNET, ethernet(MPLS) + label(16, 0) + label(17, 1) + plain4
    yield "mpls-v6", ETHERNET, ethernet(0x8848) + label(2, 1) + plain6
    yield "mpls-pseudo-wire", ETHERNET, ethernet(MPLS) + label(16, 1) + bytes(40)
    yield "pppoe-v4", ETHERNET, ethernet(PPPOE) + pppoe(b"\x00\x21") + plain4
    yield "pppoe-v6", ETHERNET, ethernet(PPPOE) + pppoe(b"\x00\x57") + plain6
    yield "pppoe-compressed", ETHERNET, ethernet(PPPOE) + pppoe(b"\x21") + plain4
    yield "pppoe-lcp", ETHERNET, ethernet(PPPOE) + pppoe(b"\xc0\x21") + bytes(20)
    yield "pppoe-cut", ETHERNET, ethernet(PPPOE) + pppoe(b"\x00")
    yield "pppoe-version", ETHERNET, ethernet(PPPOE) + bytes(20)
    yield "snap", ETHERNET, ethernet(60) + snap(0, V4) + plain4
    yield "snap-bridge", ETHERNET, ethernet(60) + snap(0xF8, V6) + plain6
    yield "snap-cdp", ETHERNET, ethernet(60) + snap(0xC, 0x2000) + bytes(30)
    yield "snap-cut", ETHERNET, ethernet(60) + snap(0, V4)[:6]
    yield "llc", ETHERNET, ethernet(60) + b"\x42\x42\x03" + bytes(35)
    yield "raw-v4", RAW, plain4
    yield "raw-v6", RAW, plain6
    yield "raw-none", RAW, bytes(40)
    yield "raw-empty", RAW, b""
    for name, link, header in ("cooked", COOKED, cooked), ("cooked2", COOKED2, cooked2):
        yield name, link, header(V4) + plain4
        yield name + "-v6", link, header(V6) + plain6
        yield name + "-vlan", link, header(VLAN) + tag(V4) + plain4
        yield name + "-mpls", link, header(MPLS) + label(9, 1) + plain4
        yield name + "-cut", link, header(V4)[:9]
    for length in 13, 15, 17:
        yield f"cut-{length}", ETHERNET, (ethernet(VLAN) + tag(V4))[:length]
        yield f"mpls-cut-{length}", ETHERNET, (ethernet(MPLS) + label(1, 1))[:length]


def ipv4():
    yield "udp", RAW, ip4(UDP, udp())
    yield "udp-unchecked", RAW, ip4(UDP, udp(0))
    yield "sctp", RAW, ip4(SCTP, sctp())
    yield "sctp-fragment", RAW, ip4(SCTP, sctp(), fragment=0x2000)
    yield "sctp-no-length", RAW, ip4(SCTP, sctp(), total=0)
    yield "sctp-cut", RAW, ip4(SCTP, sctp())[:30]
    yield "gre", RAW, ip4(47, bytes(20))
    for kind in 0, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14, 64:
        yield f"sctp-chunk-{kind}", RAW, ip4(SCTP, sctp(chunk(kind, 4)))
        yield f"sctp-behind-{kind}", RAW, ip4(SCTP, sctp(chunk(kind, 4, 1) + chunk(6) + chunk(7, 4)))
        yield f"sctp-after-{kind}", RAW, ip4(SCTP, sctp(chunk(9, 4) + chunk(kind, 4)))
    for kind in 1, 2:
        for tag, own in (0, 9), (77, 9), (77, 0), (0, 0):
            yield f"sctp-init-{kind}-{tag}-{own}", RAW, ip4(SCTP, sctp(init(kind, own), tag))
        yield f"sctp-init-{kind}-short", RAW, ip4(SCTP, sctp(chunk(kind, 4), 77 * (kind - 1)))
        yield f"sctp-init-{kind}-cut", RAW, ip4(SCTP, sctp(init(kind, 9), 77 * (kind - 1)))[:36]
    yield "sctp-chunks", RAW, ip4(SCTP, sctp(chunk(3, 12) * 17 + chunk(6)))
    yield "sctp-chunk-broken", RAW, ip4(SCTP, sctp(b"\x06\0\0\x03"))
    yield "udp-lite", RAW, ip4(136, udp())
    yield "esp", RAW, ip4(50, bytes(20))
    yield "dccp", RAW, ip4(33, udp() + bytes(8))
    yield "icmp6", RAW, ip4(ICMP6, icmp(128))
    yield "ah", RAW, ip4(AH, authentication(TCP) + tcp())
    yield "first", RAW, ip4(TCP, tcp(), fragment=0x2000)
    yield "later", RAW, ip4(TCP, bytes(16), fragment=0x0020)
    yield "later-ah", RAW, ip4(AH, bytes(16), fragment=0x0020)
    yield "no-length", RAW, ip4(TCP, tcp(), total=0)
    yield "total-short", RAW, ip4(TCP, tcp(), total=19)
    yield "total-long", RAW, ip4(TCP, tcp(), total=1500)
    yield "no-ports", RAW, ip4(TCP, b"abc")
    yield "header-short", RAW, b"\x44" + ip4(TCP, tcp())[1:]
    yield "version", ETHERNET, ethernet(V4) + ip6(TCP, tcp())
    yield "tcp-cut", RAW, ip4(TCP, tcp())[:22]
    yield "tcp-no-checksum", RAW, ip4(TCP, tcp())[:30]
    for name, value in {"even": b"\2\4\5\xb4", "odd": b"\1\2\4\5\xb4\1\1\0", "small": b"\2\4\0\x20", "behind": b"\3\3\7\1\2\4\5\xb4",
                        "end": b"\0\2\4\5", "endless": b"\3\0\2\4", "long": b"\1\1\2\4"}.items():
        yield "mss-" + name, RAW, ip4(TCP, syn(value))
    for kind in 0, 3, 5, 8, 11, 13, 42, 200:
        yield f"icmp-{kind}", RAW, ip4(ICMP, icmp(kind))
    yield "icmp-empty", RAW, ip4(ICMP, b"")
    yield "icmp-short", RAW, ip4(ICMP, icmp(8)[:5])
    yield "options-cut", RAW, ip4(TCP, tcp(), bytes(8))[:25]
    for name, value in {
        "record-route": b"\x01\x07\x07\x04\0\0\0\0", "loose": b"\x83\x07\x04\0\0\0\0\0",
        "strict": b"\x89\x07\x04\0\0\0\0\0", "exhausted": b"\x83\x07\x08\0\0\0\0\0",
        "route-short": b"\x83\x02\0\0", "length-0": b"\x07\0\0\0", "length-long": b"\x07\x09\0\0",
        "length-absent": b"\x01\x01\x01\x07", "end": b"\0\xff\xff\xff",
    }.items():  # fmt: skip
        yield "option-" + name, RAW, ip4(TCP, tcp(), value)


def ipv6():
    yield "udp", RAW, ip6(UDP, udp())
    yield "udp-unchecked", RAW, ip6(UDP, udp(0))
    yield "sctp", RAW, ip6(SCTP, sctp())
    yield "sctp-extended", RAW, ip6(60, options(SCTP, 2) + sctp())
    yield "sctp-atomic", RAW, ip6(44, fragment(SCTP, 0, 0) + sctp())
    yield "sctp-fragment", RAW, ip6(44, fragment(SCTP, 0, 1) + sctp())
    yield "sctp-jumbo", RAW, ip6(0, options(SCTP) + sctp(), 0)
    yield "gre", RAW, ip6(47, bytes(20))
    yield "nothing", RAW, ip6(59, b"")
    yield "no-ports", RAW, ip6(TCP, b"abc")
    yield "length-long", RAW, ip6(TCP, tcp(), 1500)
    yield "length-none", RAW, ip6(TCP, tcp(), 0)
    yield "cut", RAW, ip6(TCP, tcp())[:39]
    yield "jumbo", RAW, ip6(0, options(TCP) + tcp(), 0)
    yield "version", ETHERNET, ethernet(V6) + ip4(TCP, tcp() + bytes(20))
    chain = options(60) + options(43, 2) + options(44) + fragment(AH, 0, 0)
    yield "chain", RAW, ip6(0, chain + authentication(TCP) + tcp())
    yield "chain-long", RAW, ip6(60, options(60) * 8 + options(TCP) + tcp())
    yield "chain-far", RAW, ip6(60, options(TCP, 124) + tcp())
    yield "chain-short", RAW, ip6(60, bytes(7))
    yield "chain-beyond", RAW, ip6(60, options(TCP, 4), 16)
    yield "chain-cut", RAW, ip6(60, options(TCP, 4))[:50]
    yield "routed", RAW, ip6(43, options(TCP, 3, 1) + tcp())
    yield "first", RAW, ip6(44, fragment(TCP, 0, 1) + tcp())
    yield "later", RAW, ip6(44, fragment(60, 9, 0) + bytes(9))
    for kind in 1, 4, 127, 128, 129, 133, 135, 160, 161:
        yield f"icmp-{kind}", RAW, ip6(ICMP6, icmp(kind))


def turned4(packet):
    return packet[:12] + packet[16:20] + packet[12:16] + packet[20:]


def turned6(packet):
    return packet[:8] + packet[24:40] + packet[8:24] + packet[40:]


def error(kind, quote, lengths=bytes(4)):
    return bytes([kind, 0]) + u16(0xABCD) + lengths + quote


def quotes():
    """Yields ICMP errors: most go to the sender of the packet that they quote, some to another host."""
    for name, protocol, payload in (
        ("tcp", TCP, tcp()), ("udp", UDP, udp()), ("udp-unchecked", UDP, udp(0)),
        ("sctp", SCTP, sctp()), ("gre", 47, bytes(8)), ("udp-lite", 136, udp()),
    ):  # fmt: skip
        yield f"{name}-v4", RAW, ip4(ICMP, error(3, turned4(ip4(protocol, payload))))
        yield f"{name}-v6", RAW, ip6(ICMP6, error(1, turned6(ip6(protocol, payload))))
    for kind in 4, 11, 12:
        yield f"type-{kind}-v4", RAW, ip4(ICMP, error(kind, turned4(ip4(TCP, tcp()))))
    for kind in 2, 3, 4, 100:
        yield f"type-{kind}-v6", RAW, ip6(ICMP6, error(kind, turned6(ip6(TCP, tcp()))))
    yield "echo-v4", RAW, ip4(ICMP, error(3, turned4(ip4(ICMP, icmp(8)))))
    yield "echo-v6", RAW, ip6(ICMP6, error(1, turned6(ip6(ICMP6, icmp(128)))))
    yield "error-v4", RAW, ip4(ICMP, error(3, turned4(ip4(ICMP, icmp(3)))))
    yield "error-v6", RAW, ip6(ICMP6, error(1, turned6(ip6(ICMP6, icmp(1)))))
    yield "forged-v4", RAW, ip4(ICMP, error(3, ip4(TCP, tcp())))
    yield "forged-v6", RAW, ip6(ICMP6, error(1, ip6(TCP, tcp())))
    yield "other-v4", RAW, ip4(ICMP, error(3, ip6(TCP, tcp())))
    yield "other-v6", RAW, ip6(ICMP6, error(1, ip4(TCP, tcp())))
    for bytes_of in 0, 19, 22, 28, 38:
        yield f"cut-{bytes_of}-v4", RAW, ip4(ICMP, error(3, turned4(ip4(TCP, tcp()))[:bytes_of]))
        yield f"cut-{bytes_of}-v6", RAW, ip6(ICMP6, error(1, turned6(ip6(TCP, tcp()))[: bytes_of + 20]))
    yield "short-v4", RAW, ip4(ICMP, error(3, b"")[:7])
    yield "short-v6", RAW, ip6(ICMP6, error(1, b"")[:7])
    yield "options-v4", RAW, ip4(ICMP, error(3, turned4(ip4(TCP, tcp(), b"\1" * 40))))
    yield "later-v4", RAW, ip4(ICMP, error(3, turned4(ip4(TCP, tcp(), fragment=9))))
    chain = options(44, 2) + fragment(TCP, 0, 1) + tcp()
    yield "chain-v6", RAW, ip6(ICMP6, error(1, turned6(ip6(60, chain))))
    yield "extensions-v4", RAW, ip4(ICMP, error(11, turned4(ip4(TCP, tcp())) + bytes(8), b"\0\x0b\0\0"))
    yield "extensions-v6", RAW, ip6(ICMP6, error(3, turned6(ip6(TCP, tcp())) + bytes(8), b"\x08\0\0\0"))
    yield "vlan-v4", ETHERNET, ethernet(VLAN) + tag(V4) + ip4(ICMP, error(3, turned4(ip4(UDP, udp()))))


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for group, packets in ("link", links()), ("v4", ipv4()), ("v6", ipv6()), ("quote", quotes()):
        for name, link, packet in packets:
            (folder / f"{group}-{name}").write_bytes(bytes([link]) + packet)


if __name__ == "__main__":
    main()
