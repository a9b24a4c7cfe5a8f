#!/usr/bin/env python3
"""Measures what reloads, restarts and moving shards of a running millrace cost the traffic that it forwards.

    changes.py MILLRACE QUESTION [OPTION...]

    datagrams  UDP conversations with a server that echoes, over veth, 15,000 datagrams a second
    requests   a thousand TCP connections that request 2000 bytes twice a second, over veth
    both       datagrams and requests at once
    memory     a million UDP connections over memif, from a program that sends from memory

Each question runs without changes (--change none), with a reload every second, with a restart every few seconds, or while a
random shard moves to another worker every 10 ms. Prints a JSON object: what the clients measured, as requests with their
times, or packets sent and lost, and the longest time of one; the losses that millrace counted; and, except for `memory`,
counters of the kernel at both ends, which show where a loss happened. Needs root, and ethtool; `memory` needs 1500 huge pages.
"""

import argparse
import asyncio
import collections
import json
import os
import random
import signal
import subprocess
import tempfile
import threading
import time

from place import SERVER, Place, memif_configuration, memif_devices  # first: adds tests/ to the path
from asked import Connection
from cli_case import MILLRACE

PROGRAMS = os.path.join(os.path.dirname(os.path.dirname(MILLRACE)), "bench", "live")
ASKED = 2000  # bytes of a response
LEVEL = "[spread]\nlevel = true\nlevel_interval_ms = 60000"  # levels so seldom that only the requested moves matter
# Counters of the kernel. `TCPOFOQueue` counts TCP segments that came behind a gap. `RetransSegs` counts segments sent
# again; `TCPDSACKRecv` counts reports of the other end that a segment came twice: its first copy was late, not lost.
OF_THE_KERNEL = ("AttemptFails", "EstabResets", "OutRsts", "RetransSegs", "TCPDSACKRecv", "TCPLossProbes", "TCPTimeouts",
                 "TCPOFOQueue", "InDatagrams", "RcvbufErrors", "SndbufErrors", "InDiscards")


class Forwarder:
    """A running millrace, and the changes made to it."""

    def __init__(self, path, control, namespace=None):
        self._path, self._control, self._namespace = path, control, namespace
        self._stats = path + ".json"
        self.changes = 0
        self.failed = []  # responses to requests for moves that failed
        self._connection = self._shards = None
        self._process = self._start()

    def _start(self, *more):
        words = [MILLRACE, "run", "-c", self._path, "--control", self._control, "--stats", self._stats, *more]
        if self._namespace is None:
            process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        else:
            with self._namespace:
                process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        said = ""
        while "running with" not in said:
            line = process.stderr.readline()
            if not line:
                raise RuntimeError(said)
            said += line
        threading.Thread(target=process.stderr.read, daemon=True).start()
        return process

    def restart(self):
        old, self._process = self._process, self._start("--take-over")
        old.wait(100)
        self.changes += 1

    def reload(self):
        with open(self._path, encoding="ascii") as file:
            text = file.read()
        weights = ("weight = 1 ", "weight = 2 ")
        with open(self._path, "w", encoding="ascii") as file:
            file.write(text.replace(*(weights if weights[0] in text else weights[::-1])))
        self._process.send_signal(signal.SIGHUP)
        self.changes += 1

    def _ask(self, what):
        """Sends a request on the connection that is kept for all requests. Returns status and body."""
        self._connection.request(*what.split())
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read())

    def move(self):
        if self._shards is None:
            self._connection = Connection(self._control)
            self._shards = self._ask("GET /shards")[1]
        shard, workers = random.choice(self._shards["shards"]), self._shards["workers"]
        to = (shard["worker"] + random.randrange(1, workers)) % workers
        status, answer = self._ask(f"POST /shards/move?shard={shard['shard']}&to={to}")
        if status != 200:
            self.failed.append(answer)
            return
        shard["worker"] = to
        self.changes += 1

    def stop(self):
        """Ends the last process. Returns the number of changes, the failed moves, and of this process the counters of losses that
        are not 0 and the busiest worker's share of the packets."""
        self._process.terminate()
        self._process.wait(60)
        with open(self._stats, encoding="utf-8") as said:
            stats = json.load(said)
        return {"times": self.changes, "failed_moves": self.failed, "dropped": without_zeros(stats["packets"]["dropped"]),
                "missed": without_zeros({port["name"]: port["missed"] for port in stats["ports"]}),
                "closed": without_zeros(stats["connections"]["closed"]),
                "busiest": max(worker["share"] for worker in stats["workers"])}


def without_zeros(counts):
    return {name: n for name, n in counts.items() if n}


def kernel_counts(namespace):
    counts = collections.Counter()
    with namespace:
        for file_name in "snmp", "netstat":
            with open("/proc/thread-self/net/" + file_name, encoding="ascii") as file:
                lines = [line.split()[1:] for line in file]
            for names, values in zip(lines[::2], lines[1::2]):
                for name, value in zip(names, values):
                    if name in OF_THE_KERNEL:
                        counts[name] += int(value)
    return without_zeros(counts)


def changing(forwarder, options, processes):
    """Changes the forwarder until the processes end. Returns the members of all JSON objects that the processes printed."""
    every = {"none": None, "reload": 1, "restart": options.every, "move": 0.01}[options.change]
    pause = every
    for process in processes:
        while every is not None:
            try:
                process.wait(pause)
                break
            except subprocess.TimeoutExpired:
                start = time.monotonic()
                getattr(forwarder, options.change)()
                if options.change == "move":
                    pause = max(0, start + every - time.monotonic())
    said = {}
    for process in processes:
        said |= json.loads(process.communicate(timeout=600)[0])
    return said


def wait_for_servers(namespace, count):
    """Waits until port 8080 is in use by TCP and UDP, or by one of the two if `count` is 1."""
    found = 0
    while found < count:
        time.sleep(0.1)
        with namespace:
            found = 0
            for name in "tcp", "udp":
                with open("/proc/thread-self/net/" + name, encoding="ascii") as file:
                    found += any(f":{8080:04X} 00000000:0000" in line for line in file)


def over_veth(options, folder, pairs):
    """Measures over veth. Each of `pairs` is the command of a server and the command of the server's clients."""
    level = LEVEL if options.level or options.change == "move" else ""
    place = Place(MILLRACE, options.device, folder, ports=(8080,), extra="[table]\ncapacity = 40000\n" + level)
    place.know_middle()
    path = os.path.join(folder, "f.toml")
    with open(path, "w", encoding="ascii") as file:
        file.write(place.configuration(options.workers))
    network = place.network
    forwarder = Forwarder(path, os.path.join(folder, "control"), network.middle)
    servers = []
    try:
        with network.servers:
            servers += [subprocess.Popen(serve) for serve, _ in pairs]
        wait_for_servers(network.servers, len(pairs))
        with network.client:
            clients = [subprocess.Popen(send, stdout=subprocess.PIPE, text=True) for _, send in pairs]
        said = changing(forwarder, options, clients)
    finally:
        for server in servers:
            server.kill()
            server.wait()
        counted = forwarder.stop()
    return {**said, **counted, "kernel": {"client": kernel_counts(network.client), "servers": kernel_counts(network.servers)}}


def of_datagrams(options):
    program = os.path.join(PROGRAMS, "datagrams")
    return ([program, "serve", SERVER, "8080"],
            [program, "send", "203.0.113.10", "8080", str(options.conversations), str(options.rate or 15_000), str(options.seconds),
             str(options.in_a_row)])


def of_requests(options):
    own = ["python3", os.path.abspath(__file__), MILLRACE]
    return [*own, "serve"], [*own, "ask", "--connections", str(options.connections or 1000), "--seconds", str(options.seconds)]


def memory(options, folder):
    sockets, path = memif_configuration(folder)
    forwarder = Forwarder(path, os.path.join(folder, "control"))
    words = [os.path.join(PROGRAMS, "frames"), "--no-pci", "--no-telemetry", "--in-memory", "-l", "1", *memif_devices(sockets, "client"),
             "--log-level=1", "--", str(options.connections or 1_000_000), str(options.rate or 500_000), str(options.seconds)]
    try:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        said = changing(forwarder, options, [process])
    finally:
        counted = forwarder.stop()
    return {**said, **counted}


async def serve():
    async def answer(reader, writer):
        while await reader.readline():
            writer.write(bytes(ASKED))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, SERVER, 8080, backlog=1024)
    await server.serve_forever()


async def ask(options):
    took, failed = [], []

    async def one(number):
        await asyncio.sleep(number / options.connections)
        until = time.monotonic() + options.seconds
        try:
            reader, writer = await asyncio.open_connection("203.0.113.10", 8080)
            while time.monotonic() < until:
                start = time.monotonic()
                writer.write(b"\n")
                await asyncio.wait_for(reader.readexactly(ASKED), 20)
                took.append((time.monotonic() - start) * 1e3)
                await asyncio.sleep(max(0, start + 0.5 - time.monotonic()))
            writer.close()
        except (OSError, EOFError, TimeoutError, asyncio.TimeoutError) as error:
            failed.append(repr(error))

    await asyncio.gather(*(one(number) for number in range(options.connections)))
    took.sort()
    print(json.dumps({"requests": len(took), "failed": failed, "ms_50": took[len(took) // 2], "ms_99.99": took[int(len(took) * 0.9999)],
                      "ms_most": took[-1]}))


QUESTIONS = {
    "datagrams": lambda options, folder: over_veth(options, folder, [of_datagrams(options)]),
    "requests": lambda options, folder: over_veth(options, folder, [of_requests(options)]),
    "both": lambda options, folder: over_veth(options, folder, [of_datagrams(options), of_requests(options)]),
    "memory": memory,
}


def main():
    parser = argparse.ArgumentParser(prog="changes.py MILLRACE", description=__doc__.partition("\n")[0])
    parser.add_argument("question", choices=[*QUESTIONS, "serve", "ask"])
    parser.add_argument("--change", choices=["none", "reload", "restart", "move"], default="restart")
    parser.add_argument("--device", choices=["af_packet", "af_xdp"], default="af_packet")
    parser.add_argument("--seconds", type=int, default=24)
    parser.add_argument("--every", type=float, default=4, help="seconds between restarts")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--level", action="store_true", help="configure levelling, as --change move does, so that shards can move")
    parser.add_argument("--connections", type=int, help="TCP connections of the question requests, or UDP connections of memory")
    parser.add_argument("--conversations", type=int, default=10_000, help="UDP conversations of the question datagrams")
    parser.add_argument("--in-a-row", type=int, default=1, help="datagrams that a conversation sends before the next one does")
    parser.add_argument("--rate", type=int, help="packets a second, in the questions datagrams and memory")
    options = parser.parse_args()
    if options.change == "move" and (options.question == "memory" or options.workers < 2):
        parser.error("--change move needs a question over veth (not memory), and --workers 2 or more")
    if options.question == "serve":
        asyncio.run(serve())
    elif options.question == "ask":
        asyncio.run(ask(options))
    else:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps({"change": options.change, **QUESTIONS[options.question](options, folder)}))


if __name__ == "__main__":
    main()
