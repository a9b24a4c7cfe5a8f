"""The part of cli_test.py about the phrases in the table that `replay` prints."""

import re

from cli_case import Case

SERVICE = """[[service]]
address = "{address}"
port = 443
protocol = "tcp"
backends = [{{ address = "10.0.0.1"{backend} }}]
"""


class ReportCli(Case):
    def table(self, *arguments, text=None):
        config = () if text is None else ("--config", self.write("f.toml", text))
        return self.run_ok(*self.replay(*arguments, *config)).stdout

    def test_workers_are_no_cores(self):
        self.assertIn(" Mpps a core (", self.table())
        self.assertIn(" Mpps by 4 workers (", self.table("--workers", "4"))

    def test_each_direction_for_itself(self):
        words = "opened (without services each direction is a connection),"
        self.assertIn(words, self.table())
        self.assertNotIn("each direction", self.table(text=SERVICE.format(address="198.19.0.1", backend="")))

    def test_why_without_an_entry(self):
        self.run_ok("generate", "--profile", "campus", "--connections", "3000", "--packets", "30000", "--out", self.good)
        self.assertRegex(self.table(), r"stateless .* served without an entry: begin no connection\n")
        self.assertRegex(self.table("--capacity", "50"), r"stateless .* [1-9][0-9,]* while too many are half open, "
                                                         r"([1-9][0-9,]* without a place in the table, )?")
        self.assertRegex(self.table(text="balance.stateful = false\n"), r"stateless .* without an entry, as configured\n")

    def test_a_service_without_a_backend_is_shown(self):
        self.run_ok("generate", "--profile", "campus", "--connections", "3000", "--packets", "30000", "--out", self.good)
        for passes, words in (("", r"\n198.19.0.1:443/tcp \(maglev\), [1-9][0-9,]* without a backend\n"),
                              ('no_backend = "pass"\n', "")):
            text = SERVICE.format(address="198.19.0.1", backend=", weight = 0") + passes
            shown = self.table(text=text)
            if words:
                self.assertRegex(shown, words)
                self.assertIsNone(re.search(r" 0 refused", shown))
            else:
                self.assertNotIn("without a backend", shown)
                self.assertIn(" 0 refused", shown)
