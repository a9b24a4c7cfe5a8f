#!/usr/bin/env python3
"""Tests `millctl` with a running `millrace run`.

    millctl_test.py MILLRACE MILLCTL [TEST...]
"""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
import urllib.request

MILLCTL = os.path.abspath(sys.argv.pop(2))  # before cli_case and unittest read the other arguments

import dsr_test  # noqa: E402
import kernel_port_test  # noqa: E402
from asked import FIRST, GOOD, IPV4, SECOND, Asked  # noqa: E402
from cli_case import DONE, INTERRUPTED  # noqa: E402
from live import main, patience_with  # noqa: E402
from network import PORT, SERVER_PORT, OneLink  # noqa: E402


def with_health(text):
    """Returns `text` with health checks for the first service."""
    return text.replace('protocol = "tcp"\n', 'protocol = "tcp"\nhealth = { check = "tcp", interval_ms = 100 }\n', 1)


class Millctl(Asked):
    def ctl(self, *arguments, status=0):
        result = subprocess.run([MILLCTL, "--socket", self.control, *arguments], capture_output=True, text=True,
                                timeout=60)
        self.assertEqual(result.returncode, status, result.stderr)
        return result.stdout if status == 0 else result.stderr

    def beside(self, *arguments, **options):
        process = subprocess.Popen([MILLCTL, "--socket", self.control, *arguments], stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, **options)
        self.addCleanup(process.kill)
        self.addCleanup(process.wait, 60)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.send_signal, signal.SIGINT)
        return process

    def test_looking(self):
        self.serve_with()
        clients = self.clients(5) + self.clients(2, family=6)
        for client in clients:
            client.get(1)
        table = self.ctl("stats")
        self.assertRegex(table, r"live +7 ")
        self.assertEqual(json.loads(self.ctl("stats", "--json"))["connections"]["live"], 7)
        self.assertEqual(len(self.ctl("connections").splitlines()), 8)
        lines = self.ctl("connections", "--format", "conntrack", "--source", "198.51.100.0/24").splitlines()
        self.assertEqual(len(lines), 5)
        for line in lines:
            self.assertRegex(line, r"^tcp      6 7\d\d\d ESTABLISHED src=198\.51\.100\.1 dst=203\.0\.113\.10 .*"
                                   r"\[ASSURED\] mark=0 use=1$")
        named = self.ctl("connections", "--destination", f"{IPV4['service']}:{PORT}", "--state", "ESTABLISHED")
        self.assertEqual(len(named.splitlines()), 6)
        self.assertIn("give one of syn_sent, ", self.ctl("connections", "--state", "sleeping", status=2))
        self.assertIn("\npackets a second: ", self.ctl("top", "--once", "--interval", "0.1"))
        [one, *_] = [json.loads(line) for line in self.ctl("connections", "--format", "json").splitlines()]
        bracketed = "[{}]:{}" if ":" in one["source"] else "{}:{}"
        known = self.ctl("explain", "tcp", bracketed.format(one["source"], one["source_port"]),
                         bracketed.format(one["destination"], one["destination_port"]))
        self.assertIn(one["backend"], known)
        unknown = self.ctl("explain", "tcp", "198.51.100.1:1", f"{IPV4['service']}:81")
        self.assertIn("no service has its destination", unknown)
        self.assertRegex(unknown, r"worker +-\n")

    def test_changing(self):
        self.serve_with()
        self.ctl("drain", f"{FIRST}:{SERVER_PORT}")
        self.assertEqual(self.servers_of(5), {SECOND: 5})
        self.ctl("drain", "--undo", f"{FIRST}:{SERVER_PORT}")
        self.assertEqual(set(self.servers_of(30)), {FIRST, SECOND})
        self.assertIn("no service has a backend 10.9.9.9", self.ctl("drain", "10.9.9.9", status=1))
        self.assertIn("4 services", self.ctl("reload"))
        self.write("f.toml", GOOD.replace("workers = 2", "workers = 5"))
        self.assertIn("workers: cannot change", self.ctl("reload", status=1))
        self.ctl("kill", status=2)
        self.assertIn("35 connections", self.ctl("kill", "--all"))
        self.assertEqual(self.ask("GET /connections"), [])

    def test_nobody_there(self):
        self.control = self.path("nothing")
        self.assertIn("is millrace running", self.ctl("stats", status=3))

    def test_health(self):
        self.serve_with(with_health(GOOD))
        self.health(self.network_.servers)

    def test_health_by_the_kernel_beside(self):
        """Health checks go through the kernel's interface beside millrace, on the link of the backends."""
        for text, direct in ((kernel_port_test.ONE_CARD, False), (dsr_test.configuration("workers = 2", kernel="mr0"), True)):
            with self.subTest(direct=direct):
                network = OneLink(direct)
                self.addCleanup(network.close)
                self.serve_with(with_health(text), network)
                self.health(network.middle)
                self.stop()

    def health(self, asking):
        name = f"{IPV4['service']}:{PORT}/tcp"

        def wait_for(healthy):
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:
                [of] = [s for s in self.ask("GET /services") if s["service"] == name]
                if [b["healthy"] for b in of["backends"]] == healthy:
                    return
                time.sleep(0.05)
            self.fail(f"the backends' health must become {healthy}: {of}")

        with asking:
            health = self.beside("health")
        time.sleep(0.5)
        wait_for([True, True])
        self.servers.stop(4, FIRST)
        wait_for([False, True])
        self.assertEqual(self.servers_of(10), {SECOND: 10})
        self.servers.start(4, FIRST)
        wait_for([True, True])
        self.assertEqual(set(self.servers_of(30)), {FIRST, SECOND})
        health.send_signal(signal.SIGINT)
        health.wait(60)

    def test_top_ends_also_while_nobody_answers(self):
        self.serve_with()
        for end, status in ((b"q", DONE), (b"\x03", INTERRUPTED), (signal.SIGTERM, INTERRUPTED)):
            with self.subTest(end=end):
                ours, its = pty.openpty()
                self.addCleanup(os.close, ours)
                self.addCleanup(os.close, its)
                before = termios.tcgetattr(its)
                top = subprocess.Popen([MILLCTL, "--socket", self.control, "top", "--interval", "50ms"],
                                       stdin=its, stdout=its, stderr=its)
                self.addCleanup(top.wait)
                self.addCleanup(top.kill)
                self.shown(ours, b"packets a second")
                self.process.send_signal(signal.SIGSTOP)
                try:
                    time.sleep(0.5)  # top now waits for an answer
                    if isinstance(end, bytes):
                        os.write(ours, end)
                    else:
                        top.send_signal(end)
                    self.assertEqual(top.wait(timeout=20), status)
                finally:
                    self.process.send_signal(signal.SIGCONT)
                self.assertEqual(termios.tcgetattr(its), before)
                self.assertNotIn(b"millctl:", self.shown(ours, b"\x1b[?1049l"))

    def shown(self, terminal, words):
        """Reads the terminal until it has shown `words`; returns the text since the last call."""
        text = b""
        while words not in text:
            self.assertTrue(select.select([terminal], [], [], 20)[0], text)
            text += os.read(terminal, 4096)
        return text

    def test_exporter(self):
        self.serve_with()
        self.servers_of(3)
        exporter = self.beside("exporter", "--listen", "127.0.0.1:0")
        with patience_with(exporter):
            address = exporter.stdout.readline().split()[-1]
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # ignores http_proxy
        with direct.open(address, timeout=20) as answer:
            text = answer.read().decode()
        self.assertIn("\nmillrace_up 1\n", text)
        opened = self.ask("GET /stats")["connections"]["opened"]
        self.assertIn(f"\nmillrace_connections_opened_total {opened}\n", text)


if __name__ == "__main__":
    main()
