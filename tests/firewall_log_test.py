#!/usr/bin/env python3
"""Tests the firewall's log of `millrace run`, as `millctl firewall log` shows it and sends it by IPFIX: between network namespaces,
with readers that are slow or die, over reloads and take-overs. tshark judges what is sent by IPFIX.

    firewall_log_test.py MILLRACE MILLCTL [TEST...]
"""

import datetime
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading

MILLCTL = os.path.abspath(sys.argv.pop(2))  # before cli_case and unittest read the other arguments

import ipfix  # noqa: E402
from asked import Asked, Connection  # noqa: E402
from firewall_test import OTHER, configuration, rule  # noqa: E402
from live import main  # noqa: E402
from network import ADDRESSES, FAMILIES, SERVER_PORT  # noqa: E402

KEPT = 4095  # events that each worker keeps
UNLIMITED = 'log = true\nlog_rate = "1000000/s"\n'
WEB = rule("web", **{"from": "outside", "to": "inside", "protocol": "tcp", "destination_ports": str(SERVER_PORT)})
LOGGED = WEB + "log = true\n" + rule("reject", "reject", protocol="udp", destination_ports=str(OTHER)) + "log = true\n"


class Followed:
    """A `millctl firewall log --follow`, and the lines that it has printed."""

    def __init__(self, test, *arguments):
        self.lines = []
        self.process = subprocess.Popen([MILLCTL, "--socket", test.control, "firewall", "log", "--follow", *arguments],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self._reading = threading.Thread(target=self._read)
        self._reading.start()
        test.addCleanup(self.end)

    def _read(self):
        for line in self.process.stdout:
            if line.endswith("\n"):  # else millctl was killed
                self.lines.append(json.loads(line))

    def end(self, how=signal.SIGINT):
        self.process.send_signal(how)
        self.process.wait(60)
        self._reading.join()
        self.process.stdout.close()


class FirewallLog(Asked):
    def datagrams(self, family, port, count=1, first=20_000):
        """Sends datagrams from as many source ports, or from 1,000 in turn if there are more."""
        a = ADDRESSES[family]
        with self.network_.client:
            for n in range(min(count, 1000)):
                with socket.socket(FAMILIES[family], socket.SOCK_DGRAM) as udp:
                    udp.bind((a["client"], first + n))
                    for _ in range(len(range(n, count, 1000))):
                        udp.sendto(b"x", (a["servers"][0], port))

    def connect(self, family, port):
        """Opens and closes a TCP connection to a server from that source port."""
        a = ADDRESSES[family]
        with self.network_.client, socket.create_connection((a["servers"][0], SERVER_PORT), 10, (a["client"], port)):
            pass

    def rule(self, name="default"):
        [one] = [one for one in self.ask("GET /firewall/rules") if one["rule"] == name]
        return one

    def refused(self, sent):
        """Waits until the default has refused the packets sent, and returns their number. The kernel of a busy machine loses some of
        them before millrace receives them."""
        seen = [-1]

        def is_settled():
            seen.append(self.rule()["refused"])
            threading.Event().wait(0.3)
            return seen[-1] == seen[-2] and seen[-1] > sent // 2

        self.wait_until(is_settled)
        self.assertLessEqual(seen[-1], sent)
        return seen[-1]

    def test_each_connection_is_there_once(self):
        self.serve_with(configuration(LOGGED, extra="log = true\n"))
        followed = Followed(self)
        expected = []
        for family, a in ADDRESSES.items():
            self.connect(family, 30_000)
            self.datagrams(family, SERVER_PORT, first=30_001)
            self.datagrams(family, OTHER, first=30_002)
            for n, (protocol, port, by, action, verdict) in enumerate([
                    ("tcp", SERVER_PORT, "web", "accept", "tracked"), ("udp", SERVER_PORT, "default", "drop", "denied"),
                    ("udp", OTHER, "reject", "reject", "rejected")]):
                expected.append({
                    "rule": by, "action": action, "verdict": verdict, "from": "outside", "to": "inside", "interface": "outside",
                    "protocol": protocol, "source": a["client"], "destination": a["servers"][0], "source_port": 30_000 + n,
                    "destination_port": port, "missed": 0})
        self.wait_until(lambda: len(followed.lines) >= len(expected))
        followed.end()
        seen = [dict(line) for line in followed.lines]
        for line in seen:
            self.assertRegex(line.pop("time"), r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
            self.assertIn(line.pop("worker"), (0, 1))
            self.assertGreater(line.pop("length"), 40)

        def order(line):
            return line["source"], line["source_port"]

        self.assertEqual(sorted(seen, key=order), sorted(expected, key=order))
        self.assertEqual(self.ask("GET /firewall/log"), followed.lines)
        self.assertEqual(self.stop()["packets"]["dropped"]["denied"], 2)

    def test_a_flood_is_counted(self):
        self.serve_with(configuration(LOGGED, extra='log = true\nlog_rate = "50/s"\n'))
        followed = Followed(self)
        for family in ADDRESSES:
            self.datagrams(family, SERVER_PORT, 10_000)
        self.connect(4, 30_000)
        packets = self.refused(20_000)
        one = self.rule()
        self.assertEqual(one["logged"] + one["not_logged"], packets)
        self.assertGreater(one["not_logged"], packets // 2)
        self.wait_until(lambda: len(followed.lines) >= one["logged"] + 1)
        self.assertEqual(len(followed.lines), one["logged"] + 1)
        self.assertEqual([line["source_port"] for line in followed.lines if line["rule"] == "web"], [30_000],
                         "a flood of one rule hides another's events")
        # A worker's last event counts all that were not logged before it.
        self.assertLessEqual(sum(line["missed"] for line in followed.lines), one["not_logged"])
        self.assertGreater(sum(line["missed"] for line in followed.lines), 0)
        self.assertEqual(self.stop()["packets"]["dropped"]["denied"], packets)

    def test_readers_that_are_slow_or_die(self):
        self.serve_with(configuration(LOGGED, extra=UNLIMITED))
        slow = Connection(self.control)
        self.addCleanup(slow.close)
        slow.request("GET", "/firewall/log?follow=true")
        answer = slow.getresponse()
        dying = Followed(self)
        for n, family in enumerate((4, 6, 4)):
            self.datagrams(family, SERVER_PORT, 20_000)
            if n == 0:
                self.wait_until(lambda: dying.lines)
                before = self.memory()
                dying.end(signal.SIGKILL)
        packets = self.refused(60_000)
        self.connect(4, 30_000)
        self.assertLess(self.memory() - before, 16 << 20, "a reader that does not read takes memory")
        # A new reader gets the newest of each worker, and learns how many there were.
        newest = self.ask("GET /firewall/log")
        self.assertLessEqual(len(newest), 2 * KEPT)
        self.assertEqual(len(newest) + sum(line["missed"] for line in newest), packets + 1)
        # Later than the time for which the server waits for a client by default, the slow reader goes on, and learns how
        # many it has missed.
        threading.Event().wait(7)
        self.connect(4, 30_001)
        lines = []
        for line in answer:
            lines.append(json.loads(line))
            if lines[-1]["source_port"] == 30_001:
                break
        others = [line["worker"] for line in lines].count(1 - lines[-1]["worker"])
        self.assertGreater(others, 0)
        self.assertEqual(len(lines) + sum(line["missed"] for line in lines), packets + 2)
        self.assertGreater(sum(line["missed"] for line in lines), 0, "the reader was not slow")
        self.assertEqual(self.rule()["not_logged"], 0)
        self.stop()

    def memory(self):
        """Returns millrace's resident memory in bytes."""
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def test_readers_have_places(self):
        self.serve_with(configuration(LOGGED, extra=UNLIMITED))
        reading = [Connection(self.control) for _ in range(8)]
        for one in reading:
            self.addCleanup(one.close)
            one.request("GET", "/firewall/log?follow=true")
            self.assertEqual(one.getresponse().status, 200)
        self.assertIn("8 programs read logs: end one of them", self.ask("GET /firewall/log", 409)["error"])
        reading.pop().close()
        self.wait_until(lambda: self.answer("GET", "/firewall/log").status == 200)
        self.assertIn('the parameter "last" is not known: give follow and new', self.ask("GET /firewall/log", 400, last=3)["error"])
        self.assertIn('follow "yes" is wrong: give true or false', self.ask("GET /firewall/log", 400, follow="yes")["error"])
        self.stop()

    def test_reloads_and_take_overs(self):
        text = configuration(LOGGED, extra=UNLIMITED)
        self.serve_with(text)
        followed = Followed(self)
        self.datagrams(4, SERVER_PORT, 100, first=40_000)
        self.assertEqual(self.refused(100), 100)
        renamed = text.replace('"outside"', '"world"').replace('af_packet:world', 'af_packet:outside')
        renamed = renamed.replace('name = "world"\ndevice', 'name = "outside"\ndevice').replace('ports = ["world"]', 'ports = ["outside"]')
        renamed = renamed.replace("from = 'outside'", "from = 'world'")
        self.reload(renamed)
        self.datagrams(4, SERVER_PORT, 100, first=40_100)
        self.assertEqual(self.refused(200), 200)
        self.take_over(renamed)
        self.datagrams(4, SERVER_PORT, 100, first=40_200)
        self.wait_until(lambda: len(followed.lines) >= 300)
        followed.end()
        self.assertEqual(sorted(line["source_port"] for line in followed.lines), list(range(40_000, 40_300)))
        for line in followed.lines:
            self.assertEqual(line["from"], "outside" if line["source_port"] < 40_100 else "world")
            self.assertEqual(line["missed"], 0)
        only_new = Followed(self, "--new")
        self.wait_until(lambda: self.answer("GET", "/firewall/log").status == 200)
        self.datagrams(4, SERVER_PORT, 1, first=50_000)
        self.wait_until(lambda: only_new.lines or self.datagrams(4, SERVER_PORT, 1, first=50_000))
        only_new.end()
        self.assertEqual({line["source_port"] for line in only_new.lines}, {50_000})
        self.stop()

    def test_tshark_reads_what_is_sent_by_ipfix(self):
        if shutil.which("tshark") is None:
            self.skipTest("no tshark here")
        self.serve_with(configuration(LOGGED + rule("ping", "drop", icmp="echo-request") + "log = true\n",
                                      extra='log = true\nlog_rate = "20/s"\n'))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as collector:
            collector.bind(("127.0.0.1", 0))
            collector.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
            for family in ADDRESSES:
                self.connect(family, 30_000)
                self.datagrams(family, OTHER, first=30_001)
                self.datagrams(family, SERVER_PORT, 1000)
                self.assertEqual(self.ping(self.network_, family, ADDRESSES[family]["servers"][0], patience=0.1), 0)
            self.refused(2000)
            lines = self.ask("GET /firewall/log")
            subprocess.run([MILLCTL, "--socket", self.control, "firewall", "log", "--ipfix",
                            f"127.0.0.1:{collector.getsockname()[1]}"], check=True, timeout=60)
            messages = ipfix.messages_at(collector)
        self.assertLessEqual(max(map(len, messages)), 512)
        self.assertGreater(len(messages), 4)
        records = [self.record_of(one) for one in ipfix.flows_in(messages, self.path("ipfix.pcap"), "cflow.selector_name")]
        self.assertEqual(len(records), len(lines))
        missed = 0
        expected = []
        for line in lines:
            missed += line["missed"]
            icmp = line.get("icmp_type", 0) << 8 | line.get("icmp_code", 0)
            expected.append({
                "rule": line["rule"], "interface": line["interface"], "source": line["source"], "destination": line["destination"],
                "translated": line["destination"], "ports": (line.get("source_port", 0), line.get("destination_port", 0)),
                "translated_port": line.get("destination_port", 0),
                "protocol": {"tcp": 6, "udp": 17, "icmp": 1, "icmpv6": 58}[line["protocol"]], "icmp": icmp,
                "event": {"tracked": 1, "denied": 3, "rejected": 3}[line["verdict"]],
                "status": {"tracked": (1, 0), "denied": (2, 2), "rejected": (2, 1)}[line["verdict"]],
                "length": line["length"], "missed": missed, "time": line["time"][:23]})

        def order(record):
            return record["source"], record["time"], record["missed"], record["protocol"], record["ports"]

        self.assertEqual(sorted(records, key=order), sorted(expected, key=order))
        self.stop()

    @staticmethod
    def record_of(flow):
        def value(*names):
            [is_there] = [flow[f"cflow.{name}"] for name in names if f"cflow.{name}" in flow]
            return is_there

        status = flow["Forwarding Status"]
        [reason] = [int(is_there) for name, is_there in status.items() if name.endswith("_code")]
        if ":" in value("srcaddr", "srcaddrv6"):  # tshark shows the halves of icmpTypeCodeIPv6
            icmp = int(value("icmp_ipv6_type")) << 8 | int(value("icmp_ipv6_code"))
        else:
            icmp = int(value("icmp_type_code_ipv4"), 16)
        when = datetime.datetime.strptime(value("observation_time_milliseconds")[:25], "%b %d, %Y %H:%M:%S.%f")
        return {
            "rule": value("selector_name"), "interface": value("if_name"), "source": value("srcaddr", "srcaddrv6"),
            "destination": value("dstaddr", "dstaddrv6"),
            "translated": value("post_natdestination_ipv4_address", "post_nat_destination_ipv6_address"),
            "ports": (int(value("srcport")), int(value("dstport"))),
            "translated_port": int(value("post_naptdestination_transport_port")), "protocol": int(value("protocol")),
            "icmp": icmp, "event": int(value("firewall_event")),
            "status": (int(status["cflow.forwarding_status"]), reason), "length": int(value("data_link_frame_size")),
            "missed": int(value("notsent_flows")), "time": when.isoformat(timespec="milliseconds")}


if __name__ == "__main__":
    main()
