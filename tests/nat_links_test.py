#!/usr/bin/env python3
"""Has random packets of customers behind tunnels, with the same private addresses, go through the NAT of `millrace run`, there and back, and
check_nat.py judge captures of both links.

    nat_links_test.py MILLRACE [TEST...]

MILLRACE_NAT_ROUNDS: rounds of some 60 packets. MILLRACE_TEST_SEED: the first number of the random ones.
"""

import os
import random
import socket
import time
import types

import captures
import check_nat
import gre
import gre_test
import nat_packets as make
from asked import Asked
from customers import A, POOL
from live import main
from nat_links import ip_in
from packets import ICMP, SCTP, TCP, UDP, UDP_LITE
from raw_link import RawLink

ROUNDS = int(os.environ.get("MILLRACE_NAT_ROUNDS", "40"))
TUNNELS = [("172.17.0.1", None), ("172.17.0.2", None), ("172.17.63.254", None), ("172.18.0.9", gre_test.KEY)]
INSIDES = [bytes((10, 9, 0, n)) for n in (5, 6)]  # of each customer
REMOTES, ROUTER = [bytes((203, 0, 113, n)) for n in (1, 2, 3)], bytes((203, 0, 113, 254))
ROUTE = f'[[route]]\nprefix = "203.0.113.0/24"\nvia = "{A["servers"][0]}"\n'


class Leg:
    """A session as its sender began it; and as it has left, once that was seen."""

    def __init__(self, tunnel, packet):
        self.tunnel, self.packet, self.left, self.answer = tunnel, packet, None, None


def end_of(packet, at):
    """Returns the source (0) or the destination (1) of a packet with its port, or its identifier."""
    address = packet[12 + 4 * at : 16 + 4 * at]
    place = 24 if packet[9] == ICMP else 20 + 2 * at
    return address, int.from_bytes(packet[place : place + 2], "big")


class Links(Asked):
    def serve(self, pool, sharing):
        network = self.network(mtu=1600)
        self.serve_with(gre_test.Gre.configuration(sharing=sharing, pool=pool, extra=ROUTE), network)
        # Until the kernel has noticed that a new link is up, it drops what is sent there.
        for end, near in ((network.client, A["outside"]), (network.servers, A["inside"])):
            self.assertGreater(self.ping(types.SimpleNamespace(client=end), 4, near), 0)
        self.access = RawLink(self, network.client, network.middle, "outside")
        self.internet = RawLink(self, network.servers, network.middle, "inside")
        self.captured = {self.access: [], self.internet: []}
        self.legs, self.under_way, self.ident = [], {}, 0

    def next_ident(self):
        self.ident += 1
        return self.ident

    def capture(self, link, frame):
        self.captured[link].append((time.time_ns(), len(frame), frame))

    def come(self, link, packet):
        self.capture(link, link.head + packet)
        link.send(packet)

    def from_inside(self, tunnel, packet):
        far, key = tunnel
        self.come(self.access, make.ip(socket.inet_aton(far), socket.inet_aton(A["outside"]), gre.GRE, gre.header(key) + packet))

    def from_outside(self, packet):
        self.come(self.internet, packet)

    def receive(self):
        for link in (self.access, self.internet):
            for frame in link.receive(0.05):
                self.capture(link, frame)
                packet = ip_in(frame)
                if packet[9] == gre.GRE:
                    _, _, packet = gre.unwrapped(packet)
                leg, name = self.under_way.pop((packet[4:6], packet[9]), (None, None))
                if leg:
                    setattr(leg, name, packet)

    # Draws

    def data(self):
        return self.rng.randbytes(self.rng.choice((0, 1, 20, 1000)))

    def inside(self):
        return self.rng.choice(INSIDES), self.rng.choice((4000, 4001, self.rng.randrange(1024, 65536)))

    def open(self):
        ident, inside, remote = self.next_ident(), self.inside(), (self.rng.choice(REMOTES), self.rng.choice((53, 80)))
        packet = self.rng.choice((
            lambda: make.udp(inside, remote, self.data(), ident), lambda: make.udp(inside, remote, self.data(), ident, without_checksum=True),
            lambda: make.tcp(inside, remote, make.SYN, self.rng.randrange(2**32), ident=ident),
            lambda: make.sctp(inside, remote, 0, make.INIT, bytes((1, 2, 3, 4, 0, 1, 0, 0, 0, 9, 0, 9, 1, 2, 3, 4)), ident),
            lambda: make.udp_lite(inside, remote, self.data(), ident=ident),
            lambda: make.query(inside[0], remote[0], 8, inside[1], self.data(), ident),
        ))()
        self.send(Leg(self.rng.choice(TUNNELS), packet))

    def send(self, leg):
        self.legs.append(leg)
        self.under_way[leg.packet[4:6], leg.packet[9]] = leg, "left"
        self.from_inside(leg.tunnel, leg.packet)

    def leg(self, *protocols):
        some = [leg for leg in self.legs[-200:] if leg.left and leg.left[9] in protocols]
        return self.rng.choice(some) if some else None

    def reply(self):
        leg = self.leg(UDP, UDP_LITE, TCP, SCTP, ICMP)
        if leg is None:
            return
        ident, public, remote = self.next_ident(), end_of(leg.left, 0), end_of(leg.left, 1)
        seq = int.from_bytes(leg.left[24:28], "big")
        packet = {
            UDP: lambda: make.udp(remote, public, self.data(), ident), UDP_LITE: lambda: make.udp_lite(remote, public, self.data(), ident=ident),
            TCP: lambda: make.tcp(remote, public, make.SYN | make.ACK, 77, seq + 1, ident=ident),
            SCTP: lambda: make.sctp(remote, public, 0x01020304, make.INIT_ACK, bytes((5, 6, 7, 8, 0, 1, 0, 0, 0, 9, 0, 9, 1, 2, 3, 4)), ident),
            ICMP: lambda: make.query(remote[0], public[0], 0, public[1], self.data(), ident),
        }[leg.left[9]]()
        self.under_way[packet[4:6], packet[9]] = leg, "answer"
        self.from_outside(packet)

    def error_in(self):
        leg = self.leg(UDP, TCP, ICMP)
        if leg:
            quoted = leg.left[: self.rng.choice((28, 48, 1500))]
            self.from_outside(make.error(ROUTER, leg.left[12:16], *self.rng.choice(((3, 1), (3, 3), (11, 0))), quoted, ident=self.next_ident()))

    def error_out(self):
        some = [leg for leg in self.legs[-200:] if leg.answer and leg.answer[9] == UDP]
        if some:
            leg = self.rng.choice(some)
            self.from_inside(leg.tunnel, make.error(leg.answer[16:20], leg.answer[12:16], 3, 3, leg.answer, ident=self.next_ident()))

    def fragmented(self):
        packet = make.udp(self.inside(), (self.rng.choice(REMOTES), 53), self.rng.randbytes(100), self.next_ident())
        pieces, tunnel = make.fragments(packet, (48, 96)), self.rng.choice(TUNNELS)
        self.rng.shuffle(pieces)
        for piece in pieces:
            self.from_inside(tunnel, piece)

    def hairpin(self):
        leg = self.leg(UDP)
        if leg:
            self.from_inside(self.rng.choice(TUNNELS), make.udp(self.inside(), end_of(leg.left, 0), self.data(), self.next_ident()))

    def stranger(self):
        leg = self.leg(UDP)
        public = end_of(leg.left, 0) if leg and self.rng.random() < 0.5 else (socket.inet_aton(POOL.partition("/")[0]), self.rng.randrange(65536))
        self.from_outside(make.udp((ROUTER, 7), public, b"?", self.next_ident()))

    KINDS = {open: 30, reply: 30, error_in: 6, error_out: 6, fragmented: 4, hairpin: 6, stranger: 6}

    def test_links(self):
        seed = int(os.environ.get("MILLRACE_TEST_SEED", random.randrange(2**32)))
        for sharing, filtering in (("sharded", "endpoint-independent"), ("lock-free-race", "address-and-port-dependent")):
            self.rng = random.Random(seed)
            self.serve(f'filtering = "{filtering}"', sharing)
            for _ in range(ROUNDS):
                for kind in self.rng.choices(list(self.KINDS), self.KINDS.values(), k=60):
                    kind(self)
                self.receive()
            files = [self.path(name) for name in ("access.pcap", "internet.pcap")]
            for file, link in zip(files, (self.access, self.internet)):
                captures.write(file, captures.ETHERNET, sorted(self.captured[link]))
            own = [A[name] for name in ("outside", "inside", "client")] + A["servers"]
            judge = check_nat.check_links(*files, A["outside"], own, ["10.9.0.0/16"], [POOL])
            print(f"seed {seed}, {sharing}: {dict(judge.counts)}")
            self.assertEqual(judge.errors, [], f"seed {seed}")
            least = {"from inside": 15, "to inside": 12, "errors": 3, "later fragments": 3, "dropped": 1}
            for name, each in least.items():
                self.assertGreater(judge.counts[name], each * ROUNDS, f"{name}, seed {seed}")
            stats = self.stop()
            dropped = stats["packets"]["dropped"]
            dropped.pop("not_ours", None)  # of the kernels beside
            dropped = sum(dropped.values())
            self.assertGreaterEqual(judge.counts["dropped"], dropped)
            # A full socket may lose some packets, which the judge cannot tell from dropped ones.
            self.assertLess(judge.counts["dropped"] - dropped, len(self.captured[self.access]) / 100)


if __name__ == "__main__":
    main()
