#!/usr/bin/env python3
"""Measures how long packets of new connections take through the active server of a pair, with and without `defer_ms`, in turn.

    deferred.py MILLRACE [--connections N] [--rounds N]

The clock runs from a customer's `sendto` until a host on the other side has the datagram, in microseconds: for the first one of each connection, which
waits with `defer_ms`, and for the second one, which does not. Needs root.
"""

import argparse
import os
import socket
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests"))
from pair import ForwardingCase  # pylint: disable=wrong-import-position
from servers import CUSTOMERS, INTERNET  # pylint: disable=wrong-import-position

DEFER_MS = 1000
QUANTILES = (50, 90, 99)


class Timed(ForwardingCase):
    """A pair, without a test."""

    def runTest(self):
        raise NotImplementedError

    def time_one(self, client):
        begun = time.perf_counter()
        client.sendto(b"datagram", (INTERNET, 99))
        self.server.recv(100)
        return 1e6 * (time.perf_counter() - begun)

    def connect_udp(self):
        with self.network_.customers:
            client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        client.bind((CUSTOMERS[0], 0))
        return client


def measure(defer_ms, connections):
    """Returns the times of first and of second datagrams, and how many waited."""
    pair = Timed()
    pair.DEFER_MS = defer_ms
    try:
        pair.setUp()
        pair.serve_both()
        pair.server = pair.host()
        times = [], []
        for number in range(connections + 20):
            with pair.connect_udp() as client:
                for of in times:
                    took = pair.time_one(client)
                    if number >= 20:  # the first ones wait for neighbours' MACs
                        of.append(took)
            time.sleep(0.001)
        return *times, pair.pair(1)["counters"]["deferred"]
    finally:
        pair.doCleanups()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=1000, help="of each round, with defer_ms and without")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    found = {(defer_ms, which): [] for defer_ms in (0, DEFER_MS) for which in ("first", "second")}
    for _ in range(options.rounds):
        for defer_ms in (0, DEFER_MS):
            first, second, deferred = measure(defer_ms, options.connections)
            print(f"defer_ms = {defer_ms}: {deferred} packets have waited", flush=True)
            found[defer_ms, "first"] += first
            found[defer_ms, "second"] += second
    print(f"\n{'defer_ms':>8} {'datagram':8} " + " ".join(f"{f'{part} %':>7}" for part in QUANTILES) + f" {'most':>7}  us")
    for (defer_ms, which), times in found.items():
        quantiles = statistics.quantiles(times, n=100)
        print(f"{defer_ms:8} {which:8} " + " ".join(f"{quantiles[part - 1]:7.0f}" for part in QUANTILES) + f" {max(times):7.0f}")


if __name__ == "__main__":
    main()
