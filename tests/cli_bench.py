"""The part of cli_test.py about `millrace bench`, `advise` and `doctor`."""

import json
import os
import signal
import subprocess
import time

from cli_case import DONE, INTERRUPTED, MILLRACE, UNREADABLE, USAGE, Case
from foreground import is_caught


class BenchCli(Case):
    def test_what_the_machine_lacks(self):
        shown = self.run_ok("doctor").stdout
        found = json.loads(self.run_ok("doctor", "--json", "-").stdout)
        for finding in found:
            self.assertIn(finding["health"], ("good", "better", "missing"))
            self.assertEqual(finding["health"] == "good", finding["better"] == "")
            self.assertIn(finding["subject"], shown)
            self.assertIn(finding["command"], shown)

    def test_a_bench_that_there_is_not(self):
        self.refuse(USAGE, ["pth is no command of millrace bench", "path"], "bench", "pth")

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

    def test_the_bench_of_levelling(self):
        result = json.loads(self.run_ok("bench", "level", "--quick", "--json", "-", "--live", "5000").stdout)
        self.assertEqual((result["suite"], result["complete"]), ("level", True))
        of = {row["case"]: row for row in result["results"]}
        self.assertEqual(list(of), ["even", "moving", "skewed", "levelled"])
        self.assertGreater(min(row["mpps_median"] for row in of.values()), 0)
        self.assertGreater(of["moving"]["moves"], 0)
        self.assertGreater(of["moving"]["connections_per_move"], 0)
        self.assertEqual({of[case]["moves"] for case in ("even", "skewed", "levelled")}, {0})
        # Levelling itself is tested with simulated workers: here the scheduler decides how much each worker serves.
        for row in of.values():
            self.assertTrue(1 <= row["busiest_min"] <= row["busiest_median"] <= row["busiest_max"] <= 2, row)
        kinds = ["at rest", "while shards move", "of the moving shard"]
        parts = ["mean", "50 %", "95 %", "99 %"]
        # If a worker gets no processor, it may serve no packet of a kind, which then has no rows.
        kinds = [kind for kind in kinds if any(row["packets"] == kind for row in result["latency"])]
        self.assertEqual([(row["packets"], row["part"]) for row in result["latency"]], [(kind, part) for kind in kinds for part in parts])
        self.assertGreater(min((row["us_min"] for row in result["latency"]), default=1), 0)
        self.refuse(USAGE, ["--workers", "2 to 4"], "bench", "level", "--workers", "1")

    def test_levelling_simulated(self):
        few = ("bench", "level", "--quick", "--live", "1000", "--seconds", "0.05", "--simulated", "1,4", "--packets", "300000")
        result = json.loads(self.run_ok(*few, "--json", "-").stdout)
        self.assertEqual([(row["traffic"], row["levelling"], row["workers"]) for row in result["imbalance"]],
                         [(traffic, levelling, workers) for traffic in ("campus", "skewed") for levelling in ("fixed", "levelled")
                          for workers in (1, 4)])
        percent = {(row["traffic"], row["levelling"]): row["packets_percent_median"] for row in result["imbalance"] if row["workers"] == 4}
        self.assertLess(percent["skewed", "levelled"], percent["skewed", "fixed"])
        self.assertEqual({row["moves_a_second"] for row in result["imbalance"] if row["levelling"] == "fixed" or row["workers"] == 1}, {0})
        self.assertEqual([row["second"] for row in result["scaling"]], list(range(70)))
        at = {row["second"]: row["workers"] for row in result["scaling"]}
        self.assertEqual((at[0], at[69]), (1, 1))
        self.assertGreaterEqual(at[30], 4)
        again = json.loads(self.run_ok(*few, "--json", "-").stdout)
        self.assertEqual([again[part] for part in ("imbalance", "scaling")], [result[part] for part in ("imbalance", "scaling")])
        shown = self.run_ok(*few).stdout
        for words in ("from arrival to send", "levelled", "15 simulated workers"):
            self.assertIn(words, shown)
        self.refuse(USAGE, ["--simulated", "4 twice"], "bench", "level", "--simulated", "4,4")
        self.refuse(USAGE, ["--offered"], "bench", "level", "--offered", "2")

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
        # Without --workers no case is measured that has more threads than processors.
        measured = [model["threads"] for model in run("--live", "1", "--table", "std")["results"]
                    if model["kind"] == "model" and model["mpps_median"] is not None]
        self.assertIn(1, measured)
        self.assertLessEqual(max(measured), len(os.sched_getaffinity(0)))
        shown = self.run_it("bench", "pipeline", "--quick", "--repetitions", "1", "--workers", "100")
        self.assertEqual(shown.returncode, DONE)
        self.assertIn("100 workers and a reader take turns", shown.stderr)
        self.assertIn("best workers", shown.stdout)
        self.refuse(USAGE, ["--workers", "twice"], "bench", "pipeline", "--workers", "2,2")
        self.refuse(USAGE, ["--table", "race"], "bench", "pipeline", "--table", "rase")
        self.refuse(USAGE, ["--burst", "1 to 64"], "bench", "pipeline", "--burst", "65")

    # No packet of the capture is a reply. The advised configuration must track every packet all the same.
    def test_advice(self):
        out, seen = self.path("advised.toml"), self.path("one_way.pcap")
        self.run_ok("generate", "--profile", "uniform", "--connections", "4000", "--packets", "8000", "--out", seen)
        result = json.loads(self.run_ok("advise", "--in", seen, "--workers", "1", "--seconds", "0", "--out", out, "--json",
                                        "-").stdout)
        self.assertEqual((result["suite"], result["complete"], result["capture"]["tracked"]), ("advise", True, 1))
        best = result["results"][0]
        fastest = min((r for r in result["results"] if r["round"] == best["round"]), key=lambda r: r["behind"])
        if result["no_faster"]:  # no combination is faster than the default one
            self.assertEqual((best["table"], best["sharing"], best["ageing"]), ("race", "sharded", "wheel"))
            self.assertEqual(result["no_faster"], {key: fastest[key] for key in ("table", "sharing", "ageing")})
        else:
            self.assertEqual(best, fastest)
        self.assertIsNone(result["on_kernel_interfaces"], "one worker needs no other advice for the kernel's interfaces")
        self.assertEqual({(r["table"], r["ageing"]) for r in result["results"]},
                         {(table, ageing) for table in self.tables() for ageing in ("wheel", "scan", "lazy")})
        self.assertEqual([r["failed"] for r in result["results"] if "failed" in r], [])
        stats = json.loads(self.run_ok("replay", "--in", seen, "--config", out, "--stats", "-").stdout)
        self.assertEqual(stats["table"]["scheme"], best["table"])
        self.assertEqual((stats["packets"]["tracked"], stats["connections"]["over_budget"],
                          stats["connections"]["refused"]), (8000, 0, 0))
        self.refuse(UNREADABLE, ["nowhere"], "advise", "--in", self.path("nowhere"))
        self.refuse(USAGE, ["--in"], "advise", "--in", self.good, "--out", self.good)
        self.refuse(USAGE, ["--json", "is the file of --out"], "advise", "--in", self.good, "--out", out, "--json", out)
        self.run_ok("generate", "--connections", "1", "--packets", "1", "--out", self.path("one.pcap"))
        shown = self.run_ok("advise", "--in", self.path("one.pcap"), "--workers", "1", "--seconds", "0").stdout
        self.assertIn("recommended", shown)
        self.assertIn("[table]", shown)

    def test_advice_in_time(self):
        """--seconds bounds the time for 102 combinations with two workers, which would otherwise take minutes.
        For the kernel's interfaces the advice is not "sharded"."""
        command = [MILLRACE, "advise", "--in", self.good, "--workers", "2", "--seconds", "1"]
        done = subprocess.run([*command, "--json", self.path("a.json")], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, DONE, done.stderr)
        for words in ("looking at the capture", "round 1 of 3, 102 combinations"):
            self.assertIn("millrace: " + words, done.stderr)
        self.assertRegex(done.stdout, r"On the kernel's interfaces .*:\n    table \S+, sharing \S+, ageing ")
        with open(self.path("a.json"), encoding="utf-8") as file:
            result = json.load(file)
        self.assertNotEqual(result["on_kernel_interfaces"]["sharing"], "sharded")
        self.assertTrue(result["complete"])
        self.assertEqual(subprocess.run([*command, "--quiet"], capture_output=True, timeout=60).stderr, b"")

    def test_advice_that_waits_for_its_capture_can_be_ended(self):
        os.mkfifo(self.path("pipe"))
        for command in (["advise"], ["bench", "advise"]):
            with subprocess.Popen([MILLRACE, *command, "--in", self.path("pipe")], stderr=subprocess.PIPE, text=True) as waiting:
                while waiting.poll() is None and not is_caught(waiting.pid, signal.SIGINT):
                    time.sleep(0.01)
                waiting.send_signal(signal.SIGINT)
                try:
                    waiting.wait(60)
                finally:
                    waiting.kill()
            self.assertEqual(waiting.returncode, INTERRUPTED)

    def test_the_bench_of_advice(self):
        result = json.loads(self.run_ok("bench", "advise", "--in", self.good, "--workers", "1", "--quick",
                                        "--repetitions", "1", "--json", "-").stdout)
        [one] = result["results"]
        self.assertEqual(one["all"][0]["behind"], 0)
        self.assertIn(one["advised"], one["all"])
        # The two mistakes below are found before anything is measured.
        self.refuse(USAGE, ["--json", "is a file of --in"], "bench", "advise", "--in", self.good, "--json", self.good)
        self.refuse(UNREADABLE, ["nowhere"], "bench", "advise", "--in", f"{self.good},{self.path('nowhere')}", "--seconds", "3600")

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
            if measured["workers"] == 1:  # several workers get unequal numbers of the new connections
                self.assertAlmostEqual(measured["opened"], measured["forwarded"] / 1000, delta=20)
                self.assertEqual(measured["refused"], 0)
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
        self.refuse(USAGE, ["lock-free-race", "goes with table race, not with \"std\""], "bench", "ageing", "--table", "std",
                    "--sharing", "lock-free-race")
        result = json.loads(self.run_ok("bench", "ageing", "--quick", "--interval-ms", "10", "--workers", "2", "--sharing",
                                        "lock-free-race", "--ageing", "lazy", "--repetitions", "1", "--json", "-").stdout)
        self.assertEqual(result["options"]["sharing"], "lock-free-race")
        for measured in result["results"]:
            self.assertEqual(measured["ended_too_soon"], 0)
            self.assertGreaterEqual(measured["live"], 0.98 * result["exact_live"])
        # One connection for four workers: three workers get no packets, and never have a live connection.
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
            # Four packets of each established connection, a SYN of each new connection, and four more packets of each new one that is served.
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
                 "--half-open-percent", "100")  # so that only full tables refuse connections
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
            # With the policy "drop" only rates and times depend on the table.
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
