"""Tests of a study under faults: signals, damaged files, wrong answers, full disks."""

import json
import os
import signal
import subprocess
import time

from study_case import CAPTURE, EXPERIMENT, GIVEN, PROGRAM, StudyCase


class StudyFaults(StudyCase):
    def start_slow(self):
        """Starts a study whose first run takes a minute. Returns once the measuring program has written its process id to `pid`."""
        self.write("experiments/1-speed.toml", EXPERIMENT.replace("[16, 18, 20]", "[18]"))
        self.write("program", PROGRAM.replace("time.sleep(60)", 'open(os.path.join(folder, "pid"), "w").write(f"{os.getpid()}.")\n'
                                              '    time.sleep(60)'))
        self.write("slow", "")
        self.write("pid", "")
        process = subprocess.Popen([*self.command, "full"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   start_new_session=True)
        while not self.read("pid").endswith("."):
            self.assertIsNone(process.poll())
            time.sleep(0.05)
        return process

    def test_signals_end_what_measures(self):
        for number in (signal.SIGTERM, signal.SIGHUP):
            process = self.start_slow()
            process.send_signal(number)
            _, said = process.communicate(timeout=30)
            self.assertEqual(process.returncode, 130, said)
            self.assertIn("interrupted: run the same command to go on", said)
            self.assertIn("not run yet", self.page())
            give_up = time.monotonic() + 20
            while os.path.exists(f"/proc/{self.read('pid')[:-1]}"):
                self.assertLess(time.monotonic(), give_up)
                time.sleep(0.05)

    def test_an_interrupt_while_modules_are_read(self):
        os.mkdir(self.path("modules"))
        self.write("modules/jinja2.py", "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)\n")
        done = subprocess.run([*self.command, "full"], env={**os.environ, "PYTHONPATH": self.path("modules")}, capture_output=True,
                              text=True, timeout=60)
        self.assertEqual((done.returncode, done.stderr), (130, ""))

    def test_two_at_once(self):
        process = self.start_slow()
        self.assertEqual(self.run_it("full", status=1).stderr, f"study/run: {self.path('out')}: another study is at work there\n")
        self.run_it("--list")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)

    def test_a_name_given_twice(self):
        self.write("mended", "")
        self.run_it("1-speed", "1-speed", "--again")
        self.assertEqual(self.calls(), ["16", "18", "20"])

    def test_a_capture_whose_making_was_killed(self):
        self.write("mended", "")
        self.write("program", PROGRAM.replace("    sys.exit()", '    if "8" in sys.argv:\n        os.kill(os.getpid(), 9)\n    sys.exit()', 1))
        self.write("experiments/1-speed.toml", CAPTURE)
        self.run_it("full")
        self.write("experiments/1-speed.toml", CAPTURE.replace('"9"', '"8"'))
        self.assertIn("killed by SIGKILL", self.run_it("full", status=1).stderr)
        self.write("experiments/1-speed.toml", CAPTURE)
        self.run_it("full", "--again")
        made = [line.split()[2] for line in self.called() if line.startswith("generate")]
        self.assertEqual(made, ["9", "8", "8", "8", "9"])

    def test_a_bare_name_is_a_file_here(self):
        self.write("mended", "")
        done = subprocess.run([*self.command, "full", "--program", "program"], cwd=self.dir, capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_records_of_another_shape_are_left_out(self):
        self.given([{"table": "race", "ns": 2}], "")
        self.run_it("full")
        record = json.loads(self.read("out/full.jsonl"))
        result = record["result"]
        wrong = [{"warnings": None}, {"warnings": 5}, {"warnings": [{}]}, {"seconds": 10 ** 400}, {"round": True},
                 *({"result": result | part} for part in (
                     {"machine": 5}, {"machine": {"caches": 5}}, {"machine": {"kernel": [[]]}}, {"results": {}}, {"results": [[]]}))]
        lines = [*(json.dumps(record | part) for part in wrong), "[" * 100000]
        self.write("out/full.jsonl", "".join(line + "\n" for line in [*lines, *lines[:2]]))
        said = self.run_it("full").stderr
        for number in range(1, 11):
            self.assertIn(f"left out: full.jsonl, line {number}: ", said)
        self.assertIn("full.jsonl: 3 more lines", said)
        self.assertIn("full.jsonl: 3 more lines", self.page())
        self.assertIn("<svg", self.page())

    def test_rounds_that_do_not_fit_together(self):
        self.given([{"table": "race", "ns": 2, "bins": {"1": 2}}], "")
        self.run_it("full")
        self.given([{"table": "race", "ns": 2, "bins": 5}], "")
        self.run_it("full", "--rounds", "2")
        self.assertIn("its rounds do not fit together: ", self.page())

    def test_odd_values_fail_with_their_picture(self):
        for value in ([], {}, "\ud800", json.loads("[" * 400 + "]" * 400)):
            self.given([{"table": "\ud800", "ns_median": value, "ns_min": 1, "ns_max": 1}], "")
            self.run_it("full", "--out", self.path(f"out{len(str(value))}"))

    def test_answers_that_are_none(self):
        self.write("experiments/1-speed.toml", GIVEN)
        for answer, said in (("", "its answer is no JSON: &#39;&#39;"), ("x" * 99, f"its answer is no JSON: &#39;{'x' * 80}&#39;"),
                             ("[" * 100000, "its answer is no JSON: "), ('{"results": 3}', "its answer is JSON whose `results` is no list")):
            self.write("result", answer)
            self.run_it("full", status=1)
            self.assertIn(said, self.page())
        self.write("program", "#!/bin/sh\nhead -c 9999 /dev/zero | tr '\\0' x >&2; kill -SEGV $$\n")
        self.run_it("full", status=1)
        self.assertIn(f"killed by SIGSEGV: {'x' * 2000}<", self.page())

    def test_what_cannot_be_written_is_said_before_anything_is_measured(self):
        makers = (os.mkdir, os.mkfifo, lambda path: os.symlink(self.path("nowhere/at/all"), path))
        for number, make in enumerate(makers):
            for name in ("full.jsonl", "full.html", "full.html.partial"):
                out = self.path(f"out{number}{name}")
                os.mkdir(out)
                make(os.path.join(out, name))
                said = self.run_it("full", "--out", out, status=1).stderr
                self.assertEqual(said, f"study/run: {os.path.join(out, name)}: Not a regular file\n")
        self.assertFalse(os.path.exists(self.path("calls")))

    def test_what_is_no_file_is_not_read(self):
        os.mkfifo(self.path("pipe"))
        for what in (self.path("pipe"), "/dev/zero"):
            for option in ("--in", "--program"):
                self.assertEqual(self.run_it("full", option, what, status=3).stderr, f"study/run: {what}: Not a regular file\n")

    def test_texts_name_values_only(self):
        texts = ("{all.__init__.__globals__}", "{all.ns.real}", "{all.ns!r}", "{all.ns:{all.__class__}}", "{all._row}")
        self.given([{"table": "race", "ns": 2}], "".join(f'[[finding]]\ntext = "{text}"\nof.all = {{}}\n' for text in texts))
        self.run_it("full")
        for text in texts:
            self.assertIn(f'<p class="failed"><code>{text}</code>: ', self.page())

    def test_what_an_experiment_may_not_say(self):
        for right, wrong, said in (("[16, 18, 20]", "[2026-01-01]", "vary: give a table of lists of texts and numbers"),
                                   ('kind = "bars"', 'kind = "pie"', 'kind: give "bars" or "lines"'),
                                   ("notes", 'generate = { "a/b" = [] }', "generate: give a table of lists of texts, by names")):
            text = EXPERIMENT.replace(right, wrong, 1) if right in EXPERIMENT else wrong + "\n" + EXPERIMENT
            self.write("experiments/1-speed.toml", text)
            self.assertIn(said, self.run_it("full", status=2).stderr)

    def test_a_capture_for_none(self):
        self.write("mended", "")
        said = self.run_it("full", "--in", self.write("a.pcap", "")).stderr
        self.assertIn("study/run: warning: --in: no experiment that is asked for takes a capture\n", said)

    def test_standard_output_that_takes_nothing(self):
        read, write = os.pipe()
        os.close(read)
        with open("/dev/full", "w", encoding="utf-8") as full, os.fdopen(write) as closed:
            for out, said in ((full, "study/run: standard output: No space left on device\n"), (closed, "")):
                done = subprocess.run([*self.command, "--list"], stdout=out, stderr=subprocess.PIPE, text=True, timeout=60)
                self.assertEqual((done.returncode, done.stderr), (1, said))
