#!/usr/bin/env python3
"""Tests the judges of NAT: check_nat.py must find every kind of damage to a right translation, the model (nat_model.py) every wrong choice of a NAT;
and docs/nat-rfcs.md must be what cmake/nat_rfcs.py makes.

    nat_checkers_test.py [TEST...]
"""

import os
import sys
import tempfile
import unittest

import captures
import check_nat
import nat_packets as make
from nat_model import SECOND, Model, Settings
from nat_ports import Wrong

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "cmake"))
import nat_rfcs  # noqa: E402

A, B, X, Y = bytes((10, 0, 0, 1)), bytes((10, 0, 0, 2)), bytes((9, 9, 9, 1)), bytes((9, 9, 9, 2))
P, Q = bytes((198, 51, 100, 1)), bytes((198, 51, 100, 2))
DNS = (X, 53)


def changed(packet, at, value):
    return packet[:at] + value + packet[at + len(value) :]


def translations():
    """Returns (seconds, packet, what leaves for it) of a right NAT."""
    out, back = make.udp((A, 5000), DNS, b"question"), make.udp(DNS, (P, 2000), b"answer")
    sent = make.rewritten(out, (P, 2000), DNS)
    pieces = make.fragments(make.udp((A, 5001), DNS, bytes(range(100)), 7), (48,))
    ping, data = make.query(A, X, 8, 5, b"ping"), make.sctp((A, 7), (X, 8), 9, make.DATA, bytes(16))
    error = make.error(Y, P, 3, 1, sent)
    return [
        (0, out, sent), (1, back, make.rewritten(back, DNS, (A, 5000))),
        (2, make.tcp((A, 6000), (X, 80), make.SYN), make.tcp((P, 2001), (X, 80), make.SYN)),
        (3, ping, make.query(P, X, 8, 2002, b"ping")), (4, data, make.rewritten(data, (P, 2003), (X, 8))),
        (5, error, make.error(Y, A, 3, 1, out)),
        (6, pieces[0], make.rewritten(pieces[0], (P, 2004), DNS)), (7, pieces[1], make.rewritten(pieces[1], (P, 0), (X, 0))),
        (8, make.udp((Y, 1), (P, 2009)), None), (9, make.udp((Y, 1), DNS), make.udp((Y, 1), DNS)),
        (400, make.udp((B, 1), DNS), make.udp((Q, 2000), DNS)), (401, make.udp((A, 5000), DNS), make.udp((P, 2000), DNS)),
    ]


class Checker(unittest.TestCase):
    def judged(self, all_of_them):
        with tempfile.TemporaryDirectory() as folder:
            one, other = os.path.join(folder, "in"), os.path.join(folder, "out")
            captures.write(one, captures.RAW, [(int(t * SECOND), len(packet), packet) for t, packet, _ in all_of_them])
            captures.write(other, captures.RAW, [(int(t * SECOND), len(left), left) for t, _, left in all_of_them if left])
            return check_nat.check(one, other, ["10.0.0.0/8"], ["198.51.100.0/24"])

    def test_right(self):
        judge = self.judged(translations())
        self.assertEqual(judge.errors, [])
        self.assertEqual((judge.counts["from inside"], judge.counts["to inside"], judge.counts["errors"], judge.counts["dropped"]), (7, 1, 1, 1))

    def test_every_byte_matters(self):
        right = translations()
        for number, (time, packet, left) in enumerate(right):
            for at in range(len(left or b"")):
                damaged = [*right]
                damaged[number] = time, packet, changed(left, at, bytes((left[at] ^ 0x01,)))
                self.assertNotEqual(self.judged(damaged).errors, [], (number, at))

    def test_wrong_ends(self):
        right = translations()
        more = {
            "another public end in a live session": [(10, right[0][1], make.rewritten(right[0][1], (P, 2010), DNS)),
                                                     (11, right[0][1], make.rewritten(right[0][1], (P, 2012), DNS))],
            "another address of a customer": [(402, make.udp((A, 5009), DNS), make.udp((Q, 2020), DNS))],
            "a port of another customer": [(402, make.udp((B, 9), DNS), make.udp((P, 2000), DNS))],
            "another inside end": [(402, right[1][1], make.rewritten(right[1][1], DNS, (B, 5000)))],
            "a customer's packet unchanged": [(402, right[0][1], right[0][1])],
            "a packet to the pool unchanged": [(402, right[1][1], right[1][1])],
            "another remote end": [(402, right[0][1], make.rewritten(right[0][1], (P, 2000), (Y, 53)))],
            "a packet from nowhere": [(402, make.udp((Y, 1), DNS), make.udp((Y, 2), DNS))],
            "an error to another inside": [(402, right[5][1], make.requoted(right[5][1], Y, B, (B, 5000), DNS))],
        }
        for what, wrong in more.items():
            with self.subTest(what):
                self.assertNotEqual(self.judged(right + wrong).errors, [])


NEAR, OWN, ONE, TWO = bytes((172, 16, 0, 1)), bytes((192, 0, 2, 1)), (bytes((172, 17, 0, 1)), b""), (bytes((172, 17, 0, 2)), bytes((0, 0, 0, 7)))


def passages():
    """Returns (sender, packet, receiver, what leaves) of a right NAT, whose two customers have one private address. None: outside."""
    out, back = make.udp((A, 5000), DNS, b"question", 1), make.udp(DNS, (P, 2000), b"answer", 2)
    twin, to_twin = make.udp((A, 5000), DNS, b"question", 3), make.udp(DNS, (P, 2064), b"answer", 4)
    sent = make.rewritten(out, (P, 2000), DNS)
    error, hairpin = make.error(Y, P, 3, 1, sent, ident=5), make.udp((A, 5001), (P, 2064), b"over here", 6)
    pieces = make.fragments(make.udp((A, 5001), DNS, bytes(range(100)), 7), (48,))
    ping = make.query(A, X, 8, 5, b"ping", 8)
    syn = make.tcp((A, 6000), (X, 80), make.SYN, ident=9)
    return [
        (ONE, out, None, sent), (TWO, twin, None, make.rewritten(twin, (P, 2064), DNS)),
        (None, back, ONE, make.rewritten(back, DNS, (A, 5000))), (None, to_twin, TWO, make.rewritten(to_twin, DNS, (A, 5000))),
        (None, error, ONE, make.error(Y, A, 3, 1, out, ident=5)), (ONE, hairpin, TWO, make.rewritten(hairpin, (P, 2001), (A, 5000))),
        (TWO, pieces[0], None, make.rewritten(pieces[0], (P, 2066), DNS)), (TWO, pieces[1], None, make.rewritten(pieces[1], (P, 0), (X, 0))),
        (TWO, ping, None, make.query(P, X, 8, 2070, b"ping", 8)), (ONE, syn, None, make.rewritten(syn, (P, 2005), (X, 80))),
        (None, make.udp((Y, 1), (P, 2009), ident=10), None, None),
    ]


def wrapped(source, to, key, inner, fragment=0x4000):
    return make.ip(source, to, 47, (b"\x20\0\x08\0" + key if key else b"\0\0\x08\0") + inner, fragment=fragment)


class LinksChecker(unittest.TestCase):
    def judged(self, all_of_them, change=None):
        """`change`: (the number of the packet that leaves, a function of its frame's bytes behind the Ethernet header)."""
        access, internet = [], []
        for n, (came_from, packet, leaves_to, left) in enumerate(all_of_them):
            time = n * SECOND
            frames = [(came_from, packet if came_from is None else wrapped(came_from[0], NEAR, came_from[1], packet, 0))]
            if left:
                left = make.header(left, left[12:16], left[16:20], 63) + left[20:]
                left = left if leaves_to is None else wrapped(NEAR, *leaves_to, left)
                frames.append((leaves_to, change[1](left) if change and change[0] == n else left))
            for where, data in frames:
                frame = bytes(12) + b"\x08\0" + data + bytes(max(0, 46 - len(data)))
                (internet if where is None else access).append((time, len(frame), frame))
        own = make.udp((OWN, 1), DNS)
        internet.append((0, len(own) + 14, bytes(12) + b"\x08\0" + own))
        with tempfile.TemporaryDirectory() as folder:
            files = [os.path.join(folder, name) for name in ("access", "internet")]
            for file, those in zip(files, (access, internet)):
                captures.write(file, captures.ETHERNET, those)
            return check_nat.check_links(*files, "172.16.0.1", ["192.0.2.1", "172.16.0.1"], ["10.0.0.0/8"], ["198.51.100.0/24"])

    def test_right(self):
        judge = self.judged(passages())
        self.assertEqual(judge.errors, [])
        counts = [judge.counts[name] for name in ("from inside", "to inside", "errors", "later fragments", "dropped")]
        self.assertEqual(counts, [6, 3, 1, 1, 1])

    def test_every_byte_matters(self):
        for n, (_, _, leaves_to, left) in enumerate(passages()):
            if left is None:
                continue
            header = 0 if leaves_to is None else 24 + len(leaves_to[1])
            for at in range(header + len(left)):
                if header and at == 9:  # of another protocol, a packet is the NAT's own
                    continue
                judge = self.judged(passages(), (n, lambda data, at=at: changed(data, at, bytes((data[at] ^ 0x01,)))))
                self.assertNotEqual(judge.errors, [], (n, at))

    def test_wrong_customers(self):
        right = passages()
        sent, back = right[0], right[2]
        other = make.udp((A, 5000), DNS, b"question", 20)
        more = {
            "another customer with that address": [(None, changed_ident(back[1], 21), TWO, changed_ident(back[3], 21))],
            "another key": [(None, changed_ident(back[1], 21), (ONE[0], b"\0\0\0\1"), changed_ident(back[3], 21))],
            "without the tunnel": [(None, changed_ident(back[1], 21), None, changed_ident(back[3], 21))],
            "one port for both": [(TWO, other, None, make.rewritten(other, (P, 2000), DNS))],
            "untranslated": [(ONE, other, None, other)],
            "another customer's hairpin": [(ONE, changed_ident(right[5][1], 21), ONE, changed_ident(right[5][3], 21))],
            "an error to another customer": [(None, changed_ident(right[4][1], 21), TWO, changed_ident(right[4][3], 21))],
            "a fragment of another customer": [(ONE, right[7][1], None, right[7][3])],
        }
        for what, wrong in more.items():
            with self.subTest(what):
                self.assertNotEqual(self.judged(right + wrong).errors, [])
        for what, change in {
            "no hop less": lambda data: make.header(data, data[12:16], data[16:20], 64) + data[20:],
            "another outer class": lambda data: make.ip(data[12:16], data[16:20], 47, data[20:24] + b"\x45\x08" + data[26:], fragment=0x4000),
            "may be divided": lambda data: make.ip(data[12:16], data[16:20], 47, data[20:]),
        }.items():
            with self.subTest(what):
                self.assertNotEqual(self.judged(right, (0 if what == "no hop less" else 2, change)).errors, [])
        self.assertEqual(self.judged([sent, back]).errors, [])


class SwitchesChecker(unittest.TestCase):
    """Captures of two switches, with a NAT of several servers between them."""

    def judged(self, all_of_them, until=1000):
        """Judges (seconds, packet of a customer, public end); 3 hops lie between the captures."""
        inside, outside = [], []
        for ident, (time, packet, public) in enumerate(all_of_them, 1):
            packet = changed_ident(packet, ident)
            left = make.rewritten(packet, public, DNS)
            left = make.header(left, left[12:16], left[16:20], 61) + left[20:]
            for where, data in ((inside, packet), (outside, left)):
                where.append((int(time * SECOND), len(data) + 14, bytes(12) + b"\x08\0" + data))
        with tempfile.TemporaryDirectory() as folder:
            files = [os.path.join(folder, name) for name in ("inside", "outside")]
            for file, those in zip(files, (inside, outside)):
                captures.write(file, captures.ETHERNET, those)
            return check_nat.check_switches(*files, until * SECOND, ["192.0.2.0/24"], ["10.0.0.0/8"], ["198.51.100.0/24"], 3, 64)

    def test_ports_and_blocks_have_one_customer_at_a_time(self):
        first, same, again = (0, make.udp((A, 5000), DNS), (P, 2000)), (1, make.udp((A, 5001), DNS), (P, 2001)), (2, make.udp((B, 1), DNS), (P, 2100))
        judge = self.judged([first, same, again])
        self.assertEqual((judge.errors, judge.counts["from inside"]), ([], 3))
        for time in (3, 120.5):  # 120 s after the last packet of that block
            for number in (1983, 1984, 2000, 2001, 2002, 2047, 2048):
                judge = self.judged([first, same, (time, make.udp((B, 9), DNS), (P, number))])
                self.assertEqual(bool(judge.errors), 1984 <= number < 2048, (time, number))
        judge = self.judged([first, same, (121.5, make.udp((B, 9), DNS), (P, 2001))])
        self.assertEqual((judge.errors, judge.counts["ports of another customer"], judge.counts["blocks of another customer"]), ([], 1, 1))

    def test_later_packets_are_not_judged(self):
        two = [(0, make.udp((A, 5000), DNS), (P, 2000)), (3, make.udp((B, 9), DNS), (P, 2000))]
        self.assertEqual([bool(self.judged(two, until).errors) for until in (2, 3)], [False, True])

    def test_a_lost_session_is_no_error(self):
        packet = make.udp((A, 5000), DNS)
        judge = self.judged([(0, packet, (P, 2000)), (1, packet, (P, 2001))])
        self.assertEqual((judge.counts["wrong"], judge.counts["sessions begun anew"]), (0, 1))


def changed_ident(packet, ident):
    packet = changed(packet, 4, ident.to_bytes(2, "big"))
    return make.header(packet, packet[12:16], packet[16:20]) + packet[20:]


class ModelOfNat(unittest.TestCase):
    """The model is told what a NAT does, step by step: (seconds, packet, what leaves)."""

    def play(self, steps, mapping=0, filtering=2):
        model = Model(Settings(mapping, filtering, [P, Q], (1024, 1151), 64, 1, 100))
        for seconds, packet, left in steps:
            model.at(int(seconds * SECOND))
            model.judge(packet, left)
        model.at(10**13)

    def test_wrong_choices(self):
        def opened(host, port, public, remote=DNS):
            packet = make.udp((host, port), remote)
            return packet, make.rewritten(packet, public, remote)

        answer = make.udp(DNS, (P, 1024))
        taken = make.rewritten(answer, DNS, (A, 5000))
        first = (0, *opened(A, 5000, (P, 1024)))
        self.play([first, (1, answer, taken), (2, *opened(B, 5000, (P, 1088))), (3, *opened(A, 5001, (P, 1025)))])
        wrong = {
            "a dropped answer": [first, (1, answer, None)],
            "an answer after the timeout": [first, (121, answer, taken)],
            "an answer that is kept alive from outside": [first, (1, answer, taken), (200, answer, taken), (301, answer, taken)],
            "a stranger": [first, (1, make.udp((Y, 53), (P, 1024)), make.udp((Y, 53), (A, 5000)))],
            "another mapping": [first, (1, *opened(A, 5000, (P, 1026), (Y, 53)))],
            "a port in use": [first, (1, *opened(A, 5002, (P, 1024)))],
            "another customer's block": [first, (1, *opened(B, 5000, (P, 1030)))],
            "a block that rests": [first, (200, *opened(B, 5000, (P, 1030)))],
            "another address": [first, (1, *opened(A, 5002, (Q, 1024)))],
            "another parity": [first, (1, *opened(A, 5002, (P, 1025)))],
            "a port that is not the pool's": [(0, *opened(A, 5000, (P, 1200)))],
            "a refusal without need": [(0, opened(A, 5000, (P, 1024))[0], None)],
            "TCP without a SYN": [(0, make.tcp((A, 1), DNS, make.ACK), make.tcp((P, 1025), DNS, make.ACK))],
            "a wrong checksum": [(0, first[1], changed(first[2], 26, b"\x12\x34"))],
        }
        for what, steps in wrong.items():
            with self.subTest(what), self.assertRaises(Wrong):
                self.play(steps)


class Page(unittest.TestCase):
    def test_names(self):
        for name, expected in (
            ("Rfc4787Req4ParityIsKept", [("4787", "4")]), ("Rfc6888Req8APortRests", [("6888", "8")]), ("Rfc4787Req9aFromThePublicEnd", [("4787", "9a")]),
            ("test_rfc4787_req9a_and_rfc5382_req8_hairpins", [("4787", "9a"), ("5382", "8")]), ("test_rfc4787_req1_and_req8_both", [("4787", "1"), ("4787", "8")]),
            ("test_rfc7857_sec2_1_closing", [("7857", "2.1")]), ("test_rfc7857_sec5_and_sec6_x", [("7857", "5"), ("7857", "6")]),
            ("test_rfc6888_req5_16001_sessions", [("6888", "5")]),
        ):
            self.assertEqual(nat_rfcs.requirements_of(name), expected, name)

    def test_page(self):
        text, wrong = nat_rfcs.page(nat_rfcs.tests())
        self.assertEqual(wrong, [])
        with open(nat_rfcs.PAGE, encoding="utf-8") as file:
            self.assertEqual(file.read(), text, "docs/nat-rfcs.md is out of date: run cmake/nat_rfcs.py")

    def test_a_requirement_without_a_test_or_with_an_unknown_name(self):
        found = nat_rfcs.tests()
        del found["4787", "2"]
        found["4787", "99"] = [("Rfc4787Req99Nothing", "x_test.cc")]
        self.assertEqual(len(nat_rfcs.page(found)[1]), 2)


if __name__ == "__main__":
    unittest.main()
