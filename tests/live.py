"""For tests of `millrace run` between network namespaces: a client, millrace, two servers.

    client ─ veth or tap ─ millrace ─ veth ─ servers (two addresses of one namespace)

Needs root and ip (iproute2); `main` ends with status 77 where that is missing.
"""

import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import unittest

from cli_case import MILLRACE, Case
from namespaces import CannotTry, Namespace, command, ip

ADDRESSES = {
    4: {
        "client": "198.51.100.1", "outside": "198.51.100.2", "inside": "10.0.0.254", "service": "203.0.113.10",
        "servers": ["10.0.0.1", "10.0.0.2"], "bits": 24, "services": "203.0.113.0/24", "unspecified": "0.0.0.0",
    },
    6: {
        "client": "2001:db8::1", "outside": "2001:db8::2", "inside": "fd00::fe", "service": "2001:db8:1::10",
        "servers": ["fd00::1", "fd00::2"], "bits": 64, "services": "2001:db8:1::/64", "unspecified": "::",
    },
}
FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
PORT, SERVER_PORT = 80, 8080
SIZES = (0, 1, 1000, 1400)  # of datagrams


def configuration(outside, inside, extra=""):
    def of_all(key):
        return ", ".join(f'"{a[key]}/{a["bits"]}"' for a in ADDRESSES.values())

    text = f"""workers = 2
[table]
capacity = 20000
[[port]]
name = "outside"
device = "{outside}"
addresses = [{of_all("outside")}]
[[port]]
name = "inside"
device = "{inside}"
addresses = [{of_all("inside")}]
"""
    for a in ADDRESSES.values():
        for protocol in ("tcp", "udp"):
            backends = ", ".join(f'{{ address = "{s}", port = {SERVER_PORT} }}' for s in a["servers"])
            text += f"""[[service]]
address = "{a['service']}"
port = {PORT}
protocol = "{protocol}"
backends = [{backends}]
"""
    return text + extra


class Network:
    """The namespaces and what connects them. Without a veth to the client, millrace makes a tap, or has one that
    is kept: then the client is in its namespace."""

    def __init__(self, to_client="veth", mtu=1500):
        self.middle, self.servers = Namespace(), Namespace()
        self.client = self.middle if to_client == "kept tap" else Namespace()
        with self.middle:
            if to_client == "kept tap":
                ip("tuntap add wire mode tap multi_queue")
            if to_client == "veth":
                ip(f"link add outside mtu {mtu} type veth peer name wire mtu {mtu} netns {self.client.path}")
                ip("link set outside up")
            ip(f"link add inside mtu {mtu} type veth peer name wire mtu {mtu} netns {self.servers.path}")
            ip("link set inside up")
        with self.servers:
            ip("link set lo up")
            ip("link set wire up")
            for a in ADDRESSES.values():
                for server in a["servers"]:
                    ip(f"address add {server}/{a['bits']} dev wire nodad")
                ip(f"route add {a['client']} via {a['inside']}")
        if to_client != "tap":
            self.connect_client()

    def connect_client(self):
        with self.client:
            ip("link set lo up")
            ip("link set wire up")
            for a in ADDRESSES.values():
                ip(f"address add {a['client']}/{a['bits']} dev wire nodad")
                ip(f"route add {a['services']} via {a['outside']}")
                ip(f"route add {a['inside']} via {a['outside']}")
                ip(f"route add {a['servers'][0]} via {a['outside']}")

    def close(self):
        for namespace in {self.client, self.middle, self.servers}:
            namespace.close()


class Servers:
    """TCP: sends as many bytes as it is asked for, after its own address. UDP: echoes, with its address."""

    def __init__(self, network):
        self._network = network
        self._listening = {}
        for family, a in ADDRESSES.items():
            for address in a["servers"]:
                self.start(family, address)

    def start(self, family, address):
        with self._network.servers:
            stream = socket.create_server((address, SERVER_PORT), family=FAMILIES[family], backlog=256)
            datagrams = socket.socket(FAMILIES[family], socket.SOCK_DGRAM)
            datagrams.bind((address, SERVER_PORT))
        self._listening[family, address] = [stream, datagrams]
        threading.Thread(target=self._accept, args=(stream, address), daemon=True).start()
        threading.Thread(target=self._echo, args=(datagrams, address), daemon=True).start()

    def stop(self, family, address):
        for listening in self._listening.pop((family, address)):
            try:
                listening.shutdown(socket.SHUT_RDWR)  # who waits for it wakes up
            except OSError:
                pass
            listening.close()

    def _accept(self, listening, address):
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(connection, address), daemon=True).start()

    @staticmethod
    def _answer(connection, address):
        with connection, connection.makefile("rwb") as stream:
            for line in stream:
                stream.write(f"{address}\n".encode() + payload(int(line)))
                stream.flush()

    @staticmethod
    def _echo(listening, address):
        while True:
            try:
                data, sender = listening.recvfrom(65536)
                if sender is None:  # it was shut down
                    return
                listening.sendto(f"{address} ".encode() + data, sender)
            except OSError:
                return

    def close(self):
        for family, address in list(self._listening):
            self.stop(family, address)


def has_xdp():
    try:
        socket.socket(44, socket.SOCK_RAW).close()  # AF_XDP
        return True
    except OSError:
        return False


NO_XDP = "this kernel has no XDP sockets"


@contextlib.contextmanager
def patience_with(process, seconds=100):
    """Who waits for its next line in vain sees its end: it is killed when the time is up."""
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def payload(size):
    """Bytes that differ from place to place."""
    blocks = (hashlib.sha256(str(i).encode()).digest() for i in range(size // 32 + 1))
    return b"".join(blocks)[:size]


class Client:
    """A TCP connection to the service."""

    def __init__(self, network, family):
        with network.client:
            self._socket = socket.socket(FAMILIES[family])
        self._socket.settimeout(20)
        self._socket.connect((ADDRESSES[family]["service"], PORT))
        self._stream = self._socket.makefile("rwb")

    def get(self, size):
        """Which server answered; what it sent is as it should be."""
        self._stream.write(f"{size}\n".encode())
        self._stream.flush()
        address = self._stream.readline().decode().strip()
        got = self._stream.read(size)
        if got != payload(size):
            raise AssertionError(f"{len(got)} of {size} bytes, or other ones")
        return address

    def close(self):
        self._stream.close()
        self._socket.close()


class Live(Case):
    def setUp(self):
        super().setUp()
        self.process = None
        self.starts = 0
        self.lost = 0  # datagrams
        self.addCleanup(self.stop)

    def network(self, **options):
        network = Network(**options)
        self.addCleanup(network.close)
        return network

    def start(self, network, text, *arguments):
        """Once it runs; what it said before."""
        path = self.write("f.toml", text)
        self.stats = self.path(f"s{self.starts}.json")
        self.starts += 1
        self.control = self.path("control")
        with network.middle:
            self.process = subprocess.Popen(
                [MILLRACE, "run", "--config", path, "--stats", self.stats, "--control", self.control, *arguments],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
        said = []
        with patience_with(self.process):
            for line in self.process.stderr:
                if "running with" in line:
                    return said
                said.append(line)
        self.process.communicate()
        status, self.process = self.process.returncode, None
        self.fail(f"it did not start, and ended with {status}: " + "".join(said))

    def stop(self):
        """What it counted."""
        process, self.process = self.process, None
        if process is None:
            return None
        process.send_signal(signal.SIGTERM)
        try:
            out, error = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        self.assertEqual((process.returncode, error), (0, ""))
        self.assertIn("packets", out)
        return self.counted()

    def counted(self):
        """What a process counted that has ended."""
        with open(self.stats, encoding="utf-8") as file:
            stats = json.load(file)
        p = stats["packets"]
        self.assertEqual(p["in"] + p["generated"],
                         p["out"] + sum(p["dropped"].values()) + p["consumed"] + p["held"], p)
        return stats

    def wait_until(self, holds, seconds=20):
        deadline = time.monotonic() + seconds
        while not holds():
            self.assertLess(time.monotonic(), deadline, "it has not come about")
            time.sleep(0.05)

    def ping(self, network, family, address):
        """Echo requests sent and answered, by raw sockets: no program for it is on every system."""
        request, reply, protocol = (8, 0, socket.IPPROTO_ICMP) if family == 4 else (128, 129, socket.IPPROTO_ICMPV6)
        with network.client:
            raw = socket.socket(FAMILIES[family], socket.SOCK_RAW, protocol)
        answered = 0
        with raw:
            raw.settimeout(3)
            for sequence in range(3):
                body = bytes([request, 0, 0, 0, 7, 7, 0, sequence]) + payload(40)
                if family == 4:
                    words = sum(int.from_bytes(body[i : i + 2], "big") for i in range(0, len(body), 2))
                    words = (words & 0xFFFF) + (words >> 16)
                    words = (words & 0xFFFF) + (words >> 16)
                    body = body[:2] + (0xFFFF - words).to_bytes(2, "big") + body[4:]
                raw.sendto(body, (address, 0))
                while True:
                    data, (sender, *_) = raw.recvfrom(2048)
                    icmp = data[20:] if family == 4 else data
                    if sender == address and icmp[0] == reply and icmp[4:] == body[4:]:
                        answered += 1
                        break
        return answered

    def exercise(self, network):
        """Everything that a client does, in both families."""
        for family, a in ADDRESSES.items():
            with self.subTest(family=family):
                for address in (a["outside"], a["service"], a["inside"], a["servers"][0]):
                    self.assertEqual(self.ping(network, family, address), 3, address)
                self.transfer(network, family)
                self.datagrams(network, family)

    def transfer(self, network, family):
        clients = [Client(network, family) for _ in range(40)]
        first = [client.get(100) for client in clients]
        self.assertEqual(set(first), set(ADDRESSES[family]["servers"]), "not both servers were used")
        self.assertEqual([client.get(20_000) for client in clients], first, "a connection changed its server")
        self.assertEqual(clients[0].get(5_000_000), first[0])
        for client in clients:
            client.close()

    def datagrams(self, network, family):
        used = set()
        for _ in range(20):
            with network.client:
                udp = socket.socket(FAMILIES[family], socket.SOCK_DGRAM)
            with udp:
                answers = {self.echo(udp, family, size) for size in SIZES}
            self.assertEqual(len(answers), 1, "a conversation changed its server")
            used |= answers
        self.assertEqual(used, set(ADDRESSES[family]["servers"]))

    def echo(self, udp, family, size):
        """Which server answered. What the busy kernel of a small machine loses is sent again, and counted:
        how much is lost is for measurements."""
        service = (ADDRESSES[family]["service"], PORT)
        udp.settimeout(1)
        while True:
            udp.sendto(payload(size), service)
            try:
                while True:
                    data, sender = udp.recvfrom(65536)
                    self.assertEqual(sender[:2], service)
                    server, _, echoed = data.partition(b" ")
                    if echoed == payload(size):
                        return server.decode()
                    self.assertIn(len(echoed), SIZES, "a datagram has changed")
            except TimeoutError:
                self.lost += 1
                print(f"a datagram of {size} bytes, or its answer, is lost", file=sys.stderr)
                self.assertLess(self.lost, 5)


def check_possible():
    if os.geteuid() != 0 or shutil.which("ip") is None:
        raise CannotTry("network namespaces need root and ip (iproute2)")
    try:
        Network().close()
    except (OSError, RuntimeError) as error:
        raise CannotTry(f"no namespaces with virtual interfaces here: {error}") from error


def main():
    try:
        check_possible()
    except CannotTry as why:
        print(why)
        sys.exit(77)
    unittest.main()
