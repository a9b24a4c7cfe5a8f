#!/usr/bin/env python3
"""Tests connections through `millrace run` to backends that go away, and clients for which there is no backend, with the
kernel's own sockets at both ends.

    gone_test.py MILLRACE [TEST...]
"""

import errno
import select
import socket

from asked import FIRST, GOOD, IPV4, SECOND, Asked, without
from live import main
from namespaces import ip
from network import ADDRESSES, FAMILIES, PORT, SERVER_PORT


def with_keys(keys, text=GOOD):
    """Returns `text` with the lines `keys` added to each service."""
    return text.replace("[[service]]\n", "[[service]]\n" + keys + "\n")


class Gone(Asked):
    def datagram_socket(self, family=4, port=0):
        with self.network_.client:
            udp = socket.socket(FAMILIES[family], socket.SOCK_DGRAM)
        self.addCleanup(udp.close)
        udp.settimeout(5)
        udp.bind((ADDRESSES[family]["client"], port))
        return udp

    def connection_attempt(self, family=4):
        with self.network_.client:
            tcp = socket.socket(FAMILIES[family])
        self.addCleanup(tcp.close)
        tcp.settimeout(5)
        return tcp.connect_ex((ADDRESSES[family]["service"], PORT))

    def without_address(self, server):
        with self.network_.servers:
            ip(f"address del {server}/24 dev wire")

    def established_at_servers(self):
        with self.network_.servers:
            with open("/proc/thread-self/net/tcp", encoding="ascii") as v4:
                with open("/proc/thread-self/net/tcp6", encoding="ascii") as v6:
                    return sum(line.split()[3] == "01" for file in (v4, v6) for line in file)

    def dropped(self, reason):
        return self.ask("GET /stats")["packets"]["dropped"].get(reason, 0)

    def set_healthy(self, address, is_healthy):
        self.ask("POST /health", backend=f"{address}:{SERVER_PORT}", healthy="true" if is_healthy else "false")

    def drain_all(self, is_drained="true"):
        for a in ADDRESSES.values():
            for server in a["servers"]:
                with_port = f"[{server}]" if ":" in server else server
                self.ask("POST /drain", backend=f"{with_port}:{SERVER_PORT}", drained=is_drained)

    def test_kill_tells_both_ends(self):
        for sharing in ("sharded", "lock-free-race"):
            with self.subTest(sharing=sharing):
                self.serve_with(f'sharing = "{sharing}"\n' + GOOD)
                clients = [client for family in FAMILIES for client in self.clients(5, family)]
                for client in clients:
                    client.get(3000)
                self.assertEqual(self.established_at_servers(), 10)
                self.assertEqual(self.ask("POST /kill", protocol="tcp"), {"killed": 10})
                for client in clients:
                    self.assertRaises(ConnectionResetError, client.get, 1)
                self.wait_until(lambda: self.established_at_servers() == 0)
                self.stop()

    def test_who_is_killed_before_an_answer_is_told(self):
        """When the connection is killed, its SYN still waits for the MAC of a server that is absent."""
        self.serve_with()
        self.without_address(SECOND)
        self.without_address(FIRST)
        with self.network_.client:
            tcp = socket.socket()
        self.addCleanup(tcp.close)
        tcp.setblocking(False)
        tcp.connect_ex((IPV4["service"], PORT))
        self.wait_until(lambda: self.ask("GET /connections", state="syn_sent"))
        self.assertEqual(self.ask("POST /kill", all="true"), {"killed": 1})
        self.assertTrue(select.select([], [tcp], [], 5)[1])
        self.assertEqual(tcp.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), errno.ECONNREFUSED)

    def test_kill_may_be_silent(self):
        self.serve_with()
        [client] = self.clients(1)
        client.get(1)
        self.refused(400, ["silent", "true or false"], "POST /kill", all="true", silent="maybe")
        self.assertEqual(self.ask("POST /kill", all="true", silent="true"), {"killed": 1})
        self.assertEqual(self.established_at_servers(), 1)
        self.assertEqual(client.get(1), client.get(1), "a silently killed connection must go on, as consistent hashing finds its server")

    def test_refused(self):
        self.serve_with()
        self.drain_all()
        for family, a in ADDRESSES.items():
            with self.subTest(family=family):
                self.assertEqual(self.connection_attempt(family), errno.ECONNREFUSED)
                udp = self.datagram_socket(family)
                udp.connect((a["service"], PORT))
                udp.send(b"x")
                self.assertRaises(ConnectionRefusedError, udp.recv, 100)
        self.assertGreaterEqual(self.dropped("refused"), 4)
        self.assertEqual(self.dropped("no_backend"), 0)
        self.drain_all("false")
        self.assertEqual(self.connection_attempt(), 0)

    def test_weight_0_in_the_file(self):
        self.serve_with(GOOD.replace(f'"{FIRST}", port', f'"{FIRST}", weight = 0, port'))
        self.assertEqual(self.servers_of(10), {SECOND: 10})

    def test_dropped(self):
        self.serve_with(with_keys('no_backend = "drop"'))
        self.drain_all()
        udp = self.datagram_socket()
        udp.settimeout(0.5)
        udp.connect((IPV4["service"], PORT))
        udp.send(b"x")
        self.assertRaises(TimeoutError, udp.recv, 100)
        self.assertEqual((self.dropped("no_backend"), self.dropped("refused")), (1, 0))

    def test_passed_to_another_machine(self):
        """With no backend left, packets are routed to another machine: here the servers' namespace, with the services' addresses."""
        routes = "".join(f'[[route]]\nprefix = "{a["service"]}/{len(socket.inet_pton(family, a["service"])) * 8}"\n'
                         f'via = "{a["servers"][1]}"\n' for family, a in zip(FAMILIES.values(), ADDRESSES.values()))
        self.serve_with(with_keys('no_backend = "pass"', GOOD + routes))
        with self.network_.servers:
            for family, a in ADDRESSES.items():
                ip(f"address add {a['service']}/{a['bits'] if family == 4 else 128} dev lo nodad")
                other = socket.create_server((a["service"], PORT), family=FAMILIES[family])
                self.addCleanup(other.close)
        self.assertEqual(set(self.servers_of(20)), {FIRST, SECOND}, "backends must get connections as long as there are backends")
        self.drain_all()
        for family in FAMILIES:
            self.assertEqual(self.connection_attempt(family), 0)
        self.assertGreaterEqual(self.ask("GET /stats")["packets"]["untracked"]["passed"], 4)
        stats = self.ask("GET /stats")
        self.assertEqual((stats["connections"]["refused"], {service["refused"] for service in stats["services"]}), (0, {0}))

    def test_established_tcp_of_an_unhealthy_backend(self):
        health = 'health = { check = "tcp" }\n'
        for on_unhealthy in ("keep", "reset"):
            with self.subTest(on_unhealthy=on_unhealthy):
                self.serve_with(with_keys(f'{health}on_unhealthy = "{on_unhealthy}"'))
                clients = self.clients(20)
                met = [client.get(1) for client in clients]
                self.set_healthy(FIRST, False)
                for client, server in zip(clients, met):
                    if server == FIRST and on_unhealthy == "reset":
                        self.assertRaises(ConnectionResetError, client.get, 1)
                    else:
                        self.assertEqual(client.get(1), server)
                moved = self.stop()["connections"]["closed"].get("moved", 0)
                self.assertEqual(moved, met.count(FIRST) if on_unhealthy == "reset" else 0)

    def test_a_syn_that_nobody_answers_goes_elsewhere(self):
        """The client's retransmitted SYN goes to another backend if the first backend is unhealthy or removed."""
        for way in ("unhealthy", "removed"):
            with self.subTest(way=way):
                self.serve_with()
                self.without_address(SECOND)
                with self.network_.client:
                    waiting = [socket.socket() for _ in range(20)]
                for tcp in waiting:
                    self.addCleanup(tcp.close)
                    tcp.setblocking(False)
                    tcp.connect_ex((IPV4["service"], PORT))
                self.wait_until(lambda: 0 < len(self.ask("GET /connections", state="established")) < 20)
                if way == "unhealthy":
                    self.set_healthy(SECOND, False)
                else:
                    self.reload(without(SECOND))
                for tcp in waiting:
                    self.assertTrue(select.select([], [tcp], [], 10)[1], "a client still waits for its connection")
                    self.assertEqual(tcp.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR), 0)
                self.stop()

    def test_udp_of_a_removed_backend(self):
        for moves in ("true", "false"):
            with self.subTest(moves=moves):
                keys = f"move_udp = {moves}"
                self.serve_with(with_keys(keys))
                flows = [self.datagram_socket() for _ in range(20)]
                met = [self.echo(udp, 4, 100) for udp in flows]
                self.assertEqual(set(met), {FIRST, SECOND})
                self.reload(with_keys(keys, without(FIRST)))
                now = [self.echo(udp, 4, 100) for udp in flows]
                self.assertEqual(now, [SECOND] * 20 if moves == "true" else met)
                self.stop()

    def test_a_backends_packets_do_not_leave_with_its_address(self):
        """Each backend sends a client a datagram that belongs to no connection. The datagram from the backend to which consistent
        hashing sends that client may be a reply, and gets the service's address. The other backend's datagram is dropped as a
        stray reply, or with `direct` leaves with the backend's own address."""
        self.serve_with()
        udp = self.datagram_socket(port=5555)
        udp.settimeout(0.5)
        for direct in (False, True):
            with self.subTest(direct=direct):
                if direct:
                    self.reload(with_keys("direct = true"))
                for server in IPV4["servers"]:
                    self.servers.datagrams(4, server).sendto(b"x", (IPV4["client"], 5555))
                come = {udp.recvfrom(100)[1]}
                if direct:
                    come.add(udp.recvfrom(100)[1])
                self.assertRaises(TimeoutError, udp.recv, 100)
                by_hash = (IPV4["service"], PORT)
                self.assertIn(by_hash, come)
                self.assertTrue(come - {by_hash} <= {(FIRST, SERVER_PORT), (SECOND, SERVER_PORT)})
                self.assertEqual(self.dropped("stray_reply"), 1)


if __name__ == "__main__":
    main()
