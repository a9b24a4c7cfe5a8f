#!/usr/bin/env python3
"""Compares millrace's connections with those that Linux tracks for the same packets.

    kernel_conntrack.py MILLRACE CAPTURE [--speed X] [--until SECONDS] [--idle SECONDS]
                        [--timeouts kernel|short] [--servers 200] [--liberal] [--keep FOLDER]
                        [--allowed 0.001]

Each of the capture's busiest servers becomes a service with one backend, and for millrace the service's
replies come from that backend. The packets of these servers' conversations, and ICMP errors about them, are sent through
a router, at the capture's pace or --speed times faster. The router is made of network namespaces, which
vanish with this process. Then the router's list of connections is read, and millrace replays the same
packets at the times at which they were sent, up to the time at which the list was read. A difference is
a connection that only one side has, or whose states differ. It is explained if one of the rules in
kernel_known.py applies to it. If MILLRACE is `-`, only the kernel's list is made.

Needs root, and the commands ip, nft and conntrack (iproute2, nftables, conntrack). Exit status 1 if a
larger share than --allowed of the connections differs without explanation, 2 if the comparison cannot run.
"""

import argparse
import collections
import ipaddress
import json
import os
import subprocess
import sys
import tempfile
import time

import captures
import check_balance
import kernel_router
import packets
import roundtrip
from captures import SECOND
from kernel_known import KNOWN, MARGIN_NS, NAMES, STATES, Connection, Conversation, Difference
from kernel_known import Packet, Run, explain
from kernel_router import CannotTry
from packets import TCP, UDP

_SHOWN, _TAIL = 10, 12


def _routable(address):
    """Returns True if a router forwards packets from and to `address`."""
    if len(address) == 4:
        # Leaves out 240.0.0.0/24, which the router itself uses.
        return 0 < address[0] < 224 or b"\xf0\0\1" <= address < b"\xff"
    return address[0] != 0xFF and address[:2] < b"\xfe\x80" and any(address[:15])


def _reason_against(flow, wire, data):
    """Returns why a packet cannot be sent, or None."""
    if flow is None or flow.protocol not in NAMES:
        return "neither TCP nor UDP"
    if flow.l4 + flow.l4_wire > wire:
        return "longer than the frame"
    if not flow.whole:
        return "malformed, or captured without their headers"
    if flow.fragment:
        return "fragments"
    if flow.l4 - flow.l3 != (20 if flow.family == 4 else 40):
        return "with options"
    if flow.family == 4 and data[flow.l3 + 2 : flow.l3 + 4] == bytes(2):
        return "without a length"
    if not all(_routable(end[0]) for end in roundtrip.ends(flow, data)):
        return "not routable"
    return None


def _reason_against_error(quote, data):
    at, size, _ = check_balance._place(quote, source=True)
    said = data[quote.l3 + 2 : quote.l3 + 4] if quote.family == 4 else data[quote.l3 + 4 : quote.l3 + 6]
    end = quote.l3 + int.from_bytes(said, "big") + (0 if quote.family == 4 else 40)
    if end != quote.end or quote.icmp - quote.l3 != (20 if quote.family == 4 else 40):
        return "errors cut short, or with options"
    if not all(_routable(data[a : a + size]) for a in (at, at + size)):
        return "not routable"
    return None


def _pair(flow, data):
    return (flow.protocol, *sorted(roundtrip.ends(flow, data)))


class Choice:
    """The packets of a capture that are sent: `sent` has (time, conversation, frame) in the capture's order."""

    def __init__(self, capture, servers, until_s):
        self.left_out = collections.Counter()
        sendable = list(self._sendable(capture))
        end = sendable[0][0] + until_s * SECOND if sendable else 0
        sendable = [s for s in sendable if s[0] <= end]
        self.servers = _busiest(sendable, servers)
        self.sent = [s for s in sendable if (*s[1].server, s[1].protocol) in self.servers]
        self.left_out["of other servers"] = len(sendable) - len(self.sent)
        self.conversations = {s[1] for s in self.sent}

    def _sendable(self, capture):
        known = {}
        now = 0
        for when, wire, data in capture:
            now = max(now, when)
            flow = packets.dissect(capture.link_type, data)
            quote = packets.quote_of(capture.link_type, data) if flow is None else None
            if quote is not None and quote.flow.protocol in NAMES:
                reason = _reason_against_error(quote, data)
                pair = _pair(quote.flow, data[quote.at :])
                if reason is None and pair not in known:
                    reason = "errors about no packet before them"
                l3, end, family = quote.l3, quote.end, quote.family
            else:
                reason = _reason_against(flow, wire, data)
                if reason is None:
                    pair = _pair(flow, data)
                    known.setdefault(pair, Conversation(flow.protocol, *roundtrip.ends(flow, data)))
                    l3, end, family = flow.l3, flow.l4 + flow.l4_wire, flow.family
            if reason:
                self.left_out[reason] += 1
                continue
            yield now, known[pair], kernel_router.frame_of(family, l3, end, data)


def _busiest(sendable, wanted):
    """Returns the `wanted` servers with the most packets, as (address, port, protocol). No two of them talk to
    each other: a packet between them would be a reply and a request at once."""
    count = collections.Counter()
    talks_to = collections.defaultdict(set)
    for _, (protocol, client, server), _ in sendable:
        count[(*server, protocol)] += 1
        talks_to[(*server, protocol)].add((*client, protocol))
        talks_to[(*client, protocol)].add((*server, protocol))
    chosen = set()
    for server, _ in count.most_common():
        # A service has no port 0.
        if server[1] and server not in talks_to[server] and not talks_to[server] & chosen:
            chosen.add(server)
            if len(chosen) == wanted:
                break
    return chosen


def kernel_state(protocol, words):
    if protocol == TCP:
        return STATES[words[5]]
    if "[UNREPLIED]" in words:
        return "udp_unreplied"
    return "udp_stream" if "[ASSURED]" in words else "udp"


def kernel_connections(text, conversations, run):
    """Returns each conversation's `Connection` in the kernel's list."""
    result = {}
    for line in text.splitlines():
        words = line.split()
        protocol, left = int(words[3]), int(words[4])
        if protocol not in NAMES:
            continue
        fields = [w.partition("=")[2] for w in words if "=" in w][:4]
        ends = [(ipaddress.ip_address(fields[i]).packed, int(fields[i + 2])) for i in (0, 1)]
        state = kernel_state(protocol, words)
        timeout = run.timeout_s(protocol, state)
        found, by_client = _conversation(conversations, protocol, *ends)
        result[found] = Connection(state, by_client, (timeout - left - 1, timeout - left))
    return result


def _conversation(conversations, protocol, source, destination):
    """Returns the conversation between two ends, and True if `source` is its client."""
    forward = Conversation(protocol, source, destination)
    backward = Conversation(protocol, destination, source)
    return (backward, False) if backward in conversations else (forward, True)


def backends_of(capture, servers):
    """Returns an address for each service's backend. None of these addresses occurs in the capture."""
    v4, v6 = roundtrip.unused_prefixes(capture)
    return {server: v4 + n.to_bytes(2, "big") if len(server[0]) == 4 else v6 + n.to_bytes(14, "big")
            for n, server in enumerate(sorted(servers), 1)}


def as_of_backend(frame, backends):
    """Returns a service's reply as its backend would have sent it, and other frames unchanged."""
    flow = packets.dissect(captures.ETHERNET, frame)
    if flow is None:
        return frame
    source, _ = roundtrip.ends(flow, frame)
    backend = backends.get((*source, flow.protocol))
    if backend is None:
        return frame
    at = flow.l3 + (12 if flow.family == 4 else 8)
    return frame[:at] + backend + frame[at + len(backend) :]


def write_config(path, backends, timeouts_s):
    with open(path, "w", encoding="utf-8") as file:
        print('function = "balance"\n\n[balance]\nunmatched = "pass"', file=file)
        # Small Maglev tables, since each of many services has one backend.
        print("maglev_table_size = 2", file=file)
        print("\n[ageing]\ninterval_ms = 1\n\n[ageing.timeout_s]", file=file)
        for key, value in timeouts_s.items():
            print(f"{key} = {value}", file=file)
        for (address, port, protocol), backend in backends.items():
            print(f'\n[[service]]\naddress = "{ipaddress.ip_address(address)}"\nport = {port}', file=file)
            print(
                f'protocol = "{NAMES[protocol]}"\nbackends = [ {{ address = "{ipaddress.ip_address(backend)}" }} ]',
                file=file,
            )


def _mark(when):
    """Returns a captured packet that matches no service: it advances millrace's clock to `when`, the time of the list."""
    ip = bytearray.fromhex("4500001c00000000 4011 0000 c0000202c0000203 0009000900080000")
    ip[10:12] = packets.checksum(ip[:20]).to_bytes(2, "big")
    frame = kernel_router.ethernet(4) + ip
    return when, len(frame), frame


def replay(millrace, files):
    command = [millrace, "replay", "--in", files["sent.pcap"], "--config", files["services.toml"]]
    command += ["--connections", files["millrace.jsonl"], "--stats", files["stats.json"]]
    command += ["--clock", "capture", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")


def millrace_connections(path, conversations):
    result = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            entry = json.loads(line)
            protocol = {"tcp": TCP, "udp": UDP}[entry["protocol"]]  # no service has another protocol
            ends = [
                (ipaddress.ip_address(entry[e]).packed, entry[f"{e}_port"])
                for e in ("source", "destination")
            ]
            found, by_client = _conversation(conversations, protocol, *ends)
            idle = entry["idle_ms"] / 1000
            result[found] = Connection(entry["state"], by_client, (idle, idle))
    return result


def _same_state(kernel, millrace):
    # A connection picked up in mid-stream is ESTABLISHED to the kernel.
    return kernel == ("established" if millrace == "midstream" else millrace)


def differences(kernel, millrace):
    for conversation in sorted(kernel.keys() | millrace.keys()):
        ours, theirs = millrace.get(conversation), kernel.get(conversation)
        if ours is None or theirs is None or not _same_state(theirs.state, ours.state):
            yield Difference(conversation, theirs, ours)


def renewed_differently(kernel, millrace, run):
    """Yields conversations with the same state on both sides, but idle times that differ too much for one last packet."""
    slack = (run.read_ns[1] - run.read_ns[0] + MARGIN_NS) / SECOND
    for conversation in kernel.keys() & millrace.keys():
        theirs, ours = kernel[conversation], millrace[conversation]
        if _same_state(theirs.state, ours.state):
            if not theirs.idle_s[0] - slack <= ours.idle_s[0] <= theirs.idle_s[1] + slack:
                yield conversation


def packets_of(wanted, sent):
    """Returns the `Packet`s of each conversation in `wanted`."""
    result = collections.defaultdict(list)
    for when, conversation, frame in sent:
        if conversation in wanted:
            flow = packets.dissect(captures.ETHERNET, frame)
            if flow is None:  # an ICMP error
                continue
            l4 = frame[flow.l4 :]
            by_client = roundtrip.ends(flow, frame)[0] == conversation.client
            fields = (0, 0, 0, flow.l4_wire - 8)
            if flow.protocol == TCP:
                seq, ack = int.from_bytes(l4[4:8], "big"), int.from_bytes(l4[8:12], "big")
                fields = (l4[13], seq, ack, flow.l4_wire - (l4[12] >> 4) * 4)
            result[conversation].append(Packet(when, by_client, *fields))
    return result


def _shown(side, connection):
    return f"{side} {connection.state}" if connection else f"{side} has no connection"


def report(found, seen, kernel, millrace, run):
    """Prints the differences; returns how many have no explanation."""
    reasons = {d: explain(d, seen[d.conversation], run) for d in found}
    unexplained = [d for d in found if reasons[d] is None]
    for difference in unexplained[:_SHOWN]:
        conversation = difference.conversation
        sides = _shown("kernel", difference.kernel), _shown("millrace", difference.millrace)
        print(f"  {conversation}: {', '.join(sides)}")
        for packet in seen[conversation][-_TAIL:]:
            print(f"    {packet}")
    if len(unexplained) > _SHOWN:
        print(f"  and {len(unexplained) - _SHOWN:,} more")
    print(
        f"{len(kernel):,} connections of the kernel, {len(millrace):,} of millrace, "
        f"{len(kernel.keys() & millrace.keys()):,} of both; {len(found):,} differ, "
        f"{len(unexplained):,} without explanation"
    )
    for (ours, theirs), count in _pairs_of_states(unexplained).most_common():
        print(f"  {count:,}: kernel {theirs}, millrace {ours}")
    for name, why, _ in KNOWN:
        count = sum(r == name for r in reasons.values())
        if count:
            print(f"  {count:,} explained: {name} ({why})")
    return len(unexplained)


def _pairs_of_states(found):
    return collections.Counter(
        (d.millrace and d.millrace.state, d.kernel and d.kernel.state) for d in found
    )


def _counts(names):
    return ", ".join(f"{n:,} {name}" for name, n in names.most_common() if n) or "none"


def track(choice, timeouts_s, options, files):
    """Sends the packets through the router; returns the kernel's list, the times of the packets, and the times at
    which reading the list began and ended."""
    router = kernel_router.Router(timeouts_s, options.liberal)
    with open("/proc/sys/net/netfilter/nf_conntrack_max", encoding="ascii") as file:
        if len(choice.conversations) >= int(file.read()):
            raise CannotTry(f"nf_conntrack_max must be more than the capture's {len(choice.conversations):,} conversations")
    sent = router.send([(when, frame) for when, _, frame in choice.sent], options.speed)
    time.sleep(options.idle)
    begin = router.now()
    text = router.list()
    end = router.now()
    statistics = router.statistics()
    with open(files["kernel.txt"], "w", encoding="ascii") as file:
        file.write(text)
    start = choice.sent[0][0]
    due = [sent[0] + (when - start) / options.speed for when, _, _ in choice.sent]
    print(
        f"{len(sent):,} packets of {len(choice.conversations):,} conversations with "
        f"{len(choice.servers):,} servers sent in {(sent[-1] - sent[0]) / SECOND:.3f} s, at most "
        f"{max(s - d for s, d in zip(sent, due)) / 1e6:.1f} ms late; "
        f"left out: {_counts(choice.left_out)}"
    )
    print(
        f"the list was read {(begin - sent[-1]) / 1e6:.1f} ms after the last packet, in "
        f"{(end - begin) / 1e6:.1f} ms; {router.forwarded():,} packets were forwarded, "
        f"{statistics['invalid']:,} of them invalid to the kernel"
    )
    lost = len(sent) - router.forwarded()
    if lost or statistics["early_drop"] or statistics["drop"] or statistics["insert_failed"]:
        raise RuntimeError(f"the router must lose no packet and no connection, but {lost} packets are lost; its counters: {dict(+statistics)}")
    return text, sent, (begin, end)


def compare(options, folder):
    capture = captures.Capture(options.capture)
    choice = Choice(capture, options.servers, options.until)
    if not choice.sent:
        raise RuntimeError(f"{options.capture}: no TCP or UDP packet that can be sent")
    timeouts_s = {
        key: t[options.timeouts == "short"] for key, t in kernel_router.TIMEOUTS_S.items()
    }
    names = ("sent.pcap", "services.toml", "kernel.txt", "millrace.jsonl", "stats.json")
    files = {name: os.path.join(folder, name) for name in names}

    text, sent, read = track(choice, timeouts_s, options, files)
    run = Run(read, timeouts_s)
    kernel = kernel_connections(text, choice.conversations, run)
    print(f"kernel: {_counts(collections.Counter(c.state for c in kernel.values()))}")

    backends = backends_of(capture, choice.servers)
    replayed = [(when, len(p[2]), as_of_backend(p[2], backends)) for when, p in zip(sent, choice.sent)]
    replayed.append(_mark(read[0]))
    captures.write(files["sent.pcap"], captures.ETHERNET, replayed)
    write_config(files["services.toml"], backends, timeouts_s)
    if options.millrace == "-":
        return 0
    replay(options.millrace, files)
    millrace = millrace_connections(files["millrace.jsonl"], choice.conversations)
    print(f"millrace: {_counts(collections.Counter(c.state for c in millrace.values()))}")

    found = list(differences(kernel, millrace))
    timed = [(when, p[1], p[2]) for when, p in zip(sent, choice.sent)]
    unexplained = report(
        found, packets_of({d.conversation for d in found}, timed), kernel, millrace, run
    )
    other = list(renewed_differently(kernel, millrace, run))
    if other:
        print(f"  {len(other):,} have the same state, but were last renewed by different packets, e.g. {min(other)}")
    return unexplained > options.allowed * len(kernel.keys() | millrace.keys())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("millrace", help="the program, or -")
    parser.add_argument("capture")
    parser.add_argument("--speed", type=float, default=1, help="a multiple of the capture's speed")
    parser.add_argument("--until", type=float, default=1e9, help="seconds of the capture to send")
    parser.add_argument(
        "--idle", type=float, default=0, help="seconds from the last packet until the list is read"
    )
    parser.add_argument("--timeouts", choices=("kernel", "short"), default="kernel")
    parser.add_argument("--servers", type=int, default=200, help="the number of servers that become services")
    parser.add_argument("--liberal", action="store_true", help="the kernel checks no windows")
    parser.add_argument("--keep", metavar="FOLDER", help="keep the files in FOLDER")
    parser.add_argument("--allowed", type=float, default=0.001, help="share of the connections that may differ without explanation")
    options = parser.parse_args()
    try:
        kernel_router.check_possible()
        if options.keep:
            os.makedirs(options.keep, exist_ok=True)
        with tempfile.TemporaryDirectory() as scratch:
            return int(compare(options, options.keep or scratch))
    except CannotTry as why:
        print(f"skipped: {why}")
    except (OSError, RuntimeError, captures.NotACapture) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
