#!/usr/bin/env python3
"""What reloads and restarts of a running millrace cost those whose packets it forwards.

    changes.py MILLRACE QUESTION [OPTION...]

    datagrams  UDP conversations that are echoed over veth, 15,000 datagrams a second
    requests   a thousand TCP connections that ask for 2000 bytes twice a second, over veth
    memory     a million UDP connections over memif, from a program that sends from memory

Each runs for a while with nothing changed (--change none), with a reload every second, or with a restart now and
again. Prints what was sent and lost, and how long the slowest took. Needs root, and ethtool; `memory` needs 1500 huge
pages.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import tempfile
import threading
import time

from place import SERVER, Place, memif_configuration, memif_devices  # first: it knows where tests are
from cli_case import MILLRACE

PROGRAMS = os.path.join(os.path.dirname(os.path.dirname(MILLRACE)), "bench", "live")
ASKED = 2000  # bytes


class Forwarder:
    """A millrace that runs, and what is done to it."""

    def __init__(self, path, control, namespace=None):
        self._path, self._control, self._namespace = path, control, namespace
        self._stats = path + ".json"
        self.changes = 0
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

    def stop(self):
        """What the last of them dropped."""
        self._process.terminate()
        self._process.wait(60)
        with open(self._stats, encoding="utf-8") as said:
            return {why: n for why, n in json.load(said)["packets"]["dropped"].items() if n}


def changing(forwarder, options, process):
    """Until the process ends: what it printed."""
    every = {"none": None, "reload": 1, "restart": options.every}[options.change]
    while every is not None:
        try:
            process.wait(every)
            break
        except subprocess.TimeoutExpired:
            getattr(forwarder, options.change)()
    return json.loads(process.communicate(timeout=600)[0])


def over_veth(options, folder, serve, send):
    place = Place(MILLRACE, options.device, folder, ports=(8080,), extra="[table]\ncapacity = 40000")
    place.know_middle()
    path = os.path.join(folder, "f.toml")
    with open(path, "w", encoding="ascii") as file:
        file.write(place.configuration())
    forwarder = Forwarder(path, os.path.join(folder, "control"), place.network.middle)
    with place.network.servers:
        server = subprocess.Popen(serve)
    try:
        time.sleep(0.5)
        with place.network.client:
            client = subprocess.Popen(send, stdout=subprocess.PIPE, text=True)
        said = changing(forwarder, options, client)
    finally:
        server.kill()
        server.wait()
        dropped = forwarder.stop()
    return {**said, "times": forwarder.changes, "dropped": dropped}


def datagrams(options, folder):
    program = os.path.join(PROGRAMS, "datagrams")
    return over_veth(options, folder, [program, "serve", SERVER, "8080"],
                     [program, "send", "203.0.113.10", "8080", str(options.connections or 10_000), "15000", str(options.seconds)])


def requests(options, folder):
    own = ["python3", os.path.abspath(__file__), MILLRACE]
    return over_veth(options, folder, [*own, "serve"],
                     [*own, "ask", "--connections", str(options.connections or 1000), "--seconds", str(options.seconds)])


def memory(options, folder):
    sockets, path = memif_configuration(folder)
    forwarder = Forwarder(path, os.path.join(folder, "control"))
    words = [os.path.join(PROGRAMS, "frames"), "--no-pci", "--no-telemetry", "--in-memory", "-l", "1", *memif_devices(sockets, "client"),
             "--log-level=1", "--", str(options.connections or 1_000_000), str(options.rate), str(options.seconds)]
    try:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        said = changing(forwarder, options, process)
    finally:
        dropped = forwarder.stop()
    return {**said, "times": forwarder.changes, "dropped": dropped}


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


QUESTIONS = {"datagrams": datagrams, "requests": requests, "memory": memory}


def main():
    parser = argparse.ArgumentParser(prog="changes.py MILLRACE", description=__doc__.partition("\n")[0])
    parser.add_argument("question", choices=[*QUESTIONS, "serve", "ask"])
    parser.add_argument("--change", choices=["none", "reload", "restart"], default="restart")
    parser.add_argument("--device", choices=["af_packet", "af_xdp"], default="af_packet")
    parser.add_argument("--seconds", type=int, default=24)
    parser.add_argument("--every", type=float, default=4, help="seconds between restarts")
    parser.add_argument("--connections", type=int)
    parser.add_argument("--rate", type=int, default=500_000, help="packets a second, of memory")
    options = parser.parse_args()
    if options.question == "serve":
        asyncio.run(serve())
    elif options.question == "ask":
        asyncio.run(ask(options))
    else:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps({"change": options.change, **QUESTIONS[options.question](options, folder)}))


if __name__ == "__main__":
    main()
