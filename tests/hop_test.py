#!/usr/bin/env python3
"""Tests three millraces of a cluster, of which any gets any packet, without agents: the test gives the orders.

    hop_test.py MILLRACE [TEST...]
"""

import json
import os
import signal
import socket
import unittest

from live import main
from namespaces import ip, set_sysctls
from pair import NAT
from servers import CUSTOMERS, INTERNET, SYNC_MTU, ServersCase

SERVICE = "203.0.113.10"
FUNCTIONS = f"""chain = ["firewall", "balance"]
[[firewall.rule]]
name = "out"
protocol = ["tcp", "udp", "icmp"]
source = ["10.0.0.0/24"]
action = "accept"
[[service]]
address = "{SERVICE}"
port = 80
protocol = "tcp"
backends = [{{ address = "{INTERNET}", port = 7 }}, {{ address = "{INTERNET}", port = 8 }}]
"""


class Cluster(ServersCase):
    COUNT = 3
    SHARDS = 128

    def others(self, number):
        return f"""[spread]
entries = {self.SHARDS}
[cluster]
server = {number}
address = "10.9.0.{number}"
key_file = "{self.key}"
"""

    def route(self, *numbers):
        """Lets the switches on both sides send packets to these servers, each connection to one of them, whichever it is."""
        for namespace, to, network in ((self.network_.customers, "0.0.0.0/0", "10.0.0.{}"), (self.network_.internet, "10.0.0.0/24", "198.51.100.{}")):
            ways = " ".join(f"nexthop via {network.format(n + (250 if '10.0' in network else 1))}" for n in numbers)
            with namespace:
                set_sysctls({"ipv4/fib_multipath_hash_policy": 1})
                ip(f"route replace {to} {ways}")

    def cluster(self, number):
        return self.ask_server(number, "GET /cluster")

    def serve_all(self, text=FUNCTIONS):
        for number in self.network_.servers:
            self.serve(number, text)
        self.instances = {number: self.cluster(number)["instance"] for number in self.processes}
        self.epochs = [1] * self.SHARDS
        self.masters = [1 + n % 3 for n in range(self.SHARDS)]
        self.slaves = [1 + (n + 1 + n // 3 % 2) % 3 for n in range(self.SHARDS)]
        self.order()
        self.route(*self.processes)
        self.wait_until(self.are_in_sync)

    def order(self, *numbers):
        """Gives servers (all, if none is named) the placement in `masters` and `slaves`."""
        orders = json.dumps({
            "members": [{"server": number, "instance": self.instances[number], "address": f"10.9.0.{number}"} for number in self.processes],
            "shards": [{"shard": n, "epoch": self.epochs[n], "master": self.instances[self.masters[n]], "settled": True,
                        "slave": self.instances.get(self.slaves[n], ""), "grants": ""} for n in range(self.SHARDS)],
        })
        for number in numbers or self.processes:
            self.assertTrue(self.ask_server(number, "PUT /cluster", orders)["followed"])

    def change(self, shard, master, slave):
        self.epochs[shard] += 1
        self.masters[shard], self.slaves[shard] = master, slave

    def are_in_sync(self):
        reports = {number: self.cluster(number)["reports"] for number in self.processes}
        all_of = [one for of in reports.values() for one in of]
        return len(all_of) == 2 * self.SHARDS and all(one["in_sync"] for one in all_of)

    def each_is_at_two(self, count):
        def is_so():
            found = [self.connections(number) for number in self.processes]
            self.seen = [len(one) for one in found]
            keys = set().union(*found)
            return len(keys) == count and all(sum(key in one for one in found) == 2 for key in keys)
        try:
            self.wait_until(is_so)
        except AssertionError:
            self.fail(f"servers have {self.seen} connections, of {count}")

    def count(self, name):
        return sum(self.cluster(number)["counters"][name] for number in self.processes)

    def begin(self, count=60):
        """Begins connections to the service and through the servers."""
        for port in (7, 8):
            self.echo(port)
        self.serve_all()
        clients = [self.connect(n % len(CUSTOMERS), *((80, SERVICE) if n % 2 else ())) for n in range(count)]
        self.go_on(clients)
        self.each_is_at_two(count)
        return clients

    def go_on(self, clients, data=b"x" * 3000):
        for client in clients:
            self.exchange(client, data)

    def test_any_server_gets_any_packet(self):
        clients = self.begin()
        self.assertGreater(self.count("hops_out"), 60)
        for client in clients[:20]:
            client.close()
        self.wait_until(lambda: "established" not in [state for key, state in self.connections(1).items() if key[1] in []])
        self.go_on(clients[20:])
        lost = self.count("hops_out") - self.count("hops_in")
        self.assertEqual((lost, self.count("hops_lost"), self.count("malformed"), self.count("stranger")), (0, 0, 0, 0))
        for number in list(self.processes):
            self.end(number)

    def test_a_server_dies(self):
        """Packets go to the slave of each shard, at first without an order, and the shards get new copies."""
        clients = self.begin()
        self.kill(2)
        self.route(1, 3)
        self.go_on(clients)
        clients += [self.connect(n % len(CUSTOMERS)) for n in range(10)]
        for shard in range(self.SHARDS):
            copies = {self.masters[shard], self.slaves[shard]}
            if 2 in copies:
                left = (copies - {2}).pop()
                self.change(shard, left, 4 - left)
        self.order()
        self.go_on(clients)
        self.wait_until(self.are_in_sync)
        self.each_is_at_two(70)
        self.kill(1)
        self.route(3)
        self.go_on(clients)

    def test_a_server_hangs(self):
        clients = self.begin(30)
        self.processes[3].send_signal(signal.SIGSTOP)
        self.addCleanup(self.processes[3].send_signal, signal.SIGCONT)
        self.route(1, 2)
        self.go_on(clients)
        self.processes[3].send_signal(signal.SIGCONT)
        self.wait_until(lambda: all(one["heard"] for one in self.cluster(1)["members"]))
        self.route(1, 2, 3)
        self.go_on(clients)
        self.each_is_at_two(30)

    def test_shards_change_their_places(self):
        clients = self.begin(30)
        for _ in range(3):
            for shard in range(self.SHARDS):
                self.change(shard, self.slaves[shard], self.masters[shard])
                if shard % 16 == 15:
                    self.order()
                    self.go_on(clients[shard // 16 :: 8])
            self.wait_until(self.are_in_sync)
            for shard in range(self.SHARDS):
                self.change(shard, self.masters[shard], 6 - self.masters[shard] - self.slaves[shard])
            self.order()
            self.go_on(clients)
            self.wait_until(self.are_in_sync)
            self.each_is_at_two(30)

    def test_a_server_gives_up(self):
        clients = self.begin(30)
        for shard in range(self.SHARDS):
            copies = {self.masters[shard], self.slaves[shard]} - {1}
            master = max(copies)
            self.change(shard, master, 5 - master)
        self.order(2, 3)
        self.go_on(clients)
        nothing = self.ask_server(1, "PUT /cluster", '{"members": [], "shards": []}')
        self.assertTrue(nothing["followed"])
        self.assertEqual((nothing["reports"], self.connections(1)), ([], {}))
        self.route(2, 3)
        self.go_on(clients)
        self.order()
        self.route(1, 2, 3)
        self.go_on(clients)
        self.each_is_at_two(30)
        self.assertEqual(self.connections(1), {})

    def test_large_packets_and_fragments(self):
        self.echo(7)
        self.serve_all()
        server = self.socket_in(self.network_.internet, socket.AF_INET, socket.SOCK_DGRAM)
        server.bind((INTERNET, 99))
        for size in (1472, 4000, 9000):
            for customer in CUSTOMERS:
                client = self.socket_in(self.network_.customers, socket.AF_INET, socket.SOCK_DGRAM)
                client.bind((customer, 0))
                data = os.urandom(size)
                client.sendto(data, (INTERNET, 99))
                got, sender = server.recvfrom(65536)
                self.assertEqual(got, data)
                server.sendto(got, sender)
                self.assertEqual(client.recv(65536), data)

    def test_what_nobody_serves_is_dropped_and_counted(self):
        for number in self.network_.servers:
            self.serve(number, FUNCTIONS)
        self.route(1, 2, 3)
        client = self.socket_in(self.network_.customers, socket.AF_INET, socket.SOCK_DGRAM)
        client.bind((CUSTOMERS[0], 0))
        for _ in range(10):
            client.sendto(b"lost", (INTERNET, 99))
        self.wait_until(lambda: 10 == sum(
            self.ask_server(number, "GET /stats")["packets"]["dropped"].get("no_server", 0) for number in self.processes))
        for number in list(self.processes):
            self.end(number)

    def test_wrong_orders_change_nothing(self):
        self.serve(1, FUNCTIONS)
        own = self.cluster(1)["instance"]
        good = {"members": [{"server": 2, "instance": "00000000000aa100", "address": "10.9.0.2"}],
                "shards": [{"shard": 0, "epoch": 3, "master": own, "slave": "00000000000aa100", "settled": True, "grants": ""}]}
        self.assertEqual(len(self.ask_server(1, "PUT /cluster", json.dumps(good))["reports"]), 1)

        def refused(part, status=400, **change):
            wrong = json.loads(json.dumps(good))
            for key, value in change.items():
                wrong[{"address": "members", "instance": "members"}.get(key, "shards")][0][key] = value
            answer = self.ask_server(1, "PUT /cluster", json.dumps(wrong), status)
            self.assertIn(part, answer["error"])
        refused("there is no shard 128", shard=128)
        refused("epoch 0", epoch=0)
        refused("has both copies at one server", slave=own)
        refused("is no instance", master="xyz")
        refused("is no instance", instance="")
        refused("is no address", address="2001:db8::1")
        refused("epoch", status=409, epoch=2)
        refused("other copies", status=409, slave="")
        self.ask_server(1, "PUT /cluster", "{", 400)
        self.assertEqual(len(self.cluster(1)["reports"]), 1)

    def test_nat_is_refused(self):
        with self.assertRaisesRegex(AssertionError, r"NAT does not divide its ports among the servers of a \[cluster\]"):
            self.serve(1, NAT)

    def test_the_link_between_servers_must_carry_packets(self):
        with self.network_.servers[1]:
            ip("link set sync mtu 1500")
        with self.assertRaisesRegex(AssertionError, "cluster.address is on port sync, whose MTU is 1500.*mtu = 1618"):
            self.serve(1, FUNCTIONS)
        self.assertGreater(SYNC_MTU, 1618)


class ClusterOnTwoWorkers(Cluster):
    WORKERS = 2


if __name__ == "__main__":
    main()
