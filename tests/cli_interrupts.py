"""The part of cli_test.py about interrupts of `replay`, which keeps the results so far."""

import json
import os
import signal
import struct
import subprocess
import time

from cli_case import DONE, INTERRUPTED, MILLRACE, Case


class InterruptsCli(Case):
    def test_interrupted(self):
        for sent in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with self.subTest(sent):
                self.interrupt(sent)
        self.interrupt(signal.SIGINT, "--workers", "3")

    def test_interrupted_before_anything_is_written(self):
        fifo = self.path("slow.pcap")
        os.mkfifo(fifo)
        before = sorted(os.listdir(self.dir))
        for sent in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            process = self.start("replay", "--in", fifo, "--out", self.path("out.pcap"),
                                 "--stats", self.path("stats.json"))
            with open(fifo, "wb") as file, open(self.good, "rb") as good:
                file.write(good.read(1000))  # the program has opened the pipe; it waits for more, which never comes
                file.flush()
                process.send_signal(sent)
                self.assertEqual(process.communicate(timeout=60), ("", ""))
            self.assertEqual(process.returncode, INTERRUPTED)
            self.assertEqual(sorted(os.listdir(self.dir)), before)

    def test_an_ignored_hangup_stays_ignored(self):
        out = self.path("out.pcap")
        process = self.start(*self.replay("--loops", "300", "--out", out),
                             ignored=signal.SIGHUP)
        self.wait_for_output(process)
        process.send_signal(signal.SIGHUP)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, DONE)
        self.assertEqual(self.packets_in(out), 300 * 3000)

    def start(self, *arguments, ignored=None):
        def ignore():
            if ignored is not None:
                signal.signal(ignored, signal.SIG_IGN)

        process = subprocess.Popen([MILLRACE, *arguments], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, preexec_fn=ignore)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def wait_for_output(self, process):
        """Waits until the program has begun to write its temporary file, or has ended; for a minute at most."""
        deadline = time.monotonic() + 60
        while (not self.grown_partial() and process.poll() is None
               and time.monotonic() < deadline):
            time.sleep(0.01)

    def interrupt(self, sent, *arguments):
        out = self.path("out.pcap")
        process = self.start(*self.replay("--loops", "20000", "--out", out, "--stats", "-",
                                          *arguments))
        self.wait_for_output(process)
        process.send_signal(sent)
        stdout, stderr = process.communicate(timeout=60)
        self.assertEqual(process.returncode, INTERRUPTED, stderr)
        self.assertIn("interrupted after", stderr)
        stats = json.loads(stdout)
        self.assertTrue(stats["interrupted"])
        self.assertEqual(stats["packets"]["in"], stats["packets"]["out"])
        self.assertEqual(self.packets_in(out), stats["packets"]["out"])
        self.assertEqual(self.partial(), [])

    def partial(self):
        return [name for name in os.listdir(self.dir) if name.endswith(".partial")]

    def grown_partial(self):
        return [name for name in self.partial() if os.path.getsize(self.path(name)) > 0]

    @staticmethod
    def packets_in(path):
        count = 0
        with open(path, "rb") as file:
            file.seek(24)
            while header := file.read(16):
                file.seek(struct.unpack("<IIII", header)[2], os.SEEK_CUR)
                count += 1
        return count
