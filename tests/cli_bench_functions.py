"""The part of cli_test.py about benches of functions: `millrace bench nat`, `chain` and `pair`."""

import json
import signal

from cli_case import INTERRUPTED, USAGE, Case

MPPS = ("mpps_median", "mpps_min", "mpps_max")


class BenchFunctionsCli(Case):
    def test_the_bench_of_nat(self):
        asked = ("bench", "nat", "--quick", "--connections", "3000,600", "--users", "7", "--packet-bytes", "64,1518")
        result = json.loads(self.run_ok(*asked, "--json", "-").stdout)
        self.assertEqual((result["suite"], result["complete"]), ("nat", True))
        metrics = ("establishment", "established", "tear_down", "capacity")
        self.assertEqual([(r["tunnel"], r["connections"], r["packet_bytes"], r["metric"]) for r in result["results"]],
                         [(tunnel, connections, size, metric) for tunnel in ("none", "gre") for connections in (3000, 600)
                          for size in (64, 1518) for metric in metrics])
        common = {"metric", "contender", "connections", "users", "packet_bytes", "tunnel", "limit_mpps", "pages", *MPPS}
        more = {"establishment": set(), "tear_down": set(),
                "established": {f"{name}_{of}" for name in ("unpaced_mpps", "lost_at_95") for of in ("median", "min", "max")} | {"parse_mpps"},
                "capacity": {"capacity", "mappings", "bytes_per_session", "bytes_per_mapping"}}
        for row in result["results"]:
            metric = row["metric"]
            self.assertEqual(set(row), common | more[metric], metric)
            self.assertEqual((row["contender"], row["users"]), ("race", 7))
            if metric == "capacity":
                self.assertEqual([row[name] for name in MPPS], [None] * 3)
                self.assertEqual(row["capacity"], row["connections"])
                # A customer's ports are distinct, so each session has a mapping of its own.
                self.assertEqual(row["mappings"], row["connections"])
                self.assertGreater(row["bytes_per_session"], 128, "two records of 64 bytes")
                self.assertGreater(row["bytes_per_mapping"], 0)
                continue
            self.assertLessEqual(row["mpps_min"], row["mpps_median"])
            self.assertLessEqual(row["mpps_median"], row["mpps_max"])
            self.assertEqual(row["limit_mpps"] is None, metric == "tear_down")
            if metric == "established":
                self.assertLessEqual(row["mpps_max"], 1.02 * row["unpaced_mpps_max"])
                self.assertGreaterEqual(row["lost_at_95_min"], 0)
                self.assertGreater(row["unpaced_mpps_min"], 0)
            else:
                self.assertGreater(row["mpps_min"], 0)
        shown = self.run_ok("bench", "nat", "--quick", "--users", "7", "--connections", "600").stdout
        self.assertRegex(shown, r"race +none +600 +7 +64 ")
        self.assertRegex(shown, r"race +gre +600 +7 +64 ")
        # Fewer connections than customers; several blocks a customer; all of a packet's sizes of --full.
        few = self.run_ok("bench", "nat", "--quick", "--connections", "5,9000", "--users", "2", "--json", "-").stdout
        self.assertEqual([r["users"] for r in json.loads(few)["results"]], [2] * 16)

    def test_the_bench_of_a_pair(self):
        result = json.loads(self.run_ok("bench", "pair", "--quick", "--sessions", "5000", "--json", "-").stdout)
        self.assertEqual((result["suite"], result["complete"]), ("pair", True))
        alone, copied = result["results"]
        self.assertEqual((alone["contender"], copied["contender"], copied["sessions"]), ("alone", "copied", 5000))
        for row in (alone, copied):
            self.assertGreater(row["begun_mpps_median"], 0)
            self.assertGreater(row["established_mpps_median"], 0)
        # A record has a head of 4 bytes, a connection of 40 bytes, and NAT's image of 18 bytes.
        self.assertGreater(copied["bytes_a_session"], 62)
        self.assertGreater(copied["copying_bytes"], 5000 * 62)
        self.assertGreater(copied["copying_s_median"], 0)
        self.assertGreater(result["of_begun_median"], 0)

    def test_bad_values_of_the_bench_of_nat(self):
        for words, arguments in [
            (["--connections", "1 to"], ("--connections", "0")),
            (["--connections", "twice"], ("--connections", "7,7")),
            (["60000 each", "give 18 users or more"], ("--connections", "1000000", "--users", "16")),
            (["--packet-bytes", "64 to 1518"], ("--packet-bytes", "63")),
            (["--tunnel", "none", "gre"], ("--tunnel", "ipip")),
            (["none of", "race"], ("--table", "rase")),
            (["--seconds", "0.01 to 600"], ("--seconds", "0")),
        ]:
            with self.subTest(arguments):
                self.refuse(USAGE, words, "bench", "nat", *arguments)

    def test_an_interrupt_of_the_bench_of_nat(self):
        shown, printed, status = self.interrupt_bench(
            signal.SIGINT, "repetition 2 of 3", "nat", "--quick", "--repetitions", "3", "--json", "-")
        self.assertEqual(status, INTERRUPTED, shown)
        result = json.loads(printed)
        self.assertFalse(result["complete"])
        self.assertEqual(len(result["results"]), 8)

    def test_the_bench_of_chains(self):
        result = json.loads(self.run_ok("bench", "chain", "--quick", "--json", "-").stdout)
        self.assertEqual((result["suite"], result["complete"]), ("chain", True))
        of = {(r["traffic"], tuple(r["functions"].split("+")), r["classified"]): r for r in result["results"]}
        alone = [(name,) for name in ("forward", "firewall", "nat", "balance")]
        chains = [functions for _, functions, way in of if way == "each"][:sum(way == "each" for *_, way in of) // 2]
        for needed in (("firewall", "nat"), ("forward", "firewall", "nat"), ("forward", "firewall", "balance")):
            self.assertIn(needed, chains)
        # Chains that the configuration refuses are named, with the reason.
        self.assertEqual(len(result["left_out"]) + len(chains), 6)
        self.assertEqual(list(of), [(traffic, *one) for traffic in ("http", "campus")
                                    for one in [(one, "once") for one in alone] + [(c, w) for c in chains for w in ("each", "once")]])
        for (_, functions, way), row in of.items():
            compared = way == "once" and len(functions) > 1
            ratios = {f"{name}_{of}" for name in ("of_dearest", "of_each") for of in ("median", "min", "max")} if compared else set()
            self.assertEqual(set(row), {"functions", "classified", "traffic", "conversations", "ns_median", "ns_min", "ns_max"} | ratios)
            self.assertGreater(row["ns_min"], 0)
            self.assertLessEqual(row["ns_min"], row["ns_median"])
            self.assertGreater(row["conversations"], 1000)
        for (traffic, functions, way), row in of.items():
            if way == "once" and len(functions) > 1:
                dearest = max(of[traffic, (name,), "once"]["ns_median"] for name in functions)
                self.assertAlmostEqual(row["of_dearest_median"], row["ns_median"] / dearest, 2)
                self.assertAlmostEqual(row["of_each_median"], row["ns_median"] / of[traffic, functions, "each"]["ns_median"], 2)
        shown = self.run_ok("bench", "chain", "--quick", "--chain", "firewall+nat,nat+firewall", "--traffic", "http").stdout
        self.assertRegex(shown, r"http +nat\+firewall +once ")
        self.assertLessEqual(max(map(len, shown.split("\n"))), 110)
        for words, arguments in [
            (["nta", "is none of", "firewall+nat"], ("--chain", "firewall+nta")),
            (["one function", "two or more"], ("--chain", "nat")),
            (["nat twice"], ("--chain", "nat+nat")),
            (["--chain", "twice"], ("--chain", "firewall+nat,firewall+nat")),
            (["--traffic", "http"], ("--traffic", "ftp")),
            (["--packets", "1000 to"], ("--packets", "10")),
        ]:
            with self.subTest(arguments):
                self.refuse(USAGE, words, "bench", "chain", *arguments)
