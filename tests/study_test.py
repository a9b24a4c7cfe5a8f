#!/usr/bin/env python3
"""Tests the programs that the study runs, the results that it keeps, and its page, with a program that answers at once.

    study_test.py
"""

import json
import lzma
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
import unittest

from study_case import CAPTURE, EXPERIMENT, PROGRAM, ROOT, RUN, StudyCase
from study_faults import StudyFaults  # noqa: F401  unittest runs the imported tests, too
from study_live import ClusterResults, Repository, StudyLive  # noqa: F401  unittest runs the imported tests, too
from study_page import StudyPage  # noqa: F401  unittest runs the imported tests, too

sys.path.insert(0, os.path.join(ROOT, "study"))
from rows import merged, spread, unfolded  # noqa: E402


class Rows(unittest.TestCase):
    def test_bins_of_rounds_are_in_order_and_empty_where_not_met(self):
        rounds = [{"bins": {"10": 0.5, "9": 0.5}}, {"bins": {"9": 0.75, "100": 0.25}}]
        self.assertEqual(list(merged(rounds)["bins"].items()), [("9", 0.625), ("10", 0.25), ("100", 0.125)])

    def test_a_number_of_several_rounds_keeps_its_spread(self):
        rounds = [{"table": "race", "waiting": waiting, "live": 9, "ns_median": waiting, "ns_min": waiting - 1, "ns_max": waiting + 1,
                   "latency_us": {"50": waiting}} for waiting in (3, 1, 8)]
        row = merged(rounds)
        self.assertEqual(row, {"table": "race", "waiting": 3, "waiting_min": 1, "waiting_max": 8, "live": 9,
                               "ns_median": 3, "ns_min": 0, "ns_max": 9, "latency_us": {"50": 3}})
        self.assertEqual(spread(row, "waiting"), (3, 1, 8))
        self.assertEqual(spread(row, "waiting", "live"), (3 / 9, 1 / 9, 8 / 9))
        self.assertEqual(spread(row, "ns"), (3, 0, 9))
        self.assertEqual(merged(rounds[:1]), rounds[0])
        self.assertEqual(spread(rounds[0], "waiting"), (3, 3, 3))

    def test_what_a_round_has_not_measured_is_left_out(self):
        row = merged([{"a": None, "b": None, "c": None, "ns_min": None}, {"a": {"ns_median": 2}, "b": 2, "c": None, "ns_min": 1},
                      {"a": {"ns_median": 4}, "b": 2, "ns_min": 2}])
        self.assertEqual(row, {"a": {"ns_median": 3}, "b": 2, "c": None, "ns_min": 1})
        self.assertIsNone(spread({"ns": {"ns_median": None, "ns_min": 1, "ns_max": 2}}, "ns"))
        self.assertIsNone(spread({"ns_median": 1, "ns_min": 1, "ns_max": None}, "ns"))
        self.assertIsNone(spread({"ns": 3, "limit": None}, "ns", "limit"))
        self.assertEqual(unfolded([{"all": None}, {"all": [{"ns": 1}]}, {}], "all"), [{"all": [{"ns": 1}], "ns": 1}])


class Study(StudyCase):
    def test_what_fails_is_shown_and_tried_again(self):
        said = self.run_it("full", status=1).stderr
        self.assertIn("no memory <for> 2^20", said)
        self.assertIn("3 of 3, about", said)
        page = self.page()
        self.assertIn("no memory &lt;for&gt; 2^20", page)
        self.assertIn("millrace bench tables --key-bytes 16 --bits 18", page)
        self.assertEqual(page.count("<svg"), 2)
        self.assertIn("<strong>Published</strong>, theirs. High-speed Connection Tracking", page)
        # The expected number is the mean of the two series that the paper's authors released.
        self.assertIn("Which is fastest, cuckoo++ (4.16 Mpps)? <strong>Not as published.</strong> It is race. <a", page)
        self.assertIn("Three times? <strong>As published.</strong> <a", page)
        self.assertIn("race is fastest: 16 ns, 3.0 times as fast as std. <a href=\"#1-speed-1\">picture and data</a>", page)
        self.assertIn("P &amp; Q", page)
        # The page refers to no address outside itself; the name of an XML namespace (xmlns) is none.
        for address in re.findall(r'(?<!xmlns:)(?:src|href|url)\s*[=(]\s*["\']?([^"\')\s>]+)', page):
            self.assertTrue(address.startswith("#"), address)
        self.write("mended", "")
        self.run_it("full")
        self.assertEqual(self.calls(), ["16", "18", "20", "20"])
        self.assertNotIn("no memory", self.page())
        self.assertIn("1-speed, bits 16: done in", self.run_it("--list", "full").stdout)

    def test_they_stand_in_the_order_of_their_numbers(self):
        for name in ("10-ten", "9-nine", "2-b", "2-a"):
            self.write(f"experiments/{name}.toml", EXPERIMENT)
        listed = [line.partition(",")[0] for line in self.run_it("quick", "--list").stdout.splitlines()]
        self.assertEqual(listed, ["1-speed", "2-a", "2-b", "9-nine", "10-ten"])

    def test_an_interrupted_one_goes_on(self):
        self.write("mended", "")
        self.write("slow", "")
        process = subprocess.Popen([*self.command, "full"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                   start_new_session=True)
        while not (os.path.exists(self.path("calls")) and "18" in self.calls()):
            self.assertIsNone(process.poll())
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, said)
        self.assertIn("interrupted", said)
        self.assertIn("not run yet", self.page())
        os.remove(self.path("slow"))
        self.run_it("full")
        self.assertEqual(self.calls(), ["16", "18", "18", "20"])

    def test_damaged_results(self):
        self.write("mended", "")
        self.run_it("full")
        with open(self.path("out/full.jsonl"), encoding="utf-8") as file:
            lines = file.readlines()
        self.assertEqual(len(lines), 3)
        self.write("out/full.jsonl", lines[0] + lines[1][:70] + "\n" + lines[2][:-1])
        said = self.run_it("full").stderr
        self.assertIn("full.jsonl, line 2: ", said)
        self.assertIn("full.jsonl, line 2: ", self.page())
        self.assertEqual(self.calls(), ["16", "18", "20", "18"])
        with open(self.path("out/full.jsonl"), encoding="utf-8") as file:
            self.assertEqual(json.loads(file.readlines()[3])["varied"], {"bits": 18})

    def test_lines_that_are_no_records(self):
        self.write("mended", "")
        self.run_it("full")
        with open(self.path("out/full.jsonl"), encoding="utf-8") as file:
            records = [json.loads(line) for line in file]
        del records[0]["result"]
        del records[1]["seconds"]
        records[2]["result"] = 3
        self.write("out/full.jsonl", "".join(json.dumps(record) + "\n" for record in records))
        said = self.run_it("full").stderr
        for line in (1, 2, 3):
            self.assertIn(f"full.jsonl, line {line}: no record of a run", said)
        self.assertEqual(self.calls(), 2 * ["16", "18", "20"])

    def test_results_that_cannot_be_read_are_one_line(self):
        os.makedirs(self.path("out/full.jsonl"))
        said = self.run_it("full", status=1).stderr
        self.assertEqual(said, f"study/run: {self.path('out/full.jsonl')}: Not a regular file\n")

    def test_quick_and_named(self):
        self.run_it("quick")
        self.assertIn("(quick)", self.page("quick"))
        self.assertIn("ran in one round. Pictures show", self.page("quick"))
        self.assertNotIn("rounds", self.page("quick"))
        self.run_it("1-speed", status=1)
        self.assertEqual(self.calls(), ["16", "16", "18", "20"])

    def test_errors(self):
        self.assertIn("nothing is no experiment: give quick, full", self.run_it("nothing", status=2).stderr)
        self.assertIn("full stands alone", self.run_it("full", "1-speed", status=2).stderr)
        self.assertIn("give quick, full, or experiments by name", self.run_it(status=2).stderr)
        self.assertEqual(self.run_it("--list").stdout, self.run_it("--list", "full").stdout)
        self.assertIn("nowhere is not there", self.run_it("quick", "--program", "nowhere", status=2).stderr)
        self.write("experiments/1-speed.toml", EXPERIMENT.replace("quick_vary", "quikc_vary"))
        self.assertIn("quikc_vary: no such key: give arguments, bench", self.run_it("quick", status=2).stderr)
        self.write("experiments/1-speed.toml", EXPERIMENT.replace('published = "hpsr21"', 'published = "hpsr22"'))
        self.assertIn("published: hpsr22: no such source: give hpsr21", self.run_it("quick", status=2).stderr)
        self.write("experiments/1-speed.toml", EXPERIMENT.replace("differs", "difers"))
        self.assertIn("finding: difers: no such key: give agrees, differs", self.run_it("quick", status=2).stderr)
        self.write("experiments/1-speed.toml", EXPERIMENT.replace("agrees", "picture = 3\nagrees", 1))
        self.assertIn("give the number of the picture that shows it", self.run_it("quick", status=2).stderr)
        self.write("experiments/1-speed.toml", EXPERIMENT.replace("of.best = {", 'of.best = { experiment = "2-more",', 1))
        self.assertIn("1-speed.toml: experiment: 2-more: no such experiment: give 1-speed", self.run_it("quick", status=2).stderr)
        self.write("experiments/1-speed.toml", "question = ")
        self.assertIn("1-speed.toml: ", self.run_it("quick", status=2).stderr)

    def test_what_an_experiment_says_wrong_is_one_line(self):
        for right, wrong, said in (
                ("How fast?", "How \udcff?", "1-speed.toml: 'utf-8' codec can't decode"),
                ("[[picture]]", "picture = 3\n[[picture]]", "1-speed.toml: "),
                ("notes = 3", "notes = 3", "1-speed.toml: notes: give a text"),
                ('bench = "tables"', 'bench = "tables"\nrounds = true', "rounds: give a whole number from 1"),
                ('bench = "tables"', 'bench = "tables"\nrounds = 0', "rounds: give a whole number from 1"),
                ('["--key-bytes", "16"]', '["--key-bytes", 16]', "arguments: give a list of texts"),
                ("vary = { bits = [16, 18, 20] }", "vary = 3", "vary: give a table of lists"),
                ("vary = { bits = [16, 18, 20] }", "vary = { bits = 3 }", "vary: give a table of lists"),
                ("vary = { bits = [16, 18, 20] }", "generate = { a = [1] }", "generate: give a table of lists of texts"),
                ('x = "live"', "x = 3", "picture: x: give a text"),
                ('x = "live"', 'x = "live"\nexperiment = "1-speed"', "picture: experiment: no such key"),
                ("agrees = [", 'picture = "1"\nagrees = [', "finding: picture: give a whole number from 1"),
                ("of.best = {", "of.other = 3\nof.best = {", "finding: of: give a table of tables"),
                ('[["best.table", "is", "theirs.table"]]', '[["best.table", "=", "theirs.table"]]',
                 'finding: agrees: give [["ONE", RELATION, "OTHER"], ...], RELATION one of <, >, is'),
                ('[["best.table", "is", "theirs.table"]]', '["best.table", "is", "theirs.table"]', "finding: agrees: give [["),
                ('[["best.table", "is", "theirs.table"]]', '[["best.table", "is"]]', "finding: agrees: give [["),
                ('differs = "It is {best.table}."', "", "finding: differs is missing: give a text for results that differ from the published ones"),
                ('ratio.times = ["worst.ns_median", "best.ns_median"]', 'ratio.times = ["worst.ns_median"]',
                 'finding: ratio: give NAME = ["ONE", "OTHER"]'),
                ('"It is {best.table}."', '"It is {bets.table}."', "finding: bets: no such name: give it as of.bets"),
                ('"It is {best.table}."', '"It is {best.table."', "finding: expected '}' before end of string: Which is fastest"),
                ('"times", ">", 2.9', '"tiems", ">", 2.9', "finding: tiems: no such name: give it as of.tiems"),
                ('ratio.times = ["worst.ns_median", "best.ns_median"]', 'ratio.times = ["worst.ns_median", "bset.ns_median"]', "finding: bset: no such"),
                ('of.best = {', 'of.other = { rows = { bits = 18 } }\nof.best = {', "finding: other is used nowhere"),
                ('ratio.times = ["worst.ns_median", "best.ns_median"]', 'sum.times = "worst.ns_median"',
                 'finding: sum: give NAME = ["ONE", "OTHER", ...]')):
            with self.subTest(wrong=wrong):
                text = EXPERIMENT.replace(right, wrong, 1) if right != wrong else wrong + "\n" + EXPERIMENT
                with open(self.path("experiments/1-speed.toml"), "w", encoding="utf-8", errors="surrogateescape") as file:
                    file.write(text)
                lines = self.run_it("quick", status=2).stderr.splitlines()
                self.assertEqual(len(lines), 1, lines)
                self.assertIn(said, lines[0])
        self.write("experiments/1-speed.toml", "picture = 3\n" + EXPERIMENT.partition("[[picture]]")[0])
        self.assertIn("picture: give it as [[picture]]", self.run_it("quick", status=2).stderr)

    def test_quick_falls_back_to_the_arguments(self):
        self.write("mended", "")
        self.write("experiments/1-speed.toml", EXPERIMENT.replace("quick = []\n", ""))
        self.run_it("quick")
        self.assertEqual(self.called(), ["bench tables --key-bytes 16 --bits 16 --json -"])

    def test_generated_captures(self):
        self.write("mended", "")
        self.write("experiments/0-capture.toml", CAPTURE)
        self.run_it("0-capture")
        file = self.path("out/captures/small.pcap")
        self.assertEqual(self.called(), [f"generate --connections 9 --out {file} --quiet",
                                         *(f"bench tables --in {file} --bits {bits} --json -" for bits in (16, 18, 20))])
        self.assertIn("<code>build/release/cli/millrace generate --connections 9 --out small.pcap</code>", self.page())
        self.assertIn("<code>build/release/cli/millrace bench tables --in small.pcap --bits 16</code>", self.page())
        self.assertNotIn(self.dir, self.page())
        shutil.copytree(self.path("out"), self.path("moved"))
        self.run_it("0-capture", "--out", self.path("moved"))
        self.assertEqual(len(self.called()), 4)
        os.remove(self.path("out/full.jsonl"))
        self.run_it("0-capture", "--in", self.write("mine.pcap", ""))
        self.assertEqual(self.called()[4:], [f"bench tables --in {one} --bits {bits} --json -"
                                             for one in (file, self.path("mine.pcap")) for bits in (16, 18, 20)])

    def test_a_program_that_is_built_anew_meanwhile(self):
        self.write("mended", "")
        self.write("program", PROGRAM + '\nif bits == 18:\n    print("# again", file=open(__file__, "a"))\n')
        self.assertIn("was built anew meanwhile", self.run_it("full", status=1).stderr)
        self.assertEqual(self.calls(), ["16", "18"])
        self.write("program", PROGRAM)
        self.run_it("full")
        self.assertEqual(self.calls(), ["16", "18", "16", "18", "20"])
        self.write("millrace-bench", "what millrace runs to measure")
        for _ in range(2):
            self.run_it("full")
        self.assertEqual(self.calls()[5:], ["16", "18", "20"])

    def test_with_a_capture(self):
        self.write("experiments/0-capture.toml", EXPERIMENT.replace('["--key-bytes", "16"]', '["--in", "{capture}"]'))
        self.write("mended", "")
        capture = self.write("a.pcap", "this")
        self.run_it("full")
        self.assertNotIn("0-capture", self.page())
        self.assertIn("0-capture takes a capture: give --in", self.run_it("0-capture", status=2).stderr)
        self.assertIn("a.pcapng: No such file", self.run_it("full", "--in", capture + "ng", status=3).stderr)
        for _ in range(2):
            self.run_it("full", "--in", capture)
        self.assertEqual(self.calls(), 2 * ["16", "18", "20"])
        self.assertIn("--in a.pcap --bits 16", self.page())
        os.mkdir(self.path("elsewhere"))
        shutil.copy(capture, self.path("elsewhere/a b.pcap"))
        done = subprocess.run([*self.command, "full", "--in", "./elsewhere/a b.pcap"], cwd=self.dir, capture_output=True, text=True,
                              timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.calls(), 2 * ["16", "18", "20"])
        self.assertIn("--in &#39;elsewhere/a b.pcap&#39; --bits 16", self.page())
        self.assertNotIn(self.dir, self.page())
        self.write("a.pcap", "another")
        self.run_it("full", "--in", capture)
        self.assertEqual(self.calls(), 3 * ["16", "18", "20"])

    def test_the_page_of_given_results(self):
        self.write("mended", "")
        self.write("experiments/0-capture.toml", CAPTURE)
        for held in ("before", "now"):
            self.run_it("full", "--in", self.write("mine.pcap", held))
        page, calls = self.page(), self.called()
        self.assertIn("--in mine.pcap --bits 16", page)
        whole = self.read("out/full.jsonl")
        self.command = self.command[:-2]  # without --rounds
        shutil.rmtree(self.path("out"))
        os.remove(self.program)
        for name, opener in (("given.jsonl", open), ("given.jsonl.xz", lzma.open)):
            with opener(self.path(name), "wt", encoding="utf-8") as file:
                file.write(whole)
            self.run_it("full", "--results", self.path(name))
            self.assertEqual(self.page(), page)
        with open(self.path("given.jsonl.xz"), "r+b") as file:
            file.truncate(os.path.getsize(file.name) - 20)
        self.assertIn("left out: given.jsonl.xz: Compressed file ended", self.run_it("full", "--results", self.path("given.jsonl.xz")).stderr)
        self.assertEqual(self.called(), calls)
        self.assertEqual(self.run_it("full", "--results", self.path("none"), status=3).stderr, f"study/run: {self.path('none')}: No such file or directory\n")
        self.assertIn("no results in it", self.run_it("full", "--results", self.write("empty", "\n"), status=2).stderr)
        self.assertIn("it runs nothing: leave out", self.run_it("full", "--results", self.path("given.jsonl"), "--again", status=2).stderr)

    def test_captures_of_one_name(self):
        self.write("experiments/0-capture.toml", CAPTURE)
        os.mkdir(self.path("b"))
        one, other, small = (self.write(name, name) for name in ("x.pcap", "b/x.pcapng", "small.pcap"))
        self.assertEqual(self.run_it("full", "--in", one, "--in", other, status=2).stderr,
                         f"study/run: --in {other}: another capture is named x, too: rename this one\n")
        self.assertEqual(self.run_it("full", "--in", small, status=2).stderr,
                         f"study/run: --in {small}: another capture is named small, too: rename this one\n")

    def test_what_cannot_be_written_is_one_line(self):
        self.write("mended", "")
        self.write("file", "")
        said = self.run_it("full", "--out", self.path("file"), status=1).stderr
        self.assertIn(f"{self.path('file')}: File exists\n", said)
        self.assertNotIn("Traceback", said)

        def full_disk():
            resource.setrlimit(resource.RLIMIT_FSIZE, (700, 700))

        done = subprocess.run([*self.command, "full"], capture_output=True, text=True, timeout=300, preexec_fn=full_disk)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("File too large: once that is repaired", done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        self.run_it("full")
        self.assertIn("<svg", self.page())

    def test_those_of_the_repository(self):
        self.command[self.command.index("--experiments") + 1] = os.path.join(ROOT, "study", "experiments")
        listed = self.run_it("--list", "full").stdout
        self.assertIn("1-tables-by-size, bits 22: to do", listed)


if __name__ == "__main__":
    try:
        subprocess.run([RUN, "--help"], capture_output=True, text=True, check=True, timeout=600)
    except subprocess.CalledProcessError as error:
        print(error.stderr.strip().splitlines()[-1] if error.stderr.strip() else "study/run does not start")
        sys.exit(77)
    unittest.main()
