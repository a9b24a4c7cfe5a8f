#!/usr/bin/env python3
"""Replays random packets of customers and strangers through millrace's NAT, and compares each packet that leaves, or does not, with a model
made from the RFCs (nat_model.py): all nine combinations of mapping and filtering, pools that run out of ports, timeouts.

    nat_model_test.py MILLRACE [TEST...]

MILLRACE_NAT_STEPS: steps of all combinations together. MILLRACE_TEST_SEED: a seed, in place of a random one.
"""

import collections
import itertools
import os
import random
import struct
import unittest

import captures
import check_nat
from cli_case import Case
from nat_model import DEPENDENCES, SECOND, Model, Settings, Wrong
from nat_traffic import Traffic

STEPS = int(os.environ.get("MILLRACE_NAT_STEPS", "20000"))
START = 1_700_000_000 * SECOND
RECORD = struct.Struct("<IIII")


class Replayed:
    """A capture that grows. Each replay begins at its start, since the public ends of replies must be known before they are made."""

    def __init__(self, case, settings):
        self.case, self.read = case, 24  # bytes of the header of a capture
        self.config = case.write("c.toml", settings.text())
        captures.write(case.path("in.pcap"), captures.RAW, [])

    def leaving(self, packets):
        """Replays the packets behind all earlier ones; returns what leaves for each of them, or None."""
        case = self.case
        with open(case.path("in.pcap"), "ab") as file:
            for time, data in packets:
                time += START
                file.write(RECORD.pack(time // SECOND, time % SECOND, len(data), len(data)) + data)
        case.run_ok("replay", "--in", case.path("in.pcap"), "--out", case.path("out.pcap"), "--config", self.config, "--seed", "1",
                    "--pages", "small", "--burst", "1", "--quiet", "--stats", case.path("s.json"))
        left = collections.defaultdict(list)
        with open(case.path("out.pcap"), "rb") as file:
            unit = 1 if file.read(4) == b"\x4d\x3c\xb2\xa1" else 1000
            file.seek(self.read)
            data = file.read()
        at = 0
        while at < len(data):
            seconds, fraction, size, _ = RECORD.unpack_from(data, at)
            left[seconds * SECOND + fraction * unit - START].append(data[at + 16 : at + 16 + size])
            at += 16 + size
        self.read += len(data)
        return left


class NatModel(Case):
    def setUp(self):
        super().setUp()
        self.seed = int(os.environ.get("MILLRACE_TEST_SEED") or random.SystemRandom().randrange(2**32))
        print(f"seed {self.seed}", flush=True)

    def play(self, settings, seed, steps):
        model = Model(settings)
        traffic = Traffic(settings, model, random.Random(seed))
        replayed = Replayed(self, settings)
        packets = 0
        for begin in range(0, steps, chunk := max(300, steps // 40)):
            sent = traffic.chunk(min(chunk, steps - begin))
            left = replayed.leaving(sent)
            for time, data in sent:
                packets += 1
                leaving = left.pop(time, [])
                try:
                    model.at(time)
                    if len(leaving) > 1:
                        raise Wrong("one packet has become several")
                    model.judge(data, leaving[0] if leaving else None)
                except Wrong as wrong:
                    came = " ".join(one.hex() for one in leaving) or "nothing"
                    self.fail(f"packet {packets} at {time / SECOND:.6f} s: {data.hex()}\nleft {came}\n{wrong}\nsettings {settings}")
            self.assertEqual(left, {}, "packets left that did not come")
        model.forget_datagrams()
        pool = [".".join(map(str, address)) for address in settings.addresses]
        judge = check_nat.check(self.path("in.pcap"), self.path("out.pcap"), [f"{settings.inside}.0.0.0/8"], pool, [f"{settings.exempt}.0.0.0/8"])
        self.assertEqual(judge.errors, [])
        return packets, model.counts

    def test_model(self):
        """All nine combinations, each with few ports and with enough of them."""
        counts, packets = collections.Counter(), 0
        for number, (mapping, filtering) in enumerate(itertools.product(range(3), range(3))):
            addresses = [bytes((198, 51, 100, n)) for n in range(4 if number % 2 else 2)]
            few = Settings(mapping, filtering, addresses, (1024, 1024 + 64 * 8 - 1), 64, 2, 150)
            enough = Settings(mapping, filtering, addresses, (1024, 65535), 512, 4, 16000)
            for settings in (few, enough):
                with self.subTest(seed=self.seed, mapping=DEPENDENCES[mapping], filtering=DEPENDENCES[filtering], ports=settings.ports):
                    some, done = self.play(settings, self.seed + number, STEPS // 18)
                    packets += some
                    counts += done
        print(f"{packets:,} packets: " + ", ".join(f"{n:,} {what}" for what, n in counts.most_common()))


if __name__ == "__main__":
    unittest.main()
