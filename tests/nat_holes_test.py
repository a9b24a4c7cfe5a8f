#!/usr/bin/env python3
"""Tests hole punching (RFC 5128) through the NATs of two processes: two customers with one private address reach each other by the public ends that a
rendezvous server tells them.

    home 0 ═ GRE ═ millrace 0 ─┐
                               router, with the rendezvous server and a relay
    home 1 ─────── millrace 1 ─┘

    nat_holes_test.py MILLRACE [TEST...]
"""

import contextlib
import fcntl
import os
import select
import socket
import struct
import threading

from asked import Asked
from gre import IFF_NO_PI, IFF_TUN, TUNSETIFF, Home, Tunnels
from live import main
from namespaces import Namespace, ip, set_sysctls
from network import payload

INSIDE, PORT = "10.9.0.5", 4000  # of both customers
NEAR, FAR = "172.16.0.1", "172.17.0.9"  # the ends of the tunnel
SERVER = "203.0.113.1"
LINKS = ("192.0.2", "198.51.100")  # the networks between millrace and the router
INDEPENDENT, DEPENDENT = "endpoint-independent", "address-and-port-dependent"


def configuration(n, mapping, sharing):
    access = (f'addresses = ["{NEAR}/24"]\ntunnel = "gre"\ncustomers = ["172.17.0.0/18"]\nmss = "auto"', 'addresses = ["10.9.0.1/24"]')[n]
    customers = ('customers = "any"', "")[n]
    route = ('[[route]]\nprefix = "172.17.0.0/18"\nvia = "172.16.0.2"', "")[n]
    return f"""function = "nat"
workers = 2
sharing = "{sharing}"
[table]
capacity = 20000
[[port]]
name = "access"
device = "af_packet:access"
{access}
[[port]]
name = "internet"
device = "af_packet:internet"
addresses = ["{LINKS[n]}.1/24"]
[[route]]
prefix = "0.0.0.0/0"
via = "{LINKS[n]}.254"
{route}
[[nat.pool]]
name = "homes"
addresses = ["{LINKS[n]}.192/28"]
mapping = "{mapping}"
filtering = "{DEPENDENT}"
[[nat.rule]]
source = ["10.9.0.0/16"]
{customers}
pool = "homes"
"""


class Nat:
    """The namespaces of one millrace and its customer."""

    def __init__(self, n, router):
        self.middle, self.access = Namespace(), Namespace()
        with self.middle:
            ip(f"link add internet type veth peer name nat{n} netns {router.path}")
            ip(f"link add access mtu 1600 type veth peer name wire mtu 1600 netns {self.access.path}")
            ip("link set internet up")
            ip("link set access up")
        with router:
            ip(f"address add {LINKS[n]}.254/24 dev nat{n}")
            ip(f"link set nat{n} up")
        with self.access:
            ip("link set lo up")
            ip("link set wire up")
            if n == 0:
                ip("address add 172.16.0.2/24 dev wire")
                ip(f"address add {FAR}/32 dev lo")
            else:
                ip(f"address add {INSIDE}/24 dev wire")
                ip("route add default via 10.9.0.1")
        home = Home(INSIDE) if n == 0 else None
        self.tunnels = Tunnels(self.access, NEAR, {(FAR, None): home}) if home else None
        self.home = home.namespace if home else self.access

    def close(self):
        if self.tunnels:
            self.tunnels.close()


class Relay:
    """Passes the packets between the two NATs on; while `holds`, only once one of each has come: these cross. Packets to and from the server do
    not come here."""

    def __init__(self, router):
        self.holds, self.passed = False, []
        with router:
            self._tun = os.open("/dev/net/tun", os.O_RDWR)
            fcntl.ioctl(self._tun, TUNSETIFF, struct.pack("16sH22x", b"between", IFF_TUN | IFF_NO_PI))
            ip("link set between up")
            ip("route add default dev between table 100")
            for n in range(2):
                ip(f"rule add iif nat{n} lookup 100")
        self._ended = False
        self._thread = threading.Thread(target=self._pass, daemon=True)
        self._thread.start()

    def _pass(self):
        held = []
        while not self._ended:
            if not select.select([self._tun], [], [], 0.1)[0]:
                continue
            packet = os.read(self._tun, 65536)
            if packet[0] >> 4 != 4:
                continue
            held.append(packet)
            if self.holds and len({packet[12:16] for packet in held}) < 2:
                continue
            self.holds = False
            for packet in held:
                os.write(self._tun, packet)
            self.passed += held
            held.clear()

    def close(self):
        self._ended = True
        self._thread.join()
        os.close(self._tun)


class Holes(Asked):
    def start_both(self, *mappings):
        """Starts both NATs, with other sharing each, and returns the names of their control sockets."""
        self.router = Namespace()
        with self.router:
            set_sysctls({"ipv4/ip_forward": 1, "ipv4/conf/all/rp_filter": 0, "ipv4/conf/default/rp_filter": 0})
            ip("link set lo up")
            ip(f"address add {SERVER}/32 dev lo")
        self.nats = [Nat(n, self.router) for n in range(2)]
        self.relay = Relay(self.router)
        self.running = []
        for n, (mapping, sharing) in enumerate(zip(mappings, ("sharded", "lock-free-race"))):
            self.start(self.nats[n], configuration(n, mapping, sharing), control=f"control{n}")
            self.running.append((self.process, self.stats, self.control))
            self.process = None
            self.addCleanup(self.running[-1][0].wait)
            self.addCleanup(self.running[-1][0].kill)

    def stop_both(self):
        """Ends both, and returns their counts of dropped packets."""
        dropped = []
        for self.process, self.stats, self.control in self.running:
            dropped.append(self.stop()["packets"]["dropped"])
        self.relay.close()
        for nat in self.nats:
            nat.close()
        return dropped

    def dropped(self, n):
        self.control = self.running[n][2]
        return self.ask("GET /stats")["packets"]["dropped"].get("no_mapping", 0)

    def bound(self, n, kind):
        """Returns a socket of a customer, at the port that both use; several connections may have it."""
        made = self.socket_in(self.nats[n].home, socket.AF_INET, kind)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        made.bind((INSIDE, PORT))
        return made

    def rendezvous(self, kind, port=5353):
        made = self.socket_in(self.router, socket.AF_INET, kind)
        made.bind((SERVER, port))
        return made

    def registered(self):
        """Returns a socket of each customer, and its public end as the server sees it."""
        server = self.rendezvous(socket.SOCK_DGRAM)
        ends = []
        for n in range(2):
            asking = self.bound(n, socket.SOCK_DGRAM)
            asking.sendto(b"who am I", (SERVER, 5353))
            ends.append((asking, server.recvfrom(100)[1]))
        self.assertEqual([public[0].rpartition(".")[0] for _, public in ends], [*LINKS])
        return ends

    def says(self, one, to, other, public):
        """Checks that a datagram arrives, from that public end. One that a busy machine loses is sent again."""
        other.settimeout(2)
        for _ in range(5):
            one.sendto(b"hello", to)
            with contextlib.suppress(TimeoutError):
                self.assertEqual(other.recvfrom(100), (b"hello", public))
                return
        self.fail(f"nothing arrives at {to}")

    def test_rfc4787_req1_datagrams_through_two_nats(self):
        """The first datagram opens the sender's hole, and does not pass the other NAT; from then on both ways are open."""
        for first in range(2):
            self.start_both(INDEPENDENT, INDEPENDENT)
            ends = self.registered()
            (one, public), (other, its) = ends[first], ends[1 - first]
            one.sendto(b"too early", its)
            self.wait_until(lambda: self.dropped(1 - first) == 1)
            for _ in range(2):
                self.says(other, public, one, its)
                self.says(one, its, other, public)
            with self.rendezvous(socket.SOCK_DGRAM, 5354) as stranger:
                for n in range(2):
                    before = self.dropped(n)
                    stranger.sendto(b"?", ends[n][1])
                    self.wait_until(lambda: self.dropped(n) == before + 1)
            for end, _ in ends:
                end.close()
            self.stop_both()

    def test_datagrams_that_cross(self):
        self.start_both(INDEPENDENT, INDEPENDENT)
        ends = self.registered()
        self.relay.holds = True
        for n in range(2):
            ends[n][0].sendto(bytes([n]), ends[1 - n][1])
        for n in range(2):
            self.assertEqual(ends[n][0].recvfrom(100), (bytes([1 - n]), ends[1 - n][1]))
        self.assertEqual([dropped.get("no_mapping", 0) for dropped in self.stop_both()], [0, 0])

    def test_datagrams_find_no_hole_where_ports_depend_on_remote_ends(self):
        for mappings in ((DEPENDENT, DEPENDENT), (INDEPENDENT, DEPENDENT), (DEPENDENT, INDEPENDENT)):
            self.start_both(*mappings)
            ends = self.registered()
            for n in range(2):
                for _ in range(3):
                    ends[n][0].sendto(b"?", ends[1 - n][1])
            for n in range(2):
                self.wait_until(lambda: self.dropped(n) == 3)
                ends[n][0].setblocking(False)
                self.assertRaises(BlockingIOError, ends[n][0].recv, 100)
                ends[n][0].close()
            self.stop_both()

    def connecting(self):
        """Returns each customer's public end for TCP, as the server sees it, and a socket with that end's port."""
        listening = self.rendezvous(socket.SOCK_STREAM)
        listening.listen()
        publics = []
        for n in range(2):
            self.bound(n, socket.SOCK_STREAM).connect((SERVER, 5353))
            accepted, public = listening.accept()
            self.addCleanup(accepted.close)
            publics.append(public)
        sockets = [self.bound(n, socket.SOCK_STREAM) for n in range(2)]
        for one in sockets:
            one.setblocking(False)
        return publics, sockets

    def test_rfc5382_req2a_simultaneous_open_through_two_nats(self):
        """Both SYNs cross, or one comes too early: then it gets no answer (REQ-4), and the other one passes."""
        for first in (None, 0, 1):
            self.start_both(INDEPENDENT, INDEPENDENT)
            publics, sockets = self.connecting()
            self.relay.holds = first is None
            for n in ((0, 1) if first is None else (first, 1 - first)):
                self.assertRaises(BlockingIOError, sockets[n].connect, publics[1 - n])
                if n == first:
                    self.wait_until(lambda: self.dropped(1 - first) == 1)
            for n, one in enumerate(sockets):
                one.settimeout(20)
                self.wait_until(lambda: select.select([], [one], [], 0)[1])
                self.assertEqual(one.getpeername(), publics[1 - n])
            for one, other in (sockets, sockets[::-1]):
                sending = threading.Thread(target=one.sendall, args=(payload(300_000),))
                sending.start()
                received = b""
                while len(received) < 300_000 and (more := other.recv(65536)):
                    received += more
                sending.join()
                self.assertEqual(received, payload(300_000))
            syns = {(packet[12:16], packet[33] & 0x3F) for packet in self.relay.passed[:2]}
            self.assertEqual(syns, {(socket.inet_aton(public[0]), 2) for public in publics})
            for one in sockets:
                one.close()
            dropped = self.stop_both()
            if first is None:
                self.assertEqual([one.get("no_mapping", 0) for one in dropped], [0, 0])

    def test_syns_find_no_hole_where_ports_depend_on_remote_ends(self):
        self.start_both(DEPENDENT, DEPENDENT)
        publics, sockets = self.connecting()
        for n, one in enumerate(sockets):
            self.assertRaises(BlockingIOError, one.connect, publics[1 - n])
        for n, one in enumerate(sockets):
            self.wait_until(lambda: self.dropped(n) >= 2)  # the SYN has come once more
            self.assertEqual(select.select([], [one], [], 0)[1], [])
        self.stop_both()


if __name__ == "__main__":
    main()
