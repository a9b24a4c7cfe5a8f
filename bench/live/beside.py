#!/usr/bin/env python3
"""Measures how fast packets are forwarded by millrace and, in its place, by DPDK's testpmd, in turn.

    beside.py MILLRACE QUESTION [OPTION...]

    packets   60-byte frames of 1000 connections over veth, thousands a second
    tcp       many TCP connections at once over veth (iperf3), Gb/s
    latency   round-trip times of UDP datagrams over veth, microseconds, in turn with the kernel's forwarding, too
    memif     60-byte frames of a million connections over memif, millions a second
    file      frames from a file, which are dropped at the end, nanoseconds a packet, in turn with `bench path`, too

Prints a line for each round, then medians with the least and the greatest value. Needs root, and the packages dpdk-dev,
ethtool, iperf3, tcpreplay; `memif` needs 3400 huge pages.
"""

import argparse
import itertools
import json
import os
import struct
import subprocess
import sys
import tempfile
import time

import place
from place import NOBODY, SERVER, SERVICE, Place, in_words, mac, number_in, packets_of, started, testpmd_words
from captures import write

from cli_case import MILLRACE

PROGRAMS = os.path.join(os.path.dirname(os.path.dirname(MILLRACE)), "bench", "live")


def frame(sender, source, destination, to, port):
    """Returns a UDP frame of 60 bytes; `sender` is a number of an address, and a port."""
    client = struct.pack(">I", sender[0])
    header = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 46, 0, 0, 64, 17, 0, client, bytes(map(int, to.split("."))))
    words = sum(struct.unpack(">10H", header))
    words = (words & 0xFFFF) + (words >> 16)
    check = 0xFFFF - ((words & 0xFFFF) + (words >> 16))
    header = header[:10] + struct.pack(">H", check) + header[12:]
    macs = bytes.fromhex((destination + source).replace(":", ""))
    return macs + b"\x08\x00" + header + struct.pack(">HHHH", sender[1], port, 26, 0) + bytes(18)


def capture(path, senders, destination, to=SERVICE, ports=itertools.repeat(80)):
    """Writes a frame of each sender."""
    frames = (frame(sender, "02:00:00:00:00:01", destination, to, port) for sender, port in zip(senders, ports))
    write(path, 1, ((n * 1000, len(data), data) for n, data in enumerate(frames)))


def packets(options, folder):
    network = Place(MILLRACE, options.device, folder, backend_mac=NOBODY)
    path = os.path.join(folder, "frames.pcap")
    with network.network.middle:
        outside = mac("outside")
    capture(path, clients(1000), outside)

    def one(contender):
        with contender():
            with network.network.client:
                sender = subprocess.Popen(["tcpreplay", "-i", "wire", "-K", "--topspeed", "--loop=0", path],
                                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                with network.network.servers:
                    time.sleep(1)
                    before, start = packets_of("wire"), time.monotonic()
                    time.sleep(options.seconds)
                    return (packets_of("wire") - before) / (time.monotonic() - start) / 1e3
            finally:
                sender.terminate()
                sender.wait()

    compare(options.pairs, {"millrace": lambda: one(network.millrace), "testpmd": lambda: one(network.testpmd)})


def tcp(options, folder):
    most = 125  # connections that one iperf3 opens at most
    ports = [5201 + n for n in range((options.connections + most - 1) // most)]
    network = Place(MILLRACE, options.device, folder, ports=ports)
    each = options.connections // len(ports)

    def one(contender):
        with contender() as address:
            with network.network.servers:
                servers = [subprocess.Popen(["iperf3", "-s", "-1", "-p", str(port)], stdout=subprocess.DEVNULL) for port in ports]
            time.sleep(0.3)
            with network.network.client:
                clients = [subprocess.Popen(["iperf3", "-c", address, "-p", str(port), "-P", str(each), "-t", str(options.seconds),
                                             "-J"], stdout=subprocess.PIPE, text=True) for port in ports]
            try:
                said = [json.loads(client.communicate(timeout=options.seconds + 60)[0]) for client in clients]
                return sum(one["end"]["sum_received"]["bits_per_second"] for one in said) / 1e9
            finally:
                for process in servers + clients:
                    process.kill()
                    process.wait()

    compare(options.pairs, {"millrace": lambda: one(network.millrace), "testpmd": lambda: one(network.testpmd)})


def latency(options, folder):
    network = Place(MILLRACE, options.device, folder, ports=(8080,))
    datagrams = os.path.join(PROGRAMS, "datagrams")
    rounds = {}
    with network.network.servers:
        server = subprocess.Popen([datagrams, "serve", SERVER, "8080"])
    try:
        for number in range(options.pairs):
            for name in "kernel", "millrace", "testpmd":
                with getattr(network, name)() as address, network.network.client:
                    said = json.loads(subprocess.run([datagrams, "send", address, "8080", "1000", "5000", str(options.seconds)],
                                                     capture_output=True, text=True, check=True).stdout)
                rounds.setdefault(name, []).append(said)
                print(number + 1, name, json.dumps(said), flush=True)
    finally:
        server.kill()
        server.wait()
    for name, all_said in rounds.items():
        print(name, {key: in_words([said[key] for said in all_said]) for key in all_said[0] if key.startswith("us_")},
              "sent", sum(said["sent"] for said in all_said), "lost", sum(said["lost"] for said in all_said))


def memif(options, folder):
    path = os.path.join(folder, "frames.pcap")
    capture(path, clients(1 << 20), "02:00:00:00:00:02")
    sockets, configuration = place.memif_configuration(folder)
    servers, clients = place.memif_devices(sockets, "server"), place.memif_devices(sockets, "client")
    stats = os.path.join(folder, "stats.json")
    contenders = {
        "millrace": ([MILLRACE, "run", "-c", configuration, "--control", "none", "--stats", stats], "running with"),
        "testpmd": (testpmd_words(["--lcores=0@(0,1),1@0", *servers], ["--nb-cores=1", "--rxd=8192", "--txd=8192"], huge=True),
                    "Press enter"),
    }
    sender_words = testpmd_words(
        ["--lcores=0@(0,1),1@1", *clients, f"--vdev=net_pcap0,rx_pcap={path},infinite_rx=1", "--vdev=net_null0,no-rx=1"],
        ["--nb-cores=1", "--portlist=2,0,1,3", "--total-num-mbufs=1300000", "--rxd=8192", "--txd=8192", "--interactive"], huge=True)
    sender_words.remove("--auto-start")

    def one(name):
        with started(*contenders[name]), started(sender_words, "testpmd>") as sender:
            def counted(command, pause):
                before = sender.said().count("testpmd>")
                sender.stdin.write(command + "\n")
                sender.stdin.flush()
                time.sleep(pause)
                while sender.said().count("testpmd>") == before:
                    time.sleep(0.05)
                return sender.said()

            counted("start", 3)  # opens all connections
            counted("clear port stats all", 0.1)
            start = time.monotonic()
            time.sleep(options.seconds)
            came = number_in(counted("show port stats 1", 0), r"RX-packets: (\d+)")
            took = time.monotonic() - start
        if name == "millrace":
            with open(stats, encoding="utf-8") as said:
                counts = json.load(said)["packets"]
            print(f"    of {counts['in']} packets dropped, by reason: {({why: n for why, n in counts['dropped'].items() if n})}", flush=True)
        return came / took / 1e6

    compare(options.pairs, {name: lambda name=name: one(name) for name in contenders})


def file(options, folder):
    path = os.path.join(folder, "frames.pcap")
    capture(path, clients(8000), "02:00:00:00:00:02")
    configuration = os.path.join(folder, "f.toml")
    with open(configuration, "w", encoding="ascii") as out:
        out.write(f"""[[port]]
name = "outside"
device = "pcap:{path},infinite_rx=1"
addresses = ["198.51.100.2/24"]
[[port]]
name = "inside"
device = "null"
addresses = ["10.0.0.254/24"]
[[service]]
address = "{SERVICE}"
port = 80
protocol = "udp"
backends = [{{ address = "{SERVER}" }}]
""")

    def millrace():
        stats = os.path.join(folder, "stats.json")
        with started([MILLRACE, "run", "-c", configuration, "--control", os.path.join(folder, "control"), "--stats", stats],
                     "running with"):
            start = time.monotonic()
            time.sleep(options.seconds)
            took = time.monotonic() - start
        with open(stats, encoding="utf-8") as said:
            return took * 1e9 / json.load(said)["packets"]["in"]

    def testpmd():
        words = testpmd_words(["--lcores=0@(0,1),1@0", f"--vdev=net_pcap0,rx_pcap={path},infinite_rx=1", "--vdev=net_null0,no-rx=1"],
                              ["--nb-cores=1", "--total-num-mbufs=60000"])
        with started(words, "Press enter") as process:
            start = time.monotonic()
            time.sleep(options.seconds)
            process.stdin.write("\n")
            process.stdin.flush()
            took = time.monotonic() - start
            process.wait(20)
            return took * 1e9 / number_in(process.said(), r"RX-packets: (\d+)")

    def path_alone():
        out = os.path.join(folder, "path.json")
        subprocess.run([MILLRACE, "bench", "path", "--live", "8000", "--traffic", "uniform", "--json", out],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        with open(out, encoding="utf-8") as said:
            [result] = json.load(said)["results"]
        return result["whole"]["ns_median"]

    values = compare(options.pairs, {"millrace": millrace, "testpmd": testpmd, "path": path_alone})
    above = [a - b - c for a, b, c in zip(values["millrace"], values["testpmd"], values["path"])]
    print("ns of millrace above the sum of testpmd and path:", in_words(above))


def clients(count):
    return [(0x64400000 + n, 4000) for n in range(count)]


def compare(rounds, contenders, other="testpmd"):
    values = {name: [] for name in contenders}
    for number in range(rounds):
        # Every other round runs in reverse order.
        for name in sorted(contenders, reverse=number % 2 == 1):
            values[name].append(contenders[name]())
        print(number + 1, *(f"{name} {values[name][-1]:.4g}" for name in contenders), flush=True)
    ratios = [mine / theirs for mine, theirs in zip(values["millrace"], values[other])]
    print(*(f"{name} {in_words(all_values)}" for name, all_values in values.items()), f"ratio {in_words(ratios)}", sep="; ")
    return values


QUESTIONS = {"packets": packets, "tcp": tcp, "latency": latency, "memif": memif, "file": file}


def main():
    parser = argparse.ArgumentParser(prog="beside.py MILLRACE", description=__doc__.partition("\n")[0])
    parser.add_argument("question", choices=QUESTIONS)
    parser.add_argument("--device", choices=["af_packet", "af_xdp"], default="af_packet")
    parser.add_argument("--pairs", type=int, default=10, help="rounds")
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=1000, help="TCP connections of the question tcp")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        QUESTIONS[options.question](options, folder)


if __name__ == "__main__":
    main()
