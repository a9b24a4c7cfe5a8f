#!/usr/bin/env python3
"""Replays captures of fragmented datagrams through the load balancer and through `forward`, and compares what leaves with what a model
says, packet by packet and byte by byte: fragments in all orders, doubled, overlapping, interleaved, with one and three workers.

    fragments_replay.py MILLRACE [TEST...]
"""

import ipaddress
import itertools
import json
import os
import random
import struct
import unittest

import captures
from cli_case import Case
from packets import checksum

UDP, FRAGMENT = 17, 44
SERVICE = {4: "203.0.113.10", 6: "2001:db8:1::10"}
BACKENDS = {4: ["10.0.0.1", "10.0.0.2", "10.0.0.3"], 6: ["fd00::1", "fd00::2", "fd00::3"]}
BALANCE = "".join(
    f"""[[service]]
address = "{SERVICE[family]}"
port = 53
protocol = "udp"
scheduler = "maglev"
backends = [{", ".join(f'{{ address = "{b}", port = 5353 }}' for b in BACKENDS[family])}]
""" for family in (4, 6))
FORWARD = 'chain = ["forward"]\n'


def packed(address):
    return ipaddress.ip_address(address).packed


def udp_datagram(source, destination, source_port, port, data):
    """Returns a UDP datagram with its checksum, computed from scratch."""
    size = 8 + len(data)
    header = struct.pack(">HHHH", source_port, port, size, 0)
    pseudo = packed(source) + packed(destination) + struct.pack(">II", size, UDP)
    return header[:6] + struct.pack(">H", checksum(pseudo + header + data) or 0xFFFF) + data


class Piece:
    """The bytes from `begin` to `end` of a datagram's payload, as a fragment."""

    def __init__(self, datagram, begin, end, is_last=None, salt=b""):
        self.datagram, self.begin, self.end = datagram, begin, end
        self.is_last = end == datagram.size if is_last is None else is_last
        self.salt = salt  # replaces the first bytes, as those of an attacker would

    def bytes_to(self, destination, port):
        """Returns the fragment as it stands in a capture, addressed to this destination."""
        d = self.datagram
        whole = udp_datagram(d.source, destination, d.source_port, port, d.data)
        data = (self.salt + whole[self.begin + len(self.salt) : self.end]).ljust(self.end - self.begin, b"!")
        more = 0 if self.is_last else 1
        if d.family == 4:
            ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(data), d.id, more << 13 | self.begin // 8, 64, UDP, 0)
            ip += packed(d.source) + packed(destination)
            return ip[:10] + struct.pack(">H", checksum(ip)) + ip[12:] + data
        ip = struct.pack(">IHBB", 6 << 28, 8 + len(data), FRAGMENT, 64) + packed(d.source) + packed(destination)
        return ip + struct.pack(">BBHI", UDP, 0, self.begin | more, d.id) + data

    def place(self):
        return self.begin, self.end, self.is_last


class Datagram:
    def __init__(self, number, family, pieces, rng):
        self.family, self.id = family, number * 7919 % 65521
        first, next_one = ("198.18.0.1", 1) if family == 4 else ("2001:db8:f::1", 1 << 64)  # a source of IPv6 is a /64
        self.source = str(ipaddress.ip_address(first) + number * next_one)
        self.source_port = 1024 + number % 50000
        ends = [8 * (1 + rng.randrange(30))]
        while len(ends) < pieces:
            ends.append(ends[-1] + 8 * (1 + rng.randrange(30)))
        ends[-1] -= rng.randrange(8) if pieces > 1 else 0
        self.size = ends[-1]
        self.data = rng.randbytes(self.size - 8)
        self.pieces = [Piece(self, begin, end) for begin, end in zip([0, *ends], ends)]


class Model:
    """One datagram's fragments by RFC 791, RFC 8200 and RFC 5722: which go on, and in which order."""

    def __init__(self):
        self.begin_anew()

    def begin_anew(self):
        self.seen, self.kept, self.has_first, self.is_bad, self.total = [], [], False, False, None

    def is_complete(self):
        return self.has_first and not self.is_bad and self.total == sum(end - begin for begin, end, _ in self.seen)

    def take(self, piece):
        """Returns the pieces that go on now."""
        place = begin, end, is_last = piece.place()
        repeats = place in self.seen
        if self.is_complete():
            repeats = begin != 0 and end <= self.total and is_last == (end == self.total)
            if not repeats:
                self.begin_anew()
        if self.is_bad:
            return []
        if not repeats:
            overlaps = any(begin < e and b < end for b, e, _ in self.seen)
            beyond = self.total is not None and (end > self.total or is_last or end == self.total)
            behind = is_last and any(e > end for _, e, _ in self.seen)
            if overlaps or beyond or behind:
                self.is_bad, self.kept = True, []
                return []
            self.seen.append(place)
            self.total = end if is_last else self.total
        if begin == 0:
            self.has_first = True
            kept, self.kept = self.kept, []
            return [piece, *kept]
        if self.has_first:
            return [piece]
        self.kept.append(piece)
        return []


def interleaved(sequences, rng):
    """Returns all elements of the sequences, in a random order in which each sequence keeps its own."""
    waiting = [list(reversed(s)) for s in sequences]
    turns = [n for n, s in enumerate(sequences) for _ in s]
    rng.shuffle(turns)
    return [waiting[n].pop() for n in turns]


class Fragments(Case):
    def setUp(self):
        super().setUp()
        self.seed = int(os.environ.get("MILLRACE_TEST_SEED") or random.SystemRandom().randrange(2**32))
        print(f"seed {self.seed}")
        self.rng = random.Random(self.seed)
        self.numbers = itertools.count()

    def datagram(self, pieces):
        number = next(self.numbers)
        return Datagram(number, 4 if number % 2 == 0 else 6, pieces, self.rng)

    def leaving(self, config, pieces, gap_us=50, **options):
        """Replays a capture of these pieces; returns the packets that leave, and the statistics."""
        start = 1_700_000_000 * captures.SECOND
        arriving = [p.bytes_to(SERVICE[p.datagram.family], 53) for p in pieces]
        captures.write(self.path("in.pcap"), captures.RAW,
                       [(start + n * gap_us * 1000, len(data), data) for n, data in enumerate(arriving)])
        self.write("c.toml", config)
        stats = self.stats_of("replay", "--in", self.path("in.pcap"), "--config", self.path("c.toml"), "--out", self.path("out.pcap"),
                              "--seed", "1", *(x for name, value in options.items() for x in (f"--{name}", str(value))))
        return [data for _, _, data in captures.Capture(self.path("out.pcap"))], stats

    def stats_of(self, *arguments):
        self.run_ok(*arguments, "--stats", self.path("s.json"))
        with open(self.path("s.json")) as file:
            return json.load(file)

    def check(self, pieces):
        """Checks that what the model says leaves: through both functions, with each number of workers."""
        models, going_on = {}, []
        for piece in pieces:
            going_on += models.setdefault(piece.datagram, Model()).take(piece)
        for sharing, workers in (("sharded", 1), ("sharded", 3), ("lock-free-race", 3)):
            with self.subTest(seed=self.seed, sharing=sharing, workers=workers):
                left, stats = self.leaving(FORWARD, pieces, sharing=sharing, workers=workers)
                self.assertEqual(left, [p.bytes_to(SERVICE[p.datagram.family], 53) for p in going_on])
                self.assertEqual(stats["packets"]["tracked"], len(going_on))
                self.assertEqual(sum(stats["packets"]["dropped"].values()), len(pieces) - len(going_on))
                left, stats = self.leaving(BALANCE, pieces, sharing=sharing, workers=workers)
                self.assertEqual(len(left), len(going_on))
                backends = {}
                for piece, data in zip(going_on, left):
                    family = piece.datagram.family
                    at = str(ipaddress.ip_address(data[16:20] if family == 4 else data[24:40]))
                    self.assertIn(at, BACKENDS[family])
                    self.assertEqual(backends.setdefault(piece.datagram, at), at, "a datagram went to two backends")
                    self.assertEqual(data, piece.bytes_to(at, 5353))
                self.assertEqual({b for b in backends.values()}, {b for each in BACKENDS.values() for b in each})

    def test_all_orders(self):
        """All orders of 2 to 5 fragments, of both families, one datagram behind the other."""
        sequences = [order for n in range(2, 6) for order in itertools.permutations(range(n))]
        pieces = []
        for order in sequences * 2:
            datagram = self.datagram(len(order))
            pieces += [datagram.pieces[i] for i in order]
        self.check(pieces)

    def test_doubled(self):
        """Each fragment twice, in random places."""
        pieces = []
        for n in range(300):
            datagram = self.datagram(2 + n % 4)
            both = datagram.pieces * 2
            self.rng.shuffle(both)
            pieces += both
        self.check(pieces)

    def test_interleaved(self):
        """Datagrams of 1,000 sources at the same time, some of them doubled."""
        sequences = []
        for n in range(1000):
            pieces = list(self.datagram(2 + n % 4).pieces) * (2 if n % 5 == 0 else 1)
            self.rng.shuffle(pieces)
            sequences.append(pieces)
        self.check(interleaved(sequences, self.rng))

    def test_overlapping(self):
        """A fragment that overlaps others, with other bytes, somewhere among them."""
        sequences = []
        for n in range(400):
            datagram = self.datagram(2 + n % 4)
            units = (datagram.size + 7) // 8
            begin = self.rng.randrange(units)
            end = 8 * (begin + 1 + self.rng.randrange(units))
            is_last = begin > 0 and self.rng.random() < 0.3  # at 0 it would be a whole packet
            bad = Piece(datagram, 8 * begin, end - is_last * self.rng.randrange(4), is_last, salt=b"" if begin == 0 else b"evil")
            pieces = [*datagram.pieces, bad]
            self.rng.shuffle(pieces)
            sequences.append(pieces)
        self.check(interleaved(sequences, self.rng))


    def test_a_flood_of_first_fragments(self):
        """10^6 first fragments, whose rest never comes, each of another source; between them a connection goes on, in fragments. It
        loses nothing, and memory does not grow."""
        count = int(os.environ.get("MILLRACE_TEST_FLOOD") or 1_000_000)
        gap_ns, start = 2_000, 1_700_000_000 * captures.SECOND
        honest = Datagram(0, 4, 3, self.rng)
        template = bytearray(Datagram(1, 4, 2, self.rng).pieces[0].bytes_to(SERVICE[4], 53)[:40])
        template[2:4] = struct.pack(">H", 40)
        template[6:8] = b"\x20\0"

        def arriving():
            for n in range(count):
                template[12:16] = struct.pack(">I", 0x0A000000 + n * 2654435761 % 2**24)
                template[4:6] = struct.pack(">H", n & 0xFFFF)
                yield bytes(template)
                if n % 1000 == 0:
                    honest.id = n // 1000 + 1
                    yield from (honest.pieces[i].bytes_to(SERVICE[4], 53) for i in (1, 0, 2))

        captures.write(self.path("in.pcap"), captures.RAW,
                       ((start + n * gap_ns, len(data), data) for n, data in enumerate(arriving())))
        self.write("c.toml", FORWARD)
        for workers in (1, 3):
            stats = self.stats_of("replay", "--in", self.path("in.pcap"), "--config", self.path("c.toml"), "--out", self.path("out.pcap"),
                                  "--seed", "1", "--workers", str(workers), "--capacity", "20000")
            left = [data for _, _, data in captures.Capture(self.path("out.pcap")) if data[12:16] == packed(honest.source)]
            self.assertEqual(len(left), 3 * ((count + 999) // 1000))
            for n in range(0, len(left), 3):
                honest.id = n // 3 + 1
                self.assertEqual(left[n : n + 3], [honest.pieces[i].bytes_to(SERVICE[4], 53) for i in (0, 1, 2)])
            self.assertLess(stats["fragments"]["bytes"], workers * 3 << 20)
            self.assertLessEqual(stats["fragments"]["datagrams"], workers * 2 * 8192)


if __name__ == "__main__":
    unittest.main()
