#!/usr/bin/env python3
"""Tests customers behind GRE tunnels in `millrace run` with NAT, between network namespaces.

    gre_test.py MILLRACE [TEST...]
"""

import json
import socket
import struct
import threading

from asked import Asked
from gre import Home, Tunnels, header
from live import main
from namespaces import ip
from network import ADDRESSES, payload

A = ADDRESSES[4]
SERVER = A["servers"][0]
INSIDE = "10.9.0.5"  # the address of all homes
FAR = ["172.17.0.1", "172.17.0.2", "172.18.0.9"]
KEY = 7
STRANGER = "172.19.0.1"
POOL = "10.0.0.192/28"


def configuration(sharing="sharded", workers=2, pool="", mss='"auto"', chain=("nat",), extra=""):
    return f"""chain = {list(chain)}
workers = {workers}
sharing = "{sharing}"
[table]
capacity = 20000
[[port]]
name = "access"
device = "af_packet:outside"
addresses = ["{A['outside']}/24"]
mtu = 1500
tunnel = "gre"
customers = ["172.17.0.0/18", {{ name = "c17", address = "{FAR[2]}", key = {KEY} }}]
{f"mss = {mss}" if mss else ""}
[[port]]
name = "internet"
device = "af_packet:inside"
addresses = ["{A['inside']}/24"]
[[route]]
prefix = "172.16.0.0/14"
via = "{A['client']}"
[[nat.pool]]
name = "homes"
addresses = ["{POOL}"]
{pool}
[[nat.rule]]
source = ["10.9.0.0/16"]
customers = "any"
pool = "homes"
{extra}"""


def packet(source, destination, protocol, data, hops=64):
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(data), 1, 0, hops, protocol, 0,
                       socket.inet_aton(source), socket.inet_aton(destination))
    words = sum(struct.unpack("!10H", head))
    words = (words & 0xFFFF) + (words >> 16)
    words = (words & 0xFFFF) + (words >> 16)
    return head[:10] + struct.pack("!H", 0xFFFF - words) + head[12:] + data


def datagram(source, destination, source_port=4000, port=5353, data=b"x", hops=64):
    udp = struct.pack("!HHHH", source_port, port, 8 + len(data), 0) + data
    return packet(source, destination, socket.IPPROTO_UDP, udp, hops)


class Gre(Asked):
    def serve_homes(self, *arguments, home_mtu=1476, **options):
        # The links to millrace take what a home sends that knows nothing of the tunnel.
        network = self.network(mtu=1600)
        with network.servers:
            ip("link set wire mtu 1500")
        with network.client:
            for far in (*FAR, STRANGER):
                ip(f"address add {far}/32 dev lo")
        self.homes = [Home(INSIDE, home_mtu) for _ in range(3)]
        keys = (None, None, KEY)
        ends = dict(zip(zip(FAR, keys), self.homes))
        ends[STRANGER, None] = Home(INSIDE)
        self.tunnels = Tunnels(network.client, A["outside"], ends)
        self.addCleanup(self.tunnels.close)
        self.serve_with(configuration(*arguments, **options), network)

    def at_home(self, n, kind=socket.SOCK_STREAM, port=0):
        with self.homes[n].namespace:
            made = socket.socket(socket.AF_INET, kind)
        self.addCleanup(made.close)
        made.settimeout(10)
        made.bind((INSIDE, port))
        return made

    def server(self, kind=socket.SOCK_STREAM, port=5353):
        with self.network_.servers:
            made = socket.socket(socket.AF_INET, kind)
        self.addCleanup(made.close)
        made.settimeout(10)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((SERVER, port))
        if kind == socket.SOCK_STREAM:
            made.listen(100)
        return made

    def ping_from(self, n, address):
        class From:
            client = self.homes[n].namespace
        return self.ping(From, 4, address)

    def dropped(self):
        return self.ask("GET /stats")["packets"]["dropped"]

    def transfer(self, client, accepted, size):
        """Sends bytes both ways at once, and checks them."""
        data = payload(size)
        received = {}

        def take(name, end):
            got = bytearray()
            while len(got) < size:
                more = end.recv(size - len(got))
                if not more:
                    break
                got += more
            received[name] = bytes(got)

        threads = [threading.Thread(target=take, args=("up", accepted)),
                   threading.Thread(target=take, args=("down", client)),
                   threading.Thread(target=client.sendall, args=(data,)),
                   threading.Thread(target=accepted.sendall, args=(data[::-1],))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((received["up"] == data, received["down"] == data[::-1]), (True, True))

    def connect(self, n, listening, port=0):
        client = self.at_home(n, port=port)
        client.connect((SERVER, 5353))
        accepted, source = listening.accept()
        self.addCleanup(accepted.close)
        accepted.settimeout(10)
        return client, accepted, source

    def test_customers_with_equal_addresses(self):
        """Three homes with one address, and the same ports: TCP, datagrams in fragments, pings, also through take-overs."""
        for sharing, workers in (("sharded", 1), ("sharded", 2), ("lock-free-race", 2)):
            self.serve_homes(sharing, workers)
            listening, udp = self.server(), self.server(socket.SOCK_DGRAM)
            connections = [self.connect(n, listening, port=4000) for n in range(3)]
            sources = [source for _, _, source in connections]
            self.assertEqual(len(set(sources)), 3, sources)
            askers = []
            for n in range(3):
                asking = self.at_home(n, socket.SOCK_DGRAM, 4000)
                asking.connect((SERVER, 5353))
                for size in (10, 1400, 4000):
                    asking.send(payload(size))
                    data, source = udp.recvfrom(65536)
                    self.assertEqual(data, payload(size))
                    udp.sendto(bytes([n]) + data[1:], source)
                    self.assertEqual(asking.recv(65536), bytes([n]) + payload(size)[1:])
                askers.append((asking, source))
                self.assertEqual(self.ping_from(n, SERVER), 3)
            for client, accepted, _ in connections:
                self.transfer(client, accepted, 300_000)
            self.assertEqual(self.take_over(configuration(sharing, workers)), 9)
            for client, accepted, _ in connections:
                self.transfer(client, accepted, 300_000)
            for n, (asking, source) in enumerate(askers):
                udp.sendto(bytes([n]), source)
                self.assertEqual(asking.recv(65536), bytes([n]), "an old session reaches another home")
            [pool] = self.ask("GET /nat/pools")
            self.assertEqual((pool["customers"], pool["sessions"]), (3, 9))
            [block] = self.ask("GET /nat/customer", customer="c17")["blocks"]
            self.assertIn(sources[2][1], range(block["first_port"], block["last_port"] + 1))
            self.assertEqual(self.ask("GET /nat/customer", customer="172.17.0.9"), {"ranges": [], "blocks": [], "forwards": []})
            self.names(sources)
            self.stop()

    def names(self, sources):
        """Checks the customers' names in lists and explanations."""
        names = [*FAR[:2], "c17"]
        listed = [c for c in self.ask("GET /connections") if c["protocol"] == "tcp"]
        self.assertEqual({(c["customer"], c["reply_destination_port"]) for c in listed},
                         {(name, port) for name, (_, port) in zip(names, sources)})
        key = {"protocol": "tcp", "source": INSIDE, "source_port": 4000, "destination": SERVER, "destination_port": 5353}
        for name, (address, port) in zip(names, sources):
            said = self.ask("GET /explain", customer=name, **key)
            self.assertEqual((said["verdict"], said["side"]), ("tracked", "originator"))
            self.assertIn(f"leaves as {address}:{port}", said["why"])
            back = self.ask("GET /explain", protocol="tcp", source=SERVER, source_port=5353, destination=address,
                            destination_port=port)
            self.assertEqual((back["verdict"], back["side"]), ("tracked", "reply"))
            self.assertNotIn("no route", said["why"] + back["why"])
        stray = self.ask("GET /explain", customer="c17", **key | {"source": "192.168.0.1"})
        self.assertEqual(stray["verdict"], "untranslated")
        self.refused(400, ["is no customer"], "GET /explain", customer="c18", **key)

    def test_customers_change(self):
        """Customers may be added behind others in a run. A process that takes over leaves sessions behind whose customers'
        numbers have changed."""
        self.serve_homes()
        listening = self.server()
        client, accepted, _ = self.connect(2, listening)
        text = configuration()
        more = text.replace('["172.17.0.0/18", ', '["172.16.64.0/18", "172.17.0.0/18", ')
        self.write("f.toml", more)
        self.refused(422, ["port.customers"], "POST /reload")
        more_behind = text.replace(f"key = {KEY} }}]", f'key = {KEY} }}, "{STRANGER}"]')
        self.reload(more_behind)
        self.connect(2, listening)
        self.assertEqual(self.take_over(text), 2)
        self.transfer(client, accepted, 10_000)
        self.assertEqual(self.take_over(more, left_behind=2), 0)

    def test_path_mtu(self):
        """Without `mss`, packets to a home that do not fit the tunnel are answered by an ICMP error, and TCP adapts. What
        may be divided is."""
        self.serve_homes(mss="", home_mtu=1500)
        listening, udp = self.server(), self.server(socket.SOCK_DGRAM)
        client, accepted, _ = self.connect(0, listening)
        self.transfer(client, accepted, 1_000_000)
        self.assertGreater(self.dropped().get("too_big", 0), 0)
        asking = self.at_home(0, socket.SOCK_DGRAM)
        asking.sendto(b"?", (SERVER, 5353))
        _, source = udp.recvfrom(100)
        udp.setsockopt(socket.IPPROTO_IP, 10, 0)  # IP_MTU_DISCOVER: IP_PMTUDISC_DONT, no DF
        for size in (1472, 4000):
            udp.sendto(payload(size), source)
            self.assertEqual(asking.recv(65536), payload(size))
        self.assertLessEqual(max(map(len, self.tunnels.received)), 1500)
        # In place of millrace, the SYN tells the server what fits.
        self.reload(configuration())
        before = self.dropped().get("too_big", 0)
        client, accepted, _ = self.connect(1, listening)
        self.transfer(client, accepted, 1_000_000)
        self.assertEqual(self.dropped().get("too_big", 0), before)

    def test_traceroute(self):
        """The tunnel's near end answers pings, and packets whose hops are used up, as the home sent them."""
        self.serve_homes()
        self.assertEqual(self.ping_from(0, A["outside"]), 3)
        with self.homes[0].namespace:
            icmp = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        self.addCleanup(icmp.close)
        icmp.settimeout(10)
        asking = self.at_home(0, socket.SOCK_DGRAM, 4001)
        for hops, kind, sender in ((1, 11, A["outside"]), (2, 3, SERVER)):
            asking.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, hops)
            asking.sendto(b"trace", (SERVER, 33434))
            data, (source, _) = icmp.recvfrom(1000)
            self.assertEqual((data[20], source), (kind, sender))
            quoted = data[28:]
            self.assertEqual((socket.inet_ntoa(quoted[12:16]), struct.unpack("!H", quoted[20:22])[0]), (INSIDE, 4001))

    def test_what_is_dropped(self):
        """Strangers, fragments and what is no GRE with IPv4 are dropped by reason; so is what NAT does not translate."""
        self.serve_homes()
        udp = self.server(socket.SOCK_DGRAM)
        good = datagram(INSIDE, SERVER)
        self.tunnels.send(FAR[0], header() + good)
        self.assertEqual(udp.recv(100), b"x")
        for far, data, reason in (
            (STRANGER, header() + good, "no_customer"),
            (FAR[2], header() + good, "no_customer"),  # without his key
            (FAR[2], header(8) + good, "no_customer"),
            (FAR[0], header(KEY) + good, "no_customer"),
            (FAR[0], b"\x40\0\x08\0" + good, "bad_tunnel"),
            (FAR[0], b"\0\1\x08\0" + good, "bad_tunnel"),
            (FAR[0], b"\0\0\x86\xdd" + good, "bad_tunnel"),
            (FAR[0], b"\0\0\x08\0" + b"x" * 19, "bad_tunnel"),
            (FAR[0], header() + datagram("192.168.0.5", SERVER), "untranslated"),
            (FAR[0], header() + datagram("127.0.0.1", SERVER), "martian_source"),
            (FAR[0], header() + datagram(INSIDE, "10.0.0.192"), "no_mapping"),
        ):
            before = self.dropped().get(reason, 0)
            self.tunnels.send(far, data)
            self.wait_until(lambda: self.dropped().get(reason, 0) == before + 1)
        before = self.dropped().get("tunnel_fragment", 0)
        self.tunnels.send(FAR[0], header() + datagram(INSIDE, SERVER, data=payload(3000)))
        self.wait_until(lambda: self.dropped().get("tunnel_fragment", 0) == before + 2)
        self.tunnels.send(FAR[0], header() + good)
        self.assertEqual(udp.recv(100), b"x")
        udp.settimeout(0.2)
        self.assertRaises(TimeoutError, udp.recv, 100)

    def test_hole_punching(self):
        """Homes with equal addresses reach each other by their public ends, which a server tells them (RFC 4787, REQ-9)."""
        self.serve_homes(pool='filtering = "endpoint-independent"')
        udp = self.server(socket.SOCK_DGRAM)
        ends = []
        for n in range(3):
            asking = self.at_home(n, socket.SOCK_DGRAM, 4000)
            asking.sendto(b"who am I", (SERVER, 5353))
            ends.append((asking, udp.recvfrom(100)[1]))
        for n, (one, public) in enumerate(ends):
            for other, its in ends[:n] + ends[n + 1:]:
                one.sendto(bytes([n]), its)
                self.assertEqual(other.recvfrom(100), (bytes([n]), public))
                other.sendto(b"back", public)
                self.assertEqual(one.recvfrom(100), (b"back", its))
        # Two ends of one home, too.
        one, public = ends[0]
        another = self.at_home(0, socket.SOCK_DGRAM, 4100)
        another.sendto(b"within", public)
        data, its = one.recvfrom(100)
        self.assertEqual((data, its[0]), (b"within", public[0]))
        one.sendto(b"back", its)
        self.assertEqual(another.recvfrom(100), (b"back", public))

    def test_forwards_and_the_log(self):
        """A forward leads to one of the homes with its inside address, and the log has the homes' names."""
        path = self.path("nat.jsonl")
        self.serve_homes(extra=f"""[[nat.forward]]
public = "10.0.0.200:8080/tcp"
inside = "{INSIDE}:80"
customer = "c17"
[nat.log]
file = "{path}"
""")
        homes = [self.at_home(n, port=80) for n in range(3)]
        for home in homes:
            home.listen(1)
        with self.network_.servers:
            client = socket.socket()
        self.addCleanup(client.close)
        client.settimeout(10)
        client.connect(("10.0.0.200", 8080))
        accepted, _ = homes[2].accept()
        self.addCleanup(accepted.close)
        accepted.settimeout(10)
        self.transfer(client, accepted, 100_000)
        listening = self.server()
        sources = [self.connect(n, listening)[2] for n in range(3)]
        names = {*FAR[:2], "c17"}
        lines = []

        def is_logged():
            with open(path, encoding="utf-8") as file:
                lines[:] = [json.loads(line) for line in file]
            return names <= {line["customer"] for line in lines if line["event"] == "allocated"}

        self.wait_until(is_logged)
        self.assertEqual([line["customer"] for line in lines if line["event"] == "forward"], ["c17"])
        for name, (address, port) in zip([*FAR[:2], "c17"], sources):
            [is_] = [line for line in lines if line["event"] == "allocated" and line["customer"] == name]
            self.assertEqual(is_["address"], address)
            self.assertIn(port, range(is_["first_port"], is_["last_port"] + 1))
        self.assertEqual(self.ask("GET /nat/customer", customer="c17")["forwards"],
                         [{"public": "10.0.0.200:8080/tcp", "inside": f"{INSIDE}:80"}])

    def test_behind_a_firewall(self):
        """In a chain the firewall sees homes by their port, also where sessions come from outside."""
        for chain in (("firewall", "nat"), ("nat", "firewall")):
            self.serve_homes(chain=chain, extra="""
[[zone]]
name = "homes"
ports = ["access"]
[[zone]]
name = "internet"
ports = ["internet"]
[[zone]]
name = "lan"
prefixes = ["10.9.0.0/16"]
[[firewall.rule]]
name = "out"
from = "homes"
to = "internet"
action = "accept"
protocol = ["tcp", "udp"]
destination_ports = ["5353"]
[[firewall.rule]]
name = "in"
from = "internet"
to = "homes"
action = "accept"
protocol = "tcp"
destination_ports = ["80"]
[[firewall.rule]]
name = "lan"
from = "lan"
action = "accept"
[[firewall.rule]]
name = "to the lan"
to = "lan"
action = "accept"
[[nat.forward]]
public = "10.0.0.200:8080/tcp"
inside = "10.9.0.5:80"
customer = "172.17.0.2"
""")
            listening = self.server()
            for n in range(3):
                client, accepted, _ = self.connect(n, listening, port=4000)
                self.transfer(client, accepted, 100_000)
            home = self.at_home(1, port=80)
            home.listen(1)
            with self.network_.servers:
                client = socket.socket()
            self.addCleanup(client.close)
            client.settimeout(10)
            client.connect(("10.0.0.200", 8080))
            rules = {rule["rule"]: rule["connections"] for rule in self.ask("GET /firewall/rules")}
            self.assertEqual((rules["out"], rules["in"], rules["lan"], rules["to the lan"]), (3, 1, 0, 0))
            before = self.dropped().get("denied", 0)
            self.at_home(0, socket.SOCK_DGRAM).sendto(b"x", (SERVER, 5354))
            self.wait_until(lambda: self.dropped().get("denied", 0) == before + 1)
            self.stop()


if __name__ == "__main__":
    main()
