#!/usr/bin/env python3
"""Tests the load balancer and NAT in one chain (full NAT), with real clients and servers: the servers have no route to the clients, and
see connections from the pool alone.

    full_nat_test.py MILLRACE [TEST...]
"""

import socket

from asked import Asked
from live import main
from namespaces import ip
from network import ADDRESSES, PORT, SERVER_PORT, Client, configuration, payload

A = ADDRESSES[4]
CLIENTS = [A["client"], *(f"198.51.100.{n}" for n in range(10, 40))]
POOL = [f"10.0.0.{n}" for n in range(128, 136)]
OWN = [A["inside"]]


def chain(sharing="lock-free-race", addresses="10.0.0.128/29"):
    keys = f'chain = ["balance", "nat"]\nsharing = "{sharing}"\n'
    return keys + configuration("af_packet:outside", "af_packet:inside", f"""
[[nat.pool]]
name = "local"
addresses = ["{addresses}"]
ports = "1024-32767"
block_size = 64
blocks_per_customer = 64
mapping = "address-and-port-dependent"
[[nat.rule]]
source = ["0.0.0.0/0"]
destination = ["10.0.0.0/24"]
source_groups = 16
pool = "local"
""")


class FullNat(Asked):
    def serve(self, text):
        network = self.network()
        with network.servers:
            ip(f"route delete {A['client']}")
        with network.client:
            for address in CLIENTS[1:]:
                ip(f"address add {address}/24 dev wire")
        self.serve_with(text, network)

    def udp(self, source):
        with self.network_.client:
            made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(made.close)
        made.settimeout(10)
        made.bind((source, 0))
        made.connect((A["service"], PORT))
        return made

    def serves(self, sources):
        """Checks that all clients are served, and that servers see only `sources`."""
        clients = [Client(self.network_, 4, source) for source in CLIENTS for _ in range(3)]
        for client in clients:
            self.addCleanup(client.close)
        first = [client.get(100) for client in clients]
        self.assertEqual(set(first), set(A["servers"]), "not both servers were used")
        self.assertEqual([client.get(20_000) for client in clients], first, "a connection changed its server")
        for source in CLIENTS:
            udp = self.udp(source)
            for size in (1, 3000):  # in fragments, too
                udp.send(payload(size))
                server, _, rest = udp.recv(65536).partition(b" ")
                self.assertIn(server.decode(), A["servers"])
                self.assertEqual(rest, payload(size))
        seen = self.seen()
        self.assertLessEqual(seen, set(sources))
        return seen

    def seen(self):
        """Returns the addresses with which the servers have connections."""
        with self.network_.servers:
            with open("/proc/net/tcp", encoding="ascii") as table:
                rows = [line.split() for line in table.readlines()[1:]]
        ends = [row[2].split(":") for row in rows if int(row[1].split(":")[1], 16) == SERVER_PORT and row[3] == "01"]
        return {socket.inet_ntoa(bytes.fromhex(address)[::-1]) for address, _ in ends}

    def test_servers_see_the_pool(self):
        for sharing in ("lock-free-race", "sharded"):
            for addresses, sources in (("10.0.0.128/29", POOL), (OWN[0], OWN)):
                with self.subTest(sharing=sharing, addresses=addresses):
                    self.serve(chain(sharing, addresses))
                    self.assertGreater(len(self.serves(sources)), len(sources) // 3)
                    stats = self.stop()
                    self.assertGreater(sum(b["replies"] for b in stats["backends"]), 0)
                    dropped = {reason: n for reason, n in stats["packets"]["dropped"].items() if n}
                    # The kernels of both ends look for routers and groups.
                    self.assertLessEqual(set(dropped), {"not_ours", "truncated", "no_neighbour"})

    def test_reload_and_take_over_interrupt_nothing(self):
        for sharing in ("lock-free-race", "sharded"):
            with self.subTest(sharing=sharing):
                self.serve(chain(sharing))
                end = self.transferring(20)
                self.reload(chain(sharing).replace("10.0.0.0/24", "10.0.0.0/25"))
                self.assertGreaterEqual(self.take_over(chain(sharing)), 20)
                self.assertEqual(end(), [])
                self.serves(POOL)
                self.stop()

    def test_errors_of_servers_reach_the_client(self):
        self.serve(chain())
        for address in A["servers"]:
            self.servers.stop(4, address)
        udp = self.udp(CLIENTS[3])
        udp.settimeout(1)

        def is_refused():  # the server's thread may still take a datagram
            udp.send(b"anybody?")
            try:
                udp.recv(100)
            except ConnectionRefusedError:
                return True
            except TimeoutError:
                pass
            return False

        self.wait_until(is_refused)  # this error has waited for the address of its next hop
        self.wait_until(is_refused)
        self.assertGreater(self.stop()["packets"]["related"], 0)

    def test_exempt_servers_see_their_clients(self):
        """To one server clients come with their own addresses, and it has a route back."""
        self.serve(chain().replace("source_groups", f'exempt = ["{A["servers"][0]}"]\nsource_groups'))
        with self.network_.servers:
            for source in CLIENTS:
                ip(f"route add {source} via {A['inside']}")
        seen = self.serves([*CLIENTS, *POOL])
        self.assertTrue(seen & set(CLIENTS) and seen & set(POOL), seen)

    def test_tools_name_both(self):
        self.serve(chain())
        one = Client(self.network_, 4, CLIENTS[5])
        self.addCleanup(one.close)
        server = one.get(1)
        [seen] = self.ask("GET /connections", source=CLIENTS[5])
        self.assertEqual(seen["backend"], f"{server}:{SERVER_PORT}")
        said = self.ask("GET /explain", **{k: seen[k] for k in ("protocol", "source", "source_port", "destination", "destination_port")})
        self.assertIn(f"it belongs to a connection to {server}:{SERVER_PORT}", said["why"])
        self.assertIn("which leaves as 10.0.0.1", said["why"])
        held = self.ask("GET /nat/customer", customer=CLIENTS[5])["blocks"]
        self.assertEqual({block["pool"] for block in held}, {"local"})
        [pool] = self.ask("GET /nat/pools")
        self.assertEqual((pool["sessions"], pool["customers"]), (1, 1))


if __name__ == "__main__":
    main()
