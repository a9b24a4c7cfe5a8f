"""The two servers of a pair, and what VRRP would do with them."""


import json
import socket

from namespaces import ip
from servers import CUSTOMERS, INTERNET, ServersCase, nat

GATEWAY, OUTSIDE = "10.0.0.254", "198.51.100.254"  # addresses that move
POOL, SERVICE = "198.51.100.100", "203.0.113.10"
NAT = nat(POOL, 64)


class PairCase(ServersCase):
    def setUp(self):
        super().setUp()
        with self.network_.customers:
            ip(f"route add default via {GATEWAY}")

    def others(self, number, addresses=(GATEWAY,)):
        return f"""[pair]
number = {number}
other = "10.9.0.{3 - number}"
key_file = "{self.key}"
addresses = [{", ".join(f'"{one}"' for one in addresses)}]
"""

    def serve(self, number, text=NAT, *arguments, addresses=(GATEWAY,), **options):
        """Starts a server; it is on standby."""
        return super().serve(number, text, *arguments, others=self.others(number, addresses), **options)

    def serve_both(self, text=NAT, **options):
        for number in (1, 2):
            self.serve(number, text, **options)
        self.wait_until(lambda: self.are_in_sync() and self.pair(1)["gives"] and self.pair(2)["gives"])

    def pair(self, number):
        return self.ask_server(number, "GET /pair")

    def activate(self, number):
        """Does what VRRP does: one server leaves the addresses to the other."""
        if 3 - number in self.processes:
            self.ask_server(3 - number, "POST /pair/standby")
        self.ask_server(number, "POST /pair/active")

    def are_in_sync(self):
        one, two = self.pair(1), self.pair(2)
        return one["in_sync"] and two["in_sync"] and {one["role"], two["role"]} == {"master", "slave"}

    def both_have_the_same(self):
        self.wait_until(lambda: self.connections(1) == self.connections(2))

    def to(self, number):
        """Sends what customers and the internet send to that server, whatever the servers say."""
        with self.network_.servers[number]:
            macs = {name: json.loads(ip(f"-json link show dev {name}"))[0]["address"] for name in ("inside", "outside")}
        with self.network_.customers:
            ip(f"neighbour replace {GATEWAY} lladdr {macs['inside']} dev wire nud permanent")
        with self.network_.internet:
            ip(f"neighbour replace {POOL} lladdr {macs['outside']} dev wire nud permanent")


class ForwardingCase(PairCase):
    """A pair that tracks and forwards connections: the internet knows the way back."""

    DEFER_MS = 0

    def setUp(self):
        super().setUp()
        with self.network_.internet:
            ip(f"route add 10.0.0.0/24 via {OUTSIDE}")

    def others(self, number, addresses=(GATEWAY,)):
        return super().others(number, addresses) + (f"defer_ms = {self.DEFER_MS}\n" if self.DEFER_MS else "")

    def serve_both(self, text='function = "forward"\n'):
        """Starts both servers, of which the first one is active."""
        for number in (1, 2):
            self.serve(number, text, addresses=(GATEWAY, OUTSIDE))
        self.wait_until(self.are_in_sync)
        self.activate(1)
        self.wait_until(lambda: self.pair(1)["role"] == "master" and self.are_in_sync())

    def host(self):
        """Returns a host's socket in the internet: UDP, port 99."""
        made = self.socket_in(self.network_.internet, socket.AF_INET, socket.SOCK_DGRAM)
        made.bind((INTERNET, 99))
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        return made
