"""Common parts of the tests of the program `millrace`, which the first argument of the command line names."""

import fcntl
import os
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

import foreground  # noqa: F401

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
NOBODY = 65534
MILLRACE = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "millrace"
DONE, FAILED, USAGE, UNREADABLE, INTERRUPTED = 0, 1, 2, 3, 130


class Case(unittest.TestCase):
    """A test with a folder of its own, a capture `good` in it, and functions that run the program."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = folder.name
        self.good = self.path("good.pcap")
        self.run_ok("generate", "--connections", "300", "--packets", "3000", "--out", self.good)

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, content):
        mode = "wb" if isinstance(content, bytes) else "w"
        with open(self.path(name), mode) as file:
            file.write(content)
        return self.path(name)

    def run_it(self, *arguments, **options):
        return subprocess.run([MILLRACE, *arguments], capture_output=True, text=True, timeout=120,
                              **options)

    def run_ok(self, *arguments):
        result = self.run_it(*arguments)
        self.assertEqual(result.returncode, DONE, result.stderr)
        return result

    def refuse(self, status, words, *arguments, **options):
        """Checks that the program ends with `status`, prints to standard error one line with all `words`, and leaves no file behind."""
        before = sorted(os.listdir(self.dir))
        result = self.run_it(*arguments, **options)
        self.assertEqual(result.returncode, status, (arguments, result.stderr))
        self.assertEqual(result.stdout, "")
        lines = result.stderr.strip().split("\n")
        self.assertEqual(len(lines), 1, lines)
        self.assertTrue(lines[0].startswith("millrace: "), lines)
        for word in words:
            self.assertIn(word, lines[0])
        self.assertEqual(sorted(os.listdir(self.dir)), before, "the program left a file behind, or removed one")

    def replay(self, *arguments):
        return ("replay", "--in", self.good, *arguments)

    def bench_on_terminal(self, *arguments, sent=None, until="", size=(0, 0), **environment):
        """Runs a bench with a terminal of `size` (rows, columns) as standard error. Sends the bench the signal `sent`,
        if any, once the terminal shows `until`. Returns the terminal's text, standard output, and the exit status."""
        try:
            terminal, end = os.openpty()
        except OSError as error:
            self.skipTest(f"no terminal to be had: {error} (is /dev/pts mounted?)")
        self.addCleanup(os.close, terminal)
        fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("4H", *size, 0, 0))

        printed = tempfile.TemporaryFile("w+")  # a pipe would fill while the terminal is read
        self.addCleanup(printed.close)
        process = subprocess.Popen([MILLRACE, "bench", *arguments], stderr=end, stdout=printed,
                                   env={**os.environ, "TERM": "xterm", "NO_COLOR": "", **environment})
        os.close(end)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        shown = ""
        try:
            while text := os.read(terminal, 4096).decode():
                shown += text
                if sent is not None and until in shown:
                    process.send_signal(sent)
                    sent = None
        except OSError:  # the other end is closed
            pass
        process.wait(timeout=60)
        printed.seek(0)
        return shown, printed.read(), process.returncode

    def interrupt_bench(self, sent, until, *arguments):
        shown, printed, status = self.bench_on_terminal(*arguments, sent=sent, until=until)
        self.assertIn(until, shown)
        return shown, printed, status
