#!/usr/bin/env python3
"""Tests packets of new connections that wait until the other server of a pair has the connection (`defer_ms`).

    deferred_test.py MILLRACE [TEST...]

MILLRACE_TRIALS: how often a server is killed (3).
"""

import os
import socket
import threading
import time

from live import main
from pair import ForwardingCase
from servers import CUSTOMERS, INTERNET

TRIALS = int(os.environ.get("MILLRACE_TRIALS", "3"))


class Deferred(ForwardingCase):
    DEFER_MS = 1000

    def serve_both(self, *arguments):
        super().serve_both(*arguments)
        self.server = self.host()
        # A packet that waits for its next hop's MAC does not wait for the other server.
        for _ in range(16):  # at each worker
            self.client().sendto(b"first of all", (INTERNET, 99))
            self.server.recv(100)
        self.first = self.counters()

    def client(self, n=0):
        made = self.socket_in(self.network_.customers, socket.AF_INET, socket.SOCK_DGRAM)
        made.bind((CUSTOMERS[n % len(CUSTOMERS)], 0))
        return made

    def counters(self):
        return self.ask_server(1, "GET /pair")["counters"]

    def ports(self):
        return {key[1] for key in self.connections(2)}

    def test_the_other_server_has_what_leaves(self):
        self.serve_both()
        for n in range(30):
            client = self.client(n)
            for data in (b"first", b"second"):
                client.sendto(data, (INTERNET, 99))
            self.assertEqual([self.server.recv(100) for _ in range(2)], [b"first", b"second"])
            self.assertIn(client.getsockname()[1], self.ports())
        counters = self.counters()
        self.assertGreaterEqual(counters["deferred"], 30)
        self.assertEqual(counters["sent_early"], self.first["sent_early"])
        self.echo()
        clients = [self.connect(n % len(CUSTOMERS)) for n in range(30)]
        for client in clients:
            self.exchange(client, b"x" * 100_000)
        self.end(1)
        self.end(2)

    def test_a_crash_loses_nothing_that_somebody_has_seen(self):
        for _ in range(TRIALS):
            self.serve_both()
            clients = [self.client(n) for n in range(400)]
            seen, is_killed = set(), threading.Event()

            def count(seen=seen, is_killed=is_killed):
                self.server.settimeout(0.5)
                while True:
                    may_come = not is_killed.is_set()
                    try:
                        seen.add(self.server.recvfrom(100)[1][1])
                    except TimeoutError:
                        if not may_come:
                            return
            counting = threading.Thread(target=count)
            counting.start()
            for n, client in enumerate(clients):
                client.sendto(b"new", (INTERNET, 99))
                if n % 10 == 0:
                    time.sleep(0.002)
                if n == 300:
                    early = self.counters()["sent_early"]
                    self.kill(1)
                    is_killed.set()
            counting.join()
            self.assertEqual(early, self.first["sent_early"])
            self.assertGreater(len(seen), 100)
            self.assertLessEqual(seen, self.ports())
            self.stop_all()
            for client in (*clients, self.server):
                client.close()

    def test_nothing_waits_for_a_server_that_is_gone(self):
        self.serve_both()
        self.network_.cut(2)
        for n in range(10):
            self.client(n).sendto(b"new", (INTERNET, 99))
        self.assertEqual([self.server.recv(100) for _ in range(10)], [b"new"] * 10)
        self.assertGreater(self.counters()["sent_early"], self.first["sent_early"])
        self.wait_until(lambda: not self.pair(1)["in_sync"])
        before = self.counters()["deferred"]
        for n in range(10):
            self.client(n).sendto(b"alone", (INTERNET, 99))
        self.assertEqual([self.server.recv(100) for _ in range(10)], [b"alone"] * 10)
        self.assertEqual(self.counters()["deferred"], before)
        self.end(1)


class DeferredOnTwoWorkers(Deferred):
    WORKERS = 2


if __name__ == "__main__":
    main()
