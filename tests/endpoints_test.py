#!/usr/bin/env python3
"""Tests the firewall of `millrace run` with programs at both ends, over a link that carries less than the others, with and
without VLANs: path MTU discovery, traceroute, datagrams and pings in fragments, passive FTP, and a BGP session of millrace's machine.

    endpoints_test.py MILLRACE [TEST...]

    client ─ millrace ─ near ═ far ─ server        ═: a link of 1,280 bytes; `near` and `far` are the kernel's routers
"""

import contextlib
import ftplib
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
import unittest

import bgp
from asked import Asked
from live import check_possible, main
from namespaces import Namespace, ip, set_sysctls
from network import ADDRESSES, FAMILIES, payload
from vlan_switch import Switch

SMALL = 1280
ECHO, BULK, FTP, PASSIVE = 7, 9, 21, "50000-50009"
BITS = {4: 24, 6: 64}
# Addresses of the routers: on millrace's link, on the small link (near and far), on the server's link, and the server's.
BEHIND = {4: ("10.0.0.1", "10.2.0.1", "10.2.0.2", "10.3.0.254", "10.3.0.1"),
          6: ("fd00::1", "fd00:2::1", "fd00:2::2", "fd00:3::fe", "fd00:3::1")}  # fmt: skip
NETWORKS = {4: ("10.2.0.0/24", "10.3.0.0/24"), 6: ("fd00:2::/64", "fd00:3::/64")}
VLANS = {"outside": 100, "inside": 200}
IP_MTU_DISCOVER, IP_PMTUDISC_DONT = 10, 0


class Way:
    """The namespaces and links of the picture above. `vlans`: millrace's two ports are on one trunk of a switch."""

    def __init__(self, vlans):
        self.client, self.middle, self.near, self.far, self.server = self._all = [Namespace() for _ in range(5)]
        for namespace in self._all:
            with namespace:
                set_sysctls({"ipv6/conf/default/accept_dad": 0, "ipv4/icmp_ratelimit": 0, "ipv6/icmp/ratelimit": 0})
        self._switch = None
        if vlans:
            self._connect_by_switch()
        else:
            for name, end in (("outside", self.client), ("inside", self.near)):
                with self.middle:
                    ip(f"link add {name} type veth peer name wire netns {end.path}")
                    ip(f"link set {name} up")
        with self.near:
            ip(f"link add small mtu {SMALL} type veth peer name small mtu {SMALL} netns {self.far.path}")
        with self.far:
            ip(f"link add wire type veth peer name wire netns {self.server.path}")
        for namespace in self._all:
            with namespace:
                ip("link set lo up")
                if namespace in (self.client, self.near, self.far, self.server):
                    ip("link set wire up")
                if namespace in (self.near, self.far):
                    ip("link set small up")
                    set_sysctls({"ipv4/ip_forward": 1, "ipv6/conf/all/forwarding": 1})
        for family, (near, small, far, end, server) in BEHIND.items():
            a, bits = ADDRESSES[family], BITS[family]
            self._set(self.client, "wire", f"{a['client']}/{bits}", *((n, a["outside"]) for n in NETWORKS[family]),
                      (near, a["outside"]))
            self._set(self.near, "wire", f"{near}/{bits}", (a["client"], a["inside"]))
            self._set(self.near, "small", f"{small}/{bits}", (NETWORKS[family][1], far))
            self._set(self.far, "small", f"{far}/{bits}", (a["client"], small))
            self._set(self.far, "wire", f"{end}/{bits}")
            self._set(self.server, "wire", f"{server}/{bits}", (a["client"], end))

    @staticmethod
    def _set(namespace, interface, address, *routes):
        with namespace:
            ip(f"address add {address} dev {interface} nodad")
            for to, via in routes:
                ip(f"route add {to} via {via}")

    def _connect_by_switch(self):
        switch = Namespace()
        self._all.append(switch)
        with switch:
            set_sysctls({"ipv6/conf/default/disable_ipv6": 1})  # the switch itself sends no frames
            ip(f"link add trunk type veth peer name stick netns {self.middle.path}")
            for n, end in enumerate((self.client, self.near)):
                ip(f"link add port{n} type veth peer name wire netns {end.path}")
                ip(f"link set port{n} up")
            ip("link set trunk up")
            self._switch = Switch("trunk", {vlan: f"port{n}" for n, vlan in enumerate(VLANS.values())})
        with self.middle:
            ip("link set stick up")

    def close(self):
        if self._switch:
            self._switch.close()
        for namespace in self._all:
            namespace.close()


def configuration(vlans, of_outside="", of_inside=""):
    text = 'chain = ["firewall"]\nworkers = 2\n[table]\ncapacity = 20000\n'
    for name, more in (("outside", of_outside), ("inside", of_inside)):
        addresses = ", ".join(f'"{a[name]}/{BITS[family]}"' for family, a in ADDRESSES.items())
        device = f'"af_packet:stick"\nvlan = {VLANS[name]}' if vlans else f'"af_packet:{name}"'
        text += f'[[port]]\nname = "{name}"\ndevice = {device}\naddresses = [{addresses}]\n{more}\n'
        text += f'[[zone]]\nname = "{name}"\nports = ["{name}"]\n'
    for family, networks in NETWORKS.items():
        for network in networks:
            text += f'[[route]]\nprefix = "{network}"\nvia = "{BEHIND[family][0]}"\n'
    return text + f"""
[firewall]
default = "drop"
[[firewall.rule]]
name = "services"
from = "outside"
to = "inside"
protocol = "tcp"
destination_ports = ["{FTP}", "{ECHO}", "{BULK}", "{PASSIVE}"]
action = "accept"
[[firewall.rule]]
name = "datagrams"
from = "outside"
to = "inside"
protocol = "udp"
destination_ports = ["{ECHO}", "33434-33534"]
action = "accept"
[[firewall.rule]]
name = "pings"
icmp = ["echo-request"]
to = "inside"
action = "accept"
[[firewall.rule]]
name = "out"
from = "inside"
to = "outside"
action = "accept"
[[firewall.rule]]
name = "bgp"
from = "outside"
to = "host"
protocol = "tcp"
destination_ports = "179"
action = "accept"
[[firewall.rule]]
name = "own"
from = "host"
action = "accept"
"""


class Ends(Asked):
    vlans = False

    def serve(self, **more):
        self.network_ = Way(self.vlans)
        self.addCleanup(self.network_.close)
        self.start(self.network_, configuration(self.vlans, **more))

    def begin(self, function, *arguments):
        """Starts a thread that does not outlive the test's sockets."""
        thread = threading.Thread(target=function, args=arguments, daemon=True)
        thread.start()
        return thread

    def ends_of(self, family):
        """Returns the two ends, as a namespace and an address each: those of the client and of the server."""
        return (self.network_.client, ADDRESSES[family]["client"]), (self.network_.server, BEHIND[family][4])

    def run_in(self, namespace, *words):
        with namespace:
            return subprocess.run(words, capture_output=True, text=True, timeout=60).stdout

    # --- path MTU discovery

    def transfer_bulk(self, family, begins, listens):
        """Sends data each way over a TCP connection between two ends."""
        with listens[0]:
            listening = socket.create_server((listens[1], BULK), family=FAMILIES[family])
        data = payload(200_000)
        with listening, contextlib.ExitStack() as stack:
            listening.settimeout(20)
            with begins[0]:
                one = stack.enter_context(socket.create_connection((listens[1], BULK), timeout=20))
            other = stack.enter_context(listening.accept()[0])
            for sender, receiver in ((one, other), (other, one)):
                receiver.settimeout(20)
                sending = self.begin(sender.sendall, data)
                got = bytearray()
                while len(got) < len(data):
                    got += receiver.recv(65536)
                self.assertEqual(bytes(got), data)
                sending.join()

    def path_mtu(self, namespace, to):
        words = self.run_in(namespace, "ip", "route", "get", to).split()
        return int(words[words.index("mtu") + 1]) if "mtu" in words else None

    def check_path_mtu(self, **more):
        """Each end begins a connection in turn, so that errors about packets of originators and of replies pass."""
        for family in FAMILIES:
            for order in (1, -1):
                with self.subTest(family=family, begins="client" if order == 1 else "server"):
                    self.serve(**more)
                    client, server = self.ends_of(family)
                    self.transfer_bulk(family, *(client, server)[::order])
                    self.assertEqual(self.path_mtu(client[0], server[1]), SMALL)
                    self.assertEqual(self.path_mtu(server[0], client[1]), SMALL)
                    self.stop()

    def test_a_small_link_behind(self):
        self.check_path_mtu()

    def test_a_small_link_of_millraces_own(self):
        self.check_path_mtu(of_inside=f"mtu = {SMALL}")

    # --- traceroute

    @unittest.skipIf(shutil.which("traceroute") is None, "no traceroute here (Debian's package traceroute)")
    def test_traceroute(self):
        self.serve()
        for family in FAMILIES:
            a, (near, small, far, end, server) = ADDRESSES[family], BEHIND[family]
            there, back = [a["outside"], near, far, server], [end, small, a["inside"], a["client"]]
            (client, _), (servers, _) = self.ends_of(family)
            for namespace, to, hops in ((client, server, there), (servers, a["client"], back)):
                for how in ((), ("-I",)):
                    with self.subTest(to=to, how=how):
                        said = self.run_in(namespace, "traceroute", f"-{family}", "-n", "-q", "1", "-N", "1", "-w", "3", *how, to)
                        self.assertEqual([line.split()[1] for line in said.splitlines()[1:]], hops, said)

    # --- fragments

    def test_large_datagrams(self):
        self.serve()
        for family in FAMILIES:
            (client, _), (servers, server) = self.ends_of(family)
            with client:
                asking = socket.socket(FAMILIES[family], socket.SOCK_DGRAM)
            with servers:
                listening = socket.socket(FAMILIES[family], socket.SOCK_DGRAM)
            for end in (asking, listening):
                self.addCleanup(end.close)
                end.settimeout(1)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
                if family == 4:  # the routers make fragments, too
                    end.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DONT)
            listening.bind((server, ECHO))
            asking.connect((server, ECHO))
            for size in (1200, 1400, 3000, 20_000, 60_000):
                self.assertTrue(self.echoed(asking, listening, payload(size)), (family, size))

    def echoed(self, asking, listening, data):
        """True if a datagram and its echo come through. The first one may be lost, as it may show the path's MTU."""
        for _ in range(5):
            with contextlib.suppress(TimeoutError, OSError):
                asking.send(data)
                got, sender = listening.recvfrom(65536)
                self.assertEqual(got, data)
                listening.sendto(got, sender)
                self.assertEqual(asking.recv(65536), data)
                return True
        return False

    @unittest.skipIf(shutil.which("ping") is None, "no ping here (Debian's package iputils-ping)")
    def test_large_pings(self):
        self.serve()
        for family in FAMILIES:
            (client, a), (servers, server) = self.ends_of(family)
            for namespace, to in ((client, server), (servers, a)):
                with self.subTest(to=to):
                    # The first ones may be lost: a ping and an answer show the MTU of their ways.
                    self.run_in(namespace, "ping", f"-{family}", "-c", "2", "-W", "1", "-s", "65000", to)
                    said = self.run_in(namespace, "ping", f"-{family}", "-c", "3", "-i", "0.2", "-s", "65000", to)
                    self.assertIn("3 received", said)

    # --- FTP

    @unittest.skipIf(importlib.util.find_spec("pyftpdlib") is None, "no pyftpdlib here (Debian's package python3-pyftpdlib)")
    def test_passive_ftp(self):
        self.serve()
        os.mkdir(self.path("ftp"))
        data = payload(300_000)
        with open(self.path("ftp/data"), "wb") as file:
            file.write(data)
        for family in FAMILIES:
            (client, _), (servers, server) = self.ends_of(family)
            with servers:
                daemon = subprocess.Popen(
                    [sys.executable, "-m", "pyftpdlib", "-i", server, "-p", str(FTP), "-r", PASSIVE, "-d", self.path("ftp"), "-w"],
                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.addCleanup(daemon.wait)
            self.addCleanup(daemon.kill)
            with self.subTest(family=family), client:
                ftp = self.connect_ftp(server)
                self.addCleanup(ftp.close)
                ftp.login()
                for _ in range(3):
                    got = bytearray()
                    ftp.retrbinary("RETR data", got.extend)
                    self.assertEqual(bytes(got), data)
                with open(self.path("ftp/data"), "rb") as file:
                    ftp.storbinary(f"STOR copy{family}", file)
            with open(self.path(f"ftp/copy{family}"), "rb") as file:
                self.assertEqual(file.read(), data)

    @staticmethod
    def connect_ftp(server):
        deadline = time.monotonic() + 20
        while True:
            try:
                ftp = ftplib.FTP(timeout=10)
                ftp.connect(server, FTP)
                return ftp
            except ConnectionRefusedError:  # the daemon has not begun to listen
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    # --- BGP

    @unittest.skipIf(bgp.MISSING, bgp.MISSING)
    def test_a_bgp_session_of_the_machine(self):
        """The session lives on while rules deny a flood to the machine."""
        self.serve(of_outside='kernel = "mr0"')
        a = ADDRESSES[4]
        session = bgp.Session(self.dir, [(self.network_.middle, a["outside"]), (self.network_.client, a["client"])])
        self.addCleanup(session.close)
        self.wait_until(session.is_up, 60)
        with self.network_.client:
            flooding = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with flooding:
            flooding.connect((a["outside"], ECHO))
            until = time.monotonic() + 2 * bgp.HOLD_SECONDS + 1
            while time.monotonic() < until:
                for _ in range(1000):
                    flooding.send(bytes(64))
        dropped = self.stop()["packets"]["dropped"]
        self.assertTrue(session.is_up(), dropped)
        self.assertGreater(dropped["denied"], 10_000)


class EndsInVlans(Ends):
    vlans = True


def check():
    check_possible()
    try:
        Way(vlans=True).close()
    except OSError as error:  # the tests in VLANs cannot run
        EndsInVlans.__unittest_skip__, EndsInVlans.__unittest_skip_why__ = True, f"no switch of BPF programs here: {error}"


if __name__ == "__main__":
    main(check)
