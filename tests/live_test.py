#!/usr/bin/env python3
"""`millrace run` on each kind of interface, and what a user can get wrong when it starts.

    live_test.py MILLRACE [TEST...]
"""

import os
import socket
import subprocess
import time
import unittest

from cli_case import MILLRACE, UNREADABLE, FAILED, USAGE
from live import ADDRESSES, Live, Servers, configuration, main
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
