"""The part of cli_test.py about `millrace bench` and `doctor`."""

import ctypes
import json
import os
import platform
import resource
import signal
import subprocess

from cli_case import DONE, FAILED, INTERRUPTED, MILLRACE, NOBODY, ROOT, UNREADABLE, USAGE, Case

try:
    import jsonschema
except ImportError:
    jsonschema = None


class BenchCli(Case):
    def test_what_the_machine_lacks(self):
        shown = self.run_ok("doctor").stdout
        found = json.loads(self.run_ok("doctor", "--json", "-").stdout)
        for finding in found:
            self.assertIn(finding["health"], ("good", "better", "missing"))
            self.assertEqual(finding["health"] == "good", finding["better"] == "")
            self.assertIn(finding["subject"], shown)
            self.assertIn(finding["command"], shown)

    def test_the_bench_of_the_path(self):
        result = json.loads(self.run_ok("bench", "path", "--quick", "--repetitions", "1", "--json",
                                        "-").stdout)
        self.assertEqual(result["suite"], "path")
        self.assertTrue(result["machine"])
        self.assertEqual([r["traffic"] for r in result["results"]], ["uniform", "campus"])
        for measured in result["results"]:
            self.assertEqual(set(measured), {"traffic", "live", "packets", "pages", "parse",
                                             "parse_and_touch", "stateless", "whole", "stages"})
            self.assertGreater(measured["packets"], 0)
            self.assertIn(measured["pages"], ("huge", "transparent", "small"))
            spreads = [measured[name] for name in ("parse", "parse_and_touch", "stateless", "whole")]
            self.assertTrue(measured["stages"])
            for spread in spreads + list(measured["stages"].values()):
                self.assertEqual(set(spread), {"ns_median", "ns_min", "ns_max"})
                self.assertLessEqual(spread["ns_min"], spread["ns_median"])
                self.assertLessEqual(spread["ns_median"], spread["ns_max"])

    def test_the_bench_of_the_path_with_other_tables_and_few_connections(self):
        few = ("bench", "path", "--repetitions", "1", "--traffic", "uniform", "--live", "10,1000")
        for table, stages in (("chained", True), ("std", False)):
            result = json.loads(self.run_ok(*few, "--table", table, "--json", "-").stdout)
            self.assertEqual(result["options"]["table"], table)
            self.assertEqual([r["live"] for r in result["results"]], [10, 1000])
            for measured in result["results"]:
                self.assertEqual(measured["packets"], 100_000)
                self.assertEqual(bool(measured["stages"]), stages)
            self.assertEqual("receive" in self.run_ok(*few, "--table", table).stdout, stages)
        self.refuse(USAGE, ["--table", "chained"], "bench", "path", "--table", "chain")
        self.refuse(USAGE, ["--live", "1 to"], "bench", "path", "--live", "0")

    def test_the_bench_of_the_pipeline(self):
        run = lambda *arguments: json.loads(self.run_ok("bench", "pipeline", "--quick", "--repetitions", "1", "--json",
                                                        "-", *arguments).stdout)
        result = run("--workers", "2,1")
        self.assertEqual((result["suite"], result["complete"], result["options"]["workers"]), ("pipeline", True, [1, 2]))
        by_kind = {kind: [r for r in result["results"] if r["kind"] == kind] for kind in ("part", "model", "summary")}
        self.assertEqual([r["part"] for r in by_kind["part"]], ["receive", "parse", "spread", "ring", "serve"])
        for part in by_kind["part"]:
            self.assertEqual(set(part), {"kind", "part", *(f"{unit}_{of}" for unit in ("ns", "cycles")
                                                           for of in ("median", "min", "max"))})
            self.assertGreater(part["ns_min"], 0)
            self.assertGreater(part["cycles_min"], 0)
        ns = {part["part"]: part["ns_median"] for part in by_kind["part"]}
        reading = ns["receive"] + ns["parse"]
        takes = {"run-to-completion": lambda n: (reading + ns["serve"]) / n,
                 "pipeline": lambda n: max(reading + ns["ring"], (ns["serve"] + ns["ring"]) / n),
                 "pipeline+spread": lambda n: max(reading + ns["spread"] + ns["ring"], (ns["serve"] + ns["ring"]) / n)}
        self.assertEqual({r["model"] for r in by_kind["model"]}, set(takes))
        for model in by_kind["model"]:
            is_piped = model["model"] != "run-to-completion"
            self.assertEqual(model["threads"], model["workers"] + is_piped)
            expected = 1000 / takes[model["model"]](model["workers"])
            self.assertAlmostEqual(model["predicted_mpps"], expected, delta=0.01 * expected)
            is_measured = model["workers"] <= 2 and model["model"] != "pipeline+spread"
            self.assertEqual(model["mpps_median"] is not None, is_measured)
            self.assertEqual(model["worker_ns_median"] is not None, is_measured)
            self.assertEqual(model["reader_ns_median"] is not None, is_measured and is_piped)
        self.assertEqual([r["model"] for r in by_kind["summary"]], ["pipeline", "pipeline+spread"])
        for summary in by_kind["summary"]:
            best = summary["best_workers"]
            reader, worker = summary["input_ns"] + summary["ring_ns"], summary["application_ns"] + summary["ring_ns"]
            self.assertGreaterEqual(reader, 0.99 * worker / best)
            self.assertTrue(best == 1 or reader < 1.01 * worker / (best - 1))
        self.assertEqual(result["best_workers"], by_kind["summary"][0]["best_workers"])
        # Unasked, no thread without a processor.
        for model in run("--live", "1", "--table", "std")["results"]:
            if model["kind"] == "model" and model["mpps_median"] is not None:
                self.assertLessEqual(model["threads"], len(os.sched_getaffinity(0)))
        shown = self.run_it("bench", "pipeline", "--quick", "--repetitions", "1", "--workers", "100")
        self.assertEqual(shown.returncode, DONE)
        self.assertIn("100 workers and a reader take turns", shown.stderr)
        self.assertIn("best workers", shown.stdout)
        self.refuse(USAGE, ["--workers", "twice"], "bench", "pipeline", "--workers", "2,2")
        self.refuse(USAGE, ["--table", "race"], "bench", "pipeline", "--table", "rase")
        self.refuse(USAGE, ["--burst", "1 to 64"], "bench", "pipeline", "--burst", "65")

    def test_advice(self):
        out = self.path("advised.toml")
        result = json.loads(self.run_ok("advise", "--in", self.good, "--workers", "1", "--seconds", "0", "--out", out,
                                        "--json", "-").stdout)
        self.assertEqual((result["suite"], result["complete"]), ("advise", True))
        best = result["results"][0]
        self.assertEqual(best["behind"], min(r["behind"] for r in result["results"] if r["round"] == best["round"]))
        self.assertEqual({(r["table"], r["ageing"]) for r in result["results"]},
                         {(table, ageing) for table in self.tables() for ageing in ("wheel", "scan", "lazy")})
        stats = json.loads(self.run_ok("replay", "--in", self.good, "--config", out, "--stats", "-").stdout)
        self.assertEqual(stats["table"]["scheme"], best["table"])
        self.assertEqual(stats["connections"]["refused"], 0)
        shown = self.run_ok("advise", "--in", self.good, "--workers", "1", "--seconds", "0").stdout
        self.assertIn("recommended", shown)
        self.assertIn("[table]", shown)
        self.refuse(UNREADABLE, ["nowhere"], "advise", "--in", self.path("nowhere"))
        self.refuse(USAGE, ["--in"], "advise", "--in", self.good, "--out", self.good)
        self.run_ok("generate", "--connections", "1", "--packets", "1", "--out", self.path("one.pcap"))
        self.run_ok("advise", "--in", self.path("one.pcap"), "--workers", "1", "--seconds", "0")

    def test_the_bench_of_advice(self):
        result = json.loads(self.run_ok("bench", "advise", "--in", self.good, "--workers", "1", "--quick", "--repetitions", "1",
                                        "--json", "-").stdout)
        [one] = result["results"]
        self.assertEqual(one["all"][0]["behind"], 0)
        self.assertIn(one["advised"], one["all"])

    def tables(self):
        listed = self.run_ok("schemes").stdout.partition("--table\n")[2].partition("--")[0]
        return [line.split()[0] for line in listed.splitlines()]

    def test_the_bench_of_scaling(self):
        result = json.loads(self.run_ok("bench", "scaling", "--quick", "--repetitions", "1",
                                        "--workers", "1,3", "--table", "race,cuckoo,chained",
                                        "--json", "-").stdout)
        self.assertEqual(result["suite"], "scaling")
        self.assertTrue(result["complete"])
        any_table = ("race", "cuckoo", "chained")
        schemes = {"sharded": any_table, "spinlock": any_table, "mutex": any_table,
                   "hierarchical": ("chained",), "locked-cuckoo": ("cuckoo",),
                   "lock-free-cuckoo": ("cuckoo",), "lock-free-race": ("race",),
                   "sharded+counter": any_table}
        self.assertEqual([(r["traffic"], r["sharing"], r["table"], r["workers"])
                          for r in result["results"]],
                         [(traffic, sharing, table, workers)
                          for traffic in ("campus", "flood", "established")
                          for sharing, tables in schemes.items() for table in tables
                          for workers in (1, 3)])
        for measured in result["results"]:
            self.assertLessEqual(measured["mpps_min"], measured["mpps_median"])
            self.assertLessEqual(measured["mpps_median"], measured["mpps_max"])
            self.assertGreater(measured["mpps_min"], 0)
            self.assertGreaterEqual(measured["waiting"], 0)
            self.assertLessEqual(measured["latency_us"]["50"], measured["latency_us"]["99.9"])
        self.assertEqual(result["predictions"], [])
        self.assertIn("6 worker counts", result["no_prediction"])
        self.refuse(USAGE, ["sharded+counter"], "bench", "scaling", "--sharing", "none")
        self.refuse(USAGE, ["--workers", "twice"], "bench", "scaling", "--workers", "2,2")
        self.refuse(USAGE, ["goes with"], "bench", "scaling", "--sharing", "lock-free-race",
                    "--table", "cuckoo")

    def test_the_bench_of_rates(self):
        result = json.loads(self.run_ok("bench", "rate", "--quick", "--table", "race,std", "--offered", "1,50",
                                        "--load", "0.65,1", "--queue", "64", "--repetitions", "2",
                                        "--json", "-").stdout)
        self.assertEqual((result["suite"], result["complete"]), ("rate", True))
        self.assertEqual([(r["load"], r["sharing"], r["table"], r["workers"], r["offered_mpps"])
                          for r in result["results"]],
                         [(load, sharing, table, workers, offered) for load in (0.65, 1)
                          for sharing in ("sharded", "mutex") for table in ("race", "std")
                          for workers in (1, 2) for offered in (1, 50)])
        spreads = ("mpps", "gbps", "lost", "p50_us", "p90_us", "p99_us", "p999_us")
        for measured in result["results"]:
            self.assertEqual(measured["offered"], measured["forwarded"] + measured["lost"])
            self.assertEqual(measured["offered"], 2 * 0.02e6 * measured["offered_mpps"])
            self.assertGreater(measured["forwarded"], 0)
            self.assertAlmostEqual(sum(measured["bins"].values()), 1, 5)
            self.assertTrue(all(0 <= int(us) <= 4096 for us in measured["bins"]))
            for name in spreads:
                self.assertLessEqual(measured[name + "_min"], measured[name + "_median"], name)
                self.assertLessEqual(measured[name + "_median"], measured[name + "_max"], name)
            self.assertLessEqual(measured["mpps_max"], 1.01 * measured["offered_mpps"])
            self.assertAlmostEqual((measured["lost_min"] + measured["lost_max"]) / 2,
                                   measured["lost"] / measured["offered"], 5)
            self.assertLessEqual(measured["p50_us_max"], measured["p999_us_max"])
            if measured["workers"] == 1:  # several do not get the same share of those that begin
                self.assertAlmostEqual(measured["opened"], measured["forwarded"] / 1000, delta=20)
        shown = self.run_ok("bench", "rate", "--quick", "--table", "race", "--sharing", "sharded",
                            "--offered", "1", "--workers", "1").stdout
        self.assertLessEqual(max(map(len, shown.split("\n"))), 100)
        self.assertRegex(shown, r"race +sharded +1 +0\.65 +1\.00 +[0-9.]+ \([0-9.]+-[0-9.]+\)")
        for words, arguments in [(["--offered", "0.01 to 1000"], ("--offered", "0")),
                                 (["--offered", "twice"], ("--offered", "1,2,1.0")),
                                 (["none of", "race"], ("--table", "rase")),
                                 (["--load", "0.01 to 1"], ("--load", "0")),
                                 (["--load", "0.01 to 1"], ("--load", "0.65,1.01")),
                                 (["--live", "1000"], ("--live", "999")),
                                 (["--queue", "1 to 65536"], ("--queue", "0")),
                                 (["goes with"], ("--sharing", "lock-free-race", "--table", "std"))]:
            with self.subTest(arguments):
                self.refuse(USAGE, words, "bench", "rate", *arguments)
        shown, printed, status = self.interrupt_bench(
            signal.SIGINT, "repetition 2 of 3", "rate", "--table", "race", "--sharing", "sharded", "--workers", "1",
            "--offered", "1", "--live", "1000", "--repetitions", "3", "--json", "-")
        self.assertEqual(status, INTERRUPTED, shown)
        result = json.loads(printed)
        self.assertFalse(result["complete"])
        self.assertEqual([r["offered_mpps"] for r in result["results"]], [1])

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
            # Knuth, of ten in sixteen: 1.8 with, 6.0 without. All of one table hash alike.
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

    def test_the_bench_of_ageing(self):
        result = json.loads(self.run_ok("bench", "ageing", "--quick", "--interval-ms", "100,1",
                                        "--workers", "1,2", "--json", "-").stdout)
        self.assertEqual(result["suite"], "ageing")
        self.assertEqual([(r["workers"], r["ageing"], r["interval_ms"])
                          for r in result["results"]],
                         [(workers, ageing, interval) for workers in (1, 2)
                          for ageing, intervals in (("none", (None,)), ("wheel", (100, 1)),
                                                    ("scan", (100, 1)), ("lazy", (100, 1)))
                          for interval in intervals])
        for measured in result["results"]:
            self.assertGreater(measured["ns_per_packet_median"], 0)
            self.assertLessEqual(measured["burst_us"]["50"], measured["burst_us"]["99.99"])
            self.assertEqual(measured["ended_too_soon"], 0)
            self.assertGreaterEqual(measured["live"], 0.98 * result["exact_live"])
            if measured["ageing"] == "none":
                self.assertEqual(measured["timed_out"], 0)
                self.assertEqual(measured["ageing_ns_per_packet_median"], 0)
            else:
                self.assertGreater(measured["timed_out"], 0)
            if (measured["ageing"], measured["interval_ms"]) == ("wheel", 1):
                self.assertLess(measured["kept_too_long"], 0.05)
        self.refuse(USAGE, ["--interval-ms", "1 to 1000"], "bench", "ageing", "--interval-ms", "0")
        self.refuse(USAGE, ["wheel"], "bench", "ageing", "--ageing", "wheels")
        # A connection and workers that get nothing, at whose samples nothing lives.
        result = json.loads(self.run_ok("bench", "ageing", "--connections", "1", "--timeout-ms", "1",
                                        "--repetitions", "1", "--packets-per-connection", "5",
                                        "--workers", "4", "--json", "-").stdout)
        self.assertTrue(all(r["kept_too_long"] >= 0 for r in result["results"]))

    def test_the_bench_of_overload(self):
        result = json.loads(self.run_ok("bench", "overload", "--quick", "--offered", "80,200",
                                        "--json", "-").stdout)
        self.assertEqual(result["suite"], "overload")
        self.assertEqual([(r["policy"], r["offered_ratio"]) for r in result["results"]],
                         [(policy, ratio) for policy in ("evict", "stateless", "drop")
                          for ratio in (0.8, 2.0)])
        for measured in result["results"]:
            self.assertEqual(measured["established_goodput"], 1)
            self.assertEqual(measured["misdirected"], 0)
            served = round(measured["begun"] * measured["new_served"])
            # Four of each established one; SYNs; four more of each client that is served.
            self.assertEqual(measured["packets"],
                             4 * measured["established"] + 4 * served + (
                                 result["options"]["capacity"] * measured["offered_ratio"]
                                 - measured["established"]))
            self.assertGreater(measured["relative_rate_median"], 0)
            if measured["policy"] == "drop" and measured["offered_ratio"] > 1:
                self.assertLess(measured["new_served"], 0.5)
                self.assertEqual(measured["live"], result["options"]["capacity"])
                self.assertLess(measured["refused_early"], 1e-4 * measured["refused"])
            else:
                self.assertEqual(measured["new_served"], 1)
        self.refuse(USAGE, ["evict"], "bench", "overload", "--policy", "evicts")
        self.refuse(USAGE, ["--offered", "twice"], "bench", "overload", "--offered", "80,80")

    def test_the_bench_of_overload_on_several_workers(self):
        asked = ("bench", "overload", "--quick", "--policy", "drop", "--offered", "100,120",
                 "--table", "race,std", "--workers", "4,1", "--division", "room,even",
                 "--half-open-percent", "100")  # nothing else refuses
        result = json.loads(self.run_ok(*asked, "--json", "-").stdout)
        rows = {(r["table"], r["workers"], r["division"], r["offered_ratio"]): r
                for r in result["results"]}
        self.assertEqual(list(rows), [(table, workers, division, ratio)
                                      for table in ("race", "std") for workers in (1, 4)
                                      for division in ("room", "even") for ratio in (1.0, 1.2)])
        capacity = result["options"]["capacity"]

        def counted(row):
            return {key: value for key, value in row.items()
                    if not key.startswith(("table", "mpps", "ns", "relative"))}

        for (table, workers, division, ratio), measured in rows.items():
            self.assertEqual(measured["misdirected"], 0)
            self.assertLessEqual(measured["mpps_min"], measured["mpps_median"])
            served = round(measured["begun"] * measured["new_served"])
            others = round(capacity * ratio) - measured["established"]
            self.assertEqual(measured["packets"],
                             4 * measured["established"] + 4 * served + others)
            self.assertEqual(measured["refused"], round(others * measured["new_refused"]))
            self.assertEqual(measured["live"], measured["established"] + others - measured["refused"])
            due = 4 * measured["established"] + 5 * measured["begun"]
            lost = 5 * (measured["begun"] - served)
            self.assertAlmostEqual(measured["goodput"], 1 - lost / due, 5)
            self.assertEqual(measured["first_refused_load"] is None, measured["refused"] == 0)
            if workers == 1 and ratio > 1:
                self.assertEqual(measured["first_refused_load"], 1)
            # With `drop` nothing but times depends on the table.
            self.assertEqual(counted(measured), counted(rows["race", workers, division, ratio]))
        for ratio in (1.0, 1.2):
            room, even = rows["race", 4, "room", ratio], rows["race", 4, "even", ratio]
            self.assertLess(even["first_refused_load"], 1)
            self.assertLess(even["new_served"], room["new_served"])
            self.assertGreater(even["new_refused"], room["new_refused"])
        self.assertEqual(rows["race", 4, "room", 1.0]["refused"], 0)
        shown = self.run_ok(*asked).stdout
        self.assertLessEqual(max(map(len, shown.split("\n"))), 110)
        for words, arguments in [
            (["--table", "twice"], ("--table", "race,race")),
            (["none of", "race"], ("--table", "rase")),
            (["--workers", "1 to 128"], ("--workers", "0")),
            (["--workers", "twice"], ("--workers", "2,2")),
            (["room", "even"], ("--division", "half")),
            (["--capacity", "101 or more"], ("--capacity", "100", "--workers", "101")),
        ]:
            with self.subTest(arguments):
                self.refuse(USAGE, words, "bench", "overload", *arguments)

    def test_the_bench_of_the_lines(self):
        tables = ["race", "cuckoo", "chained", "std"]

        def measured(*arguments):
            done = self.run_it("bench", "lines", "--quick", "--table", ",".join(tables), "--json", "-", *arguments)
            if platform.machine() != "x86_64":
                self.assertEqual((done.returncode, done.stdout), (FAILED, ""))
                self.assertIn("x86-64 only", done.stderr)
                self.skipTest("no single-stepping on this processor")
            self.assertEqual(done.returncode, DONE, done.stderr)
            return json.loads(done.stdout)

        result = measured()
        self.assertEqual((result["suite"], result["complete"], result["left_out"]), ("lines", True, []))
        kinds = ("hit", "touch", "miss", "insert", "delete")
        rows = {(r["table"], r["operation"]): r for r in result["results"]}
        self.assertEqual(list(rows), [(table, kind) for table in tables for kind in kinds])
        for (table, kind), row in rows.items():
            self.assertEqual(set(row), {"table", "operation", "bits", "load", "at_maximum", "operations", "lines_mean",
                                        "lines_median", "lines_p99", "lines_max", "head_lines_mean",
                                        "prefetched_only_mean", "instructions_mean", "undecoded", "cut"})
            self.assertEqual((row["undecoded"], row["cut"], row["operations"]), (0, 0, 20))
            # No index is one line: a miss reads a line of it, and what finds or changes one of the records, too.
            self.assertGreaterEqual(row["lines_mean"], 1 if kind == "miss" else 2 if kind == "touch" else 1.5)
            self.assertLessEqual(row["lines_median"], row["lines_p99"])
            self.assertLessEqual(row["lines_p99"], row["lines_max"])
            self.assertGreater(row["instructions_mean"], 10)
            self.assertGreaterEqual(row["instructions_mean"], row["lines_mean"])
        # A line of its index and one of its records, hardly ever more.
        self.assertLess(rows["race", "hit"]["lines_mean"], 2.5)
        self.assertLess(rows["race", "miss"]["lines_mean"], 1.5)
        # A record more, which `cuckoo` and `std` find by a key that lies elsewhere.
        for table in ("cuckoo", "std"):
            self.assertGreater(rows[table, "touch"]["lines_mean"], rows["race", "touch"]["lines_mean"])
        self.assertEqual(len(rows), len(result["results"]))

        def figures(of):
            return [{name: figure for name, figure in row.items() if name != "head_lines_mean"} for row in of["results"]]

        self.assertEqual(figures(measured()), figures(result), "two runs agree")
        self.assertEqual(figures(measured("--pages", "small", "--quiet")), figures(result), "whatever the pages")
        self.assertNotEqual(figures(measured("--seed", "2")), figures(result))
        full = measured("--at-maximum", "--load", "0.5")["results"]
        self.assertEqual([r["at_maximum"] for r in full], 20 * [False] + 20 * [True])
        shown = self.run_ok("bench", "lines", "--quick", "--table", "race")
        self.assertIn("instructions of one operation", shown.stdout)
        self.assertNotIn("decoded", shown.stdout)

    def test_bad_values_of_the_bench_of_the_lines(self):
        for words, arguments in [
            (["none of", "race"], ("--table", "rase")),
            (["race twice"], ("--table", "race,race")),
            (["--bits", "10 to 22"], ("--bits", "9")),
            (["0.5 twice"], ("--load", "0.5,0.5")),
            (["horton", "0.95", "lower --load"], ("--table", "horton", "--load", "0.97")),
            (["--operations", "1 to 100000"], ("--operations", "0")),
            (["--operations 192", "allow 191"], ("--bits", "10", "--operations", "192")),
        ]:
            with self.subTest(arguments):
                self.refuse(USAGE, words, "bench", "lines", *arguments)
        _, printed, status = self.interrupt_bench(signal.SIGINT, "cuckoo", "lines", "--table", "std,cuckoo", "--bits", "14",
                                                  "--json", "-")
        self.assertEqual(status, INTERRUPTED)

    # As little as there is to measure.
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
        self.refuse(USAGE, ["benchmarks only"], *self.replay("--table", "libcuckoo"))
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
        someone = {"user": NOBODY} if os.geteuid() == 0 else {}  # root has /var/run
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
        for sent in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            shown, printed, status = self.interrupt_bench(
                sent, "2^18 slots: the machine", "tables", *self.ONE_GROUP, "--table", "std", "--bits", "10,18", "--json", out)
            self.assertEqual(status, INTERRUPTED, shown)
            self.assertRegex(shown, r"\r\x1b\[Jmillrace: warning: interrupted after 1 of 2 ")
            self.assertIn("2^10 slots", printed)
            with open(out) as file:
                result = json.load(file)
            self.assertFalse(result["complete"])
            self.assertEqual({r["slots"] for r in result["results"]}, {1024})
        os.remove(out)
        shown, printed, status = self.interrupt_bench(
            signal.SIGINT, "the machine", "tables", *self.SMALLEST, "--table", "std", "--json", out)
        self.assertEqual((status, printed, os.path.exists(out)), (INTERRUPTED, "", False))
        _, printed, status = self.interrupt_bench(
            signal.SIGINT, "campus", "path", "--quick", "--repetitions", "1", "--json", "-")
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
