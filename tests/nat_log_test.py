#!/usr/bin/env python3
"""Tests the log of port blocks of `millrace run` and `millrace replay`: rotation, crashes, full disks, take-overs, and what tshark reads
of the messages by IPFIX.

    nat_log_test.py MILLRACE [TEST...]
"""

import ctypes
import datetime
import json
import os
import shutil
import socket
import struct
import subprocess
import time

import captures
import ipfix
from asked import Asked
from cli_case import MILLRACE
from live import main, patience_with
from nat_test import configuration, is_public
from network import ADDRESSES

A = ADDRESSES[4]
CLIENTS = [f"198.51.100.{n}" for n in range(100, 140)]
POOL = "block_size = 64\nblocks_per_customer = 2"
RECORD = 8 + 1 + 4 + 4 + 4 + 2 + 2 + 1 + len("homes") + 1 + len(CLIENTS[0])  # bytes by IPFIX, with customers' names of that length


class Log(Asked):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("logs"))
        self.file = self.path("logs/nat.jsonl")

    def text(self, log="", **more):
        return configuration(pool=POOL, extra=f'[nat.log]\nfile = "{self.file}"\n{log}', **more)

    def lines(self, path=None):
        with open(path or self.file, encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def events(self, *kinds, path=None):
        return [line for line in self.lines(path) if line["event"] in kinds]

    def state(self):
        [state] = self.ask("GET /nat/log")
        return state

    def dropped(self):
        return self.ask("GET /stats")["packets"]["dropped"]

    def send(self, *customers):
        """Has each of these customers begin a session."""
        with self.network_.client:
            for address in customers:
                subprocess.run(["ip", "address", "replace", f"{address}/24", "dev", "wire"], check=True)
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
                    udp.bind((address, 0))
                    udp.sendto(b"x", (A["servers"][0], 9))

    def get_blocks(self, *customers):
        """Sends for the customers until each has a block; the first packets of a run may wait for neighbours."""
        def all_have():
            missing = [one for one in customers if not self.ask("GET /nat/customer", customer=one)["blocks"]]
            self.send(*missing)
            return not missing

        self.wait_until(all_have)

    def block(self, customer):
        [block] = self.ask("GET /nat/customer", customer=customer)["blocks"]
        return {"customer": customer, "pool": block["pool"], "address": block["address"],
                "first_port": block["first_port"], "last_port": block["last_port"]}

    @staticmethod
    def without_time(lines):
        return [{name: value for name, value in line.items() if name != "time"} for line in lines]

    def held(self, path=None):
        """Returns the blocks that customers have at the end, as a reader of that file knows: by customer."""
        held = {}
        for line in self.lines(path):
            if line["event"] == "list":
                held = {}
            elif line["event"] == "released":
                del held[line["customer"], line["first_port"]]
            else:
                held[line["customer"], line["first_port"]] = line
        return {customer for customer, _ in held}

    def kill(self):
        self.process.kill()
        self.process.communicate()
        self.process = None

    def test_rfc6888_req14_a_block_has_a_record_when_it_comes_and_when_it_goes(self):
        before = datetime.datetime.now(datetime.timezone.utc)
        self.serve_with(self.text())
        self.get_blocks(*CLIENTS[:3])
        self.send(*CLIENTS[:3] * 5)  # further sessions write nothing
        self.wait_until(lambda: len(self.lines()) == 4)
        after = datetime.datetime.now(datetime.timezone.utc)
        first, *rest = self.lines()
        self.assertEqual(self.without_time([first]), [{"event": "list", "why": "start", "held": 0, "lost": 0}])
        self.assertCountEqual(self.without_time(rest), [dict(self.block(c), event="allocated") for c in CLIENTS[:3]])
        for line in rest:
            self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertTrue(before - datetime.timedelta(seconds=1) < datetime.datetime.fromisoformat(line["time"][:-1] + "+00:00") < after)
            self.assertTrue(is_public(line["address"]))
        state = self.state()
        self.assertEqual(state, {"to": self.file, "written": 4, "lost": 0, "failing_since": None, "error": None})
        self.assertEqual(self.ask("GET /stats")["nat_log"], [state])
        self.write("f.toml", self.text('on_failure = "refuse"'))
        self.refused(422, ["nat.log"], "POST /reload")
        self.stop()
        self.assertEqual(len(self.events("released")), 3)
        self.assertEqual(self.held(), set())

    def test_a_renamed_file_is_followed_by_one_that_lists_the_blocks(self):
        self.serve_with(self.text())
        self.get_blocks(*CLIENTS[:2])
        self.wait_until(lambda: self.held() == set(CLIENTS[:2]))
        os.rename(self.file, self.file + ".1")
        self.wait_until(lambda: os.path.exists(self.file) and len(self.lines()) == 3)
        self.get_blocks(CLIENTS[2])
        self.wait_until(lambda: len(self.lines()) == 4)
        head, *held, new = self.lines()
        self.assertEqual(self.without_time([head]), [{"event": "list", "why": "new file", "held": 2, "lost": 0}])
        self.assertCountEqual(self.without_time(held), [dict(self.block(c), event="held") for c in CLIENTS[:2]])
        self.assertEqual(self.without_time([new]), [dict(self.block(CLIENTS[2]), event="allocated")])
        os.remove(self.file)
        self.wait_until(lambda: os.path.exists(self.file) and len(self.lines()) == 4)
        self.assertEqual(self.held(), set(CLIENTS[:3]))
        self.stop()

    def test_a_crash_leaves_no_doubt(self):
        self.serve_with(self.text())
        self.get_blocks(*CLIENTS[:5])
        self.wait_until(lambda: len(self.held()) == 5)
        self.kill()
        self.start(self.network_, self.text())
        self.wait_until(lambda: len(self.events("list")) == 2)
        self.assertEqual(self.held(), set())
        self.get_blocks(CLIENTS[7])
        self.wait_until(lambda: self.held() == {CLIENTS[7]})
        self.stop()

    def test_the_process_that_takes_over_lists_the_blocks(self):
        self.serve_with(self.text())
        self.get_blocks(*CLIENTS[:4])
        blocks = [self.block(c) for c in CLIENTS[:4]]
        for _ in range(2):
            self.take_over(self.text())
            self.wait_until(lambda: self.held() == set(CLIENTS[:4]))
            self.assertEqual([self.block(c) for c in CLIENTS[:4]], blocks)
        self.assertEqual(self.events("released"), [])
        lines = self.lines()
        self.assertEqual([line["why"] for line in lines if line["event"] == "list"], ["start", "take-over", "take-over"])
        self.assertEqual(len(lines), 3 + 4 + 2 * 4)
        self.assertIsNone(self.state()["failing_since"])
        # The file of a process that takes over is tried before the old process ends.
        text = self.text().replace(self.file, self.path("none/nat.jsonl"))
        path = self.write("wrong.toml", text)
        with self.network_.middle:
            tried = subprocess.run([MILLRACE, "run", "--config", path, "--control", self.control, "--take-over"],
                                   capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(tried.returncode, 3, tried.stderr)
        self.assertIn("nat.log.file: cannot write to", tried.stderr)
        self.get_blocks(CLIENTS[5])
        self.wait_until(lambda: len(self.held()) == 5)
        self.stop()

    def test_a_full_disk(self):
        for on_failure in ("pass", "refuse"):
            with self.full_disk() as (fill, clear):
                self.serve_with(self.text(f'on_failure = "{on_failure}"'), network=self.network())
                self.get_blocks(*CLIENTS[:3])
                self.wait_until(lambda: len(self.held()) == 3)
                fill()
                # The page of the file that is there takes some more records.
                asked = iter(CLIENTS[3:])
                given = list(CLIENTS[:3])
                while self.state()["failing_since"] is None:
                    customer = next(asked)
                    given.append(customer)
                    self.get_blocks(customer)
                    time.sleep(0.1)
                self.assertIn("No space left on device", self.state()["error"])
                before = self.dropped().get("no_record", 0)
                customer = next(asked)
                self.send(customer)
                with patience_with(self.process):
                    said = self.process.stderr.readline()
                self.assertRegex(said, "^millrace: warning: nat.log.file: cannot write to .*: No space left on device; ")
                self.assertEqual("are refused" in said, on_failure == "refuse", said)
                if on_failure == "refuse":
                    self.wait_until(lambda: self.dropped().get("no_record", 0) == before + 1)
                    self.assertEqual(self.ask("GET /nat/pools")[0]["no_record"], before + 1)
                    self.assertEqual(self.ask("GET /nat/customer", customer=customer)["blocks"], [])
                else:
                    self.get_blocks(customer)
                    given.append(customer)
                self.send(given[0])  # whoever has a block is served
                self.assertEqual(self.dropped().get("no_record", 0), before + (on_failure == "refuse"))
                clear()
                self.wait_until(lambda: self.state()["failing_since"] is None)
                with patience_with(self.process):
                    self.assertEqual(self.process.stderr.readline(), said.replace("warning", "no longer"))
                self.get_blocks(customer)
                self.wait_until(lambda: self.held() == set(given) | {customer})
                self.assertEqual(self.state()["lost"], 0)
                self.stop()

    def full_disk(self):
        """Mounts a small file system at the folder of the log, in a mount namespace of this test's own."""
        test = self

        class Mounted:
            def __enter__(self):
                mount("tmpfs", test.path("logs"), "size=64k")
                self.filler = test.path("logs/filler")
                return self.fill, self.clear

            def fill(self):
                with open(self.filler, "wb", buffering=0) as file:
                    try:
                        while True:
                            file.write(bytes(4096))
                    except OSError:
                        pass

            def clear(self):
                os.remove(self.filler)

            def __exit__(self, *_):
                subprocess.run(["umount", "-l", test.path("logs")], check=True)

        return Mounted()

    def test_what_cannot_be_a_log(self):
        self.network_ = self.network()
        for log, status, words in (
            (f'file = "{self.path("none/nat.jsonl")}"', 3, ["nat.log.file: cannot write to", "No such file or directory: give a path"]),
            (f'file = "{self.path("logs")}"', 3, ["nat.log.file: cannot write to", "Is a directory: give a path"]),
            ('file = "/dev/full"', 3, ["is no regular file"]),
            ('file = ""', 2, ["nat.log.file: is empty: give a path"]),
            ('on_failure = "pass"', 2, ["give file or ipfix"]),
            ('ipfix = "203.0.113.9"', 2, ['"203.0.113.9" is no address with a port']),
            ('ipfix = "203.0.113.9:4739"\non_failure = "block"', 2, ['nat.log.on_failure', '"pass" or "refuse"']),
        ):
            path = self.write("f.toml", configuration(extra=f"[nat.log]\n{log}\n"))
            with self.network_.middle:
                tried = subprocess.run([MILLRACE, "run", "--config", path, "--control", "none"], capture_output=True, text=True,
                                       timeout=60, check=False)
            self.assertEqual(tried.returncode, status, tried.stderr)
            for word in words:
                self.assertIn(word, tried.stderr)
        self.serve_with(self.text(), network=self.network_)
        path = self.write("g.toml", self.text().replace("af_packet:outside", "null").replace("af_packet:inside", "null"))
        tried = subprocess.run([MILLRACE, "run", "--config", path, "--control", "none"], capture_output=True, text=True, timeout=60,
                               check=False)
        self.assertEqual(tried.returncode, 3, tried.stderr)
        self.assertIn("another millrace writes to it", tried.stderr)
        self.stop()

    def test_rfc6302_a_replay_writes_the_time_of_the_capture(self):
        packets = [(1_000_000_000 + n, udp_packet(f"198.51.100.{n}", 4000, A["servers"][0], 53)) for n in range(1, 4)]
        source = self.write_capture("in.pcap", packets)
        config = self.write("f.toml", self.text(workers=1))
        command = [MILLRACE, "replay", "--quiet", "--in", source, "--config", config]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = self.lines()
        self.assertEqual([(line["event"], line["time"]) for line in lines],
                         [("list", "2001-09-09T01:46:41.000Z")]
                         + [("allocated", f"2001-09-09T01:46:4{n}.000Z") for n in range(1, 4)]
                         + [("released", "2001-09-09T01:46:43.000Z")] * 3)
        self.assertEqual([line["customer"] for line in lines[1:4]], [f"198.51.100.{n}" for n in range(1, 4)])
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("a replay writes a new log", done.stderr)

    def write_capture(self, name, packets):
        path = self.path(name)
        captures.write(path, 101, [(second * captures.SECOND, len(packet), packet) for second, packet in packets])  # raw IP
        return path

    def test_rfc8158_tshark_reads_what_is_sent_by_ipfix(self):
        if shutil.which("tshark") is None:
            self.skipTest("no tshark here")
        self.network_ = self.network()
        with self.network_.middle:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            collector = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(collector.close)
        collector.bind(("127.0.0.1", 0))
        collector.settimeout(20)
        self.serve_with(self.text(f'ipfix = "127.0.0.1:{collector.getsockname()[1]}"'), network=self.network_)
        self.get_blocks(*CLIENTS)
        self.wait_until(lambda: len(self.held()) == len(CLIENTS))
        self.assertEqual([state["written"] for state in self.ask("GET /nat/log")], [1 + len(CLIENTS)] * 2)
        self.stop()
        messages = ipfix.messages_at(collector)
        self.assertLessEqual(max(map(len, messages)), 512)
        sequence = 0
        for message in messages:
            version, size, _, number, domain = struct.unpack(">HHIII", message[:16])
            self.assertEqual((version, size, number, domain), (10, len(message), sequence, 0))
            kind, length = struct.unpack(">HH", message[16:20])
            if kind == 256:
                sequence += (length - 4) // RECORD
        events = self.events("allocated", "released")
        self.assertEqual(len(events), 2 * len(CLIENTS))
        self.assertEqual(ipfix.nat_events(messages, self.path("ipfix.pcap")),
                         [line | {"source": line["customer"], "number": 0} for line in events])

    def test_a_collector_that_comes_late_learns_what_is_held(self):
        self.network_ = self.network()
        with self.network_.middle:
            subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
            reserved = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
        reserved.close()
        self.serve_with(configuration(pool=POOL, extra=f'[nat.log]\nipfix = "127.0.0.1:{port}"\n'), network=self.network_)
        self.get_blocks(*CLIENTS[:3])
        self.wait_until(lambda: self.state()["failing_since"] is not None)
        self.assertIn("nat.log.ipfix: cannot send to", self.state()["error"])
        with self.network_.middle:
            collector = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(collector.close)
        collector.settimeout(20)
        collector.bind(("127.0.0.1", port))
        learnt = set()
        while len(learnt) < 3:
            message = collector.recv(65536)
            if struct.unpack(">H", message[16:18])[0] == 256:
                data = message[20:]
                for at in range(0, len(data), RECORD):
                    self.assertEqual(data[at + 8], 16)
                    learnt.add(socket.inet_ntoa(data[at + 9:at + 13]))
        self.assertEqual(learnt, set(CLIENTS[:3]))
        self.wait_until(lambda: self.state()["failing_since"] is None)
        with patience_with(self.process):
            for what in ("warning", "no longer"):
                self.assertIn(f"millrace: {what}: nat.log.ipfix: cannot send to", self.process.stderr.readline())
        self.stop()


def udp_packet(source, source_port, destination, destination_port, data=b""):
    udp = struct.pack(">HHHH", source_port, destination_port, 8 + len(data), 0) + data
    header = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(udp), 0, 0, 64, 17, 0, socket.inet_aton(source),
                         socket.inet_aton(destination))
    words = sum(struct.unpack(">10H", header))
    words = (words & 0xFFFF) + (words >> 16)
    return header[:10] + struct.pack(">H", 0xFFFF - words) + header[12:] + udp


def mount(kind, target, options):
    """Mounts in this process's own mount namespace, which the processes that it starts share."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not mount.has_own:
        if libc.unshare(0x00020000) != 0 or libc.mount(b"none", b"/", None, 0x4000 | 0x40000, None) != 0:
            raise OSError(ctypes.get_errno(), "no mount namespace")
        mount.has_own = True
    if libc.mount(kind.encode(), target.encode(), kind.encode(), 0, options.encode()) != 0:
        raise OSError(ctypes.get_errno(), f"mount {target}")


mount.has_own = False

if __name__ == "__main__":
    main()
