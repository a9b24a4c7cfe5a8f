"""The part of cli_test.py about `millrace-bench`, which `millrace` runs for `bench` and `advise`."""

import os
import shutil
import subprocess

from cli_case import DONE, MILLRACE, UNREADABLE, USAGE, Case

BENCH = os.path.join(os.path.dirname(MILLRACE), "millrace-bench")
# A program that prints its command line and its process id, and ends with a status of its own.
OTHER = """#!/bin/sh
echo "$0: $*, process $$"
exit 42
"""


class HandingOverCli(Case):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("bin"))
        self.alone = shutil.copy(MILLRACE, self.path("bin"))  # without millrace-bench
        os.mkdir(self.path("other"))
        self.other = self.write("other/millrace-bench", OTHER)
        os.chmod(self.other, 0o755)

    def run_alone(self, *arguments, path=os.defpath):
        process = subprocess.Popen([self.alone, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   env={**os.environ, "PATH": path})
        out, error = process.communicate(timeout=60)
        return process.pid, process.returncode, out, error

    def test_without_it(self):
        for command in (["bench"], ["bench", "path", "--quick"], ["bench", "--help"], ["advise", "--in", self.good]):
            _, status, out, error = self.run_alone(*command)
            self.assertEqual((status, out, error.count("\n")), (UNREADABLE, "", 1), error)
            self.assertTrue(error.startswith(f"millrace: {command[0]} needs the program millrace-bench, "), error)
        for command in (["--help"], ["schemes"], ["replay", "--in", self.good, "--quiet"]):
            self.assertEqual(self.run_alone(*command)[1], DONE)

    def test_it_is_found(self):
        words = ["bench", "path", "--json", "a b", "--", "-"]
        path = f"{self.path('other')}:{os.defpath}"
        pid, status, out, error = self.run_alone(*words, path=path)
        self.assertEqual((status, out, error), (42, f"{self.other}: {' '.join(words)}, process {pid}\n", ""))
        beside = shutil.copy(self.other, self.path("bin"))
        self.assertIn(f"{beside}: advise,", self.run_alone("advise", path=path)[2])
        os.symlink(self.alone, self.path("link"))
        done = subprocess.run([self.path("link"), "bench"], capture_output=True, text=True)
        self.assertIn(f"{beside}: bench,", done.stdout)
        os.chmod(beside, 0o644)
        _, status, out, error = self.run_alone("bench", "path", path=path)
        self.assertEqual((status, out, error), (UNREADABLE, "", f"millrace: {beside}: Permission denied\n"))

    def test_it_speaks_as_millrace(self):
        shown = self.run_ok("bench", "path", "--help").stdout
        self.assertIn("Usage: millrace bench path ", shown)
        self.assertIn("Usage: millrace advise ", self.run_ok("advise", "--help").stdout)
        called = subprocess.run([BENCH, "bench", "path", "--help"], capture_output=True, text=True)
        self.assertEqual(called.stdout, shown.replace("Usage: millrace ", "Usage: millrace-bench "))
        called = subprocess.run([BENCH, "replay"], capture_output=True, text=True)
        self.assertEqual((called.returncode, called.stderr),
                         (USAGE, "millrace: replay is no command of millrace-bench: give advise, bench, completion\n"))
        version = subprocess.run([BENCH, "--version"], capture_output=True, text=True).stdout
        self.assertEqual(version, self.run_ok("--version").stdout.replace("millrace ", "millrace-bench "))

    def test_completion(self):
        whole = self.run_ok("completion").stdout
        _, status, own, error = self.run_alone("completion")
        self.assertEqual((status, error), (DONE, ""))
        others = subprocess.run([BENCH, "completion"], capture_output=True, text=True).stdout
        self.assertEqual(whole, own + others)

        def complete(script, function, *words):
            asked = f'COMP_WORDS=({" ".join(words)}) COMP_CWORD={len(words) - 1}; {function}; echo "${{COMPREPLY[@]}}"'
            return subprocess.run(["bash", "-c", script + asked], capture_output=True, text=True, check=True).stdout.split()

        self.assertEqual(complete(whole, "_millrace", "millrace", "advise", "--ou"), ["--out"])
        self.assertEqual(complete(whole, "_millrace", "millrace", "be"), ["bench"])
        self.assertEqual(complete(whole, "_millrace_bench", "millrace-bench", "bench", "path", "--traffic", "c"), ["campus"])
        self.assertEqual(complete(own, "_millrace", "millrace", "advise", "--ou"), [])
        self.assertEqual(complete(own, "_millrace", "millrace", "be"), ["bench"])
