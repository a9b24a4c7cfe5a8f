#!/usr/bin/env python3
"""Shows what an event in a cluster interrupts: servers between two switches (FRR) as network namespaces, traffic through them.

    cluster.py MILLRACE MILLCTL_CLUSTER [OPTION...]

TCP connections to a service exchange lines, whose bytes are compared, and UDP conversations exchange numbered datagrams.
Prints what was interrupted and for how long, and packets a second over time. Needs root, and Debian's package frr (its
programs: the service need not run).
"""

import argparse
import heapq
import json
import math
import multiprocessing
import os
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests"))
from cluster import Cluster, missing, wait_until  # pylint: disable=wrong-import-position
from namespaces import ip  # pylint: disable=wrong-import-position

SERVICE, PORT = "203.0.113.10", 80
HOSTS = [f"203.0.113.{n}" for n in (101, 102, 103)]
CUSTOMERS = [f"198.51.100.{n}" for n in range(1, 21)]
# The network of hosts at each switch, the address that its switch has there, and the hosts' addresses.
NETWORKS = {"inside": ("198.51.100.254", CUSTOMERS), "outside": ("203.0.113.254", HOSTS)}


def configuration(number):
    backends = ", ".join(f'{{ address = "{host}", port = {PORT} }}' for host in HOSTS)
    return f"""chain = ["firewall", "balance"]
[spread]
entries = 128
[[route]]
prefix = "198.51.100.0/24"
via = "10.1.{number}.1"
[[route]]
prefix = "203.0.113.0/24"
via = "10.2.{number}.1"
[[firewall.rule]]
name = "customers"
source = ["198.51.100.0/24"]
action = "accept"
[[firewall.rule]]
name = "routing"
source = ["10.0.0.0/8"]
action = "accept"
[[service]]
address = "{SERVICE}"
port = {PORT}
protocol = "tcp"
backends = [{backends}]
"""


def add_hosts(cluster):
    """Adds customers and the internet, each a namespace at a switch."""
    found = {}
    for side, (gateway, addresses) in NETWORKS.items():
        switch = cluster.switches[side].namespace
        hosts = cluster.add_namespace()
        with switch:
            ip(f"link add hosts type veth peer name wire netns {hosts.path}")
            ip("link set hosts up")
            ip(f"address add {gateway}/24 dev hosts")
        with hosts:
            ip("link set lo up")
            ip("link set wire up")
            for address in addresses:
                ip(f"address add {address}/24 dev wire")
            ip(f"route add default via {gateway}")
        found[side] = hosts
    return found


def answer(listening, datagrams):
    """Answers lines and datagrams with themselves, for ever."""
    selector = selectors.DefaultSelector()
    for one in listening:
        selector.register(one, selectors.EVENT_READ, "listen")
    for one in datagrams:
        selector.register(one, selectors.EVENT_READ, "datagram")
    while True:
        for key, _ in selector.select():
            if key.data == "listen":
                accepted, _ = key.fileobj.accept()
                selector.register(accepted, selectors.EVENT_READ, "line")
                continue
            try:
                if key.data == "datagram":
                    data, sender = key.fileobj.recvfrom(2000)
                    key.fileobj.sendto(data, sender)
                elif data := key.fileobj.recv(65536):
                    key.fileobj.sendall(data)
                else:
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
            except OSError:
                pass


class Conversation:
    """A customer's: sends the next message `pace_s` after the answer (TCP), or after the last one (UDP)."""

    def __init__(self, number, made, is_tcp):
        self.number, self.socket, self.is_tcp = number, made, is_tcp
        self.sent, self.got, self.is_broken = 0, b"", ""
        self.answered = []  # times of answers

    def text(self):
        return f"{self.number} {self.sent} ".encode().ljust(99, b".") + b"\n"


class Traffic:
    PACE_S = 0.05

    def __init__(self, hosts, tcp, udp):
        self.hosts = hosts
        self.listening, self.datagrams = [], []
        for host in HOSTS:
            for kind, made in ((socket.SOCK_STREAM, self.listening), (socket.SOCK_DGRAM, self.datagrams)):
                with hosts["outside"]:
                    made.append(socket.socket(socket.AF_INET, kind))
                made[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                made[-1].bind((host, PORT))
        for one in self.listening:
            one.listen(1000)
        self.process = multiprocessing.Process(target=answer, args=(self.listening, self.datagrams), daemon=True)
        self.process.start()
        self.selector = selectors.DefaultSelector()
        self.due = []
        self.all = [self.begin(number, number < tcp) for number in range(tcp + udp)]

    def begin(self, number, is_tcp):
        with self.hosts["inside"]:
            made = socket.socket(socket.AF_INET, socket.SOCK_STREAM if is_tcp else socket.SOCK_DGRAM)
        made.settimeout(10)
        made.bind((CUSTOMERS[number % len(CUSTOMERS)], 0))
        made.connect((SERVICE, PORT) if is_tcp else (HOSTS[number % len(HOSTS)], PORT))
        made.setblocking(False)
        one = Conversation(number, made, is_tcp)
        self.selector.register(made, selectors.EVENT_READ, one)
        heapq.heappush(self.due, (time.monotonic() + number % 50 / 1000, number))
        return one

    def send(self, one):
        one.sent += 1
        try:
            one.socket.send(one.text())
        except OSError as error:
            if one.is_tcp:
                one.is_broken = str(error)
        if not one.is_tcp:
            heapq.heappush(self.due, (time.monotonic() + self.PACE_S, one.number))

    def receive(self, one):
        try:
            data = one.socket.recv(65536)
        except OSError as error:
            if one.is_tcp:
                one.is_broken = str(error)
                self.selector.unregister(one.socket)
            return
        if one.is_tcp:
            one.got += data
            if not data or not one.text().startswith(one.got):
                one.is_broken = "ended" if not data else "damaged"
                self.selector.unregister(one.socket)
                return
            if len(one.got) < 100:
                return
            one.got = b""
            heapq.heappush(self.due, (time.monotonic() + self.PACE_S, one.number))
        one.answered.append(time.monotonic())

    def run(self, until):
        while (now := time.monotonic()) < until:
            while self.due and self.due[0][0] <= now:
                one = self.all[heapq.heappop(self.due)[1]]
                if not one.is_broken:
                    self.send(one)
            wait = min(self.due[0][0] if self.due else until, until) - time.monotonic()
            for key, _ in self.selector.select(max(wait, 0)):
                self.receive(key.data)

    def close(self):
        self.process.kill()
        self.process.join()
        for one in (*self.listening, *self.datagrams, *(one.socket for one in self.all)):
            one.close()

    def gaps(self, since, until):
        """Returns the longest time without an answer of each conversation, in ms."""
        found = []
        for one in self.all:
            times = [at for at in one.answered if since <= at < until]
            times = [max((at for at in one.answered if at < since), default=since), *times]
            longest = max((b - a for a, b in zip(times, times[1:])), default=until - since)
            found.append(1000 * (longest - self.PACE_S))
        return found


def chart(times, begin, end, event, step=0.1):
    """Prints answers a second, a line for each tenth of a second."""
    counts = [0] * round((end - begin) / step)
    for at in times:
        place = math.floor((at - begin) / step)
        if 0 <= place < len(counts):
            counts[place] += 1
    most = max(counts)
    for place, count in enumerate(counts):
        at = begin + place * step
        mark = " <- the event" if at <= event < at + step else ""
        print(f"{at - event:7.1f} s {count / step:8.0f}/s {'#' * round(40 * count / max(most, 1))}{mark}")
    return [{"at_s": round(begin + n * step - event, 2), "answers_per_s": count / step} for n, count in enumerate(counts)]


def happen(cluster, event):
    """Lets server 2 suffer the event."""
    if event == "kill":
        cluster.dataplanes[2].kill()
    elif event == "stop":
        cluster.dataplanes[2].send_signal(signal.SIGSTOP)
    elif event == "agent":
        cluster.agents[2].kill()
    elif event in ("inside", "outside"):
        with cluster.switches[event].namespace:
            ip("link set s2 down")


EVENTS = {"kill": "server 2's millrace is killed", "stop": "server 2's millrace hangs", "agent": "server 2's agent is killed",
          "inside": "server 2's link to the customers' switch fails", "outside": "server 2's link to the internet's switch fails",
          "none": "nothing happens"}


class Healing(threading.Thread):
    """Finds out after how many seconds every shard has two copies in sync again, at servers that are there."""

    def __init__(self, cluster, event):
        super().__init__(daemon=True)
        self.cluster, self.event, self.seconds = cluster, event, None

    def is_whole(self):
        try:
            shards = self.cluster.status()["shards"]
        except (RuntimeError, subprocess.TimeoutExpired):
            return False
        return all(one["in_sync"] and 2 not in (one["master"], one["slave"]) for one in shards)

    def run(self):
        while not self.is_whole():
            time.sleep(0.2)
        self.seconds = time.monotonic() - self.event


def measure(cluster, options):
    print(f"Starting {options.servers} servers, two switches and a store ...", flush=True)
    cluster.start()
    wait_until(lambda: cluster.is_well(*["up"] * options.servers), 120)
    everyone = [list(range(1, options.servers + 1))] * 2
    wait_until(lambda: cluster.next_hops() == everyone, 60)
    traffic = Traffic(add_hosts(cluster), options.tcp, options.udp)
    try:
        print(f"{options.tcp} TCP connections and {options.udp} UDP conversations go through all of them.", flush=True)
        begun = time.monotonic()
        traffic.run(begun + options.before)
        event = time.monotonic()
        happen(cluster, options.event)
        healing = Healing(cluster, event) if options.event in ("kill", "stop") else None
        if healing is not None:
            healing.start()
        traffic.run(event + options.after)
        end = time.monotonic()
        if healing is not None:
            healing.join(120)
        return report(traffic, options, (begun, event, end), healing and healing.seconds)
    finally:
        traffic.close()


def report(traffic, options, times, healed):
    begun, event, end = times
    idle = traffic.gaps(begun + 1, event)
    gaps = traffic.gaps(event, end)
    usual = max(idle)
    hit = sorted(gap for gap in gaps if gap > usual)
    broken = [one for one in traffic.all if one.is_broken]
    lost = sum(one.sent - len(one.answered) for one in traffic.all if not one.is_tcp)
    print(f"\n{EVENTS[options.event]}:\n")
    curve = chart([at for one in traffic.all for at in one.answered], event - 1, min(event + 3, end), event)
    print(f"\n{len(hit)} of {len(gaps)} conversations waited longer than any did before ({usual:.0f} ms)", end="")
    print(f": {statistics.median(hit):.0f} ms in the median, {hit[-1]:.0f} ms at most." if hit else ".")
    print(f"{len(broken)} of {options.tcp} TCP connections were reset or damaged; {lost} datagrams were lost.")
    if healed is not None:
        print(f"Every shard had two copies again after {healed:.1f} s.")
    return {"event": options.event, "interruption_ms": {"of": len(hit), "median": statistics.median(hit) if hit else 0,
                                                        "most": hit[-1] if hit else 0, "all": [round(gap, 1) for gap in hit],
                                                        "idle_most": usual},
            "resets": len(broken), "broken": [f"{one.number}: {one.is_broken}" for one in broken], "lost": lost, "healed_s": healed,
            "conversations": {"tcp": options.tcp, "udp": options.udp}, "servers": options.servers, "curve": curve}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("millrace")
    parser.add_argument("millctl_cluster")
    parser.add_argument("--event", choices=EVENTS, default="kill", help="what happens to server 2")
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--tcp", type=int, default=50, help="connections")
    parser.add_argument("--udp", type=int, default=50, help="conversations")
    parser.add_argument("--before", type=float, default=5, help="seconds before the event")
    parser.add_argument("--after", type=float, default=10, help="seconds after it")
    parser.add_argument("--json", help="writes the result to this file")
    options = parser.parse_args()
    if why := missing(options.millctl_cluster):
        sys.exit(f"cluster.py: {why}")
    cluster = Cluster(options.millrace, options.millctl_cluster, configuration, options.servers)
    try:
        result = measure(cluster, options)
    finally:
        cluster.close()
    if options.json:
        with open(options.json, "w", encoding="ascii") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
