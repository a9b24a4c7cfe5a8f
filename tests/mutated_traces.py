#!/usr/bin/env python3
"""Replays mutated packets of captures through the firewall, alone and in chains.

    mutated_traces.py MILLRACE [FOLDER] [--packets 100000] [--seed SEED]

Runs of consecutive packets are drawn from all captures of the folder; half of their packets are mutated: bytes of their
headers, lengths, fragment fields, ends, order. Each configuration replays `--packets` packets. Each replay must end with status 0,
no sanitizer may report an error, and the statistics must add up (replay_traces.py). Exit status 1 if any of this
fails, 77 if the folder is absent.
"""

import argparse
import collections
import os
import random
import sys
import tempfile

import captures
import packets
import replay_traces

_RUN = 200  # consecutive packets of one capture: enough for connections to be opened and followed
_SKIPPED = 77
_EDGES = (0, 1, 7, 8, 20, 40, 60, 255, 256, 1280, 0x1FFF, 0x2000, 0x7FFF, 0x8000, 0xFFFE, 0xFFFF)

_FIREWALL = """
[firewall]
default = "reject"
pickup = "{pickup}"
log = true
[firewall.sets]
some = ["0.0.0.0/3", "2000::/4"]
[[firewall.rule]]
name = "refused"
protocol = "tcp"
destination_ports = ["1-100"]
action = "reject"
log = true
[[firewall.rule]]
name = "limited"
source = "@some"
action = "accept"
limit = {{ rate = "100/s", burst = 10, per = "source" }}
[[firewall.rule]]
name = "rest"
protocol = ["tcp", "udp", "icmp", "icmpv6", "sctp", "gre"]
action = "accept"
"""
_SERVICES = """
[[service]]
address = "0.0.0.0/0"
backends = [{ address = "10.0.0.1" }, { address = "10.0.0.2" }]
[[service]]
address = "::/0"
backends = [{ address = "fd00::1" }]
"""
CONFIGURATIONS = {
    "firewall, strict": 'chain = ["firewall"]' + _FIREWALL.format(pickup="strict"),
    "firewall, loose": 'chain = ["firewall"]' + _FIREWALL.format(pickup="loose"),
    "firewall and balance": 'chain = ["firewall", "balance"]' + _FIREWALL.format(pickup="loose") + _SERVICES,
    "balance and firewall": 'chain = ["balance", "firewall"]' + _FIREWALL.format(pickup="loose") + _SERVICES,
    "balance": 'function = "balance"' + _SERVICES,
}


def corpus(folder):
    """Returns the packets of all readable captures of Ethernet: a list for each capture."""
    found = []
    for path in replay_traces.capture_files(folder):
        try:
            capture = captures.Capture(path)
        except (captures.NotACapture, OSError):
            continue
        if capture.link_type == captures.ETHERNET:
            data = [packet[2] for packet in capture if capture.link_of(packet) == captures.ETHERNET]
            if data:
                found.append(data)
    return found


def _overwrite(rng, data, at, size):
    value = rng.choice(_EDGES) if rng.random() < 0.5 else rng.getrandbits(8 * size)
    if at + size <= len(data):
        data[at : at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "big")


def mutated(rng, data, other):
    """Returns `data` with one to four mutations; some copy a piece of `other`."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        found = packets.find_ip(captures.ETHERNET, bytes(data))
        l3 = found[0] if found else 14
        header = 20 if found and found[1] == 4 else 40
        kind = rng.randrange(9)
        if kind == 0:  # any bit of the headers
            at = rng.randrange(min(len(data), l3 + header + 40)) if data else 0
            if data:
                data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:  # a field of two bytes anywhere in the headers
            _overwrite(rng, data, rng.randrange(l3, l3 + header + 40, 2), 2)
        elif kind == 2:  # the captured end
            del data[rng.randrange(len(data) + 1) :]
        elif kind == 3:  # length of the IP packet
            _overwrite(rng, data, l3 + (2 if header == 20 else 4), 2)
        elif kind == 4:  # fragment field, or the next header
            _overwrite(rng, data, l3 + 6, 2 if header == 20 else 1)
        elif kind == 5:  # first bytes of the transport header, which hold ports, types, flags, lengths
            _overwrite(rng, data, l3 + header + rng.randrange(20), rng.choice((1, 2, 4)))
        elif kind == 6:  # the header length
            _overwrite(rng, data, l3, 1)
        elif kind == 7:  # bytes of another packet
            at, size = rng.randrange(l3, l3 + header + 20), rng.randrange(1, 60)
            data[at : at + size] = other[at : at + size]
        else:  # more bytes
            data += rng.randbytes(rng.randrange(1, 100))
    return bytes(data)


def drawn(rng, found, count):
    """Returns `count` packets for `captures.write`."""
    out, now = [], 1_000_000_000 * captures.SECOND
    while len(out) < count:
        capture = rng.choice(found)
        begin = rng.randrange(len(capture))
        run = capture[begin : begin + _RUN]
        for number, data in enumerate(run):
            if rng.random() < 0.5:
                data = mutated(rng, data, rng.choice(run))
            if out and rng.random() < 0.02:
                out.append(out[rng.randrange(max(0, len(out) - 50), len(out))])
            now += rng.choice((1000, 1000, 10**6, 10**8)) if number % 50 == 0 else 1000
            out.append((now, len(data) + rng.choice((0, 0, 0, 4, 1000)), data))
    return out[:count]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("millrace", help="the program to test")
    parser.add_argument("folder", nargs="?", default=replay_traces.TRACES)
    parser.add_argument("--packets", type=int, default=100_000, help="packets for each configuration")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    options = parser.parse_args()
    if not os.path.isdir(options.folder):
        print(f"skipped: no folder {os.path.relpath(options.folder)}")
        return _SKIPPED
    print(f"seed {options.seed}")
    rng = random.Random(options.seed)
    found = corpus(options.folder)
    failures = 0
    with tempfile.TemporaryDirectory() as scratch:
        path, config = os.path.join(scratch, "in.pcap"), os.path.join(scratch, "config.toml")
        for name, text in CONFIGURATIONS.items():
            captures.write(path, captures.ETHERNET, drawn(rng, found, options.packets))
            with open(config, "w", encoding="utf-8") as file:
                file.write(text)
            done, stats, _ = replay_traces.run(options.millrace, path, scratch, "--config", config)
            wrong = list(replay_traces.problems(done, stats, ({captures.ETHERNET}, options.packets, True)))
            verdicts = collections.Counter()
            if stats is not None:
                verdicts.update(stats["packets"]["dropped"])
                verdicts["tracked"] = stats["packets"]["tracked"]
            print(f"{name}: " + ", ".join(f"{count:,} {verdict}" for verdict, count in verdicts.most_common() if count))
            for text in wrong[:10]:
                print(f"  {text}")
            failures += bool(wrong)
    print(f"{options.packets:,} packets for each of {len(CONFIGURATIONS)} configurations, {failures} with errors (allowed: 0)")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
