#!/usr/bin/env python3
"""Shows what an event in a cluster interrupts: servers between two switches (FRR) as network namespaces, traffic through them.

    cluster.py MILLRACE MILLCTL_CLUSTER [OPTION...]

TCP connections exchange lines, whose bytes are compared, and UDP conversations exchange numbered datagrams.
Prints what was interrupted and for how long, and packets a second over time. Needs root, and Debian's package frr (its
programs: the service need not run).

A conversation is interrupted if it waits longer for an answer than any conversation did before the event, and longer than it takes to
lose one datagram. With --results each trial is a line of JSON in a file, and trials that are there already are not run again.
"""

import argparse
import json
import math
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests"))
from cluster import Cluster, missing, wait_until  # pylint: disable=wrong-import-position
from cluster_events import EVENTS, VICTIM, Happening, Scene  # pylint: disable=wrong-import-position
from cluster_hosts import add_hosts  # pylint: disable=wrong-import-position
from cluster_traffic import FUNCTIONS, NETWORKS, Traffic  # pylint: disable=wrong-import-position


def chart(times, begin, end, event, step=0.1):
    """Prints answers a second, a line for each `step` seconds."""
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


def measure(cluster, options, name):
    event = EVENTS[name]
    servers = options.servers - event.absent
    print(f"Starting {servers} servers, two switches and a store ...", flush=True)
    cluster.start(event.absent)
    everyone = [list(range(1, servers + 1))] * 2

    def wait_until_well():
        wait_until(lambda: cluster.is_well(*["up"] * servers), 120, 0.5)
        # A server that came late has no shards for two minutes.
        wait_until(lambda: cluster.status()["servers"][VICTIM - 1]["masters"] > 0, 240, 0.5)
        wait_until(lambda: cluster.next_hops() == everyone, 60)

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
    gaps = traffic.gaps(event, end)
    hit = sorted(gap for gap in gaps if gap > max(usual, 1000 * min(traffic.pace_s, 0.05)))
    slow = [one for one in traffic.all if one.pace_s == traffic.SLOW_S]
    broken = [one for one in traffic.all if one.is_broken]
    damaged = sum(one.is_broken == "damaged" for one in broken)
    lost = sum(one.sent - len(one.answered) for one in traffic.all if not one.is_tcp)
    print(f"\n{EVENTS[name].text}:\n")
    is_slow = EVENTS[name].is_slow
    curve = chart([at for one in traffic.all for at in one.answered], event - 1, end if is_slow else event + 3, event, max((end - event) / 60, 0.1) if is_slow else 0.1)
    print(f"\n{len(hit)} of {len(gaps)} conversations were interrupted", end="")
    print(f": for {statistics.median(hit):.0f} ms in the median, {hit[-1]:.0f} ms at most." if hit else ".")
    print(f"(Before, the longest wait was {usual:.0f} ms.)")
    print(f"{len(broken) - damaged} of {options.tcp} TCP connections were reset, {damaged} conversations damaged; {lost} datagrams were lost.")
    if slow:
        print(f"{len(slow)} conversations sent {sum(one.sent for one in slow)} datagrams, one every {traffic.SLOW_S} s: "
              f"{sum(len(one.answered) for one in slow)} were answered.")
    if happening.scene.notes:
        print(happening.scene.notes)
    if happening.healed_s is not None:
        print(f"Every shard had two copies again after {happening.healed_s:.1f} s.")
    return {"event": name, "interruption_ms": {"of": len(hit), "median": statistics.median(hit) if hit else 0,
                                               "most": hit[-1] if hit else 0, "all": [round(gap, 1) for gap in hit],
                                               "idle_most": round(usual, 1)},
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
    parser.add_argument("--trials", type=int, default=1, help="of each event, each in a new cluster")
    parser.add_argument("--results", help="adds a line of JSON to this file for each trial, and counts those that it has")
    parser.add_argument("--keep", metavar="DIR", help="copies logs of each trial there")
    parser.add_argument("--json", help="writes the result of the last trial to this file")
    options = parser.parse_args()
    if "all" in options.event:
        options.event = list(EVENTS)
    if why := missing(options.millctl_cluster, options.store):
        sys.exit(f"cluster.py: {why}")
    results, failed = Results(options.results), 0
    for number in range(options.trials):
        for name in options.event:
            if len(results.of(options, name)) > number:
                continue
            try:
                results.add(try_once(options, name))
            except (RuntimeError, TimeoutError, OSError) as error:
                failed += 1
                print(f"cluster.py: {name}: the trial could not be made: {error}", file=sys.stderr)
    if options.json and results.trials:
        with open(options.json, "w", encoding="ascii") as file:
            json.dump(results.trials[-1], file, indent=1)
    if options.trials > 1 or options.results or len(options.event) > 1:
        summarize(results, options)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
