#!/usr/bin/env python3
"""Tests check_balance.py, packets.py, captures.py, and parts of cmake/lint.py. check_balance.py must find every kind of
damage to a right translation.

    checkers_test.py            the tests
    checkers_test.py IN OUT     translates the capture IN with the toy balancer below, and writes OUT
"""

import os
import struct
import sys
import tempfile
import unittest
import zlib

import captures
import captures_made
import check_balance
import packets

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cmake"))
import lint  # noqa: E402

CLIENT, SERVER = bytes((192, 0, 2, 7)), bytes((203, 0, 113, 9))
CLIENT6, SERVER6 = bytes.fromhex("20010db8" + 23 * "0" + "7"), bytes.fromhex("20010db8" + 23 * "0" + "9")
SECOND = captures.SECOND


def segment(protocol, source_port, payload=b"payload!", pseudo=b"", right=True):
    """Returns a TCP or UDP segment with the right checksum, or with a wrong one if not `right`."""
    length = len(payload) + (20 if protocol == packets.TCP else 8)
    ports = struct.pack(">HH", source_port, 443)
    if protocol == packets.TCP:
        head = ports + struct.pack(">IIBBHHH", 1, 2, 0x50, 0x10, 1000, 0, 0)
    else:
        head = ports + struct.pack(">HH", length, 0)
    place = packets.L4_CHECKSUM[protocol]
    pseudo += struct.pack(">HH", protocol, length)
    value = packets.checksum(pseudo + head + payload) if right else 0x1234
    return head[:place] + struct.pack(">H", value) + head[place + 2 :] + payload


def v4(protocol=packets.TCP, source_port=1000, tags=b"", fragment=0, **more):
    data = segment(protocol, source_port, pseudo=CLIENT + SERVER, **more)
    head = struct.pack(">BBHHHBB", 0x45, 0, 20 + len(data), 1, fragment, 64, protocol)
    check = packets.checksum(head + CLIENT + SERVER)
    head += struct.pack(">H", check) + CLIENT + SERVER
    return bytes(12) + tags + b"\x08\x00" + head + data


def v6(protocol=packets.UDP, source_port=1000, options=b"", **more):
    data = segment(protocol, source_port, pseudo=CLIENT6 + SERVER6, **more)
    kind = 60 if options else protocol
    head = struct.pack(">IHBB", 6 << 28, len(options) + len(data), kind, 64) + CLIENT6 + SERVER6
    return bytes(12) + b"\x86\xdd" + head + options + data


def replaced(data, at, new):
    return data[:at] + new + data[at + len(new) :]


def toy_balance(link_type, data, source=False, to=None):
    """Returns `data` with its destination (or, if `source`, its source) rewritten to `to`, an address and a port, or to the
    backend that the CRC of its flow chooses. Adjusts checksums by the difference, without recomputing them."""
    flow = packets.dissect(link_type, data)
    if flow is None:
        return data
    at, size, port_at = check_balance._place(flow, source)
    if to is None:
        number = bytes((zlib.crc32(flow.key) % 10 + 1,))
        to = ((b"\x0a\0\0" if size == 4 else b"\xfd" + bytes(14)) + number, None)
    out, old, new = data, data[at : at + size], to[0]
    out = replaced(out, at, new)
    if flow.family == 4:
        place = flow.l3 + 10
        fixed = packets.adjusted(int.from_bytes(out[place : place + 2], "big"), old, new)
        out = replaced(out, place, fixed.to_bytes(2, "big"))
    if port_at and to[1] is not None:
        old, new = old + data[port_at : port_at + 2], new + to[1].to_bytes(2, "big")
        out = replaced(out, port_at, new[-2:])
    place = flow.l4 + packets.L4_CHECKSUM.get(flow.protocol, 1 << 20)
    if place + 2 <= flow.end:
        value = int.from_bytes(out[place : place + 2], "big")
        if value or flow.protocol != packets.UDP:
            value = packets.adjusted(value, old, new)
            value = value or (0xFFFF if flow.protocol == packets.UDP else 0)
            out = replaced(out, place, value.to_bytes(2, "big"))
    return out


VLAN = bytes.fromhex("8100000a")
QINQ = bytes.fromhex("88a8000a8100000b")
ARP = bytes(12) + b"\x08\x06" + bytes(28)
HOP = bytes((packets.UDP, 0, 1, 4, 0, 0, 0, 0))

ORIGINAL = [
    v4(),
    v4(packets.UDP),
    v6(),
    v6(packets.TCP, options=bytes((packets.TCP,)) + HOP[1:]),
    v4(tags=VLAN),
    v4(packets.UDP, tags=QINQ),
    v4(right=False),
    v4(packets.UDP, fragment=0x2000),
    v4(packets.UDP, fragment=0x0010),
    v4()[:50],  # cut behind the checksum
    v4()[:40],  # cut before the checksum
    ARP,
    replaced(v4(packets.UDP), 40, b"\0\0"),
    v6(options=HOP),
]


class Judged(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.paths = [os.path.join(folder.name, name) for name in ("in.pcap", "out.pcap")]

    def judge(self, translated, original=None, stats=None, times=None):
        """Judges `translated`, a list of frames or of whole records."""
        original = ORIGINAL if original is None else original
        times = times or [i * SECOND for i in range(len(original))]
        records = [(t, len(d) + 4, d) for t, d in zip(times, original)]
        captures.write(self.paths[0], captures.ETHERNET, records)
        if translated and isinstance(translated[0], bytes):
            translated = [(t, len(o) + 4, d) for t, o, d in zip(times, original, translated)]
        captures.write(self.paths[1], captures.ETHERNET, translated)
        return check_balance.check(*self.paths, stats=stats)[0]


class Balance(Judged):
    def right(self, original=None):
        return [toy_balance(captures.ETHERNET, d) for d in original or ORIGINAL]

    def test_right(self):
        judge = self.judge(self.right())
        self.assertEqual(judge.errors, [])
        self.assertEqual((judge.translated, judge.untouched), (12, 2))

    def test_dissection(self):
        keys = [packets.dissect(captures.ETHERNET, d) for d in ORIGINAL]
        self.assertEqual([i for i, k in enumerate(keys) if k is None], [8, 11])
        self.assertEqual(keys[0].key, keys[4].key)
        self.assertEqual(keys[2].key, keys[13].key)
        self.assertFalse(keys[10].whole)

    def test_toy_keeps_right_checksums_right(self):
        out = self.right()[0]
        self.assertEqual(packets.sum16(out[14:34]), 0)
        tcp = out[34:]
        pseudo = out[26:34] + struct.pack(">HH", packets.TCP, len(tcp))
        self.assertEqual(packets.sum16(pseudo + tcp), 0)

    def test_every_damaged_byte_is_found(self):
        right = self.right()
        for i, frame in enumerate(right):
            for at in range(len(frame)):
                damaged = list(right)
                damaged[i] = replaced(frame, at, bytes((frame[at] ^ 0x11,)))
                if not self.judge(damaged).wrong:
                    self.fail(f"frame {i}, byte {at}: the change was not found")

    def test_untranslated_packet_is_found(self):
        for i in (0, 1, 2, 3, 4, 5, 6, 7):
            damaged = self.right()
            damaged[i] = ORIGINAL[i]
            self.assertTrue(self.judge(damaged).wrong, i)

    def test_moved_connection_is_found(self):
        for frame in (v4(), v6(), v4(packets.UDP)):
            other = bytes((10, 0, 0, 1)) if frame[12] == 8 else b"\xfd" + bytes(14) + b"\x01"
            mine = toy_balance(captures.ETHERNET, frame)
            flow = packets.dissect(captures.ETHERNET, mine)
            at, size, _ = check_balance._place(flow, source=False)
            if mine[at : at + size] == other:
                other = other[:-1] + b"\x02"
            moved = toy_balance(captures.ETHERNET, frame, to=(other, None))
            self.assertEqual(self.judge([mine, mine], [frame, frame]).wrong, 0)
            self.assertEqual(self.judge([mine, moved], [frame, frame]).wrong, 1)
            later = [0, 8000 * SECOND]  # after the timeout the second packet begins another connection
            self.assertEqual(self.judge([mine, moved], [frame, frame], times=later).wrong, 0)

    def test_udp_checksum_stays_absent(self):
        frame = replaced(v4(packets.UDP), 40, b"\0\0")
        filled = replaced(toy_balance(captures.ETHERNET, frame), 40, b"\x12\x34")
        self.assertEqual(self.judge([filled], [frame]).wrong, 1)

    def test_wrong_time_length_order_and_number(self):
        right = [(i * SECOND, len(o) + 4, d) for i, (o, d) in enumerate(zip(ORIGINAL, self.right()))]
        self.assertEqual(self.judge(right).wrong, 0)
        time, wire, data = right[3]
        for damaged in ((time + 1, wire, data), (time, wire + 1, data), (time, wire, data[:-1])):
            self.assertTrue(self.judge(right[:3] + [damaged] + right[4:]).wrong)
        self.assertTrue(self.judge(right[:-1]).wrong)
        self.assertTrue(self.judge(right + right[-1:]).wrong)
        self.assertTrue(self.judge([right[1], right[0]] + right[2:]).wrong)

    def statistics(self, dropped=0):
        addresses = {a for s in check_balance.default_services() for a, _ in s.backends}
        judge = self.judge(self.right())
        return {
            "packets": {
                "in": 14,
                "out": 14 - dropped,
                "tracked": 12 - dropped,
                "stateless": 0,
                "related": 0,
                "dropped": {"table_full": dropped},
                "untracked": {"not_ip": 1, "fragment": 1},
            },
            "backends": [
                {"address": check_balance._name((a, 0)), "packets": judge.packets_of[a]}
                for a in addresses
            ],
        }

    def test_statistics(self):
        stats = self.statistics()
        self.assertEqual(self.judge(self.right(), stats=stats).errors, [])
        stats["backends"][0]["packets"] += 1
        self.assertEqual(self.judge(self.right(), stats=stats).wrong, 1)
        stats = self.statistics()
        stats["packets"]["in"] += 1
        self.assertEqual(self.judge(self.right(), stats=stats).wrong, 1)

    def test_dropped_packets_are_found_among_the_others(self):
        stats = self.statistics(dropped=1)
        for missing in range(8):
            records = [(i * SECOND, len(o) + 4, d) for i, (o, d) in enumerate(zip(ORIGINAL, self.right()))]
            gone = check_balance._place  # finds where the missing packet names its backend
            flow = packets.dissect(captures.ETHERNET, records[missing][2])
            del stats["backends"]
            stats["backends"] = self.statistics()["backends"]
            at, size, _ = gone(flow, False)
            for backend in stats["backends"]:
                if check_balance.packed(backend["address"]) == records[missing][2][at : at + size]:
                    backend["packets"] -= 1
            del records[missing]
            self.assertEqual(self.judge(records, stats=stats).errors, [])
            self.assertTrue(self.judge(records).wrong)  # without statistics a missing packet is an error


def turned(frame):
    """Returns `frame` with its ends swapped, so a packet of the other direction, with the same checksums."""
    flow = packets.dissect(captures.ETHERNET, frame)
    (a, size, p), (b, _, q) = (check_balance._place(flow, s) for s in (True, False))
    out = replaced(replaced(frame, a, frame[b : b + size]), b, frame[a : a + size])
    return replaced(replaced(out, p, frame[q : q + 2]), q, frame[p : p + 2])


def error_about(frame, cut=None, kind=None, words=0):
    """Returns a router's ICMP error about `frame`, to the sender of `frame`."""
    flow = packets.dissect(captures.ETHERNET, frame)
    at, size, _ = check_balance._place(flow, True)
    source, destination = frame[at : at + size][::-1], frame[at : at + size]
    if flow.family == 4:
        icmp = struct.pack(">BBHBBH", kind or 3, 4, 0, 0, words, 1400) + frame[flow.l3 :][:cut]
        icmp = replaced(icmp, 2, struct.pack(">H", packets.checksum(icmp)))
        head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(icmp), 1, 0, 64, 1, 0) + source + destination
        head = replaced(head, 10, struct.pack(">H", packets.checksum(head)))
    else:
        icmp = struct.pack(">BBHBBH", kind or 2, 0, 0, words, 0, 1400) + frame[flow.l3 :][:cut]
        pseudo = source + destination + struct.pack(">II", len(icmp), packets.ICMPV6)
        icmp = replaced(icmp, 2, struct.pack(">H", packets.checksum(pseudo + icmp)))
        head = struct.pack(">IHBB", 6 << 28, len(icmp), packets.ICMPV6, 64) + source + destination
    return frame[: flow.l3] + head + icmp


def toy_error(frame, number=None):
    """Returns the ICMP error `frame` as the toy balancer sends it on: to the backend, with the quoted packet
    rewritten."""
    quote = packets.quote_of(captures.ETHERNET, frame)
    number = number or zlib.crc32(packets.reversed_key(quote.flow)) % 10 + 1
    backend = (b"\x0a\0\0" if quote.family == 4 else b"\xfd" + bytes(14)) + bytes((number,))
    inner = frame[quote.at : quote.quote_end]
    after = toy_balance(captures.RAW, inner, source=True, to=(backend, None))
    at, size, _ = check_balance._place(quote, False)
    changes = [(quote.icmp + 2, inner, after)]
    if quote.family == 4:
        changes.append((quote.l3 + 10, frame[at : at + size], backend))
    else:
        changes[0] = (quote.icmp + 2, inner + frame[at : at + size], after + backend)
    out = replaced(replaced(frame, quote.at, after), at, backend)
    for place, old, new in changes:
        value = packets.adjusted(int.from_bytes(frame[place : place + 2], "big"), old, new)
        out = replaced(out, place, value.to_bytes(2, "big"))
    return out


class Errors(Judged):
    """ICMP errors with whole and with cut quotes, about packets from a service of the toy balancer."""

    ABOUT = [turned(f) for f in (v4(), v4(packets.UDP), v6(), v6(packets.TCP), v4(tags=VLAN))]
    ERRORS = [
        *(error_about(frame) for frame in ABOUT),
        error_about(ABOUT[0], cut=28),
        error_about(ABOUT[2], cut=48),
        error_about(ABOUT[0], kind=11, words=8) + bytes(4),
    ]

    def translated(self):
        return [toy_error(frame) for frame in self.ERRORS]

    def test_right(self):
        judge = self.judge(self.translated(), self.ERRORS)
        self.assertEqual(judge.errors, [])
        self.assertEqual((judge.related, judge.untouched), (len(self.ERRORS), 0))

    def test_toy_keeps_right_checksums_right(self):
        for frame in self.translated():
            quote = packets.quote_of(captures.ETHERNET, frame)
            icmp = frame[quote.icmp : quote.end]
            pseudo = b""
            if quote.family == 6:
                pseudo = frame[quote.l3 + 8 : quote.l3 + 40] + struct.pack(">II", len(icmp), packets.ICMPV6)
            self.assertEqual(packets.sum16(pseudo + icmp), 0)

    def test_every_damaged_byte_is_found(self):
        right = self.translated()
        for i, frame in enumerate(right):
            for at in range(len(frame)):
                damaged = list(right)
                damaged[i] = replaced(frame, at, bytes((frame[at] ^ 0x11,)))
                if not self.judge(damaged, self.ERRORS).wrong:
                    self.fail(f"error {i}, byte {at}: the change was not found")

    def test_untranslated_packet_is_found(self):
        for i in range(len(self.ERRORS)):
            damaged = self.translated()
            damaged[i] = self.ERRORS[i]
            self.assertTrue(self.judge(damaged, self.ERRORS).wrong, i)

    def test_moved_connection_is_found(self):
        for about, error in zip(self.ABOUT, self.ERRORS):
            original = [turned(about), error]
            served = toy_balance(captures.ETHERNET, original[0])
            self.assertEqual(self.judge([served, toy_error(error)], original).wrong, 0)
            other = zlib.crc32(packets.reversed_key(packets.quote_of(captures.ETHERNET, error).flow)) % 10 + 2
            moved = toy_error(error, number=other if other < 11 else 1)
            self.assertEqual(self.judge([served, moved], original).wrong, 1)

    def test_dissection(self):
        about = self.ABOUT[0]
        quote = packets.quote_of(captures.ETHERNET, self.ERRORS[0])
        self.assertEqual(quote.flow.key, packets.dissect(captures.ETHERNET, about).key)
        self.assertEqual(
            packets.reversed_key(quote.flow), packets.dissect(captures.ETHERNET, turned(about)).key
        )
        none = [
            about,
            ARP,
            error_about(about, cut=23),
            error_about(about, kind=5),
            error_about(about, kind=3, words=5),
            replaced(self.ERRORS[0], 30, b"\1"),  # to another host than the sender of the quoted packet
            replaced(self.ERRORS[0], 42, b"\x60"),
        ]
        self.assertEqual([packets.quote_of(captures.ETHERNET, frame) for frame in none], [None] * len(none))


class Arithmetic(unittest.TestCase):
    def test_adjusted_is_recomputed(self):
        for i in range(2000):
            data = zlib.crc32(bytes((i & 255, i >> 8))).to_bytes(4, "big") * 5
            new = zlib.crc32(data).to_bytes(4, "big")
            before = packets.checksum(data)
            self.assertEqual(
                packets.adjusted(before, data[:4], new), packets.checksum(new + data[4:])
            )

    def test_crc32c(self):
        """CRCs by the table have the check value of CRC-32C, and crc32c_change returns the change of such a CRC."""

        def crc(data):
            value = 0xFFFFFFFF
            for byte in data:
                value = packets._CRC32C[(value ^ byte) & 0xFF] ^ value >> 8
            return value ^ 0xFFFFFFFF

        self.assertEqual(crc(b"123456789"), 0xE3069283)
        change = crc(b"12ab56789") ^ crc(b"123456789")
        flip = bytes((ord("3") ^ ord("a"), ord("4") ^ ord("b")))
        self.assertEqual(packets.crc32c_change(flip, 5), change)


class Captures(unittest.TestCase):
    def test_pcapng(self):
        packet = b"abcde"
        section = struct.pack("<IIIHHqI", 0x0A0D0D0A, 28, 0x1A2B3C4D, 1, 0, -1, 28)
        nanoseconds = struct.pack("<HHB3xHH", 9, 1, 9, 0, 0)
        interface = struct.pack("<IIHHI", 1, 32, 1, 0, 0) + nanoseconds + struct.pack("<I", 32)
        time = 1_600_000_000_123_456_789
        block = struct.pack("<IIIIIII", 6, 40, 0, time >> 32, time & 0xFFFFFFFF, 5, 9)
        block += packet + bytes(3) + struct.pack("<I", 40)
        with tempfile.NamedTemporaryFile() as file:
            file.write(section + interface + block + block[:20])
            file.flush()
            capture = captures.Capture(file.name)
            self.assertEqual(capture.link_type, captures.ETHERNET)
            self.assertEqual(list(capture), [(time, 9, packet)])

    def test_pcapng_with_several_link_types(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(
                captures_made.Pcapng(">").interface(captures.SLL).interface(captures.RAW).packet(1, b"raw", 7)
                .section("<").interface(captures.ETHERNET, resolution=0).packet(0, b"frame", 8).old_packet(0, b"old", 9).simple(b"now").data
            )
            file.flush()
            capture = captures.Capture(file.name)
            self.assertEqual(capture.link_type, captures.RAW)
            self.assertEqual(
                list(capture), [(7000, 3, b"raw"), (8 * SECOND, 5, b"frame"), (9 * SECOND, 3, b"old"), (9 * SECOND, 3, b"now")]
            )
            links = [captures.RAW] + 3 * [captures.ETHERNET]
            self.assertEqual([capture.link_of(packet) for packet in capture], links)

    def test_refusals(self):
        for content in (b"", b"short", bytes(100), b"#!/bin/sh\n" * 10):
            with tempfile.NamedTemporaryFile() as file:
                file.write(content)
                file.flush()
                with self.assertRaises(captures.NotACapture):
                    captures.Capture(file.name)


class Lint(unittest.TestCase):
    def test_a_source_that_is_not_built_is_found(self):
        for built in ("src/core/memory.cc", "src/conntrack/table/race_test.cc", "tests/parse/parse_dump.cc"):
            self.assertEqual(list(lint.check_built(built)), [], built)
        # None of these is listed: the end of a listed name, two cut names, and a listed name in another folder.
        for path in ("src/core/emory.cc", "src/core/memory.c", "src/core/memo.cc", "cli/memory.cc"):
            self.assertEqual(len(list(lint.check_built(path))), 1, path)

    def test_go_is_looked_at(self):
        self.assertTrue("control/cmd/millctl/main.go".endswith(lint.TEXT))
        self.assertEqual(list(lint.check_text("x.go", ["\tindented()"])), [])
        for lines in (["trailing() "], ['path := "/' + 'home/somebody"'], (lint.MAX_LINES + 1) * ["line"]):
            self.assertEqual(len(list(lint.check_text("x.go", lines))), 1, lines[0])


def translate(path, out):
    capture = captures.Capture(path)
    link = capture.link_type
    captures.write(out, link, ((t, w, toy_balance(link, d)) for t, w, d in capture))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        translate(*sys.argv[1:])
    else:
        unittest.main()
