"""Servers of a cluster without agents: the test says which server has which copies."""

import json

from namespaces import ip, set_sysctls
from servers import CUSTOMERS, INTERNET, ServersCase

SERVICE = "203.0.113.10"
POOL = "192.0.2.0/25"
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


class HopCase(ServersCase):
    """Three servers of a cluster, to which the test gives the orders of an agent."""

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
        ways_of = [(self.network_.customers, "0.0.0.0/0", "10.0.0.{}")]
        ways_of += [(self.network_.internet, to, "198.51.100.{}") for to in ("10.0.0.0/24", POOL)]
        for namespace, to, network in ways_of:
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
        self.place()
        self.order()
        self.route(*self.processes)
        self.wait_until(self.are_in_sync)

    def place(self):
        self.epochs = [1] * self.SHARDS
        self.grants = [{} for _ in range(self.SHARDS)]  # of each shard, by server
        self.masters = [1 + n % 3 for n in range(self.SHARDS)]
        self.slaves = [1 + (n + 1 + n // 3 % 2) % 3 for n in range(self.SHARDS)]

    def order(self, *numbers):
        """Gives servers (all, if none is named) the placement in `masters` and `slaves`."""
        orders = json.dumps({
            "members": [{"server": number, "instance": self.instances[number], "address": f"10.9.0.{number}"} for number in self.processes],
            "shards": [{"shard": n, "epoch": self.epochs[n], "master": self.instances[self.masters[n]], "settled": True,
                        "slave": self.instances.get(self.slaves[n], "")} for n in range(self.SHARDS)],
        })
        for number in numbers or self.processes:
            of = json.loads(orders)
            for one in of["shards"]:
                one["grants"] = self.grants[one["shard"]].get(number, "")
            self.assertTrue(self.ask_server(number, "PUT /cluster", json.dumps(of))["followed"])

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
