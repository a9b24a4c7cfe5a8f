"""Customers of a NAT in a cluster of real parts (cluster.py) that open sessions all the time, captures of both switches meanwhile, and cuts of links.

The pool has few blocks of ports for so many customers, each of which is active for a while only: so blocks go from customer to customer.
"""

import collections
import contextlib
import errno
import heapq
import ipaddress
import multiprocessing
import os
import random
import select
import selectors
import socket
import struct
import time

import check_nat
from captures import ETHERNET
from cluster import SIDES
from cluster_hosts import add_hosts, answer
from namespaces import command, ip, without_offloads

CUSTOMERS, POOL, BLOCK = "100.64.0.0/20", "198.51.100.128/25", 1024
HOSTS = [("203.0.113.101", 80), ("203.0.113.102", 80)]
NETWORKS = {"inside": ("172.31.0.1", ["172.31.0.2"]), "outside": ("203.0.113.254", [host for host, _ in HOSTS])}
OWN = ["10.0.0.0/8", "172.31.0.0/24", "203.0.113.254/32"]  # of servers and switches, as the sources of ICMP errors
HOPS = 3  # a switch, a server and a switch

ALL_PACKETS, SO_RCVBUFFORCE, SO_TIMESTAMPNS, SOL_PACKET, PACKET_STATISTICS = 3, 33, 35, 263, 6  # of linux/if_ether.h, socket.h, if_packet.h


def configuration(number):
    """Returns that of NAT with sessions that end soon, and 32 blocks of each address: of 32 grants, about half of them the master's."""
    short = "".join(f"{name} = 10\n" for name in (
        "tcp_syn_sent", "tcp_syn_received", "tcp_fin_wait", "tcp_close_wait", "tcp_last_ack", "tcp_time_wait", "tcp_close", "udp_unreplied", "udp", "udp_stream"))
    return f"""function = "nat"
[ageing.timeout_s]
{short}tcp_established = 60
[spread]
entries = 128
[[route]]
prefix = "{CUSTOMERS}"
via = "10.1.{number}.1"
[[route]]
prefix = "203.0.113.0/24"
via = "10.2.{number}.1"
[[nat.pool]]
name = "few"
addresses = ["{POOL}"]
ports = "16384-49151"
block_size = {BLOCK}
[[nat.rule]]
source = ["{CUSTOMERS}"]
pool = "few"
"""


class Capture:
    """Writes all packets of an interface into a file, in a process of its own."""

    def __init__(self, namespace, name, path):
        with namespace:
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL_PACKETS))
            self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
            self.socket.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
            self.socket.bind((name, ALL_PACKETS))
        self.path, (self.ours, theirs) = path, multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=self.run, args=(theirs,), daemon=True)
        self.process.start()

    def run(self, control):
        with open(self.path, "wb") as file:
            file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 1 << 16, ETHERNET))
            while control not in select.select([self.socket, control], [], [])[0]:
                self.write(file)
            with contextlib.suppress(BlockingIOError):
                while True:
                    self.write(file, socket.MSG_DONTWAIT)
        control.send(struct.unpack("II", self.socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1])

    def write(self, file, flags=0):
        frame, ancillary, _, _ = self.socket.recvmsg(1 << 16, 64, flags)
        seconds, nanoseconds = struct.unpack("qq", ancillary[0][2])
        file.write(struct.pack("<IIII", seconds, nanoseconds, len(frame), len(frame)) + frame)

    def end(self):
        """Returns how many packets were lost, after all others were written."""
        self.ours.send(None)
        lost = self.ours.recv()
        self.process.join()
        return lost

    def close(self):
        self.process.kill()
        self.process.join()
        self.socket.close()


class Session:
    """Sends messages that no other one sends, a second apart, and wants them back."""

    def __init__(self, customer, serial, is_tcp):
        self.name, self.is_registered = f"{customer} {serial} ".encode(), False  # with a selector
        self.is_tcp, self.serial, self.sent, self.got, self.opened, self.answered = is_tcp, serial, 0, b"", time.monotonic(), None
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM if is_tcp else socket.SOCK_DGRAM)
        self.socket.setblocking(False)
        self.socket.bind((customer, 0))
        self.socket.connect_ex(HOSTS[serial % len(HOSTS)])

    def text(self):
        return (self.name + b"%d " % self.sent).ljust(63, b".") + b"\n"

    def send(self):
        if self.is_tcp and self.sent > self.answers():
            return  # the answer has not come yet, so TCP sends the message again
        self.sent += 1
        with contextlib.suppress(OSError):
            self.socket.send(self.text())

    def is_connected(self):
        with contextlib.suppress(OSError):
            return self.socket.getpeername() is not None
        return False

    def answers(self):
        return len(self.got) // 64

    def receive(self):
        """Returns what has happened: "answer", "stranger" (an answer to somebody else), "end", "reset", "error" or ""."""
        try:
            data = self.socket.recv(65536)
        except BlockingIOError:
            return ""
        except OSError as error:
            return "reset" if error.errno == errno.ECONNRESET else "error"
        if self.is_tcp and not data:
            return "end"
        self.got = self.got + data if self.is_tcp else b""
        for at in range(0, len(data), 64):
            if not data[at:].startswith(self.name[:len(data) - at]):
                return "stranger"
        self.answered = self.answered or time.monotonic()
        return "answer"


class Customers:
    """Opens sessions of `count` customers, in a process. A customer is active for `active_s`, and then silent for nine times as long."""

    PACE_S, CYCLE = 4, 10  # from session to session of an active customer
    MESSAGES = (1, 1, 2, 4, 8, 16)  # of a session, one of these

    def __init__(self, namespace, count, active_s, seed):
        network = ipaddress.ip_network(CUSTOMERS)
        self.addresses = [str(network[1 + number]) for number in range(count)]
        self.active_s, self.random = active_s, random.Random(seed)
        self.counts, self.log = collections.Counter(), []  # of each session that has ended: when it began, and got an answer, or None
        self.ours, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=self.run, args=(namespace, theirs), daemon=True)
        self.process.start()

    def run(self, namespace, control):
        with namespace:
            self.selector, self.due, self.serial = selectors.DefaultSelector(), [], 0
            self.selector.register(control, selectors.EVENT_READ)
            begun, self.is_over = time.monotonic(), False
            phases = {one: self.random.random() * self.CYCLE * self.active_s for one in self.addresses}
            for one in self.addresses:
                self.at(begun + self.random.random() * self.PACE_S, self.open, one, lambda now, one=one: (now - begun + phases[one]) % (self.CYCLE * self.active_s))
            while not self.is_over:
                while self.due and self.due[0][0] <= time.monotonic():
                    _, _, do, words = heapq.heappop(self.due)
                    do(*words)
                for key, _ in self.selector.select(max(self.due[0][0] - time.monotonic(), 0)):
                    if key.fileobj is control:
                        self.is_over = True
                    else:
                        self.receive(key.data)
        control.send((self.counts, self.log))

    def at(self, when, do, *words):
        self.serial += 1
        heapq.heappush(self.due, (when, self.serial, do, words))

    def open(self, customer, phase_at):
        now = time.monotonic()
        self.at(now + self.PACE_S * self.random.uniform(0.5, 1.5), self.open, customer, phase_at)
        if phase_at(now) >= self.active_s:
            return
        session = Session(customer, self.serial, self.random.random() < 0.3)
        self.at(now + (0.5 if session.is_tcp else 0), self.go_on, session, self.random.choice(self.MESSAGES))

    def go_on(self, session, left):
        if session.socket.fileno() < 0:
            return
        if left == 0:
            self.end(session)
            return
        if not session.is_registered and session.is_connected():
            self.selector.register(session.socket, selectors.EVENT_READ, session)
            session.is_registered = True
        if session.is_registered:
            session.send()
        self.at(time.monotonic() + 1, self.go_on, session, left - 1)

    def receive(self, session):
        happened = session.receive()
        self.counts[happened] += 1
        if happened in ("end", "reset", "error") and session.is_tcp:
            self.end(session)
        elif not happened:
            self.leave(session)

    def leave(self, session):
        """Waits no more for answers, until the next message: with an ICMP error a socket may be readable all the time, though there is nothing to read."""
        if session.is_registered:
            self.selector.unregister(session.socket)
            session.is_registered = False

    def end(self, session):
        self.counts["sessions"] += 1
        self.log.append((session.opened, session.answered))
        self.leave(session)
        session.socket.close()

    def stop(self):
        """Ends the customers, and takes what they have counted."""
        self.ours.send(None)
        self.counts, self.log = self.ours.recv()
        self.process.join()

    def close(self):
        self.process.kill()
        self.process.join()


class Scene:
    """A running cluster with customers, hosts that answer them, and captures. `close` ends all but the cluster."""

    def __init__(self, cluster, count=2000, active_s=30, seed=1):
        self.closing = contextlib.ExitStack()
        self.cluster, hosts = cluster, add_hosts(cluster, NETWORKS)
        self.inside = hosts["inside"]
        with cluster.switches["inside"].namespace:
            ip(f"route add {CUSTOMERS} via {NETWORKS['inside'][1][0]}")
        with hosts["inside"]:
            ip(f"route add local {CUSTOMERS} dev lo")
        for namespace in hosts.values():
            with namespace:
                without_offloads("wire")
        with hosts["outside"]:
            made = [[socket.socket(socket.AF_INET, kind) for _ in HOSTS] for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)]
        for sockets in made:
            for one, host in zip(sockets, HOSTS):
                self.closing.enter_context(one)
                one.bind(host)
        for one in made[0]:
            one.listen(1000)
        answering = multiprocessing.Process(target=answer, args=made, daemon=True)
        answering.start()
        self.closing.callback(answering.join)
        self.closing.callback(answering.kill)
        self.captures = [Capture(cluster.switches[side].namespace, "hosts", cluster.path(f"{side}.pcap")) for side in SIDES]
        self.customers = Customers(hosts["inside"], count, active_s, seed)
        for one in (*self.captures, self.customers):
            self.closing.callback(one.close)

    def judge(self):
        """Ends customers and captures. Returns what check_nat.py says of the captures, and how many packets these lack."""
        self.customers.stop()
        time.sleep(0.5)
        until = time.time_ns()
        lost = sum(one.end() for one in self.captures)
        return check_nat.check_switches(*(one.path for one in self.captures), until, OWN, [CUSTOMERS], [POOL], HOPS, BLOCK), lost

    def close(self):
        self.closing.close()


def of_bridge(links, key, value):
    """Changes links of the bridges between the servers: their names there are y1, y2, ... for packets, m1, m2, ... for the store."""
    def change(cluster):
        with cluster.management:
            for link in links:
                ip(f"link set {link} {key} {value}")
    return change


def links(names):
    return of_bridge(names, "", "down"), of_bridge(names, "", "up")


def direction(side, server, to_server):
    """Makes one direction of a link lose all IPv4 packets, while the link stays up."""
    rules = [("forward", "forward", f"oifname s{server}"), ("output", "output", f"oifname s{server}")] if to_server else \
            [("prerouting", "prerouting", f"iifname s{server}")]

    def cut(cluster):
        with cluster.switches[side].namespace:
            command("nft", "add table ip cut; " + "; ".join(
                f"add chain ip cut {name} {{ type filter hook {hook} priority -300; }}; add rule ip cut {name} {what} drop"
                for name, hook, what in rules))

    def heal(cluster):
        with cluster.switches[side].namespace:
            command("nft", "delete table ip cut")
    return cut, heal


def of_switch(side, server):
    def change(state):
        def do(cluster):
            with cluster.switches[side].namespace:
                ip(f"link set s{server} {state}")
        return do
    return change("down"), change("up")


# Cuts by their names: in words, what cuts, and what heals. Server 2 is the master of some shards and the slave of others, so each cut is one of both.
CUTS = {
    "pair": ("servers 1 and 2 from each other", of_bridge(("y1", "y2"), "type bridge_slave isolated", "on"),
             of_bridge(("y1", "y2"), "type bridge_slave isolated", "off")),
    "servers": ("server 2 from all other servers", *links(["y2"])),
    "all-servers": ("all servers from each other", *links(["sync"])),
    "store": ("server 2 from the store", *links(["m2"])),
    "no-store": ("all servers from the store", *links(["management"])),
    "alone": ("server 2 from the store and all other servers", *links(["m2", "y2"])),
    "inside": ("server 2 from the customers' switch", *of_switch("inside", 2)),
    "outside": ("server 2 from the internet's switch", *of_switch("outside", 2)),
    **{f"{side}-{name}": (f"packets from {words[0]} to {words[1]}", *direction(side, 2, to_server))
       for side, switch in (("inside", "the customers' switch"), ("outside", "the internet's switch"))
       for name, to_server, words in (("to", True, (switch, "server 2")), ("from", False, ("server 2", switch)))},
}
