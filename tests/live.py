"""Common parts of tests of `millrace run` between network namespaces (network.py). `main` ends with status 77 if namespaces
cannot be made here.
"""

import contextlib
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
from namespaces import CannotTry
from network import ADDRESSES, FAMILIES, PORT, Network, Client, payload

SIZES = (0, 1, 1000, 1400)  # bytes of data in a datagram
NO_XDP = "this kernel has no XDP sockets"


def has_xdp():
    try:
        socket.socket(44, socket.SOCK_RAW).close()  # AF_XDP
        return True
    except OSError:
        return False


@contextlib.contextmanager
def patience_with(process, seconds=100):
    """Kills the process after `seconds`, so that a test does not wait without end for the process's next line."""
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Live(Case):
    def setUp(self):
        super().setUp()
        self.process, self.program = None, MILLRACE
        self.starts = 0
        self.lost = 0  # datagrams that were lost
        self.addCleanup(self.stop)

    def network(self, **options):
        network = Network(**options)
        self.addCleanup(network.close)
        return network

    def socket_in(self, namespace, *kind):
        """Returns a socket that ends with the test."""
        with namespace:
            made = socket.socket(*kind)
        self.addCleanup(made.close)
        made.settimeout(10)
        return made

    def start(self, network, text, *arguments, control="control"):
        """Starts millrace, and returns the lines that it prints to standard error before it runs."""
        path = self.write("f.toml", text)
        self.stats = self.path(f"s{self.starts}.json")
        self.starts += 1
        self.control = self.path(control)
        with network.middle:
            self.process = subprocess.Popen(
                [self.program, "run", "--config", path, "--stats", self.stats, "--control", self.control, *arguments],
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
        self.fail(f"millrace did not start, and ended with status {status}: " + "".join(said))

    def stop(self):
        """Ends millrace, and returns its statistics."""
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
        """Returns the statistics that the last process wrote at its end, after checking that the packets in them add up."""
        with open(self.stats, encoding="utf-8") as file:
            stats = json.load(file)
        p = stats["packets"]
        self.assertEqual(p["in"] + p["generated"],
                         p["out"] + sum(p["dropped"].values()) + p["consumed"] + p["held"] + p["hopped"], p)
        return stats

    def wait_until(self, holds, seconds=20):
        deadline = time.monotonic() + seconds
        while not holds():
            self.assertLess(time.monotonic(), deadline, f"the condition did not hold within {seconds} s")
            time.sleep(0.05)

    def ping(self, network, family, address, size=40, patience=3):
        """Sends three echo requests: the next one once the previous one is answered, or after `patience` seconds. Returns the number of answers.
        Uses raw sockets, as not every system has the command `ping`."""
        request, reply, protocol = (8, 0, socket.IPPROTO_ICMP) if family == 4 else (128, 129, socket.IPPROTO_ICMPV6)
        with network.client:
            raw = socket.socket(FAMILIES[family], socket.SOCK_RAW, protocol)
        answered = 0
        with raw:
            raw.settimeout(patience)
            for sequence in range(3):
                body = bytes([request, 0, 0, 0, 7, 7, 0, sequence]) + payload(size)
                if family == 4:
                    words = sum(int.from_bytes(body[i : i + 2], "big") for i in range(0, len(body), 2))
                    words = (words & 0xFFFF) + (words >> 16)
                    words = (words & 0xFFFF) + (words >> 16)
                    body = body[:2] + (0xFFFF - words).to_bytes(2, "big") + body[4:]
                raw.sendto(body, (address, 0))
                while True:
                    try:
                        data, (sender, *_) = raw.recvfrom(65536)
                    except TimeoutError:
                        break
                    icmp = data[20:] if family == 4 else data
                    if sender == address and icmp[0] == reply and icmp[4:] == body[4:]:
                        answered += 1
                        break
        return answered

    def exercise(self, network):
        """Tries pings, transfers and datagrams of a client, in both families."""
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
        """Sends a datagram to the service, and returns the server that answered. A lost datagram is sent again: the kernel
        of a busy machine loses some. Up to four losses in a test are no failure, as the test measures no loss."""
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
        raise CannotTry(f"namespaces with virtual interfaces cannot be made here: {error}") from error


def main(check=check_possible):
    try:
        check()
    except CannotTry as why:
        print(why)
        sys.exit(77)
    unittest.main()
