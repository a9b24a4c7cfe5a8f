"""Tests that hold however customers with equal addresses reach `millrace run` with NAT: behind tunnels (gre_test.py) or in VLANs
(vlan_customers_test.py)."""

import json
import shutil
import socket
import struct
import threading

import ipfix
from asked import Asked
from namespaces import ip
from network import ADDRESSES, payload

A = ADDRESSES[4]
SERVER = A["servers"][0]
INSIDE = "10.9.0.5"  # the address of all homes
POOL = "10.0.0.192/28"


def configuration(access, sharing="sharded", workers=2, pool="", mss='"auto"', chain=("nat",), extra=""):
    """Returns a configuration whose port for customers has the keys `access`."""
    return f"""chain = {list(chain)}
workers = {workers}
sharing = "{sharing}"
[table]
capacity = 20000
[[port]]
name = "access"
device = "af_packet:outside"
{access}
{f"mss = {mss}" if mss else ""}
[[port]]
name = "internet"
device = "af_packet:inside"
addresses = ["{A['inside']}/24"]
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


class Customers(Asked):
    """`serve_homes` serves three homes, each a namespace in `homes`, with the customers' `names` and `numbers`; `another` is the
    name of a customer without a home. `several` names the first two. `near` is millrace's address at the homes. `configuration` returns what `serve_homes` serves. With the
    options `narrow`, packets of the size that homes with the MTU `narrow_home` promise to take do not fit."""

    def at_home(self, n, kind=socket.SOCK_STREAM, port=0):
        made = self.socket_in(self.homes[n], socket.AF_INET, kind)
        made.bind((INSIDE, port))
        return made

    def ping_from(self, n, address):
        class From:
            client = self.homes[n]
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

    def forward_to(self, n):
        """Returns a forward to the web server of a home."""
        return f'[[nat.forward]]\npublic = "10.0.0.200:8080/tcp"\ninside = "{INSIDE}:80"\ncustomer = "{self.names[n]}"\n'

    def connect_to(self, home):
        """Returns the ends of a connection from outside, by the forward, that the listening `home` accepts."""
        client = self.socket_in(self.network_.servers, socket.AF_INET, socket.SOCK_STREAM)
        client.connect(("10.0.0.200", 8080))
        accepted, _ = home.accept()
        self.addCleanup(accepted.close)
        accepted.settimeout(10)
        return client, accepted

    def test_customers_with_equal_addresses(self):
        """Three homes with one address, and the same ports: TCP, datagrams in fragments, pings, also through take-overs."""
        for sharing, workers in (("sharded", 1), ("sharded", 2), ("lock-free-race", 2)):
            self.serve_homes(sharing=sharing, workers=workers)
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
            self.assertEqual(self.take_over(self.configuration(sharing=sharing, workers=workers)), 9)
            for client, accepted, _ in connections:
                self.transfer(client, accepted, 300_000)
            for n, (asking, source) in enumerate(askers):
                udp.sendto(bytes([n]), source)
                self.assertEqual(asking.recv(65536), bytes([n]), "an old session reaches another home")
            [pool] = self.ask("GET /nat/pools")
            self.assertEqual((pool["customers"], pool["sessions"]), (3, 9))
            [block] = self.ask("GET /nat/customer", customer=self.names[2])["blocks"]
            self.assertIn(sources[2][1], range(block["first_port"], block["last_port"] + 1))
            self.assertEqual(self.ask("GET /nat/customer", customer=self.another),
                             {"customer": self.another, "ranges": [], "blocks": [], "forwards": []})
            self.check_names(sources)
            self.stop()

    def check_names(self, sources):
        """Checks the customers' names in lists and explanations."""
        listed = [c for c in self.ask("GET /connections") if c["protocol"] == "tcp"]
        self.assertEqual({(c["customer"], c["reply_destination_port"]) for c in listed},
                         {(name, port) for name, (_, port) in zip(self.names, sources)})
        for name, (_, port) in zip(self.names, sources):
            listed = self.ask("GET /connections", customer=name, protocol="tcp")
            self.assertEqual([(c["customer"], c["reply_destination_port"]) for c in listed], [(name, port)])
        self.assertEqual({c["customer"] for c in self.ask("GET /connections", customer=self.several)}, set(self.names[:2]))
        self.refused(400, ["is no customer"], "GET /connections", customer="c18")
        key = {"protocol": "tcp", "source": INSIDE, "source_port": 4000, "destination": SERVER, "destination_port": 5353}
        for name, (address, port) in zip(self.names, sources):
            said = self.ask("GET /explain", customer=name, **key)
            self.assertEqual((said["verdict"], said["side"]), ("tracked", "originator"))
            self.assertIn(f"leaves as {address}:{port}", said["why"])
            back = self.ask("GET /explain", protocol="tcp", source=SERVER, source_port=5353, destination=address,
                            destination_port=port)
            self.assertEqual((back["verdict"], back["side"]), ("tracked", "reply"))
            self.assertNotIn("no route", said["why"] + back["why"])
        stray = self.ask("GET /explain", customer=self.names[2], **key | {"source": "192.168.0.1"})
        self.assertEqual(stray["verdict"], "untranslated")
        self.refused(400, ["is no customer"], "GET /explain", customer="c18", **key)
        self.refused(400, ["one customer"], "GET /explain", customer=self.several, **key)

    def test_trace_and_kill_by_customer(self):
        """A trace has the packets of one home, both ways, though others have the same address; kill ends his connections alone."""
        self.serve_homes(pool='filtering = "endpoint-independent"')
        listening = self.server()
        connections = [self.connect(n, listening, port=4000) for n in range(3)]
        first, second, third = self.names
        for customer, others in ((first, (second, third)), (third, (first, second))):
            traced = []
            answer = self.answer("GET", "/trace", customer=customer, seconds=30, packets=12)
            reading = threading.Thread(target=lambda: traced.append(answer.read()))  # pylint: disable=cell-var-from-loop
            reading.start()
            while reading.is_alive():
                for client, accepted, _ in connections:
                    client.sendall(b"over")
                    accepted.sendall(accepted.recv(10))
                    client.recv(10)
                reading.join(0.01)
            for words in ("received: tracked, from ", "sent: tracked, to "):
                self.assertIn((words + customer).encode(), traced[0])
                for other in others:
                    self.assertNotIn((words + other).encode(), traced[0])
            self.assertEqual(traced[0].count(socket.inet_aton(INSIDE) + socket.inet_aton(SERVER)), traced[0].count(b", from "))
        self.refused(400, ["is no customer"], "POST /kill", customer="nobody")
        self.assertEqual(self.ask("POST /kill", customer=first), {"killed": 1})
        self.assertRaises(ConnectionResetError, connections[0][0].recv, 1)
        for client, accepted, _ in connections[1:]:
            self.transfer(client, accepted, 10_000)

    def test_rfc5508_req8_a_home_without_a_port_is_told(self):
        """No other home with that address is."""
        self.serve_homes(pool="block_size = 64\nblocks_per_customer = 1")
        udp = self.server(socket.SOCK_DGRAM)
        for port in range(5000, 5064):
            with self.at_home(2, socket.SOCK_DGRAM, port) as asking:
                asking.sendto(b"x", (SERVER, 5353))
                udp.recvfrom(100)
        errors = [self.socket_in(home, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) for home in self.homes]
        for n in range(3):
            self.at_home(n, socket.SOCK_DGRAM, 4000).sendto(b"x", (SERVER, 5353))
        data, (source, _) = errors[2].recvfrom(1000)
        self.assertEqual((source, data[20], data[21], socket.inet_ntoa(data[40:44])), (self.near, 3, 13, INSIDE))
        self.assertEqual(self.ping_from(0, self.near), 3)
        for other in errors[:2]:
            other.setblocking(False)
            with self.assertRaises(BlockingIOError):
                while True:
                    self.assertNotEqual(other.recv(1000)[20], 3)

    def test_traceroute(self):
        """millrace's address at the homes answers pings, and packets whose hops are used up, as the home sent them."""
        self.serve_homes()
        self.assertEqual(self.ping_from(0, self.near), 3)
        with self.homes[0]:
            icmp = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        self.addCleanup(icmp.close)
        icmp.settimeout(10)
        asking = self.at_home(0, socket.SOCK_DGRAM, 4001)
        for hops, kind, sender in ((1, 11, self.near), (2, 3, SERVER)):
            asking.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, hops)
            asking.sendto(b"trace", (SERVER, 33434))
            data, (source, _) = icmp.recvfrom(1000)
            self.assertEqual((data[20], source), (kind, sender))
            quoted = data[28:]
            self.assertEqual((socket.inet_ntoa(quoted[12:16]), struct.unpack("!H", quoted[20:22])[0]), (INSIDE, 4001))

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
        self.serve_homes(extra=self.forward_to(2) + f'[nat.log]\nfile = "{path}"\n')
        homes = [self.at_home(n, port=80) for n in range(3)]
        for home in homes:
            home.listen(1)
        self.transfer(*self.connect_to(homes[2]), 100_000)
        listening = self.server()
        sources = [self.connect(n, listening)[2] for n in range(3)]
        names = set(self.names)
        lines = []

        def is_logged():
            with open(path, encoding="utf-8") as file:
                lines[:] = [json.loads(line) for line in file]
            return names <= {line["customer"] for line in lines if line["event"] == "allocated"}

        self.wait_until(is_logged)
        self.assertEqual([line["customer"] for line in lines if line["event"] == "forward"], [self.names[2]])
        for name, (address, port) in zip(self.names, sources):
            [is_] = [line for line in lines if line["event"] == "allocated" and line["customer"] == name]
            self.assertEqual(is_["address"], address)
            self.assertIn(port, range(is_["first_port"], is_["last_port"] + 1))
        self.assertEqual(self.ask("GET /nat/customer", customer=self.names[2])["forwards"],
                         [{"public": "10.0.0.200:8080/tcp", "inside": f"{INSIDE}:80"}])

    def test_rfc8158_a_collector_learns_the_names_of_customers(self):
        if shutil.which("tshark") is None:
            self.skipTest("no tshark here")
        make_network = self.network

        def network_with_collector(**options):  # millrace warns of one that does not listen
            made = make_network(**options)
            with made.middle:
                ip("link set lo up")
            self.collector = self.socket_in(made.middle, socket.AF_INET, socket.SOCK_DGRAM)
            self.collector.bind(("127.0.0.1", 4739))
            return made

        self.network = network_with_collector
        self.serve_homes(extra='[nat.log]\nipfix = "127.0.0.1:4739"\n')
        listening = self.server()
        sources = [self.connect(n, listening)[2] for n in range(3)]
        messages = []

        def all_are_there():
            messages.extend(ipfix.messages_at(self.collector))
            return all(name.encode() in b"".join(messages) for name in self.names)

        self.wait_until(all_are_there)
        events = ipfix.nat_events(messages, self.path("ipfix.pcap"))
        self.assertEqual({event["customer"] for event in events}, set(self.names))
        for name, (address, port), number in zip(self.names, sources, self.numbers):
            event = next(event for event in events if event["customer"] == name)
            self.assertEqual((event["event"], event["number"], event["address"]), ("allocated", number, address))
            self.assertIn(port, range(event["first_port"], event["last_port"] + 1))

    def test_behind_a_firewall(self):
        """In a chain the firewall sees homes by their port, also where sessions come from outside."""
        for chain in (("firewall", "nat"), ("nat", "firewall")):
            self.serve_homes(chain=chain, extra=f"""
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
log = true
protocol = ["tcp", "udp"]
destination_ports = ["5353"]
[[firewall.rule]]
name = "in"
from = "internet"
to = "homes"
action = "accept"
log = true
protocol = "tcp"
destination_ports = ["80"]
[[firewall.rule]]
name = "not the lan"
from = "lan"
to = "host"
action = "drop"
[[firewall.rule]]
name = "pings"
from = "homes"
to = "host"
action = "accept"
protocol = "icmp"
log = true
[[firewall.rule]]
name = "lan"
from = "lan"
action = "accept"
[[firewall.rule]]
name = "to the lan"
to = "lan"
action = "accept"
{self.forward_to(1)}""")
            listening = self.server()
            for n in range(3):
                client, accepted, _ = self.connect(n, listening, port=4000)
                self.transfer(client, accepted, 100_000)
            home = self.at_home(1, port=80)
            home.listen(1)
            self.connect_to(home)
            rules = {rule["rule"]: rule["connections"] for rule in self.ask("GET /firewall/rules")}
            self.assertEqual((rules["out"], rules["in"], rules["lan"], rules["to the lan"]), (3, 1, 0, 0))
            self.assertEqual([self.ping_from(n, self.near) for n in (0, 2)], [3, 3])
            logged = [(line["rule"], line.get("customer"), line.get("to_customer")) for line in self.ask("GET /firewall/log")]
            first, second, third = self.names
            self.assertCountEqual(logged, [("out", name, None) for name in self.names] + [("in", None, second)] +
                                  [("pings", name, None) for name in (first, third)])
            before = self.dropped().get("denied", 0)
            self.at_home(0, socket.SOCK_DGRAM).sendto(b"x", (SERVER, 5354))
            self.wait_until(lambda: self.dropped().get("denied", 0) == before + 1)
            self.stop()

    def test_path_mtu(self):
        """Without `mss`, packets to a home that do not fit are answered by an ICMP error, and TCP adapts. What
        may be divided is."""
        self.serve_homes(home_mtu=self.narrow_home, mss="", **self.narrow)
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
        self.check_sizes()
        # In place of millrace, the SYN tells the server what fits.
        self.reload(self.configuration(**self.narrow))
        before = self.dropped().get("too_big", 0)
        client, accepted, _ = self.connect(1, listening)
        self.transfer(client, accepted, 1_000_000)
        self.assertEqual(self.dropped().get("too_big", 0), before)
