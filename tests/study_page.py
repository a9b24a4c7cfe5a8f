"""Tests of the page of a study."""

import json
import os
import re
import shutil
import subprocess
import unittest

from study_case import EXPERIMENT, GIVEN, PROGRAM, StudyCase

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class StudyPage(StudyCase):
    def test_rounds(self):
        self.write("mended", "")
        self.run_it("full", "--rounds", "2")
        self.assertEqual(self.calls(), ["16", "18", "20", "16", "18", "20"])
        with open(self.path("out/full.jsonl"), encoding="utf-8") as file:
            records = [json.loads(line) for line in file]
        self.assertEqual([record["round"] for record in records], [1, 1, 1, 2, 2, 2])
        for row in records[3]["result"]["results"]:
            row["ns_median"] += 4
            row["ns_max"] += 6
        self.write("out/full.jsonl", "".join(json.dumps(record) + "\n" for record in records))
        self.run_it("full", "--rounds", "2")
        # The table has the median of the rounds' medians, and the least and the most of all rounds.
        self.assertIn("<td>race</td><td>65536</td><td>18</td><td>15</td><td>24</td>", self.page())
        self.assertEqual(len(self.calls()), 6)
        self.assertIn("Every experiment ran in 2 rounds. Pictures show", self.page())
        self.assertIn("Rounds: 2.", self.page())
        self.write("experiments/2-more.toml", EXPERIMENT.replace("figures", "rounds = 1\nfigures"))
        self.run_it("full", "--rounds", "2")
        self.assertIn("An experiment ran in 1 or 2 rounds, as its section says; between two rounds of an experiment all others ran. Pictures show", self.page())
        os.remove(self.path("experiments/2-more.toml"))
        self.assertIn("1-speed, bits 20, round 2: done in", self.run_it("full", "--rounds", "2", "--list").stdout)
        self.assertIn("--rounds 0: give 1 to 1000", self.run_it("full", "--rounds", "0", status=2).stderr)

    def test_a_finding_that_names_what_is_not_there(self):
        self.write("mended", "")
        self.write("experiments/1-speed.toml", EXPERIMENT.replace("{best.ns_median:.0f} ns", "{best.ns_medain:.0f} ns"))
        self.run_it("full")
        self.assertIn("file has a name that no result has:", self.page())
        self.assertIn("ns_medain", self.page())

    def test_one_that_fails_costs_no_other(self):
        self.given([{"table": "race", "ns": 2, "zero": 0, "none": None, "whole": {"ns": 3}}, {"table": "std", "ns": 6, "word": "w"}], """
[[picture]]
title = "By zero"
x = "ns"
y = "ns"
per = "zero"
[[picture]]
title = "A word"
kind = "bars"
x = "ns"
y = "word"
[[finding]]
text = "Good: {all.whole.ns}, {sum}, {times:.1f}."
of.all = { least = "ns" }
of.most = { most = "ns" }
sum.sum = ["all.ns", "all.whole.ns", "most.ns"]
ratio.times = ["sum", "most.ns"]
agrees = [["sum", "is", 11], ["all.whole.ns", "<", "sum"]]
differs = "No."
""" + "".join(f"""[[finding]]
text = "{text}"
{'of.all = { rows = { table = "race" } }' if "all." in text + more or "all}" in text else ""}
{more}
""" for text, more in (
            ("Its text: {all.table:.1f}.", ""), ("Its text: {all.nothing}.", ""),
            ("Not comparable", 'agrees = [["all.table", "<", 1]]\ndiffers = "No."'),
            ("No number: {times}", 'ratio.times = ["all.table", "all.ns"]'),
            ("A row: {all}", ""), ("Several: {two.ns}", 'of.two = { rows = { table = ["race", "std"] } }'),
            ("Null: {all.none:.1f}", ""), ("Null again", 'agrees = [["all.none", "<", 1]]\ndiffers = "No."'),
            ("Zero: {times}", 'ratio.times = ["all.ns", "all.zero"]'), ("No row: {gone.ns}", 'of.gone = { rows = { table = "gone" } }'))))
        self.run_it("full")
        page = self.page()
        self.assertIn("<li>Good: 3, 11, 1.8. <strong>As published.</strong>", page)
        self.assertEqual(page.count("<svg"), 1)
        self.assertEqual(page.count("<li>"), 1)
        failed = re.findall(r'<p class="failed"><code>(.*?)</code>: (.*?)</p>', page)
        self.assertEqual([what for what, _ in failed], [
            "By zero", "A word", "Its text: {all.table:.1f}.", "Its text: {all.nothing}.", "Not comparable", "No number: {times}",
            "A row: {all}", "Several: {two.ns}", "Null: {all.none:.1f}", "Null again", "Zero: {times}", "No row: {gone.ns}"])
        why = dict(failed)
        self.assertIn("has a name that no result has: &#39;nothing&#39;", why["Its text: {all.nothing}."])
        self.assertEqual(why["A row: {all}"], "all is a row: name a value of it")
        self.assertIn("two selects 2 rows and must select one", why["Several: {two.ns}"])
        self.assertEqual(why["Null: {all.none:.1f}"], "no result for all.none")
        self.assertEqual(why["Null again"], "no result for all.none")
        self.assertEqual(why["Zero: {times}"], "no result for times: all.zero is 0")
        self.assertEqual(why["No row: {gone.ns}"], "no result for gone")
        self.run_it("quick")
        self.assertNotIn("no result for", self.page("quick"))
        self.assertIn("Several: {two.ns}", self.page("quick"))

    def test_an_answer_that_is_no_object(self):
        self.write("experiments/1-speed.toml", GIVEN)
        self.write("result", "3")
        self.assertIn("study/run: 1-speed: its answer is no JSON object", self.run_it("full", status=1).stderr)
        self.assertIn("its answer is no JSON object", self.page())

    def test_a_finding_whose_picture_has_nothing_is_shown(self):
        self.given([{"table": "race", "ns": 2}], """
[[picture]]
title = "None"
x = "table"
y = "other"
[[finding]]
picture = 2
text = "Two: {all.ns}."
of.all = {}
[[finding]]
text = "None: {of_other.ns}."
of.of_other = { experiment = "2-other" }
""")
        self.write("experiments/2-other.toml", GIVEN)
        self.run_it("1-speed")
        self.assertIn('<li>Two: 2. <a href="#1-speed">', self.page())
        self.assertIn("<code>None</code>: no result has the values that it shows", self.page())
        self.assertNotIn("None: ", self.page())

    def test_what_lies_beyond_is_left_out(self):
        self.given([{"table": "race", "bins": {"7": 0.25, "8": 0.25, "900": 0.5}}], """
[[picture]]
title = "Bins"
unfold = "bins"
x = "part"
x_most = 8
y = "share"
""")
        self.run_it("full")
        self.assertIn("<td>8</td><td>0.25</td>", self.page())
        self.assertNotIn("<td>900</td>", self.page())

    def test_two_machines(self):
        self.given([{"table": "race", "ns": 2}], "")
        self.write("experiments/2-other.toml", GIVEN)
        self.run_it("full")
        self.assertNotIn("machines", self.page())
        self.given([{"table": "race", "ns": 3}], "", machine="Q")
        self.run_it("1-speed", "--rounds", "2")
        head = self.page().partition("Findings")[0]
        self.assertIn("Results of 2 machines are mixed on this page", head)
        self.assertIn("P, 2 processors; L1; kernel k: 1-speed, 2-other", head)
        self.assertIn("Q, 2 processors; L1; kernel k: 1-speed", head)

    def test_warnings_are_on_the_page_and_folders_are_not(self):
        self.write("experiments/1-speed.toml", EXPERIMENT.replace('["--key-bytes", "16"]', '["--in", "{capture}"]'))
        self.write("mended", "")
        self.write("program", PROGRAM.replace("json.dump(", """at = sys.argv[sys.argv.index("--in") + 1]
print("3 trials", file=sys.stderr)
print("millrace: warning: " + at + ": cut off", file=sys.stderr)
json.dump(""").replace('{"results": rows,', '{"in": at, "results": rows,') + "\nsys.exit(3)\n")
        self.run_it("1-speed", "--in", self.write("a \"b.pcap", ""))
        self.assertEqual(self.page().count("millrace: warning: a &#34;b.pcap: cut off"), 1)
        self.assertNotIn("3 trials", self.page())
        with open(self.path("out/full.jsonl"), encoding="utf-8") as file:
            text = file.read()
        self.assertIn('a \\"b.pcap', text)
        self.assertNotIn(self.dir, text)

    def test_how_far_rounds_lie_apart(self):
        """In the second round two of 22 rows are 10 % and 50 % higher: 19 in 20 values differ by at most 1/11."""
        self.given([{"table": f"t{n}", "ns": 10} for n in range(22)], "")
        self.run_it("full")
        self.assertNotIn("Of two rounds", self.page())
        self.given([{"table": f"t{n}", "ns": {3: 11, 4: 15}.get(n, 10)} for n in range(22)], "")
        self.run_it("full", "--rounds", "2")
        self.assertIn("Of two rounds, 19 in 20 values differ by at most 9.09 %.", self.page())
        self.assertNotIn("Measured a second time", self.page())
        # The medians shown are 10.5 and 12.5 for t3 and t4, and 10 for the other rows.
        self.given([{"table": f"t{n}", "ns": {3: 10.5, 4: 10, 5: 0}.get(n, 10)} for n in range(22)], "")
        self.run_it("full", "--again", "--rounds", "2")
        self.assertIn("Measured a second time in 2.", self.page())
        self.assertIn("Measured a second time, medians differ from those shown by at most 100 %, 20 of 22 by no more than rounds do.",
                      self.page())

    def test_measured_again(self):
        self.write("mended", "")
        self.run_it("full")
        self.assertNotIn("Measured a second time", self.page())
        self.run_it("1-speed", "--again")
        self.assertIn("Measured a second time, medians do not differ from those shown.", self.page())
        self.assertEqual(self.calls(), ["16", "18", "20", "16", "18", "20"])

    def verdicts(self, rounds, agrees="[[\"times\", \">\", 1.5]]"):
        """Returns the verdicts on a finding; `rounds` has the value of one of the finding's rows in each round."""
        self.write("experiments/1-speed.toml", GIVEN + f"""
[[finding]]
picture = [1, 3]
text = "So many times."
of.race = {{ rows = {{ table = "race" }} }}
of.std = {{ experiment = "1-speed", rows = {{ table = "std" }} }}
ratio.times = ["std.ns", "race.ns"]
agrees = {agrees}
differs = "By design."
[[picture]]
title = "None"
x = "table"
y = "other"
[[picture]]
title = "Again"
x = "table"
y = "ns"
columns = ["table", "other"]
words = {{ race = "of ours" }}
""")
        for number, ns in enumerate(rounds, 1):
            self.write("result", json.dumps({"results": [{"table": "race", "ns": 100}, {"table": "std", "ns": ns}]}))
            self.run_it("1-speed", "--rounds", str(number))
        return re.findall(r"<strong>(.*?)</strong>( By design.)?", self.page())

    def test_verdicts_heed_what_rounds_differ(self):
        for rounds, said in (((160,), ("As published.", "")), ((140,), ("Not as published.", " By design.")),
                             ((200, 202), ("As published.", "")), ((100, 102), ("Not as published.", " By design.")),
                             ((140, 170), ("Within what rounds differ.", "")), ((130, 160), ("Within what rounds differ.", ""))):
            with self.subTest(rounds=rounds):
                self.assertEqual(self.verdicts(rounds), [said])
                self.assertIn(f"{said[0].startswith('As'):d} as published, {said[0].startswith('Not'):d} not as published, "
                              f"{said[0].startswith('Within'):d} within", self.page())
                shutil.rmtree(self.path("out"))
        # A comparison with a clear outcome decides the verdict.
        self.assertEqual(self.verdicts((140, 170), '[["times", ">", 1.5], ["times", ">", 5]]'), [("Not as published.", " By design.")])
        page = self.page()
        self.assertIn('<a href="#1-speed-1">picture and data</a>, <a href="#1-speed-3">3</a>, <a href="#1-speed">1-speed</a></li>', page)
        self.assertIn("<td>of ours</td><td>100</td><td>100</td><td>100</td>", page)

    def test_the_quick_way_has_no_verdicts_and_no_empty_headings(self):
        self.write("experiments/2-other.toml", GIVEN.replace('bench =', 'arguments = ["--bits", "16"]\nbench =').replace("What?", "What else?"))
        self.write("mended", "")
        self.run_it("quick")
        page = self.page("quick")
        findings = page.partition("<h2 id=")[2].partition("<section")[0]
        self.assertIn("Three times? <a", findings)
        self.assertNotIn("<strong>", findings)
        self.assertNotIn("as published", findings)
        self.assertNotIn("It is race.", findings)
        self.assertNotIn("What else?", findings)
        self.assertIn("<h2>What else?</h2>", page)

    def test_warnings_that_are_alike_are_one_line(self):
        self.write("mended", "")
        self.write("program", PROGRAM.replace("json.dump(", """for name in ("race", "std"):
    print(f"millrace: warning: {name} promises up to 0.{bits}", file=sys.stderr)
print("millrace: warning: hot", file=sys.stderr)
json.dump("""))
        self.run_it("1-speed")
        self.assertEqual(re.findall(r"<summary>(millrace.*)</summary>", self.page()),
                         ["millrace: warning: race promises up to 0.16 (and 5 more like it)"])
        self.assertIn("<div>millrace: warning: std promises up to 0.20</div>", self.page())
        self.assertIn('<p class="faint">millrace: warning: hot</p>', self.page())

    def test_an_incomplete_page_says_so(self):
        self.run_it("full", status=1)
        self.assertIn("This page is incomplete: 1 of 3 runs", self.page())
        self.write("mended", "")
        self.run_it("full")
        self.assertNotIn("incomplete", self.page())
        # After these runs the results are as after a study that was interrupted in its second round.
        self.write("experiments/2-more.toml", EXPERIMENT)
        self.run_it("1-speed", "--rounds", "2")
        self.assertNotIn("incomplete", self.page())
        self.run_it("2-more")
        self.assertIn("This page is incomplete: 3 of 6 runs have no results yet, or fewer rounds than others", self.page())
        self.run_it("full", "--rounds", "2")
        self.assertNotIn("incomplete", self.page())

    def test_what_was_run_before_stays_on_the_page(self):
        self.write("mended", "")
        self.write("experiments/2-more.toml", EXPERIMENT.replace("How fast?", "How much?"))
        self.run_it("1-speed")
        self.assertNotIn("How much?", self.page())
        self.run_it("2-more")
        self.assertIn("How fast?", self.page())
        self.assertIn("How much?", self.page())

    @unittest.skipIf(BROWSER is None, "no Chromium here (package chromium)")

    def test_in_a_browser(self):
        self.write("mended", "")
        self.run_it("full")
        sort = '<script>document.querySelectorAll("th button")[2].click(); document.querySelectorAll("th button")[2].click();</script>'
        self.write("out/full.html", self.page().replace("</body>", sort + "</body>"))
        done = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom",
                               "file://" + self.path("out/full.html")], capture_output=True, text=True, timeout=100)
        self.assertNotIn("CONSOLE", done.stderr)
        self.assertIn('aria-sort="descending"', done.stdout)
        body = done.stdout.partition("<tbody>")[2].partition("</tbody>")[0]
        values = [int(value) for value in re.findall(r"<tr>(?:<td>[^<]*</td>){2}<td>(\d+)</td>", body)]
        self.assertEqual(values, sorted(values, reverse=True))
        self.assertEqual(len(values), 6)
    @unittest.skipIf(BROWSER is None, "no Chromium here (package chromium)")

    def test_pictures_can_be_read_on_a_phone(self):
        self.write("mended", "")
        self.run_it("full")
        # A picture is as wide as the page, or in a box that scrolls, and its letters are at least 10 pixels high.
        ask = """<script>
const svg = document.querySelector("svg"), box = svg.parentElement;
document.title = [innerWidth, svg.querySelector("text").getBoundingClientRect().height >= 10, box.scrollWidth > box.clientWidth,
                  document.documentElement.scrollWidth <= innerWidth].join();
</script>"""
        self.write("out/full.html", self.page().replace("</body>", ask + "</body>"))
        # The browser's window cannot be as narrow as a phone, but a frame can.
        self.write("out/phone.html", '<iframe src="full.html" style="width: 390px; height: 844px; border: 0"></iframe>'
                   '<script>onload = () => document.title = frames[0].document.title</script>')
        for page, said in (("full", "1200,true,false,true"), ("phone", "390,true,true,true")):
            done = subprocess.run([BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files",
                                   "--window-size=1200,900", "--dump-dom", f"file://{self.path('out')}/{page}.html"],
                                  capture_output=True, text=True, timeout=100)
            self.assertIn(f"<title>{said}</title>", done.stdout)
