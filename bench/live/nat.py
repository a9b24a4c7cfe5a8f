#!/usr/bin/env python3
"""Measures NAT by millrace and, in its place, by the kernel (nftables' masquerade), in turn.

    nat.py MILLRACE QUESTION [OPTION...]

    established   60-byte frames of 1000 sessions over veth, thousands a second
    new           60-byte frames, each the first of a session, over veth: thousands of sessions a second, and the share that arrives
    latency       round-trip times of UDP datagrams through NAT, microseconds

Prints a line for each round, then medians with the least and the greatest value. Each run has a network of its own, so that no
session is left of an earlier one. Needs root, and the packages ethtool, nftables, tcpreplay.
"""

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time

from beside import PROGRAMS, capture, compare
from place import INSIDE, NOBODY, OUTSIDE, SERVER, Place, in_words, mac, packets_of

from cli_case import MILLRACE
from namespaces import ip

CUSTOMERS = 0xC6336403  # 198.51.100.3
HOSTS = 250
MASQUERADE = """table ip bench {
  chain out {
    type nat hook postrouting priority srcnat
    oifname "inside" ip saddr 198.51.100.0/24 masquerade
  }
}
"""


class NatPlace(Place):
    """The client is a customer of NAT; the servers are outside."""

    def configuration(self, workers=2):
        known = f'neighbours = [{{ address = "{SERVER}", mac = "{self._backend_mac}" }}]\n' if self._backend_mac else ""
        return f"""function = "nat"
workers = {workers}
[[port]]
name = "outside"
device = "{self._device}:outside"
addresses = ["{OUTSIDE}/24"]
[[port]]
name = "inside"
device = "{self._device}:inside"
addresses = ["{INSIDE}/24"]
{known}
[[nat.pool]]
name = "pool"
addresses = ["10.0.0.192/28"]
[[nat.rule]]
source = ["198.51.100.0/24"]
pool = "pool"
"""

    @contextlib.contextmanager
    def kernel(self):
        with super().kernel() as server, self.network.middle:
            if self._backend_mac:
                ip(f"neighbour replace {SERVER} lladdr {self._backend_mac} dev inside nud permanent")
            subprocess.run(["nft", "-f", "-"], input=MASQUERADE, text=True, check=True)
            yield server


@contextlib.contextmanager
def running(contender, options, backend_mac=None):
    """Runs the contender in a new network, and yields the network."""
    with tempfile.TemporaryDirectory() as folder:
        place = NatPlace(MILLRACE, options.device, folder, backend_mac=backend_mac)
        try:
            with getattr(place, contender)():
                yield place.network
        finally:
            place.close()


def sessions(path, count, network):
    """Writes a capture with a frame of each session. The remote ports differ, as all remote addresses are the same."""
    with network.middle:
        destination = mac("outside")
    senders = [(CUSTOMERS + n % HOSTS, 1024 + n // HOSTS) for n in range(count)]
    capture(path, senders, destination, SERVER, [5001 + n % 8 for n in range(count)])


def sender(network, path, loops):
    with network.client:
        return subprocess.Popen(["tcpreplay", "-i", "wire", "-K", "--topspeed", f"--loop={loops}", path],
                                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def check_translated(network):
    """Checks that frames that arrive have no customer's address any more."""
    with network.servers, socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800)) as watch:
        watch.bind(("wire", 0x0800))
        watch.settimeout(5)
        for _ in range(100):
            source = socket.inet_ntoa(watch.recv(2048)[26:30])
            if source.startswith("198.51.100."):
                raise RuntimeError(f"a frame arrived from {source}, which is a customer's address: it was not translated")


def established(options):
    def one(contender):
        with running(contender, options, NOBODY) as network, tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "frames.pcap")
            sessions(path, 1000, network)
            process = sender(network, path, 0)
            try:
                with network.servers:
                    time.sleep(1)
                    before, start = packets_of("wire"), time.monotonic()
                    time.sleep(options.seconds)
                    rate = (packets_of("wire") - before) / (time.monotonic() - start) / 1e3
                check_translated(network)
                return rate
            finally:
                process.terminate()
                process.wait()

    compare(options.pairs, {name: lambda name=name: one(name) for name in ("millrace", "kernel")}, "kernel")


def new(options):
    shares = {}

    def one(contender):
        with running(contender, options, NOBODY) as network, tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "frames.pcap")
            sessions(path, options.sessions, network)
            with network.servers:
                before = came = packets_of("wire")
            process = sender(network, path, 1)
            began = ended = None
            until = time.monotonic() + 0.3
            with network.servers:
                while time.monotonic() < until:
                    if process.poll() is None:
                        until = time.monotonic() + 0.3
                    now = packets_of("wire")
                    if now != came:
                        came, ended = now, time.monotonic()
                        began = began or ended
                    time.sleep(0.002)
            shares.setdefault(contender, []).append((came - before) / options.sessions)
            return (came - before) / (ended - began) / 1e3

    compare(options.pairs, {name: lambda name=name: one(name) for name in ("millrace", "kernel")}, "kernel")
    print("share that arrived:", *(f"{name} {in_words(values)}" for name, values in shares.items()))


def latency(options):
    datagrams = os.path.join(PROGRAMS, "datagrams")
    rounds = {}
    for number in range(options.pairs):
        for name in sorted(("kernel", "millrace"), reverse=number % 2 == 1):
            with running(name, options) as network:
                with network.servers:
                    server = subprocess.Popen([datagrams, "serve", SERVER, "8080"])
                try:
                    with network.client:
                        words = [datagrams, "send", SERVER, "8080", "1000", "5000", str(options.seconds), "1"]
                        said = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
                finally:
                    server.kill()
                    server.wait()
            rounds.setdefault(name, []).append(said)
            print(number + 1, name, json.dumps(said), flush=True)
    for name, all_said in rounds.items():
        print(name, {key: in_words([said[key] for said in all_said]) for key in all_said[0] if key.startswith("us_")},
              "sent", sum(said["sent"] for said in all_said), "lost", sum(said["lost"] for said in all_said))


QUESTIONS = {"established": established, "new": new, "latency": latency}


def main():
    parser = argparse.ArgumentParser(prog="nat.py MILLRACE", description=__doc__.partition("\n")[0])
    parser.add_argument("question", choices=QUESTIONS)
    parser.add_argument("--device", choices=["af_packet", "af_xdp"], default="af_packet")
    parser.add_argument("--pairs", type=int, default=10, help="rounds")
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--sessions", type=int, default=100_000, help="sessions of the question new, 200000 at most")
    options = parser.parse_args()
    if not 1 <= options.sessions <= 200_000:
        sys.exit("nat.py: --sessions: give 1 to 200000")
    QUESTIONS[options.question](options)


if __name__ == "__main__":
    main()
