#!/usr/bin/env python3
"""Tests NAT at three millraces of a cluster, without agents: the test gives the orders, and the grants of ports.

    hop_nat_test.py MILLRACE [TEST...]
"""

import collections
import json
import socket

from gre import Home, Tunnels
from hop import POOL, HopCase
from live import main
from namespaces import command
from servers import CUSTOMERS, INTERNET, nat, with_firewall

NAT = nat(POOL, 256)
MASTERS, SLAVES = range(32), range(32, 64)


def text(grants):
    return ",".join(map(str, grants))


def numbers(grants):
    """Returns the numbers in a text such as 0-3,7."""
    parts = [part.split("-") for part in grants.split(",") if part]
    return [n for part in parts for n in range(int(part[0]), int(part[-1]) + 1)]


class NatCase(HopCase):
    first_grants = text(MASTERS), text(SLAVES)

    def place(self):
        super().place()
        for shard, grants in enumerate(self.grants):
            grants[self.masters[shard]], grants[self.slaves[shard]] = self.first_grants


class NatInACluster(NatCase):
    def begin(self, count=40):
        """Begins connections of all customers. Returns them, with their public ends."""
        self.echo(7)
        self.serve_all(NAT)
        clients = [self.connect(n % len(CUSTOMERS)) for n in range(count)]
        ends = [self.exchange(client) for client in clients]
        self.each_is_at_two(count)
        return clients, ends

    def shard_of(self, end):
        """Returns the shard of a public end: addresses are spread over all shards by their last bits."""
        return int(end.rpartition(":")[0].rpartition(".")[2]) % self.SHARDS

    @staticmethod
    def grant_of(end):
        return int(end.rpartition(":")[2]) // 1024

    def go_on(self, clients, ends):
        for client, end in zip(clients, ends):
            self.assertEqual(self.exchange(client, b"x" * 3000), end)

    def promote(self, lost):
        """Gives the shards of a lost server to the other two, as the store would: the master gets its grants."""
        for shard in range(self.SHARDS):
            copies = {self.masters[shard], self.slaves[shard]}
            if lost not in copies:
                continue
            left = (copies - {lost}).pop()
            self.change(shard, left, 6 - left - lost)
            of = self.grants[shard]
            of[left] = text(sorted(numbers(of[left]) + numbers(of.pop(lost))))
        self.order()

    def hand_on(self):
        """Gives to slaves what masters have handed back, as the store would."""
        for number in self.processes:
            for report in self.cluster(number)["reports"]:
                back = numbers(report["withdrawn"])
                if not back or report["role"] != "master":
                    continue
                of = self.grants[report["shard"]]
                of[number] = text([n for n in numbers(of[number]) if n not in back])
                of[self.slaves[report["shard"]]] = text(back)
        self.order()

    def have_handed_back(self):
        for number in self.processes:
            reports = {report["shard"]: report for report in self.cluster(number)["reports"]}
            for shard, grants in enumerate(self.grants):
                if self.masters[shard] == number and len(numbers(grants[number])) > len(numbers(reports[shard]["withdrawn"])) + 32:
                    return False
        return True

    def test_a_deterministic_pool_needs_no_grants(self):
        self.serve(1, NAT.replace("block_size = 256", "block_size = 256\ndeterministic = true"))
        self.assertEqual(self.cluster(1)["wanted"], 0)
        with open(self.path("1.toml"), "a", encoding="ascii") as file:
            file.write('[[nat.pool]]\nname = "more"\naddresses = ["192.0.2.128/25"]\n[[nat.rule]]\nsource = ["10.0.1.0/24"]\npool = "more"\n')
        self.ask_server(1, "POST /reload")
        self.assertEqual(self.cluster(1)["wanted"], 32)

    def test_customers_keep_their_addresses(self):
        clients, ends = self.begin()
        addresses = collections.defaultdict(set)
        for client, end in zip(clients, ends):
            addresses[client.getsockname()[0]].add(end.partition(":")[0])
            self.assertIn(self.grant_of(end), MASTERS)
        self.assertTrue(all(len(of) == 1 for of in addresses.values()), addresses)
        self.assertGreater(len(set().union(*addresses.values())), 1)
        self.assertGreater(self.count("hops_out"), 40)
        self.go_on(clients, ends)
        for client in clients:
            client.close()
        self.wait_until(lambda: self.count("hops_out") == self.count("hops_in"))
        self.assertEqual((self.count("hops_lost"), self.count("malformed"), self.count("no_place")), (0, 0, 0))
        for number in list(self.processes):
            self.end(number)

    def test_a_server_dies(self):
        """Its customers go on with their ports, and get new ones of the slave's grants at once."""
        clients, ends = self.begin()
        self.kill(2)
        self.route(1, 3)
        self.go_on(clients, ends)
        more = [self.connect(n % len(CUSTOMERS)) for n in range(24)]
        new = [self.exchange(client) for client in more]
        for end in new:
            self.assertIn(self.grant_of(end), SLAVES if self.masters[self.shard_of(end)] == 2 else MASTERS)
        self.assertIn(2, [self.masters[self.shard_of(end)] for end in new])
        self.assertEqual(len(set(ends + new)), len(ends + new))
        self.promote(2)
        self.wait_until(self.are_in_sync)
        clients, ends = clients + more, ends + new
        self.go_on(clients, ends)
        self.each_is_at_two(len(clients))
        self.wait_until(self.have_handed_back)
        self.hand_on()
        self.go_on(clients, ends)
        self.kill(1)
        self.route(3)
        self.go_on(clients, ends)
        # The ports that a new slave has got a moment ago rest, unless a customer has some of them.
        for n, customer in enumerate(CUSTOMERS):
            of_his = [end for client, end in zip(clients, ends) if client.getsockname()[0] == customer]
            shard = self.shard_of(of_his[0])
            granted = numbers(self.grants[shard][3])
            if self.masters[shard] == 3 or any(self.grant_of(end) in granted for end in of_his):
                self.assertNotIn(self.exchange(self.connect(n)), ends)
            else:
                with self.assertRaises(OSError):
                    self.connect(n)

    def test_a_server_dies_beside_one_with_another_function(self):
        """Two servers have NAT alone, and one has a firewall, too: they copy connections all the same."""
        serve = self.serve
        self.serve = lambda number, text: serve(number, with_firewall(text) if number == 3 else text)
        self.test_a_server_dies()
        self.assertEqual(self.count("malformed"), 0)

    def test_grants_move_while_connections_use_them(self):
        self.first_grants = text(range(64)), ""
        clients, ends = self.begin()
        self.wait_until(self.have_handed_back)
        for shard, grants in enumerate(self.grants):
            report = next(one for one in self.cluster(self.masters[shard])["reports"] if one["shard"] == shard)
            self.assertEqual(len(numbers(report["withdrawn"])), 32, shard)
            self.assertEqual(len(numbers(grants[self.masters[shard]])), 64)
        self.hand_on()
        self.wait_until(lambda: not any(one["withdrawn"] for one in self.cluster(1)["reports"]))
        self.go_on(clients, ends)
        for end in [self.exchange(self.connect(n)) for n in range(8)]:
            self.assertIn(self.grant_of(end), numbers(self.grants[self.shard_of(end)][self.masters[self.shard_of(end)]]))

    def test_hairpins_pings_fragments_and_protocols_without_ports(self):
        clients, ends = self.begin(8)
        # From one customer to another's public end: each has a shard of his own.
        for n, end in enumerate(ends):
            one = self.datagrams(n)
            one.sendto(b"out", (INTERNET, 99))
            got, public = self.outside.recvfrom(100)
            self.assertEqual((got, public[0]), (b"out", end.partition(":")[0]))
            other = self.datagrams((n + 1) % len(ends))
            other.sendto(b"to a neighbour", public)
            got, sender = one.recvfrom(100)
            self.assertEqual(got, b"to a neighbour")
            self.assertEqual(sender[0], ends[(n + 1) % len(ends)].partition(":")[0])
            one.sendto(b"back", sender)
            self.assertEqual(other.recvfrom(100), (b"back", public))
            for size in (4000, 9000):
                one.sendto(b"f" * size, (INTERNET, 99))
                self.assertEqual(self.outside.recvfrom(65536)[1], public)
                self.outside.sendto(b"g" * size, public)
                self.assertEqual(one.recv(65536), b"g" * size)
        for customer in CUSTOMERS:
            with self.network_.customers:
                pinged = command("ping", "-c", "2", "-i", "0.2", "-W", "2", "-I", customer, INTERNET)
            self.assertIn(" 2 received", pinged)
        self.go_on(clients, ends)

    def datagrams(self, customer):
        if not hasattr(self, "outside"):
            self.outside = self.socket_in(self.network_.internet, socket.AF_INET, socket.SOCK_DGRAM)
            self.outside.bind((INTERNET, 99))
        made = self.socket_in(self.network_.customers, socket.AF_INET, socket.SOCK_DGRAM)
        made.bind((CUSTOMERS[customer], 0))
        return made

    def test_pools_that_do_not_fit_are_refused(self):
        for wrong, part in ((NAT.replace(POOL, "192.0.2.0/26"), "128 shards .*needs an address, and 64 have none"),
                            (NAT.replace(POOL, "198.51.100.0/25"), "198.51.100.2, cannot be a pool's in a cluster")):
            with self.assertRaisesRegex(AssertionError, part):
                self.serve(1, wrong)

    def test_wrong_grants_are_refused(self):
        self.serve(1, NAT)
        own = self.cluster(1)["instance"]
        for grants in ("64", "0-64", "5-3", "x", "1,", "-1", "1 2", "3,,4"):
            orders = {"members": [], "shards": [{"shard": 0, "epoch": 1, "master": own, "slave": "", "settled": True, "grants": grants}]}
            answer = self.ask_server(1, "PUT /cluster", json.dumps(orders), 400)
            self.assertIn("must be numbers and ranges below 64", answer["error"])
        self.assertEqual(self.cluster(1)["reports"], [])


class NatOnTwoWorkers(NatInACluster):
    WORKERS = 2


class TunnelsInACluster(NatCase):
    """Customers behind GRE tunnels, all with one private address. The near end is an address that all servers have."""

    NEAR, INSIDE = "172.16.0.254", "192.168.1.2"
    WORKERS = 2
    ports_differ = {"shared": NEAR, "inside": f'tunnel = "gre"\ncustomers = {json.dumps(CUSTOMERS)}\n'}

    def test_customers_behind_tunnels_go_on(self):
        self.echo(7)
        self.serve_all(NAT.replace('source = ["10.0.0.0/24"]', 'source = ["192.168.0.0/16"]\ncustomers = "any"'))
        homes = {(far, None): Home(self.INSIDE) for far in CUSTOMERS}
        tunnels = Tunnels(self.network_.customers, self.NEAR, homes)
        self.addCleanup(tunnels.close)
        clients = []
        for home in list(homes.values()) * 3:
            client = self.socket_in(home.namespace, socket.AF_INET, socket.SOCK_STREAM)
            client.connect((INTERNET, 7))
            clients.append(client)
        ends = [self.exchange(client, b"x" * 3000) for client in clients]
        self.assertEqual(len(set(ends)), len(clients))
        addresses = [end.partition(":")[0] for end in ends]
        self.assertEqual(addresses[:8], addresses[8:16])
        self.assertGreater(len(set(addresses)), 1)
        self.each_is_at_two(len(clients))
        self.assertGreater(self.count("hops_out"), 24)
        self.kill(2)
        self.route(1, 3)
        self.assertEqual([self.exchange(client, b"x" * 3000) for client in clients], ends)
        for home in homes.values():
            client = self.socket_in(home.namespace, socket.AF_INET, socket.SOCK_STREAM)
            client.connect((INTERNET, 7))
            self.assertNotIn(self.exchange(client), ends)
        for number in list(self.processes):
            self.end(number)


if __name__ == "__main__":
    main()
