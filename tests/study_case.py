"""Common parts of the study's tests: a study with a program that answers at once, and the study's page."""

import json
import os
import re
import stat
import subprocess
import tempfile
import unittest

import foreground  # noqa: F401

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RUN = os.path.join(ROOT, "study", "run")
PROGRAM = """#!/usr/bin/env python3
import json, os, sys, time
folder = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(folder, "calls"), "a") as calls:
    print(*sys.argv[1:], file=calls)
if sys.argv[1] == "generate":
    open(sys.argv[sys.argv.index("--out") + 1], "w").close()
    sys.exit()
if os.path.exists(os.path.join(folder, "result")):
    print(open(os.path.join(folder, "result")).read())
    sys.exit()
bits = int(sys.argv[sys.argv.index("--bits") + 1])
if bits == 18 and os.path.exists(os.path.join(folder, "slow")):
    time.sleep(60)
if bits == 20 and not os.path.exists(os.path.join(folder, "mended")):
    print("millrace: no memory <for> 2^20", file=sys.stderr)
    sys.exit(1)
rows = [{"table": table, "live": 1 << bits, "ns_median": bits * by, "ns_min": bits * by - 1, "ns_max": bits * by + 2}
        for table, by in (("race", 1), ("std", 3))]
json.dump({"results": rows, "machine": {"processor": "P & Q", "cores": 2, "caches": ["L1"], "kernel": "k", "compiler": "c",
                                        "flags": "-O3", "commit": "abc"}}, sys.stdout)
"""
EXPERIMENT = """question = "How fast?"
figures = "A paper, Figure 1"
bench = "tables"
arguments = ["--key-bytes", "16"]
quick = []
vary = { bits = [16, 18, 20] }
quick_vary = { bits = [16] }
[[picture]]
title = "Look-ups"
x = "live"
y = "ns"
y_label = "ns"
series = "table"
[[picture]]
title = "theirs"
published = "hpsr21"
rows = { experiment = "single_thread_4000000", trace = "CAIDA" }
kind = "bars"
x = "table"
y = "mpps"
[[finding]]
text = "Which is fastest, {theirs.table} ({theirs.mpps_median:.2f} Mpps)?"
agrees = [["best.table", "is", "theirs.table"]]
differs = "It is {best.table}."
of.best = { rows = { bits = 16 }, least = "ns_median" }
of.theirs = { published = "hpsr21", rows = { experiment = "single_thread_4000000", trace = "CAIDA" }, most = "mpps_median" }
[[finding]]
text = "Three times?"
agrees = [["times", ">", 2.9], ["times", "<", 3.1]]
differs = "It is not."
of.best = { rows = { bits = 16 }, least = "ns_median" }
of.worst = { rows = { bits = 16 }, most = "ns_median" }
ratio.times = ["worst.ns_median", "best.ns_median"]
[[finding]]
text = "{best.table} is fastest: {best.ns_median:.0f} ns, {times:.1f} times as fast as {worst.table}."
of.best = { rows = { bits = 16 }, least = "ns_median" }
of.worst = { rows = { bits = 16 }, most = "ns_median" }
ratio.times = ["worst.ns_median", "best.ns_median"]
"""
# An experiment with a generated capture.
CAPTURE = EXPERIMENT.replace('["--key-bytes", "16"]', '["--in", "{capture}"]').replace(
    "[[picture]]", 'generate = { small = ["--connections", "9"] }\n[[picture]]', 1)
# An experiment for tests that choose the program's answer (the file `result`).
GIVEN = """question = "What?"
bench = "tables"
[[picture]]
title = "All"
kind = "bars"
x = "table"
y = "ns"
"""


class StudyCase(unittest.TestCase):
    maxDiff = 200

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = folder.name
        os.mkdir(self.path("experiments"))
        self.write("experiments/1-speed.toml", EXPERIMENT)
        self.program = self.write("program", PROGRAM)
        os.chmod(self.program, os.stat(self.program).st_mode | stat.S_IXUSR)
        self.command = [RUN, "--program", self.program, "--experiments", self.path("experiments"), "--out", self.path("out"), "--rounds", "1"]

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def run_it(self, *what, status=0):
        done = subprocess.run([*self.command, *what], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, status, done.stderr)
        return done

    def called(self):
        with open(self.path("calls"), encoding="utf-8") as file:
            return file.read().splitlines()

    def calls(self):
        return re.findall(r"--bits (\d+)", "\n".join(self.called()))

    def page(self, name="full"):
        with open(self.path(f"out/{name}.html"), encoding="utf-8") as file:
            return file.read()


    def given(self, rows, experiment, machine="P"):
        """Makes the program report `rows`, and writes the experiment's file: `GIVEN`, then the lines in `experiment`."""
        self.write("experiments/1-speed.toml", GIVEN + experiment)
        self.write("result", json.dumps({"results": rows, "machine": {"processor": machine, "cores": 2, "caches": ["L1"], "kernel": "k"}}))
