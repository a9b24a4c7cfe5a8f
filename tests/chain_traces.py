#!/usr/bin/env python3
"""Compares the load balancer alone with chains of the balancer and `forward`, over every capture of a folder.

    chain_traces.py MILLRACE [FOLDER]

Each capture is replayed without services, and with services at the two destinations of most of its TCP and
UDP connections. The written captures must be the same byte by byte, with the same exit status and the same drops, with
one exception: a chain tracks connections to no service, too, so it lacks ICMP errors about these whose checksum is
wrong (`bad_checksum`). (If the table were full, they would also differ.) Exit status 1 if they differ or the folder
has no capture, 77 if the folder is absent.
"""

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile

import captures
import packets
import replay_traces

CHAINS = ('chain = ["forward", "balance"]', 'chain = ["balance", "forward"]')
SERVICE = """
[[service]]
address = "{destination}"
port = {destination_port}
protocol = "{protocol}"
scheduler = "round-robin"
backends = [{{ address = "{net}1" }}, {{ address = "{net}2", port = 8080 }}]
"""


def replay(millrace, path, folder, configuration):
    """Returns the exit status, the written capture, the drops by reason, and the connections at the end."""
    files = {name: os.path.join(folder, name) for name in ("f.toml", "out", "stats", "connections")}
    for name in files.values():
        if os.path.exists(name):
            os.remove(name)
    with open(files["f.toml"], "w", encoding="utf-8") as file:
        file.write(configuration)
    done = subprocess.run(
        [millrace, "replay", "--in", path, "--config", files["f.toml"], "--quiet", "--out", files["out"], "--stats",
         files["stats"], "--connections", files["connections"]], capture_output=True)  # fmt: skip
    if not os.path.exists(files["stats"]):
        return done.returncode, None, None, []
    with open(files["out"], "rb") as file:
        out = file.read()
    with open(files["stats"], encoding="utf-8") as file:
        dropped = json.load(file)["packets"]["dropped"]
    with open(files["connections"], encoding="utf-8") as file:
        connections = [json.loads(line) for line in file]
    return done.returncode, out, dropped, connections


def services(connections):
    """Returns, as TOML, services at the two commonest destinations of the connections; such a destination may be a client."""
    ends = collections.Counter(
        (c["destination"], c["destination_port"], c["protocol"])
        for c in connections
        if c["protocol"] in ("tcp", "udp") and c["destination_port"] != 0
    )
    text = ""
    for (destination, port, protocol), _ in ends.most_common(2):
        net = "fd00::" if ":" in destination else "10.9.0."
        text += SERVICE.format(destination=destination, destination_port=port, protocol=protocol, net=net)
    return text


def wrong_errors_left_out(alone, together, folder):
    """Returns how many packets the capture `together` lacks, all of them ICMP errors with wrong checksums; None if the captures
    differ in another way."""
    files = [os.path.join(folder, name) for name in ("alone", "together")]
    for name, written in zip(files, (alone, together)):
        with open(name, "wb") as file:
            file.write(written)
    alone, together = (captures.Capture(name) for name in files)
    rest, lacks = iter(together), 0
    expected = next(rest, None)
    for packet in alone:
        if packet == expected:
            expected = next(rest, None)
        elif packets.is_wrong_error(alone.link_of(packet), packet[2]):
            lacks += 1
        else:
            return None
    return lacks if expected is None else None


def differences(millrace, path, folder):
    alone = replay(millrace, path, folder, 'function = "balance"\n')
    busiest = services(alone[3])
    for case, what in {"no services": "", "services": busiest}.items():
        if what:
            alone = replay(millrace, path, folder, 'function = "balance"\n' + what)
        for chain in CHAINS:
            together = replay(millrace, path, folder, chain + "\n" + what)
            if None not in (alone[1], together[1]) and alone[1] != together[1]:
                lacks = wrong_errors_left_out(alone[1], together[1], folder)
                if lacks is not None:
                    drops = collections.Counter(together[2]) - collections.Counter(bad_checksum=lacks)
                    together = (together[0], alone[1], drops, together[3])
            for name, one, other in zip(("exit status", "packets", "drops"), alone, together):
                if one != other:
                    yield f"{chain}, {case}: not the same {name} as without a chain"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("millrace", help="the program to test")
    parser.add_argument("folder", nargs="?", default=replay_traces.TRACES)
    options = parser.parse_args()
    if not os.path.isdir(options.folder):
        print(f"skipped: no folder {os.path.relpath(options.folder)}")
        return 77
    captures, wrong = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for path in replay_traces.capture_files(options.folder):
            captures += 1
            for text in differences(options.millrace, path, folder):
                print(f"{os.path.relpath(path, options.folder)}: {text}")
                wrong += 1
    print(f"{captures} captures, alone and in chains: {wrong} differences (allowed: 0)")
    return 1 if wrong or not captures else 0


if __name__ == "__main__":
    sys.exit(main())
