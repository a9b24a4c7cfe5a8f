#!/usr/bin/env python3
"""Tests hole punching (RFC 5128): two customers with one private address reach each other by the public ends that a rendezvous server tells
them, through the NATs of two processes, or through one NAT, which is to filter what comes from its own customers like anything else.

    home 0 ═ GRE ═ millrace 0 ─┐                                                     home 0 ═ GRE ═╗
                               router, with the rendezvous server and a relay                      millrace ─ router, with the server
    home 1 ─────── millrace 1 ─┘                                                     home 1 ═ GRE ═╝

    nat_holes_test.py MILLRACE [TEST...]
"""

import contextlib
import errno
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
NEAR, FAR = "172.16.0.1", ("172.17.0.9", "172.17.0.10")  # the ends of the tunnels
SERVER = "203.0.113.1"
LINKS = ("192.0.2", "198.51.100")  # the networks between millrace and the router
INDEPENDENT, DEPENDENT = "endpoint-independent", "address-and-port-dependent"
SHARING = ("sharded", "lock-free-race")
IP_RECVERR = 11  # of linux/in.h


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
    """The namespaces of one millrace and its customers: one at the end of each tunnel, or without tunnels one on the link."""

    def __init__(self, n, router, tunnels):
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
            if tunnels:
                ip("address add 172.16.0.2/24 dev wire")
                for far in tunnels:
                    ip(f"address add {far}/32 dev lo")
            else:
                ip(f"address add {INSIDE}/24 dev wire")
                ip("route add default via 10.9.0.1")
        homes = {(far, None): Home(INSIDE) for far in tunnels}
        self.tunnels = Tunnels(self.access, NEAR, homes) if homes else None
        self.homes = [home.namespace for home in homes.values()] or [self.access]

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
    def make_router(self):
        self.router = Namespace()
        with self.router:
            set_sysctls({"ipv4/ip_forward": 1, "ipv4/conf/all/rp_filter": 0, "ipv4/conf/default/rp_filter": 0})
            ip("link set lo up")
            ip(f"address add {SERVER}/32 dev lo")

    def start_all(self, mappings, sharing):
        self.homes = [home for nat in self.nats for home in nat.homes]
        self.running = []
        for n, nat in enumerate(self.nats):
            self.start(nat, configuration(n, mappings[n], sharing[n]), control=f"control{n}")
            self.running.append((self.process, self.stats, self.control))
            self.process = None
            self.addCleanup(self.running[-1][0].wait)
            self.addCleanup(self.running[-1][0].kill)

    def start_both(self, *mappings):
        """Starts two NATs, with other sharing each."""
        self.make_router()
        self.nats = [Nat(0, self.router, FAR[:1]), Nat(1, self.router, ())]
        self.relay = Relay(self.router)
        self.start_all(mappings, SHARING)

    def start_one(self, sharing, mapping=INDEPENDENT):
        """Starts one NAT, of both customers."""
        self.make_router()
        self.nats = [Nat(0, self.router, FAR)]
        self.relay = None
        self.start_all((mapping,), (sharing,))

    def stop_all(self):
        """Ends them, and returns their counts of dropped packets."""
        dropped = []
        for self.process, self.stats, self.control in self.running:
            dropped.append(self.stop()["packets"]["dropped"])
        if self.relay:
            self.relay.close()
        for nat in self.nats:
            nat.close()
        return dropped

    def dropped(self, n):
        """Returns how many packets the NAT of a customer has dropped for want of a mapping."""
        self.control = self.running[min(n, len(self.running) - 1)][2]
        return self.ask("GET /stats")["packets"]["dropped"].get("no_mapping", 0)

    def bound(self, n, kind):
        """Returns a socket of a customer, at the port that both use; several connections may have it."""
        made = self.socket_in(self.homes[n], socket.AF_INET, kind)
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
        self.assertEqual([public[0].rpartition(".")[0] for _, public in ends], [LINKS[n] for n in range(len(self.nats))] * (3 - len(self.nats)))
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

    def datagrams(self, first):
        """The first datagram opens its sender's hole, and does not pass the other's filter; from then on both ways are open."""
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
        return one, its, other

    def test_rfc4787_req1_datagrams_through_two_nats(self):
        for first in range(2):
            self.start_both(INDEPENDENT, INDEPENDENT)
            one, _, other = self.datagrams(first)
            one.close()
            other.close()
            self.stop_all()

    def error_of(self, sender, to, ttl):
        """Returns the number of the error that an ICMP error about a datagram with that TTL causes at its sender."""
        sender.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, ttl)
        sender.setblocking(False)
        for _ in range(50):
            with contextlib.suppress(OSError):  # an earlier error
                sender.sendto(b"to nobody", to)
            select.select([], [], [sender], 0.2)
            with contextlib.suppress(BlockingIOError):
                return struct.unpack_from("=I", sender.recvmsg(100, 512, socket.MSG_ERRQUEUE)[1][0][2])[0]  # sock_extended_err
        self.fail("no error")

    def test_rfc4787_req9_and_rfc5508_req7a_datagrams_between_customers_of_one_nat(self):
        """Then errors: the TTL ends at millrace, which counts as one router, and the other's port is closed."""
        for sharing in SHARING:
            for first in range(2):
                self.start_one(sharing)
                one, its, other = self.datagrams(first)
                self.assertEqual(self.error_of(one, its, 1), errno.EHOSTUNREACH)
                other.close()
                self.assertEqual(self.error_of(one, its, 2), errno.ECONNREFUSED)
                one.close()
                self.stop_all()

    def test_datagrams_between_customers_find_no_hole_where_ports_depend_on_remote_ends(self):
        self.start_one("sharded", DEPENDENT)
        ends = self.registered()
        for _ in range(3):
            for n in range(2):
                ends[n][0].sendto(b"?", ends[1 - n][1])
        self.wait_until(lambda: self.dropped(0) == 6)
        for end, _ in ends:
            end.setblocking(False)
            self.assertRaises(BlockingIOError, end.recv, 100)
            end.close()
        self.stop_all()

    def test_datagrams_that_cross(self):
        self.start_both(INDEPENDENT, INDEPENDENT)
        ends = self.registered()
        self.relay.holds = True
        for n in range(2):
            ends[n][0].sendto(bytes([n]), ends[1 - n][1])
        for n in range(2):
            self.assertEqual(ends[n][0].recvfrom(100), (bytes([1 - n]), ends[1 - n][1]))
        self.assertEqual([dropped.get("no_mapping", 0) for dropped in self.stop_all()], [0, 0])

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
            self.stop_all()

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

    def simultaneous_open(self, first):
        """Each customer connects to the other, the one with the number `first` too early; then they exchange data. None: both at once.
        Returns their public ends."""
        publics, sockets = self.connecting()
        if self.relay:
            self.relay.holds = first is None
        for n in ((0, 1) if first is None else (first, 1 - first)):
            self.assertRaises(BlockingIOError, sockets[n].connect, publics[1 - n])
            if n == first:
                self.wait_until(lambda: self.dropped(1 - first) >= 1)
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
        for one in sockets:
            one.close()
        return publics

    def test_rfc5382_req2a_simultaneous_open_through_two_nats(self):
        """Both SYNs cross, or one comes too early: then it gets no answer (REQ-4), and the other one passes."""
        for first in (None, 0, 1):
            self.start_both(INDEPENDENT, INDEPENDENT)
            publics = self.simultaneous_open(first)
            syns = {(packet[12:16], packet[33] & 0x3F) for packet in self.relay.passed[:2]}
            self.assertEqual(syns, {(socket.inet_aton(public[0]), 2) for public in publics})
            dropped = self.stop_all()
            if first is None:
                self.assertEqual([one.get("no_mapping", 0) for one in dropped], [0, 0])

    def test_rfc5382_req2a_and_req8_simultaneous_open_between_customers_of_one_nat(self):
        for sharing in SHARING:
            for first in (0, 1):
                self.start_one(sharing)
                self.simultaneous_open(first)
                self.stop_all()

    def test_syns_find_no_hole_where_ports_depend_on_remote_ends(self):
        self.start_both(DEPENDENT, DEPENDENT)
        publics, sockets = self.connecting()
        for n, one in enumerate(sockets):
            self.assertRaises(BlockingIOError, one.connect, publics[1 - n])
        for n, one in enumerate(sockets):
            self.wait_until(lambda: self.dropped(n) >= 2)  # the SYN has come once more
            self.assertEqual(select.select([], [one], [], 0)[1], [])
        self.stop_all()


if __name__ == "__main__":
    main()
