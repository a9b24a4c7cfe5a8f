"""Tests of experiments that name a script of bench/live in place of a bench, and of the results of such a script, without a cluster."""

import argparse
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import unittest

from study_case import ROOT, StudyCase

for folder in ("study", "bench/live"):
    sys.path.insert(0, os.path.join(ROOT, folder))
import cluster_results  # noqa: E402
import experiments  # noqa: E402
import published  # noqa: E402
from rows import chosen  # noqa: E402

LIVE = """question = "What is interrupted?"
live = "fake"
arguments = ["--trials", "2"]
vary = { event = ["kill", "drain"] }
[[picture]]
title = "By event"
kind = "bars"
x = "event"
y = "interruption_ms"
[[picture]]
title = "By time"
list = "curve"
rows = { event = "kill" }
x = "at_s"
y = "answers_per_s"
[[finding]]
text = "{kill.interrupted} of {kill.of} wait {kill.interruption_ms_median:.0f} ms, {kill.interruption_ms_max:.0f} at most; whole after {kill.healed_s_median:.0f} s."
of.kill = { rows = { event = "kill" } }
"""
# Answers with what the file `answer.EVENT` beside it has.
SCRIPT = """import os, signal, sys, time
folder = os.path.dirname(os.path.abspath(__file__))
def path(name): return os.path.join(folder, name)
with open(path("../calls"), "a") as calls:
    print(*map(os.path.basename, sys.argv[:3]), *sys.argv[3:], file=calls)
if os.path.exists(path("cannot")):
    print("fake.py: tells of its tries\\nfake.py: no <switch> here", file=sys.stderr)
    sys.exit(77)
if os.path.exists(path("slow")):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        open(path("begun"), "w").close()
        time.sleep(60)
    finally:
        time.sleep(1)
        open(path("ended"), "w").close()
print(open(path("answer." + sys.argv[sys.argv.index("--event") + 1])).read())
"""


def trial(event, waits, healed_s, answers, **more):
    return {"event": event, "interruption_ms": {"of": len(waits), "median": 0, "most": 0, "all": waits, "udp": waits[:1], "idle_most": 8.5},
            "resets": 0, "damaged": 0, "lost": len(waits), "healed_s": healed_s, "conversations": {"tcp": 50, "udp": 50}, "servers": 4,
            "function": "balance", "store": "etcd",
            "curve": [{"at_s": at_s, "answers_per_s": of_it} for at_s, of_it in zip((-0.1, 0, 0.1), answers)]} | more


KILLED = [trial("kill", [150, 210.5], 5.5, (2000, 900, 1800)), trial("kill", [160, 200, 220], 6.5, (1900, 1100, 2000))]


def answer(trials):
    return {"machine": cluster_results.machine(), "results": cluster_results.rows(trials), "curve": cluster_results.curves(trials)}


class ClusterResults(unittest.TestCase):
    def test_trials_of_an_event_are_one_row(self):
        row, other = cluster_results.rows([*KILLED, trial("move", [], None, (1, 1, 1), lost=0)])
        self.assertEqual(row, {
            "event": "kill", "function": "balance", "store": "etcd", "servers": 4, "trials": 2, "of": 200, "interrupted": 5,
            "interruption_ms_median": 200, "interruption_ms_min": 150, "interruption_ms_max": 220, "udp_ms_median": 155, "udp_ms_min": 150,
            "udp_ms_max": 160, "idle_ms": 8.5, "resets": 0, "damaged": 0, "lost": 5, "healed": 2, "healed_s_median": 6, "healed_s_min": 5.5,
            "healed_s_max": 6.5})
        self.assertEqual((other["interrupted"], other["interruption_ms_median"], other["healed"], other["healed_s_median"]), (0, 0, 0, None))

    def test_curves_of_trials_have_the_middle_and_the_spread(self):
        self.assertEqual([tuple(point.values()) for point in cluster_results.curves(KILLED)],
                         [("kill", -0.1, 1950, 1900, 2000), ("kill", 0, 1000, 900, 1100), ("kill", 0.1, 1900, 1800, 2000)])

    def test_cluster_py_says_why_it_cannot_run(self):
        done = subprocess.run([sys.executable, os.path.join(ROOT, "bench/live/cluster.py"), "/nowhere/millrace", "/nowhere/agent", "--json", "-"],
                              capture_output=True, text=True, timeout=60)
        self.assertEqual((done.returncode, done.stdout), (77, ""))
        self.assertRegex(done.stderr, r"\Acluster\.py: [^\n]+\n\Z")


    def test_a_trial_that_other_programs_disturb_does_not_count(self):
        class Disturbed:
            @staticmethod
            def gaps(*_, **__):
                return [7, 180]

        spec = importlib.util.spec_from_file_location("live_cluster", os.path.join(ROOT, "bench/live/cluster.py"))
        live_cluster = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(live_cluster)
        with self.assertRaisesRegex(RuntimeError, "waited for 180 ms before the event"):
            live_cluster.report(Disturbed, argparse.Namespace(idle_most=150), "kill", (0, 5, 15), None)


class StudyLive(StudyCase):
    def setUp(self):
        super().setUp()
        os.remove(self.path("experiments/1-speed.toml"))
        self.write("experiments/3-live.toml", LIVE)
        os.mkdir(self.path("live"))
        self.write("live/fake.py", SCRIPT)
        self.write("live/answer.kill", json.dumps(answer(KILLED)))
        self.write("live/answer.drain", json.dumps(answer([trial("drain", [], 3, (1, 1, 1))])))
        self.write("millctl-cluster", "an agent")
        self.command += ["--live", self.path("live")]

    def show_given(self):
        """Makes the page anew of a copy of the results."""
        shutil.copy(self.path("out/full.jsonl"), self.path("given.jsonl"))
        at = self.command.index("--rounds")
        done = subprocess.run([*self.command[:at], *self.command[at + 2:], "full", "--results", self.path("given.jsonl")], capture_output=True,
                              text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_script_runs_with_millrace_and_the_agent_beside_it(self):
        self.run_it("full")
        asked = [f"fake.py program millctl-cluster --trials 2 --event {event} --json -" for event in ("kill", "drain")]
        self.assertEqual(self.called(), asked)
        page = self.page()
        self.assertNotIn('class="failed"', page)
        self.assertEqual(page.count("<svg"), 2)
        self.assertIn("<li>5 of 200 wait 200 ms, 220 at most; whole after 6 s.", page)
        self.assertIn("<tr><td>kill</td><td>200</td><td>150</td><td>220</td></tr>", page)
        self.assertIn("<tr><td>drain</td><td>0</td><td>0</td><td>0</td></tr>", page)
        self.assertIn("<tr><td>0</td><td>1000</td><td>900</td><td>1100</td></tr>", page)
        self.assertIn("python3 bench/live/fake.py build/release/cli/millrace build/control/millctl-cluster --trials 2 --event kill</code>", page)
        self.assertNotIn(self.dir, page)
        self.run_it("full")
        self.assertEqual(self.called(), asked)
        self.show_given()
        self.assertEqual(self.page(), page)

    def test_another_script_or_agent_measures_anew(self):
        for count, (name, text) in enumerate((("millctl-cluster", "an agent"), ("millctl-cluster", "another"), ("live/fake_events.py", ""),
                                              ("live/fake.py", SCRIPT + "\n"), ("live/other.py", "")), 1):
            self.write(name, text)
            self.run_it("full")
            self.assertEqual(len(self.called()), 2 * min(count, 4))

    def test_a_script_that_cannot_run_here_is_left_out(self):
        self.write("live/cannot", "")
        said = self.run_it("full").stderr
        self.assertEqual(said.splitlines()[-1:], ["study/run: 3-live is left out, since it cannot run here: fake.py: no <switch> here"])
        page = self.page()
        self.assertEqual(page.count('<p class="failed">'), 1)
        self.assertIn('<p class="failed">Left out, since it cannot run here: fake.py: no &lt;switch&gt; here</p>', page)
        self.assertNotIn("This page is incomplete", page)
        self.assertEqual(self.run_it("full", "--list").stdout.count(": left out\n"), 2)
        self.show_given()
        self.assertEqual(self.page(), page)
        self.run_it("3-live", status=1)
        os.remove(self.path("live/cannot"))
        self.run_it("full")
        self.assertNotIn('class="failed"', self.page())

    def test_a_script_that_fails_is_shown(self):
        self.write("live/fake.py", SCRIPT + "sys.exit('fake.py: no server came')\n")
        self.assertIn("study/run: 3-live, event kill: fake.py: no server came\n", self.run_it("full", status=1).stderr)
        self.assertIn("</code>: fake.py: no server came</p>", self.page())

    def test_the_quick_study_has_no_scripts(self):
        self.run_it("quick")
        self.assertFalse(os.path.exists(self.path("calls")))
        self.assertNotIn("3-live", self.page("quick") + self.run_it("quick", "--list").stdout)

    def test_an_interrupt_lets_a_script_end_in_order(self):
        self.write("live/slow", "")
        process = subprocess.Popen([*self.command, "full"], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
        while not os.path.exists(self.path("live/begun")):
            self.assertIsNone(process.poll())
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # like Ctrl-C
        _, said = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, said)
        self.assertTrue(os.path.exists(self.path("live/ended")))

    def test_what_an_experiment_with_a_script_says_wrong(self):
        for right, wrong, said in (('live = "fake"', 'live = "fake"\nbench = "tables"', "give either bench or live"),
                                   ('live = "fake"', "", "give either bench or live"), ('live = "fake"', "live = 3", "live: give a text"),
                                   ('live = "fake"', 'live = "none"', f"live: none: {self.path('live/none.py')}: No such file"),
                                   ('"--trials", "2"', '"{capture}"', "arguments: {capture}: no script takes a capture")):
            self.write("experiments/3-live.toml", LIVE.replace(right, wrong))
            lines = self.run_it("full", status=2).stderr.splitlines()
            self.assertEqual(len(lines), 1, lines)
            self.assertIn(said, lines[0])


class Repository(StudyCase):
    def test_published_rows_that_experiments_select_are_there(self):
        for experiment in experiments.read_all(os.path.join(ROOT, "study/experiments")):
            wanted = [*experiment.picture, *(of for finding in experiment.finding for of in finding.get("of", {}).values())]
            for one in (one for one in wanted if "published" in one):
                self.assertTrue(chosen(published.rows(one["published"]), one.get("rows", {})), f"{experiment.name}: {one}")

    def test_the_failover_of_recorded_trials(self):
        shutil.copy(os.path.join(ROOT, "study/experiments/13-failover.toml"), self.path("experiments/13-failover.toml"))
        os.remove(self.path("experiments/1-speed.toml"))
        os.mkdir(self.path("live"))
        self.write("live/cluster.py", SCRIPT)
        for event in ("kill", "stop", "agent", "inside", "outside", "drain", "move"):
            waits = [] if event in ("agent", "drain", "move") else [150, 210]
            self.write(f"live/answer.{event}", json.dumps(answer([trial(event, waits, None if event == "move" else 5.5, (2000, 900, 2000))])))
        self.run_it("full", "--live", self.path("live"))
        page = self.page()
        self.assertNotIn('class="failed"', page)
        self.assertEqual((page.count("<svg"), page.count("<li>")), (5, 5))
        self.assertIn("a hard failure interrupts for 4000 to 7000 ms. <strong>Not as published.</strong> It is shorter", page)
        self.assertIn("A server that leaves (drain) interrupts 0 of 100 conversations, for 0 ms at most; published: less than 500 ms. "
                      "<strong>As published.</strong>", page)
        self.assertIn("and two copies 28 s after the crash. <strong>As published.</strong>", page)
