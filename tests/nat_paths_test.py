#!/usr/bin/env python3
"""Tests what the way through the NAT of `millrace run` does to real endpoints: traceroute, path MTU discovery, fragments, and packets to
public addresses that nothing takes.

    client ─ millrace ─ router (the servers' namespace) ─ link with an MTU of 1000 ─ far

    nat_paths_test.py MILLRACE [TEST...]
"""

import contextlib
import errno
import re
import shutil
import socket
import subprocess
import unittest

import nat_packets as make
from asked import Asked
from live import main
from namespaces import Namespace, ip, set_sysctls
from nat_test import A, configuration
from network import payload

FAR, NEAR_FAR = "203.0.113.1", "203.0.113.254"
ROUTES = f'[[route]]\nprefix = "203.0.113.0/24"\nvia = "{A["servers"][0]}"\n'
IP_MTU_DISCOVER, IP_MTU, DO, DO_NOT = 10, 14, 2, 0
IPV4_FRAMES = 0x0800


class Paths(Asked):
    def serve_far(self, pool="", extra="", workers=2):
        """Starts millrace, and the router with the host `far` behind it."""
        self.serve_with(configuration(workers=workers, pool=pool, extra=ROUTES + extra))
        self.far = Namespace()
        self.addCleanup(self.far.close)
        with self.network_.servers:
            set_sysctls({"ipv4/ip_forward": 1, "ipv4/icmp_ratelimit": 0})
            ip(f"link add on mtu 1000 type veth peer name wire mtu 1000 netns {self.far.path}")
            ip(f"address add {NEAR_FAR}/24 dev on")
            ip("link set on up")
        with self.far:
            set_sysctls({"ipv4/icmp_ratelimit": 0})
            ip("link set lo up")
            ip(f"address add {FAR}/24 dev wire")
            ip("link set wire up")
            ip(f"route add default via {NEAR_FAR}")

    def udp(self, namespace, end=None):
        made = self.socket_in(namespace, socket.AF_INET, socket.SOCK_DGRAM)
        if end:
            made.bind(end)
        return made

    def sniffer(self, namespace, link):
        made = self.socket_in(namespace, socket.AF_PACKET, socket.SOCK_RAW, socket.htons(IPV4_FRAMES))
        made.bind((link, IPV4_FRAMES))
        return made

    def test_rfc5508_req4_errors_of_routers_quote_the_insides_own_packet(self):
        """Each router on the way, millrace too, says that the hop limit is exceeded, and quotes the packet as the inside has sent it."""
        self.serve_far()
        errors = self.socket_in(self.network_.client, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        asking = self.udp(self.network_.client, (A["client"], 0))
        for hops, sender, kind in ((1, A["outside"], (11, 0)), (2, A["servers"][0], (11, 0)), (3, FAR, (3, 3))):
            asking.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, hops)
            asking.sendto(payload(40), (FAR, 33434))
            error, (address, _) = errors.recvfrom(2000)
            self.assertEqual((address, (error[20], error[21])), (sender, kind))
            self.assertEqual(make.internet_checksum(error[20:]), 0)
            quote = error[28:]
            inside, to = (socket.inet_aton(A["client"]), asking.getsockname()[1]), (socket.inet_aton(FAR), 33434)
            self.assertEqual((quote[12:16], quote[16:20]), (inside[0], to[0]))
            sent = make.udp(inside, to, payload(40))
            self.assertEqual(quote[20:24], sent[20:24])
            self.assertIn(quote[26:28], (sent[26:28], b"\0\0"))
            self.assertEqual(make.internet_checksum(quote[:20]), 0)

    @unittest.skipUnless(shutil.which("traceroute"), "no traceroute here")
    def test_traceroute(self):
        self.serve_far()
        for how in ((), ("-I",), ("-T", "-p", "9")):
            with self.network_.client:
                done = subprocess.run(["traceroute", "-n", "-q", "1", "-w", "3", "-m", "5", *how, FAR], capture_output=True, text=True, timeout=60,
                                      check=False)
            hops = re.findall(r"^ *\d+ +(\S+)", done.stdout, re.MULTILINE)
            self.assertEqual(hops, [A["outside"], A["servers"][0], FAR], done.stdout + done.stderr)

    def limited(self, link_mtu, namespace, address):
        """Checks that a customer's datagrams that may not be divided learn the MTU of the way, and that others arrive."""
        listening = self.udp(namespace, (address, 5353))
        strict = self.udp(self.network_.client)
        strict.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, DO)
        strict.connect((address, 5353))

        def knows():
            with contextlib.suppress(OSError):
                strict.send(payload(1400))
            return strict.getsockopt(socket.IPPROTO_IP, IP_MTU) == link_mtu

        self.wait_until(knows)
        with self.assertRaises(OSError) as refused:
            strict.send(payload(1400))
        self.assertEqual(refused.exception.errno, errno.EMSGSIZE)
        strict.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)  # of the ICMP errors until then
        strict.send(payload(link_mtu - 28))
        self.assertEqual(listening.recv(2000), payload(link_mtu - 28))
        lax = self.udp(self.network_.client)
        lax.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, DO_NOT)
        for size in (1400, 1401, 1402):
            lax.sendto(payload(size), (address, 5353))
            self.assertEqual(listening.recv(2000), payload(size))

    def test_path_mtu_of_a_link_outside(self):
        """An ICMP error of a router outside reaches the customer, for UDP and for TCP."""
        self.serve_far()
        self.limited(1000, self.far, FAR)
        listening = self.socket_in(self.far, socket.AF_INET, socket.SOCK_STREAM)
        listening.bind((FAR, 80))
        listening.listen()
        sending = self.socket_in(self.network_.client, socket.AF_INET, socket.SOCK_STREAM)
        sending.connect((FAR, 80))
        accepted, source = listening.accept()
        self.addCleanup(accepted.close)
        accepted.settimeout(10)
        self.assertTrue(source[0].startswith("10.0.0."))
        data = payload(200_000)
        sending.sendall(data)
        received = b""
        while len(received) < len(data):
            received += accepted.recv(65536)
        self.assertEqual(received, data)

    def test_rfc4787_req13_and_req13a_the_mtu_of_our_own_link(self):
        """Towards a smaller link millrace answers what may not be divided, quoting the inside's packet, and divides the rest in order."""
        text = configuration(workers=1).replace('device = "af_packet:inside"', 'device = "af_packet:inside"\nmtu = 1000')
        self.serve_with(text)
        seen = self.sniffer(self.network_.servers, "wire")
        self.limited(1000, self.network_.servers, A["servers"][0])
        offsets, frame = [], b""
        with contextlib.suppress(TimeoutError):
            seen.settimeout(0.5)
            while True:
                frame = seen.recv(2000)
                if frame[23] == socket.IPPROTO_UDP and frame[30:34] == socket.inet_aton(A["servers"][0]):
                    word = int.from_bytes(frame[20:22], "big")
                    if word & 0x3FFF:
                        offsets.append(((word & 0x1FFF) * 8, bool(word & make.MORE), frame[26:30]))
        self.assertEqual([(offset, more) for offset, more, _ in offsets], [(0, True), (976, False)] * 3)
        self.assertEqual(len({source for _, _, source in offsets}), 1)
        self.assertNotEqual(offsets[0][2], socket.inet_aton(A["client"]))

    def test_rfc5508_req4_and_packets_that_nothing_takes_do_not_come_back(self):
        """Under a default route to the router that sends them: packets to public addresses without a mapping are never forwarded."""
        for pool in ("10.0.0.192/28", "203.0.113.64/28"):
            text = configuration().replace("10.0.0.192/28", pool) + f'[[route]]\nprefix = "0.0.0.0/0"\nvia = "{A["servers"][0]}"\n'
            self.serve_with(text)
            raw = self.socket_in(self.network_.servers, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
            with self.network_.servers:
                if pool.startswith("203"):
                    ip(f"route add {pool} via {A['inside']}")
            address = pool.rpartition(".")[0] + (".200" if pool.startswith("10") else ".70")
            to, source = socket.inet_aton(address), socket.inet_aton(A["servers"][0])
            sent = make.udp((to, 5555), (source, 53), b"x")
            strays = [
                make.udp((source, 53), (to, 5555)), make.tcp((source, 53), (to, 5555), make.SYN), make.tcp((source, 53), (to, 5555), make.ACK),
                make.error(source, to, 3, 3, sent), make.error(source, to, 3, 3, make.udp((source, 5555), (to, 53))), make.error(source, to, 5, 1, sent),
                make.error(source, to, 11, 0, b"short"), make.error(source, to, 9, 0, b""), make.query(source, to, 8, 7), make.query(source, to, 0, 7),
                make.ip(source, to, 47, bytes(8)), make.fragments(make.udp((source, 9), (to, 10), bytes(64), 99), (32,))[1],
            ]
            seen = self.sniffer(self.network_.servers, "wire")
            client = self.sniffer(self.network_.client, "wire")
            before = self.ask("GET /stats")["packets"]["in"]
            for packet in strays:
                raw.sendto(packet, (address, 0))
            self.wait_until(lambda: self.ask("GET /stats")["packets"]["in"] >= before + len(strays))
            self.assertEqual(self.ping(self.network_, 4, A["outside"]), 3)  # what was sent before has had its time
            back = []
            for sniffing in (seen, client):
                sniffing.settimeout(0.2)
                with contextlib.suppress(TimeoutError):
                    while True:
                        frame, (_, _, kind, *_) = sniffing.recvfrom(2000)
                        if kind != socket.PACKET_OUTGOING and to in frame[14:80]:
                            back.append(frame.hex())
            self.assertEqual(back, [])
            dropped = self.stop()["packets"]["dropped"]
            self.assertEqual((dropped["no_mapping"], dropped["not_ours"] >= 5), (6, True), dropped)
            seen.close()
            client.close()

    def full(self, pool, extra=""):
        """Starts millrace, and has a customer open 64 sessions, which is all that the pool gives him."""
        self.serve_with(configuration(pool=pool + '\nfiltering = "endpoint-independent"', extra=extra))
        listening = self.server(socket.SOCK_DGRAM)
        asking = [self.udp(self.network_.client) for _ in range(64)]
        for one in asking:
            one.sendto(b"x", (A["servers"][0], 5353))
            _, public = listening.recvfrom(100)
        for one in (listening, *asking):
            one.close()
        return public

    def dropped(self, why):
        return self.ask("GET /stats")["packets"]["dropped"].get(why, 0)

    def test_rfc5508_req8_and_rfc6888_req11_without_a_port_the_sender_is_told(self):
        """An ICMP error, code 13, whatever the protocol; TCP's connection attempts end at once."""
        for pool, why in (("block_size = 64\nblocks_per_customer = 1", "no_port"), ("sessions_per_customer = 64", "customer_limit")):
            self.full(pool)
            errors = self.socket_in(self.network_.client, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
            asking = self.udp(self.network_.client, (A["client"], 0))
            asking.sendto(payload(40), (A["servers"][0], 5353))
            error, (address, _) = errors.recvfrom(2000)
            self.assertEqual((address, error[20], error[21]), (A["outside"], 3, 13))
            self.assertEqual(make.internet_checksum(error[20:]), 0)
            self.assertEqual((error[40:44], error[44:48]), (socket.inet_aton(A["client"]), socket.inet_aton(A["servers"][0])))
            self.assertEqual(int.from_bytes(error[48:50], "big"), asking.getsockname()[1])
            self.assertEqual(self.dropped(why), 1)
            said = self.ask("GET /explain", protocol="udp", source=A["client"], source_port=9, destination=A["servers"][0],
                            destination_port=5353)
            self.assertEqual(said["verdict"], why, said)
            if why == "customer_limit":
                self.assertEqual(self.ping(self.network_, 4, A["servers"][0], patience=0.2), 0)
                for _ in range(3):
                    error = errors.recv(2000)
                    self.assertEqual((error[20], error[21], error[37], error[48]), (3, 13, socket.IPPROTO_ICMP, 8))
                with self.socket_in(self.network_.client, socket.AF_INET, socket.SOCK_STREAM) as connecting, self.assertRaises(OSError) as refused:
                    connecting.connect((A["servers"][0], 9))
                self.assertEqual(refused.exception.errno, errno.EHOSTUNREACH)
            errors.close()
            self.stop()

    def test_rfc5508_req8_who_is_not_told(self):
        """Strangers, whose packets no mapping takes; and nobody if the file says so. A datagram in fragments has one error."""
        address, _ = self.full("sessions_per_customer = 64")
        heard = self.sniffer(self.network_.servers, "wire")
        self.udp(self.network_.servers, (A["servers"][0], 0)).sendto(b"?", (address, 60_000))
        self.wait_until(lambda: self.dropped("no_mapping") == 1)
        self.assertEqual(self.ping(self.network_, 4, A["outside"]), 3)  # what was sent before has had its time
        lax = self.udp(self.network_.client)
        lax.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, DO_NOT)
        errors = self.socket_in(self.network_.client, socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        lax.sendto(payload(4000), (A["servers"][0], 5353))
        self.wait_until(lambda: self.dropped("customer_limit") >= 1)
        self.assertEqual(self.ping(self.network_, 4, A["outside"]), 3)
        for sniffing, expected in ((heard, []), (errors, [(3, 13)])):
            sniffing.setblocking(False)
            found = []
            with contextlib.suppress(BlockingIOError):
                while True:
                    packet = sniffing.recv(2000)
                    at = 14 if sniffing is heard else 0
                    if packet[at + 9] == socket.IPPROTO_ICMP and packet[at + 20] not in (0, 8):
                        found.append((packet[at + 20], packet[at + 21]))
            self.assertEqual(found, expected)
        self.stop()
        self.full("sessions_per_customer = 64", "[host]\nunreachable = false\n")
        asking = self.udp(self.network_.client)
        asking.connect((A["servers"][0], 5353))
        asking.send(b"x")
        self.wait_until(lambda: self.dropped("customer_limit") == 1)
        self.assertEqual(self.ping(self.network_, 4, A["outside"]), 3)
        asking.setblocking(False)
        self.assertRaises(BlockingIOError, asking.recv, 100)

    def test_rfc6888_req5_16001_sessions_of_one_customer(self):
        table = "capacity = 20000\nhalf_open_percent = 100"
        self.serve_with(configuration(workers=1).replace("capacity = 20000", table))
        asking = self.udp(self.network_.client)

        def sessions():
            self.ping(self.network_, 4, A["outside"])  # answered behind what was sent before
            [pool] = self.ask("GET /nat/pools")
            return pool["sessions"]

        port = 1000
        while (missing := 16_000 - sessions()) > 0:  # a busy machine may lose some
            for _ in range(min(missing, 400)):
                port += 1
                with contextlib.suppress(OSError):  # that port is closed
                    asking.sendto(b"x", (A["servers"][0], port))
            self.assertLess(port, 40_000)
        dropped = self.ask("GET /stats")["packets"]["dropped"]
        self.assertEqual(dropped.get("customer_limit", 0), 0)
        for _ in range(3):
            with contextlib.suppress(OSError):
                asking.sendto(b"x", (A["servers"][0], 50_000))
        self.wait_until(lambda: self.ask("GET /stats")["packets"]["dropped"].get("customer_limit", 0) == 3)
        self.assertEqual(sessions(), 16_000)


if __name__ == "__main__":
    main()
