#!/usr/bin/env python3
"""Tests the NAT of `millrace run` between network namespaces: a customer behind it, servers on the other side, and coturn's
natdiscovery (RFC 5780) as judge of its mapping and filtering.

    nat_test.py MILLRACE [TEST...]
"""

import contextlib
import itertools
import os
import re
import shutil
import socket
import subprocess
import threading
import time
import types
import unittest

from asked import Asked
from live import main
from namespaces import ip
from network import ADDRESSES, FAMILIES, SERVER_PORT, payload, ports

A = ADDRESSES[4]
POOL = "10.0.0.192/28"
DEPENDENCES = ("endpoint-independent", "address-dependent", "address-and-port-dependent")
STUN_PORT = 3478


def configuration(sharing="sharded", workers=2, pool="", extra="", chain=("nat",)):
    return f"""chain = {list(chain)}
workers = {workers}
sharing = "{sharing}"
[table]
capacity = 20000
{ports()}
[[nat.pool]]
name = "homes"
addresses = ["{POOL}"]
{pool}
[[nat.rule]]
source = ["198.51.100.0/24"]
pool = "homes"
{extra}"""


def is_public(address):
    return address.startswith("10.0.0.") and 192 <= int(address.rpartition(".")[2]) < 208


class Nat(Asked):
    def customer(self, kind=socket.SOCK_STREAM, address=None):
        made = self.socket_in(self.network_.client, socket.AF_INET, kind)
        if address:
            made.bind((address, 0))
        return made

    def pool(self):
        [pool] = self.ask("GET /nat/pools")
        return pool

    def get(self, client, size=20_000):
        client.sendall(f"{size}\n".encode())
        with client.makefile("rb") as stream:
            stream.readline()
            self.assertEqual(stream.read(size), payload(size))

    def test_sessions(self):
        """TCP, UDP and pings of a customer leave with public sources, also while other processes take over."""
        for sharing, workers in (("sharded", 1), ("sharded", 2), ("lock-free-race", 2)):
            text = configuration(sharing, workers)
            self.serve_with(text)
            listening = self.server()
            udp = self.server(socket.SOCK_DGRAM)
            clients, sources = [], set()
            for _ in range(30):
                client = self.customer()
                client.connect((A["servers"][0], 5353))
                accepted, source = listening.accept()
                self.addCleanup(accepted.close)
                accepted.settimeout(10)
                sources.add(source)
                clients.append((client, accepted))
            self.assertTrue(all(is_public(address) for address, _ in sources), sources)
            self.assertEqual((len(sources), len({address for address, _ in sources})), (30, 1))
            asking = self.customer(socket.SOCK_DGRAM)
            asking.connect((A["servers"][0], 5353))
            for size in (10, 1400, 4000):
                asking.send(payload(size))
                data, source = udp.recvfrom(65536)
                self.assertEqual((data, is_public(source[0])), (payload(size), True))
                udp.sendto(data[::-1], source)
                self.assertEqual(asking.recv(65536), payload(size)[::-1])
            self.assertEqual(self.ping(self.network_, 4, A["servers"][0]), 3)
            self.assertEqual(self.ping(self.network_, 4, A["servers"][0], 4000), 3)
            self.assertEqual(self.ping(self.network_, 6, ADDRESSES[6]["servers"][0]), 3)
            before = self.pool()
            self.assertEqual((before["customers"], before["sessions"], before["mappings"]), (1, 32, 32))
            self.assertEqual(self.take_over(text), 32)
            self.assertEqual(self.pool()["sessions"], 32)
            for number, (client, accepted) in enumerate(clients):
                client.sendall(bytes([number]) * 100_000)
                received = b""
                while len(received) < 100_000:
                    received += accepted.recv(100_000)
                self.assertEqual(received, bytes([number]) * 100_000)
                accepted.sendall(b"answer")
                self.assertEqual(client.recv(100), b"answer")
            asking.send(b"again")
            self.assertEqual(udp.recvfrom(100), (b"again", source))
            explained = self.ask("GET /explain", protocol="udp", source=source[0], source_port=1,
                                 destination=source[0], destination_port=source[1])
            self.assertEqual(explained["verdict"], "no_mapping")
            dropped = self.stop()["packets"].get("dropped", {})
            self.assertFalse({"no_connection", "no_mapping", "no_port", "table_full"} & dropped.keys(), dropped)
            listening.close()
            udp.close()

    def test_shards_move(self):
        """Sessions keep their public ends while their customer's shard goes from worker to worker."""
        self.serve_with(configuration(extra="[spread]\nlevel = true\nlevel_interval_ms = 60000\n"))
        listening = self.server()
        pairs = []
        for _ in range(40):
            client = self.customer()
            client.connect((A["servers"][0], 5353))
            accepted, _ = listening.accept()
            self.addCleanup(accepted.close)
            accepted.settimeout(10)
            pairs.append((client, accepted))
        shards = self.ask("GET /shards")["shards"]
        [busy] = [one["shard"] for one in shards if one["packets"] > 60]
        for turn in range(6):
            self.ask("POST /shards/move", shard=busy, to=turn % 2)
            for client, accepted in pairs:
                client.sendall(b"x" * 1000)
                accepted.sendall(accepted.recv(1000))
                self.assertTrue(client.recv(1000))
        pool = self.pool()
        self.assertEqual((pool["sessions"], pool["mappings"], pool["customers"]), (40, 40, 1))
        self.stop()

    def test_from_outside(self):
        """A packet that no session and no mapping takes is dropped, and never forwarded."""
        self.serve_with(configuration())
        with self.network_.servers, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stray:
            for address in ("10.0.0.192", "10.0.0.200", "10.0.0.207"):
                for port in (1, 1024, 5000, 65535):
                    stray.sendto(b"?", (address, port))
        self.wait_until(lambda: self.ask("GET /stats")["packets"]["dropped"].get("no_mapping", 0) == 12)
        self.stop()

    def test_rfc4787_req6_only_the_inside_keeps_a_mapping_alive(self):
        for sharing in ("sharded", "lock-free-race"):
            for chain in (("nat",), ("firewall", "nat")):
                rules = '[firewall]\ndefault = "accept"\n' if "firewall" in chain else ""
                timeouts = "[ageing.timeout_s]\nudp = 2\nudp_stream = 2\nudp_unreplied = 2\n"
                self.serve_with(configuration(sharing, extra=timeouts + rules, chain=chain))
                udp = self.server(socket.SOCK_DGRAM)
                asking = self.customer(socket.SOCK_DGRAM)
                asking.connect((A["servers"][0], 5353))
                end = time.monotonic() + 5
                while time.monotonic() < end:  # longer than the timeout
                    asking.send(b"x")
                    _, source = udp.recvfrom(100)
                    time.sleep(0.1)
                self.assertEqual(self.pool()["sessions"], 1)

                def is_over():
                    udp.sendto(b"flood", source)
                    return self.pool()["sessions"] == 0

                self.wait_until(is_over)
                self.stop()
                udp.close()

    def test_errors_reach_the_customer(self):
        """An ICMP error about a translated packet comes back to the customer's socket."""
        self.serve_with(configuration())
        asking = self.customer(socket.SOCK_DGRAM)
        asking.connect((A["servers"][0], 9))
        asking.send(b"x")
        self.assertRaises(ConnectionRefusedError, asking.recv, 100)
        self.assertFalse({"no_mapping", "icmp_error"} & self.stop()["packets"]["dropped"].keys())

    def test_forwards(self):
        """Public ends that belong to an inside endpoint for good, and a whole address of one customer."""
        whole, other = "10.0.0.220", "198.51.100.50"
        to_port = f'[[nat.forward]]\npublic = "10.0.0.193:8443/tcp"\ninside = "{A["client"]}:443"\n'
        rest = (f'[[nat.forward]]\npublic = "10.0.0.193:5000/udp"\ninside = "{A["client"]}:6000"\n'
                f'[[nat.forward]]\npublic = "{whole}"\ninside = "{other}"\n')
        for sharing in ("sharded", "lock-free-race"):
            text = configuration(sharing, extra=to_port + rest)
            self.serve_with(text)
            with self.network_.client:
                ip(f"address add {other}/24 dev wire")
                for public in (whole, POOL):
                    ip(f"route add {public} via {A['outside']}")
            ended, taken = self.connected_to("10.0.0.193", 8443, A["client"], 443)
            kept, kept_end = self.connected_to(whole, 99, other, 99)
            self.assertEqual(taken.getpeername()[0], A["servers"][0])
            udp = self.server(socket.SOCK_DGRAM)
            asking = self.customer(socket.SOCK_DGRAM)
            asking.bind((A["client"], 6000))
            with self.server(socket.SOCK_DGRAM, 5354) as udp2:
                for here in (udp, udp2):
                    asking.sendto(b"?", here.getsockname())
                    self.assertEqual(here.recvfrom(100), (b"?", ("10.0.0.193", 5000)))
            inside = self.customer(socket.SOCK_DGRAM)
            inside.bind((other, 7000))
            udp.sendto(b"from outside", (whole, 7000))
            self.assertEqual(inside.recvfrom(100), (b"from outside", udp.getsockname()))
            # Another customer reaches them by their public ends.
            hairpin = self.customer(socket.SOCK_DGRAM)
            hairpin.bind((A["client"], 0))
            hairpin.sendto(b"hairpin", (whole, 7000))
            data, source = inside.recvfrom(100)
            self.assertEqual((data, is_public(source[0])), (b"hairpin", True))
            inside.sendto(b"back", source)
            self.assertEqual(hairpin.recvfrom(100), (b"back", (whole, 7000)))
            # A protocol without ports, too.
            raw = {}
            for address in (other, A["client"]):
                raw[address] = self.socket_in(self.network_.client, socket.AF_INET, socket.SOCK_RAW, 253)
                raw[address].bind((address, 0))
            raw[A["client"]].sendto(b"hairpin", (whole, 0))
            data, source = raw[other].recvfrom(100)
            self.assertEqual((data[20:], is_public(source[0])), (b"hairpin", True))
            raw[other].sendto(b"back", source)
            data, source = raw[A["client"]].recvfrom(100)
            self.assertEqual((data[20:], source[0]), (b"back", whole))
            outside = types.SimpleNamespace(client=self.network_.servers)
            self.assertEqual(self.ping(outside, 4, whole), 3)
            self.assertEqual(self.ping(outside, 4, "10.0.0.193", patience=0.2), 0)
            self.assertEqual(self.ask("GET /nat/customer", customer=other)["forwards"], [{"public": whole, "inside": other}])
            self.assertEqual(self.ask("GET /nat/customer", customer=A["client"])["forwards"],
                             [{"public": "10.0.0.193:8443/tcp", "inside": f"{A['client']}:443"},
                              {"public": "10.0.0.193:5000/udp", "inside": f"{A['client']}:6000"}])
            explained = self.ask("GET /explain", protocol="tcp", source=A["servers"][0], source_port=1, destination="10.0.0.193",
                                 destination_port=8443)
            self.assertEqual((explained["verdict"], "as a forward says" in explained["why"]), ("tracked", True), explained)
            self.take_over(text)
            for one, two in ((ended, taken), (kept, kept_end)):
                one.sendall(b"after")
                self.assertEqual(two.recv(100), b"after")
            self.reload(configuration(sharing, extra=rest))
            for one in (ended, taken):
                self.assertRaises(ConnectionResetError, one.recv, 100)
            with self.network_.servers, socket.socket() as refused:
                refused.settimeout(0.5)
                self.assertRaises(TimeoutError, refused.connect, ("10.0.0.193", 8443))
            kept.sendall(b"goes on")
            self.assertEqual(kept_end.recv(100), b"goes on")
            self.reload(text)
            again, _ = self.connected_to("10.0.0.193", 8443, A["client"], 443)
            again.close()
            self.stop()
            udp.close()

    def connected_to(self, public, port, inside, inside_port):
        """Connects a server to a public end. Returns both ends of the connection."""
        with self.network_.client:
            listening = socket.socket()
        self.addCleanup(listening.close)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.settimeout(10)
        listening.bind((inside, inside_port))
        listening.listen()
        with self.network_.servers:
            asking = socket.socket()
        self.addCleanup(asking.close)
        asking.settimeout(10)
        asking.bind((A["servers"][0], 0))
        asking.connect((public, port))
        accepted, _ = listening.accept()
        self.addCleanup(accepted.close)
        accepted.settimeout(10)
        listening.close()
        return asking, accepted

    def test_a_trace_of_a_customer_has_both_directions(self):
        """The filter's source is the originator's inside address, which replies do not show as they come."""
        self.serve_with(configuration())
        udp = self.server(socket.SOCK_DGRAM)
        with self.network_.client:
            ip("address add 198.51.100.77/24 dev wire")
        askers = [self.customer(socket.SOCK_DGRAM, address) for address in (A["client"], "198.51.100.77")]
        traced = []
        answer = self.answer("GET", "/trace", source=A["client"], seconds=30, packets=12)
        reading = threading.Thread(target=lambda: traced.append(answer.read()))
        reading.start()
        while reading.is_alive():
            for n, asking in enumerate(askers):
                asking.sendto(b"asks %d" % n, (A["servers"][0], 5353))
                data, source = udp.recvfrom(100)
                udp.sendto(data.replace(b"asks", b"told"), source)
                asking.recv(100)
            reading.join(0.01)
        for words in (b"asks 0", b"told 0"):
            self.assertGreaterEqual(traced[0].count(words), 2)
        for words in (b"asks 1", b"told 1"):
            self.assertEqual(traced[0].count(words), 0)
        self.stop()

    def test_limits(self):
        self.serve_with(configuration(pool="block_size = 64\nblocks_per_customer = 1\nsessions_per_customer = 100"))
        self.server(socket.SOCK_DGRAM)
        for _ in range(80):
            asking = self.customer(socket.SOCK_DGRAM)
            asking.sendto(b"x", (A["servers"][0], 5353))
        self.wait_until(lambda: self.ask("GET /stats")["packets"]["dropped"].get("no_port", 0) == 16)
        pool = self.pool()
        self.assertEqual((pool["mappings"], pool["held"], pool["no_port"]), (64, 1, 16))
        [block] = self.ask("GET /nat/customer", customer=A["client"])["blocks"]
        self.assertEqual((block["pool"], block["last_port"] - block["first_port"], block["mappings"], block["sessions"]),
                         ("homes", 63, 64, 64))
        self.assertTrue(is_public(block["address"]))
        self.assertEqual(self.ask("GET /nat/customer", customer="198.51.100.7"),
                         {"customer": "198.51.100.7", "ranges": [], "blocks": [], "forwards": []})
        self.refused(400, ["is no customer"], "GET /nat/customer", customer="192.0.2.1")
        self.refused(400, ["customer is missing"], "GET /nat/customer")
        self.stop()

    def test_chains(self):
        """Behind a firewall, whose rules see the inside address, in both orders."""
        rules = """[firewall]
default = "drop"
[[firewall.rule]]
name = "out"
source = "198.51.100.0/24"
destination_ports = "5353"
protocol = ["tcp", "udp"]
action = "accept"
[[firewall.rule]]
name = "in"
destination = "198.51.100.1"
source_ports = "6000"
protocol = "udp"
action = "accept"
[[firewall.rule]]
name = "ping"
protocol = ["icmp", "icmpv6"]
action = "accept"
"""
        for chain in (("firewall", "nat"), ("nat", "firewall")):
            self.serve_with(configuration(chain=chain, pool='filtering = "endpoint-independent"', extra=rules))
            listening = self.server()
            client = self.customer()
            client.connect((A["servers"][0], 5353))
            accepted, source = listening.accept()
            self.assertTrue(is_public(source[0]))
            accepted.sendall(b"hello")
            self.assertEqual(client.recv(100), b"hello")
            denied = self.customer()
            denied.settimeout(0.5)
            self.assertRaises(TimeoutError, denied.connect, (A["servers"][0], SERVER_PORT))
            self.assertEqual(self.pool()["sessions"], 1)
            for family, address in ((4, A["outside"]), (4, A["inside"]), (6, ADDRESSES[6]["outside"]), (4, A["servers"][0])):
                self.assertEqual(self.ping(self.network_, family, address), 3, address)
            # A session from outside is judged by the inside address.
            asking = self.customer(socket.SOCK_DGRAM)
            udp, allowed, denied = (self.server(socket.SOCK_DGRAM, port) for port in (5353, 6000, 6001))
            asking.sendto(b"?", udp.getsockname())
            _, public = udp.recvfrom(100)
            denied.sendto(b"denied", public)
            allowed.sendto(b"allowed", public)
            self.assertEqual(asking.recvfrom(100), (b"allowed", allowed.getsockname()))
            self.assertGreaterEqual(self.stop()["packets"]["dropped"]["denied"], 1)
            for one in (accepted, listening, udp, allowed, denied):
                one.close()

    def test_rfc4787_req1_and_req8_mapping_and_filtering(self):
        """The behaviour that RFC 5780 tries with two addresses and two ports outside, for all nine combinations."""
        for number, (mapping, filtering) in enumerate(itertools.product(DEPENDENCES, DEPENDENCES)):
            said = f"{mapping}, {filtering}"
            sharing = ("sharded", "lock-free-race")[number % 2]
            self.serve_with(configuration(sharing, 2, f'mapping = "{mapping}"\nfiltering = "{filtering}"'))
            with self.network_.client:
                ip(f"route replace {A['servers'][1]} via {A['outside']}")
            ends = {(address, port): self.server(socket.SOCK_DGRAM, port, address)
                    for address in A["servers"] for port in (5001, 5002)}
            first, other_port, other_address, _ = ends

            def seen_by(end, asking):
                asking.sendto(b"?", end)
                return ends[end].recvfrom(100)[1]

            def passes(end, to, asking):
                asking.settimeout(0.5)
                for _ in range(3):
                    ends[end].sendto(b"!", to)
                    with contextlib.suppress(TimeoutError):
                        return asking.recvfrom(100)[1] == end
                return False

            asking = self.customer(socket.SOCK_DGRAM)
            public = seen_by(first, asking)
            self.assertEqual(seen_by(other_port, asking) == public, mapping != DEPENDENCES[2], said)
            self.assertEqual(seen_by(other_address, asking) == public, mapping == DEPENDENCES[0], said)
            asking = self.customer(socket.SOCK_DGRAM)
            public = seen_by(first, asking)
            self.assertTrue(passes(first, public, asking), said)
            self.assertEqual(passes(other_port, public, asking), filtering != DEPENDENCES[2], said)
            self.assertEqual(passes(other_address, public, asking), filtering == DEPENDENCES[0], said)
            self.stop()
            for one in ends.values():
                one.close()

    @unittest.skipUnless(shutil.which("turnserver") and shutil.which("turnutils_natdiscovery"), "no coturn here")
    def test_rfc4787_req1_and_req8_as_natdiscovery_sees_it(self):
        """All nine combinations of mapping and filtering, with one worker, and with two that have tables of their own or shared ones."""
        for mapping, filtering, (workers, sharing) in itertools.product(
                DEPENDENCES, DEPENDENCES, ((1, "sharded"), (2, "sharded"), (2, "lock-free-race"))):
            self.serve_with(configuration(sharing, workers, f'mapping = "{mapping}"\nfiltering = "{filtering}"'))
            with self.stun_server():
                for _ in range(3):  # coturn does not wait long for an answer
                    said = self.discover("-m", "-f")
                    if self.behaviour(said, "Mapping"):
                        break
                if mapping == DEPENDENCES[0]:
                    hairpin = self.discover("-H")
                    self.assertEqual("a successful hairpinning" in hairpin, filtering == DEPENDENCES[0], hairpin)
            self.stop()
            self.assertEqual(self.behaviour(said, "Mapping"), mapping, said)
            self.assertEqual(self.behaviour(said, "Filtering"), filtering, said)

    @contextlib.contextmanager
    def stun_server(self):
        first, second = A["servers"]
        with self.network_.client:
            for to in (second, POOL):
                ip(f"route replace {to} via {A['outside']}")
        with self.network_.servers:
            server = subprocess.Popen(
                ["turnserver", "-n", "--no-auth", "--no-tls", "--no-dtls", "--no-cli", "-L", first, "-L", second,
                 "--listening-port", str(STUN_PORT), "--log-file", "stdout", "--pidfile", self.path("turn.pid"),
                 "--userdb", self.path("turn.db")],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            def listens():
                with self.network_.servers, socket.socket() as asking:
                    return asking.connect_ex((second, STUN_PORT)) == 0

            self.wait_until(listens)
            yield
        finally:
            server.terminate()
            server.wait(10)

    def discover(self, *what):
        with self.network_.client:
            done = subprocess.run(["turnutils_natdiscovery", *what, "-L", A["client"], A["servers"][0]],
                                  capture_output=True, text=True, timeout=100, check=False)
        return done.stdout + done.stderr

    @staticmethod
    def behaviour(said, of):
        found = re.search(rf"NAT with (.*) {of}!", said)
        return found and found[1].lower().replace(" ", "-")


if __name__ == "__main__":
    main()
