#!/usr/bin/env python3
"""Tests take-overs of NAT with many sessions: made packets of thousands of customers, half of them behind tunnels and with one private address, and
beside them some transfers and conversations of real endpoints, which go on meanwhile.

    nat_take_over_test.py MILLRACE [TEST...]

MILLRACE_NAT_SESSIONS sets the number of sessions, MILLRACE_NAT_OLDER a program of another version, from which the tested one takes over.
"""

import collections
import contextlib
import json
import os
import socket
import struct
import threading
import time
import unittest

import gre
import nat_packets as make
from asked import Asked
from cli_case import MILLRACE
from live import main
from namespaces import ip
from nat_test import A, is_public
from packets import TCP, UDP
from raw_link import RawLink

SESSIONS = int(os.environ.get("MILLRACE_NAT_SESSIONS", "100000"))
OLDER = os.environ.get("MILLRACE_NAT_OLDER")
CUSTOMERS, NEW_CUSTOMERS = min(3000, SESSIONS // 4), 300
CROWD = [*range(CUSTOMERS), *(n % 20 for n in range(CUSTOMERS // 3))]  # a few have many sessions, and several blocks
REAL, PAUSE = 6, 0.02  # customers with real endpoints, and seconds between what they send
INSIDE = socket.inet_aton("10.9.0.5")  # of all customers behind tunnels
REMOTES = bytes((203, 0, 113))
BLOCK = 64
WINDOW = 200  # packets under way: no socket's buffer overflows


def configuration(sharing, log):
    return f"""function = "nat"
workers = 2
sharing = "{sharing}"
[table]
capacity = {SESSIONS + 20_000}
[[port]]
name = "access"
device = "af_packet:outside"
addresses = ["{A['outside']}/24"]
tunnel = "gre"
customers = ["172.17.0.0/18"]
[[port]]
name = "internet"
device = "af_packet:inside"
addresses = ["{A['inside']}/24"]
[[route]]
prefix = "172.17.0.0/18"
via = "{A['client']}"
[[route]]
prefix = "10.64.0.0/16"
via = "{A['client']}"
[[route]]
prefix = "203.0.113.0/24"
via = "{A['servers'][0]}"
[[nat.pool]]
name = "homes"
addresses = ["10.0.0.192/28"]
block_size = {BLOCK}
blocks_per_customer = 64
[[nat.rule]]
source = ["10.64.0.0/16", "198.51.100.0/24"]
pool = "homes"
[[nat.rule]]
source = ["10.9.0.0/16"]
customers = "any"
pool = "homes"
[nat.log]
file = "{log}"
"""


class Session:
    """A session number: its number is in each of its packets, as sequence number or as data."""

    def __init__(self, number, customer, nth):
        self.number = number
        self.protocol = (UDP, TCP)[nth % 2]
        low = customer.to_bytes(2, "big")
        self.far = bytes((172, 17)) + low if customer % 2 else None
        self.customer = socket.inet_ntoa(self.far or bytes((10, 64)) + low)
        self.inside = (INSIDE if self.far else bytes((10, 64)) + low, 2000 + nth)
        self.remote = (REMOTES + bytes((1 + nth % 7,)), 80)
        self.public = None

    def packet(self, source, to, flags):
        """A packet of UDP, or of TCP with these flags, the first or second of its sender."""
        if self.protocol == UDP:
            return make.udp(source, to, self.number.to_bytes(4, "big"))
        is_first = flags & make.SYN != 0
        return make.tcp(source, to, flags, self.number + (not is_first), self.number + 1 if flags & make.ACK else 0)

    def out(self, flags=make.ACK):
        packet = self.packet(self.inside, self.remote, flags)
        return packet if self.far is None else make.ip(self.far, socket.inet_aton(A["outside"]), gre.GRE, gre.header() + packet)

    def back(self, flags=make.ACK):
        return self.packet(self.remote, self.public, flags)


def number_in(packet):
    """Returns the number of the session that a packet without its tunnel belongs to."""
    if packet[9] == UDP:
        return int.from_bytes(packet[28:32], "big")
    return int.from_bytes(packet[24:28], "big") - (not packet[33] & make.SYN)


def ends(packet):
    return ((packet[12:16], int.from_bytes(packet[20:22], "big")), (packet[16:20], int.from_bytes(packet[22:24], "big")))


class Side(RawLink):
    def packets(self, patience):
        """Yields packets of sessions that have come, each with the far end of its tunnel, if it has one."""
        for frame in self.receive(patience):
            packet = frame[14 : 14 + int.from_bytes(frame[16:18], "big")]
            if packet[9] == gre.GRE:
                far, _, packet = gre.unwrapped(packet)
                yield packet, socket.inet_aton(far)
            elif REMOTES in (packet[12:15], packet[16:19]):
                yield packet, None


class Talk:
    """A customer whose kernel sends numbers to a server, over TCP and UDP; they are echoed and checked, all the time."""

    def __init__(self, case, n):
        self.wrong, self.sent, self.echoed, self.public = [], 0, 0, {}
        address, port = f"198.51.100.{100 + n}", 6000 + n
        with case.network_.client:
            ip(f"address add {address}/24 dev wire")
        listening, self.server = case.server(port=port), case.server(socket.SOCK_DGRAM, port)
        self.tcp = case.socket_in(case.network_.client, socket.AF_INET, socket.SOCK_STREAM)
        self.udp = case.socket_in(case.network_.client, socket.AF_INET, socket.SOCK_DGRAM)
        for one in (self.tcp, self.udp):
            one.bind((address, 0))
            one.connect((A["servers"][0], port))
        self.accepted, self.public["tcp"] = listening.accept()
        case.addCleanup(self.accepted.close)
        for one in (self.accepted, self.tcp):
            one.settimeout(20)
        self.udp.settimeout(0.5)
        self.server.settimeout(0.2)
        self.ended = False
        case.addCleanup(self.end)
        self.threads = [threading.Thread(target=self.noting, args=(do,), daemon=True) for do in (self.transfer, self.send, self.echo)]
        for thread in self.threads:
            thread.start()

    def noting(self, do):
        try:
            while not self.ended:
                do()
        except (OSError, AssertionError) as error:
            self.wrong.append(repr(error))

    def transfer(self):
        data = os.urandom(5000)
        for one, other in ((self.tcp, self.accepted), (self.accepted, self.tcp)):
            one.sendall(data)
            received = b""
            while len(received) < len(data) and (more := other.recv(65536)):
                received += more
            assert received == data, "a transfer is damaged"
        time.sleep(PAUSE)

    def send(self):
        self.sent += 1
        self.udp.send(self.sent.to_bytes(4, "big"))
        with contextlib.suppress(TimeoutError):
            while int.from_bytes(self.udp.recv(100), "big") != self.sent:
                pass
            self.echoed += 1
        time.sleep(PAUSE)

    def echo(self):
        with contextlib.suppress(TimeoutError):
            data, source = self.server.recvfrom(100)
            assert self.public.setdefault("udp", source) == source, f"a conversation comes from {source}"
            self.server.sendto(data, source)

    def end(self):
        self.ended = True
        for thread in self.threads:
            thread.join()
        return self.wrong


class TakeOver(Asked):
    def serve_crowd(self, sharing):
        self.log = self.path("nat.jsonl")
        self.text = configuration(sharing, self.log)
        self.serve_with(self.text)
        n = self.network_
        self.access, self.internet = Side(self, n.client, n.middle, "outside"), Side(self, n.servers, n.middle, "inside")
        self.sessions, self.sessions_of = [], collections.Counter()
        self.again = 0

    def pass_all(self, sessions, packet_of, from_side, to_side, seen):
        """Sends a packet of each of these sessions, and gives `seen` what arrives on the other side. A busy machine may lose some: they are sent
        again."""
        missing = {session.number: session for session in sessions}
        for _ in range(30):
            for session in missing.values():
                from_side.send(packet_of(session))
            for packet, far in to_side.packets(0.3):
                session = missing.pop(number_in(packet), None)
                if session:
                    seen(session, packet, far)
                if not missing:
                    return
            self.again += len(missing)
        self.fail(f"{len(missing)} packets do not arrive, of {next(iter(missing.values())).__dict__}")

    def left(self, session, packet, _):
        source, to = ends(packet)
        self.assertEqual(to, session.remote)
        if session.public is None:
            session.public = source
        self.assertEqual(source, session.public, session.__dict__)

    def came(self, session, packet, far):
        self.assertEqual((ends(packet), far), ((session.remote, session.inside), session.far), session.__dict__)

    def open(self, count, customers):
        """Opens so many sessions, of TCP with the whole handshake."""
        new = []
        for n in range(count):
            customer = customers[n % len(customers)]
            new.append(Session(len(self.sessions) + n, customer, self.sessions_of[customer]))
            self.sessions_of[customer] += 1
        for at in range(0, count, WINDOW):
            some = new[at : at + WINDOW]
            self.pass_all(some, lambda s: s.out(make.SYN), self.access, self.internet, self.left)
            self.pass_all(some, lambda s: s.back(make.SYN | make.ACK), self.internet, self.access, self.came)
            self.pass_all(some, Session.out, self.access, self.internet, self.left)
        self.sessions += new

    def check_all(self):
        """Both ways: first from outside, which finds only sessions that are there."""
        for at in range(0, len(self.sessions), WINDOW):
            some = self.sessions[at : at + WINDOW]
            self.pass_all(some, Session.back, self.internet, self.access, self.came)
            self.pass_all(some, Session.out, self.access, self.internet, self.left)

    def check_ports(self):
        """No port, and no block, is of two customers; and the log says the same."""
        owners = {}
        for session in self.sessions:
            address, port = session.public
            self.assertTrue(is_public(socket.inet_ntoa(address)))
            owner = owners.setdefault((address, port // BLOCK), session.customer)
            self.assertEqual(owner, session.customer, session.__dict__)
        self.assertEqual(len({(session.protocol, session.public) for session in self.sessions}), len(self.sessions))

        def logged():
            held = {}
            with open(self.log, encoding="utf-8") as file:
                for line in map(json.loads, file):
                    block = (socket.inet_aton(line["address"]), line["first_port"] // BLOCK) if "address" in line else None
                    if line["event"] == "list":
                        held = {}
                    elif line["event"] == "released":
                        self.assertEqual(held.pop(block), line["customer"])
                    else:
                        self.assertEqual(held.setdefault(block, line["customer"]), line["customer"])
            return held

        self.wait_until(lambda: owners.items() <= logged().items())

    def go_on(self, sharing, count=SESSIONS, program=MILLRACE):
        self.program = program
        self.serve_crowd(sharing)
        self.program = MILLRACE
        begin = time.monotonic()
        self.open(count, CROWD)
        opened = time.monotonic()
        talks = [Talk(self, n) for n in range(REAL)]
        self.wait_until(lambda: all(talk.echoed for talk in talks))
        [before] = self.ask("GET /nat/pools")
        self.assertEqual((before["sessions"], before["customers"]), (count + 2 * REAL, CUSTOMERS + REAL))
        starting = time.monotonic()
        self.assertEqual(self.take_over(self.text), count + 2 * REAL)
        taken = time.monotonic()
        self.check_all()
        checked = time.monotonic()
        self.assertEqual([wrong for talk in talks for wrong in talk.end()], [])
        lost = [talk.sent - talk.echoed for talk in talks]
        [after] = self.ask("GET /nat/pools")
        for name in ("sessions", "customers", "mappings", "held"):
            self.assertEqual(after[name], before[name], name)
        self.assertEqual(self.ask("GET /stats")["connections"]["opened"], 0)
        self.open(2000, range(CUSTOMERS - 300, CUSTOMERS + NEW_CUSTOMERS))
        self.check_ports()
        print(f"{sharing}: {count} sessions opened in {opened - begin:.1f} s, taken over in {taken - starting:.1f} s, checked in "
              f"{checked - taken:.1f} s; {self.again} packets sent again, {sum(lost)} of {sum(talk.sent for talk in talks)} datagrams lost")
        self.stop()

    def test_sessions_go_on(self):
        self.go_on("sharded")

    def test_sessions_go_on_in_shared_tables(self):
        self.go_on("lock-free-race", SESSIONS // 2)

    @unittest.skipUnless(OLDER, "MILLRACE_NAT_OLDER names no program of another version")
    def test_sessions_of_another_version_go_on(self):
        self.go_on("sharded", program=OLDER)


if __name__ == "__main__":
    main()
