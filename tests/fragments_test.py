#!/usr/bin/env python3
"""Tests fragmented datagrams through `millrace run` on each kind of interface: routed ones pass, pings to millrace itself are
answered, and fragments to and from services are dropped.

    fragments_test.py MILLRACE [TEST...]
"""

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
            udp.send(payload(size))
            try:
                while True:
                    answer = udp.recv(65536)
                    if answer == payload(size):
                        return
            except TimeoutError:
                self.lost += 1
        self.fail(f"a datagram of {size} bytes did not come back in 5 attempts")

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
                        self.assertEqual(self.ping(self.network_, family, address, size), 3, (address, size))
            self.stop()

    def test_of_services(self):
        """No fragment to or from a service passes, and no ICMP error is sent."""
        for _ in self.each_sharing():
            for family, a in ADDRESSES.items():
                udp = self.client_socket(family, (a["service"], PORT))
                udp.send(b"?" * 100)
                udp.recv(1000)  # there is a connection now
                udp.settimeout(0.3)
                udp.send(payload(3000))
                with self.assertRaises(TimeoutError):
                    udp.recv(65536)
                # The backend sends a reply in fragments, none of which may arrive.
                server = a["servers"][0]
                answering = self.in_place_of(family, server)
                with self.network_.client:
                    hearing = socket.socket(FAMILIES[family], socket.SOCK_RAW, socket.IPPROTO_UDP)
                self.addCleanup(hearing.close)
                hearing.settimeout(0.3)
                answering.sendto(payload(3000), udp.getsockname()[:2])
                with self.assertRaises(TimeoutError):
                    hearing.recv(65536)
            packets = self.stop()["packets"]
            self.assertGreaterEqual(packets["dropped"]["service_fragment"], 2 * 2 * 3)  # 2 families, 2 directions, 3 fragments


class OnPacketSockets(Fragments):
    def test_of_a_backend_that_has_gone(self):
        """With `move_udp = false` UDP connections of a removed backend go on. The backend's replies get the service's address, so
        fragments from the backend must be dropped."""
        family, a = 4, ADDRESSES[4]
        stays = GOOD.replace("[[service]]\n", "[[service]]\nmove_udp = false\n")
        self.serve_with(stays)
        udp = self.client_socket(family, (a["service"], PORT))
        udp.send(b"?" * 100)
        server = udp.recv(1000).partition(b" ")[0].decode()
        self.write("f.toml", stays.replace(f'{{ address = "{server}", port = {SERVER_PORT} }}, ', "").replace(
            f', {{ address = "{server}", port = {SERVER_PORT} }}', ""))
        self.assertEqual(self.answer("POST", "/reload").status, 200)
        answering = self.in_place_of(family, server)
        answering.sendto(b"still here", udp.getsockname()[:2])
        self.assertEqual(udp.recv(1000), b"still here")
        udp.settimeout(0.3)
        answering.sendto(payload(3000), udp.getsockname()[:2])
        with self.assertRaises(TimeoutError):
            udp.recv(65536)
        self.assertEqual(self.stop()["packets"]["dropped"]["service_fragment"], 3)


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
