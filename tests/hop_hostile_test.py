#!/usr/bin/env python3
"""Tests three millraces of a cluster against strangers, a member that has gone mad, absurd orders and full disks.

    hop_hostile_test.py MILLRACE [TEST...]
"""

import contextlib
import json
import os
import random
import socket
import struct
import subprocess
import time
import unittest

from asked import Connection
from hop import FUNCTIONS, HopCase
from hop_nat_test import NAT, NatCase
from live import main
from mad import CAN_SEAL, HELLO, OPEN, PACKET, PORT, RECORDS, Raw, Seal, ip4, mac_of, message, messages_in, udp
from namespaces import ip
from servers import CUSTOMERS, INTERNET

MAD = 0xAA100


class Orders(HopCase):
    def put(self, body):
        with contextlib.closing(Connection(self.path("c1"))) as connection:
            connection.request("PUT", "/cluster", body=body, headers={"Connection": "close"})
            return connection.getresponse().status

    def test_deeply_nested_orders_are_refused(self):
        """Whatever stands in place of a name or a number, the process goes on."""
        self.serve(1, FUNCTIONS)
        deep = "[" * 1_000_000 + "]" * 1_000_000
        for orders in ('{"shards": [], "members": [{"instance": %s}]}', '{"members": [], "shards": [{"shard": %s}]}', "%s"):
            self.assertEqual(self.put(orders % deep), 400)
        self.assertEqual(self.cluster(1)["reports"], [])

    def test_orders_without_shards_change_nothing(self):
        self.serve(1, FUNCTIONS)
        own = self.cluster(1)["instance"]
        one = {"shard": 0, "epoch": 1, "master": own, "slave": "", "settled": True, "grants": ""}
        self.assertEqual(self.put(json.dumps({"members": [], "shards": [one]})), 200)
        for wrong in ('{"members": [], "shards": null}', '{"members": null, "shards": []}', '{"members": {}, "shards": {}}'):
            self.assertEqual(self.put(wrong), 400, wrong)
        self.assertEqual(len(self.cluster(1)["reports"]), 1)


class Copies(NatCase):
    def test_a_full_disk_of_one_server_costs_no_copy_for_good(self):
        """A slave whose log cannot be written says so, or has the connections once it can."""
        small = self.path("small")
        os.mkdir(small)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", small], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", small], check=True)
        self.echo(7)
        serve = self.serve

        def with_log(number, text):
            folder = small if number == 3 else self.dir
            return serve(number, text + f'[nat.log]\nfile = "{folder}/{number}.jsonl"\non_failure = "refuse"\n')
        self.serve = with_log
        self.serve_all(NAT)
        with contextlib.suppress(OSError), open(f"{small}/filling", "wb", buffering=0) as file:
            while True:
                file.write(bytes(4096))
        with contextlib.suppress(OSError), open(f"{small}/3.jsonl", "ab", buffering=0) as file:
            while True:
                file.write(b"\n")  # nor is there room in the log's last page
        clients = []
        with self.network_.customers:
            for n in range(9, 101):
                ip(f"address add 10.0.0.{n}/24 dev wire")
        for n in range(1, 101):
            client = self.socket_in(self.network_.customers, socket.AF_INET, socket.SOCK_STREAM)
            client.settimeout(0.5)
            client.bind((f"10.0.0.{n}", 0))
            with contextlib.suppress(OSError):
                client.connect((INTERNET, 7))
                self.exchange(client)
                clients.append(client)
        self.assertGreater(len(clients), 40)
        reports = {number: {one["shard"]: one for one in self.cluster(number)["reports"]} for number in self.processes}
        out_of_sync = sum(not one["in_sync"] for of in reports.values() for one in of.values())
        no_place = self.count("no_place")
        os.unlink(f"{small}/filling")
        self.wait_until(lambda: all(log["failing_since"] is None for log in self.ask_server(3, "GET /nat/log")))
        for client in clients:
            client.settimeout(10)
            self.exchange(client)
        try:
            self.each_is_at_two(len(clients))
        except AssertionError as error:
            self.fail(f"{error}; {no_place} copies were refused, {out_of_sync} shards were said to be out of sync")

    def test_kill_at_a_slave_leaves_no_connection_without_a_copy(self):
        self.echo(7)
        self.serve_all(NAT)
        clients = [self.connect(n % len(CUSTOMERS)) for n in range(40)]
        for client in clients:
            self.exchange(client)
        self.each_is_at_two(40)
        self.ask_server(3, "POST /kill?all=true&silent=true")
        def is_so():
            found = [self.connections(number) for number in self.processes]
            self.left = {key: sum(key in one for one in found) for key in set().union(*found)}
            return all(count == 2 for count in self.left.values())
        try:
            self.wait_until(is_so, 10)
        except AssertionError:
            self.fail(f"of {len(self.left)} connections that are left, {sum(count == 1 for count in self.left.values())} are at one server only, "
                      f"and all are said to be in sync: {self.are_in_sync()}")


class Cut(HopCase):
    def test_a_slave_that_opened_connections_while_it_was_cut_off_is_in_sync_again(self):
        self.serve_all()
        server = self.socket_in(self.network_.internet, socket.AF_INET, socket.SOCK_DGRAM)
        server.bind((INTERNET, 99))
        server.settimeout(1)
        self.network_.cut(2)
        self.wait_until(lambda: not any(one["heard"] for one in self.cluster(2)["members"]))
        self.route(2)
        for n in range(60):
            client = self.socket_in(self.network_.customers, socket.AF_INET, socket.SOCK_DGRAM)
            client.bind((CUSTOMERS[n % 8], 0))
            client.sendto(b"x", (INTERNET, 99))
        with contextlib.suppress(TimeoutError):
            while True:
                server.sendto(*server.recvfrom(100))
        self.assertGreater(len(self.connections(2)), 10)
        time.sleep(2)
        self.network_.cut(2, False)
        try:
            self.wait_until(self.are_in_sync)
        except AssertionError:
            left = [(number, one["shard"], one["role"]) for number in self.processes for one in self.cluster(number)["reports"] if not one["in_sync"]]
            self.fail(f"not in sync 20 s later (server, shard, role): {left}; anew: {self.count('anew')}")


class Strangers(HopCase):
    def rig(self):
        self.raw = {name: Raw(self, self.network_.switch, name) for name in ("sync", "inside", "outside")}
        self.macs = {name: mac_of(self.network_.servers[1], name) for name in self.raw}
        self.sealer = Seal(bytes.fromhex("ab" * 32))
        self.members = {number: int(instance, 16) for number, instance in self.instances.items()}

    def frame(self, packet, port="sync", kind=b"\x08\0"):
        return self.macs[port] + b"\x02\0\0\0\0\x09" + kind + packet

    def test_what_strangers_send_is_counted(self):
        """From every port, with members' addresses: traffic goes on, and each datagram counts."""
        clients = self.begin(20)
        self.rig()
        before = self.cluster(1)["counters"]
        heads = [struct.pack("<QQQI", self.members[2] + worker, self.members[1], 1 << 40, 1) for worker in (0, 1, 200)]
        wrong = [b"", b"x", b"x" * 43, b"x" * 44, b"\0" * 1400, *(head + bytes(60) for head in heads)]
        for _ in range(20):
            for payload in wrong:
                for port in self.raw:
                    self.raw[port].send(self.frame(ip4("10.9.0.2", "10.9.0.1", udp(payload)), port))
            self.go_on(clients[:4])
        sent = 20 * 3 * len(wrong)

        def counted():
            now = self.cluster(1)["counters"]
            return sum(now[name] - before[name] for name in ("foreign", "version"))
        self.wait_until(lambda: counted() == sent)
        self.go_on(clients)
        self.assertTrue(self.are_in_sync())
        for number in list(self.processes):
            self.end(number)

    def test_old_datagrams_change_nothing(self):
        clients = self.begin(20)
        self.rig()
        heard = Raw(self, self.network_.servers[1], "sync")
        heard.socket.setblocking(False)
        stored = []
        while len(stored) < 60:
            self.go_on(clients[:2])
            with contextlib.suppress(BlockingIOError):
                while True:
                    frame = heard.socket.recv(4000)
                    if frame[:6] == self.macs["sync"] and frame[23] == 17 and frame[36:38] == struct.pack("!H", PORT):
                        datagram = frame[42:14 + int.from_bytes(frame[16:18], "big")]
                        if len(datagram) <= 1400:  # other links are narrower
                            stored.append((socket.inet_ntoa(frame[26:30]), datagram))
        before = self.cluster(1)
        for port in self.raw:
            for n, (source, datagram) in enumerate(stored):
                padded = udp(datagram) + bytes(-(len(datagram) + 8) % 8)
                for packet in (ip4(source, "10.9.0.1", udp(datagram)), ip4(source, "10.9.0.1", padded, flags=0x2000, ident=n),
                               ip4(source, "10.9.0.1", udp(datagram), options=b"\x94\x04\0\0")):
                    self.raw[port].send(self.frame(packet, port))
            self.go_on(clients[:2])
        self.wait_until(lambda: self.cluster(1)["counters"]["replayed"] - before["counters"]["replayed"] == 9 * len(stored))
        self.assertEqual([one["epoch"] for one in self.cluster(1)["reports"]], [one["epoch"] for one in before["reports"]])
        self.go_on(clients)
        self.each_is_at_two(20)


@unittest.skipUnless(CAN_SEAL, "Python has no package cryptography")
class MadMember(Strangers):
    """Server 1 alone, and a member that has the key and sends what it likes."""

    test_what_strangers_send_is_counted = test_old_datagrams_change_nothing = None

    def begin_mad(self, text):
        self.echo(7)
        self.echo(8)
        with self.network_.servers[2]:
            ip("address add 10.9.0.2/24 dev sync")
        self.socket = self.socket_in(self.network_.servers[2], socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("10.9.0.2", PORT))
        self.serve(1, text)
        self.instances = {1: self.cluster(1)["instance"]}
        self.rig()
        self.epoch = 0
        self.assign("master")
        self.route(1)

    def assign(self, role):
        own, mad = self.instances[1], f"{MAD:016x}"
        master, slave = {"master": (own, mad), "slave": (mad, own), "alone": (own, "")}[role]
        self.epoch += 1
        self.ask_server(1, "PUT /cluster", json.dumps({
            "members": [{"server": 2, "instance": mad, "address": "10.9.0.2"}],
            "shards": [{"shard": n, "epoch": self.epoch, "master": master, "slave": slave, "settled": True, "grants": "0-63"}
                       for n in range(self.SHARDS)]}))

    def say(self, *messages):
        self.socket.sendto(self.sealer.seal(MAD, self.members[1], b"".join(messages)), ("10.9.0.1", PORT))

    def agree(self):
        while not self.cluster(1)["members"][0]["agrees"]:
            datagram = self.socket.recv(4000)
            for one in messages_in(self.sealer.open(datagram)[3]):
                if one["kind"] == HELLO:
                    self.hello = one["payload"]
                    self.say(message(HELLO, one["payload"]))

    def test_absurd_layouts(self):
        """Hellos that say of their sender's records what cannot be, and then records of a layout that is odd, but can be read."""
        drawn = random.Random(1)
        self.begin_mad(FUNCTIONS)
        self.agree()
        *head, _, shards, agreement, _ = struct.unpack("<HBBBBBBIII", self.hello[:20])

        def layout(parts, count=None, more=b""):
            packed = b"".join(struct.pack("<20sIHHI", *part) for part in parts)
            hello = struct.pack("<HBBBBBBIII", *head, len(parts) if count is None else count, shards, agreement, drawn.randrange(1 << 32))
            self.say(message(HELLO, hello + more + packed))

        def part():
            return (drawn.choice((b"firewall", b"balance", b"", b"x" * 20)), drawn.choice((4, 6, 0x104, 0x106, 7)),
                    drawn.choice((0, 1, 2, 65535)), drawn.randrange(2), drawn.choice((0, 1, 8, 64, 4096, (1 << 32) - 1)))
        for _ in range(300):
            parts = [part() for _ in range(drawn.randrange(20))]
            layout([(b"", 4, 1, 0, (1 << 32) - 1), *parts], drawn.choice((None, None, 0, 255)), drawn.randbytes(drawn.randrange(20)))
        for cut in range(20):
            self.say(message(HELLO, self.hello[:cut]))
        self.wait_until(lambda: not self.cluster(1)["members"][0]["agrees"])
        layout([(b"balance", 4, 1, 1, 3), (b"later", 4, 1, 0, 100), (b"firewall", 4, 1, 0, 60), (b"", 0x104, 0, 0, 44)], more=bytes(30))
        self.wait_until(lambda: self.cluster(1)["members"][0]["agrees"])
        self.say(message(OPEN, epoch=self.epoch, stream=1))

        def read():
            counters = self.cluster(1)["counters"]
            return [counters[name] for name in ("applied", "no_place", "malformed")]

        before = read()
        for number in range(2000):
            body = bytearray(drawn.randbytes(44 + 163 if number % 4 else drawn.randrange(300)))
            body[:8] = struct.pack("<IHH", 4, 1, drawn.randrange(2))  # a connection of IPv4
            if number % 2:
                body[20:21] = bytes([drawn.randrange(32)])  # its state
            record = struct.pack("<HBB", len(body), drawn.choice((0, 0, 0, 200)), 0) + bytes(body)
            self.say(message(RECORDS, record, count=1, epoch=self.epoch, stream=1, number=number))
        self.wait_until(lambda: sum(read()) > sum(before))
        print("records applied, without a place, malformed:", [now - was for now, was in zip(read(), before)])
        self.assign("alone")
        self.exchange(self.connect())
        self.end(1)

    def frames(self, drawn):
        tcp = struct.pack("!HHIIBBHHH", 1234, 7, 1, 0, 0x50, 2, 1000, 0, 0)
        good = self.frame(ip4(CUSTOMERS[0], INTERNET, tcp, protocol=6), "inside")
        yield from (good[:length] for length in (*range(22), 33, 34, 35, 42, 53, 54))
        yield from (self.frame(ip4(CUSTOMERS[0], INTERNET, udp(bytes(n), 5, 9))) for n in (1472, 1473, 9000, 9576))
        yield from (good[:12] + tag + good[12:] for tag in (b"\x81\0\0\5", b"\x88\xa8\x0f\xff", b"\x81\0"))
        yield from (self.frame(ip4(CUSTOMERS[0], "10.0.0.251", bytes(30), protocol=n), "inside") for n in (0, 1, 2, 6, 17, 41, 47, 50, 132))
        yield from (self.frame(bytes(60), "inside", kind) for kind in (b"\x08\6", b"\x86\xdd", b"\x08\0"))
        inner = good
        for _ in range(10):  # a datagram to the servers' port, with a datagram in it
            sealed = self.sealer.seal(MAD, self.members[1], message(PACKET, inner, count=1, epoch=self.epoch))
            inner = self.frame(ip4("10.9.0.2", "10.9.0.1", udp(sealed)))
            yield inner
        for _ in range(100):
            changed = bytearray(good + drawn.randbytes(drawn.randrange(40)))
            for _ in range(drawn.randrange(1, 8)):
                changed[drawn.randrange(12, len(changed))] = drawn.randrange(256)
            yield bytes(changed)

    def test_absurd_packets_and_messages(self):
        drawn = random.Random(1)
        self.begin_mad(FUNCTIONS)
        self.agree()
        for frame in self.frames(drawn):
            for link in (0, 1, 3, 65535):
                for customer in (0, 1, 0xFFFFFF, 0x1000001, (1 << 64) - 1):
                    self.say(message(PACKET, frame, count=link, epoch=self.epoch, number=customer))
        for role in ("slave", "master"):
            self.assign(role)
            self.agree()
            for _ in range(1500):
                self.say(message(drawn.choice((0, 1, 2, 2, 3, 4, 7, 255)), drawn.randbytes(drawn.choice((0, 4, 16, 200))), drawn.randrange(4),
                                 drawn.choice((0, 1, 2, 65535)), drawn.choice((None, 0, 1201, 1 << 31)), drawn.choice((0, 127, 128, 1 << 31)),
                                 drawn.choice((0, 1, (1 << 32) - 1)), drawn.choice((0, self.epoch, self.epoch, 1 << 63)),
                                 drawn.choice((0, 1, 1 << 63, (1 << 64) - 1))))
        self.assign("alone")
        self.exchange(self.connect())
        self.end(1)


if __name__ == "__main__":
    main()
