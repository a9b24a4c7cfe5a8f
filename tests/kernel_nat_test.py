#!/usr/bin/env python3
"""Compares the NAT of `millrace run` with the kernel's: a router with nftables' masquerade. The same random conversations pass through both,
packet by packet: each router's own public ends are learned from what leaves, and packets from outside go there. millrace's pool has
address-and-port-dependent mapping and filtering, as the kernel has. A rule of KNOWN must explain each difference.

    kernel_nat_test.py MILLRACE [TEST...]

Needs root, and the commands ip and nft. MILLRACE_NAT_CONVERSATIONS: how many. MILLRACE_TEST_SEED: a seed, in place of a random one.
"""

import collections
import os
import random
import re
from typing import NamedTuple

import nat_packets as make
from kernel_firewall_test import BesideKernel, check, frame_of, on_one_processor
from kernel_forwarding_test import Linux
from live import main
from namespaces import command, ip, set_sysctls
from packets import ICMP, TCP, UDP
from router_frames import NAMES, THEIR_MACS

LINKS = ("outside", "inside")
TOGETHER = 100  # conversations that go on at the same time
CONVERSATIONS = int(os.environ.get("MILLRACE_NAT_CONVERSATIONS", "300"))
POOL = "203.0.113.64/26"
V4 = NAMES[4]
# Customers are in 10.7.0.0/16, remote ends in 172.16.0.0/12; hosts of markers (firewall_rules.py) are neither.
NFT = """table ip nat {
  chain post { type nat hook postrouting priority 100; ip saddr 10.7.0.0/16 oifname "outside" masquerade; }
}
table ip filter {
  chain in { type filter hook input priority 0; policy accept; ip daddr 198.51.100.2 ct state { new, invalid } drop; }
  chain forward { type filter hook forward priority 0; policy accept;
    ip saddr 10.7.0.0/16 ct state invalid drop; ip daddr 10.7.0.0/16 ct state invalid drop;
    iifname "outside" ip daddr 10.7.0.0/16 ct state new drop; }
}
"""
SYSCTLS = {"netfilter/nf_conntrack_tcp_loose": 0, "netfilter/nf_conntrack_tcp_be_liberal": 1}


class Step(NamedTuple):
    text: str
    by_inside: bool
    build: object  # function from the conversation as played to the packet, or None if its public end is not known


class Known(NamedTuple):
    """A difference that is explained: patterns of the packet's text, and of both outcomes."""

    why: str
    step: str
    kernel: str
    ours: str

    def explains(self, step, kernel, ours):
        return bool(re.search(self.step, step) and re.fullmatch(self.kernel, kernel) and re.fullmatch(self.ours, ours))


KNOWN = [
    Known("an identifier is millrace's key of pings, without the type: the remote end of a session may begin a ping, too",
          "^< ping that the remote end begins$", "nothing", "translated"),
    Known("a RST that answers a SYN makes the kernel forget the connection at once; millrace keeps it for tcp_close (RFC 7857, 2.2)",
          "error .* about TCP, refused$", "nothing", "translated"),
]


class Script:
    """A random conversation of one customer with two remote hosts: its steps, with the packets' numbers as an end would have them."""

    def __init__(self, rng):
        self.rng, self.steps = rng, []
        for _ in range(rng.randint(1, 3)):
            rng.choice((self.udp, self.udp, self.tcp, self.tcp, self.ping))()

    def say(self, text, by_inside, build):
        self.steps.append(Step(text, by_inside, build))

    def flow(self, protocol):
        """Returns a port inside, and the numbers of a remote host and of its port."""
        return protocol, self.rng.choice((4000, 4001)), self.rng.randrange(2), self.rng.randrange(2)

    def out(self, text, flow, data):
        self.say(f"> {text}", True, lambda played: played.out(flow, data))

    def back(self, text, flow, data, remote=None):
        """A packet to the flow's public end: from its remote end, or from another one, given as (host, port)."""
        self.say(f"< {text}", False, lambda played: played.back(flow, data, remote))

    def stranger(self, flow):
        """Returns an end that no flow of the conversation has: another port of the flow's remote host, or another host."""
        return self.rng.choice(((2, 0), (2, 1)) if flow[0] == ICMP else ((flow[2], 2), (2, 0)))

    def disturb(self, flow, data, after=""):
        """Perhaps adds a packet that has no business here, or an ICMP error."""
        chance = self.rng.random()
        if chance < 0.03 and flow[0] == ICMP:
            self.back("ping that the remote end begins", flow, data)
        elif chance < 0.15:
            self.back(f"{self.name(flow)} from a stranger", flow, data, self.stranger(flow))
        elif chance < 0.35:
            kind, code = self.rng.choice(((3, 1), (3, 3), (3, 4), (11, 0), (12, 0)))
            size = self.rng.choice((28, 1500))
            by = self.rng.randrange(3)
            if self.rng.random() < 0.6:
                self.say(f"< error {kind}/{code} about {self.name(flow)}{after}", False, lambda played: played.error_in(flow, data, kind, code, size, by))
            else:
                self.say(f"> error {kind}/{code} about {self.name(flow)}{after}", True, lambda played: played.error_out(flow, data, kind, code, size))
        elif chance < 0.4:
            self.say(f"< error about no {self.name(flow)}", False, lambda played: played.error_about_nothing(flow, data))

    @staticmethod
    def name(flow):
        return {TCP: "TCP", UDP: "UDP", ICMP: "ping"}[flow[0]]

    def udp(self):
        flow = self.flow(UDP)
        for n in range(self.rng.randint(1, 4)):
            size, has_sum = self.rng.randrange(30), self.rng.random() < 0.9
            if n == 0 or self.rng.random() < 0.5:
                self.out("UDP", flow, lambda a, b, size=size, has_sum=has_sum: make.udp(a, b, bytes(size), 0, not has_sum))
            else:
                self.back("UDP", flow, lambda a, b, size=size: make.udp(a, b, b"r" * size))
            self.disturb(flow, lambda a, b: make.udp(a, b, b"seen"))

    def ping(self):
        kind = self.rng.choice((8, 8, 13))
        flow = (ICMP, self.rng.randrange(100), self.rng.randrange(2), kind)

        def query(a, b):
            return make.query(a[0], b[0], kind, b[1] if a[1] is None else a[1], b"data" * 3)

        def answer(a, b):
            return make.query(a[0], b[0], make.QUERIES[kind], b[1], b"data" * 3)

        for _ in range(self.rng.randint(1, 2)):
            self.out("ping", flow, query)
            if self.rng.random() < 0.8:
                self.back("ping", flow, answer)
            self.disturb(flow, query)

    def tcp(self):
        rng, flow = self.rng, self.flow(TCP)
        flow = (TCP, rng.randrange(2000, 60_000), *flow[2:])
        numbers = {True: rng.randrange(2**32), False: rng.randrange(2**32)}

        def send(text, by_inside, flags, data=b""):
            seq, ack = numbers[by_inside], numbers[not by_inside] if flags & make.ACK else 0
            packet = lambda a, b: make.tcp(a, b, flags, seq, ack, data)  # noqa: E731
            (self.out if by_inside else self.back)(f"TCP {text}", flow, packet)
            numbers[by_inside] += len(data) + bool(flags & (make.SYN | make.FIN))
            self.disturb(flow, lambda a, b: make.tcp(a, b, make.ACK, numbers[by_inside], 1, b"seen"),
                         ", refused" if text == "RST for the SYN" else "")

        if rng.random() < 0.1:
            send("without a SYN", True, make.ACK, b"x")
            return
        send("SYN", True, make.SYN)
        end = rng.random()
        if end < 0.1:
            send("RST for the SYN", False, make.RST | make.ACK)
            return
        if end < 0.2:  # simultaneous open
            numbers[True] -= 1
            self.back("TCP SYN of the other side", flow, lambda a, b, seq=numbers[False]: make.tcp(a, b, make.SYN, seq))
            numbers[False] += 1
            send("SYN and ACK", True, make.SYN | make.ACK)
            numbers[False] -= 1
            send("SYN and ACK", False, make.SYN | make.ACK)
        else:
            send("SYN and ACK", False, make.SYN | make.ACK)
            send("ACK", True, make.ACK)
        for _ in range(rng.randrange(4)):
            send("data", rng.random() < 0.5, make.ACK, b"0123456789"[: rng.randint(1, 10)])
        if end < 0.5:
            first = rng.random() < 0.5
            send("FIN", first, make.FIN | make.ACK)
            send("FIN", not first, make.FIN | make.ACK)
            send("last ACK", first, make.ACK)
        elif end < 0.7:
            by_inside = rng.random() < 0.5
            send("RST", by_inside, make.RST | make.ACK)
            send("data after the RST", not by_inside, make.ACK, b"late")


class Played:
    """A conversation under way through one router, which has public ends of its own."""

    def __init__(self, script, number):
        self.script, self.number = script, number
        self.host = bytes((10, 7, number >> 8, number & 255))
        self.remotes = [bytes((172, 16 + n, number >> 8, number & 255)) for n in range(3)]
        self.publics = {}  # by flow
        self.outcomes, self.sent = [], None

    def inside(self, flow):
        return self.host, flow[1]

    def remote(self, flow, other=None):
        host, port = other or flow[2:]
        return self.remotes[host], None if flow[0] == ICMP else (80, 5353, 7777)[port]

    def out(self, flow, data):
        self.flow = flow
        return data(self.inside(flow), self.remote(flow))

    def back(self, flow, data, other):
        self.flow = flow
        return flow in self.publics and data(self.remote(flow, other), self.publics[flow])

    def error_in(self, flow, data, kind, code, size, by):
        self.flow = flow
        if flow not in self.publics:
            return None
        seen = data(self.publics[flow], self.remote(flow))
        return make.error(self.remotes[by], self.publics[flow][0], kind, code, seen[:size])

    def error_out(self, flow, data, kind, code, size):
        self.flow = flow
        ends = self.remote(flow), self.inside(flow)
        if flow[0] == ICMP:
            seen = make.query(ends[0][0], ends[1][0], make.QUERIES[flow[3]], flow[1], b"data" * 3)
        else:
            seen = data(*ends)
        return flow in self.publics and make.error(self.host, self.remote(flow)[0], kind, code, seen[:size])

    def error_about_nothing(self, flow, data):
        self.flow = flow
        if flow not in self.publics:
            return None
        public = self.publics[flow]
        return make.error(self.remotes[0], public[0], 3, 3, data((public[0], public[1] ^ 0x4000), self.remote(flow)))

    def note(self, step, heard):
        """Puts in words what came out for the packet `self.sent`."""
        self.outcomes.append(" and ".join(sorted(self.in_words(step, link, packet) for link, packet in heard)) or "nothing")

    def in_words(self, step, link, packet):
        if link != ("outside" if step.by_inside else "inside"):
            return f"answered: {packet[9]} {packet[20:22].hex()}"
        flow, sent = self.flow, self.sent
        before = make.header(sent, sent[12:16], sent[16:20], sent[8] - 1) + sent[20:]
        if sent[9] == ICMP and sent[20] in make.ERRORS:
            if flow not in self.publics:
                return "an error leaves"
            public, inside, remote = self.publics[flow], self.inside(flow), self.remote(flow)
            if step.by_inside:
                expected = make.requoted(before, public[0], sent[16:20], remote, public)
            else:
                expected = make.requoted(before, sent[12:16], inside[0], inside, remote)
            return "translated" if packet == expected else "unchanged" if packet == before else "an error otherwise"
        at = 24 if flow[0] == ICMP else 20 if step.by_inside else 22
        number = int.from_bytes(packet[at : at + 2], "big")
        if step.by_inside:
            public = (packet[12:16], number)
            if packet[12:16] == self.host:
                return "untranslated"
            moved = self.publics.setdefault(flow, public) != public
            expected = make.rewritten(before, public, self.remote(flow))
            return "not as it should be" if packet != expected else "translated, another public end" if moved else "translated"
        remote = sent[12:16], None if flow[0] == ICMP else int.from_bytes(sent[20:22], "big")
        expected = make.rewritten(before, remote, self.inside(flow))
        return "translated" if packet == expected else "not as it should be"


def play(wire, scripts, first):
    """Plays scripts through a router; returns the outcomes of each. `first`: the number of the first one's hosts."""
    results = []
    for at in range(0, len(scripts), TOGETHER):
        together = [Played(script, first + at + n) for n, script in enumerate(scripts[at : at + TOGETHER])]
        by_address = {address: one for one in together for address in (one.host, *one.remotes)}
        wire.settle()
        for step in range(max(len(one.script.steps) for one in together)):
            sending = [one for one in together if step < len(one.script.steps)]
            for one in sending:
                one.sent = one.script.steps[step].build(one) or None
                if one.sent:
                    link = "inside" if one.script.steps[step].by_inside else "outside"
                    wire.sockets[link].send(frame_of(link, one.sent))
            heard = collections.defaultdict(list)
            for link, packet in wire.settle():
                if packet[0] >> 4 == 4:
                    owner = by_address.get(packet[16:20]) or by_address.get(packet[12:16])
                    heard[id(owner)].append((link, packet))
            for one in sending:
                if one.sent:
                    one.note(one.script.steps[step], heard[id(one)])
                else:
                    one.outcomes.append("not sent")
        results += [one.outcomes for one in together]
    return results


class KernelNat(Linux):
    def __init__(self):
        super().__init__()
        with self.namespace:
            ip(f"route add 10.7.0.0/16 via {V4['near']}")
            ip(f"route add 10.2.0.0/16 via {V4['near']}")
            command("nft", NFT)
            set_sysctls(SYSCTLS)


def configuration():
    text = 'function = "nat"\n[table]\ncapacity = 100000\n[host]\nunreachable = false\n'
    for link in LINKS:
        hop = V4["gateway" if link == "outside" else "near"]
        text += f'[[port]]\nname = "{link}"\ndevice = "af_packet:{link}"\naddresses = ["{V4[link]}/24"]\n'
        text += f'neighbours = [{{ address = "{hop}", mac = "{THEIR_MACS[link].hex(":")}" }}]\n'
    for prefix, via in (("0.0.0.0/0", "gateway"), ("10.7.0.0/16", "near"), ("10.2.0.0/16", "near")):
        text += f'[[route]]\nprefix = "{prefix}"\nvia = "{V4[via]}"\n'
    return text + f"""[[nat.pool]]
name = "p"
addresses = ["{POOL}"]
mapping = "address-and-port-dependent"
filtering = "address-and-port-dependent"
block_size = 64
blocks_per_customer = 1
[[nat.rule]]
source = "10.7.0.0/16"
pool = "p"
"""


class Nats(BesideKernel):
    def test_conversations(self):
        seed = int(os.environ.get("MILLRACE_TEST_SEED") or random.SystemRandom().randrange(2**32))
        print(f"seed {seed}", flush=True)
        rng = random.Random(seed)
        wires = self.wires(KernelNat(), configuration())
        scripts = [Script(rng) for _ in range(CONVERSATIONS)]
        first, packets, used, outcomes = 256, 0, collections.Counter(), collections.Counter()
        for _ in range(3):  # a busy machine loses packets
            with on_one_processor():
                theirs, ours = (play(wire, scripts, first) for wire in wires)
            first += len(scripts)
            left, unlike = [], []
            for script, kernel, own in zip(scripts, theirs, ours):
                packets += len(kernel)
                outcomes.update(own)
                reasons = [self.explained(*one) for one in zip(script.steps, kernel, own)]
                if all(reasons):
                    used.update(reasons)
                else:
                    left.append(script)
                    unlike.append(f"seed {seed}: " + "; ".join(f"{s.text}: kernel {k}, millrace {o}" for s, k, o in zip(script.steps, kernel, own)))
            scripts = left
            if not left:
                break
        self.stop()
        print(f"{CONVERSATIONS:,} conversations, {packets:,} packets through each NAT: " + ", ".join(f"{n:,} {what}" for what, n in outcomes.most_common()))
        for why, count in used.most_common():
            if why != "alike":
                print(f"{count:,} packets: {why}")
        for text in unlike if left else []:
            with self.subTest(conversation=text):
                self.fail("the difference has no explanation")

    @staticmethod
    def explained(step, kernel, ours):
        if kernel == ours and "otherwise" not in ours and "should be" not in ours:
            return "alike"
        return next((rule.why for rule in KNOWN if rule.explains(step.text, kernel, ours)), None)


if __name__ == "__main__":
    main(check)
