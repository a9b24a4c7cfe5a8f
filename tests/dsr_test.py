#!/usr/bin/env python3
"""Tests direct server return with real clients and servers: millrace sees only the clients' packets; servers reply directly.

    dsr_test.py MILLRACE [TEST...]
"""

import json
import os
import socket

from asked import FIRST, SECOND, Asked
from live import main
from namespaces import ip, set_sysctls
from network import ADDRESSES, FAMILIES, PORT, OneLink, payload

BYTES = int(os.environ.get("MILLRACE_TEST_BYTES", "100_000_000"))


def configuration(keys="", of_services="", leaving_out=(), kernel="", protocols=("tcp", "udp")):
    addresses = ", ".join(f'"{a[key]}/{a["bits"]}"' for a in ADDRESSES.values() for key in ("outside", "inside"))
    text = f"""{keys}
[table]
capacity = 20000
[[port]]
name = "link"
device = "af_packet:wire"
addresses = [{addresses}]
{f'kernel = "{kernel}"' if kernel else ""}
"""
    for a in ADDRESSES.values():
        for protocol in protocols:
            backends = ", ".join(f'{{ address = "{s}" }}' for s in a["servers"] if s not in leaving_out)
            text += f"""[[service]]
address = "{a['service']}"
port = {PORT}
protocol = "{protocol}"
forward = "dsr"
{of_services}
backends = [{backends}]
"""
    return text


STATEFUL = configuration("workers = 2")
MANNERS = (STATEFUL, configuration('workers = 2\nsharing = "sharded"'),
           configuration("workers = 2\nbalance.stateful = false"))


class Dsr(Asked):
    def serve(self, text):
        network = OneLink()
        self.addCleanup(network.close)
        self.serve_with(text, network)

    def transfer(self, family):
        clients = self.clients(40, family)
        first = [client.get(100) for client in clients]
        self.assertEqual(set(first), set(ADDRESSES[family]["servers"]), "not both servers were used")
        self.assertEqual([client.get(20_000) for client in clients], first, "a connection changed its server")
        self.assertEqual(clients[0].get(BYTES), first[0])
        for client in clients:
            client.close()

    def datagrams(self, family):
        a = ADDRESSES[family]
        for _ in range(10):
            with self.network_.client:
                udp = socket.socket(FAMILIES[family], socket.SOCK_DGRAM)
            with udp:
                udp.settimeout(5)
                udp.connect((a["service"], PORT))
                answers = []
                for n in range(3):
                    udp.send(payload(100 * n))
                    server, _, rest = udp.recv(65536).partition(b" ")
                    self.assertEqual(rest, payload(100 * n))
                    answers.append(server)
                self.assertEqual(len(set(answers)), 1, "a conversation changed its server")

    def test_clients_are_answered(self):
        for text in MANNERS:
            with self.subTest(text=text):
                self.serve(text)
                for family in FAMILIES:
                    self.transfer(family)
                    self.datagrams(family)
                stats = self.stop()
                self.assertEqual(sum(b["replies"] for b in stats["backends"]), 0)
                self.assertEqual({s["forward"] for s in stats["services"]}, {"dsr"})
                dropped = {reason: n for reason, n in stats["packets"]["dropped"].items() if n}
                self.assertLessEqual(dropped.keys(), {"not_ours", "other_station"}, "only the link's own traffic may be dropped")

    def states(self):
        return sorted(c["state"] for c in self.ask("GET /connections"))

    def test_one_direction_is_enough(self):
        """The originator's packets alone prove that a connection is real, but a repeated SYN proves nothing."""
        self.serve(STATEFUL)
        [client] = self.clients(1)
        self.assertEqual(self.states(), ["established"])
        stats = self.ask("GET /stats")
        self.assertEqual([s["established"] for s in stats["services"]], [1, 0, 0, 0])
        self.assertEqual(sorted(b["established"] for b in stats["backends"]), [0] * 7 + [1])
        client.close()
        self.wait_until(lambda: self.states() != ["established"])
        self.ask("POST /kill", all="true")
        for server in self.network_.each_server:
            with server:
                ip(f"route replace blackhole {ADDRESSES[4]['client']}")
        with self.network_.client:
            silent = socket.socket()
        self.addCleanup(silent.close)
        silent.settimeout(3.5)  # time for a SYN and two retransmissions
        self.assertRaises(TimeoutError, silent.connect, (ADDRESSES[4]["service"], PORT))
        self.assertEqual(self.states(), ["syn_sent"])

    def test_what_has_ended_makes_room(self):
        self.serve(configuration("workers = 2\nlimits.per_source = 5", "max_connections = 5"))
        for _ in range(2):
            clients = self.clients(5)
            for client in clients:
                client.get(1)
            for client in clients:
                client.close()
            self.wait_until(lambda: set(self.states()) == {"fin_wait"})
        self.assertEqual([s["established"] for s in self.ask("GET /stats")["services"]], [0, 0, 0, 0])

    def test_who_is_drained_keeps_what_it_has(self):
        self.serve(STATEFUL)
        clients = self.clients(20)
        met = [client.get(1) for client in clients]
        self.ask("POST /drain", backend=FIRST, drained="true")
        self.assertEqual(self.servers_of(20), {SECOND: 20})
        self.assertEqual([client.get(1000) for client in clients], met)
        self.reload(configuration("workers = 2", leaving_out=(FIRST,)))
        self.assertEqual([client.get(1000) for client in clients], met)
        self.assertEqual(self.servers_of(20), {SECOND: 20})

    def test_a_dead_server_gets_nothing_new(self):
        self.serve(STATEFUL)
        self.servers.stop(4, FIRST)
        self.ask("POST /health", backend=FIRST, healthy="false")
        self.assertEqual(self.servers_of(20), {SECOND: 20})

    def test_connections_of_a_dead_server_may_end(self):
        """With `on_unhealthy = "reset"`, packets of an unhealthy server's connections go to another server, which does not know
        the connections and resets them."""
        health = 'on_unhealthy = "reset"\nhealth = { check = "tcp" }'
        self.serve(configuration("workers = 2", health))
        clients = {}
        while len(clients) < 2:
            [client] = self.clients(1)
            clients[client.get(1)] = client
        self.ask("POST /health", backend=FIRST, healthy="false")
        self.assertRaises(ConnectionResetError, clients[FIRST].get, 1)
        self.assertEqual(clients[SECOND].get(1), SECOND)

    def neighbours(self):
        """Returns the neighbours that do not answer, and (address, MAC, neighbour) of each one that answers for a virtual address."""
        [port] = self.ask("GET /stats")["ports"]
        return port["silent"], {(r["address"], r["mac"], r["neighbour"]) for r in port["rivals"]}

    def test_what_is_wrong_on_the_link_is_told(self):
        in_their_networks = [f'"{a["services"].replace("0/", "1/").replace("::/", "::1/")}"' for a in ADDRESSES.values()]
        text = STATEFUL.replace("addresses = [", f"addresses = [{', '.join(in_their_networks)}, ")
        network = OneLink()
        self.addCleanup(network.close)
        first, second = network.each_server
        with first:
            set_sysctls({"ipv4/conf/all/arp_ignore": 0})
            ip(f"address add {ADDRESSES[6]['service']} dev wire nodad")  # Linux then answers for this address on the link
            [wire] = json.loads(ip("-json link show wire"))
        with second:
            ip("link set wire down")
        self.serve_with(text, network)
        silent = [a["servers"][1] for a in ADDRESSES.values()]
        rivals = {(a["service"], wire["address"], a["servers"][0]) for a in ADDRESSES.values()}
        self.wait_until(lambda: self.neighbours() == (silent, rivals))
        said = [self.ask("GET /explain", protocol="udp", source="198.51.100.1", source_port=port,
                         destination=ADDRESSES[4]["service"], destination_port=PORT)["why"] for port in range(1000, 1020)]
        self.assertEqual({f"{silent[0]} does not answer on port link" in why for why in said}, {True, False})
        with first:
            set_sysctls(OneLink.QUIET)
            ip(f"address delete {ADDRESSES[6]['service']} dev wire")
        with second:
            ip("link set wire up")
            ip(f"address add {silent[1]}/{ADDRESSES[6]['bits']} dev wire nodad")  # Linux removed this address when the link went down
        self.wait_until(lambda: self.neighbours() == ([], rivals))
        self.reload(text)
        self.wait_until(lambda: self.neighbours() == ([], set()))

    def test_another_process_takes_over(self):
        self.serve(STATEFUL)
        clients = self.clients(20) + self.clients(20, 6)
        met = [client.get(1) for client in clients]
        self.ask("POST /drain", backend=FIRST, drained="true")
        self.assertEqual(self.take_over(STATEFUL), 40)
        self.assertEqual([client.get(1000) for client in clients], met)

    def test_who_takes_over_may_not_have_the_service(self):
        self.serve(STATEFUL)
        clients = self.clients(20) + self.clients(20, 6)
        met = [client.get(1) for client in clients]
        self.assertEqual(self.take_over(configuration("workers = 2", protocols=("udp",))), 40)
        self.assertEqual([client.get(1000) for client in clients], met)

    def test_a_service_changes_its_manner(self):
        """After reloads between `nat` and `dsr`, new connections are served as the configuration in force says."""
        as_nat = STATEFUL.replace('forward = "dsr"', 'forward = "nat"')
        self.serve(as_nat)
        self.reload(STATEFUL)
        self.transfer(4)
        self.reload(as_nat)
        self.reload(STATEFUL)
        self.transfer(6)


if __name__ == "__main__":
    main()
