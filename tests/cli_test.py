#!/usr/bin/env python3
"""What the program does with bad input, an early end and a full disk, seen from outside.

Usage: cli_test.py MILLRACE. Needs nothing but Python's standard library.
"""

import json
import os
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

MILLRACE = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else "millrace"
DONE, FAILED, USAGE, UNREADABLE, INTERRUPTED = 0, 1, 2, 3, 130


class Cli(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.dir = folder.name
        self.good = self.path("good.pcap")
        self.run_ok("generate", "--connections", "300", "--packets", "3000", "--out", self.good)

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, content):
        mode = "wb" if isinstance(content, bytes) else "w"
        with open(self.path(name), mode) as file:
            file.write(content)
        return self.path(name)

    def run_it(self, *arguments, **options):
        return subprocess.run([MILLRACE, *arguments], capture_output=True, text=True, timeout=120,
                              **options)

    def run_ok(self, *arguments):
        result = self.run_it(*arguments)
        self.assertEqual(result.returncode, DONE, result.stderr)
        return result

    def refuse(self, status, words, *arguments, **options):
        """Ends with that status and one line that holds the words; leaves no file behind."""
        before = sorted(os.listdir(self.dir))
        result = self.run_it(*arguments, **options)
        self.assertEqual(result.returncode, status, (arguments, result.stderr))
        self.assertEqual(result.stdout, "")
        lines = result.stderr.strip().split("\n")
        self.assertEqual(len(lines), 1, lines)
        self.assertTrue(lines[0].startswith("millrace: "), lines)
        for word in words:
            self.assertIn(word, lines[0])
        self.assertEqual(sorted(os.listdir(self.dir)), before, "something was left behind")

    def replay(self, *arguments):
        return ("replay", "--in", self.good, *arguments)

    def config(self, text):
        return self.replay("--config", self.write("f.toml", text))

    def test_captures_that_cannot_be_read(self):
        self.refuse(UNREADABLE, ["gone.pcap"], "replay", "--in", self.path("gone.pcap"))
        self.refuse(UNREADABLE, ["directory"], "replay", "--in", self.dir)
        self.refuse(UNREADABLE, ["empty"], "replay", "--in", self.write("e.pcap", b""))
        self.refuse(UNREADABLE, ["no capture"], "replay", "--in", self.write("t.pcap", "hello\n" * 9))
        header = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 147)
        self.refuse(UNREADABLE, ["link type"], "replay", "--in", self.write("u.pcap", header))

    @unittest.skipIf(os.geteuid() == 0, "root may read everything")
    def test_no_permission(self):
        os.chmod(self.good, 0)
        self.refuse(UNREADABLE, ["permission"], *self.replay())

    def test_a_truncated_capture_is_used_as_far_as_it_goes(self):
        with open(self.good, "rb") as file:
            cut = self.write("cut.pcap", file.read()[:-10])
        result = self.run_it("replay", "--in", cut, "--stats", "-")
        self.assertEqual(result.returncode, DONE)
        stats = json.loads(result.stdout)
        self.assertEqual(stats["packets"]["in"], 2999)
        self.assertIn("truncated", stats["warnings"][0])
        self.assertIn("truncated", result.stderr)

    def test_command_line(self):
        self.refuse(USAGE, ["subcommand"])
        self.refuse(USAGE, ["--in"], "replay")
        self.refuse(USAGE, ["--tabel"], *self.replay("--tabel", "race"))
        self.refuse(USAGE, ["race", "std"], *self.replay("--table", "cuckoo"))
        self.refuse(USAGE, ["wheel"], *self.replay("--ageing", "scan"))
        self.refuse(USAGE, ["sharded"], *self.replay("--sharing", "mutex"))
        for capacity in ("0", "-1", "99999999999999999999", "x"):
            self.refuse(USAGE, ["--capacity"], *self.replay("--capacity", capacity))
        self.refuse(USAGE, ["--timeout"], *self.replay("--timeout", "0"))
        self.refuse(USAGE, ["--timeout"], *self.replay("--timeout", "nan"))
        self.refuse(USAGE, ["--workers"], *self.replay("--workers", "2"))
        self.refuse(USAGE, ["--seed"], *self.replay("--seed", "-5"))
        self.refuse(USAGE, ["--loops"], *self.replay("--loops", "0"))
        self.refuse(USAGE, ["--burst"], *self.replay("--burst", "65"))

    def test_memory_that_is_not_there(self):
        self.refuse(FAILED, ["memory"], *self.replay("--capacity", "2000000000"))

    def test_configuration(self):
        self.refuse(UNREADABLE, ["f.toml"], *self.replay("--config", self.path("f.toml")))
        backend = 'backends = [{address = "10.0.0.1"}]\n'
        service = '[[service]]\naddress = "203.0.113.1"\n'
        for text, words in [
            ("[table]\ncapacty = 5\n", ["f.toml:2", "capacty", "capacity"]),
            ("[table]\ncapacity = 0\n", ["f.toml:2", "capacity", "1"]),
            ('[table]\ncapacity = "many"\n', ["f.toml:2", "is a string: give 1"]),
            ('[table]\nscheme = "cuckoo"\n', ["f.toml:2", "cuckoo", "race"]),
            (service + "backends = []\n", ["f.toml:3", "backends"]),
            (service, ["f.toml", "backends"]),
            (service + 'backends = [{address="10.0.0.1"}, {address="10.0.0.1"}]\n', ["f.toml:3"]),
            ('[[service]]\naddress = "203.0.113.300"\n' + backend, ["f.toml:2", "203.0.113.300"]),
            (service + 'backends = [{address = "fd00::1"}]\n', ["f.toml:3", "fd00::1"]),
            ("[table\n", ["f.toml:1"]),
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
            self.refuse(UNREADABLE, ["no/where"], *self.replay(option, self.path("no/where")))
            self.refuse(UNREADABLE, ["irectory"], *self.replay(option, self.dir))
        self.refuse(FAILED, ["space"], *self.replay("--out", "/dev/full"))

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

    def test_interrupted(self):
        out = self.path("out.pcap")
        arguments = [MILLRACE, *self.replay("--loops", "1000000", "--out", out, "--stats", "-")]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        deadline = time.monotonic() + 60  # it has begun once its temporary file grows
        while not self.grown_partial() and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        stdout, stderr = process.communicate(timeout=60)
        self.assertEqual(process.returncode, INTERRUPTED, stderr)
        self.assertIn("interrupted after", stderr)
        stats = json.loads(stdout)
        self.assertTrue(stats["interrupted"])
        self.assertEqual(stats["packets"]["in"], stats["packets"]["out"])
        self.assertEqual(self.packets_in(out), stats["packets"]["out"])
        self.assertEqual(self.partial(), [])

    def partial(self):
        return [name for name in os.listdir(self.dir) if name.endswith(".partial")]

    def grown_partial(self):
        return [name for name in self.partial() if os.path.getsize(self.path(name)) > 0]

    @staticmethod
    def packets_in(path):
        count = 0
        with open(path, "rb") as file:
            file.seek(24)
            while header := file.read(16):
                file.seek(struct.unpack("<IIII", header)[2], os.SEEK_CUR)
                count += 1
        return count

    def test_standard_output_holds_results_only(self):
        result = self.run_ok(*self.replay("--stats", "-"))
        self.assertEqual(result.stderr, "")
        self.assertEqual(json.loads(result.stdout)["packets"]["in"], 3000)

    def test_what_helps(self):
        for command in ("replay", "generate", "bench", "schemes", "completion"):
            self.assertIn("Example: ", self.run_ok(command, "--help").stdout)
        self.assertIn("race", self.run_ok("schemes").stdout)
        script = self.run_ok("completion").stdout
        check = subprocess.run(["bash", "-c", script + """
            COMP_WORDS=(millrace replay --ta) COMP_CWORD=2; _millrace; echo "${COMPREPLY[@]}"
            COMP_WORDS=(millrace replay --table ra) COMP_CWORD=3; _millrace; echo "${COMPREPLY[@]}"
            COMP_WORDS=(millrace re) COMP_CWORD=1; _millrace; echo "${COMPREPLY[@]}"
            """], capture_output=True, text=True, check=True)
        self.assertEqual(check.stdout.split(), ["--table", "race", "replay"])

    def test_memory_is_what_the_statistics_say(self):
        """Resident and huge pages of the process, less those of the same run at capacity 1."""
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

        resident, table = measure(1_000_000)
        least, _ = measure(1)
        self.assertLessEqual(table["bytes_per_connection"], 160)
        self.assertLess(abs(resident - least - table["bytes"]), 0.1 * table["bytes"],
                        (resident, least, table))


if __name__ == "__main__":
    unittest.main(argv=["cli_test.py", *sys.argv[1:]])
