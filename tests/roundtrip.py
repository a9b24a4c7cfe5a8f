#!/usr/bin/env python3
"""Sends a capture's conversations through the balancer, requests and replies.

    roundtrip.py MILLRACE CAPTURE [--servers 20] [--keep FOLDER]

Fragments, which may change their order (tests/fragments_replay.py sends them), and ICMP errors with wrong checksums,
which are dropped, are left out. The capture's busiest servers become services. In the first replay the capture is unchanged, which shows
the backend of each conversation. In the second, each captured reply comes from that backend, and each
captured ICMP error about a request quotes the packet that was sent to that backend. Replies and errors must
come out byte-identical to the captured ones, except that errors come from the service itself; all other
packets must come out as in the first replay. Exit status 1 if any of this fails, 2 if the test cannot run.
"""

import argparse
import collections
import ipaddress
import json
import os
import subprocess
import sys
import tempfile

import captures
import check_balance
import packets
from packets import TCP, UDP

_SHOWN = 10
_SHORTEST_TIMEOUT = 9 * captures.SECOND  # the shortest timeout of all states, 10 s after a RST, less a margin
_NAMES = {TCP: "tcp", UDP: "udp"}


def ends(flow, data):
    """Returns (source, destination), each an address and a port."""
    result = []
    for source in (True, False):
        at, size, port = check_balance._place(flow, source)
        result.append((data[at : at + size], data[port] << 8 | data[port + 1]))
    return result


def sound(path, folder):
    """Returns the capture without fragments and without ICMP errors with wrong checksums, as a new capture in `folder`."""
    capture = captures.Capture(path)
    out = os.path.join(folder, "sound.pcap")
    rest = (
        packet
        for packet in capture
        if packets.part_of(capture.link_type, packet[2]) is None
        and not packets.is_wrong_error(capture.link_type, packet[2])
    )
    captures.write(out, capture.link_type, rest)
    return captures.Capture(out)


def conversations(capture):
    """Yields (packet number, flow, source, destination) of each TCP and UDP packet."""
    for number, (_, _, data) in enumerate(capture):
        flow = packets.dissect(capture.link_type, data)
        if flow is not None and flow.protocol in _NAMES:
            yield number, flow, *ends(flow, data)


def busiest_servers(capture, wanted):
    """Returns the `wanted` ends that send the most replies: (address, port, protocol), the busiest first. No two
    of them talk to each other: a packet between them would be a reply and a request at once."""
    opener = {}
    answered = collections.Counter()
    talks_to = collections.defaultdict(set)
    for _, flow, source, destination in conversations(capture):
        pair = (flow.protocol, *sorted((source, destination)))
        first = opener.setdefault(pair, source)
        if source != first:
            answered[(*source, flow.protocol)] += 1
        talks_to[(*source, flow.protocol)].add((*destination, flow.protocol))
        talks_to[(*destination, flow.protocol)].add((*source, flow.protocol))
    chosen = []
    for server, _ in answered.most_common():
        if server[1] and not talks_to[server].intersection(chosen) and server not in talks_to[server]:
            chosen.append(server)
            if len(chosen) == wanted:
                break
    return chosen


def unused_prefixes(capture):
    """Returns for each family a prefix for backends, which does not occur in the capture."""
    seen = set()
    for _, _, source, destination in conversations(capture):
        seen.update((source[0], destination[0]))
    v4 = next(p for p in range(18, 255) if all(a[:2] != bytes((198, p)) for a in seen))
    v6 = next(p for p in range(256) if all(a[:2] != bytes((0xFD, p)) for a in seen))
    return bytes((198, v4)), bytes((0xFD, v6))


def services(servers, prefixes):
    """Returns a service for each server, with three backends of its own; the second has another port."""
    result = []
    for number, (address, port, protocol) in enumerate(servers):
        backends = []
        for i in range(3):
            prefix = prefixes[len(address) == 16]
            host = bytes(len(address) - 4) + bytes((number + 1, i + 1))
            backend = {"address": str(ipaddress.ip_address(prefix + host))}
            if i == 1:
                backend["port"] = (port + 8000) % 65535 + 1
            backends.append(backend)
        result.append(
            {
                "address": str(ipaddress.ip_address(address)),
                "port": port,
                "protocol": _NAMES[protocol],
                "backends": backends,
            }
        )
    return result


def write_config(path, tables):
    with open(path, "w", encoding="utf-8") as file:
        print('function = "balance"\n\n[balance]\nstateful = true\nunmatched = "pass"', file=file)
        for table in tables:
            print("\n[[service]]", file=file)
            for key in ("address", "port", "protocol"):
                print(f"{key} = {json.dumps(table[key])}", file=file)
            print('scheduler = "maglev"\nbackends = [', file=file)
            for b in table["backends"]:
                inner = ", ".join(f"{k} = {json.dumps(v)}" for k, v in b.items())
                print(f"  {{ {inner} }},", file=file)
            print("]", file=file)


def replay(millrace, capture, config, out, stats):
    command = [millrace, "replay", "--in", capture, "--config", config, "--out", out]
    command += ["--stats", stats, "--seed", "1", "--clock", "capture", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")


def rewritten(flow, data, end, source):
    """Returns the packet `data` with its source or destination replaced by `end`."""
    at, size, port_at = check_balance._place(flow, source)
    out = bytearray(data)
    out[at : at + size] = end[0]
    if flow.family == 4:
        place = flow.l3 + 10
        value = packets.adjusted(data[place] << 8 | data[place + 1], data[at : at + size], end[0])
        out[place : place + 2] = value.to_bytes(2, "big")
    out[port_at : port_at + 2] = end[1].to_bytes(2, "big")
    place = flow.l4 + packets.L4_CHECKSUM[flow.protocol]
    if place + 2 <= flow.end:
        value = data[place] << 8 | data[place + 1]
        if value or flow.protocol == TCP:
            old = data[at : at + size] + data[port_at : port_at + 2]
            value = packets.adjusted(value, old, end[0] + end[1].to_bytes(2, "big"))
            value = value or (0xFFFF if flow.protocol == UDP else 0)
            out[place : place + 2] = value.to_bytes(2, "big")
    return bytes(out)


def adjust(out, place, old, new):
    value = packets.adjusted(int.from_bytes(out[place : place + 2], "big"), old, new)
    out[place : place + 2] = value.to_bytes(2, "big")


def rewritten_error(quote, data, asked, address):
    """Returns the ICMP error `data` as if it came from `address`, about a packet to `asked`."""
    inner = slice(quote.at, quote.quote_end)
    at, size, _ = check_balance._place(quote, source=True)
    out = bytearray(data)
    out[inner] = rewritten(quote.flow, data[inner], asked, source=False)
    out[at : at + size] = address
    pad = bytes(len(data[inner]) % 2)
    old, new = data[inner] + pad, bytes(out[inner]) + pad
    if quote.family == 4:
        adjust(out, quote.l3 + 10, data[at : at + size], address)
    else:
        old, new = old + data[at : at + size], new + address
    adjust(out, quote.icmp + 2, old, new)
    return bytes(out)


class Presenter:
    """Turns captured replies into those that the backends of their conversations would send, and captured errors
    into errors about packets to these backends."""

    def __init__(self, link_type, servers):
        self.link_type = link_type
        self.servers = set(servers)
        self.backend = {}  # (client, server, protocol): [backend, time of the last packet]
        self.now = 0
        self.presented = self.errors = self.unanswered = 0

    def packet(self, time, data, translated):
        """Returns the packet for the second replay in place of `data`, which the first replay turned into
        `translated`, and the packet that must come out; None stands for `translated`."""
        self.now = max(self.now, time)
        flow = packets.dissect(self.link_type, data)
        if flow is None:
            return self._error(data)
        if flow.protocol not in _NAMES:
            return data, None
        source, destination = ends(flow, data)
        if (*destination, flow.protocol) in self.servers:
            backend = ends(flow, translated)[1]
            if backend != destination:
                self.backend[source, destination, flow.protocol] = [backend, self.now]
        elif (*source, flow.protocol) in self.servers:
            known = self._known(destination, source, flow.protocol)
            if known is None:
                return data, None
            known[1] = self.now
            self.presented += 1
            return rewritten(flow, data, known[0], source=True), data
        return data, None

    def _known(self, client, server, protocol):
        """Returns the backend of a live connection, as a list with the time of its last packet; or None."""
        known = self.backend.get((client, server, protocol))
        if known is None or self.now - known[1] > _SHORTEST_TIMEOUT:
            self.unanswered += 1
            return None
        return known

    def _error(self, data):
        quote = packets.quote_of(self.link_type, data)
        if quote is None or quote.flow.protocol not in _NAMES:
            return data, None
        protocol = quote.flow.protocol
        client, server = ends(quote.flow, data[quote.at :])
        if (*server, protocol) not in self.servers:
            return data, None
        known = self._known(client, server, protocol)
        if known is None:
            return data, None
        self.errors += 1
        at, size, _ = check_balance._place(quote, source=True)
        teller = data[at : at + size]
        presented = rewritten_error(
            quote, data, known[0], known[0][0] if teller == server[0] else teller
        )
        return presented, rewritten_error(quote, data, server, server[0])


def differs(link_type, expected, got):
    """Returns the first place at which two packets differ, or None. In one's complement 0xffff and 0 are one
    number, so a captured IP or TCP checksum of 0xffff, which no sender computes, may come back as 0."""
    if expected == got:
        return None
    flow = packets.dissect(link_type, expected)
    zero = {b"\0\0", b"\xff\xff"}
    if flow is not None and len(expected) == len(got):
        places = [flow.l3 + 10] if flow.family == 4 else []
        places += [flow.l4 + packets.L4_CHECKSUM[TCP]] if flow.protocol == TCP else []
        for at in places:
            if {expected[at : at + 2], got[at : at + 2]} == zero:
                got = got[:at] + expected[at : at + 2] + got[at + 2 :]
    if expected == got:
        return None
    return next((i for i, (a, b) in enumerate(zip(expected, got)) if a != b), len(got))


def round_trip(millrace, path, count, folder):
    capture = sound(path, folder)
    servers = busiest_servers(capture, count)
    if not servers:
        raise RuntimeError(f"{path}: no TCP or UDP conversation in both directions")
    files = {n: os.path.join(folder, n) for n in ("first.pcap", "back.pcap", "second.pcap")}
    config, stats = os.path.join(folder, "services.toml"), os.path.join(folder, "stats.json")
    write_config(config, services(servers, unused_prefixes(capture)))

    replay(millrace, capture.path, config, files["first.pcap"], stats)
    with open(stats, encoding="utf-8") as file:
        judge, counts = check_balance.check(capture.path, files["first.pcap"], json.load(file), config)
    if counts[2]:
        raise RuntimeError(f"{counts[2]} packets were dropped: none may be")

    presenter = Presenter(capture.link_type, servers)
    presented, wanted = [], []
    for (time, wire, data), (_, _, out) in zip(capture, captures.Capture(files["first.pcap"])):
        present, out_again = presenter.packet(time, data, out)
        presented.append((time, wire, present))
        wanted.append((time, wire, out if out_again is None else out_again))
    captures.write(files["back.pcap"], capture.link_type, presented)
    replay(millrace, files["back.pcap"], config, files["second.pcap"], stats)

    errors = list(judge.errors)
    second = captures.Capture(files["second.pcap"])
    identical = 0
    total = 0
    for number, (original, expected, sent, came) in enumerate(
        zip(capture, wanted, presented, second), 1
    ):
        total = number
        is_reply = sent[2] != original[2]
        where = differs(capture.link_type, expected[2], came[2])
        if where is not None or expected[:2] != came[:2]:
            what = "reply" if is_reply else "packet"
            errors.append(f"packet {number}: the {what} came out different at byte {where}")
        identical += is_reply and where is None
    if total != len(presented):
        errors.append(f"{len(presented)} packets went into the second replay, and all must come out, but {total} came out")
    print(
        f"{len(servers)} servers, {judge.connections:,} connections, {judge.translated:,} packets "
        f"to backends, {judge.related:,} errors about them, {presenter.presented:,} replies and "
        f"{presenter.errors:,} errors presented, of which {identical:,} came out right, byte by byte "
        f"({presenter.unanswered:,} more had no connection)"
    )
    if not presenter.presented:
        errors.append("no reply belonged to a connection: nothing was tried")
    return errors


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("millrace", help="the program to test")
    parser.add_argument("capture")
    parser.add_argument("--servers", type=int, default=20, help="the number of servers that become services")
    parser.add_argument("--keep", metavar="FOLDER", help="keep the files in FOLDER")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as scratch:
            errors = round_trip(
                options.millrace, options.capture, options.servers, options.keep or scratch
            )
    except (OSError, RuntimeError, captures.NotACapture) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    for error in errors[:_SHOWN]:
        print(f"  {error}")
    if errors:
        print(f"WRONG in {len(errors):,} places")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
