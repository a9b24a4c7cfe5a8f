#!/usr/bin/env python3
"""Cuts each pair among the servers, the store and the switches of a cluster in turn, while customers of a NAT open sessions all the time, and looks in
captures of both switches for public ports with two customers.

    cluster_cuts.py MILLRACE MILLCTL_CLUSTER [OPTION...]

A round is a new cluster with all cuts in turn. With --results each round is a line of JSON in a file, and rounds that are there already are not made
again. Needs root, and Debian's package frr (its programs: the service need not run).

Exit status: 0; 1 if a port had two customers, or a customer got another one's answer; 2 if a round could not be made; 77 if no cluster can be made
here.
"""

import argparse
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tests"))
from cluster import Cluster, missing, wait_until  # pylint: disable=wrong-import-position
from cluster_ports import CUTS, Scene, configuration  # pylint: disable=wrong-import-position

FAILED, CANNOT_RUN = 2, 77


def make_cut(cluster, name, options):
    """Cuts, heals, and returns when: of CLOCK_MONOTONIC."""
    text, cut, heal = CUTS[name]
    begun = time.monotonic()
    print(f"{begun - options.begun:6.1f} s  {text}", flush=True)
    cut(cluster)
    time.sleep(options.seconds)
    heal(cluster)
    healed, well = time.monotonic(), None
    try:
        wait_until(lambda: cluster.is_well(*["up"] * options.servers), options.patience, 0.5)
        well = round(time.monotonic() - healed, 1)
    except TimeoutError:
        print(f"          not well within {options.patience} s: {troubles(cluster)}", flush=True)
    time.sleep(options.pause)
    return {"cut": name, "begun": begun, "healed": healed, "well_s": well}


def troubles(cluster):
    is_now = cluster.status()
    shards = [one for one in is_now["shards"] if one["troubles"] or not one["in_sync"] or not one["settled"]]
    return [one["state"] for one in is_now["servers"]], len(shards), shards[:3]


def try_once(options, number):
    cluster, scene = Cluster(options.millrace, options.millctl_cluster, configuration, options.servers, options.store, bfd_ms=options.bfd), None
    try:
        cluster.start()
        everyone = [list(range(1, options.servers + 1))] * 2
        wait_until(lambda: cluster.is_well(*["up"] * options.servers) and cluster.next_hops() == everyone, 240, 0.5)
        options.begun = time.monotonic()
        scene = Scene(cluster, options.customers, options.active, number)
        time.sleep(options.before)
        cuts = [make_cut(cluster, name, options) for name in options.cut]
        judge, lost = scene.judge()
        if options.keep:
            cluster.keep(os.path.join(options.keep, str(number)))
        return report(scene.customers, judge, lost, cuts, options)
    finally:
        if scene is not None:
            scene.close()
        cluster.close()


def report(customers, judge, lost, cuts, options):
    usual = [answer is not None for opened, answer in customers.log if opened < cuts[0]["begun"]]
    print(f"\n{'cut':13} {'sessions begun':>14} {'answered':>8}  well again, s\n{'(before)':13} {len(usual):14} {sum(usual):8}")
    for one in cuts:
        of = [answer is not None for opened, answer in customers.log if one["begun"] <= opened < one["healed"]]
        one.update(sessions=len(of), answered=sum(of), at_s=round(one.pop("begun") - options.begun, 1), lasted_s=options.seconds)
        del one["healed"]
        print(f"{one['cut']:13} {one['sessions']:14} {one['answered']:8}  {one['well_s'] if one['well_s'] is not None else '-'}")
    print(f"\nThe captures lack {lost} packets. Of the others: " + ", ".join(f"{count:,} {what}" for what, count in sorted(judge.counts.items())))
    print(f"Customers: {dict(customers.counts)}")
    for text in judge.errors:
        print(text)
    return {"servers": options.servers, "store": options.store, "customers": options.customers, "cuts": cuts, "before": [len(usual), sum(usual)],
            "lost_by_captures": lost, "judged": dict(judge.counts), "counts": dict(customers.counts), "errors": judge.errors}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("millrace")
    parser.add_argument("millctl_cluster")
    parser.add_argument("--cut", nargs="+", choices=CUTS, default=list(CUTS), metavar="CUT",
                        help="these, in this order; all by default: " + "; ".join(f"{name}: {cut[0]}" for name, cut in CUTS.items()))
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--store", choices=("etcd", "zookeeper"), default="etcd")
    parser.add_argument("--customers", type=int, default=2000, help="at most 4000")
    parser.add_argument("--active", type=float, default=30, help="seconds that a customer is active, before he is silent for nine times as long")
    parser.add_argument("--bfd", type=int, default=50, metavar="MS", help="interval of BFD: a longer one for a busy machine")
    parser.add_argument("--before", type=float, default=20, help="seconds before the first cut")
    parser.add_argument("--seconds", type=float, default=20, help="that a cut lasts")
    parser.add_argument("--pause", type=float, default=10, help="seconds after all is well again")
    parser.add_argument("--patience", type=float, default=60, help="seconds that all has until it is well again")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--results", help="adds a line of JSON to this file for each round, and counts those that it has")
    parser.add_argument("--keep", metavar="DIR", help="copies captures and logs of each round there")
    options = parser.parse_args()
    if why := missing(options.millctl_cluster, options.store):
        print(f"cluster_cuts.py: {why}", file=sys.stderr)
        sys.exit(CANNOT_RUN)
    rounds = []
    if options.results and os.path.exists(options.results):
        with open(options.results, encoding="ascii") as file:
            rounds = [json.loads(line) for line in file]
    while len(rounds) < options.rounds:
        try:
            rounds.append(try_once(options, len(rounds)))
        except (RuntimeError, TimeoutError, OSError, subprocess.SubprocessError) as error:
            print(f"cluster_cuts.py: the round could not be made: {error}", file=sys.stderr)
            sys.exit(FAILED)
        if options.results:
            with open(options.results, "a", encoding="ascii") as file:
                file.write(json.dumps(rounds[-1]) + "\n")
    sys.exit(1 if any(one["judged"].get("wrong") or one["counts"].get("stranger") for one in rounds) else 0)


if __name__ == "__main__":
    main()
