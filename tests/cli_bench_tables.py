"""The part of cli_test.py about benches of tables alone: `millrace bench tables`, `lines` and `sessions`."""

import ctypes
import json
import os
import platform
import resource
import signal
import subprocess

from cli_case import DONE, FAILED, INTERRUPTED, MILLRACE, NOBODY, ROOT, USAGE, Case

try:
    import jsonschema
except ImportError:
    jsonschema = None


class BenchTablesCli(Case):
    def test_the_bench_of_sessions(self):
        tables = ["race", "chained", "dhash", "dhash-plain", "cuckoo++"]
        known = self.run_ok("schemes").stdout.split()
        tables = [table for table in tables if table in known]
        names = [*tables, "chained/20", "chained/1000"]
        result = json.loads(self.run_ok("bench", "sessions", "--quick", "--repetitions", "1", "--seed", "7",
                                        "--sessions", "2000,3001", "--cores", "1,3", "--table", ",".join(tables),
                                        "--buckets", "20,1000", "--json", "-").stdout)
        self.assertEqual((result["suite"], result["complete"]), ("sessions", True))
        times = [r for r in result["results"] if r["kind"] == "time"]
        self.assertEqual([(r["sessions"], r["cores"], r["table"]) for r in times],
                         [(sessions, cores, name) for sessions in (2000, 3001) for cores in (1, 3) for name in names])
        for measured in times:
            self.assertEqual(set(measured), {
                "kind", "table", "buckets", "sessions", "cores", "live", "mpps_median", "mpps_min", "mpps_max",
                "ns_median", "ns_min", "ns_max", "bytes_per_session", "index_bytes_per_session", "pages"})
            self.assertEqual(measured["live"], measured["sessions"])
            _, chained, buckets = measured["table"].partition("chained/")
            self.assertEqual(measured["buckets"], int(buckets) if chained else None)
            self.assertLessEqual(measured["mpps_min"], measured["mpps_max"])
            self.assertGreater(measured["mpps_min"], 0)
            self.assertGreater(measured["ns_min"], 0)
            self.assertGreater(measured["index_bytes_per_session"], 0)
            self.assertGreaterEqual(measured["bytes_per_session"], 64 + measured["index_bytes_per_session"])
        signatures = {(r["table"], r["major_location"]): r for r in result["results"] if r["kind"] == "signature"}
        self.assertEqual(set(signatures), {(f"dhash{signature}", major) for major in (True, False)
                                           for signature in ("", "-xor", "-crc-xor", "-xor-crc")})
        self.assertEqual(len(times) + len(signatures), len(result["results"]))
        for (table, _), counted in signatures.items():
            self.assertEqual(set(counted), {"kind", "table", "major_location", "false_positive_rate",
                                            "first_hit_ratio", "comparisons_a_lookup", "share_in_lists"})
            # With ten entries in sixteen slots, Knuth's analysis gives 1.8 comparisons a look-up with a major location, and 6.0 without.
            self.assertLess(signatures[table, True]["comparisons_a_lookup"],
                            signatures[table, False]["comparisons_a_lookup"])
            self.assertGreater(signatures[table, True]["first_hit_ratio"],
                               signatures[table, False]["first_hit_ratio"])
            self.assertAlmostEqual(counted["share_in_lists"], 0.0055, delta=0.003)
        self.assertLess(signatures["dhash", True]["false_positive_rate"],
                        signatures["dhash-xor-crc", True]["false_positive_rate"])

    def test_the_bench_of_sessions_without_names(self):
        shown = self.run_ok("bench", "sessions", "--quick", "--repetitions", "1", "--cores", "1", "--burst", "1")
        for name in ("chained", "race", "dhash-xor-crc"):
            self.assertRegex(shown.stdout, rf"\b{name} ")
        self.assertLessEqual(max(map(len, shown.stdout.split("\n"))), 100)

    def test_bad_values_of_the_bench_of_sessions(self):
        for words, arguments in [
            (["none of", "race"], ("--table", "rase")),
            (["--table", "twice"], ("--table", "race,race")),
            (["--buckets", "1 to 100000000"], ("--buckets", "0")),
            (["--sessions", "1000 to 10000000"], ("--sessions", "0")),
            (["--cores", "1 to 128"], ("--cores", "0")),
            (["chained/10", "11 buckets"], ("--buckets", "11,10", "--sessions", "20001,1000")),
        ]:
            with self.subTest(arguments):
                self.refuse(USAGE, words, "bench", "sessions", *arguments)

    def test_the_bench_of_the_lines(self):
        tables = ["race", "cuckoo"]

        def run(*arguments):
            done = self.run_it("bench", "lines", "--quick", *arguments)
            if platform.machine() != "x86_64":
                self.assertEqual((done.returncode, done.stdout), (FAILED, ""))
                self.assertIn("x86-64 only", done.stderr)
                self.skipTest("no single-stepping on this processor")
            self.assertEqual(done.returncode, DONE, done.stderr)
            return done.stdout

        out = self.path("lines.json")
        shown = run("--table", ",".join(tables), "--json", out)
        self.assertIn("instructions of one operation", shown)
        self.assertNotIn("decoded", shown)
        with open(out) as file:
            result = json.load(file)
        self.assertEqual((result["suite"], result["complete"], result["left_out"]), ("lines", True, []))
        kinds = ("hit", "touch", "miss", "insert", "delete")
        rows = {(r["table"], r["operation"]): r for r in result["results"]}
        self.assertEqual(list(rows), [(table, kind) for table in tables for kind in kinds])
        for (table, kind), row in rows.items():
            self.assertEqual(set(row), {"table", "operation", "bits", "load", "at_maximum", "operations", "lines_mean",
                                        "lines_median", "lines_p99", "lines_max", "head_lines_mean",
                                        "prefetched_only_mean", "instructions_mean", "undecoded", "cut"})
            self.assertEqual((row["undecoded"], row["cut"], row["operations"]), (0, 0, 20))
            # A miss touches a line of the index at least, a touch a record's line, too. For the other operations the bound is
            # less than the least of their means in docs/lines.md, 1.78.
            self.assertGreaterEqual(row["lines_mean"], 1 if kind == "miss" else 2 if kind == "touch" else 1.5)
            self.assertLessEqual(row["lines_median"], row["lines_p99"])
            self.assertLessEqual(row["lines_p99"], row["lines_max"])
            self.assertGreater(row["instructions_mean"], 10)
            self.assertGreaterEqual(row["instructions_mean"], row["lines_mean"])
        # In `race` a hit reads a line of the index and one of the records, rarely more.
        self.assertLess(rows["race", "hit"]["lines_mean"], 2.5)
        self.assertLess(rows["race", "miss"]["lines_mean"], 1.5)
        # `cuckoo` keeps the keys apart from the records: a touch reads more cache lines than in `race`.
        self.assertGreater(rows["cuckoo", "touch"]["lines_mean"], rows["race", "touch"]["lines_mean"])
        self.assertEqual(len(rows), len(result["results"]))

        def figures(of):
            return [{name: figure for name, figure in row.items() if name != "head_lines_mean"}
                    for row in of["results"] if row["table"] == "race"]

        again = json.loads(run("--table", "race", "--pages", "small", "--quiet", "--json", "-"))
        self.assertEqual(figures(again), figures(result), "two runs with the same seed must agree, whatever the pages")
        other = json.loads(run("--table", "race", "--seed", "2", "--json", "-"))
        self.assertNotEqual(figures(other), figures(result))
        full = json.loads(run("--table", "chained", "--at-maximum", "--load", "0.5", "--json", "-"))
        self.assertEqual([r["at_maximum"] for r in full["results"]], 5 * [False] + 5 * [True])

    def test_bad_values_of_the_bench_of_the_lines(self):
        for words, arguments in [
            (["none of", "race"], ("--table", "rase")),
            (["race twice"], ("--table", "race,race")),
            (["--bits", "10 to 22"], ("--bits", "9")),
            (["0.5 twice"], ("--load", "0.5,0.5")),
            (["horton", "0.95", "lower --load"], ("--table", "horton", "--load", "0.97")),
            (["--operations", "20 to 100000"], ("--operations", "19")),
            (["--operations 192", "allow at most 191"], ("--bits", "10", "--operations", "192")),
        ]:
            with self.subTest(arguments):
                self.refuse(USAGE, words, "bench", "lines", *arguments)
        _, printed, status = self.interrupt_bench(signal.SIGINT, "cuckoo", "lines", "--quick", "--table", "std,cuckoo", "--json", "-")
        self.assertEqual(status, INTERRUPTED)

    # Options for as few measurements as possible, and for the smallest table.
    ONE_GROUP = ("--repetitions", "1", "--key-bytes", "16", "--burst", "32", "--no-maximum")
    SMALLEST = (*ONE_GROUP, "--bits", "10")

    def bench(self, *arguments, **options):
        result = self.run_it("bench", "tables", "--json", "-", *arguments, **options)
        self.assertEqual(result.returncode, DONE, result.stderr)
        return json.loads(result.stdout), result.stderr

    def test_the_bench_of_the_tables(self):
        tables = ["race", "std", "cuckoo"]
        result, _ = self.bench("--quick", "--repetitions", "1", "--table", ",".join(tables),
                               "--seed", "7", "--pages", "transparent")
        if jsonschema is not None:
            with open(os.path.join(ROOT, "docs", "bench-tables.schema.json")) as file:
                jsonschema.validate(result, json.load(file))
        asked = result["options"]
        self.assertEqual((asked["seed"], asked["pages"], asked["repetitions"], asked["tables"]),
                         (7, "transparent", 1, tables))
        self.assertTrue(result["complete"])
        for measured in result["results"]:
            self.assertLessEqual(measured["ns_min"], measured["ns_max"])
            self.assertGreater(measured["limit_ns"], 0)
        for table in tables:
            for key_bytes in (16, 40):
                done = [r for r in result["results"]
                        if (r["table"], r["key_bytes"]) == (table, key_bytes)]
                self.assertEqual({r["operation"] for r in done},
                                 {"fill", "touch", "hit", "miss", "insert", "delete", "mix"})
                self.assertEqual({r["burst"] for r in done if r["operation"] == "touch"},
                                 {1, 8, 32, 64})
                self.assertEqual(len([r for r in done if r["operation"] == "insert"]), 2)
        self.assertEqual({r["table"] for r in result["insertion_times"]}, set(tables))
        for past in result["overload"]:
            self.assertLessEqual(past["refused_beyond"], past["offered_beyond"])
        self.assertEqual(len(result["limits"]), 1, "memory under 2 MiB lies on small pages")

    def test_bad_values_of_the_bench_of_the_tables(self):
        for words, arguments in [
            (["none of", "race"], ("--table", "rase")),
            (["--load", "0.05 to 1"], ("--load", "nan")),
            (["0.75 twice"], ("--load", "0.75,0.7500001")),
            (["--bits", "'a'", "10 to 26"], ("--bits", "a,b")),
            (["--bits", "14 twice"], ("--bits", "14,14")),
            (["--key-bytes", "16, 40"], ("--key-bytes", "")),
            (["--json", "empty"], ("--json", "")),
            (["--seed", "negative"], ("--seed", "-1")),
            (["--seed", "0 to 18446744073709551615"], ("--seed", "99999999999999999999")),
            (["--at-maximum", "--no-maximum"], ("--at-maximum", "--no-maximum")),
            (["horton", "0.95", "lower --load"],
             ("--table", "horton", "--no-maximum", "--load", "0.97")),
            (["millrace bench tables --help"], ("--bits", "9")),
        ]:
            with self.subTest(arguments):
                self.refuse(USAGE, words, "bench", "tables", *arguments)
        self.refuse(USAGE, ["millrace replay --help"], *self.replay("--burst", "65"))
        self.refuse(USAGE, ["none of race, cuckoo,", "benchmarks only", "millrace bench schemes"], *self.replay("--table", "libcuckoo"))
        self.refuse(USAGE, ["--json", "empty"], "bench", "path", "--json", "")

    def test_tables_that_do_not_promise_a_load_are_named(self):
        left_out = "horton promises up to 0.95: not measured at load 0.97"
        result, shown = self.bench(*self.SMALLEST, "--table", "horton,std", "--load", "0.97")
        self.assertEqual({r["table"] for r in result["results"]}, {"std"})
        self.assertEqual(result["warnings"], [left_out])
        self.assertIn(f"millrace: warning: {left_out}\n", shown)

    def test_the_pages_of_the_bench(self):
        def no_transparent_pages():
            ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE

        small, shown = self.bench(*self.SMALLEST, "--table", "race", "--pages", "small")
        self.assertEqual([limit["pages"] for limit in small["limits"]], ["small"])
        self.assertEqual({r["pages"] for r in small["results"]}, {"small"})
        self.assertEqual(small["warnings"], [])
        other, shown = self.bench(*self.ONE_GROUP, "--bits", "16", "--table", "race", "--pages",
                                  "transparent", preexec_fn=no_transparent_pages)
        self.assertEqual(len(other["warnings"]), 1)
        self.assertRegex(other["warnings"][0], r"small pages, .*sysctl vm\.nr_hugepages=[1-9][0-9]+$")
        self.assertIn(other["warnings"][0], shown)

    def test_without_dpdk_only_its_tables_are_missing(self):
        hide = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /sys && exec "$@"', "sh"]
        if subprocess.run([*hide, "true"], capture_output=True).returncode != 0:
            self.skipTest("may not hide /sys")

        def run(*arguments):
            return subprocess.run([*hide, MILLRACE, *arguments], capture_output=True, text=True,
                                  timeout=120)

        done = run("bench", "tables", *self.SMALLEST, "--table", "race,cuckoo,cuckoo-ext", "--json",
                   "-")
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual({r["table"] for r in json.loads(done.stdout)["results"]}, {"race"})
        named = [line for line in done.stderr.split("\n") if "cuckoo" in line]
        self.assertEqual(len(named), 1)
        self.assertRegex(named[0], "cuckoo, cuckoo-ext.*/sys")
        refused = run(*self.replay("--table", "cuckoo"))
        self.assertEqual((refused.returncode, refused.stdout), (FAILED, ""))
        self.assertEqual(refused.stderr.count("\n"), 1)

    def test_dpdk_leaves_nothing_behind(self):
        os.chmod(self.dir, 0o777)
        os.mkdir(self.path("run"))
        os.chmod(self.path("run"), 0o777)
        someone = {"user": NOBODY} if os.geteuid() == 0 else {}  # root's runtime folder would be /var/run
        if subprocess.run(["test", "-x", MILLRACE], **someone).returncode != 0:
            self.skipTest("the program is out of reach for another user")
        done = self.run_it(*self.replay("--table", "cuckoo", "--capacity", "1000"), **someone,
                           env={**os.environ, "XDG_RUNTIME_DIR": self.path("run")})
        self.assertEqual(done.returncode, DONE, done.stderr)
        self.assertEqual(os.listdir(self.path("run")), [])

    def test_the_bench_without_memory(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (420 << 20, 420 << 20))
        for table in ("std", "race"):
            self.refuse(FAILED, ["memory", "--bits"], "bench", "tables", *self.ONE_GROUP, "--bits",
                        "22", "--table", table, "--pages", "small", "--quiet", preexec_fn=limit)

    def test_an_interrupt_keeps_what_the_bench_finished(self):
        out = self.path("tables.json")
        shown, printed, status = self.interrupt_bench(
            signal.SIGINT, "2^18 slots: the machine", "tables", *self.ONE_GROUP, "--table", "std", "--bits", "10,18", "--json", out)
        self.assertEqual(status, INTERRUPTED, shown)
        self.assertRegex(shown, r"\r\x1b\[Jmillrace: warning: interrupted after 1 of 2 ")
        self.assertIn("2^10 slots", printed)
        with open(out) as file:
            result = json.load(file)
        self.assertFalse(result["complete"])
        self.assertEqual({r["slots"] for r in result["results"]}, {1024})
        os.remove(out)
        shown, printed, status = self.interrupt_bench(
            signal.SIGTERM, "the machine", "tables", *self.SMALLEST, "--table", "std", "--json", out)
        self.assertEqual((status, printed, os.path.exists(out)), (INTERRUPTED, "", False))
        _, printed, status = self.interrupt_bench(
            signal.SIGHUP, "campus", "path", "--quick", "--repetitions", "1", "--json", "-")
        self.assertEqual(status, INTERRUPTED)
        result = json.loads(printed)
        self.assertFalse(result["complete"])
        self.assertEqual([r["traffic"] for r in result["results"]], ["uniform"])
        _, printed, status = self.interrupt_bench(
            signal.SIGINT, "3000 sessions", "sessions", "--quick", "--sessions", "1000,3000",
            "--repetitions", "50", "--json", "-")
        self.assertEqual(status, INTERRUPTED)
        result = json.loads(printed)
        self.assertFalse(result["complete"])
        self.assertEqual({(r["kind"], r["sessions"]) for r in result["results"]}, {("time", 1000)})

    def test_the_printed_tables_of_the_bench(self):
        result = self.run_ok("bench", "tables", "--repetitions", "1", "--key-bytes", "16",
                             "--burst", "8", "--bits", "10", "--load", "0.9996",
                             "--table", "std,cuckoo++-timers")
        self.assertLessEqual(max(map(len, result.stdout.split("\n"))), 100)
        self.assertIn("load 0.9996", result.stdout)
        self.assertIn("look-ups in bursts of 8, changes of 32", result.stdout)
        self.assertRegex(result.stderr, r"about \d+ (s|min).* of memory")
