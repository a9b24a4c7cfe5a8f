#!/usr/bin/env python3
"""Tests of take-overs: a new process goes on in place of a running `millrace run`, with its connections and ports.

    restart_test.py MILLRACE [TEST...]
"""

import os
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import threading
import time
import unittest

from asked import FIRST, GOOD, SECOND, Asked, without, without_services
from cli_case import FAILED, MILLRACE, UNREADABLE, USAGE
from live import NO_XDP, has_xdp, main
from namespaces import command
from network import FAMILIES, SERVER_PORT, configuration

CONVERSATIONS = 10_000
FENCES = [f"net.{name}" for name in
          ("ipv4.conf.outside.rp_filter", "ipv4.conf.outside.forwarding", "ipv6.conf.outside.disable_ipv6")]


class Restart(Asked):
    def stop(self):
        stats = super().stop()
        if stats is not None:
            c = stats["connections"]
            self.assertEqual(c["opened"] + c["taken_over"] - sum(c["closed"].values()), c["live"])
        return stats

    def test_transfers_go_on(self):
        for sharing, kind in (("sharded", "af_packet"), ("lock-free-race", "af_packet"), ("sharded", "af_xdp")):
            with self.subTest(sharing=sharing, kind=kind):
                if kind == "af_xdp" and not has_xdp():
                    self.skipTest(NO_XDP)
                text = f'sharing = "{sharing}"\n' + configuration(f"{kind}:outside", f"{kind}:inside")
                self.serve_with(text)
                idle = {family: self.clients(10, family) for family in FAMILIES}
                met = {family: [client.get(1) for client in each] for family, each in idle.items()}
                end = self.transferring(30)
                for _ in range(3):
                    self.assertGreaterEqual(self.take_over(text), 50)
                    self.clients(1)[0].get(1)
                    for family, each in idle.items():
                        self.assertEqual([client.get(20_000) for client in each], met[family])
                self.assertEqual(end(), [])
                stats = self.stop()
                self.assertGreaterEqual(stats["connections"]["taken_over"], 50)
                self.assertLess(stats["connections"]["opened"], 50)
                # The XDP program that the first process has loaded makes the other ends send no packet larger than the MTU
                # (docs/run.md); each process that takes over keeps this program.
                self.assertNotIn("truncated", stats["packets"]["dropped"])

    @unittest.skipUnless(os.path.exists("/dev/net/tun"), "no /dev/net/tun here")
    def test_a_tap_that_stays(self):
        """A tap that was there before millrace keeps the machine's addresses and routes during a take-over."""
        text = configuration("tap:wire", "af_packet:inside")
        self.serve_with(text, to_client="kept tap")
        self.exercise(self.network_)
        idle = {family: self.clients(10, family) for family in FAMILIES}
        met = {family: [client.get(1) for client in each] for family, each in idle.items()}
        end = self.transferring(10)
        for _ in range(3):
            self.assertGreaterEqual(self.take_over(text), 30)
            for family, each in idle.items():
                self.assertEqual([client.get(20_000) for client in each], met[family])
        self.assertEqual(end(), [])
        self.assertNotIn("new interface", "".join(self.said))

    @unittest.skipUnless(os.path.exists("/dev/net/tun"), "no /dev/net/tun here")
    def test_a_tap_that_goes(self):
        text = configuration("tap:mr0", "af_packet:inside")
        self.network_ = self.network(to_client="tap")
        self.assertNotIn("new interface", "".join(self.start(self.network_, text)))
        self.take_over(text)
        self.assertIn("warning: mr0 is a new interface here, without addresses", "".join(self.said))

    def test_many_conversations(self):
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
        count = min(CONVERSATIONS, most - 1000)
        if count < CONVERSATIONS:
            print(f"no more than {count} conversations, for want of file descriptors (ulimit -Hn)")
        self.serve_with(GOOD.replace("capacity = 20000", "capacity = 40000"))
        sockets = []
        for n in range(count):
            family = (4, 6)[n % 8 == 0]
            with self.network_.client:
                sockets.append((family, socket.socket(FAMILIES[family], socket.SOCK_DGRAM)))
            self.addCleanup(sockets[-1][1].close)
        met = [self.echo(udp, family, 10) for family, udp in sockets]
        taken_over = self.take_over(GOOD.replace("capacity = 20000", "capacity = 40000"))
        self.assertEqual(taken_over, count)
        again = [self.echo(udp, family, 10) for family, udp in sockets]
        self.assertEqual(again, met, "a conversation changed its server")
        stats = self.stop()
        self.assertEqual(stats["connections"]["opened"], 0)

    def test_functions_come_and_go(self):
        """Each function finds its part of a connection's record by the function's name, wherever the function is in the chain."""
        alone, *chains = 'function = "balance"', 'chain = ["forward", "balance"]', 'chain = ["balance", "forward"]'
        self.serve_with(f"{alone}\n" + GOOD)
        before = self.clients(20)
        met = [client.get(1) for client in before]
        for n, functions in enumerate((*chains, alone)):
            self.assertEqual(self.take_over(f"{functions}\n" + GOOD), 20 + 5 * n)
            self.assertEqual([client.get(1) for client in before], met)
            self.assertEqual(self.reload(f"{functions}\n" + without(SECOND))["backends"], 6)
            self.assertEqual([client.get(1) for client in before], met)
            self.assertEqual(self.servers_of(5), {FIRST: 5})
            self.reload(f"{functions}\n" + GOOD)

    def test_a_load_balancer_comes(self):
        """The new process has a load balancer; the old process has none, and offers no services."""
        ports, _, _ = GOOD.partition("[[service]]")
        self.serve_with('function = "forward"\n' + ports)
        self.assertEqual(self.take_over('chain = ["forward", "balance"]\n' + GOOD), 0)
        self.assertEqual(set(self.servers_of(30)), {FIRST, SECOND})

    def test_a_load_balancer_goes(self):
        """Connections that the load balancer translated are left behind, and its commands are unknown afterwards."""
        ports, _, _ = GOOD.partition("[[service]]")
        for functions in ('function = "balance"', 'chain = ["forward", "balance"]'):
            with self.subTest(functions):
                self.serve_with(f"{functions}\n" + GOOD)
                for client in self.clients(20):
                    client.get(1)
                self.assertEqual(self.take_over('function = "forward"\n' + ports, left_behind=20), 0)
                self.refused(404, ['/drain needs the function "balance"'], "POST /drain", backend=FIRST, drained="true")
                self.stop()

    def test_another_configuration(self):
        """A take-over may change what a reload cannot: workers, capacity, table."""
        self.serve_with()
        before = self.clients(20)
        met = [client.get(1) for client in before]
        text = (without(FIRST).replace("workers = 2", "workers = 3").replace("capacity = 20000", "capacity = 30000")
                .replace("[table]", '[table]\nscheme = "cuckoo"'))
        self.assertEqual(self.take_over(text), 20)
        self.assertEqual([client.get(1) for client in before], met)
        self.assertEqual(self.servers_of(10), {SECOND: 10})
        draining = [b for b in self.ask("GET /stats")["backends"] if b["draining"]]
        self.assertEqual([(b["address"], b["live"]) for b in draining],
                         [(f"{FIRST}:{SERVER_PORT}", met.count(FIRST))])
        self.take_over(without_services())
        self.assertEqual([client.get(1) for client in before], met, "connections of a removed service must go on")
        self.take_over()
        self.assertEqual([client.get(1) for client in before], met)
        self.assertEqual(set(self.servers_of(30)), {FIRST, SECOND})

    def test_what_was_asked_holds(self):
        self.serve_with()
        self.ask("POST /drain", backend=FIRST, drained="true")
        self.take_over()
        self.assertEqual(self.servers_of(10), {SECOND: 10})
        self.ask("POST /drain", backend=FIRST, drained="false")
        self.assertEqual(set(self.servers_of(30)), {FIRST, SECOND})

    def settings(self):
        with self.network_.middle:
            fences = command("sysctl", "-n", *FENCES).split()
            if shutil.which("ethtool") is None:
                return fences, []
            features = subprocess.run(["ethtool", "-k", "outside"], capture_output=True, text=True, check=True).stdout
        return fences, [line for line in features.splitlines() if line.startswith(("tx-checksumming", "generic"))]

    def test_the_last_one_restores(self):
        self.network_ = self.network()
        with self.network_.middle:
            command("sysctl", "-qw", *(f"{name}={value}" for name, value in zip(FENCES, "010")))
        before = self.settings()
        self.start(self.network_, GOOD)
        fenced = self.settings()
        self.assertEqual(fenced[0], ["1", "0", "1"])
        self.take_over()
        self.take_over()
        self.assertEqual(self.settings(), fenced)
        self.stop()
        self.assertEqual(self.settings(), before)

    def test_who_gives_up_changes_nothing(self):
        self.serve_with()
        clients = self.clients(20)
        met = [client.get(1) for client in clients]
        self.refused(409, ["version"], "POST /handover", version=1000)
        self.reload(GOOD)
        first = self.ask("POST /handover")["number"]
        number = self.ask("POST /handover")["number"]  # replaces the first take-over, whose process may be dead
        self.refused(409, ["taking over"], "POST /reload")
        for one in first, number:
            self.refused(409, ["not received"], "POST /handover/end", number=one)
        self.ask("POST /handover/give_up", number=first)
        self.refused(409, ["taking over"], "POST /reload")
        self.ask("POST /handover/give_up", number=number)
        self.reload(GOOD)
        number = self.ask("POST /handover")["number"]
        self.assertGreater(len(self.bytes_of("/handover/connections", number=number)), 20 * 56)
        self.assertEqual([client.get(1) for client in clients], met)
        clients += self.clients(5)
        met += [client.get(1) for client in clients[20:]]
        told = len(self.bytes_of("/handover/connections", number=number, last="true"))
        self.assertGreater(told, 5 * 56)
        self.assertLess(told, 20 * 56, "connections that have not changed must not be sent again")
        # The new process does not let the old one end: the old one goes on, and serves the packets that waited.
        self.assertEqual([client.get(1) for client in clients], met)
        self.refused(409, ["goes on"], "POST /handover/end", number=number)
        self.reload(GOOD)
        self.assertEqual(self.take_over(), 25)
        self.assertEqual([client.get(1) for client in clients], met)

    @staticmethod
    def is_served(path):
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(path) == 0

    def test_one_at_a_time(self):
        self.serve_with()
        [client] = self.clients(1)
        met = client.get(1)
        taking_over = ["run", "--config", self.path("f.toml"), "--control", self.control, "--take-over", "--quiet"]
        with self.network_.middle:
            first = subprocess.Popen([MILLRACE, *taking_over], stderr=subprocess.DEVNULL)
            self.addCleanup(first.wait, 100)
            self.addCleanup(first.kill)
            while not self.is_served(self.control + ".new"):
                self.assertIsNone(first.poll())
                time.sleep(0.01)
            first.send_signal(signal.SIGSTOP)
            self.refuse(FAILED, ["another process is taking over from the one at " + self.control], *taking_over)
            first.send_signal(signal.SIGCONT)
        self.ended(self.process)
        self.process = None
        self.assertEqual(client.get(1), met)

    def test_who_is_killed_changes_nothing(self):
        self.serve_with()
        end = self.transferring(20)
        for delay in (0, 0.02, 0.05, 0.1, 0.3):
            with self.network_.middle:
                process = subprocess.Popen(
                    [MILLRACE, "run", "--config", self.path("f.toml"), "--control", self.control, "--take-over"],
                    stderr=subprocess.DEVNULL)
            time.sleep(delay)
            process.send_signal(signal.SIGTERM if delay == 0.3 else signal.SIGKILL)
            process.wait(100)
            if select.select([self.process.stderr], [], [], 1)[0]:
                end()
                self.ended_too_late(delay)
                return
            self.clients(1)[0].get(1)
        self.assertEqual(end(), [])

    def test_who_is_left_alone_goes_on(self):
        """The running process is killed at various moments of a take-over: the new one starts, with some, all or none of its connections."""
        moments = set()
        for delay in (0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8):
            self.serve_with()
            clients = self.clients(20)
            for client in clients:
                client.get(1)
            old = self.process
            killing = threading.Thread(target=self.kill_later, args=(old, delay))
            killing.start()
            try:
                said = "".join(self.start(self.network_, GOOD, "--take-over"))
            finally:
                killing.join()
            self.assertEqual(set(self.servers_of(20)), {FIRST, SECOND})
            words = [word for word in ("nothing to take over", "ended while this one took over", "took over 20 connections") if word in said]
            self.assertTrue(words, said)
            moments.add(words[0])
            self.assertEqual(self.stop()["connections"]["taken_over"], int(re.search(r"took over (\d+)|$", said)[1] or 0))
        self.assertIn("ended while this one took over", moments)

    def test_interfaces_of_a_process_that_was_killed_come_free(self):
        """The kernel closes its control socket first, and what holds the interfaces later: here a second later."""
        self.network_ = self.network()
        with self.network_.middle:
            holder = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            holder.bind("\0millrace/interface/inside")
        threading.Timer(1, holder.close).start()
        self.assertIn("nothing to take over", "".join(self.start(self.network_, GOOD, "--take-over")))

    def kill_later(self, process, delay):
        """Kills the process some seconds after another one has begun to take over from it."""
        while not self.is_served(self.control + ".new"):
            time.sleep(0.001)
        time.sleep(delay)
        process.kill()
        process.communicate()

    def ended_too_late(self, delay):
        """Ends the test if the process had taken over before it was killed: no process forwards now, so nothing can be checked."""
        process, self.process = self.process, None
        self.ended(process)
        print(f"killed after {delay} s, the process had already taken over")

    def test_who_fails_changes_nothing(self):
        self.serve_with()
        fenced = self.settings()
        met = self.clients(5)
        # That the third port is missing is found after the other ports were opened.
        wrong = self.write("wrong.toml", GOOD + '[[port]]\nname = "third"\ndevice = "af_packet:nowhere"\n')
        with self.network_.middle:
            self.refuse(UNREADABLE, ["nowhere"], "run", "-c", wrong, "--control", self.control, "--take-over", "--quiet")
        self.assertEqual(self.settings(), fenced)
        for client in met:
            client.get(1)
        self.reload(GOOD)
        self.stop()
        self.assertNotEqual(self.settings(), fenced)

    @unittest.skipUnless(os.path.exists("/dev/net/tun"), "no /dev/net/tun here")
    def test_who_wants_anothers_tap_changes_nothing(self):
        tap = '[[port]]\nname = "third"\ndevice = "tap:mr0"\naddresses = ["192.0.2.1/24"]\n'
        self.serve_with()
        first, stats, control, met = self.process, self.stats, self.control, self.clients(5)
        self.start(self.network_, tap + GOOD[GOOD.index("[[service]]"):], control="another")
        another, self.process, self.stats, self.control = self.process, first, stats, control
        self.addCleanup(another.wait)
        self.addCleanup(another.kill)
        path = self.write("third.toml", GOOD + tap)
        with self.network_.middle:
            self.refuse(FAILED, ["another millrace has mr0"],
                        "run", "-c", path, "--control", control, "--take-over", "--quiet")
        for client in met:
            client.get(1)
        another.terminate()
        another.communicate(timeout=20)
        self.assertEqual(self.take_over(GOOD + tap), 5)
        for client in met:
            client.get(1)

    def test_nobody_is_there(self):
        """--take-over without a running millrace starts anew, as the units for systemd need for the first start."""
        self.network_ = self.network()
        said = self.start(self.network_, GOOD, "--take-over")
        self.assertIn("nothing to take over", said[0])
        self.assertEqual(self.stop()["connections"]["taken_over"], 0)

    def test_errors(self):
        path = self.write("f.toml", GOOD)
        self.refuse(USAGE, ["--control none"], "run", "-c", path, "--take-over", "--control", "none")


if __name__ == "__main__":
    main()
