#!/usr/bin/env python3
"""Compares the stateful firewall of `millrace run` with the kernel's: a router with nftables and connection tracking. The same
conversations, which a script sends packet by packet at both ends, pass through both, under equal rules. If the outcome of a
packet differs, a rule in kernel_firewall_known.py must explain the difference.

    kernel_firewall_test.py MILLRACE [TEST...]

Needs root, and the commands ip and nft. The environment variable MILLRACE_SHOW=1 prints each difference.
"""

import collections
import contextlib
import os
import select
import shutil
import time
from collections.abc import Callable
from typing import NamedTuple

import firewall_datagrams as datagrams
import firewall_icmp
import firewall_packets as make
import firewall_rules as rules
import firewall_tcp
from asked import Asked
from firewall_packets import Hosts
from kernel_firewall_known import KNOWN
from kernel_forwarding_test import Ends, Linux, Middle
from live import check_possible, main
from namespaces import CannotTry, Namespace, command, ip, set_sysctls
from router_frames import NAMES, OUR_MACS, THEIR_MACS

LINKS = ("outside", "inside")
OTHER = {"outside": "inside", "inside": "outside"}
TOGETHER = 48  # conversations that go on at the same time
TRACKING = {"nf_conntrack_tcp_be_liberal": 0, "nf_conntrack_tcp_ignore_invalid_rst": 0}
SHOWS = bool(os.environ.get("MILLRACE_SHOW"))


class Conversation(NamedTuple):
    name: str
    steps: tuple  # (text, True if the client sends it, function from hosts to the packet)
    nets: tuple  # names of the client's and the server's network
    family: int

    def __str__(self):
        return f"{self.name} (IPv{self.family}, from {self.nets[0]})"

    @property
    def is_joined(self):
        """True if only the datagrams count that a receiver joins from fragments."""
        return self.name.startswith("fragments")

    def hosts(self, number):
        client, server = self.nets
        n = NAMES[self.family]
        near = {"outside": n["host"], "inside": n["near"]}
        return Hosts(rules.host(client, number, self.family), rules.host(server, number, self.family),
                     near[rules.link_of(client)], near[rules.link_of(server)])


def frame_of(link, packet):
    kind = b"\x86\xdd" if packet[0] >> 4 == 6 else b"\x08\x00"
    return (OUR_MACS[link] + THEIR_MACS[link] + kind + packet).ljust(60, b"\0")


class Wire:
    """Sends packets at both ends of a router, and knows by markers when the router is done with them."""

    def __init__(self, sockets):
        self.sockets = sockets
        self.markers = 0
        for one in sockets.values():
            one.setblocking(False)

    def settle(self):
        """Returns all (link, packet) that have come out of the router, once all that was sent before has passed. The router
        keeps the order of a link's packets, so three markers there and back come behind them and behind the answers to them."""
        heard = []
        for link in ("outside", "inside", "outside"):
            self.markers += 1
            data = b"marker%08d" % self.markers
            source, to = (rules.host(rules.link_of(one), 60_000, 4) for one in (link, OTHER[link]))
            frame = frame_of(link, make.udp(source, to, (rules.MARKER_PORT, rules.MARKER_PORT), data))
            for _ in range(20):
                self.sockets[link].send(frame)
                if self.hear(heard, OTHER[link], data):
                    break
            else:
                raise AssertionError(f"no marker from {link} comes through")
        return heard

    def hear(self, heard, link, marker, seconds=0.5):
        """Adds what comes out to `heard` until the marker comes out at `link`; returns whether it came in time."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            ready = select.select(self.sockets.values(), [], [], left)[0]
            for name, one in self.sockets.items():
                while one in ready:
                    try:
                        data = one.recv(65536)
                    except BlockingIOError:
                        break
                    if data[6:12] != OUR_MACS[name] or data[12:14] not in (b"\x08\x00", b"\x86\xdd"):
                        continue
                    if name == link and marker in data:
                        return True
                    heard.append((name, data[14 : 14 + make.length_of(data[14:])]))
        return False


class Played:
    """A conversation under way, with hosts of its own."""

    def __init__(self, conversation, number):
        self.conversation = conversation
        self.hosts = conversation.hosts(number)
        self.links = {True: rules.link_of(conversation.nets[0]), False: rules.link_of(conversation.nets[1])}
        self.packets, self.outcomes, self.came = [], [], []

    def send(self, wire, at):
        _, by_client, build = self.conversation.steps[at]
        packet = build(self.hosts)
        self.packets.append(packet)
        link = self.links[by_client]
        wire.sockets[link].send(frame_of(link, packet))

    def note(self, heard):
        """Notes what came out of the router since the last packet was sent."""
        by_client = self.conversation.steps[len(self.packets) - 1][1]
        self.came += heard
        self.outcomes.append(" and ".join(sorted(self.in_words(link, packet, by_client) for link, packet in heard)) or "nothing")

    def in_words(self, link, packet, by_client):
        sent = self.packets[-1]
        if link == self.links[not by_client] and make.is_of(packet) == make.is_of(sent):
            if make.without_hops(packet) == make.without_hops(sent):
                return "delivered"
            return f"delivered otherwise, {len(packet)} bytes for {len(sent)}"
        where = "answered" if link == self.links[by_client] else "sent on"
        return f"{where}: {make.answer_in_words(packet, sent)}"

    def result(self):
        """Returns the outcome of each packet; of fragments, what a receiver joins from all packets."""
        if not self.conversation.is_joined:
            return tuple(self.outcomes)
        parts, said = collections.defaultdict(dict), []
        for link, packet in self.came:
            if not make.is_fragment(packet):
                said.append(f"{len(packet)} bytes at {link}")
                continue
            ident, offset, more, data = make.place_of(packet)
            for n, byte in enumerate(data):
                parts[link, ident].setdefault(offset + n, byte)
            if not more:
                parts[link, ident]["end"] = offset + len(data)
        for (link, _), held in parts.items():
            end = held.pop("end", None)
            if end is not None and sorted(held) == list(range(end)):  # a part is nothing to its receiver
                said.append(f"{(40 if self.conversation.family == 6 else 20) + end} bytes at {link}")
        return (" and ".join(sorted(said)) or "nothing",)


def play(wire, conversations, numbers):
    """Plays conversations through a router, and returns the result of each."""
    results = {}
    for at in range(0, len(conversations), TOGETHER):
        together = [Played(one, next(numbers)) for one in conversations[at : at + TOGETHER]]
        by_address = {make.address(host): one for one in together for host in one.hosts[:2]}
        wire.settle()
        for step in range(max(len(one.conversation.steps) for one in together)):
            sending = [one for one in together if step < len(one.conversation.steps)]
            for one in sending:
                one.send(wire, step)
            heard = collections.defaultdict(list)
            for link, packet in wire.settle():
                source, to = make.is_of(packet)
                owner = by_address.get(to) or by_address.get(source)
                heard[id(owner)].append((link, packet))
            for one in sending:
                one.note(heard[id(one)])
        results |= {one.conversation: one.result() for one in together}
    return results


@contextlib.contextmanager
def on_one_processor():
    """Keeps the sending thread on one processor: the kernel's routers keep the order of packets only there."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def check():
    check_possible()
    if shutil.which("nft") is None:
        raise CannotTry("no nft here (package nftables)")
    try:
        KernelFirewall(COMPARED["rules, reject"]).close()
    except (OSError, RuntimeError) as error:
        raise CannotTry(f"the kernel's firewall cannot be made here: {error}") from error


class KernelFirewall(Linux):
    """Linux as a router with nftables. The hosts of `NETS` are behind the gateway outside, and behind `near` inside."""

    def __init__(self, comparison):
        super().__init__()
        with self.namespace:
            for n in NAMES.values():
                family = 6 if ":" in n["near"] else 4
                for net, (link, network, _) in rules.NETS.items():
                    if link == "inside" and net != "secret":
                        prefix = f"10.{network}.0.0/16" if family == 4 else f"2001:db8:{network}::/64"
                        ip(f"-{family} route add {prefix} via {n['near']}")
            command("nft", rules.nft_rules(comparison.rules, comparison.default))
            tracking = TRACKING | {"nf_conntrack_tcp_loose": int(comparison.pickup == "loose"), "nf_conntrack_checksum": comparison.checksums}
            set_sysctls({f"netfilter/{name}": value for name, value in tracking.items()})


def configuration(comparison):
    text = 'chain = ["firewall"]\nworkers = 1\n[table]\ncapacity = 100000\ncapacity_v6 = 100000\n'
    for link in LINKS:
        own = ", ".join(f'"{n[link]}/{n["bits"]}"' for n in NAMES.values())
        hop = "gateway" if link == "outside" else "near"
        near = ", ".join(f'{{ address = "{n[hop]}", mac = "{THEIR_MACS[link].hex(":")}" }}' for n in NAMES.values())
        text += f'[[port]]\nname = "{link}"\ndevice = "af_packet:{link}"\naddresses = [{own}]\nneighbours = [{near}]\n'
        text += f'[[zone]]\nname = "{link}"\nports = ["{link}"]\n'
    for family, n in NAMES.items():
        text += f'[[route]]\nprefix = "{"0.0.0.0/0" if family == 4 else "::/0"}"\nvia = "{n["gateway"]}"\n'
        for network in sorted({number for link, number, _ in rules.NETS.values() if link == "inside"}):
            prefix = f"10.{network}.0.0/16" if family == 4 else f"2001:db8:{network}::/64"
            text += f'[[route]]\nprefix = "{prefix}"\nvia = "{n["near"]}"\n'
    return text + rules.millrace_rules(comparison.rules, comparison.default, comparison.pickup)


def in_both_directions(table, families=(4, 6)):
    return [Conversation(name, tuple(steps), nets, family) for family in families for nets in (LINKS, LINKS[::-1]) for name, steps in table]


def of_tcp():
    def steps(lines, first):
        return [(line, line[0] == ">", lambda hosts, line=line: firewall_tcp.packet_of(line, hosts, first)) for line in lines]

    return in_both_directions([(name, steps(lines, first)) for name, lines, first in firewall_tcp.whole()])


def of_others():
    kinds = (datagrams.udp, datagrams.udp_lite, datagrams.sctp, datagrams.others, datagrams.authenticated, datagrams.fragments, rules.land)
    found = in_both_directions([one for kind in kinds for one in kind()])
    for family in (4, 6):
        found += in_both_directions([*firewall_icmp.queries(family), *firewall_icmp.errors(family)], (family,))
    return found + in_both_directions(datagrams.options(), (4,)) + in_both_directions(datagrams.extensions(), (6,))


def of_rules():
    return [Conversation(name, tuple(steps), nets, family) for family in (4, 6) for name, steps, nets in [*rules.matrix(), *rules.refusals()]]


def unchecked():
    """Returns the conversations with other checksums than the right ones, for a kernel that checks none."""
    everything = [*of_tcp(), *of_others()]
    return [one for one in everything if one.name.startswith("UDP-Lite: ") or "checksum" in one.name or one.name.endswith("is bad")]


class Comparison(NamedTuple):
    conversations: Callable
    rules: list = rules.FOLLOWED
    default: str = "drop"
    pickup: str = "strict"
    checksums: int = 1  # whether the kernel checks those of layer 4


COMPARED = {
    "strict": Comparison(of_tcp),
    "loose": Comparison(of_tcp, pickup="loose"),
    "others": Comparison(of_others),
    "unchecked": Comparison(unchecked, checksums=0),
    "rules, drop": Comparison(of_rules, rules.SORTED),
    "rules, reject": Comparison(of_rules, rules.SORTED, "reject"),
    "rules, accept": Comparison(of_rules, rules.SORTED, "accept"),
}


class Unlike(NamedTuple):
    """A packet with different outcomes."""

    conversation: Conversation
    at: int
    kernel: tuple
    ours: tuple

    @property
    def step(self):
        return "" if self.conversation.is_joined else self.conversation.steps[self.at][0]

    def __str__(self):
        return f"{self.conversation}: {self.step}: kernel {self.kernel[self.at]}, millrace {self.ours[self.at]}"


def explanation(unlike, where):
    for rule in KNOWN:
        if rule.explains(where, unlike):
            return rule
    return None


class BesideKernel(Asked):
    def wires(self, kernel, text):
        """Starts millrace beside a router of the kernel's. Returns the wires of both."""
        self.addCleanup(kernel.close)
        with kernel.namespace:
            self.wait_until(lambda: all("state UP" in ip(f"link show {link}") for link in LINKS))
        middle = Namespace()
        self.addCleanup(middle.close)
        ends = Ends(middle)
        self.addCleanup(ends.close)
        with middle:
            for link in LINKS:
                ip(f"link set {link} up")
        self.start(Middle(middle), text)
        return Wire(kernel.ends.sockets), Wire(ends.sockets)


class Firewalls(BesideKernel):
    def compare(self, where):
        """Checks that both firewalls do the same with each packet, unless a rule explains the difference. Returns the rules
        that were needed."""
        comparison = COMPARED[where]
        numbers = iter(range(30_000))
        wires = self.wires(KernelFirewall(comparison), configuration(comparison))
        used, left = set(), comparison.conversations()
        for _ in range(3):  # a busy machine loses packets
            with on_one_processor():
                theirs, ours = (play(wire, left, numbers) for wire in wires)
            unlike = [Unlike(one, at, theirs[one], ours[one]) for one in left for at in range(len(theirs[one])) if theirs[one][at] != ours[one][at]]
            rules_of = {one: explanation(one, where) for one in unlike}
            used |= {rule for rule in rules_of.values() if rule}
            if SHOWS:
                for one, rule in rules_of.items():
                    print(where, "|", one, "|", rule.why if rule else "NOT EXPLAINED")
            left = list(dict.fromkeys(one.conversation for one in unlike if rules_of[one] is None))
            self.packets += sum(len(one.steps) for one in theirs)
            if not left:
                break
        for one, rule in rules_of.items():
            if rule is None:
                with self.subTest(where=where, packet=str(one)):
                    self.fail("the difference has no explanation")
        self.stop()
        return used

    def test_conversations(self):
        used, self.packets = set(), 0
        for where in COMPARED:
            used |= self.compare(where)
        print(f"{self.packets:,} packets through each firewall; {len(used)} rules explain all differences")
        self.assertEqual({rule.why for rule in KNOWN} - {rule.why for rule in used}, set(), "a rule that explains nothing must go")


if __name__ == "__main__":
    main(check)
