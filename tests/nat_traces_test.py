#!/usr/bin/env python3
"""Replays captures through NAT, and judges each packet by check_nat.py. Then replays them again with the answers to customers addressed to
the public ends of their sessions: each answer that passes must be the captured one again, byte by byte.

    nat_traces_test.py MILLRACE FOLDER [TEST...]

MILLRACE_NAT_PACKETS: packets of each capture, from its beginning.
"""

import itertools
import os
import sys
import unittest

import captures
import check_nat
import packets
from cli_case import Case

TRACES = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""
PACKETS = int(os.environ.get("MILLRACE_NAT_PACKETS", "30000"))  # of each capture, at most
CUSTOMERS, POOL = "10.0.0.0/8", "198.18.0.0/26"
CONFIG = f"""function = "nat"
[table]
capacity = 200000
[[nat.pool]]
name = "homes"
addresses = ["{POOL}"]
[[nat.rule]]
source = ["{CUSTOMERS}"]
pool = "homes"
"""


def to(flow, data, end):
    """Returns a packet of a flow with another destination, its checksums adjusted (RFC 1624)."""
    out = bytearray(data)
    places = check_nat.numbers_at(flow)
    moved = [(flow.l3 + 16, end[0])] + ([(places[1], end[1].to_bytes(2, "big"))] if places else [])
    old = new = b""
    for at, value in moved:
        old, new = old + data[at : at + len(value)], new + value
        out[at : at + len(value)] = value
    sums = [(flow.l3 + 10, old[:4], new[:4])]
    place = flow.l4 + packets.L4_CHECKSUM.get(flow.protocol, 2)
    if flow.protocol == packets.SCTP:
        check_nat.follow_crc(flow, out, data, out)
    elif (flow.protocol in packets.L4_CHECKSUM or flow.protocol == packets.ICMP) and place + 2 <= flow.end:
        if flow.protocol != packets.UDP or data[place : place + 2] != b"\0\0":
            sums.append((place, old[4:], new[4:]) if flow.protocol == packets.ICMP else (place, old, new))
    for at, was, becomes in sums:
        value = packets.adjusted(check_nat.number(data, at), was, becomes)
        if value == 0 and at != flow.l3 + 10 and flow.protocol in (packets.UDP, packets.UDP_LITE):
            value = 0xFFFF
        out[at : at + 2] = value.to_bytes(2, "big")
    return bytes(out)


class NatTraces(Case):
    def translate(self, source, out):
        self.write("c.toml", CONFIG)
        self.run_ok("replay", "--in", source, "--out", out, "--config", self.path("c.toml"), "--seed", "1", "--stats", self.path("s.json"),
                    "--quiet")
        judge = check_nat.check(source, out, [CUSTOMERS], [POOL])
        print(os.path.basename(source) + ": " + ", ".join(f"{count:,} {what}" for what, count in sorted(judge.counts.items())))
        self.assertEqual(judge.errors, [])
        return judge

    def answers(self, source, translated):
        """Writes the capture with answers addressed to the public ends that sessions have when they come; returns the captured answers."""
        capture, out, was = captures.Capture(source), [], {}
        judge = check_nat.Judge(capture.link_type, [CUSTOMERS], [POOL], [])
        given = self.path("answers.pcap") if os.path.exists(self.path("answers.pcap")) else source
        pairs = check_nat.pairs(captures.Capture(given), captures.Capture(translated))
        for number, ((time, wire, data), (packet, left)) in enumerate(zip(capture, pairs)):
            judge.pair(number, packet, left)
            flow = packets.dissect(capture.link_type, data)
            if flow and flow.family == 4 and flow.key[6:10] in judge.customers and flow.key[2:6] not in judge.customers:
                places = check_nat.numbers_at(flow)
                remote, inside = ((flow.key[2 + 4 * n : 6 + 4 * n], check_nat.number(data, places[n]) if places else None) for n in (0, 1))
                public = judge.publics.get((flow.protocol, (remote[0], None) if flow.protocol == packets.ICMP else remote,
                                            check_nat.inside_of(inside, None)))
                if public and public[0][1] is not None:
                    was[number] = data
                    data = to(flow, data, public[0])
            out.append((time, wire, data))
        captures.write(self.path("next.pcap"), capture.link_type, out)
        os.replace(self.path("next.pcap"), self.path("answers.pcap"))
        return was

    def test_there_and_back(self):
        """The public ends of sessions that begin anew are known only once the answers before have ended their forerunners: so each round learns
        from the previous one."""
        for name in ("mix_dev", "quic_dev"):
            source = self.path("in.pcap")
            whole = captures.Capture(os.path.join(TRACES, f"{name}.pcap"))
            captures.write(source, whole.link_type, itertools.islice(whole, PACKETS))
            first = self.translate(source, self.path("out.pcap"))
            self.assertGreater(first.counts["from inside"], 100)
            for _ in range(2):
                was = self.answers(source, self.path("out.pcap"))
                self.translate(self.path("answers.pcap"), self.path("out.pcap"))
                left = check_nat.pairs(captures.Capture(self.path("answers.pcap")), captures.Capture(self.path("out.pcap")))
                back = sum(one is not None and one[2] == was.get(number) for number, (_, one) in enumerate(left))
                print(f"{name}: {back:,} of {len(was):,} answers came back as they were captured")
            self.assertGreater(back, len(was) * 0.8)  # a five-tuple that is used again and again needs as many rounds
            os.remove(self.path("answers.pcap"))


if __name__ == "__main__":
    if not os.path.isdir(TRACES):
        print(f"no folder {TRACES}")
        sys.exit(77)
    unittest.main()
