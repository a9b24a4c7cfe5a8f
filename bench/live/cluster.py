#!/usr/bin/env python3
"""Shows what an event in a cluster interrupts: servers between two switches (FRR) as network namespaces, traffic through them.

    cluster.py MILLRACE MILLCTL_CLUSTER [OPTION...]

TCP connections exchange lines, whose bytes are compared, and UDP conversations exchange numbered datagrams.
Prints what was interrupted and for how long, and packets a second over time. Needs root, and Debian's package frr (its
programs: the service need not run).

A conversation is interrupted if it waits longer for an answer than any conversation did before the event, and longer than it takes to
lose one datagram. With --results each trial is a line of JSON in a file, and trials that are there already are not run again.

Exit status: 0; 1 if a trial could not be made; 77 if no cluster can be made here, and standard error says why.
"""

import argparse
import contextlib
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests"))
from cluster import Cluster, missing, wait_until  # pylint: disable=wrong-import-position
from cluster_events import EVENTS, VICTIM, Happening, Scene  # pylint: disable=wrong-import-position
from cluster_hosts import add_hosts  # pylint: disable=wrong-import-position
from cluster_results import busy, curves, machine, rows  # pylint: disable=wrong-import-position
from cluster_traffic import FUNCTIONS, NETWORKS, Traffic  # pylint: disable=wrong-import-position


CANNOT_RUN, ENDED = 77, 143


def curve_of(times, begin, end, event, step=0.1):
    """Returns answers a second for each whole tenth of a second, by the time after the event."""
    counts = [0] * math.floor((end - begin) / step + 1e-6)
    for at in times:
        place = math.floor((at - begin) / step)
        if 0 <= place < len(counts):
            counts[place] += 1
    return [{"at_s": round(begin + n * step - event, 2), "answers_per_s": round(count / step, 1)} for n, count in enumerate(counts)]


def chart(curve, until_s):
    """Prints the part of a curve from a second before the event to `until_s` after it: a line for each tenth of a second, or for some."""
    shown = [(one["at_s"], one["answers_per_s"]) for one in curve if -1 <= one["at_s"] < until_s]
    each = max(len(shown) // 60, 1)
    shown = [(some[0][0], statistics.mean(answers for _, answers in some)) for some in (shown[at:at + each] for at in range(0, len(shown), each))]
    most = max(answers for _, answers in shown)
    for number, (at, answers) in enumerate(shown):
        mark = " <- the event" if at <= 0 and (number + 1 == len(shown) or shown[number + 1][0] > 0) else ""
        print(f"{at:7.1f} s {answers:8.0f}/s {'#' * round(40 * answers / max(most, 1))}{mark}")


def measure(cluster, options, name):
    event = EVENTS[name]
    servers = options.servers - event.absent
    print(f"Starting {servers} servers, two switches and a store ...", flush=True)
    cluster.start(event.absent)
    everyone = [list(range(1, servers + 1))] * 2

    def wait_until_well():
        try:
            wait_until(lambda: cluster.is_well(*["up"] * servers), 120, 0.5)
            # A server that came late has no shards for two minutes.
            wait_until(lambda: cluster.status()["servers"][VICTIM - 1]["masters"] > 0, 240, 0.5)
            wait_until(lambda: cluster.next_hops() == everyone, 60)
        except TimeoutError as error:
            raise TimeoutError(f"the servers had not all shards and routes {error} (load {os.getloadavg()[0]:.0f} on {os.cpu_count()} processors): "
                               "where other programs need the processors, --bfd 400 may help") from error

    wait_until_well()
    scene = Scene(cluster, add_hosts(cluster, NETWORKS), options)
    event.prepare(scene)
    wait_until_well()
    traffic = Traffic(scene.hosts, FUNCTIONS[options.function], options.tcp, options.udp, options.slow, options.pace, event.size)
    try:
        print(f"{options.tcp} TCP connections and {options.udp} UDP conversations go through all of them.", flush=True)
        before = epochs(scene)
        begun = time.monotonic()
        traffic.run(begun + options.before)
        happening = Happening(event, scene)
        traffic.run(happening.begun + event.lasts_s)
        while happening.goes_on():
            traffic.run(time.monotonic() + 0.1)
        event.finish(scene)
        traffic.run(max(time.monotonic(), happening.begun + event.lasts_s) + options.after)
        end = time.monotonic()
        traffic.await_answers()
        happening.join()
        after = epochs(scene)
        scene.notes["shards_with_new_epochs"] = sum(before[shard] != after[shard] for shard in before)
        return report(traffic, options, name, (begun, happening.begun, end), happening)
    finally:
        traffic.close()
        scene.close()


def epochs(scene):
    return {one["shard"]: one["epoch"] for one in scene.shards()}


def report(traffic, options, name, times, happening):
    begun, event, end = times
    usual = max(traffic.gaps(begun + 1, event), default=0)
    if usual > options.idle_most:
        raise RuntimeError(f"a conversation waited for {usual:.0f} ms before the event: other programs need the processors")
    gaps = traffic.gaps(event, end)
    at_least = max(usual, 1000 * min(traffic.pace_s, 0.05))
    hit, hit_udp = (sorted(gap for gap in found if gap > at_least) for found in (gaps, traffic.gaps(event, end, kinds=(False,))))
    slow = [one for one in traffic.all if one.pace_s == traffic.SLOW_S]
    broken = [one for one in traffic.all if one.is_broken]
    damaged = sum(one.is_broken == "damaged" for one in broken)
    lost = sum(one.sent - len(one.answered) for one in traffic.all if not one.is_tcp)
    print(f"\n{EVENTS[name].text}:\n")
    curve = curve_of([at for one in traffic.all for at in one.answered], event - max(math.floor(options.before) - 1, 1), end, event)
    chart(curve, (end - event) if EVENTS[name].is_slow else 3)
    print(f"\n{len(hit)} of {len(gaps)} conversations were interrupted", end="")
    print(f": for {statistics.median(hit):.0f} ms in the median, {hit[-1]:.0f} ms at most." if hit else ".")
    print(f"(Before, the longest wait was {usual:.0f} ms.)")
    print(f"{len(broken) - damaged} of {options.tcp} TCP connections were reset, {damaged} conversations damaged; {lost} datagrams were lost.")
    if slow:
        print(f"{len(slow)} conversations sent {sum(one.sent for one in slow)} datagrams, one every {traffic.SLOW_S} s: "
              f"{sum(len(one.answered) for one in slow)} were answered.")
    if happening.scene.notes:
        print("; ".join(f"{name.replace('_', ' ')}: {value}" for name, value in happening.scene.notes.items()))
    if happening.healed_s is not None:
        print(f"Every shard had two copies again after {happening.healed_s:.1f} s.")
    return {"event": name, "interruption_ms": {"of": len(hit), "median": statistics.median(hit) if hit else 0,
                                               "most": hit[-1] if hit else 0, "all": [round(gap, 1) for gap in hit],
                                               "udp": [round(gap, 1) for gap in hit_udp], "idle_most": round(usual, 1)},
            "resets": len(broken) - damaged, "damaged": damaged, "broken": [f"{one.number}: {one.is_broken}" for one in broken], "lost": lost,
            "healed_s": happening.healed_s, "conversations": conversations(options), "slow_sent_answered": [sum(one.sent for one in slow), sum(len(one.answered) for one in slow)], "servers": options.servers,
            "function": options.function, "store": options.store, "before_s": options.before, "after_s": options.after, "bfd_ms": options.bfd, "notes": happening.scene.notes, "curve": curve}


def conversations(options):
    return {"tcp": options.tcp, "udp": options.udp, "slow": options.slow, "pace_s": options.pace}


def try_once(options, name):
    function = FUNCTIONS[options.function]
    cluster = Cluster(options.millrace, options.millctl_cluster, function.configuration, options.servers, options.store, function.ports,
                      EVENTS[name].agent and EVENTS[name].agent(options), options.bfd)
    try:
        return measure(cluster, options, name)
    finally:
        if options.keep:
            cluster.keep(os.path.join(options.keep, f"{name}-{time.strftime('%H%M%S')}"))
        cluster.close()


class Results:
    """Trials in a file, a line each. Without a file they are kept in memory."""

    def __init__(self, path):
        self.path, self.trials = path, []
        if path and os.path.exists(path):
            with open(path, encoding="ascii") as file:
                self.trials = [json.loads(line) for line in file]

    def of(self, options, name):
        """Returns the trials of an event under the same conditions."""
        is_so = {"event": name, "servers": options.servers, "function": options.function, "store": options.store,
                 "conversations": conversations(options), "before_s": options.before, "after_s": options.after, "bfd_ms": options.bfd}
        return [one for one in self.trials if all(one.get(key) == value for key, value in is_so.items())]

    def add(self, trial):
        self.trials.append(trial)
        if self.path:
            with open(self.path, "a", encoding="ascii") as file:
                file.write(json.dumps({name: value for name, value in trial.items() if name != "curve"}) + "\n")


def summarize(results, options):
    print(f"\n{'event':13} {'trials':>6} {'hit':>5} {'median':>7} {'90 %':>6} {'most':>6} {'idle':>6} {'resets':>6} {'damaged':>7} {'lost':>6} "
          f"{'healed, s':>14} {'shards':>6}")
    for name in options.event:
        trials = results.of(options, name)
        if not trials:
            continue
        all_gaps = sorted(gap for one in trials for gap in one["interruption_ms"]["all"])
        at = [all_gaps[min(math.floor(part * len(all_gaps)), len(all_gaps) - 1)] if all_gaps else 0 for part in (0.5, 0.9, 1)]
        healed = [one["healed_s"] for one in trials if one["healed_s"] is not None]
        text = f"{statistics.median(healed):.1f} ({max(healed):.1f})" if healed else "-"
        of = {what: sum(one[what] for one in trials) for what in ("resets", "damaged", "lost")}
        print(f"{name:13} {len(trials):6} {len(all_gaps):5} {at[0]:7.0f} {at[1]:6.0f} {at[2]:6.0f} "
              f"{max(one['interruption_ms']['idle_most'] for one in trials):6.0f} {of['resets']:6} {of['damaged']:7} {of['lost']:6} "
              f"{text:>14} {sum(one['notes']['shards_with_new_epochs'] for one in trials):6}")
    print("\nhit: conversations that were interrupted. Their longest waits: median, 90 % and most, in ms. idle: the longest wait before an\n"
          "event. lost: datagrams, before and after. healed: seconds until every shard had two copies again, median and most. shards:\n"
          "shards that other servers have, or had meanwhile.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("millrace")
    parser.add_argument("millctl_cluster")
    parser.add_argument("--event", nargs="+", choices=[*EVENTS, "all"], default=["kill"], metavar="EVENT",
                        help="all, or: " + "; ".join(f"{name}: {event.text}" for name, event in EVENTS.items()))
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--function", choices=FUNCTIONS, default="balance", help="balance: the load balancer behind the firewall; "
                        "nat: NAT, with customers behind GRE tunnels")
    parser.add_argument("--store", choices=("etcd", "zookeeper"), default="etcd")
    parser.add_argument("--tcp", type=int, default=50, help="connections")
    parser.add_argument("--udp", type=int, default=50, help="conversations")
    parser.add_argument("--slow", type=int, default=0, help="further UDP conversations, of a message every 110 s")
    parser.add_argument("--pace", type=float, default=0.05, help="seconds from an answer to the next message (UDP: from message to message)")
    parser.add_argument("--bfd", type=int, default=50, metavar="MS", help="interval of BFD, of which three are needed to notice something: a longer one for a busy "
                        "machine")
    parser.add_argument("--before", type=float, default=5, help="seconds before the event")
    parser.add_argument("--after", type=float, default=10, help="seconds after it")
    parser.add_argument("--idle-most", type=float, default=math.inf, metavar="MS",
                        help="a trial does not count if a conversation waited for longer before the event")
    parser.add_argument("--trials", type=int, default=1, help="of each event, each in a new cluster")
    parser.add_argument("--results", help="adds a line of JSON to this file for each trial, and counts those that it has")
    parser.add_argument("--keep", metavar="DIR", help="copies logs of each trial there")
    parser.add_argument("--json", help="writes the result of the last trial to this file, with the rows and curves of all (- is standard output, "
                        "which then has nothing else)")
    options = parser.parse_args()
    if "all" in options.event:
        options.event = list(EVENTS)
    if why := missing(options.millctl_cluster, options.store):
        print(f"cluster.py: {why}", file=sys.stderr)
        sys.exit(CANNOT_RUN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(ENDED))  # so that the cluster is ended, too
    if warning := busy():
        print(f"cluster.py: {warning}", file=sys.stderr)
    out = sys.stdout
    if options.json == "-":
        sys.stdout = open(os.devnull, "w", encoding="ascii")  # pylint: disable=consider-using-with
    results, failed = Results(options.results), 0
    for number in range(options.trials):
        for name in options.event:
            if len(results.of(options, name)) > number:
                continue
            try:
                results.add(try_once(options, name))
            except (RuntimeError, TimeoutError, OSError, subprocess.SubprocessError) as error:
                failed += 1
                print(f"cluster.py: {name}: the trial could not be made: {error}", file=sys.stderr)
    if options.json and results.trials:
        trials = [one for name in options.event for one in results.of(options, name)]
        whole = results.trials[-1] | {"machine": machine(), "results": rows(trials), "curve": curves(trials)}
        with contextlib.nullcontext(out) if options.json == "-" else open(options.json, "w", encoding="ascii") as file:
            json.dump(whole, file, indent=1)
    if options.trials > 1 or options.results or len(options.event) > 1:
        summarize(results, options)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
