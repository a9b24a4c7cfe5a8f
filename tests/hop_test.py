#!/usr/bin/env python3
"""Tests three millraces of a cluster, of which any gets any packet, without agents: the test gives the orders.

    hop_test.py MILLRACE [TEST...]
"""

import json
import os
import signal
import socket

from hop import FUNCTIONS, SERVICE, HopCase
from live import main
from namespaces import ip
from servers import CUSTOMERS, INTERNET, SYNC_MTU


class Cluster(HopCase):
    def test_any_server_gets_any_packet(self):
        clients = self.begin()
        self.assertGreater(self.count("hops_out"), 60)
        for client in clients[:20]:
            client.close()
        self.go_on(clients[20:])
        self.wait_until(lambda: self.count("hops_out") == self.count("hops_in"))
        self.assertEqual((self.count("hops_lost"), self.count("not_sent"), self.count("malformed"), self.count("stranger")), (0, 0, 0, 0))
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

    def test_a_server_that_has_given_up_begins_anew_in_the_next_epoch(self):
        """Its agent has started again, and the store does not know yet that its copies are gone."""
        clients = self.begin(30)
        self.ask_server(1, "PUT /cluster", '{"members": [], "shards": []}')
        self.order()
        self.assertEqual(self.cluster(1)["reports"], [])
        for shard in range(self.SHARDS):
            copies = [n for n in (self.masters[shard], self.slaves[shard]) if n != 1]
            if len(copies) == 1:
                self.change(shard, copies[0], 1)
        self.order()
        self.wait_until(self.are_in_sync)
        self.go_on(clients)
        self.each_is_at_two(30)

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
        refused("epoch -1: must be a whole number", epoch=-1)
        refused("shard 1.5: must be a whole number", shard=1.5)
        refused("has a slave, and no master", master="")
        refused("epoch", status=409, epoch=2)
        refused("another part", status=409, slave="")
        refused("another part", status=409, master="00000000000aa100", slave="")
        refused("epoch", status=409, epoch=2, master="00000000000aa100", slave="")
        self.ask_server(1, "PUT /cluster", "{", 400)
        self.assertEqual(len(self.cluster(1)["reports"]), 1)

    def test_the_link_between_servers_must_carry_packets(self):
        with self.network_.servers[1]:
            ip("link set sync mtu 1500")
        with self.assertRaisesRegex(AssertionError, "cluster.address is on port sync, whose MTU is 1500.*mtu = 1618"):
            self.serve(1, FUNCTIONS)
        self.assertGreater(SYNC_MTU, 1618)


class Upgrade(HopCase):
    """Servers get a function in place of another one, one server after the other: the layout of their records differs meanwhile."""

    OLD = 'chain = ["forward", "balance"]\n' + FUNCTIONS[FUNCTIONS.index("[[service]]"):]

    def drain(self, number):
        """Gives a server's shards to the others, and ends it."""
        others = [n for n in self.network_.servers if n != number]
        self.route(*others)
        for shard in range(self.SHARDS):
            copies = [n for n in (self.masters[shard], self.slaves[shard]) if n != number]
            if len(copies) == 1:
                self.change(shard, copies[0], sum(others) - copies[0])
        self.order()
        self.wait_until(self.are_in_sync)
        self.end(number)

    def come_back(self, number, text):
        """Starts the server again, and makes it the master of a third of all shards, and the slave of another one."""
        self.serve(number, text)
        self.instances[number] = self.cluster(number)["instance"]
        self.order()
        for shard in range(self.SHARDS):
            if shard % 3 != 2:
                self.change(shard, self.masters[shard], number)
        self.order()
        self.wait_until(self.are_in_sync)
        for shard in range(0, self.SHARDS, 3):
            self.change(shard, number, self.masters[shard])
        self.order()
        self.wait_until(self.are_in_sync)
        self.route(*self.processes)

    def test_no_connection_ends(self):
        for port in (7, 8):
            self.echo(port)
        self.serve_all(self.OLD)
        clients = [self.connect(n % len(CUSTOMERS), *((80, SERVICE) if n % 2 else ())) for n in range(30)]
        self.go_on(clients)
        self.each_is_at_two(30)
        for number in list(self.network_.servers):
            self.drain(number)
            self.go_on(clients)
            self.come_back(number, FUNCTIONS)
            self.go_on(clients)
            clients += [self.connect(n % len(CUSTOMERS), *((80, SERVICE) if n % 2 else ())) for n in range(6)]
            self.go_on(clients)
            self.each_is_at_two(len(clients))
            layouts = {of: {one["server"]: one["same_layout"] for one in self.cluster(of)["members"]} for of in self.processes}
            for of, others in layouts.items():
                self.assertEqual(others, {one: (of <= number) == (one <= number) for one in others})
            self.assertEqual((self.count("malformed"), self.count("no_place")), (0, 0))
        self.kill(2)
        self.route(1, 3)
        self.go_on(clients)


class ClusterOnTwoWorkers(Cluster):
    WORKERS = 2


if __name__ == "__main__":
    main()
