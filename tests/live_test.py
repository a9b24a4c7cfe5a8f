#!/usr/bin/env python3
"""`millrace run` on each kind of interface, and what a user can get wrong when it starts.

    live_test.py MILLRACE [TEST...]
"""

import os
import select
import socket
import subprocess
import time
import unittest

import packets
from cli_case import MILLRACE, UNREADABLE, FAILED, USAGE
from live import ADDRESSES, FAMILIES, PORT, SERVER_PORT, Live, Servers, configuration, main
from namespaces import command, ip


def has_xdp():
    try:
        socket.socket(44, socket.SOCK_RAW).close()  # AF_XDP
        return True
    except OSError:
        return False


class Interfaces(Live):
    def serve(self, outside, inside, **options):
        network = self.network(**options)
        servers = Servers(network)
        self.addCleanup(servers.close)
        self.start(network, configuration(outside, inside))
        if options.get("to_client") == "tap":
            with network.middle:
                ip(f"link set mr0 name wire netns {network.client.path}")
            network.connect_client()
        self.exercise(network)
        stats = self.stop()
        self.assertEqual(stats["packets"]["dropped"].get("malformed", 0), 0)
        self.assertEqual([p["name"] for p in stats["ports"]], ["outside", "inside"])
        self.assertGreater(min(w["packets"] for w in stats["workers"]), 0, "one worker did nothing")
        return network, stats

    def test_af_packet(self):
        network, _ = self.serve("af_packet:outside", "af_packet:inside")
        with network.middle:  # as it was
            self.assertEqual(command("sysctl", "-n", "net.ipv6.conf.outside.disable_ipv6").strip(), "0")
            self.assertNotIn("xdp", ip("link show outside"))

    def test_af_packet_with_large_frames(self):
        self.serve("af_packet:outside", "af_packet:inside", mtu=9000)

    @unittest.skipUnless(has_xdp(), "this kernel has no XDP sockets")
    def test_af_xdp(self):
        self.serve("af_xdp:outside", "af_xdp:inside")

    @unittest.skipUnless(os.path.exists("/dev/net/tun"), "no /dev/net/tun here")
    def test_tap(self):
        self.serve("tap:mr0", "af_packet:inside", to_client="tap")

    def test_an_interface_goes_away(self):
        network = self.network()
        servers = Servers(network)
        self.addCleanup(servers.close)
        self.start(network, configuration("af_packet:outside", "af_packet:inside"))
        self.assertEqual(self.ping(network, 4, ADDRESSES[4]["service"]), 3)
        with network.client:
            ip("link delete wire")
        time.sleep(0.5)
        self.assertEqual([port["link_is_up"] for port in self.stop()["ports"]], [False, True])

    def test_shared_tables(self):
        network = self.network()
        servers = Servers(network)
        self.addCleanup(servers.close)
        text = 'sharing = "lock-free-race"\n' + configuration("af_packet:outside", "af_packet:inside")
        self.start(network, text)
        self.exercise(network)
        self.stop()


class IcmpErrors(Live):
    """The kernels at both ends make errors, and believe those that are about what they sent."""

    MTU = 1400

    def setUp(self):
        super().setUp()
        self.net = self.network()
        # Only the connection's own worker knows its server.
        text = configuration("af_packet:outside", "af_packet:inside")
        self.start(self.net, text.replace("[[service]]", '[[service]]\nscheduler = "round-robin"'))

    def of_client(self, family):
        with self.net.client:
            udp = socket.socket(FAMILIES[family], socket.SOCK_DGRAM)
        self.addCleanup(udp.close)
        udp.settimeout(3)
        udp.connect((ADDRESSES[family]["service"], PORT))
        return udp

    def ask(self, family):
        """A client, the server to which its datagram came, which hears of errors, and whom it answers."""
        udp = self.of_client(family)
        udp.send(b"?")
        server = select.select(self.listening[family], [], [], 3)[0][0]
        return udp, server, server.recvfrom(100)[1]

    def listen(self):
        self.listening = {4: [], 6: []}
        for family, a in ADDRESSES.items():
            for address in a["servers"]:
                with self.net.servers:
                    server = socket.socket(FAMILIES[family], socket.SOCK_DGRAM)
                self.addCleanup(server.close)
                server.settimeout(3)
                server.bind((address, SERVER_PORT))
                level, option = (socket.IPPROTO_IP, 11) if family == 4 else (socket.IPPROTO_IPV6, 25)
                server.setsockopt(level, option, 1)  # IP_RECVERR, IPV6_RECVERR
                self.listening[family].append(server)

    def test_to_clients(self):
        """No server listens."""
        for family in ADDRESSES:
            for _ in range(3):
                udp = self.of_client(family)
                udp.send(b"?")
                with self.assertRaises(ConnectionRefusedError):
                    udp.recv(100)
        self.assertTold(6)

    def test_to_servers(self):
        """The client is gone when it is answered."""
        self.listen()
        for family in ADDRESSES:
            for _ in range(3):
                udp, server, sender = self.ask(family)
                udp.close()
                server.sendto(b"!", sender)
                with self.assertRaises(ConnectionRefusedError):
                    server.recv(100)
                about, _, _, to = server.recvmsg(100, 512, socket.MSG_ERRQUEUE)
                self.assertEqual((about, to[:2]), (b"!", sender[:2]))
        self.assertTold(6)

    def test_path_mtu(self):
        """A router on the way to the client says what fits."""
        self.listen()
        for family, a in ADDRESSES.items():
            udp, server, sender = self.ask(family)
            server.sendto(b"!", sender)
            self.assertEqual(udp.recv(100), b"!")
            ports = PORT.to_bytes(2, "big") + udp.getsockname()[1].to_bytes(2, "big")
            datagram = ports + (9).to_bytes(2, "big") + b"\1\1" + b"!"
            source, client = (socket.inet_pton(FAMILIES[family], a[name]) for name in ("service", "client"))
            with self.net.client:
                raw = socket.socket(FAMILIES[family], socket.SOCK_RAW, 1 if family == 4 else 58)
            self.addCleanup(raw.close)
            if family == 4:
                quote = bytes.fromhex("4500001d00004000 4011 0000") + source + client + datagram
                error = bytes((3, 4, 0, 0, 0, 0)) + self.MTU.to_bytes(2, "big") + quote
                error = error[:2] + packets.checksum(error).to_bytes(2, "big") + error[4:]
            else:
                quote = bytes.fromhex("60000000 0009 1140") + source + client + datagram
                error = bytes(4) + self.MTU.to_bytes(4, "big") + quote
                error = b"\2" + error[1:]  # the kernel adds the checksum
            with self.net.servers:
                self.assertNotIn("mtu", ip(f"route get {a['client']}"))
            raw.sendto(error, (a["service"], 0))
            time.sleep(0.3)
            with self.net.servers:
                self.assertIn(f"mtu {self.MTU}", ip(f"route get {a['client']}"))
        self.assertTold(2)

    def assertTold(self, times):
        """What had to wait for its next hop counts as held."""
        p = self.stop()["packets"]
        self.assertIn(p["related"], range(times - len(ADDRESSES), times + 1), p)


class Errors(Live):
    """What a user can get wrong at start: one line that says what to do."""

    def refused(self, network, status, words, text, user=None):
        path = self.write("f.toml", text)
        with network.middle:
            result = subprocess.run([MILLRACE, "run", "--config", path, "--control", self.path("c")], capture_output=True, text=True,
                                    timeout=60, user=user)
        self.assertEqual(result.returncode, status, result.stderr)
        lines = result.stderr.strip().split("\n")
        self.assertEqual(len(lines), 1, lines)
        for word in words:
            self.assertIn(word, lines[0])

    def test_interfaces(self):
        network = self.network()
        good = configuration("af_packet:outside", "af_packet:inside")
        self.refused(network, UNREADABLE, ["no interface is called eth7", "outside", "inside"],
                     good.replace("af_packet:outside", "af_packet:eth7"))
        self.refused(network, USAGE, ["f.toml:6", "is no device"], good.replace("af_packet:outside", "outside"))
        os.chmod(self.dir, 0o755)
        self.refused(network, UNREADABLE, ["CAP_NET_RAW"], good, user=65534)
        with network.middle:
            ip("link set outside down")
        self.refused(network, FAILED, ["outside is down", "ip link set outside up"], good)
        with network.middle:
            ip("link set outside up")
            ip("address add 192.0.2.1/24 dev outside")
        self.refused(network, FAILED, ["192.0.2.1", "ip address flush dev outside"], good)
        with network.middle:
            ip("address flush dev outside")
        self.start(network, good)
        self.refused(network, FAILED, ["another millrace has outside"], good)
        self.stop()

    def test_configuration(self):
        network = self.network()
        good = configuration("af_packet:outside", "af_packet:inside")
        self.refused(network, USAGE, ["no port", "[[port]]"], good.replace("[[port]]", "[[prt]]", 0)
                     .split("[[port]]")[0] + "[[service]]" + good.split("[[service]]", 1)[1])
        self.refused(network, USAGE, ["no service", "[[service]]"], good.split("[[service]]")[0])
        self.refused(network, USAGE, ["pipeline"], 'model = "pipeline"\n' + good)


if __name__ == "__main__":
    main()
