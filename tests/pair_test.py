#!/usr/bin/env python3
"""Tests two millraces that have each other's connections: what one serves, the other goes on with.

    pair_test.py MILLRACE [TEST...]

MILLRACE_TRANSFERS: how many connections transfer lines while servers leave, fail and come back (40).
"""

import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
import unittest

from cluster_hosts import answer
from lines import Lines
from live import main, patience_with
from namespaces import ip
from pair import GATEWAY, NAT, OUTSIDE, POOL, SERVICE, ForwardingCase, PairCase
from servers import CUSTOMERS, INTERNET, with_firewall

TRANSFERS = int(os.environ.get("MILLRACE_TRANSFERS", "40"))
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Nat(PairCase):
    def begin(self):
        self.echo()
        self.serve_both()
        self.activate(1)
        self.wait_until(lambda: self.pair(1)["role"] == "master" and self.are_in_sync())

    def test_connections_go_on_at_the_other(self):
        self.begin()
        clients = [self.connect(n % len(CUSTOMERS)) for n in range(40)]
        seen = [self.exchange(client) for client in clients]
        self.assertEqual(len(set(seen)), 40)
        self.both_have_the_same()
        self.assertEqual(len(self.connections(2)), 40)
        self.kill(1)
        self.activate(2)
        self.assertEqual([self.exchange(client) for client in clients], seen)
        more = [self.connect(n % len(CUSTOMERS)) for n in range(40)]
        theirs = [self.exchange(client) for client in more]
        self.assertFalse(set(theirs) & set(seen))
        blocks = [{(int(one.rpartition(":")[2]) - 1024) // 64 % 2 for one in ends} for ends in (seen, theirs)]
        self.assertEqual(blocks, [{0}, {1}], "each server gives half of the blocks")
        self.wait_until(lambda: self.pair(2)["role"] == "master")

    def test_there_and_back(self):
        self.begin()
        clients = [self.connect(n % len(CUSTOMERS)) for n in range(20)]
        seen = [self.exchange(client) for client in clients]
        for number in (2, 1, 2):
            self.activate(number)
            clients.append(self.connect())
            seen.append(self.exchange(clients[-1]))
            self.assertEqual([self.exchange(client) for client in clients], seen)
            self.wait_until(lambda number=number: self.pair(number)["role"] == "master" and self.are_in_sync())
            self.both_have_the_same()
        for client in clients[:10]:
            client.close()
        self.both_have_the_same()
        for number in (1, 2):
            self.assertEqual(self.ask_server(number, "GET /pair")["counters"]["malformed"], 0)
            self.end(number)


class NatOnTwoWorkers(Nat):
    WORKERS = 2


class Functions(ForwardingCase):
    """Other functions than NAT: the customers' router knows the way back."""

    TEXT = f"""chain = ["firewall", "balance"]
{{}}
[[firewall.rule]]
name = "out"
protocol = ["tcp", "udp"]
action = "accept"
[[service]]
address = "{SERVICE}"
port = 80
protocol = "tcp"
backends = [{{{{ address = "{INTERNET}", port = 7 }}}}, {{{{ address = "{INTERNET}", port = 8 }}}}]
"""

    def serve_both(self, text=""):
        super().serve_both(self.TEXT.format(text))

    def test_services_and_rules_go_on(self):
        self.echo(7)
        self.echo(8)
        self.serve_both()
        services = [self.connect(n, 80, SERVICE) for n in range(6)]
        routed = [self.connect(n) for n in range(6)]
        udp = self.socket_in(self.network_.customers, socket.AF_INET, socket.SOCK_DGRAM)
        udp.bind((CUSTOMERS[0], 0))
        answering = self.host()
        def ask():
            udp.sendto(b"ask", (INTERNET, 99))
            data, sender = answering.recvfrom(100)
            answering.sendto(data, sender)
            self.assertEqual(udp.recv(100), b"ask")
        ask()
        for client in services + routed:
            self.exchange(client)
        self.both_have_the_same()
        self.assertEqual(len(self.connections(2)), 13)
        self.kill(1)
        self.activate(2)
        for client in services + routed:
            self.exchange(client, b"x" * 1000)
        ask()
        # The other firewall has its connections, and no more: the rules still hold.
        begun = self.socket_in(self.network_.internet, socket.AF_INET, socket.SOCK_STREAM)
        begun.settimeout(0.5)
        with self.assertRaises(OSError):
            begun.connect((CUSTOMERS[0], 9))
        for client in services + routed:
            client.close()
        self.wait_until(lambda: "established" not in self.connections(2).values())

    def test_another_process_takes_over(self):
        """`--take-over` on the active server: it stays active, and tells the other one everything anew."""
        self.echo(7)
        self.serve_both()
        routed = [self.connect(n % len(CUSTOMERS)) for n in range(30)]
        for client in routed:
            self.exchange(client)
        self.both_have_the_same()
        before = self.processes.pop(1)
        said = self.serve(1, self.TEXT.format(""), "--take-over", addresses=(GATEWAY, OUTSIDE))
        with patience_with(before):
            before.communicate()
        self.assertTrue(any("took over 30 connections" in line for line in said), said)
        self.assertTrue(self.pair(1)["active"])
        for client in routed:
            self.exchange(client)
        self.wait_until(self.are_in_sync)
        self.wait_until(lambda: self.pair(1)["role"] == "master")
        routed.append(self.connect())
        self.exchange(routed[-1])
        self.both_have_the_same()
        self.kill(1)
        self.activate(2)
        for client in routed:
            self.exchange(client)


class Apart(PairCase):
    """Servers that cannot hear each other, or should not."""

    def test_both_are_active(self):
        """Each serves its side of a network that is cut in two; nobody gets another one's port, and all is well afterwards."""
        self.echo()
        self.serve_both()
        self.activate(1)
        self.wait_until(lambda: self.pair(1)["role"] == "master" and self.are_in_sync())
        old = [self.connect(n) for n in range(8)]
        seen = {self.exchange(client) for client in old}
        self.both_have_the_same()
        self.network_.cut(1)
        self.ask_server(2, "POST /pair/active")
        self.wait_until(lambda: self.pair(1)["role"] == self.pair(2)["role"] == "master")
        both = []
        for number in (1, 2, 1, 2):
            self.to(number)
            clients = [self.connect(n) for n in range(8)]
            ends = [self.exchange(client) for client in clients]
            self.assertFalse(set(ends) & seen)
            seen |= set(ends)
            both += clients
            for client in old:
                self.exchange(client)
        self.network_.cut(1, False)
        self.activate(2)
        self.wait_until(self.are_in_sync)
        self.wait_until(lambda: self.pair(2)["role"] == "master")
        for client in old + both:
            self.exchange(client)
        self.both_have_the_same()
        self.assertEqual(len(self.connections(1)), 8 + 32)

    def test_what_strangers_send_changes_nothing(self):
        self.serve_both()
        self.activate(1)
        self.wait_until(lambda: self.pair(1)["role"] == "master" and self.are_in_sync())
        with self.network_.servers[1]:
            hearing = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
            hearing.bind(("sync", 0x0800))
        self.addCleanup(hearing.close)
        hearing.settimeout(5)
        heard = []
        while len(heard) < 8:
            frame = hearing.recv(2000)
            if frame[12:14] == b"\x08\x00" and frame[23] == 17 and frame[30:34] == bytes([10, 9, 0, 1]):
                heard.append(frame)
        before = self.pair(1)
        changed = bytearray(heard[0])
        changed[-1] ^= 1
        whole = heard[1]
        for frame in [*heard, bytes(changed), whole[:42] + b"short", whole[:42], whole[:42] + os.urandom(200),
                      whole[:42] + b"\0" * 1400]:
            length = len(frame) - 34
            frame = bytearray(frame)
            frame[16:18] = (len(frame) - 14).to_bytes(2, "big")
            frame[38:40] = length.to_bytes(2, "big")
            frame[40:42] = b"\0\0"  # no checksum
            frame[24:26] = b"\0\0"
            words = sum(int.from_bytes(frame[n : n + 2], "big") for n in range(14, 34, 2))
            words = (words & 0xFFFF) + (words >> 16)
            words = (words & 0xFFFF) + (words >> 16)
            frame[24:26] = (~words & 0xFFFF).to_bytes(2, "big")
            with self.network_.servers[2]:
                with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sending:
                    sending.bind(("sync", 0))
                    sending.send(frame)

        def counted():
            now = self.pair(1)["counters"]
            return {name: now[name] - before["counters"][name] for name in ("replayed", "foreign", "version")}

        self.wait_until(lambda: counted() == {"replayed": 8, "foreign": 3, "version": 2})
        after = self.pair(1)
        self.assertEqual(after["epoch"], before["epoch"])
        self.assertTrue(self.are_in_sync())
        self.assertEqual(self.pair(1)["other"]["number"], 2)

    def test_what_differs_is_said(self):
        self.serve(1)
        self.ports_differ = {"inside": 'tunnel = "gre"\ncustomers = ["10.0.0.9"]\n'}
        self.serve(2, NAT + '[[nat.rule]]\nsource = ["192.168.0.0/16"]\ncustomers = "any"\npool = "homes"\n')
        self.wait_until(lambda: self.pair(1)["disagreement"] != "" and self.pair(2)["disagreement"] != "")
        self.assertIn("functions", self.pair(1)["disagreement"])
        self.assertEqual(self.pair(1)["role"], "none")

    def test_a_server_that_was_alone(self):
        """A server that never heard the other one gives no ports until somebody says that there is none."""
        self.echo()
        self.serve(1)
        self.activate(1)
        self.assertFalse(self.pair(1)["gives"])
        with self.assertRaises(OSError):
            self.connect()
        self.ask_server(1, "POST /pair/gone")
        self.wait_until(lambda: self.pair(1)["gives"])
        client = self.connect()
        seen = self.exchange(client)
        self.serve(2)
        self.wait_until(self.are_in_sync)
        self.activate(2)
        self.assertEqual(self.exchange(client), seen)


class TwoVersions(PairCase):
    """The second server has one function more, which connections do not need, so the layouts of records differ."""

    def begin(self):
        self.echo()
        self.serve(1)
        self.serve(2, with_firewall(NAT))
        self.wait_until(lambda: self.are_in_sync() and self.pair(1)["gives"] and self.pair(2)["gives"])
        for number in (1, 2):
            is_so = self.pair(number)
            self.assertEqual((is_so["disagreement"], is_so["other"]["same_layout"]), ("", False))

    def test_connections_go_on_both_ways(self):
        self.begin()
        clients, seen = [], []
        for number in (1, 2, 1, 2):
            self.activate(number)
            more = [self.connect(n % len(CUSTOMERS)) for n in range(10)]
            ends = [self.exchange(client) for client in more]
            self.assertFalse(set(ends) & set(seen))
            blocks = {(int(end.rpartition(":")[2]) - 1024) // 64 % 2 for end in ends}
            self.assertEqual(blocks, {number - 1}, "each server gives its half of the blocks")
            clients, seen = clients + more, seen + ends
            self.assertEqual([self.exchange(client) for client in clients], seen)
            self.wait_until(lambda number=number: self.pair(number)["role"] == "master" and self.are_in_sync())
            self.both_have_the_same()
        self.assertEqual(len(self.connections(1)), 40)
        for number in (1, 2):
            counters = self.pair(number)["counters"]
            self.assertEqual([counters[name] for name in ("malformed", "no_place")], [0, 0])
        for client in clients[:10]:
            client.close()
        self.both_have_the_same()
        self.kill(2)
        self.activate(1)
        self.assertEqual([self.exchange(client) for client in clients[10:]], seen[10:])

    def test_an_upgrade_server_by_server(self):
        """Both servers get the function, one after the other: no connection ends."""
        self.echo()
        self.serve_both()
        self.activate(1)
        self.wait_until(lambda: self.pair(1)["role"] == "master" and self.are_in_sync())
        clients = [self.connect(n % len(CUSTOMERS)) for n in range(20)]
        seen = [self.exchange(client) for client in clients]
        for number in (2, 1):
            self.both_have_the_same()
            self.end(number)
            self.assertEqual([self.exchange(client) for client in clients], seen)
            self.serve(number, with_firewall(NAT))
            self.wait_until(self.are_in_sync)
            self.both_have_the_same()
            self.activate(number)
            self.assertEqual([self.exchange(client) for client in clients], seen)
            self.wait_until(lambda number=number: self.pair(number)["role"] == "master" and self.are_in_sync())
        self.assertTrue(self.pair(1)["other"]["same_layout"])
        self.kill(1)
        self.activate(2)
        self.assertEqual([self.exchange(client) for client in clients], seen)


class TwoVersionsOnTwoWorkers(TwoVersions):
    WORKERS = 2


@unittest.skipUnless(shutil.which("keepalived"), "keepalived is not installed")
class Keepalived(PairCase):
    """The servers of the example, with keepalived's packets over their ports."""

    def keepalived(self, number):
        with open(os.path.join(ROOT, "examples/pair-keepalived.conf"), encoding="utf-8") as file:
            text = file.read()
        # In place of millctl, which is not built here: the same requests, by curl's library of this Python.
        tell = f"{sys.executable} {self.path('tell.py')} {self.path(f'c{number}')}"
        text = (text.replace("/usr/local/bin/millctl pair", tell).replace("millrace-1", f"millrace-{number}")
                .replace("priority 110", f"priority {120 - 10 * number}").replace("203.0.113.11", POOL))
        path = self.write(f"keepalived{number}.conf", text)
        os.chmod(path, 0o600)
        with self.network_.servers[number]:
            process = subprocess.Popen(
                ["keepalived", "--dont-fork", "--log-console", "--use-file", path, "--pid", self.path(f"k{number}.pid"),
                 "--vrrp_pid", self.path(f"v{number}.pid")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        self.keepaliveds[number] = process
        self.addCleanup(self.end_keepalived, number)

    def end_keepalived(self, number):
        self.keepaliveds[number].terminate()
        self.keepaliveds[number].wait(20)

    def is_active(self, number):
        return (self.pair(number)["active"] and not self.pair(3 - number)["active"] and self.pair(number)["role"] == "master"
                and self.are_in_sync())

    def setUp(self):
        super().setUp()
        self.keepaliveds = {}
        self.write("tell.py", """
import http.client, json, socket, sys
class Connection(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sys.argv[1])
connection = Connection("millrace", timeout=5)
word = sys.argv[2]
connection.request("GET" if word == "ready" else "POST", "/pair" if word == "ready" else "/pair/" + word, headers={"Connection": "close"})
answer = connection.getresponse()
is_ready = word != "ready" or json.load(answer)["ready"]
sys.exit(0 if answer.status == 200 and is_ready else 1)
""")

    def test_the_active_one_is_killed(self):
        self.echo()
        self.serve_both(kernel=True)
        for number in (1, 2):
            self.keepalived(number)
        self.wait_until(lambda: self.is_active(1), 60)
        clients = [self.connect(n % len(CUSTOMERS)) for n in range(40)]
        seen = [self.exchange(client) for client in clients]
        self.both_have_the_same()
        self.kill(1)
        self.assertEqual([self.exchange(client) for client in clients], seen)
        self.wait_until(lambda: self.pair(2)["active"])
        self.exchange(self.connect())

    def cut_vrrp(self, is_cut):
        """Keeps multicasts, which VRRP's packets are, from the servers."""
        with self.network_.switch:
            for name in ("inside1", "inside2", "outside1", "outside2"):
                ip(f"link set {name} type bridge_slave mcast_flood {'off' if is_cut else 'on'}")

    def test_transfers_go_on(self):
        """Through a service: one server leaves and comes back, one is killed and comes back, and VRRP is cut, so that both are active."""
        hosts = [self.socket_in(self.network_.internet, socket.AF_INET, socket.SOCK_STREAM) for _ in (7, 8)]
        for port, host in zip((7, 8), hosts):
            host.bind((INTERNET, port))
            host.listen(1000)
        answering = multiprocessing.Process(target=answer, args=(hosts, []), daemon=True)
        answering.start()
        self.addCleanup(answering.kill)
        with self.network_.internet:
            ip(f"route add 10.0.0.0/24 via {OUTSIDE}")
        text = Functions.TEXT.format('[[firewall.rule]]\nname = "vrrp"\nprotocol = [112]\naction = "accept"')

        def serve(number):
            self.serve(number, text, addresses=(GATEWAY, OUTSIDE), kernel=True)

        for number in (1, 2):
            serve(number)
            self.keepalived(number)
        self.wait_until(lambda: self.is_active(1), 60)
        transfers = Lines([self.connect(n % len(CUSTOMERS), 80, SERVICE) for n in range(TRANSFERS)])
        self.addCleanup(transfers.close)

        def go_on(what):
            self.wait_until(transfers.go_on(), 60)
            self.assertEqual(transfers.errors, [], what)
            print(f"{what}: an answer came after {1000 * transfers.longest_s:.0f} ms at most")
            transfers.longest_s = 0

        go_on("nothing happens")
        self.end_keepalived(1)
        self.wait_until(lambda: self.is_active(2), 60)
        go_on("server 1 leaves")
        self.keepalived(1)
        self.wait_until(lambda: self.is_active(1), 60)
        go_on("server 1 comes back")
        self.kill(1)
        self.wait_until(lambda: self.pair(2)["active"], 60)
        go_on("server 1 is killed")
        serve(1)
        self.wait_until(lambda: self.is_active(1), 60)
        go_on("server 1 begins anew")
        self.cut_vrrp(True)
        self.wait_until(lambda: self.pair(1)["active"] and self.pair(2)["active"], 60)
        go_on("VRRP is cut")
        self.cut_vrrp(False)
        self.wait_until(lambda: self.is_active(1), 60)
        go_on("VRRP is back")


if __name__ == "__main__":
    main()
