#!/usr/bin/env python3
"""Floods a capture's servers, and checks that the capture's connections are not harmed.

    flood.py MILLRACE CAPTURE [--kind syn|ack|udp|denied] [--recorded CAPTURE] [--each 10] [--speed X]
             [--packets N] [--capacity 32768] [--when-full evict|stateless] [--seed N] [--keep FOLDER]

The capture's busiest servers become services, and its replies come from their backends, as in
roundtrip.py. millrace replays the capture alone, and then with a flood, which begins after a fifth of
the capture: --each packets to those servers for each packet of the capture, from spoofed sources, or with
--recorded the packets of a recorded flood, sent to those servers instead of the flood's victims. --speed makes
the capture that many times faster. Both replays have a table of --capacity connections. Exit status 1 if a packet
of a connection from before the flood came out different than without the flood, or if that happened to more than
1 % of the connections that began later; 2 if the test cannot run.

With --kind denied, a firewall has the capture's connections, and a rule of it denies the flood, all of which must be dropped. (A reply
that is captured before the packet that opens its connection passes only if both are in one burst, which a flood prevents.)
"""

import argparse
import collections
import ipaddress
import itertools
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

import captures
import packets
import roundtrip
from packets import TCP, UDP

_SHARE_BEFORE = 5  # the flood begins after a fifth of the capture
_FLAGS = {"syn": 0x02, "ack": 0x10, "denied": 0x02}


def frame(server, kind):
    """Returns the parts of a packet to `server`: the bytes before the source's address, those between it and the
    source's port, and those behind the port."""
    address, port, protocol = server
    if protocol == TCP:
        numbers = bytes(8) + struct.pack(">BBHHH", 0x50, _FLAGS[kind], 65535, 0, 0)
    else:
        numbers = struct.pack(">HH", 8 + 32, 0) + bytes(32)
    behind = port.to_bytes(2, "big") + numbers
    if len(address) == 16:
        header = struct.pack(">IHBB", 0x60000000, 2 + len(behind), protocol, 64)
        return bytes(12) + b"\x86\xdd" + header, address, behind
    total = 22 + len(behind)
    header = struct.pack(">BBHHHBBH", 0x45, 0, total, 0, 0, 64, protocol, 0)
    return bytes(12) + b"\x08\x00" + header, address, behind


def spoofed(servers, kind, rng, prefixes=(b"", b"")):
    """Yields packets without end, each from a random source with the prefix of its family."""
    wanted = UDP if kind == "udp" else TCP
    frames = [frame(server, kind) for server in servers if server[2] == wanted]
    if not frames:
        raise RuntimeError(f"none of the servers can be flooded with {kind} packets")
    while True:
        before, address, behind = rng.choice(frames)
        prefix = prefixes[len(address) == 16]
        source = prefix + rng.randbytes(len(address) + 2 - len(prefix))
        yield before + source[:-2] + address + source[-2:] + behind


def recorded(path, servers):
    """Yields the TCP packets over IPv4 of a recorded flood again and again, to the TCP servers over IPv4 in turn."""
    capture = captures.Capture(path)
    targets = [s for s in servers if s[2] == TCP and len(s[0]) == 4]
    if not targets:
        raise RuntimeError("the capture has no TCP server over IPv4, to which the recorded flood could be sent")
    while True:
        for number, (_, _, data) in enumerate(capture):
            flow = packets.dissect(capture.link_type, data)
            if flow is None or flow.family != 4 or flow.protocol != TCP:
                continue
            address, port, _ = targets[number % len(targets)]
            out = bytearray(data)
            out[flow.l3 + 16 : flow.l3 + 20] = address
            out[flow.l4 + 2 : flow.l4 + 4] = port.to_bytes(2, "big")
            yield bytes(out)


def prepare(options, folder):
    """Returns the servers, the path of their configuration, and the capture's packets with replies from backends."""
    capture = roundtrip.sound(options.capture, folder)
    if capture.link_type != captures.ETHERNET:
        raise RuntimeError(f"{options.capture}: the link type must be Ethernet")
    servers = roundtrip.busiest_servers(capture, 20)
    config = os.path.join(folder, "services.toml")
    prefixes = roundtrip.unused_prefixes(capture)
    roundtrip.write_config(config, roundtrip.services(servers, prefixes))
    first = os.path.join(folder, "first.pcap")
    roundtrip.replay(options.millrace, capture.path, config, first, os.path.join(folder, "stats"))
    presenter = roundtrip.Presenter(capture.link_type, servers)
    start = next(iter(capture))[0]
    own = []
    for (time, wire, data), (_, _, out) in zip(capture, captures.Capture(first)):
        if len(own) == options.packets:
            break
        data, _ = presenter.packet(time, data, out)
        own.append((start + round((time - start) / options.speed), wire, data))
    with open(config, "a", encoding="utf-8") as file:
        print(f'[table]\nwhen_full = "{options.when_full}"', file=file)
    return servers, config, own


def mixed(own, flood, each):
    """Returns the capture's packets with the flood's among them, and the indices of the capture's packets."""
    begin = len(own) // _SHARE_BEFORE
    out, places = [], []
    for number, packet in enumerate(own):
        places.append(len(out))
        out.append(packet)
        if number >= begin:
            for _ in range(each):
                data = next(flood)
                out.append((packet[0], len(data), data))
    return out, places


def replay(millrace, config, capacity, sent, folder, name):
    path, out = os.path.join(folder, name + ".pcap"), os.path.join(folder, name + ".out.pcap")
    stats = os.path.join(folder, name + ".json")
    captures.write(path, captures.ETHERNET, sent)
    command = [millrace, "replay", "--in", path, "--out", out, "--stats", stats, "--quiet"]
    command += ["--config", config, "--capacity", str(capacity), "--seed", "1"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
    with open(stats, encoding="utf-8") as file:
        return list(captures.Capture(out)), json.load(file)


def replay_all(millrace, config, capacity, sent, folder, name):
    came, stats = replay(millrace, config, capacity, sent, folder, name)
    if len(came) != len(sent):
        raise RuntimeError(f"{len(sent)} packets went in, and all must come out, but {len(came)} came out")
    return came, stats


def named(capture):
    """Yields (connection, packet) of each TCP and UDP packet. A reply from a backend has another name than its request."""
    for number, packet in enumerate(capture):
        flow = packets.dissect(captures.ETHERNET, packet[2])
        if flow is not None and flow.protocol in (TCP, UDP):
            yield (flow.protocol, *sorted(roundtrip.ends(flow, packet[2]))), number


def judge(own, wrong):
    """Prints how many connections of `own` are in `wrong`. Returns True if these are too many."""
    begin = len(own) // _SHARE_BEFORE
    born = {}
    for name, number in named(own):
        born.setdefault(name, number)
    before = {name for name, number in born.items() if number < begin}
    hurt, later, lost = len(wrong & before), len(born) - len(before), len(wrong - before)
    print(
        f"{len(before):,} connections began before the flood: packets of {hurt:,} (allowed: 0) came out "
        f"different than without the flood; {later:,} began during the flood: packets of {lost:,} (allowed: 1 %) did"
    )
    return hurt > 0 or lost > 0.01 * later


def flood(options, folder):
    servers, config, own = prepare(options, folder)
    rng = random.Random(options.seed)
    if options.recorded:
        source = recorded(options.recorded, servers)
    else:
        source = spoofed(servers, options.kind, rng)
    alone, _ = replay_all(options.millrace, config, options.capacity, own, folder, "alone")
    sent, places = mixed(own, source, options.each)
    came, stats = replay_all(options.millrace, config, options.capacity, sent, folder, "flooded")
    begin = len(own) // _SHARE_BEFORE
    seconds = max((own[-1][0] - own[begin][0]) / captures.SECOND, 1e-9)
    what = os.path.basename(options.recorded) if options.recorded else options.kind
    print(
        f"{what}, seed {options.seed}: {len(sent) - len(own):,} packets of the flood among {len(own):,} "
        f"of the capture, {(len(sent) - len(own)) / seconds / options.capacity:.2f} times the table's capacity a "
        f"second; {stats['connections']['live']:,} connections live at the end, "
        f"{collections.Counter(stats['connections']['closed']).get('evicted', 0):,} evicted"
    )
    return judge(own, {name for name, number in named(own) if alone[number] != came[places[number]]})


_FIREWALL = """chain = ["firewall"]
[firewall]
pickup = "loose"
[[firewall.rule]]
name = "flood"
source = [{denied}]
action = "drop"
[[firewall.rule]]
name = "rest"
action = "accept"
"""


def denied(options, folder):
    """Returns True if a flood that the firewall denies changes what comes out."""
    capture = roundtrip.sound(options.capture, folder)
    prefixes = roundtrip.unused_prefixes(capture)
    v4, v6 = (ipaddress.ip_network((p + bytes(size - len(p)), 8 * len(p))) for p, size in zip(prefixes, (4, 16)))
    config = os.path.join(folder, "firewall.toml")
    with open(config, "w", encoding="utf-8") as file:
        file.write(_FIREWALL.format(denied=f'"{v4}", "{v6}"'))
    start = next(iter(capture))[0]
    own = [
        (start + round((time - start) / options.speed), wire, data)
        for time, wire, data in itertools.islice(capture, options.packets)
    ]
    flood_packets = spoofed(roundtrip.busiest_servers(capture, 20), "denied", random.Random(options.seed), prefixes)
    sent, _ = mixed(own, flood_packets, options.each)
    alone, _ = replay(options.millrace, config, options.capacity, own, folder, "alone")
    flooded, stats = replay(options.millrace, config, options.capacity, sent, folder, "flooded")
    flood_size, dropped = len(sent) - len(own), stats["packets"]["dropped"].get("denied", 0)
    print(
        f"denied, seed {options.seed}: {flood_size:,} packets of the flood among {len(own):,} of the capture, {dropped:,} denied; "
        f"{len(alone):,} packets came out without the flood, {len(flooded):,} with it"
    )
    outcomes = []
    for came in (alone, flooded):
        packets_of = collections.defaultdict(list)
        for name, number in named(came):
            packets_of[name].append(came[number])
        outcomes.append(packets_of)
    wrong = {name for name, _ in named(own) if outcomes[0][name] != outcomes[1][name]}
    return judge(own, wrong) or dropped != flood_size


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("millrace", help="the program to test")
    parser.add_argument("capture")
    parser.add_argument("--kind", choices=("syn", "ack", "udp", "denied"), default="syn")
    parser.add_argument("--recorded", metavar="CAPTURE", help="a flood that was captured")
    parser.add_argument("--each", type=int, default=10, help="packets of the flood for each packet of the capture")
    parser.add_argument("--speed", type=float, default=1, help="a multiple of the capture's speed")
    parser.add_argument("--packets", type=int, default=10**9, help="the most packets of the capture to send")
    parser.add_argument("--capacity", type=int, default=32768, help="connections for which the table has room")
    parser.add_argument("--when-full", choices=("evict", "stateless"), default="evict")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--keep", metavar="FOLDER", help="keep the files in FOLDER")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            run = denied if options.kind == "denied" else flood
            return int(run(options, options.keep or scratch))
    except (OSError, RuntimeError, captures.NotACapture) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
