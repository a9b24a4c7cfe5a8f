#!/usr/bin/env python3
"""Tests fragmented datagrams through `millrace run` on each kind of interface: routed ones and those of services pass in both
directions, also through the firewall, pings are answered, and packets that are too large for the next link are divided.

    fragments_test.py MILLRACE [TEST...]
"""

import errno
import ipaddress
import os
import socket
import threading
import unittest

from asked import GOOD, Asked
from live import NO_XDP, has_xdp, main
from namespaces import ip
from network import ADDRESSES, FAMILIES, PORT, SERVER_PORT, Servers, configuration, payload

SIZES = (1473, 3000, 9000, 30000)  # bytes of data, too many for one packet of 1500 bytes
ROUTED_PORT = 5353
IP_MTU_DISCOVER, IP_PMTUDISC_DONT = 10, 0  # linux/in.h


class Fragments(Asked):
    """The tests for all kinds of interfaces; a subclass for each kind is below."""

    OUTSIDE, INSIDE, TO_CLIENT = "af_packet:outside", "af_packet:inside", "veth"

    def serve_by(self, sharing):
        self.serve_with(f'sharing = "{sharing}"\n' + configuration(self.OUTSIDE, self.INSIDE), to_client=self.TO_CLIENT)
        if self.TO_CLIENT == "tap":
            with self.network_.middle:
                ip(f"link set mr0 name wire netns {self.network_.client.path}")
            self.network_.connect_client()

    def each_sharing(self):
        for sharing in ("lock-free-race", "sharded"):
            self.serve_by(sharing)
            yield

    def echo_beside(self, family):
        """Starts a server on a port that belongs to no service; returns its address."""
        address = ADDRESSES[family]["servers"][0]
        with self.network_.servers:
            udp = socket.socket(FAMILIES[family], socket.SOCK_DGRAM)
        udp.bind((address, ROUTED_PORT))

        def echo():
            while True:
                try:
                    data, sender = udp.recvfrom(65536)
                except OSError:
                    return
                if sender is None:
                    return
                udp.sendto(data, sender)

        threading.Thread(target=echo, daemon=True).start()

        def close():
            try:
                udp.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            udp.close()

        self.addCleanup(close)
        return address, ROUTED_PORT

    def client_socket(self, family, to):
        with self.network_.client:
            udp = socket.socket(FAMILIES[family], socket.SOCK_DGRAM)
        self.addCleanup(udp.close)
        udp.settimeout(1)
        udp.connect(to)
        return udp

    def in_place_of(self, family, server):
        """Stops a server; returns a socket at the server's address and port, with which the test itself answers."""
        self.servers.stop(family, server)
        with self.network_.servers:
            udp = socket.socket(FAMILIES[family], socket.SOCK_DGRAM)
        self.addCleanup(udp.close)

        def bind():
            try:
                udp.bind((server, SERVER_PORT))
                return True
            except OSError:  # the server's thread still has the address
                return False

        self.wait_until(bind)
        return udp

    def exchange(self, udp, size):
        """Sends a datagram until it comes back, five times at most: the kernel of a busy machine loses some datagrams."""
        for _ in range(5):
            try:
                udp.send(payload(size))
                while True:
                    answer = udp.recv(65536)
                    if answer == payload(size):
                        return
            except OSError as error:
                # EMSGSIZE: the kernel has learned that the packets were too large.
                self.assertTrue(isinstance(error, TimeoutError) or error.errno == errno.EMSGSIZE, error)
                self.lost += 1
        self.fail(f"a datagram of {size} bytes did not come back in 5 attempts")

    def ping_in_fragments(self, family, address, size):
        """Pings until three pings in a row are answered: the kernel of a busy machine loses some packets."""
        self.wait_until(lambda: self.ping(self.network_, family, address, size, patience=1) == 3)

    def denied_in_fragments(self, udp):
        """Sends datagrams until as many fragments have been denied as one of them has."""
        def dropped():
            return self.ask("GET /stats")["packets"]["dropped"].get("denied", 0)

        before = dropped()

        def is_denied():
            udp.send(payload(3000))
            return dropped() >= before + 3

        self.wait_until(is_denied)

    def test_routed(self):
        for _ in self.each_sharing():
            for family in ADDRESSES:
                udp = self.client_socket(family, self.echo_beside(family))
                for size in SIZES:
                    self.exchange(udp, size)
            dropped = self.stop()["packets"]["dropped"]
            self.assertFalse({"too_big", "service_fragment", "fragment"} & dropped.keys(), dropped)

    def test_pings(self):
        """Pings in fragments to millrace's own and to virtual addresses are answered."""
        for _ in self.each_sharing():
            for family, a in ADDRESSES.items():
                for address in (a["outside"], a["service"], a["inside"]):
                    for size in SIZES:
                        self.ping_in_fragments(family, address, size)
            self.stop()

    def test_of_services(self):
        """Datagrams in fragments to a service and back have one backend, which is that of whole packets."""
        for _ in self.each_sharing():
            for family, a in ADDRESSES.items():
                udp = self.client_socket(family, (a["service"], PORT))
                servers = {self.exchange_with_service(udp, size) for size in (100, *SIZES)}
                self.assertEqual(len(servers), 1, servers)
            packets = self.stop()["packets"]
            self.assertFalse({d for d in packets["dropped"] if "fragment" in d} or packets["stateless"], packets)

    def exchange_with_service(self, udp, size):
        """Does what `exchange` does with a service; returns the server that has answered."""
        for _ in range(5):
            udp.send(payload(size))
            try:
                while True:
                    server, _, answer = udp.recv(65536).partition(b" ")
                    if answer == payload(size):
                        return server
            except TimeoutError:
                self.lost += 1
        self.fail(f"a service has not answered {size} bytes in 5 attempts")

    def test_pings_through_it(self):
        """Pings of 65,000 bytes, in fragments, pass with their answers."""
        for _ in self.each_sharing():
            for family, a in ADDRESSES.items():
                self.ping_in_fragments(family, a["servers"][0], 65_000 if self.TO_CLIENT == "veth" else 30_000)
            self.stop()


class OnPacketSockets(Fragments):
    def test_through_the_firewall(self):
        """Only what a rule lets begin passes, and its answers; fragments of what is denied do not."""
        for sharing in ("lock-free-race", "sharded"):
            rules = f"""[firewall]
default = "drop"
[[firewall.rule]]
name = "out"
protocol = "udp"
destination_ports = "{ROUTED_PORT}"
action = "accept"
[[firewall.rule]]
name = "ping"
protocol = ["icmp", "icmpv6"]
action = "accept"
"""
            ports = configuration(self.OUTSIDE, self.INSIDE).partition("[[service]]")[0]
            self.serve_with(f'chain = ["firewall"]\nsharing = "{sharing}"\n' + ports + rules)
            for family, a in ADDRESSES.items():
                udp = self.client_socket(family, self.echo_beside(family))
                for size in SIZES:
                    self.exchange(udp, size)
                self.ping_in_fragments(family, a["servers"][0], 65_000)
                self.ping_in_fragments(family, a["outside"], 30_000)
                self.denied_in_fragments(self.client_socket(family, (a["servers"][0], ROUTED_PORT + 1)))
            packets = self.stop()["packets"]
            self.assertFalse({d for d in packets["dropped"] if "fragment" in d}, packets)

    def test_direct_server_return(self):
        """Fragments to a service with `forward = "dsr"` go to one backend as they are."""
        family, a = 4, ADDRESSES[4]
        self.serve_with(GOOD.replace("[[service]]\n", '[[service]]\nforward = "dsr"\n').replace(f", port = {SERVER_PORT}", ""))
        udp = self.client_socket(family, (a["service"], PORT))
        with self.network_.servers:
            hearing = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
        self.addCleanup(hearing.close)
        hearing.settimeout(2)
        udp.send(payload(9000))
        heard, macs = b"", set()
        while len(heard) < 9008:
            data, _ = hearing.recvfrom(65536)
            if data[9] == socket.IPPROTO_UDP and socket.inet_ntoa(data[16:20]) == a["service"]:
                heard += data[20 : int.from_bytes(data[2:4], "big")]
        self.assertEqual(heard[8:], payload(9000))

    def test_of_a_backend_that_has_gone(self):
        """With `move_udp = false` UDP connections of a removed backend go on, in fragments, too."""
        family, a = 4, ADDRESSES[4]
        stays = GOOD.replace("[[service]]\n", "[[service]]\nmove_udp = false\n")
        self.serve_with(stays)
        udp = self.client_socket(family, (a["service"], PORT))
        udp.send(b"?" * 100)
        server = udp.recv(1000).partition(b" ")[0].decode()
        self.write("f.toml", stays.replace(f'{{ address = "{server}", port = {SERVER_PORT} }}, ', "").replace(
            f', {{ address = "{server}", port = {SERVER_PORT} }}', ""))
        self.assertEqual(self.answer("POST", "/reload").status, 200)
        self.assertEqual(self.exchange_with_service(udp, 3000), server.encode())

    def test_too_large_for_the_next_link(self):
        """An IPv4 packet is divided if it allows that, also if it is a fragment; else, and in IPv6, its sender learns the MTU."""
        for sharing in ("lock-free-race", "sharded"):
            network = self.network()
            for place, link in ((network.middle, "inside"), (network.servers, "wire")):
                with place:
                    ip(f"link set {link} mtu 1280")
            self.serve_with(f'sharing = "{sharing}"\n' + GOOD, network=network)
            for family in ADDRESSES:
                udp = self.client_socket(family, self.echo_beside(family))
                if family == 4:
                    udp.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DONT)
                for size in (100, 1400, *SIZES):
                    self.exchange(udp, size)
            packets = self.stop()["packets"]
            self.assertFalse({d for d in packets["dropped"] if "fragment" in d} | {"no_buffer"} & packets["dropped"].keys(), packets)
            # At least one packet of each datagram of IPv4 is divided.
            self.assertGreaterEqual(packets["generated"], 1 + len(SIZES))
            self.assertGreaterEqual(packets["dropped"]["too_big"], 1)  # of IPv6


@unittest.skipUnless(has_xdp(), NO_XDP)
class OnXdpSockets(Fragments):
    OUTSIDE, INSIDE = "af_xdp:outside", "af_xdp:inside"


@unittest.skipUnless(os.path.exists("/dev/net/tun"), "no /dev/net/tun here")
class OnTap(Fragments):
    OUTSIDE, TO_CLIENT = "tap:mr0", "tap"


class OnMemif(Fragments):
    """Two millrace processes, one behind the other, with a memif between them."""

    test_pings = test_of_services = None
    BETWEEN = {4: ("192.0.2.1", "192.0.2.2", 24), 6: ("2001:db8:5::1", "2001:db8:5::2", 64)}

    def one_of_two(self, place, kernel, memif, sharing):
        def listed(addresses):
            return ", ".join(f'"{address}/{bits}"' for address, bits in addresses)

        between = [(b[place], b[2]) for b in self.BETWEEN.values()]
        text = f"""sharing = "{sharing}"
[host]
idle = "sleep"
[[port]]
name = "{kernel}"
device = "af_packet:{kernel}"
addresses = [{listed((a[kernel], a["bits"]) for a in ADDRESSES.values())}]
[[port]]
name = "between"
device = "memif:{memif}"
addresses = [{listed(between)}]
[[service]]
address = "203.0.113.99"
backends = [{{ address = "{self.BETWEEN[4][1 - place]}" }}]
"""
        for family, a in ADDRESSES.items():
            prefix = ipaddress.ip_network(f"{a['inside' if place == 0 else 'outside']}/{a['bits']}", strict=False)
            text += f'[[route]]\nprefix = "{prefix}"\nvia = "{self.BETWEEN[family][1 - place]}"\n'
        return text

    def serve_by(self, sharing):
        self.network_ = self.network()
        self.servers = Servers(self.network_)
        self.addCleanup(self.servers.close)
        memif = self.path(f"memif-{sharing}")
        self.start(self.network_, self.one_of_two(0, "outside", memif, sharing), control=f"first-{sharing}")
        first, self.process = self.process, None

        def end():
            first.terminate()
            first.communicate(timeout=20)

        self.addCleanup(end)
        self.start(self.network_, self.one_of_two(1, "inside", memif + ",role=client", sharing), control=f"second-{sharing}")


del Fragments  # so that unittest runs only the subclasses

if __name__ == "__main__":
    main()
