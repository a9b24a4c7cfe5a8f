#!/usr/bin/env python3
"""Tests millrace and the kernel on one card: millrace serves the services, and the kernel handles the machine's own traffic.

    kernel_port_test.py MILLRACE [TEST...]
"""

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import threading
import time
import unittest

import bgp
from cli_case import FAILED, MILLRACE
from live import NO_XDP, has_xdp, main
from namespaces import ip
from network import ADDRESSES, FAMILIES, PORT, SERVER_PORT, OneLink
from one_card import ECHO, ONE_CARD, OWN, OneCard, configuration

SO_RCVBUFFORCE = 33  # <asm-generic/socket.h>; Python does not name it
BFD = 3784
SECONDS_OF_LOAD = 2 * bgp.HOLD_SECONDS + 2


class KernelPort(OneCard):
    def test_one_card_has_a_service_and_the_machine_itself(self):
        for device in ("af_packet:wire", "af_xdp:wire"):
            with self.subTest(device=device):
                if device.startswith("af_xdp") and not has_xdp():
                    self.skipTest(NO_XDP)
                self.serve(configuration(device))
                try:
                    self.check_everything()
                finally:
                    stats = self.stop()
                self.assertGreater(stats["ports"][0]["kernel"]["given"], 100)
                self.assertGreater(stats["ports"][0]["kernel"]["taken"], 100)
                self.assertEqual(stats["ports"][0]["kernel"]["full"], 0)

    def test_the_machine_reaches_who_is_on_the_link(self):
        """Connections from the machine itself, such as health checks, reach the client, and backends at the port at which these serve."""
        self.serve()
        for family, a in ADDRESSES.items():
            with self.network_.client:
                listening = socket.create_server((a["client"], ECHO), family=FAMILIES[family])
            self.addCleanup(listening.close)
            for end in ((a["client"], ECHO), *((server, SERVER_PORT) for server in a["servers"])):
                with self.network_.middle, socket.create_connection(end, timeout=10) as asking:
                    if end[1] == SERVER_PORT:
                        asking.sendall(b"3\n")
                        self.assertEqual(asking.makefile("rb").readline().decode().strip(), end[0])
        self.assertEqual(self.ask("GET /stats")["packets"]["dropped"].get("stray_reply", 0), 0)

    def test_a_service_may_have_the_machines_own_address(self):
        own = ADDRESSES[4]["outside"]
        self.serve(configuration(service=own))
        self.check_session(self.session(4))
        with self.network_.client:
            answers = set()
            for _ in range(10):
                with socket.create_connection((own, PORT), timeout=10) as asking:
                    asking.sendall(b"3\n")
                    answers.add(asking.makefile("rb").readline().decode().strip())
            self.assertEqual(answers, set(ADDRESSES[4]["servers"]))
            with socket.socket() as asking:  # the kernel refuses: neither a service nor a program has this port
                self.assertRaises(ConnectionRefusedError, asking.connect, (own, PORT + 1))

    def test_the_interface_is_as_the_port_is(self):
        self.serve()
        is_now = self.interface()
        with self.network_.middle:
            [wire] = json.loads(ip("-json address show wire"))
        self.assertEqual((is_now["address"], is_now["mtu"]), (wire["address"], wire["mtu"]))
        both = {a[key] for a in ADDRESSES.values() for key in ("outside", "inside")}
        self.assertEqual(self.addresses(), both)
        self.reload(configuration(own=[*OWN, "192.0.2.9/32", "2001:db8:9::9/128"]))
        self.assertEqual(self.addresses(), both | {"192.0.2.9", "2001:db8:9::9"})
        self.reload(ONE_CARD)
        self.assertEqual(self.addresses(), both)
        with self.network_.switch:
            ip("link set port1 down")
        self.wait_until(lambda: "LOWER_UP" not in self.interface()["flags"])
        with self.network_.switch:
            ip("link set port1 up")
        self.wait_until(lambda: "LOWER_UP" in self.interface()["flags"])
        self.check_everything()

    def test_addresses_change_and_routes_stay(self):
        self.serve()
        a = ADDRESSES[4]
        old, new = f"{a['outside']}/{a['bits']}", "198.51.100.77/24"
        with self.network_.middle:
            ip(f"route add 192.0.2.0/24 via {a['client']} dev mr0")
        v4 = [new, *(address for address in OWN if ":" not in address and address != old)]
        self.reload(configuration(own=v4))
        self.assertEqual({one["local"] for one in self.interface()["addr_info"]}, {a["inside"], "198.51.100.77"})
        with self.network_.middle:
            self.assertIn("mr0", ip("route show 192.0.2.0/24"))
        self.assertEqual(self.ping(self.network_, 4, "198.51.100.77"), 3)
        self.reload(ONE_CARD)
        self.check_everything()

    def test_who_does_not_take_over_leaves_addresses_as_they_were(self):
        self.serve()
        before = self.addresses()
        other = configuration(own=OWN[:1]).replace("capacity = 20000", "capacity = 1800000000")
        with self.network_.middle:
            self.refuse(FAILED, ["memory"], "run", "--config", self.write("other.toml", other), "--control",
                        self.control, "--take-over")
        self.wait_until(lambda: self.addresses() == before)
        self.check_everything()

    def test_only_millrace_gives_addresses(self):
        """A router advertisement must give the interface no address, since millrace would not know that address."""
        self.serve()
        prefix = struct.pack("!BBBBIII", 3, 4, 64, 0xC0, 3600, 3600, 0) + socket.inet_pton(
            socket.AF_INET6, "2001:db8:77::")
        advertisement = struct.pack("!BBHBBHII", 134, 0, 0, 64, 0, 1800, 0, 0) + prefix

        def heard():
            with self.network_.middle, open("/proc/net/dev_snmp6/mr0", encoding="ascii") as file:
                counts = dict(line.split() for line in file)
            return int(counts["Icmp6InRouterAdvertisements"]) > 0

        with self.network_.client:
            ip("address add fe80::77/64 dev wire nodad")
            index = socket.if_nametoindex("wire")
            with socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) as router:
                router.bind(("fe80::77", 0, 0, index))
                router.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 255)
                router.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
                router.sendto(advertisement, ("ff02::1", 0))
        self.wait_until(heard)
        with self.network_.middle:
            self.assertIn("fe80::77", ip("-6 route show default"), "the kernel has not accepted the advertisement")
        self.assertEqual(self.addresses(), {address.split("/")[0] for address in OWN})

    def test_the_kernel_hears_the_links_groups(self):
        self.serve()
        with self.network_.middle:
            index = socket.if_nametoindex("mr0")
            v4, v6 = (socket.socket(family, socket.SOCK_DGRAM) for family in FAMILIES.values())
            for udp in (v4, v6):
                self.addCleanup(udp.close)
                udp.settimeout(10)
            v4.bind(("", 5000))
            v6.bind(("", 5001))
            member = socket.inet_aton("224.0.0.18") + struct.pack("=4si", bytes(4), index)
            v4.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
            member = socket.inet_pton(socket.AF_INET6, "ff02::12") + struct.pack("=i", index)
            v6.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, member)
        with self.network_.client:
            index = socket.if_nametoindex("wire")
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
                udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF,
                               struct.pack("=4s4si", bytes(4), bytes(4), index))
                udp.sendto(b"to a group", ("224.0.0.18", 5000))
            with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as udp:
                udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
                udp.sendto(b"to a group", ("ff02::12", 5001))
        self.assertEqual((v4.recv(100), v6.recv(100)), (b"to a group", b"to a group"))

    def test_sessions_outlive_who_takes_over(self):
        self.serve()
        sessions = [self.session(family) for family in FAMILIES]
        for _ in range(2):
            self.take_over(ONE_CARD)
            for session in sessions:
                self.check_session(session)
        self.check_everything()

    def test_sessions_outlive_who_is_killed(self):
        self.serve()
        sessions = [self.session(family) for family in FAMILIES]
        self.process.kill()
        self.process.communicate()
        self.start(self.network_, ONE_CARD)
        for session in sessions:
            self.check_session(session)
        self.check_everything()

    def test_who_follows_a_killed_one_puts_back_what_that_changed(self):
        network = OneLink(direct=False)
        self.addCleanup(network.close)
        self.network_ = network
        before = self.settings()
        for _ in range(2):  # the second process is killed, too
            self.start(network, ONE_CARD)
            self.assertNotEqual(self.settings(), before)
            self.process.kill()
            self.process.communicate()
        self.start(network, ONE_CARD)
        self.take_over(ONE_CARD)
        self.assertTrue(os.path.exists(self.control + ".interfaces"))
        self.stop()
        self.assertEqual(self.settings(), before)
        self.assertFalse(os.path.exists(self.control + ".interfaces"))

    def test_who_is_refused_changes_nothing(self):
        """A second millrace, started by mistake, is refused: it makes no interface, and the first still restores settings."""
        self.serve()
        before = self.settings()
        other = ONE_CARD.replace("af_packet:wire", "null").replace('kernel = "mr0"', "")
        taps = ONE_CARD.replace("af_packet:wire", "tap:mr7").replace('"mr0"', '"mr8"')
        with self.network_.middle:
            for text in (other, taps):
                self.refuse(FAILED, ["has the control socket"], "run", "--config", self.write("other.toml", text),
                            "--control", self.control)
            self.assertNotIn("mr8", ip("link show"))
            larger = self.write("other.toml", taps.replace("capacity = 20000", "capacity = 1800000000"))
            self.refuse(FAILED, ["memory"], "run", "--config", larger, "--control", self.path("other"))
            self.assertNotIn("mr8", ip("link show"))
        self.assertEqual(self.settings(), before)
        self.assertTrue(os.path.exists(self.control + ".interfaces"))
        self.stop()
        self.assertNotEqual(self.settings(), before)

    def test_what_others_do_to_the_interface_is_told(self):
        self.serve()
        [port] = self.ask("GET /stats")["ports"]
        self.assertEqual((port["foreign"], port["kernel"]["foreign"], port["kernel"]["gone"]), ([], [], False))
        with self.network_.middle:
            ip("address add 192.0.2.50/24 dev mr0")
            ip("address add 192.0.2.51/32 dev wire")
        [port] = self.ask("GET /stats")["ports"]
        self.assertEqual((port["foreign"], port["kernel"]["foreign"]), (["192.0.2.51"], ["192.0.2.50"]))
        self.reload(ONE_CARD)
        self.assertEqual(self.of_kernel()["foreign"], [])
        with self.network_.middle:
            ip("link delete mr0")
        self.wait_until(lambda: self.of_kernel()["gone"])
        self.assertEqual({client.get(1000) for client in self.clients(20)}, set(ADDRESSES[4]["servers"]))

    def test_frames_that_do_not_fit_go_no_further(self):
        self.serve()
        with self.network_.middle:
            ip("link set mr0 mtu 4000")
            udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(udp.close)
        udp.sendto(bytes(3000), (ADDRESSES[4]["client"], 9))
        self.wait_until(lambda: self.of_kernel()["too_long"] == 1)
        with self.network_.middle:
            ip("link set mr0 mtu 1500")
        self.check_everything()

    def test_an_address_that_another_interface_has_is_told(self):
        self.serve()
        self.take_over(ONE_CARD.replace('"mr0"', '"mr1"'))
        said = "".join(self.said)
        for a in ADDRESSES.values():
            self.assertIn(f"mr0 and mr1 both have {a['outside']}", said)

    def test_datagrams_outlive_who_takes_over(self):
        """While the old and the new process both run, each process reads a part of the kernel's datagrams; no datagram may be lost."""
        self.serve()
        with self.network_.client:
            hearing = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(hearing.close)
        hearing.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 24)
        hearing.bind((ADDRESSES[4]["client"], ECHO))
        hearing.settimeout(2)
        with self.network_.middle:
            saying = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(8)]
        ended, sent, heard = threading.Event(), [], set()

        def say():
            while not ended.is_set():
                for udp in saying:
                    udp.sendto(b"%d" % len(sent), (ADDRESSES[4]["client"], ECHO))
                    sent.append(b"%d" % len(sent))
                time.sleep(0.02)

        def hear():
            while not ended.is_set():
                hear_some()
            hear_some()

        def hear_some():
            with contextlib.suppress(TimeoutError):
                while True:
                    heard.add(hearing.recv(100))

        both = [threading.Thread(target=one) for one in (say, hear)]
        for one in both:
            one.start()
        try:
            for _ in range(3):
                self.take_over(ONE_CARD)
        finally:
            ended.set()
            for one in both:
                one.join()
        for udp in saying:
            udp.close()
        self.assertEqual(set(sent) - heard, set())

    def test_a_flood_to_the_machine_starves_nobody(self):
        self.serve()
        end = self.transferring(10)
        with self.network_.client:
            udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with udp:
            udp.connect((ADDRESSES[4]["outside"], 9))
            for _ in range(30_000):
                with contextlib.suppress(OSError):  # an ICMP error may come, as no program listens
                    udp.send(bytes(64))
        self.assertEqual(end(), [])
        self.check_session(self.session(4))  # TCP retransmits until the rest of the flood is through
        self.check_everything()
        stats = self.stop()
        of_kernel = stats["ports"][0]["kernel"]
        self.assertGreater(of_kernel["given"], 1000)
        self.assertLessEqual(stats["packets"]["dropped"].get("kernel_full", 0), of_kernel["full"])

    def test_network_control_survives_an_overload(self):
        """A datagram of BFD arrives that comes when the rings are full."""
        self.serve()
        a, ports = ADDRESSES[4], (BFD, BFD + 100)
        with self.network_.middle:
            listening = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in ports]
        with self.network_.client:
            flooding = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(64)]
        for one in (*listening, *flooding):
            self.addCleanup(one.close)
        for one, port in zip(listening, ports):
            one.bind((a["outside"], port))
            one.settimeout(10)
        for one in flooding:
            one.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, 255)  # RFC 5881, 5: others do not count as BFD
            one.connect((a["outside"], ports[0]))
        flooding[0].send(b"before")
        self.assertEqual(listening[0].recv(10), b"before")
        self.process.send_signal(signal.SIGSTOP)
        for one in flooding[1:]:
            one.connect((a["outside"], 9))
            for _ in range(500):
                one.send(bytes(32))
        for port in ports:
            flooding[0].connect((a["outside"], port))
            flooding[0].send(b"in it")
        self.process.send_signal(signal.SIGCONT)
        self.assertEqual(listening[0].recv(10), b"in it")
        listening[1].settimeout(1)
        self.assertRaises(TimeoutError, listening[1].recv, 10)

    @unittest.skipIf(bgp.MISSING, bgp.MISSING)
    def test_a_routing_daemon_keeps_its_session_under_load(self):
        self.serve()
        a = ADDRESSES[4]
        session = bgp.Session(self.dir, [(self.network_.middle, a["outside"]), (self.network_.client, a["client"])])
        self.addCleanup(session.close)
        self.wait_until(session.is_up, 60)
        before = self.ask("GET /stats")["packets"]["in"]
        end = self.transferring(20)
        with self.network_.client:
            udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with udp:
            udp.connect((a["service"], 9))  # a port without a service: these packets only make the card busy
            until = time.monotonic() + SECONDS_OF_LOAD
            while time.monotonic() < until:
                for _ in range(1000):
                    with contextlib.suppress(OSError):
                        udp.send(bytes(64))
        self.assertEqual(end(), [])
        self.assertGreater(self.ask("GET /stats")["packets"]["in"] - before, 100_000)
        self.assertTrue(session.is_up())

    def test_what_cannot_be_made(self):
        network = OneLink(direct=False)
        self.addCleanup(network.close)
        with network.middle:
            ip("link add there type bridge")
            for name, words in (("there", ["there", "another name"]), ("wire", ["own device"])):
                done = subprocess.run([MILLRACE, "run", "--config", self.write("f.toml", configuration(kernel=name))],
                                      capture_output=True, text=True)
                self.assertIn(done.returncode, (FAILED, 2))
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                for word in words:
                    self.assertIn(word, done.stderr)

    def test_somebody_takes_the_interface_away(self):
        for how in ("link delete mr0", "link set mr0 name mine"):
            with self.subTest(how=how):
                self.serve()
                with self.network_.middle:
                    ip("link set mr0 down")
                    ip(how)
                    ip("link add mr0 type bridge")
                    ip("address add 192.168.7.1/24 dev mr0")
                self.reload(configuration(own=[*OWN, "192.0.2.9/32"]))
                for family in FAMILIES:
                    self.clients(1, family)[0].get(1)
                self.assertEqual(self.addresses(), {"192.168.7.1"}, "millrace must leave another program's new interface of that name alone")
                self.stop()

    def test_addresses_stay_while_the_interface_is_down(self):
        self.serve()
        before = self.addresses()
        with self.network_.middle:
            ip("link set mr0 down")
            ip("link set mr0 up")
        self.assertEqual(self.addresses(), before)
        self.check_everything()

    def test_another_millrace_cannot_have_it(self):
        self.serve()
        before = self.addresses()
        with self.network_.middle:
            ip("link add other type veth peer name end")
            ip("link set other up")
            other = configuration("af_packet:other").replace("198.51.100.2/24", "192.0.2.9/24")
            done = self.run_it("run", "--config", self.write("g.toml", other), "--control", "none")
        self.assertEqual((done.returncode, done.stderr),
                         (FAILED, "millrace: another millrace has mr0: stop that millrace first, or take over from it (--take-over)\n"))
        self.assertEqual(self.addresses(), before)
        self.take_over(ONE_CARD)  # the new process takes over the interface
        self.check_everything()


if __name__ == "__main__":
    main()
