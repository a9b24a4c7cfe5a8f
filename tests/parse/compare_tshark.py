#!/usr/bin/python3
"""Compares the parser with tshark's dissection, packet by packet, on all captures of a folder.

    compare_tshark.py --dump PATH/parse_dump [TRACES]

For each packet, the parser and tshark give the five-tuple of the outermost IP header, or none, and the signal of
an SCTP packet. Every difference must fall into one of the CATEGORIES below, each of which has a rule and a reason (also in
docs/parse.md). Of the packets with a five-tuple that tshark sees whole, at least 99.9 % must have
a five-tuple from the parser. Captures that libpcap refuses, and link types that are not read, are listed. Exit
status: 0 if all this holds, 1 if not, 77 (skipped) if the captures or tshark are absent.
"""

import argparse
import collections
import concurrent.futures
import functools
import ipaddress
import os
import pathlib
import shutil
import subprocess
import sys

TRACES = pathlib.Path(__file__).resolve().parents[3] / "shared" / "traces"
SKIPPED = 77
WANTED_SHARE = 0.999

# tshark dissects each packet by itself: it reassembles nothing, so later fragments get no ports, it decrypts
# nothing, and resolves no names.
TSHARK = [
    "tshark", "-n", "-Q",
    "-o", "ip.defragment:FALSE", "-o", "ipv6.defragment:FALSE",
    "-o", "tcp.desegment_tcp_streams:FALSE", "-o", "tcp.reassemble_out_of_order:FALSE",
    "-o", "sctp.reassembly:FALSE", "-o", "esp.enable_null_encryption_decode_heuristic:FALSE",
    "-o", "esp.enable_encryption_decode:FALSE",
]  # fmt: skip

FIELDS = {
    "protocols": "frame.protocols",
    "type": "eth.type",
    "source4": "ip.src", "destination4": "ip.dst", "protocol4": "ip.proto",
    "offset4": "ip.frag_offset", "more4": "ip.flags.mf", "length4": "ip.len", "version4": "ip.version", "header4": "ip.hdr_len",
    "source6": "ipv6.src", "destination6": "ipv6.dst", "next6": "ipv6.nxt",
    "hopopts_next": "ipv6.hopopts.nxt", "routing_next": "ipv6.routing.nxt",
    "dstopts_next": "ipv6.dstopts.nxt", "fragment_next": "ipv6.fraghdr.nxt",
    "offset6": "ipv6.fraghdr.offset",
    "segments_left": "ipv6.routing.segleft", "option4": "ip.opt.type",
    "tcp_source": "tcp.srcport", "tcp_destination": "tcp.dstport",
    "tcp_header": "tcp.hdr_len",
    "udp_source": "udp.srcport", "udp_destination": "udp.dstport",
    "sctp_source": "sctp.srcport", "sctp_destination": "sctp.dstport",
    "dccp_source": "dccp.srcport", "dccp_destination": "dccp.dstport",
    "chunks": "sctp.chunk_type", "verification_tag": "sctp.verification_tag",
    "icmp_type": "icmp.type", "icmp_identifier": "icmp.ident",
    "icmp6_type": "icmpv6.type", "icmp6_identifier": "icmpv6.echo.identifier",
}  # fmt: skip

LEAST_HEADER = {1: 8, 6: 20, 17: 8, 33: 12, 132: 16, 136: 8}
PORTS = {6: "tcp", 17: "udp", 33: "dccp", 132: "sctp", 136: "udp"}  # tshark dissects UDP-Lite as UDP
EXTENSIONS = {
    "ipv6.hopopts": "hopopts_next", "ipv6.routing": "routing_next", "ipv6.dstopts": "dstopts_next",
    "ipv6.fraghdr": "fragment_next",
}  # fmt: skip
ICMP_QUERIES = {0, 8, 13, 14, 15, 16, 17, 18, 42, 43}
ICMP_ERRORS = {3, 4, 11, 12}
ICMP6_QUERIES = {128, 129, 160, 161}


def number(text):
    """Returns the first of a field's values, or None."""
    first = text.split(",")[0]
    if first in ("True", "False"):
        return int(first == "True")
    return int(first, 0) if first else None


def numbers(text):
    return [int(value, 0) for value in text.split(",") if value]


@functools.cache
def is_sound(capture):
    command = ["capinfos", "-t", str(capture)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


class Theirs:
    """tshark's result for a packet's outermost IP header.

    `kind` is "whole" (`five` has the five-tuple), "fragment", "icmp_error", "icmp_control", "partial"
    (an IP header, but not all of the five-tuple) or "none" (no IP header).
    """

    def __init__(self, capture, row):
        self.capture = capture
        self.row = row
        self.layers = row["protocols"].split(":")
        self._add_network()
        self.five = None
        self.signal = None  # of an SCTP packet whose outermost transport layer is SCTP
        ip = next((i for i, name in enumerate(self.layers) if name in ("ip", "ipv6")), None)
        self.kind = "none" if ip is None else self._network(self.layers[ip], self.layers[ip + 1 :])

    def _add_network(self):
        """Adds the IP layer that tshark 4.4 does not list behind MPLS, and behind a dissector that gave up."""
        below = [i for i, name in enumerate(self.layers) if name in ("", "mpls")]
        family = "ip" if self.row["version4"] else "ipv6" if self.row["source6"] else None
        if family and below and self.layers[below[-1] + 1 : below[-1] + 2] not in (["ip"], ["ipv6"]):
            self.layers.insert(below[-1] + 1, family)

    def _network(self, family, above):
        row = self.row
        four = family == "ip"
        source, destination = (row["source4"], row["destination4"]) if four else (
            row["source6"], row["destination6"])  # fmt: skip
        protocol = number(row["protocol4"] if four else row["next6"])
        if not source or not destination or protocol is None:
            return "partial"
        seen = collections.Counter()
        while above and above[0] in EXTENSIONS and not four:
            values = [v for v in row[EXTENSIONS[above[0]]].split(",") if v]
            if seen[above[0]] >= len(values):
                return "partial"
            protocol = int(values[seen[above[0]]], 0)
            seen[above.pop(0)] += 1
        offset = row["offset4"] if four else row["offset6"] if seen["ipv6.fraghdr"] else ""
        if number(offset):
            return "fragment"
        self.addresses = (source.split(",")[0], destination.split(",")[0])
        self.protocol = protocol
        return self._transport(protocol, 1 if four else 58)

    def _transport(self, protocol, control):
        row = self.row
        ports = (0, 0)
        if protocol in PORTS:
            name = PORTS[protocol]
            ports = number(row[name + "_source"]), number(row[name + "_destination"])
        elif protocol == control:
            prefix = "icmp" if control == 1 else "icmp6"
            kind = number(row[prefix + "_type"])
            if kind is None:
                return "partial"
            if kind in ICMP_ERRORS if control == 1 else kind < 128:
                return "icmp_error"
            if kind not in (ICMP_QUERIES if control == 1 else ICMP6_QUERIES):
                return "icmp_control"
            ports = (number(row[prefix + "_identifier"]),) * 2
        if None in ports:
            return "partial"
        source, destination = (str(ipaddress.ip_address(a)) for a in self.addresses)
        self.five = (source, ports[0], destination, ports[1], protocol)
        # Chunks of a packet that an ERROR or ICMP message quotes are not its own: only plain packets are compared.
        if protocol == 132 and self.layers.count("sctp") == 1 and row["verification_tag"]:
            self.signal = signal_of(numbers(row["chunks"]), number(row["verification_tag"]))
        return "whole"


CHUNKS = {1: "init", 2: "init_ack", 4: "heartbeat", 6: "abort", 7: "shutdown", 8: "shutdown_ack", 9: "error",
          10: "cookie_echo", 11: "cookie_ack", 14: "shutdown_complete"}  # fmt: skip
ALONE = {"init", "init_ack", "shutdown_complete"}


def signal_of(chunks, tag):
    """Returns what the chunks of an SCTP packet say of its association (RFC 9260, 6.10 and 8.5)."""
    names = [CHUNKS.get(chunk, "data") for chunk in chunks]
    if not names:
        return "data"  # not captured
    if (names[0] == "init") != (tag == 0) or (len(names) > 1 and ALONE & set(names)):
        return "nothing"
    if "abort" in names:
        return "abort"
    telling = [n for i, n in enumerate(names) if n.startswith("shutdown") or n in ALONE or (i == 0 and "cookie" in n)]
    if telling:
        return telling[0]
    rest = set(names) - {"error"}
    return "nothing" if not rest else "heartbeat" if rest == {"heartbeat"} else "data"


class Ours:
    def __init__(self, line):
        words = line.split()
        self.verdict = words[1]
        self.signal = words[7] if len(words) > 7 else None
        self.five = None
        if len(words) > 2:
            source, destination = (str(ipaddress.ip_address(words[i])) for i in (2, 4))
            self.five = (source, int(words[3]), destination, int(words[5]), int(words[6]))


# The verdicts of millrace's parser that agree with each kind of tshark's result.
AGREEMENT = {
    "fragment": {"fragment"},
    "icmp_error": {"icmp_error"},
    "icmp_control": {"icmp_control"},
    "partial": {"truncated", "malformed"},
    "none": {"not_ip", "truncated"},
}


def agree(theirs, ours):
    if theirs.kind == "whole":
        return ours.five == theirs.five and theirs.signal in (None, ours.signal)
    return ours.verdict in AGREEMENT[theirs.kind]


CATEGORIES = []


def category(name, reason):
    def add(rule):
        CATEGORIES.append((name, reason, rule))
        return rule

    return add


@category("source routed", "further hops are named, so the addresses are not the packet's endpoints")
def _(theirs, ours):
    hops = numbers(theirs.row["segments_left"]) + numbers(theirs.row["option4"])
    return ours.verdict == "source_routed" and any(hops)


@category("long chain", "more than 8 extension headers are not followed")
def _(theirs, ours):
    extensions = sum(layer in EXTENSIONS for layer in theirs.layers)
    return ours.verdict == "header_chain" and extensions > 8


@category("extension header cut short", "tshark shows what follows an extension header that is not whole")
def _(theirs, ours):
    return ours.verdict == "truncated" and theirs.layers[-1] in EXTENSIONS


@category("wrong version", "the EtherType says IP, the first nibble another version; tshark gives up")
def _(theirs, ours):
    is_ip = set(numbers(theirs.row["type"])) & {0x0800, 0x86DD}
    return ours.verdict == "malformed" and theirs.kind == "none" and bool(is_ip)


@category("no version", "raw IP of neither version, which tshark shows as IPv4")
def _(theirs, ours):
    return ours.verdict == "not_ip" and not set(numbers(theirs.row["version4"])) & {4, 6}


@category("broken options", "IPv4 options contradict their lengths, which tshark reads past")
def _(theirs, ours):
    return ours.verdict == "malformed" and (number(theirs.row["header4"]) or 0) > 20


@category("damaged file", "tshark guesses at the file's variant of pcap, and sees other bytes than libpcap")
def _(theirs, ours):
    return theirs.kind == "none" and not is_sound(theirs.capture)


@category("tiny fragment", "the transport header is not whole in the first fragment, or the second could overwrite it (RFC 1858, 3128)")
def _(theirs, ours):
    row = theirs.row
    offset, more, length, protocol = (number(row[name]) or 0 for name in ("offset4", "more4", "length4", "protocol4"))
    if offset in (1, 8):  # before tshark 4.2 in units of 8 bytes
        return ours.verdict == "fragment_tiny" and protocol == 6
    header = max(LEAST_HEADER.get(protocol, 0), number(row["tcp_header"]) or 0)
    return ours.verdict == "fragment_tiny" and offset == 0 and more == 1 and length - (number(row["header4"]) or 0) < header


def explain(theirs, ours):
    for name, _, rule in CATEGORIES:
        if rule(theirs, ours):
            return name
    return None


def rows(capture):
    command = TSHARK + ["-r", str(capture), "-T", "fields", "-E", "occurrence=a"]
    for field in FIELDS.values():
        command += ["-e", field]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True, errors="replace") as tshark:  # fmt: skip
        for line in tshark.stdout:
            values = line.rstrip("\n").split("\t")
            yield dict(zip(FIELDS, values + [""] * (len(FIELDS) - len(values))))


class Result:
    def __init__(self):
        self.unread = None
        self.packets = self.whole = self.tracked = 0
        self.agreed = collections.Counter()  # by our verdict
        self.categories = collections.Counter()
        self.unexplained = []


def compare(dump, capture):
    result = Result()
    run = subprocess.run([dump, str(capture)], capture_output=True, text=True, check=False)
    if run.returncode == 3:
        result.unread = run.stderr.strip()
        return result
    if run.returncode != 0:
        raise RuntimeError(f"{dump} {capture}: exit status {run.returncode}: {run.stderr}")
    lines = run.stdout.splitlines()
    for row in rows(capture):
        if result.packets == len(lines):
            break  # the capture ends in the middle of a packet, which only tshark shows
        theirs, ours = Theirs(capture, row), Ours(lines[result.packets])
        result.packets += 1
        if theirs.kind == "whole":
            result.whole += 1
            result.tracked += ours.five is not None
        if agree(theirs, ours):
            result.agreed[ours.verdict] += 1
        else:
            name = explain(theirs, ours)
            if name is None:
                result.unexplained.append((result.packets, theirs, ours))
            else:
                result.categories[name] += 1
    if result.packets != len(lines):
        raise RuntimeError(f"{capture}: parse_dump printed {len(lines)} packets, and tshark only {result.packets}")
    return result


def report(captures, results):
    total = Result()
    for capture, result in zip(captures, results):
        if result.unread is not None:
            print(f"not read: {capture.name}: {result.unread}")
            continue
        total.packets += result.packets
        total.whole += result.whole
        total.tracked += result.tracked
        total.agreed += result.agreed
        total.categories += result.categories
        for count, (index, theirs, ours) in enumerate(result.unexplained):
            total.unexplained.append(index)
            if count < 10:
                print(f"UNEXPLAINED {capture.name} packet {index}: tshark {theirs.kind} "
                      f"{theirs.five} {theirs.signal}, millrace {ours.verdict} {ours.five} {ours.signal} "
                      f"({theirs.row['protocols']})")  # fmt: skip
    return total


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--dump", required=True, help="the program parse_dump")
    arguments.add_argument("traces", nargs="?", type=pathlib.Path, default=TRACES)
    options = arguments.parse_args()
    if not options.traces.is_dir():
        print(f"SKIP: no captures in {options.traces}")
        return SKIPPED
    if shutil.which("tshark") is None:
        print("SKIP: tshark is not installed")
        return SKIPPED

    captures = sorted(p for p in options.traces.rglob("*") if p.is_file() and p.suffix != ".md")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(lambda c: compare(options.dump, c), captures))
    total = report(captures, results)

    print(f"{total.packets} packets in {sum(r.unread is None for r in results)} captures; agreed:")
    for verdict, count in total.agreed.most_common():
        print(f"{count:7} {verdict}")
    print("differences explained:")
    for name, reason, _ in CATEGORIES:
        print(f"{total.categories[name]:7} {name}: {reason}")
    share = total.tracked / total.whole if total.whole else 0
    print(f"{len(total.unexplained)} differences unexplained (allowed: 0)")
    print(f"the parser gives five-tuples for {total.tracked} of {total.whole} packets whose five-tuple tshark sees whole "
          f"({share:.4%}; wanted: at least {WANTED_SHARE:.1%})")  # fmt: skip
    return 0 if not total.unexplained and share >= WANTED_SHARE else 1


if __name__ == "__main__":
    sys.exit(main())
