#!/usr/bin/env python3
"""Tests requests to a running `millrace run` through its control socket.

    control_test.py MILLRACE [TEST...]

MILLRACE_TEST_SECONDS: for how many seconds (default 3) the configuration is reloaded while connections transfer data.
"""

import collections
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import time
import unittest
import urllib.parse

from asked import FIRST, GOOD, IPV4, SECOND, SECONDS, Asked, Connection, without, without_services
from cli_case import FAILED, MILLRACE
from live import main, patience_with
from network import ADDRESSES, FAMILIES, PORT, SERVER_PORT


class Looking(Asked):
    def test_statistics(self):
        self.serve_with()
        self.assertEqual(stat.S_IMODE(os.stat(self.control).st_mode), 0o600)
        self.servers_of(4)
        stats = self.ask("GET /stats")
        self.assertGreater(stats["packets"]["tracked"], 0)
        self.assertEqual(stats["connections"]["live"], 4)
        self.assertGreater(stats["elapsed_s"], 0)
        self.refused(404, ["/nothing"], "GET /nothing")
        self.stop()
        self.assertFalse(os.path.exists(self.control))

    def test_telemetry(self):
        """millrace answers DPDK's telemetry protocol, which DPDK's own tools speak."""
        self.serve_with()
        self.servers_of(4)
        path = f"/var/run/dpdk/millrace-{self.process.pid}/dpdk_telemetry.v2"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as telemetry:
            telemetry.settimeout(20)
            telemetry.connect(path)
            telemetry.recv(4096)

            def of(command):
                telemetry.send(command.encode())
                return json.loads(telemetry.recv(16384))[command]

            self.assertEqual(of("/millrace/connections")["live"], 4)
            self.assertGreater(of("/millrace/packets")["tracked"], 0)
            to = of("/millrace/backends")
            self.assertEqual(sum(n for name, n in to.items() if name.endswith("/live")), 4)
        self.stop()
        self.assertFalse(os.path.exists(os.path.dirname(path)))

    def test_one_at_a_time(self):
        self.serve_with()
        other = self.network()
        with other.middle:
            result = subprocess.run(
                [MILLRACE, "run", "--config", self.path("f.toml"), "--control", self.control],
                capture_output=True, text=True, timeout=60)
        self.assertEqual(result.returncode, FAILED, result.stderr)
        self.assertIn("another millrace, or another program, has", result.stderr)
        self.assertEqual(self.servers_of(2).total(), 2)

    def test_what_was_killed_is_in_nobodys_way(self):
        self.serve_with()
        self.process.kill()
        self.process.communicate()
        self.process = None
        self.assertTrue(os.path.exists(self.control))
        self.start(self.network_, GOOD)
        self.ask("GET /stats")

    def test_connections(self):
        self.serve_with()
        clients = {family: self.clients(20, family) for family in FAMILIES}
        expected = collections.Counter(client.get(1) for each in clients.values() for client in each)
        listed = self.ask("GET /connections", protocol="tcp")
        self.assertEqual(len(listed), 40)
        for one in listed:
            self.assertEqual(one["state"], "established")
            self.assertLess(one["idle_ms"], 60_000)
            self.assertGreater(one["expires_ms"], 7_000_000)
            self.assertEqual(one["reply_destination"], one["source"])
            self.assertIn(one["worker"], (0, 1))
        self.assertEqual(collections.Counter(one["reply_source"] for one in listed), expected)
        at_first = self.ask("GET /connections", backend=f"{FIRST}:{SERVER_PORT}")
        self.assertEqual({one["backend"] for one in at_first}, {f"{FIRST}:{SERVER_PORT}"})
        self.assertEqual(len(at_first), expected[FIRST])
        self.assertEqual(len(self.ask("GET /connections", source="198.51.100.0/24", state="established")), 20)
        self.assertEqual(len(self.ask("GET /connections", source_port=listed[0]["source_port"])), 1)
        self.assertEqual(self.ask("GET /connections", destination="192.0.2.0/24"), [])
        self.refused(400, ["source", "10.0.0.0/33"], "GET /connections", source="10.0.0.0/33")
        self.refused(400, ["colour", "protocol, source"], "GET /connections", colour="red")

    def test_explain(self):
        for sharing in ("sharded", "lock-free-race"):
            with self.subTest(sharing=sharing):
                self.explain(f'sharing = "{sharing}"\n' + GOOD, is_shared=sharing != "sharded")
                self.stop()

    def explain(self, text, is_shared):
        self.serve_with(text)
        server = self.clients(1)[0].get(1)
        [one] = self.ask("GET /connections", protocol="tcp")
        key = {k: one[k] for k in ("protocol", "source", "source_port", "destination", "destination_port")}
        is_ = self.ask("GET /explain", **key)
        self.assertEqual((is_["side"], is_["verdict"], is_["backend"], is_["service"]),
                         ("originator", "tracked", f"{server}:{SERVER_PORT}", f"{IPV4['service']}:{PORT}/tcp"))
        self.assertEqual(is_["worker"], None if is_shared else one["worker"])
        reply = {"protocol": "tcp", "source": one["reply_source"], "source_port": one["reply_source_port"],
                 "destination": one["reply_destination"], "destination_port": one["reply_destination_port"]}
        back = self.ask("GET /explain", **reply)
        self.assertEqual((back["side"], back["connection"]["source_port"]), ("reply", one["source_port"]))
        stray = self.ask("GET /explain", **(reply | {"destination_port": 1}))
        self.assertEqual((stray["verdict"], stray["connection"]), ("stray_reply", None))
        self.assertIn("it is dropped", stray["why"])
        own = self.ask("GET /explain", **(reply | {"source_port": 1, "destination_port": 1}))
        self.assertEqual(own["verdict"], "no_service")
        self.assertIn("routed", own["why"])
        unknown = self.ask("GET /explain", **(key | {"source_port": 1}))
        self.assertIsNone(unknown["connection"])
        self.assertIn(f"it has no connection yet: consistent hashing sends it to {unknown['backend']}", unknown["why"])
        self.assertIn(f"it belongs to a connection to {is_['backend']}, which is established", is_["why"])
        self.assertIn(unknown["backend"], [f"{s}:{SERVER_PORT}" for s in IPV4["servers"]])
        elsewhere = self.ask("GET /explain", **(key | {"destination_port": 81}))
        self.assertEqual((elsewhere["worker"], elsewhere["service"], elsewhere["backend"]), (None, None, None))
        self.assertEqual(elsewhere["verdict"], "not_ours")
        beside = self.ask("GET /explain", **(key | {"destination": IPV4["servers"][0]}))
        self.assertIn(f"it is routed to {IPV4['servers'][0]} on port inside", beside["why"])
        nowhere = self.ask("GET /explain", **(key | {"destination": "192.0.2.77"}))
        self.assertEqual(nowhere["verdict"], "no_route")
        self.assertIn("no route leads to 192.0.2.77", nowhere["why"])
        self.refused(400, ["destination is missing"], "GET /explain", protocol="tcp", source="10.0.0.1")
        self.refused(400, ["differ in family"], "GET /explain", protocol="tcp", source="10.0.0.1", destination="::1")


class Hostile(Asked):
    """Clients that are slow, or send wrong requests, are answered or cut off, and disturb no other client."""

    def raw(self, data):
        client = socket.socket(socket.AF_UNIX)
        self.addCleanup(client.close)
        client.settimeout(20)
        client.connect(self.control)
        client.sendall(data)
        return client

    def test_odd_bytes(self):
        self.serve_with()
        for path in (b"/%ff", b"/\xff", b"/reload%c3", b"/stats\x00", b"/" + b"a" * 20_000):
            for method in (b"GET", b"HEAD", b"POST", b"\xff\xfe"):
                client = self.raw(method + b" " + path + b" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                self.assertRegex(client.recv(100), rb"^HTTP/1.1 4\d\d|^$")
                client.close()
        self.raw(b"\r\n\r\n").close()
        self.assertEqual(self.servers_of(4).total(), 4)

    def test_no_length_is_no_body(self):
        """A request without a length has no body (RFC 9112, 6.3): `curl -X POST` sends no length."""
        self.serve_with()
        for method, path, status in ((b"POST", b"/reload", b"200"), (b"POST", b"/nothing", b"404"),
                                     (b"DELETE", b"/stats", b"404")):
            client = self.raw(method + b" " + path + b" HTTP/1.1\r\nHost: x\r\n\r\n")
            self.assertEqual(client.recv(100).split()[1], status, (method, path))

    def test_wrong_parameters(self):
        self.serve_with()
        backend = f"{FIRST}:{SERVER_PORT}"
        self.refused(400, ["servcie", "not known"], "POST /drain", backend=backend, drained="true", servcie="x")
        self.refused(400, ["service is empty"], "POST /drain", backend=backend, drained="true", service="")
        client = self.raw(b"POST /drain?backend=10.0.0.1&backend=10.0.0.2&drained=true HTTP/1.1\r\nHost: x\r\n"
                          b"Content-Length: 0\r\n\r\n")
        self.assertIn(b" 400 ", client.recv(100))
        client = self.raw(b"GET /stats HTTP/1.1\r\nHost: x\r\nRange: bytes=0-3\r\n\r\n")
        self.assertIn(b" 400 ", client.recv(100))
        self.refused(400, ["prefix"], "GET /explain", protocol="tcp", source="10.0.0.0/8", destination="10.0.0.1")
        self.assertEqual(set(self.servers_of(30)), {FIRST, SECOND})

    def test_nobody_holds_up_the_end(self):
        self.serve_with()
        self.clients(1)
        for _ in range(3):
            self.raw(b"GET /conn")
            self.raw(b"GET /trace?seconds=1000 HTTP/1.1\r\nHost: x\r\n\r\n")
        # These clients ask again and again, and read no answer.
        for _ in range(3):
            self.raw(b"GET /stats HTTP/1.1\r\nHost: x\r\n\r\n" * 500)
        time.sleep(0.5)
        self.stop()

    def test_a_list_that_is_cut_off_is_not_whole(self):
        self.serve_with()
        client = self.raw(b"GET /trace?seconds=1000 HTTP/1.1\r\nHost: x\r\n\r\n")
        self.assertIn(b" 200 ", client.recv(100))
        self.stop()
        rest = b""
        while data := client.recv(4096):
            rest += data
        self.assertFalse(rest.endswith(b"0\r\n\r\n"), rest)

    def test_only_its_own_socket_goes(self):
        self.serve_with()
        os.remove(self.control)
        with open(self.control, "w", encoding="utf-8") as file:
            file.write("another program's")
        self.stop()
        self.assertTrue(os.path.exists(self.control))


class Tracing(Asked):
    def trace(self, seconds=1, **parameters):
        """Traces for `seconds` while clients transfer; longer if they are slow. Returns tshark's fields of each packet."""
        self.servers_of(8)  # so that the MACs of all next hops are known, and no packet waits for a MAC
        connection = Connection(self.control)
        begun = time.monotonic()
        connection.request("GET", "/trace?" + urllib.parse.urlencode(parameters | {"seconds": seconds}))
        answer = connection.getresponse()
        self.assertEqual(answer.status, 200)
        beginning = answer.read(28)  # the section header: from now on every packet is captured
        for client in self.clients(20):  # so many connections that each server gets some
            client.get(10)
        are_late = time.monotonic() - begun > seconds / 2
        body = beginning + answer.read()
        connection.close()
        if are_late and seconds < 16:
            return self.trace(4 * seconds, **parameters)
        path = self.path("trace.pcapng")
        with open(path, "wb") as file:
            file.write(body)
        fields = ["frame.interface_name", "frame.comment", "ip.src", "ip.dst", "tcp.srcport", "tcp.dstport"]
        result = subprocess.run(
            ["tshark", "-r", path, "-T", "fields", *(x for f in fields for x in ("-e", f)), "tcp"],
            capture_output=True, text=True, timeout=60, check=True)
        return [line.split("\t") for line in result.stdout.splitlines()]

    @unittest.skipUnless(shutil.which("tshark"), "no tshark here")
    def test_what_comes_and_what_leaves(self):
        self.serve_with()
        packets = self.trace(protocol="tcp")
        came = [p for p in packets if p[1].startswith("received")]
        left = [p for p in packets if p[1].startswith("sent")]
        self.assertEqual(len(came), len(left))
        self.assertEqual({p[1] for p in packets}, {"received: tracked", "sent: tracked"})
        client, service = IPV4["client"], IPV4["service"]
        self.assertEqual({(p[0], p[2], p[3]) for p in came},
                         {("outside", client, service)} | {("inside", s, client) for s in {p[2] for p in came} - {client}})
        self.assertEqual({(p[0], p[2]) for p in left}, {("inside", client), ("outside", service)})

    @unittest.skipUnless(shutil.which("tshark"), "no tshark here")
    def test_filters(self):
        self.serve_with()
        for where in ({"backend": f"{SECOND}:{SERVER_PORT}"}, {"backend": FIRST}):
            packets = self.trace(**where)
            self.assertTrue(packets)
            wanted = where["backend"].split(":")[0]
            for p in packets:
                inside = p[2] if p[0] == "inside" and p[1].startswith("received") else p[3]
                if p[0] == "inside":
                    self.assertEqual(inside, wanted)
        self.assertEqual(len(self.trace(packets=3, protocol="tcp")), 3)
        self.assertEqual(self.trace(destination="192.0.2.1"), [])

    def test_requests(self):
        self.serve_with()
        self.refused(400, ["no state"], "GET /trace", state="established")
        self.refused(400, ["packets"], "GET /trace", packets="many")
        first = Connection(self.control)
        first.request("GET", "/trace?seconds=1000")
        first.getresponse()
        self.refused(409, ["another trace is running"], "GET /trace")
        first.close()  # millrace must notice the connection's end, although no packet arrives
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            second = Connection(self.control)
            second.request("GET", "/trace?seconds=1")
            status = second.getresponse().status
            second.close()
            if status == 200:
                return
            time.sleep(0.1)
        self.fail("the first trace has not ended")


class Changing(Asked):
    def marked(self, what):
        """Returns the addresses of the IPv4 backends whose value `what` is true in a service of GET /services."""
        backends = [b for s in self.ask("GET /services") for b in s["backends"] if ":" not in b["address"]]
        return {b["address"] for b in backends if b[what]}

    def test_drain(self):
        self.serve_with()
        before = self.clients(10)
        met = [client.get(1) for client in before]
        self.assertEqual(self.ask("POST /drain", backend=f"{FIRST}:{SERVER_PORT}", drained="true"), {"backends": 2})
        self.assertEqual(self.servers_of(10), {SECOND: 10})
        self.assertEqual([client.get(1) for client in before], met, "a connection changed its server")
        self.assertEqual(self.marked("drained"), {FIRST})
        self.assertEqual(self.marked("healthy"), {FIRST, SECOND})
        self.reload(GOOD)
        self.assertEqual(self.servers_of(10), {SECOND: 10}, "a drain must outlast a reload")
        self.reload(without(FIRST))
        self.reload(GOOD)
        self.assertEqual(self.servers_of(10), {SECOND: 10}, "a drain must outlast reloads that remove the backend and add it again")
        self.ask("POST /drain", backend=FIRST, drained="false")
        self.assertEqual(set(self.servers_of(30)), {FIRST, SECOND})
        self.refused(404, ["10.9.9.9"], "POST /drain", backend="10.9.9.9", drained="true")
        self.refused(400, ["true or false"], "POST /drain", backend=FIRST)
        self.refused(400, ["nonsense"], "POST /drain", backend="nonsense", drained="true")

    def test_kill(self):
        self.serve_with()
        for client in self.clients(10):
            client.get(1)
        self.refused(400, ["all=true"], "POST /kill")
        [one, *_] = self.ask("GET /connections", protocol="tcp")
        self.assertEqual(self.ask("POST /kill", source_port=one["source_port"]), {"killed": 1})
        self.assertEqual(len(self.ask("GET /connections", protocol="tcp")), 9)
        self.assertEqual(self.ask("POST /kill", all="true")["killed"], 9)
        self.assertEqual(self.ask("GET /connections"), [])
        self.assertEqual(self.stop()["connections"]["closed"]["killed"], 10)

    def test_health(self):
        text = GOOD.replace('protocol = "udp"\n', 'protocol = "udp"\n'
                            'health = { check = "tcp", interval_ms = 100, move_udp = true }\n')
        self.serve_with(text)
        self.assertEqual([s["health"] and s["health"]["check"] for s in self.ask("GET /services")],
                         [None, "tcp", None, "tcp"])
        with self.network_.client:
            udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with udp:
            met = self.echo(udp, 4, 100)
            other = SECOND if met == FIRST else FIRST
            self.ask("POST /health", backend=f"{met}:{SERVER_PORT}", healthy="false")
            self.assertEqual(self.echo(udp, 4, 100), other, "UDP connections of an unhealthy backend must move at once")
            self.assertEqual(self.servers_of(10), {other: 10})
            self.assertEqual((self.marked("drained"), self.marked("healthy")), (set(), {other}))
            self.ask("POST /health", backend=f"{met}:{SERVER_PORT}", healthy="true")
            self.assertEqual(self.echo(udp, 4, 100), other)

    def test_reload(self):
        self.serve_with()
        before = self.clients(20)
        met = [client.get(1) for client in before]
        self.assertEqual(self.reload(without(FIRST))["backends"], 6)
        self.assertEqual(self.servers_of(10), {SECOND: 10})
        self.assertEqual([client.get(1) for client in before], met)
        draining = [b for b in self.ask("GET /stats")["backends"] if b["draining"]]
        self.assertEqual([(b["address"], b["live"]) for b in draining],
                         [(f"{FIRST}:{SERVER_PORT}", met.count(FIRST))])
        self.assertEqual(self.reload(without_services())["services"], 2)
        self.assertEqual([client.get(1) for client in before], met, "connections of a removed service must go on")
        self.reload(GOOD)
        self.assertEqual(set(self.servers_of(30)), {FIRST, SECOND})
        self.assertEqual([client.get(1) for client in before], met)
        self.reload(GOOD + "[ageing.timeout_s]\ntcp_established = 100\n")
        self.assertLessEqual(max(c["expires_ms"] for c in self.ask("GET /connections")), 100_000)

    def test_the_mss_is_lowered(self):
        """Both ends use the MSS that a port has as `mss`; without it, the one that their links take."""
        def largest(family):
            with self.network_.client, socket.socket(FAMILIES[family]) as asking:
                asking.settimeout(20)
                asking.connect((ADDRESSES[family]["service"], PORT))
                return asking.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)

        def with_mss(mss):
            return GOOD.replace('name = "outside"\n', f'name = "outside"\nmss = {mss}\n')

        self.serve_with(with_mss(1000))
        timestamps = 12  # bytes of the option, which each segment has
        for family in FAMILIES:
            self.assertEqual(largest(family), 1000 - timestamps)
        self.reload(with_mss('"auto"'))
        self.assertEqual([largest(family) for family in FAMILIES], [1460 - timestamps, 1440 - timestamps])
        self.reload(GOOD)
        for client in self.clients(2):
            client.get(10_000)
        self.stop()

    def test_a_wrong_file_changes_nothing(self):
        self.serve_with()
        self.write("f.toml", GOOD.replace('protocol = "tcp"', 'protocol = "tpc"'))
        self.refused(422, ["f.toml:", "tpc"], "POST /reload")
        self.write("f.toml", GOOD.replace("workers = 2", "workers = 3")
                   .replace("capacity = 20000", "capacity = 30000"))
        self.refused(422, ["workers: cannot change", "table.capacity: cannot change"], "POST /reload")
        self.write("f.toml", GOOD.replace('name = "inside"', 'name = "inside"\nmtu = 1400'))
        self.refused(422, ["port (inside) mtu: cannot change"], "POST /reload")
        self.write("f.toml", GOOD.replace('name = "inside"', 'name = "within"'))
        self.refused(422, ["port (inside) is gone: cannot", "port (within) is new: cannot"], "POST /reload")
        # With one worker the default sharing scheme changes, too. As the file names no scheme, the error does not name `sharing`.
        self.write("f.toml", GOOD.replace("workers = 2", "workers = 1"))
        self.assertNotIn("sharing", self.ask("POST /reload", 422)["error"])
        self.write("f.toml", "# nothing\n")
        self.refused(422, ["f.toml: the configuration has no port"], "POST /reload")
        self.write("f.toml", GOOD.replace('protocol = "tcp"\n', 'protocol = "tcp"\n'
                                          'health = { check = "http", path = "health" }\n'))
        self.refused(422, ["health.path", "begins with /"], "POST /reload")
        os.remove(self.path("f.toml"))
        self.refused(422, ["f.toml"], "POST /reload")
        os.mkfifo(self.path("f.toml"))
        self.refused(422, ["is empty, or no regular file"], "POST /reload")
        self.assertEqual(set(self.servers_of(20)), {FIRST, SECOND})

    def test_hangup_reloads(self):
        self.serve_with()
        self.write("f.toml", without(FIRST))
        self.process.send_signal(signal.SIGHUP)
        with patience_with(self.process):
            self.assertIn("reloaded", self.process.stderr.readline())
        self.assertEqual(self.servers_of(10), {SECOND: 10})
        self.write("f.toml", GOOD.replace('protocol = "tcp"', 'protocol = "tpc"', 1))
        self.process.send_signal(signal.SIGHUP)
        with patience_with(self.process):
            self.assertEqual(self.process.stderr.readline(),
                             "millrace: the configuration is wrong, nothing has changed:\n")
            self.assertRegex(self.process.stderr.readline(), "^millrace: .*tpc")

    def test_many_services(self):
        """The 1004 services have 1002 Maglev tables, as services with equal backends share one; few of these tables are made at the
        start. Memory does not grow with reloads."""
        def text(last_byte):
            others = (f'[[service]]\naddress = "203.0.113.20"\nport = {port}\nprotocol = "tcp"\nbackends = ['
                      + ", ".join(f'{{ address = "10.1.{port >> 8}.{b + last_byte}", port = {port} }}' for b in (1, 2, 3)) + "]\n"
                      for port in range(1000, 2000))
            return GOOD + "".join(others)

        def memory():
            with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
                [kib] = [line.split()[1] for line in file if line.startswith("VmRSS")]
            return int(kib) / 1024

        self.serve_with(text(0))
        maglev = self.ask("GET /stats")["maglev"]
        self.assertEqual(maglev["tables"], 1002)
        self.assertLess(maglev["made"], 70)
        self.assertEqual(maglev["bytes"], maglev["made"] * 2 * 65537)
        self.servers_of(10)
        for n in range(1, 4):
            self.reload(text(n % 2))
        before = memory()
        for n in range(20):
            self.reload(text(n % 2))
        self.assertLess(memory(), 1.1 * before + 5)
        self.servers_of(10)

    def test_reload_under_load(self):
        for sharing in ("sharded", "lock-free-race"):
            with self.subTest(sharing=sharing):
                self.reload_under_load(f'sharing = "{sharing}"\n')
                self.stop()

    def reload_under_load(self, above):
        """Connections keep their servers while reloads remove and add backends."""
        self.serve_with(above + GOOD)
        texts = [above + without(address) for address in (FIRST, SECOND, "nobody")]
        end = self.transferring(50)
        until = time.monotonic() + SECONDS
        reloads = 0
        while reloads < 4 or time.monotonic() < until:
            self.reload(texts[reloads % 3])
            reloads += 1
            self.clients(1)[0].get(1)
        self.assertEqual(end(), [])


if __name__ == "__main__":
    main()
