#!/usr/bin/env python3
"""Tests that the firewall of `millrace run` drops no packet of real TCP connections as `invalid`, between network namespaces whose links
lose packets, send some twice and others late.

    lossy_test.py MILLRACE [TEST...]

The environment variable MILLRACE_TEST_SEED repeats a run as far as the machine's timing allows.
"""

import collections
import contextlib
import os
import random
import select
import socket
import struct
import threading
import time

from asked import Asked
from firewall_test import configuration
from live import main
from namespaces import Namespace, ip, set_sysctls, without_offloads
from network import ADDRESSES, FAMILIES, Network, payload

PORT = 9000
LOST, TWICE, LATE = 0.02, 0.03, 0.1  # shares of packets
LATEST, PATIENCE = 30, 0.02  # a late packet comes behind at most that many others, or after that many seconds


class Wire:
    """Passes frames from one interface to another, not all of them and not in order."""

    def __init__(self, source, to, seed):
        self.source, self.to = source, to
        self.random = random.Random(seed)
        self.late = collections.deque()  # (number of frames before it, latest time, frame)
        self.passed = 0
        self.counts = collections.Counter()

    def send(self, frame):
        with contextlib.suppress(OSError):
            self.to.send(frame)
        self.passed += 1

    def take(self, frame):
        drawn = self.random.random()
        if (drawn := drawn - LOST) < 0:
            self.counts["lost"] += 1
        elif (drawn := drawn - TWICE) < 0:
            self.counts["twice"] += 1
            self.send(frame)
            self.send(frame)
        elif drawn - LATE < 0:
            self.counts["late"] += 1
            self.late.append((self.passed + self.random.randint(1, LATEST), time.monotonic() + PATIENCE, frame))
        else:
            self.send(frame)
        self.release()

    def release(self):
        for _ in range(len(self.late)):
            number, latest, frame = self.late.popleft()
            if self.passed >= number or time.monotonic() >= latest:
                self.send(frame)
            else:
                self.late.append((number, latest, frame))


class LossyNetwork(Network):
    """A network with lossy links between the client and millrace, and between millrace and the servers."""

    def __init__(self, seed):
        self.lossy = Namespace()
        self.wires, self.is_ending, self.seed = {}, False, seed
        super().__init__()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def link(self, name, end, mtu):
        for near, namespace, far in ((f"{name}0", self.middle, name), (f"{name}1", end, "wire")):
            with self.lossy:
                ip(f"link add {near} mtu {mtu} type veth peer name {far} mtu {mtu} netns {namespace.path}")
                set_sysctls({f"ipv6/conf/{near}/disable_ipv6": 1})
                ip(f"link set {near} up")
            with namespace:
                ip(f"link set {far} up")
                without_offloads(far)
        with self.lossy:
            ends = [socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) for _ in range(2)]
            for n, one in enumerate(ends):
                one.bind((f"{name}{n}", 3))
                one.setblocking(False)
            for source, to in (ends, ends[::-1]):
                self.wires[source] = Wire(source, to, self.seed + len(self.wires))

    def run(self):
        while not self.is_ending:
            for one in select.select(list(self.wires), [], [], PATIENCE / 4)[0]:
                for _ in range(64):
                    try:
                        frame, (_, _, kind, *_) = one.recvfrom(65536)
                    except BlockingIOError:
                        break
                    if kind != socket.PACKET_OUTGOING:
                        self.wires[one].take(frame)
            for wire in self.wires.values():
                wire.release()

    def close(self):
        self.is_ending = True
        self.thread.join()
        for one in self.wires:
            one.close()
        super().close()
        self.lossy.close()


class Peer:
    """A server that sends as it receives: `size` bytes in each direction, each side ending with a FIN."""

    def __init__(self, network, family, port, serve):
        with network.servers:
            self.listening = socket.create_server((ADDRESSES[family]["servers"][0], port), family=FAMILIES[family], backlog=64)
        self.serve = serve
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                one, _ = self.listening.accept()
            except OSError:
                return
            threading.Thread(target=self.run, args=(one,), daemon=True).start()

    def run(self, one):
        with contextlib.suppress(OSError), one:
            one.settimeout(60)
            self.serve(one)

    def close(self):
        with contextlib.suppress(OSError):
            self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()


def send_all(one, size):
    one.sendall(payload(size))
    one.shutdown(socket.SHUT_WR)


def read_all(one, pause=0.0):
    """Reads to the end; in the midst waits for a while, so that the window closes."""
    got = bytearray()
    while data := one.recv(65536):
        got += data
        if pause and len(got) > 100_000:
            time.sleep(pause)
            pause = 0.0
    return bytes(got)


class Lossy(Asked):
    def setUp(self):
        super().setUp()
        self.seed = int(os.environ.get("MILLRACE_TEST_SEED", random.randrange(1 << 32)))
        self.network_ = LossyNetwork(self.seed)
        self.addCleanup(self.network_.close)

    def connected(self, family, port=PORT, source=0, **options):
        with self.network_.client:
            one = socket.socket(FAMILIES[family])
        self.addCleanup(one.close)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for option, value in options.items():
            level = socket.IPPROTO_TCP if option.startswith("TCP") else socket.SOL_SOCKET
            one.setsockopt(level, getattr(socket, option), value)
        one.bind((ADDRESSES[family]["client"], source))
        one.settimeout(60)
        one.connect((ADDRESSES[family]["servers"][0], port))
        return one

    def peer(self, family, port, serve):
        peer = Peer(self.network_, family, port, serve)
        self.addCleanup(peer.close)

    def both_ways(self, family, size, pause=0.0, **options):
        """Sends `size` bytes in each direction at the same time."""
        one = self.connected(family, **options)
        sender = threading.Thread(target=send_all, args=(one, size))
        sender.start()
        got = read_all(one, pause)
        sender.join()
        self.assertEqual(got, payload(size))

    def half_closed(self, family):
        """The client ends first, and the server goes on."""
        one = self.connected(family, PORT + 1)
        one.shutdown(socket.SHUT_WR)
        self.assertEqual(read_all(one), payload(200_000))

    def idle(self, family):
        """Keepalives go on for some seconds."""
        one = self.connected(family, PORT + 2, SO_KEEPALIVE=1, TCP_KEEPIDLE=1, TCP_KEEPINTVL=1)
        time.sleep(3)
        one.sendall(b"x")
        self.assertEqual(one.recv(1), b"x")

    def reset(self, family):
        """A RST of either side ends the connection; the port is then used again."""
        for _ in range(4):
            one = self.connected(family, PORT + 3, source=3333)
            with contextlib.suppress(ConnectionError):  # the server ends with data unread, and so by a RST
                one.sendall(payload(20_000))
                one.recv(100)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            one.close()
            time.sleep(3 * PATIENCE)

    def serve_all(self):
        def exchange(one):
            sender = threading.Thread(target=send_all, args=(one, 400_000))
            sender.start()
            read_all(one, 0.3)
            sender.join()

        def give(one):
            one.recv(1)
            send_all(one, 200_000)

        for family in ADDRESSES:
            self.peer(family, PORT, exchange)
            self.peer(family, PORT + 1, give)
            self.peer(family, PORT + 2, lambda one: one.sendall(one.recv(1)))
            self.peer(family, PORT + 3, lambda one: one.sendall(payload(100_000)))

    def exercise_all(self):
        failed = []

        def tried(work, *arguments, **more):
            try:
                work(*arguments, **more)
            except Exception as why:  # of another thread than the test's
                failed.append(f"{work.__name__} {arguments}: {why!r}")

        threads = []
        for family in ADDRESSES:
            threads += [threading.Thread(target=tried, args=(self.both_ways, family, 400_000), kwargs=more)
                        for more in ({}, {"pause": 0.5, "SO_RCVBUF": 8192}, {"SO_SNDBUF": 300_000})]
            threads += [threading.Thread(target=tried, args=(work, family)) for work in (self.half_closed, self.idle, self.reset)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        self.assertEqual(failed, [], f"seed {self.seed}")

    def test_no_packet_of_a_connection_is_invalid(self):
        network = self.network_
        self.start(network, configuration("", default="accept"))
        self.serve_all()
        for scales in (1, 0):
            for namespace in (network.client, network.servers):
                with namespace:
                    set_sysctls({"ipv4/tcp_window_scaling": scales})
            with self.subTest(scales=scales):
                self.exercise_all()
            time.sleep(2 * PATIENCE)
        counts = sum((wire.counts for wire in network.wires.values()), collections.Counter())
        stats = self.stop()
        dropped = stats["packets"]["dropped"]
        print(f"{stats['packets']['in']:,} packets; on the way {dict(counts)}; dropped {dropped}")
        self.assertGreater(min(counts.values()), 100)
        self.assertEqual([dropped.get(why, 0) for why in ("invalid", "malformed")], [0, 0], f"seed {self.seed}")


if __name__ == "__main__":
    main()
