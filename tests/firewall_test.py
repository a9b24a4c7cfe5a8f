#!/usr/bin/env python3
"""Tests the firewall of `millrace run` between network namespaces: rules by zones, answers to what is rejected, millrace itself
and its kernel as a zone, and what reloads and changes of sets do to live connections.

    firewall_test.py MILLRACE [TEST...]
"""

import contextlib
import errno
import socket
import struct
import time

from asked import Asked
from live import main
from network import ADDRESSES, FAMILIES, SERVER_PORT, payload, ports
from router_frames import datagram, summed

OTHER = SERVER_PORT + 1  # a port at which nothing listens, and connections are rejected
KERNEL = 7000  # a port of the machine's own


def configuration(rules, kernel=False, default="drop", extra=""):
    own_kernel = 'kernel = "mr0"\n' if kernel else ""
    return f"""chain = ["firewall"]
workers = 2
[table]
capacity = 20000
{ports(outside_keys=own_kernel)}
[[zone]]
name = "outside"
ports = ["outside"]
[[zone]]
name = "inside"
ports = ["inside"]
[firewall]
default = "{default}"
{extra}
{rules}"""


def rule(name, action="accept", **keys):
    text = f'[[firewall.rule]]\nname = "{name}"\naction = "{action}"\n'
    return text + "".join(f"{key} = {value!r}\n" for key, value in keys.items())


WEB = rule("web", **{"from": "outside", "to": "inside", "protocol": "tcp", "destination_ports": str(SERVER_PORT)})
OUT = rule("out", **{"from": ["inside", "host"]})
REJECT = rule("reject", "reject", protocol=["tcp", "udp"], destination_ports=str(OTHER))


class Firewall(Asked):
    def ends(self, family):
        """Returns a TCP connection of the client to a server."""
        with self.network_.client:
            client = socket.socket(FAMILIES[family])
        self.addCleanup(client.close)
        client.settimeout(10)
        client.connect((ADDRESSES[family]["servers"][0], SERVER_PORT))
        return client

    def get(self, client, size=20_000):
        client.sendall(f"{size}\n".encode())
        with client.makefile("rb") as stream:
            stream.readline()
            self.assertEqual(stream.read(size), payload(size))

    def silent(self, namespace, family, address, port, seconds=0.7):
        """Checks that a TCP connection gets no answer."""
        with namespace, socket.socket(FAMILIES[family]) as asking:
            asking.settimeout(seconds)
            self.assertRaises(TimeoutError, asking.connect, (address, port))

    def rules(self):
        return {one["rule"]: one for one in self.ask("GET /firewall/rules")}

    def change(self, name, action, *prefixes):
        return self.ask("POST /firewall/set", set=name, action=action, body="\n".join(prefixes) or None)

    def test_rules_decide_by_zones(self):
        self.serve_with(configuration(WEB + OUT + REJECT))
        network = self.network_
        for family, a in ADDRESSES.items():
            with self.subTest(family=family):
                server = a["servers"][0]
                client = self.ends(family)
                self.get(client, 1_000_000)
                self.silent(network.client, family, server, 22)
                with network.client, socket.socket(FAMILIES[family]) as asking:
                    asking.settimeout(10)
                    self.assertRaises(ConnectionRefusedError, asking.connect, (server, OTHER))
                with network.client, socket.socket(FAMILIES[family], socket.SOCK_DGRAM) as asking:
                    asking.settimeout(10)
                    asking.connect((server, OTHER))
                    asking.send(b"x")
                    with self.assertRaises(OSError) as why:
                        asking.recv(100)
                    self.assertIn(why.exception.errno, (errno.EHOSTUNREACH, errno.EACCES))
                # From inside everything may begin.
                with network.client:
                    listening = socket.create_server((a["client"], 2222), family=FAMILIES[family])
                self.addCleanup(listening.close)
                with network.servers, socket.create_connection((a["client"], 2222), 10, (server, 0)) as asking:
                    accepted, _ = listening.accept()
                    asking.sendall(b"hello")
                    self.assertEqual(accepted.recv(100), b"hello")
                    accepted.close()
                self.assertEqual(self.ping(network, family, server, patience=0.3), 0)
        rules = self.rules()
        self.assertEqual((rules["web"]["connections"], rules["out"]["connections"], rules["reject"]["refused"]), (2, 2, 4))
        self.assertGreater(rules["web"]["reply_bytes"], 2_000_000)
        self.assertGreaterEqual(rules["default"]["refused"], 8)
        explained = self.ask("GET /explain", protocol="tcp", source=ADDRESSES[4]["client"], source_port=1,
                             destination=ADDRESSES[4]["servers"][0], destination_port=22)
        self.assertEqual((explained["verdict"], explained["rule"]), ("denied", "default"))
        self.assertIn("from outside to inside", explained["why"])
        dropped = self.stop()["packets"]["dropped"]
        self.assertGreaterEqual(dropped["denied"], 8)
        self.assertEqual(dropped["rejected"], 4)

    def test_millrace_itself_is_a_zone(self):
        """Nothing reaches millrace but ARP, neighbour discovery and what rules accept; a connection that its kernel begins
        gets its answers."""
        self.serve_with(configuration(OUT, kernel=True))
        network = self.network_
        for family, a in ADDRESSES.items():
            with self.subTest(family=family), contextlib.ExitStack() as stack:
                with network.middle:
                    listening = stack.enter_context(socket.create_server((a["outside"], KERNEL), family=FAMILIES[family]))
                with network.client:
                    outside = stack.enter_context(socket.create_server((a["client"], 179), family=FAMILIES[family]))
                self.assertEqual(self.ping(network, family, a["outside"], patience=0.3), 0)
                self.silent(network.client, family, a["outside"], KERNEL)
                with network.middle:  # a routing daemon's session, say
                    session = stack.enter_context(socket.create_connection((a["client"], 179), timeout=10))
                other = stack.enter_context(outside.accept()[0])
                for end in (session, other):
                    end.settimeout(10)
                session.sendall(b"open")
                self.assertEqual(other.recv(100), b"open")
                listening.settimeout(10)
                ping = rule("ping", to="host", icmp="echo-request")
                ssh = rule("ssh", to="host", protocol="tcp", destination_ports=str(KERNEL))
                self.reload(configuration(OUT + ping + ssh, kernel=True))
                self.assertEqual(self.ping(network, family, a["outside"]), 3)
                with network.client:
                    asking = stack.enter_context(socket.create_connection((a["outside"], KERNEL), timeout=10))
                accepted = stack.enter_context(listening.accept()[0])
                accepted.settimeout(10)
                for one, its_other in ((asking, accepted), (accepted, asking), (session, other), (other, session)):
                    one.sendall(b"more")
                    self.assertEqual(its_other.recv(100), b"more")
                there = {(c["destination"], c["destination_port"]): (c["rule"], c["state"]) for c in self.ask("GET /connections")}
                self.assertEqual(there[a["outside"], KERNEL], ("ssh", "established"))
                self.assertEqual(there[a["client"], 179], ("out", "established"))
                self.reload(configuration(OUT, kernel=True))
                accepted.settimeout(0.7)
                asking.sendall(b"no more")
                self.assertRaises(TimeoutError, accepted.recv, 100)
                session.sendall(b"on")
                self.assertEqual(other.recv(100), b"on")
        self.stop()

    def test_what_belongs_to_nothing_does_not_reach_the_host(self):
        """Neither ICMP errors about no connection, nor later fragments of what no rule accepts."""
        self.serve_with(configuration(OUT, kernel=True))
        network, mark = self.network_, b"belongs to nothing"
        with contextlib.ExitStack() as stack:

            def raw(namespace, device, kinds=0):
                with namespace:
                    opened = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(kinds)))
                    opened.bind((device, kinds))
                return opened

            wire, kernel = raw(network.client, "wire"), raw(network.middle, "mr0", 3)
            macs = raw(network.middle, "outside").getsockname()[4] + wire.getsockname()[4]
            for family, a in ADDRESSES.items():
                client, own = a["client"], a["outside"]
                protocol, kind = (1, b"\3\3") if family == 4 else (58, b"\1\4")
                quoted = datagram(own, client, 17, struct.pack(">HHHH", 5, 6, 8 + len(mark), 0) + mark)
                error = summed(client, own, protocol, kind + bytes(6) + quoted, 2)
                for packet in (datagram(client, own, protocol, error), datagram(client, own, 89, mark * 4, fragment=8)):
                    wire.send(macs + (b"\x08\0" if family == 4 else b"\x86\xdd") + packet)
            kernel.settimeout(1)
            reached = []
            with contextlib.suppress(TimeoutError):
                while True:
                    reached.append(kernel.recv(65536))
        self.assertFalse([frame for frame in reached if mark in frame])
        dropped = self.stop()["packets"]["dropped"]
        self.assertGreaterEqual(dropped["no_connection"], 2)

    def test_a_reload_ends_what_it_denies(self):
        ssh = rule("ssh", protocol="tcp", destination_ports=str(SERVER_PORT), source=[ADDRESSES[4]["client"]])
        self.serve_with(configuration(ssh + WEB))
        v4, v6 = self.ends(4), self.ends(6)
        self.get(v4)
        self.get(v6)
        self.assertEqual(self.reload(configuration(ssh.replace("accept", "reject") + WEB))["ended"], 1)
        self.assertEqual(len(self.ask("GET /connections")), 1)
        self.assertRaises(ConnectionResetError, self.get, v4)
        self.get(v6)
        self.assertEqual(self.stop()["connections"]["closed"]["moved"], 1)

    def test_sets_change_while_packets_flow(self):
        blocked = rule("blocked", "drop", source="@blocked")
        text = configuration(blocked + WEB, extra="[firewall.sets]\nblocked = []\n")
        self.serve_with(text)
        client, other = self.ends(4), self.ends(6)
        self.get(client)
        self.assertEqual(self.change("blocked", "add", ADDRESSES[4]["client"]), {"set": "blocked", "prefixes": 1, "changed": 1, "ended": 1})
        self.assertEqual(len(self.ask("GET /connections")), 1)
        client.settimeout(0.7)
        self.assertRaises(TimeoutError, self.get, client)
        self.get(other)
        self.reload(text)
        self.assertEqual(self.ask("GET /firewall/sets"), [
            {"set": "blocked", "prefixes": [ADDRESSES[4]["client"]], "changed": True}])
        self.take_over(text)
        self.get(other)
        self.silent(self.network_.client, 4, ADDRESSES[4]["servers"][0], SERVER_PORT)
        self.change("blocked", "remove", ADDRESSES[4]["client"])
        self.get(self.ends(4))
        self.refused(404, ["there is no set other"], "POST /firewall/set", set="other", action="add", body="10.0.0.1")
        self.refused(400, ["is no prefix"], "POST /firewall/set", set="blocked", action="add", body="ten")
        self.change("blocked", "replace", *(f"192.0.{n >> 8}.{n & 255}" for n in range(60_000)))
        self.get(other)
        self.stop()

    def test_flows_go_on_over_a_take_over(self):
        self.serve_with(configuration(WEB + OUT))
        clients = [self.ends(family) for family in (4, 6) for _ in range(20)]
        for client in clients:
            self.get(client)
        self.assertEqual(self.take_over(configuration(OUT + WEB)), len(clients))
        for client in clients:
            self.get(client)
        self.assertEqual(self.rules()["web"]["live"], len(clients))
        # A process without a firewall takes them over, too, and one with a firewall asks the rules again.
        ports, _, _ = configuration("").replace("firewall", "forward").partition("[[zone]]")
        for text in (ports, configuration(OUT + WEB)):
            self.assertEqual(self.take_over(text), len(clients))
            for client in clients:
                self.get(client)
        begin = time.monotonic()
        self.reload(configuration(OUT))
        self.wait_until(lambda: not self.ask("GET /connections"))
        self.assertLess(time.monotonic() - begin, 20)
        self.stop()


if __name__ == "__main__":
    main()
