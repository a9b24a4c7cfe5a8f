#!/usr/bin/env python3
"""Tests the program from outside, also with bad input, with readers of its output that go away early, and on a full disk.

Usage: cli_test.py MILLRACE. Needs nothing but Python's standard library; with the
package jsonschema it also checks statistics against their schema.
"""

import ctypes
import json
import os
import resource
import signal
import struct
import subprocess
import sys
import unittest

from cli_bench import BenchCli  # noqa: F401  unittest runs the imported tests, too
from cli_bench_functions import BenchFunctionsCli  # noqa: F401
from cli_bench_tables import BenchTablesCli  # noqa: F401
from cli_captures import Clocks, Interfaces, Streams  # noqa: F401
from cli_case import DONE, FAILED, MILLRACE, NOBODY, ROOT, UNREADABLE, USAGE, Case
from cli_handing_over import HandingOverCli  # noqa: F401
from cli_interrupts import InterruptsCli  # noqa: F401
from cli_live import LiveCli  # noqa: F401
from cli_report import ReportCli  # noqa: F401

try:
    import jsonschema
except ImportError:
    jsonschema = None


class Cli(Case):
    def config(self, text):
        return self.replay("--config", self.write("f.toml", text))

    def test_captures_that_cannot_be_read(self):
        self.refuse(UNREADABLE, ["gone.pcap"], "replay", "--in", self.path("gone.pcap"))
        self.refuse(UNREADABLE, ["directory"], "replay", "--in", self.dir)
        self.refuse(UNREADABLE, ["empty"], "replay", "--in", self.write("e.pcap", b""))
        self.refuse(UNREADABLE, ["no capture"], "replay", "--in", self.write("t.pcap", "hello\n" * 9))
        header = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 147)
        self.refuse(UNREADABLE, ["link type"], "replay", "--in", self.write("u.pcap", header))

    def test_no_permission(self):
        os.chmod(self.dir, 0o755)
        someone = {"user": NOBODY} if os.geteuid() == 0 else {}  # root may read everything
        if someone and subprocess.run(["test", "-x", MILLRACE], **someone).returncode != 0:
            self.skipTest("the program is out of reach for another user")
        os.chmod(self.good, 0)
        self.refuse(UNREADABLE, ["ermission"], *self.replay(), **someone)
        os.chmod(self.good, 0o644)
        os.chmod(self.dir, 0o555)
        for option in ("--out", "--stats"):
            self.refuse(UNREADABLE, ["where you may write"],
                        *self.replay(option, self.path("new")), **someone)

    def test_a_truncated_capture_is_used_as_far_as_it_goes(self):
        with open(self.good, "rb") as file:
            cut = self.write("cut.pcap", file.read()[:-10])
        for how in ((), ("--quiet",), ("--windows", "2")):
            result = self.run_it("replay", "--in", cut, "--stats", "-", *how)
            self.assertEqual(result.returncode, UNREADABLE)
            stats = json.loads(result.stdout)
            self.assertEqual(stats["packets"]["in"], 5998 if "--windows" in how else 2999)
            self.assertIn("truncated", stats["warnings"][0])
            self.assertEqual(result.stderr, f"millrace: warning: {stats['warnings'][0]}\n")

    def test_command_line(self):
        self.refuse(USAGE, ["subcommand"])
        self.refuse(USAGE, ["repaly is no command", "replay, run"], "repaly")
        self.refuse(USAGE, ["--in"], "replay")
        self.refuse(USAGE, ["--tabel is no option: the nearest is --table "], *self.replay("--tabel", "race"))
        self.refuse(USAGE, ["--wrokers=3 is no option: the nearest is --workers "], *self.replay("--wrokers=3"))
        self.refuse(USAGE, ["race", "std"], *self.replay("--table", "cukoo"))
        self.refuse(USAGE, ["wheel", "lazy"], *self.replay("--ageing", "wheels"))
        self.refuse(USAGE, ["sharded"], *self.replay("--sharing", "mutexes"))
        self.refuse(USAGE, ["goes with table cuckoo, not with"],
                    *self.replay("--sharing", "lock-free-cuckoo"))
        self.refuse(USAGE, ["keyed"], *self.replay("--spread", "rss"))
        for capacity in ("0", "-1", "99999999999999999999", "x", "010"):
            self.refuse(USAGE, ["--capacity"], *self.replay("--capacity", capacity))
        for option in ("--out", "--stats", "--config"):
            self.refuse(USAGE, [option, "empty"], *self.replay(option, ""))
        self.refuse(USAGE, ["--timeout"], *self.replay("--timeout", "0"))
        self.refuse(USAGE, ["--timeout"], *self.replay("--timeout", "nan"))
        for workers in ("0", "129", "two"):
            self.refuse(USAGE, ["--workers"], *self.replay("--workers", workers))
        self.refuse(USAGE, ["--seed"], *self.replay("--seed", "-5"))
        self.refuse(USAGE, ["--loops"], *self.replay("--loops", "0"))
        self.refuse(USAGE, ["--burst"], *self.replay("--burst", "65"))

    def test_memory_that_is_not_there(self):
        self.refuse(FAILED, ["memory"], *self.replay("--capacity", "1800000000"))

    def test_configuration(self):
        self.refuse(UNREADABLE, ["f.toml"], *self.replay("--config", self.path("f.toml")))
        backend = 'backends = [{address = "10.0.0.1"}]\n'
        service = '[[service]]\naddress = "203.0.113.1"\n'
        for text, words in [
            ("[table]\ncapacty = 5\n", ["f.toml:2", "capacty", "capacity"]),
            ("[table]\ncapacity = 0\n", ["f.toml:2", "capacity", "1"]),
            ('[table]\ncapacity = "many"\n', ["f.toml:2", "is a string: give 1"]),
            ('[table]\nscheme = "cukoo"\n', ["f.toml:2", "cukoo", "race"]),
            (service + "backends = []\n", ["f.toml:3", "backends"]),
            (service, ["f.toml", "backends"]),
            (service + 'backends = [{address="10.0.0.1"}, {address="10.0.0.1"}]\n', ["f.toml:3"]),
            ('[[service]]\naddress = "203.0.113.300"\n' + backend, ["f.toml:2", "203.0.113.300"]),
            (service + 'backends = [{address = "fd00::1"}]\n', ["f.toml:3", "fd00::1"]),
            ("[table\n", ["f.toml:1"]),
            ("[=(", ["f.toml:1", "TOML"]),
        ]:
            with self.subTest(text):
                self.refuse_config(text, words)

    def refuse_config(self, text, words):
        arguments = self.config(text)
        self.refuse(USAGE, words, *arguments)

    def test_every_problem_of_a_configuration_is_named(self):
        result = self.run_it(*self.config("colour = 1\n[table]\ncapacity = -1\n[ageing]\nx = 1\n"))
        self.assertEqual(result.returncode, USAGE)
        self.assertEqual(len(result.stderr.strip().split("\n")), 3, result.stderr)

    def test_outputs_that_cannot_be_written(self):
        for option in ("--out", "--stats"):
            self.refuse(UNREADABLE, ["no/where", "create the directory first"],
                        *self.replay(option, self.path("no/where")))
            self.refuse(UNREADABLE, ["irectory"], *self.replay(option, self.dir))
            self.refuse(FAILED, ["free some space"], *self.replay(option, "/dev/full"))

    def test_a_file_that_is_in_use_is_not_written_to(self):
        stats = self.write("stats.json", "{}")
        config = self.write("f.toml", "workers = 1\n")
        os.symlink(self.good, self.path("symbolic"))
        os.link(self.good, self.path("hard"))
        with open(self.good, "rb") as file:
            before = file.read()
        for option in ("--out", "--stats"):
            for name in ("good.pcap", "symbolic", "hard"):
                self.refuse(USAGE, [option, "--in"], *self.replay(option, self.path(name)))
            self.refuse(USAGE, [option, "--config"],
                        *self.replay("--config", config, option, config))
            with open(self.good, "rb") as file:
                self.refuse(USAGE, [option, "--in"], "replay", "--in", "-", option, self.good,
                            stdin=file)
        with open(self.good, "rb") as file:
            self.assertEqual(file.read(), before)
        for path in (stats, self.path("new"), self.path("./new")):
            self.refuse(USAGE, ["--out", "--stats"],
                        *self.replay("--out", path, "--stats", os.path.normpath(path)))
        self.refuse(USAGE, ["--out", "--stats"],
                    *self.replay("--out", "new", "--stats", "./new"), cwd=self.dir)
        self.run_ok(*self.replay("--out", "/dev/null", "--stats", "/dev/null"))

    def test_a_symbolic_link_stays(self):
        for number, option in enumerate(("--out", "--stats")):
            link, target = self.path(f"link{number}"), self.path(f"target{number}")
            os.symlink(f"target{number}", link)
            self.write(f"target{number}", "old")
            self.run_ok(*self.replay(option, link))
            self.assertTrue(os.path.islink(link), option)
            self.assertGreater(os.path.getsize(target), 100, option)

    def test_results_that_cannot_be_printed(self):
        for arguments in (self.replay(), self.replay("--stats", "-"), ("schemes",),
                          ("completion",), ("--help",), ("replay", "--help"), ("--version",),
                          ("generate", "--connections", "9", "--out", self.path("g.pcap"))):
            with self.subTest(arguments), open("/dev/full", "w") as full:
                result = subprocess.run([MILLRACE, *arguments], stdout=full,
                                        stderr=subprocess.PIPE, text=True, timeout=120)
                self.assertEqual(result.returncode, FAILED, result.stderr)
                self.assertIn("standard output", result.stderr)
                self.assertEqual(result.stderr.count("\n"), 1, result.stderr)

    def test_standard_streams_that_are_gone(self):
        stats = self.path("stats.json")
        command = [MILLRACE, *self.replay("--stats", stats)]
        for redirection, status in ((">&-", FAILED), ("2>&-", DONE), ("<&-", DONE),
                                    ("2>/dev/full", DONE)):
            result = subprocess.run(["bash", "-c", f'"$@" {redirection}', "bash", *command],
                                    capture_output=True, text=True, timeout=120)
            self.assertEqual(result.returncode, status, (redirection, result.stderr))
            with open(stats) as file:
                self.assertEqual(json.load(file)["packets"]["in"], 3000, redirection)
        reading, writing = os.pipe()
        os.close(reading)
        os.remove(stats)
        result = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=120)
        os.close(writing)
        self.assertEqual((result.returncode, result.stderr), (-signal.SIGPIPE, b""))
        self.assertTrue(os.path.exists(stats), "files must be written before standard output")

    def test_a_full_disk_leaves_nothing_and_loses_nothing(self):
        out = self.write("out.pcap", "what was there before")
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        self.refuse(FAILED, ["out.pcap"], *self.replay("--out", out), preexec_fn=limit)
        with open(out) as file:
            self.assertEqual(file.read(), "what was there before")

    def test_the_same_seed_gives_the_same_bytes(self):
        outs = []
        for name in ("a", "b"):
            self.run_ok(*self.replay("--seed", "9", "--capacity", "50", "--out", self.path(name)))
            with open(self.path(name), "rb") as file:
                outs.append(file.read())
        self.assertEqual(outs[0], outs[1])

    def test_workers_write_what_one_writes(self):
        outs = set()
        for workers, *how in ((1,), (2,), (5,), (3, "--sharing", "mutex"),
                              (4, "--sharing", "lock-free-race")):
            out = self.path("out.pcap")
            result = self.run_ok(*self.replay("--workers", str(workers), *how,
                                              "--loops", "3", "--out", out, "--stats", "-"))
            stats = json.loads(result.stdout)
            self.assertEqual(len(stats["workers"]), workers)
            self.assertEqual(sum(worker["packets"] for worker in stats["workers"]), 9000)
            self.assertGreater(min(worker["packets"] for worker in stats["workers"]), 0)
            self.assertEqual(sum(backend["packets"] for backend in stats["backends"]), 9000)
            self.assertEqual(stats["table"]["capacity"], 1_000_000)
            with open(out, "rb") as file:
                outs.add(file.read())
        self.assertEqual(len(outs), 1)
        self.assertIn("worker 1", self.run_ok(*self.replay("--workers", "2")).stdout)

    @unittest.skipIf(len(os.sched_getaffinity(0)) >= 128, "this machine has a processor for each of 128 workers")
    def test_more_workers_than_processors_are_warned_of(self):
        self.assertIn("take turns", self.run_ok(*self.replay("--workers", "128")).stderr)

    def test_a_spread_that_tears_connections_apart(self):
        config = self.write("f.toml", '[[service]]\naddress = "203.0.113.1"\n'
                            'backends = [{address = "10.0.0.1"}]\n')
        arguments = self.replay("--config", config, "--spread", "toeplitz-symmetric")
        self.run_ok(*arguments)
        for sharing in ("sharded", "spinlock"):
            self.refuse(USAGE, ["toeplitz-symmetric", "keyed"], *arguments, "--workers", "2",
                        "--sharing", sharing)
        self.run_ok(*self.replay("--spread", "toeplitz", "--workers", "2"))

    def test_file_names_of_any_bytes(self):
        name = os.path.join(os.fsencode(self.dir), b"b\xff.pcap")
        os.rename(self.good, name)
        result = subprocess.run([MILLRACE, "replay", "--in", name, "--stats", "-"],
                                capture_output=True, timeout=60)
        self.assertEqual(result.returncode, DONE, result.stderr)
        self.assertIn("b\ufffd.pcap", json.loads(result.stdout)["input"])

    def test_standard_output_holds_results_only(self):
        result = self.run_ok(*self.replay("--stats", "-"))
        self.assertEqual(result.stderr, "")
        self.assertEqual(json.loads(result.stdout)["packets"]["in"], 3000)

    def test_bytes_stand_beside_packets(self):
        """`bytes_in` and `bytes_out` are the sum of the lengths on the wire of the capture's packets."""
        with open(self.good, "rb") as file:
            capture = file.read()
        at, lengths = 24, []
        while at < len(capture):
            captured, wire = struct.unpack_from("<II", capture, at + 8)
            lengths.append(wire)
            at += 16 + captured
        self.assertEqual(len(lengths), 3000)
        stats = json.loads(self.run_ok(*self.replay("--stats", "-")).stdout)
        packets = stats["packets"]
        self.assertEqual((packets["bytes_in"], packets["bytes_out"]), (sum(lengths), sum(lengths)))
        backends = sum(b["bytes"] + b["reply_bytes"] for b in stats["backends"])
        self.assertEqual(backends == sum(lengths), packets["tracked"] + packets["stateless"] == 3000)

    def test_a_configuration_is_checked(self):
        ports = '[[port]]\nname = "a"\ndevice = "af_packet:nowhere0"\naddresses = ["192.0.2.1/24"]\n'
        service = '[[service]]\naddress = "203.0.113.1"\nbackends = [{ address = "192.0.2.9" }]\n'
        rules = ('[[nat.pool]]\nname = "p"\naddresses = ["198.51.100.1"]\n[[nat.rule]]\nsource = ["10.0.0.0/8"]\npool = "p"\n' +
                 "".join(f'[[firewall.rule]]\nname = "{name}"\naction = "accept"\n' for name in "abc"))
        good = self.write("good.toml", ports + service)
        self.assertIn("1 port, 1 service, 1 backend (interfaces were not looked at)\n", self.run_ok("run", "--check", good).stdout)
        self.refuse(USAGE, ["--config"], "run")
        for functions, has in ((f'function = "forward"\n{ports}', "1 port"), (f'chain = ["forward"]\n{ports}', "1 port"),
                               (f'chain = ["forward", "balance"]\n{ports}{service}', "1 port, 1 service, 1 backend"),
                               (f'chain = ["firewall", "nat"]\n{ports}{rules}', "1 port, 3 firewall rules, 0 firewall sets, "
                                "1 NAT pool, 1 NAT rule, 0 NAT forwards")):
            path = self.write("forward.toml", functions)
            self.assertIn(f" is good: {has} (interfaces", self.run_ok("run", "--check", path).stdout)
        self.refuse(USAGE, ["--check", "excludes"], "run", "--check", good, "--config", good)
        self.refuse(UNREADABLE, ["gone.toml"], "run", "--check", self.path("gone.toml"))
        wrong = self.run_it("run", "--check", self.write("f.toml", 'sharing = "mutex"\nspread.level = true\n' + ports))
        self.assertEqual((wrong.returncode, wrong.stdout), (USAGE, ""))
        for words in ("no service", "spread.level"):
            self.assertIn(words, wrong.stderr)
        self.assertTrue(all("f.toml: " in line for line in wrong.stderr.splitlines()), wrong.stderr)

    def test_what_helps(self):
        for command in ("replay", "run", "generate", "advise", "bench", "schemes", "doctor", "completion"):
            self.assertIn("Example: ", self.run_ok(command, "--help").stdout)
        schemes = self.run_ok("schemes").stdout
        for name in ("race", "sharded", "wheel", "maglev", "least-connections", "round-robin"):
            self.assertIn(name, schemes)
        tables = self.run_ok("bench", "tables", "--help").stdout
        self.assertLessEqual(max(map(len, tables.split("\n"))), 100)
        of_benchmarks = self.run_ok("bench", "schemes").stdout
        for name in ("cuckoo++-timers", "dhash-xor-crc", "cuckoo-ext", "libcuckoo"):
            self.assertNotIn(name, schemes)
            self.assertIn(name, of_benchmarks)
            self.assertIn(name, tables)
        script = self.run_ok("completion").stdout
        self.assertEqual(self.run_ok("completion", "bash").stdout, script)
        self.assertTrue(self.run_ok("completion", "zsh").stdout.endswith(script))
        self.refuse(USAGE, ["bash", "zsh"], "completion", "fish")
        check = subprocess.run(["bash", "-c", script + """
            COMP_WORDS=(millrace replay --ta) COMP_CWORD=2; _millrace; echo "${COMPREPLY[@]}"
            COMP_WORDS=(millrace replay --table ra) COMP_CWORD=3; _millrace; echo "${COMPREPLY[@]}"
            COMP_WORDS=(millrace bench path --traffic c) COMP_CWORD=4; _millrace
            echo "${COMPREPLY[@]}"
            COMP_WORDS=(millrace generate --profile f) COMP_CWORD=3; _millrace
            echo "${COMPREPLY[@]}"
            COMP_WORDS=(millrace replay --clock w) COMP_CWORD=3; _millrace; echo "${COMPREPLY[@]}"
            COMP_WORDS=(millrace generate --out /dev/nul) COMP_CWORD=3; _millrace
            echo "${COMPREPLY[@]}"
            COMP_WORDS=(millrace re) COMP_CWORD=1; _millrace; echo "${COMPREPLY[@]}"
            COMP_WORDS=(millrace replay --table libc) COMP_CWORD=3; _millrace; echo "${COMPREPLY[@]}"
            COMP_WORDS=(millrace bench ta) COMP_CWORD=2; _millrace; echo "${COMPREPLY[@]}"
            COMP_WORDS=(millrace bench tables --table race,libc) COMP_CWORD=4; _millrace
            echo "${COMPREPLY[@]}"
            """], capture_output=True, text=True, check=True)
        self.assertEqual(check.stdout.split(), ["--table", "race", "campus", "flood", "wall",
                                                "/dev/null", "replay", "tables", "race,libcuckoo"])

    def packets_to(self, name, destinations):
        """Writes a capture of UDP packets over raw IPv4, one to each destination, each from a client of its own."""
        content = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 101)
        for i, destination in enumerate(destinations):
            packet = struct.pack(">BBHHHBBH4s4sHHHH", 0x45, 0, 28, i, 0, 64, 17, 0,
                                 bytes((192, 0, 2, i)), bytes(map(int, destination.split("."))),
                                 1000 + i, 53, 8, 0)
            content += struct.pack("<IIII", i, 0, len(packet), len(packet)) + packet
        return self.write(name, content)

    def test_a_chain_names_the_services_of_connections_that_go_to_one(self):
        service = '[[service]]\naddress = "203.0.113.1"\nport = 53\nbackends = [{address = "10.0.0.1", port = 54}]\n'
        capture = self.packets_to("few.pcap", ["203.0.113.1", "198.51.100.2"])
        for functions in ("forward", "balance"), ("balance", "forward"):
            config = self.write("chain.toml", f"chain = {json.dumps(functions)}\n{service}")
            listed = self.run_ok("replay", "--in", capture, "--config", config, "--connections", "-").stdout
            named = {one["destination"]: (one.get("service"), one.get("backend"))
                     for one in map(json.loads, listed.splitlines()) if "destination" in one}
            self.assertEqual(named, {"203.0.113.1": ("203.0.113.1:53", "10.0.0.1:54"), "198.51.100.2": (None, None)})

    def test_windows_stay_within_a_configured_prefix(self):
        capture = self.packets_to("prefix.pcap", [f"203.0.113.{i}" for i in range(70)] +
                                  [f"198.51.100.{i}" for i in range(30)])
        config = os.path.join(ROOT, "examples", "stateless.toml")
        for windows in (1, 2, 7):
            result = self.run_ok("replay", "--in", capture, "--config", config, "--quiet",
                                 "--windows", str(windows), "--stats", "-")
            packets = json.loads(result.stdout)["packets"]
            self.assertEqual(packets["dropped"], {"no_service": 30 * windows})
            self.assertEqual(packets["stateless"], 70 * windows)

    def test_small_pages_are_warned_of(self):
        def no_transparent_pages():
            ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE

        def run(*arguments):
            result = self.run_it(*self.replay("--stats", "-", *arguments),
                                 preexec_fn=no_transparent_pages)
            self.assertEqual(result.returncode, DONE, result.stderr)
            stats = json.loads(result.stdout)
            return stats["table"]["pages"], stats["warnings"], result.stderr

        pages, warnings, shown = run("--pages", "transparent")
        self.assertEqual(pages, "small")
        self.assertEqual(len(warnings), 1)
        self.assertRegex(warnings[0], r"small pages.*sysctl vm\.nr_hugepages=[1-9][0-9]+$")
        with open("/proc/sys/vm/nr_hugepages") as file:  # the advised number is not below the present one
            self.assertGreaterEqual(int(warnings[0].split("=")[-1]), int(file.read()))
        self.assertEqual(shown, f"millrace: warning: {warnings[0]}\n")
        self.assertEqual(run("--pages", "transparent", "--quiet")[1:], (warnings, ""))
        self.assertEqual(run("--pages", "small")[1:], ([], ""))
        self.assertEqual(run("--pages", "transparent", "--capacity", "10000")[1:], ([], ""))

    @unittest.skipIf(jsonschema is None, "no package jsonschema")
    def test_statistics_follow_their_schema(self):
        with open(os.path.join(ROOT, "docs", "stats.schema.json")) as file:
            schema = json.load(file)
        two_way = self.write("two-way.toml", '[[service]]\naddress = "203.0.113.1"\nport = 53\n'
                             'backends = [{address = "10.0.0.1", port = 54}]\n')
        forward = self.write("forward.toml", 'function = "forward"\n')
        capture = self.packets_to("few.pcap", ["203.0.113.1", "203.0.113.2", "203.0.113.1"])
        for arguments in (self.replay(), self.replay("--seed", "1", "--capacity", "50"),
                          self.replay("--workers", "2"),
                          self.replay("--workers", "2", "--sharing", "mutex"),
                          self.replay("--config", forward),
                          ("replay", "--in", capture, "--config", two_way)):
            stats = json.loads(self.run_ok(*arguments, "--stats", "-").stdout)
            jsonschema.validate(stats, schema)
        self.assertEqual(stats["packets"]["tracked"], 2)

    def test_limits_are_kept_and_shown(self):
        with open(os.path.join(ROOT, "docs", "stats.schema.json")) as file:
            schema = json.load(file)
        service = '[[service]]\naddress = "0.0.0.0/0"\nbackends = [{address = "10.0.0.1"}]\n'
        for text, reason in (("[limits]\nper_source = 4\nsource_prefix_v4 = 1\n" + service, "source_limit"),
                             (service + "max_connections = 3\n", "service_limit")):
            result = self.run_ok(*self.config(text), "--workers", "2", "--stats", "-")
            stats = json.loads(result.stdout)
            jsonschema.validate(stats, schema)
            packets = stats["packets"]
            self.assertGreater(packets["dropped"][reason], 0)
            self.assertEqual(packets["in"], packets["out"] + sum(packets["dropped"].values()))
            is_source = reason == "source_limit"
            self.assertEqual(stats["limits"] and stats["limits"]["per_source"], 4 if is_source else None)
            self.assertLessEqual(stats["services"][0]["established"], 2 * (4 + 1) if is_source else 3 + 1)
            limited = stats["services"][0]["limited"]
            self.assertEqual(limited, 0) if is_source else self.assertGreater(limited, 0)
        self.assertIn("of at most 3 connections", self.run_ok(*self.config(text)).stdout)

    def test_memory_is_what_the_statistics_say(self):
        """From a run to one with a larger capacity, resident memory grows by as much as the statistics' bytes, within 10 % of
        that growth. Both runs take more memory than Python itself, since the kernel's maximum includes the time before the exec."""
        config = self.write("two-way.toml", '[[service]]\naddress = "203.0.113.1"\n'
                            'backends = [{address = "10.0.0.1"}]\n')
        stats = self.path("stats.json")

        def measure(capacity):
            pid = os.posix_spawn(MILLRACE, [
                MILLRACE, *self.replay("--config", config, "--capacity", str(capacity), "--quiet",
                                       "--pages", "transparent", "--stats", stats)], os.environ,
                file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
            _, status, usage = os.wait4(pid, 0)
            self.assertEqual(status, 0)
            with open(stats) as file:
                return usage.ru_maxrss * 1024, json.load(file)["table"]

        resident, table = measure(3_000_000)
        less, smaller = measure(1_000_000)
        more = table["bytes"] - smaller["bytes"]
        self.assertLessEqual(table["bytes_per_connection"], 160)
        self.assertLess(abs(resident - less - more), 0.1 * more, (resident, less, table, smaller))


if __name__ == "__main__":
    unittest.main(argv=["cli_test.py", *sys.argv[1:]])
