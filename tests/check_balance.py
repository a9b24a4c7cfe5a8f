#!/usr/bin/env python3
"""Checks a load balancer's output for a capture, packet by packet.

    check_balance.py ORIGINAL TRANSLATED [--stats stats.json] [--config balance.toml]
                     [--timeout SECONDS | --timeout PROTOCOL=SECONDS ...]

Confirms that
- all packets of a live connection went to one backend;
- a translated packet differs from the original only in the address and port of one end, and in the
  checksums over them, by exactly the difference that the rewriting makes;
- ICMP errors about translated packets were sent on, with the quoted packet rewritten in the same way;
- later fragments of a datagram went where its first one went, with other addresses and nothing else changed, in any order;
- every other packet is byte-identical; all times and lengths are the original's;
- the counters of the statistics, if they are given, agree.
Exit status 1 if any of these does not hold, 2 if a file cannot be read.
"""

import argparse
import collections
import ipaddress
import json
import sys

import captures
import check_fragments
import packets
from balance_services import PROTOCOLS, default_services, packed, services_of
from packets import SCTP, UDP, sum16

TIMEOUTS_S = {"tcp": 7440, "udp": 120, "icmp": 60, "sctp": 210, "udplite": 120, "gre": 30, "other": 600}
_TICK_NS = 2_000_000  # millrace counts in ms: a connection this near to its timeout may have ended or not
# If a quoted transport header begins no later than this, at most 8 extension headers (of 8 bytes or more) precede it: millrace reads 8.
_FOLLOWED = 40 + 8 * 8
_SHOWN = 10


def _place(flow, source):
    """Returns the offset and size of the address of one end (the source if `source`), and the offset of that end's port, or 0."""
    if flow.family == 4:
        at, size = flow.l3 + (12 if source else 16), 4
    else:
        at, size = flow.l3 + (8 if source else 24), 16
    ports = getattr(flow, "ports", 0)
    return at, size, ports and ports + (0 if source else 2)


def _port(data, at):
    return data[at] << 8 | data[at + 1] if at else 0


def rewriting_error(flow, before, after, source):
    """Checks that `after` is `before` with one end rewritten (the source if `source`). Returns the error, or None."""
    at, size, port = _place(flow, source)
    expected = bytearray(before)
    expected[at : at + size] = after[at : at + size]
    change = sum16(after[at : at + size]) - sum16(before[at : at + size])
    if flow.family == 4:
        place = flow.l3 + 10
        if (_port(before, place) - change - _port(after, place)) % 65535:
            return "IP checksum changed by something else than the rewriting's difference"
        expected[place : place + 2] = after[place : place + 2]
    moved = port and before[port : port + 2] != after[port : port + 2]
    if moved:
        change += _port(after, port) - _port(before, port)
        expected[port : port + 2] = after[port : port + 2]
    place = flow.l4 + packets.L4_CHECKSUM.get(flow.protocol, 1 << 20)
    if place + 2 <= flow.end:
        old, new = _port(before, place), _port(after, place)
        if flow.protocol != UDP or old != 0:
            if (old - change - new) % 65535:
                return "layer 4 checksum changed by something else than the rewriting's difference"
            if flow.protocol == UDP and new == 0:
                return "UDP checksum became 0, which means that there is none"
            expected[place : place + 2] = after[place : place + 2]
    elif moved and flow.protocol == SCTP and flow.l4 + 12 <= flow.end and not flow.fragment:
        offset = port - flow.l4
        flip = bytes(a ^ b for a, b in zip(before[port : port + 2], after[port : port + 2]))
        crc = int.from_bytes(before[flow.l4 + 8 : flow.l4 + 12], "little")
        crc ^= packets.crc32c_change(flip, flow.l4_wire - offset - 2)
        expected[flow.l4 + 8 : flow.l4 + 12] = crc.to_bytes(4, "little")
    if expected != after:
        where = next(i for i, (a, b) in enumerate(zip(expected, after)) if a != b)
        return f"byte {where} is {after[where]:#04x} and should be {expected[where]:#04x}"
    return None


def _sum(data):
    return packets.sum16(data + b"\0" if len(data) % 2 else data)


def error_rewriting_error(quote, before, after, source):
    """Checks that `after` is the ICMP error `before` with one end of the quoted packet rewritten (the source if
    `source`), and with the error's own address at the other end replaced by the rewritten one. Returns the error, or None."""
    inner = slice(quote.at, quote.quote_end)
    text = rewriting_error(quote.flow, before[inner], after[inner], source)
    if text:
        return f"in the quoted packet: {text}"
    at, size, _ = _place(quote.flow, source)
    written = after[quote.at + at : quote.at + at + size]
    own, _, _ = _place(quote, not source)
    if after[own : own + size] != written:
        return "the ICMP error's own address differs from the rewritten address in the quoted packet"
    expected = bytearray(before)
    expected[own : own + size] = written
    expected[inner] = after[inner]
    # A checksum is as right or wrong as before if the sum of all the bytes that it covers is the same.
    covered = [(quote.icmp, quote.end, quote.icmp + 2)]
    moved = 0
    if quote.family == 4:
        covered.append((quote.l3, quote.l3 + (before[quote.l3] & 15) * 4, quote.l3 + 10))
    else:
        moved = _sum(written) - _sum(before[own : own + size])
    for begin, end, place in covered:
        if (_sum(after[begin:end]) + moved - _sum(before[begin:end])) % 65535:
            return f"the checksum at byte {place} changed by something else than the rewriting's difference"
        expected[place : place + 2] = after[place : place + 2]
    if expected != after:
        where = next(i for i, (a, b) in enumerate(zip(expected, after)) if a != b)
        return f"byte {where} of an ICMP error is {after[where]:#04x} and should be {expected[where]:#04x}"
    return None


class Judge:
    """Takes pairs of packets in the order of the capture, and collects the errors in them."""

    def __init__(self, link_type, services, timeouts_s):
        self.link_type = link_type
        self.services = services
        self.timeout_ns = collections.defaultdict(lambda: timeouts_s["other"] * captures.SECOND)
        for number, name in PROTOCOLS.items():
            self.timeout_ns[number] = timeouts_s[name] * captures.SECOND
        # The only service of a family, if it takes all the family's packets.
        self.catch_all = {4: None, 6: None}
        for family, size in ((4, 4), (6, 16)):
            own = [s for s in services if len(s.low) == size]
            if len(own) == 1 and own[0].low == bytes(size) and own[0].high == b"\xff" * size:
                if own[0].port is None and own[0].protocol is None:
                    self.catch_all[family] = own[0]
        self.backend_addresses = {a for s in services for a, _ in s.backends}
        self.now = 0
        self.live = {}  # key of a flow: [backend, time of the last packet]
        self.errors = []
        self.wrong = 0
        self.translated = 0
        self.untouched = 0
        self.replies = 0
        self.related = 0  # ICMP errors that were sent on
        self.passed_by = 0  # untouched packets that are whole, and for a service
        self.connections = 0
        self.backends_of = collections.defaultdict(set)  # addresses of backends, by datagrams that come in fragments
        self.packets_of = collections.Counter()  # by backend: (address, port)
        self.connections_of = collections.Counter()

    def error(self, number, text):
        self.wrong += 1
        if len(self.errors) < _SHOWN:
            self.errors.append(f"packet {number}: {text}")

    def service_of(self, flow, address, port):
        service = self.catch_all[flow.family]
        if service is not None:
            return service
        for service in self.services:
            if service.takes(address, port, flow.protocol):
                return service
        return None

    def pair(self, number, original, translated):
        time, wire, before = original
        if not _same_place(original, translated):
            self.error(number, "time, length or link type differs from the original's")
            return
        if time > self.now:
            self.now = time
        after = translated[2]
        link_type = getattr(original, "link", self.link_type)
        flow = packets.dissect(link_type, before)
        if flow is None:
            quote = packets.quote_of(link_type, before)
            if quote is not None:
                self._quoting(number, quote, before, after)
                return
            self.untouched += 1
            if before != after:
                self.error(number, "changed, though it has no five-tuple of its own")
            return
        at, size, port_at = _place(flow, source=False)
        address, port = before[at : at + size], _port(before, port_at)
        service = self.service_of(flow, address, port)
        backend = (after[at : at + size], _port(after, port_at))
        if before == after and (service is None or not self._allowed(service, backend, port)):
            self.untouched += 1
            if service is not None and flow.whole and flow.l4 + flow.l4_wire <= wire:
                self.passed_by += 1
            return
        if before != after and backend == (address, port):
            self._reply(number, flow, before, after)
            return
        if service is None:
            self.error(number, "rewritten, though it is for no service")
        elif not self._allowed(service, backend, port):
            self.error(number, f"went to {_name(backend)}, which is no backend of its service")
        else:
            text = rewriting_error(flow, before, after, source=False)
            if text:
                self.error(number, text)
            self._served(number, flow, backend)
            if flow.fragment:
                self.backends_of[packets.part_of(link_type, before).datagram].add(backend[0])

    def _allowed(self, service, backend, port):
        address, new_port = backend
        allowed = service.backends
        if new_port == port and (address, None) in allowed:
            return True
        return (address, new_port) in allowed

    def _served(self, number, flow, backend):
        self.translated += 1
        self.packets_of[backend[0]] += 1
        entry = self.live.get(flow.key)
        # Within _TICK_NS of its timeout the connection may have ended or not.
        if entry is None or self.now - entry[1] > self.timeout_ns[flow.protocol] - _TICK_NS:
            self.live[flow.key] = [backend, self.now]
            self.connections += 1
            self.connections_of[backend[0]] += 1
            return
        if entry[0] != backend:
            self.error(number, f"its live connection moved from {_name(entry[0])} to {_name(backend)}")
            entry[0] = backend
        entry[1] = self.now

    def _reply(self, number, flow, before, after):
        """Checks a packet with a rewritten source: a backend's address must have become that of one of the backend's services."""
        at, size, port_at = _place(flow, source=True)
        old = (before[at : at + size], _port(before, port_at))
        new = (after[at : at + size], _port(after, port_at))
        if not self._is_answer(flow, old, new):
            self.error(number, f"source rewritten from {_name(old)} to {_name(new)}, which is no service of this backend")
        text = rewriting_error(flow, before, after, source=True)
        if text:
            self.error(number, text)
        self.replies += 1

    def _is_answer(self, flow, backend, service):
        """Returns True if `backend` belongs to a service with one address that takes packets to `service`."""
        return any(
            s.one_address
            and s.takes(*service, flow.protocol)
            and (
                backend in s.backends
                or (service[1] == backend[1] and (backend[0], None) in s.backends)
            )
            for s in self.services
        )

    def _quoting(self, number, quote, before, after):
        """Checks an ICMP error. An error about a packet from a service must go to the backend; an error about
        a packet to a backend must come from the service; an error about a packet that was not served must stay untouched."""
        flow, size = quote.flow, 4 if quote.family == 4 else 16

        def ends(data):
            inner = data[quote.at :]
            places = (_place(flow, True), _place(flow, False))
            return [(inner[at : at + size], _port(inner, port)) for at, _, port in places]

        (virtual, asked), (source, destination) = ends(before), ends(after)
        own, _, _ = _place(quote, source=False)
        service = self.service_of(flow, *virtual)
        if before == after and (service is None or not self._allowed(service, virtual, virtual[1])):
            self.untouched += 1
            self.passed_by += service is not None and flow.l4 <= _FOLLOWED
            return
        self.related += 1
        to_backend = before == after or source != virtual or before[own : own + size] != after[own : own + size]
        if to_backend and service is None:
            self.error(number, "an ICMP error was rewritten, though no service sent the packet that it quotes")
        elif to_backend and not self._allowed(service, source, virtual[1]):
            self.error(number, f"an ICMP error went to {_name(source)}, which is no backend of its service")
        elif not to_backend and not self._is_answer(flow, asked, destination):
            self.error(number, f"an ICMP error about {_name(asked)} names {_name(destination)}, which is no service of this backend")
        text = error_rewriting_error(quote, before, after, source=to_backend)
        if text:
            self.error(number, text)
        entry = self.live.get(packets.reversed_key(flow)) if to_backend else None
        if entry and self.now - entry[1] <= self.timeout_ns[flow.protocol] - _TICK_NS:
            if entry[0] != source:
                self.error(number, f"an ICMP error went to {_name(source)}, though its connection has {_name(entry[0])}")


def _name(end):
    address = ipaddress.ip_address(end[0])
    return f"{address} port {end[1]}" if end[1] else str(address)


def _same_place(original, translated):
    same_time = original[0] in (translated[0], captures.NO_TIME)
    same_link = getattr(original, "link", None) == getattr(translated, "link", None)
    return same_time and same_link and original[1] == translated[1] and len(original[2]) == len(translated[2])


def _same_packet(link_type, original, translated):
    """Returns True if `translated` is `original`, possibly rewritten."""
    if not _same_place(original, translated):
        return False
    if original[2] == translated[2]:
        return True
    flow = packets.dissect(link_type, original[2])
    if flow is None:
        quote = packets.quote_of(link_type, original[2])
        if quote is None:
            return False
        return any(
            error_rewriting_error(quote, original[2], translated[2], source) is None
            for source in (True, False)
        )
    return any(rewriting_error(flow, original[2], translated[2], source) is None for source in (0, 1))


def _pairs(original, translated, in_order, link_of):
    """Yields pairs: each packet of the original, and its translation, or None if it was dropped; then None, and
    each packet of the translation that has no original."""
    outs = iter(translated)
    out = next(outs, None)
    for packet in original:
        if out is not None and (in_order or _same_packet(link_of(packet), packet, out)):
            yield packet, out
            out = next(outs, None)
        else:
            yield packet, None
    while out is not None:
        yield None, out
        out = next(outs, None)


def _compare_statistics(judge, stats, counts, catch_all):
    """Yields each difference between the program's counters and those of `judge`."""
    read, written, missing = counts
    said = stats["packets"]
    for name, theirs, ours in (
        ("packets.in", said["in"], read),
        ("packets.out", said["out"], written),
        ("the sum of packets.dropped", sum(said["dropped"].values()), missing),
    ):
        if theirs != ours:
            yield f"{name} is {theirs}, the captures say {ours}"
    if not catch_all:
        return
    if said["tracked"] + said["stateless"] != judge.translated:
        yield (
            f"packets.tracked + packets.stateless is {said['tracked'] + said['stateless']}, "
            f"the captures say {judge.translated}"
        )
    if said["related"] != judge.related:
        yield f"packets.related is {said['related']}, the captures say {judge.related}"
    untracked = sum(said["untracked"].values())
    if untracked != judge.untouched:
        yield f"the sum of packets.untracked is {untracked}, the captures say {judge.untouched}"
    theirs = collections.Counter()
    for backend in stats["backends"]:
        theirs[packed(backend["address"])] += backend["packets"]
    if +theirs != judge.packets_of:
        yield "backends[].packets differ from what the captures say"


def check(original_path, translated_path, stats=None, config=None, timeouts_s=None):
    """Returns the judge with its verdict, and (packets read, written, missing)."""
    original = captures.Capture(original_path)
    translated = captures.Capture(translated_path)
    services = services_of(config) if config else default_services()
    judge = Judge(original.link_type, services, timeouts_s or TIMEOUTS_S)
    if translated.link_type != original.link_type:
        judge.error(0, f"link type {translated.link_type}, the original's is {original.link_type}")
    dropped = sum(stats["packets"]["dropped"].values()) if stats else 0
    read = written = missing = 0
    later = [], []
    pairs = _pairs(check_fragments.without(original, later[0]), check_fragments.without(translated, later[1]), dropped == 0,
                   original.link_of)
    for packet, out in pairs:
        if packet is None:
            written += 1
            judge.error(written, "of the translated capture has no original")
            continue
        read += 1
        if out is None:
            missing += 1
        else:
            written += 1
            judge.pair(read, packet, out)
    missing += check_fragments.judge_all(judge, *later)
    read += len(later[0])
    written += len(later[1])
    if missing and not stats:
        judge.error(read, f"is the last of the original: {missing} packets have no translation, and without statistics none may be missing")
    # Whole packets for a service may stay untouched: at most one in a thousand of all packets, and those with
    # more extension headers than millrace reads.
    allowed = read // 1000 + (stats["packets"]["untracked"].get("header_chain", 0) if stats else 0)
    if judge.passed_by > allowed:
        judge.error(read, f"is the last: {judge.passed_by} whole packets for a service stayed untouched, {allowed} may")
    if stats:
        for text in _compare_statistics(judge, stats, (read, written, missing), config is None):
            judge.wrong += 1
            judge.errors.append(f"statistics: {text}")
    return judge, (read, written, missing)


def timeouts_from(arguments):
    timeouts = dict(TIMEOUTS_S)
    for argument in arguments:
        name, _, value = argument.rpartition("=")
        if name and name not in timeouts:
            raise argparse.ArgumentTypeError(f"protocol {name} is not known: give one of {', '.join(timeouts)}")
        for protocol in [name] if name else timeouts:
            timeouts[protocol] = float(value)
    return timeouts


def report(judge, counts):
    read, _, missing = counts
    print(
        f"checked {read:,} packets: {judge.translated:,} to backends, "
        + (f"{judge.replies:,} replies, " if judge.replies else "")
        + (f"{judge.related:,} ICMP errors about them, " if judge.related else "")
        + f"{judge.untouched:,} untouched, {missing:,} missing"
    )
    if judge.passed_by:
        print(f"{judge.passed_by:,} of the untouched are whole packets for a service")
    if judge.wrong:
        print(f"WRONG in {judge.wrong:,} places:")
        print("\n".join(f"  {error}" for error in judge.errors))
    else:
        print(f"each of {judge.connections:,} connections went to one backend while it lived")
        print("each checksum changed by exactly what the rewriting changed")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("original")
    parser.add_argument("translated")
    parser.add_argument("--stats", help="the statistics of the run that wrote TRANSLATED, which are compared, too")
    parser.add_argument("--config", help="the run's configuration; without it: the ten default backends")
    parser.add_argument("--timeout", action="append", default=[], metavar="[PROTOCOL=]SECONDS")
    options = parser.parse_args()
    try:
        stats = None
        if options.stats:
            with open(options.stats, encoding="utf-8") as file:
                stats = json.load(file)
        judge, counts = check(
            options.original,
            options.translated,
            stats,
            options.config,
            timeouts_from(options.timeout),
        )
    except (OSError, ValueError, captures.NotACapture, argparse.ArgumentTypeError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    report(judge, counts)
    return 1 if judge.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
