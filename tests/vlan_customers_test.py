#!/usr/bin/env python3
"""Tests customers in VLANs in `millrace run` with NAT, between network namespaces: a switch brings three homes with one address
to a trunk, two of them with one MAC, too.

    vlan_customers_test.py MILLRACE [TEST...]
"""

import socket
import struct
import threading
import time

import customers
import vlan_switch
from customers import INSIDE, SERVER, datagram
from live import main
from namespaces import Namespace, ip, set_sysctls
from network import ADDRESSES
from vlan_test import check_switch

NEAR = "10.9.0.1"
VLANS = (100, 149, 17)
STRANGER = 150  # a VLAN that is no customer's at first
PLAIN = ("192.0.2.1", "192.0.2.254")  # a station without a VLAN on the trunk, and millrace
ROUTER, BEHIND = "10.9.0.9", "10.9.128.5"  # in the first home
MAC = "02:00:00:00:01:05"
CUSTOMERS = 'customers = [{ vlan = "100-149" }, { name = "c17", vlan = 17 }]'
MAX_OF_CUSTOMER = 256  # neighbours (src/host/neighbours.h)


class Trunk:
    """Homes behind the switch, which is in the client's namespace of `network`, with a station without a VLAN."""

    def __init__(self, network, home_mtu):
        self.network = network
        self.homes = [Namespace() for _ in (*VLANS, STRANGER)]
        self.plain = Namespace()
        for namespace in (*self.homes, self.plain):
            with namespace:
                set_sysctls({"ipv6/conf/default/disable_ipv6": 1})  # so that nobody sends what no test has asked for
        ports = {}
        for n, (vlan, home) in enumerate(zip((*VLANS, STRANGER, 0), (*self.homes, self.plain))):
            with network.client:
                ip(f"link add port{n} type veth peer name wire netns {home.path}")
                ip(f"link set port{n} up")
            ports[vlan] = f"port{n}"
        with network.client:
            self.switch = vlan_switch.Switch("wire", ports)
        for n, home in enumerate(self.homes):
            with home:
                if n < 2:
                    ip(f"link set wire address {MAC}")
                ip("link set lo up")
                ip(f"link set wire mtu {home_mtu} up")
                ip(f"address add {INSIDE}/17 dev wire")
                ip(f"route add default via {NEAR} advmss 1460")
        with self.plain:
            ip("link set wire up")
            ip(f"address add {PLAIN[0]}/24 dev wire")
            ip(f"route add default via {PLAIN[1]}")

    def close(self):
        self.switch.close()
        for namespace in (*self.homes, self.plain):
            namespace.close()


class VlanCustomers(customers.Customers):
    names = ["access.100", "access.149", "c17"]
    numbers = [1, 50, 51]
    several = "access.100-149"
    another = "access.101"
    near = NEAR
    narrow, narrow_home = {"mtu": 1400}, 1400

    @staticmethod
    def configuration(mtu=1500, among=CUSTOMERS, extra="", **options):
        return customers.configuration(f'addresses = ["{NEAR}/17"]\nmtu = {mtu}\n{among}', extra=extra + f"""
[[port]]
name = "plain"
device = "af_packet:outside"
addresses = ["{PLAIN[1]}/24"]
[[route]]
prefix = "10.9.128.0/17"
via = "{ROUTER}"
port = "access"
""", **options)

    def serve_homes(self, home_mtu=1500, **options):
        network = self.network()
        self.trunk = Trunk(network, home_mtu)
        self.addCleanup(self.trunk.close)
        self.homes = self.trunk.homes
        self.serve_with(self.configuration(**options), network)

    def check_sizes(self):
        pass  # the homes' interfaces refuse larger packets

    def raw(self, n):
        """Returns a socket for whole frames at a home's interface, and the MACs of a frame from there to millrace."""
        with self.homes[n]:
            made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
            made.bind(("wire", 0))
        self.addCleanup(made.close)
        made.settimeout(10)
        with self.network_.middle:
            to = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
            with to:
                to.bind(("outside", 0))
                mac = to.getsockname()[4]
        return made, mac + made.getsockname()[4]

    def test_customers_change(self):
        """VLANs may be added behind others in a run. A process that takes over leaves sessions behind whose customers' numbers
        have changed."""
        self.serve_homes()
        listening = self.server()
        client, accepted, _ = self.connect(2, listening)
        text = self.configuration()
        stranger = self.at_home(3, socket.SOCK_DGRAM)
        udp = self.server(socket.SOCK_DGRAM)
        for among in ('customers = [{ vlan = "100-150" }, { name = "c17", vlan = 17 }]', "vlan = 17"):
            self.write("f.toml", self.configuration(among=among))
            self.refused(422, ["customers"], "POST /reload")
        before = self.dropped().get("foreign_vlan", 0)
        stranger.sendto(b"x", (SERVER, 5353))
        self.wait_until(lambda: self.dropped().get("foreign_vlan", 0) > before)
        self.reload(self.configuration(among=CUSTOMERS.replace("}]", f"}}, {{ vlan = {STRANGER} }}]")))
        stranger.sendto(b"y", (SERVER, 5353))
        while udp.recv(100) != b"y":
            pass  # the stranger's kernel has kept the first one until its question was answered
        self.connect(2, listening)
        self.assertEqual(self.take_over(text, left_behind=1), 2)
        self.transfer(client, accepted, 10_000)
        before_them = CUSTOMERS.replace("[", "[{ vlan = 99 }, ")
        self.assertEqual(self.take_over(self.configuration(among=before_them), left_behind=2), 0)

    def test_what_is_dropped(self):
        """Untranslated packets, IPv6, a second tag, and packets to homes from outside are dropped by reason."""
        self.serve_homes()
        udp = self.server(socket.SOCK_DGRAM)
        raw, macs = self.raw(0)
        good = b"\x08\0" + datagram(INSIDE, SERVER)
        raw.send(macs + good)
        self.assertEqual(udp.recv(100), b"x")
        v6 = struct.pack("!IHBB", 6 << 28, 8, 17, 64) + bytes.fromhex("fd00" + "00" * 13 + "05" + "fd00" + "00" * 13 + "01")
        for frame, reason in (
            (b"\x08\0" + datagram("192.168.0.5", SERVER), "untranslated"),
            (b"\x08\0" + datagram("127.0.0.1", SERVER), "martian_source"),
            (b"\x08\0" + datagram(NEAR, SERVER), "martian_source"),
            (b"\x08\0" + datagram("10.9.127.255", SERVER), "martian_source"),
            (b"\x08\0" + datagram(INSIDE, "10.0.0.192"), "no_mapping"),
            (b"\x86\xdd" + v6 + bytes(8), "untranslated"),
            (b"\x81\0\0\x07" + good, "foreign_vlan"),
        ):
            before = self.dropped().get(reason, 0)
            raw.send(macs + frame)
            self.wait_until(lambda: self.dropped().get(reason, 0) == before + 1)
        raw.send(macs + b"\x81\0\xe0\0" + good)  # a priority behind the VLAN's tag
        self.assertEqual(udp.recv(100), b"x")
        raw.send(macs[:5] + bytes([macs[5] ^ 1]) + macs[6:] + good)
        self.wait_until(lambda: self.dropped().get("other_station", 0) > 0)
        # No route of others leads to homes.
        with self.trunk.plain:
            plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(plain.close)
        before = self.dropped().get("no_route", 0)
        plain.sendto(b"x", (INSIDE, 4000))
        plain.sendto(b"x", (NEAR, 4000))
        self.wait_until(lambda: self.dropped().get("no_route", 0) == before + 2)
        udp.settimeout(0.2)
        self.assertRaises(TimeoutError, udp.recv, 100)

    def test_the_port_without_a_vlan(self):
        """A port without a VLAN shares the device; its stations reach the internet's side untranslated, and customers."""
        self.serve_homes(pool='filtering = "endpoint-independent"')
        with self.network_.servers:
            ip(f"route add {PLAIN[0]} via {ADDRESSES[4]['inside']}")

        class Plain:
            client = self.trunk.plain
        self.assertEqual(self.ping(Plain, 4, SERVER), 3)
        self.assertEqual(self.ping_from(0, PLAIN[0]), 3)
        udp = self.server(socket.SOCK_DGRAM)
        asking = self.at_home(0, socket.SOCK_DGRAM, 4000)
        asking.sendto(b"x", (SERVER, 5353))
        _, public = udp.recvfrom(100)
        with self.trunk.plain:
            plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(plain.close)
        plain.sendto(b"y", public)
        self.assertEqual(asking.recvfrom(100)[0], b"y")
        ports = {port["name"]: port for port in self.ask("GET /stats")["ports"]}
        self.assertEqual([ports[name]["vlan"] for name in ("access", "plain")], [None, None])
        for name in ("access", "plain"):
            self.assertGreater(min(ports[name]["in"], ports[name]["out"]), 3)

    def test_a_network_behind_a_home(self):
        """A route of the customers' port holds in each VLAN: there leads its `via`, which each home has for itself."""
        self.serve_homes()
        udp = self.server(socket.SOCK_DGRAM)
        with self.homes[0]:
            ip(f"address add {ROUTER}/17 dev wire")
            ip(f"address add {BEHIND}/32 dev lo")
            asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            asking.bind((BEHIND, 4000))
        self.addCleanup(asking.close)
        asking.settimeout(10)
        asking.sendto(b"x", (SERVER, 5353))
        _, source = udp.recvfrom(100)
        udp.sendto(b"y", source)
        self.assertEqual(asking.recv(100), b"y")
        # In another home nobody has the router's address.
        raw, macs = self.raw(1)
        raw.send(macs + b"\x08\0" + datagram(BEHIND, SERVER))
        _, source = udp.recvfrom(100)
        udp.sendto(b"z", source)
        self.wait_until(lambda: self.ask("GET /stats")["packets"]["dropped"].get("unresolved", 0) > 0)

    def test_a_storm_in_one_home(self):
        """One home that asks and is asked for more addresses than it may have leaves the others their neighbours."""
        self.serve_homes(workers=1)
        listening, udp = self.server(), self.server(socket.SOCK_DGRAM)
        connections = [self.connect(n, listening) for n in (0, 2)]
        raw, macs = self.raw(1)
        with self.homes[1]:
            ip("link set wire arp off")  # answers no more questions
        asks = b"\x08\x06\0\x01\x08\0\x06\x04\0\x01" + macs[6:]
        for n in range(4 * MAX_OF_CUSTOMER):
            host = socket.inet_aton(f"10.9.{1 + n // 256}.{n % 256}")
            raw.send(b"\xff" * 6 + macs[6:] + asks + host + bytes(6) + socket.inet_aton(NEAR))
        answered = []

        def answer():
            while True:
                try:
                    data, source = udp.recvfrom(100)
                except OSError:
                    return
                udp.sendto(data, source)
                answered.append(data)

        udp.settimeout(None)
        threading.Thread(target=answer, daemon=True).start()
        for n in range(2 * MAX_OF_CUSTOMER):  # the answers go to addresses of which nobody has heard
            raw.send(macs + b"\x08\0" + datagram(f"10.9.{32 + n // 256}.{n % 256}", SERVER))
            if n % 64 == 63:  # on a busy machine more at a time would be lost
                time.sleep(0.01)
        self.wait_until(lambda: len(answered) > MAX_OF_CUSTOMER)
        for client, accepted, _ in connections:
            self.transfer(client, accepted, 100_000)
        client, accepted, _ = self.connect(0, listening)  # a new session, too
        self.transfer(client, accepted, 100_000)
        with self.homes[2]:
            ip("address add 10.9.0.77/17 dev wire")  # a station of which millrace has not heard yet
            asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            asking.bind(("10.9.0.77", 0))
        self.addCleanup(asking.close)
        asking.settimeout(10)
        asking.sendto(b"new", (SERVER, 5353))
        self.assertEqual(asking.recv(100), b"new")


if __name__ == "__main__":
    main(check_switch)
