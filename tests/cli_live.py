"""The part of cli_test.py about the table that `millrace bench` shows while it runs."""

import re
import signal

from cli_case import DONE, INTERRUPTED, Case


class Screen:
    """The parts of a terminal that the table needs. Fails if the text is wider or higher than the terminal."""

    def __init__(self, rows, columns):
        self.rows, self.columns = rows, columns
        self.lines, self.at, self.column = [""], 0, 0
        self.seen = []  # a copy of the lines each time the cursor goes back up

    def feed(self, text):
        for count, what, words in re.findall(r"\x1b\[(\d*)([A-Za-z])|([^\x1b])", text, re.DOTALL):
            if what == "K":
                self.lines[self.at] = self.lines[self.at][:self.column]
            elif what == "J":
                self.lines[self.at:] = [self.lines[self.at][:self.column]]
            elif what == "A":
                self.at -= int(count)
                assert self.at >= 0, "the cursor is above the first line"
                self.seen.append([*self.lines])
            elif words == "\r":
                self.column = 0
            elif words == "\n":
                self.at += 1
                self.lines += [""] * (self.at + 1 - len(self.lines))
                assert self.at < self.rows, "the table scrolls"
            elif words:
                line = self.lines[self.at]
                self.lines[self.at] = line[:self.column] + words + line[self.column + 1:]
                self.column += 1
                assert self.column < self.columns, f"the table wraps: {self.lines}"


class LiveCli(Case):
    # A measurement takes 20 ms or more, since packets arrive at a fixed rate: long enough to draw the table.
    RATE = ("rate", "--quick", "--sharing", "sharded", "--workers", "1", "--offered", "1", "--repetitions", "8")
    TWO = (*RATE, "--table", "race,std")

    def live(self, *arguments, size=(24, 80), **options):
        """Returns all states of a screen of `size`, the lines left on it, standard output, and the exit status."""
        screen = Screen(*size)
        shown, printed, status = self.bench_on_terminal(*arguments, size=size, **options)
        screen.feed(shown)
        return screen.seen, screen.lines, printed, status

    def test_a_table_while_the_bench_runs(self):
        tables = ("race", "std", "chained")
        seen, left, printed, status = self.live(*self.RATE, "--table", ",".join(tables))
        self.assertEqual((status, left), (DONE, [""]))
        self.assertIn("Mpps", printed)
        self.assertNotIn("\x1b", printed)
        last = seen[-1]
        self.assertRegex(last[0], r"^\d+ of 24, \d+ s, about \d+ s left: repetition \d of 8: ")
        self.assertRegex(last[1], r" n +Mpps, median \(least-most\)$")
        self.assertEqual([row.split()[0 if row[0] == " " else 1].rstrip(",") for row in last[2:]], list(tables))
        for row in last[2:]:
            self.assertRegex(row, r" \d+ +[0-9.]+ \([0-9.]+-[0-9.]+\)( \*)?$")
        self.assertEqual(sum(row.endswith(" *") for row in last), 1)
        self.assertEqual(sum(row.startswith("> ") for row in last), 1)

    def test_every_bench_shows_its_medians(self):
        for row, arguments in [
            (r"race, 2\^10 slots, load 0.5, 16-byte keys +\d ", ("tables", "--table", "race,std", "--bits", "10", "--load", "0.5",
             "--no-maximum", "--key-bytes", "16", "--burst", "8", "--repetitions", "3")),
            (r"uniform, 50000 connections +\d ", ("path", "--quick", "--repetitions", "3")),
        ]:
            with self.subTest(arguments[0]):
                seen, left, printed, status = self.live(*arguments, size=(100, 100))
                self.assertEqual((status, left[-1]), (DONE, ""))
                self.assertNotIn("median", "".join(left))
                self.assertTrue(any(re.search(row, line) for lines in seen for line in lines), seen)
                self.assertNotEqual(printed, "")
        shown, _, status = self.bench_on_terminal("advise", "--in", self.good, "--workers", "1", sent=signal.SIGINT, until=" *")
        self.assertEqual(status, INTERRUPTED)
        self.assertRegex(shown, "race, sharded, wheel +[1-9]")

    def test_the_table_fits(self):
        for size in [(8, 40), (5, 40), (1, 1), (2, 200)]:
            with self.subTest(size):
                seen, left, _, status = self.live(*self.RATE, "--table", "race,std,chained,swiss", size=size)
                self.assertEqual((status, left), (DONE, [""]))
                if size == (5, 40):
                    self.assertRegex(seen[-1][1], "^  2 not shown +n  Mpps, median$")
        shown, _, status = self.bench_on_terminal(*self.RATE, "--table", "race")
        self.assertEqual(status, DONE)
        self.assertIn("(least-most)", shown, "the table must be shown although the size of the terminal is not known")

    def test_only_a_terminal_that_is_asked_for_gets_it(self):
        shown, printed, status = self.bench_on_terminal(*self.TWO, "--quiet")
        self.assertEqual((shown, status), ("", DONE))
        self.assertIn("Mpps", printed)
        self.assertEqual(self.run_ok("bench", *self.TWO).stderr, "")
        self.assertEqual(self.bench_on_terminal(*self.TWO, TERM="dumb")[0], "")
        self.assertIn("\x1b[1m", self.bench_on_terminal(*self.TWO)[0])
        plain, _, _ = self.bench_on_terminal(*self.TWO, NO_COLOR="1")
        self.assertIn(" *", plain)
        self.assertNotRegex(plain, r"\x1b\[\d*m")

    def test_an_interrupt_clears_it(self):
        _, left, printed, status = self.live(*self.TWO, "--json", "-", sent=signal.SIGINT, until="*")
        self.assertEqual(status, INTERRUPTED)
        self.assertRegex("".join(left), "^millrace: warning: interrupted[^*>]*$")
        self.assertIn('"complete": false', printed)
