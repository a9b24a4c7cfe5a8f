#!/usr/bin/env python3
"""Tests `millrace run` on each kind of interface, and its messages about a user's mistakes at the start.

    live_test.py MILLRACE [TEST...]
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import time
import unittest

import packets
from asked import GOOD, Asked
from cli_case import MILLRACE, UNREADABLE, FAILED, USAGE
from live import NO_XDP, Live, has_xdp, main
from namespaces import command, ip
from network import ADDRESSES, FAMILIES, PORT, SERVER_PORT, Servers, configuration


class Interfaces(Asked):
    def serve(self, outside, inside, **options):
        self.serve_with(configuration(outside, inside), **options)
        network = self.network_
        if options.get("to_client") == "tap":
            with network.middle:
                ip(f"link set mr0 name wire netns {network.client.path}")
            network.connect_client()
        self.exercise(network)
        stats = self.stop()
        self.assertEqual(stats["packets"]["dropped"].get("malformed", 0), 0)
        self.assertEqual([p["name"] for p in stats["ports"]], ["outside", "inside"])
        self.assertGreater(min(w["packets"] for w in stats["workers"]), 0, "a worker received no packets")

    def test_af_packet(self):
        self.serve("af_packet:outside", "af_packet:inside")
        with self.network_.middle:  # millrace has restored the settings
            self.assertEqual(command("sysctl", "-n", "net.ipv6.conf.outside.disable_ipv6").strip(), "0")
            self.assertNotIn("xdp", ip("link show outside"))

    def test_two_signals_at_once_are_one(self):
        """Two signals within a moment are handled as one: the program `timeout` sends two."""
        self.serve_with()
        setting = "net.ipv6.conf.outside.disable_ipv6"
        with self.network_.middle:
            self.assertEqual(command("sysctl", "-n", setting).strip(), "1")
        self.process.send_signal(signal.SIGTERM)
        time.sleep(0.02)  # the kernel would merge two pending signals
        self.stop()
        with self.network_.middle:
            self.assertEqual(command("sysctl", "-n", setting).strip(), "0")

    def test_af_packet_with_large_frames(self):
        self.serve("af_packet:outside", "af_packet:inside", mtu=9000)

    @unittest.skipUnless(has_xdp(), NO_XDP)
    def test_af_xdp(self):
        self.serve("af_xdp:outside", "af_xdp:inside")

    @unittest.skipUnless(os.path.exists("/dev/net/tun"), "no /dev/net/tun here")
    def test_tap(self):
        self.serve("tap:mr0", "af_packet:inside", to_client="tap")

    def test_an_interface_goes_away(self):
        self.serve_with()
        self.assertEqual(self.ping(self.network_, 4, ADDRESSES[4]["service"]), 3)
        with self.network_.client:
            ip("link delete wire")
        self.wait_until(lambda: not self.ask("GET /stats")["ports"][0]["link_is_up"])
        self.assertEqual([port["link_is_up"] for port in self.stop()["ports"]], [False, True])

    def test_packets_that_wait_for_their_next_hop(self):
        """Packets that wait leave before packets that arrive once the next hop is known. The kernels at both ends know
        millrace's MAC from the start, since a kernel's own waiting packets do not always keep their order."""
        network = self.network_ = self.network()
        servers = Servers(network)
        self.addCleanup(servers.close)
        for namespace, name in ((network.client, "outside"), (network.servers, "inside")):
            with network.middle:
                mac = json.loads(command("ip", "-json", "link", "show", name))[0]["address"]
            with namespace:
                ip(f"neigh replace {ADDRESSES[4][name]} lladdr {mac} dev wire nud permanent")
        for _ in range(5):
            self.start(network, 'sharing = "sharded"\n' + GOOD)
            with network.client:
                udp = socket.socket(FAMILIES[4], socket.SOCK_DGRAM)
            with udp:
                udp.connect((ADDRESSES[4]["service"], PORT))
                udp.setblocking(False)
                numbers = []
                for number in range(1000):
                    with contextlib.suppress(BlockingIOError):
                        udp.send(str(number).encode())
                    if number % 10 == 9:
                        time.sleep(0.0005 if number < 990 else 0.5)
                        with contextlib.suppress(BlockingIOError):
                            while True:
                                numbers.append(int(udp.recv(100).split()[1]))
            self.assertGreater(len(numbers), 0)
            self.assertEqual(numbers, sorted(numbers))
            self.stop()

    def test_tables_of_their_own(self):
        self.serve_with('sharing = "sharded"\n' + GOOD)
        self.exercise(self.network_)
        self.stop()


class IcmpErrors(Live):
    """The kernels at both ends send ICMP errors, and accept only errors about packets that they have sent."""

    MTU = 1400

    def setUp(self):
        super().setUp()
        self.net = self.network()
        self.again = 0  # attempts that were repeated after a loss
        # With tables of each worker's own, and round robin, only the worker that has a connection knows the connection's server.
        self.start(self.net, 'sharing = "sharded"\n' + GOOD.replace("[[service]]", '[[service]]\nscheduler = "round-robin"'))

    def until_heard(self, attempt):
        """Repeats `attempt` while it times out, for 20 s at most, since a busy machine loses packets. Returns its result."""
        deadline = time.monotonic() + 20
        while True:
            try:
                return attempt()
            except TimeoutError:
                self.again += 1
                self.assertLess(time.monotonic(), deadline, "no attempt succeeded")

    def of_client(self, family):
        with self.net.client:
            udp = socket.socket(FAMILIES[family], socket.SOCK_DGRAM)
        self.addCleanup(udp.close)
        udp.settimeout(3)
        udp.connect((ADDRESSES[family]["service"], PORT))
        return udp

    def ask(self, family):
        """Sends a datagram; returns the client's socket, the server's socket that received the datagram, and the datagram's
        sender as the server sees it."""
        udp = self.of_client(family)
        udp.send(b"?")
        met = select.select(self.listening[family], [], [], 3)[0]
        if not met:
            raise TimeoutError
        return udp, met[0], met[0].recvfrom(100)[1]

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
        """No server listens: errors about the clients' datagrams reach the clients."""
        def attempt(family):
            udp = self.of_client(family)
            udp.send(b"?")
            with self.assertRaises(ConnectionRefusedError):
                udp.recv(100)

        for family in ADDRESSES:
            for _ in range(3):
                self.until_heard(lambda: attempt(family))
        self.assertTold(6)

    def test_to_servers(self):
        """The client has closed its socket before the reply arrives: the error reaches the server."""
        self.listen()

        def attempt(family):
            udp, server, sender = self.ask(family)
            udp.close()
            server.sendto(b"!", sender)
            with self.assertRaises(ConnectionRefusedError):
                server.recv(100)
            about, _, _, to = server.recvmsg(100, 512, socket.MSG_ERRQUEUE)
            self.assertEqual((about, to[:2]), (b"!", sender[:2]))

        for family in ADDRESSES:
            for _ in range(3):
                self.until_heard(lambda: attempt(family))
        self.assertTold(6)

    def test_path_mtu(self):
        """A router between millrace and the client reports a smaller MTU: the server's kernel learns this MTU."""
        self.listen()

        def answered(family):
            udp, server, sender = self.ask(family)
            server.sendto(b"!", sender)
            self.assertEqual(udp.recv(100), b"!")
            return udp

        for family, a in ADDRESSES.items():
            udp = self.until_heard(lambda: answered(family))
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
            route = f"route get {a['client']}"
            with self.net.servers:
                self.assertNotIn("mtu", ip(route))
            self.until_heard(lambda: self.tell(raw, error, a["service"], route))
        self.assertTold(2)

    def tell(self, raw, error, service, route):
        raw.sendto(error, (service, 0))
        deadline = time.monotonic() + 3
        while time.monotonic() < deadline:
            with self.net.servers:
                if f"mtu {self.MTU}" in ip(route):
                    return
            time.sleep(0.05)
        raise TimeoutError

    def assertTold(self, times):
        """Checks that about `times` errors were forwarded. One error in each family may still wait for its next hop's MAC
        (`held`), and repeated attempts may have added errors."""
        p = self.stop()["packets"]
        self.assertIn(p["related"], range(times - len(ADDRESSES), times + self.again + 1), p)


class Errors(Live):
    """A user's mistakes at the start give one line that says what to do."""

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
        self.refused(network, UNREADABLE, ["no interface is called eth7", "outside", "inside"],
                     GOOD.replace("af_packet:outside", "af_packet:eth7"))
        self.refused(network, USAGE, ["f.toml:6", "is no device"], GOOD.replace("af_packet:outside", "outside"))
        self.refused(network, FAILED, ["outside has MTU 1500", "ip link set outside mtu 2000"],
                     GOOD.replace('"af_packet:outside"', '"af_packet:outside"\nmtu = 2000'))
        os.chmod(self.dir, 0o755)
        self.refused(network, UNREADABLE, ["CAP_NET_RAW"], GOOD, user=65534)
        with network.middle:
            ip("link set lo up")
        self.refused(network, FAILED, ["lo is this machine's loopback"], GOOD.replace(":outside", ":lo"))
        with network.middle:
            ip("link set outside down")
        self.refused(network, FAILED, ["outside is down", "ip link set outside up"], GOOD)
        with network.middle:
            ip("link set outside up")
            ip("address add 192.0.2.1/24 dev outside")
        self.refused(network, FAILED, ["192.0.2.1", "ip address flush dev outside, which ends logins over these addresses"], GOOD)
        with network.middle:
            ip("address flush dev outside")
        self.start(network, GOOD)
        self.refused(network, FAILED, ["another millrace has inside"], GOOD)
        self.stop()

    @unittest.skipUnless(os.path.exists("/dev/net/tun"), "no /dev/net/tun here")
    def test_taps(self):
        network = self.network()
        os.chmod(self.dir, 0o755)
        taps = GOOD.replace("af_packet:outside", "tap:mr0").replace("af_packet:inside", "tap:mr1")
        self.refused(network, UNREADABLE, ["tap:mr0", "CAP_NET_ADMIN"], taps, user=65534)
        self.start(network, taps)
        self.refused(network, FAILED, ["another millrace has mr0"], taps)
        self.stop()

    def test_memif(self):
        network = self.network()
        memif = GOOD.replace("af_packet:outside", f"memif:{self.path('m')}").replace("af_packet:inside", "null")
        self.start(network, memif)
        self.refused(network, FAILED, ["another program listens there", "role=client"], memif)
        for _ in range(300):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
                client.connect(self.path("m"))
        self.assertIsNone(self.process.poll(), "millrace ended when clients closed their connections at once")
        process, self.process = self.process, None
        process.kill()  # the memif's socket stays behind
        process.communicate()
        self.assertTrue(os.path.exists(self.path("m")))
        self.start(network, memif)
        self.stop()
        self.assertFalse(os.path.exists(self.path("m")))
        self.start(network, memif.replace('device = "null"', f'device = "memif:{self.path("m")},id=1"'))
        self.assertTrue(os.path.exists(self.path("m")))
        self.stop()
        with open(self.path("capture"), "w") as file:
            file.write("kept")
        self.refused(network, FAILED, ["is not a socket"], memif.replace(self.path("m"), self.path("capture")))
        with open(self.path("capture")) as file:
            self.assertEqual(file.read(), "kept")
        self.refused(network, UNREADABLE, ["longer than"], memif.replace(self.path("m"), "/tmp/" + 100 * "m"))

    def test_a_memif_whose_other_end_dies(self):
        frames = os.path.join(os.path.dirname(os.path.dirname(MILLRACE)), "bench", "live", "frames")
        if not os.path.exists(frames):
            self.skipTest("the program frames is missing: a build with tests makes it")
        sockets = [self.path("out"), self.path("back")]
        text = f"""[host]
idle = "spin"
[[port]]
name = "outside"
device = "memif:{sockets[0]},mac=02:00:00:00:00:02,rsize=13"
addresses = ["198.51.100.2/24"]
[[port]]
name = "inside"
device = "memif:{sockets[1]},rsize=13"
addresses = ["10.0.0.254/24"]
neighbours = [{{ address = "10.0.0.1", mac = "02:00:00:00:00:99" }}]
[[service]]
address = "203.0.113.10"
port = 80
backends = [{{ address = "10.0.0.1" }}]
"""
        self.start(self.network(), text)
        devices = [f"--vdev=net_memif{n},role=client,socket={path},socket-abstract=no,id=0,rsize=13" for n, path in enumerate(sockets)]
        command = [frames, "-l", str(max(os.sched_getaffinity(0))), "--no-pci", "--no-telemetry", "--no-huge", "-m", "512", *devices, "--log-level=1", "--", "1000"]
        for number in range(6):
            process = subprocess.Popen([*command, "10000000", "30"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(0.8 + number / 20)
            process.kill()
            process.wait()
            self.assertIsNone(self.process.poll(), "millrace ended when the other end of the memif died")
        said = subprocess.run([*command, "1000", "1"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, timeout=60)
        self.assertEqual(json.loads(said.stdout)["lost"], 0)
        self.stop()

    def test_configuration(self):
        network = self.network()
        self.refused(network, USAGE, ["no port", "[[port]]"], GOOD.replace("[[port]]", "[[prt]]", 0)
                     .split("[[port]]")[0] + "[[service]]" + GOOD.split("[[service]]", 1)[1])
        self.refused(network, USAGE, ["no service", "[[service]]"], GOOD.split("[[service]]")[0])


if __name__ == "__main__":
    main()
