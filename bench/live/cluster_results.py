"""Trials of events in a cluster as the study takes them: rows, curves, and the machine, described as benches do (bench/machine.cc)."""

import glob
import os
import statistics


def _spread(name, values):
    """Returns median, least and most under the names that the study knows. `values` may be empty: then nothing was measured."""
    three = (statistics.median(values), min(values), max(values)) if values else (None, None, None)
    return dict(zip((f"{name}_median", f"{name}_min", f"{name}_max"), three))


def _by_event(trials):
    found = {}
    for one in trials:
        found.setdefault(one["event"], []).append(one)
    return found.items()


def rows(trials):
    """Returns a row for each event. Without interruptions they took 0 ms. `udp_ms` has those of UDP alone, which waits for nothing of its own,
    whereas TCP sends again only after 200 ms."""
    found = []
    for event, of_it in _by_event(trials):
        waits = [one["interruption_ms"] for one in of_it]
        healed = [one["healed_s"] for one in of_it if one["healed_s"] is not None]
        found.append({
            "event": event, "function": of_it[0]["function"], "store": of_it[0]["store"], "servers": of_it[0]["servers"], "trials": len(of_it),
            "of": sum(one["conversations"]["tcp"] + one["conversations"]["udp"] for one in of_it), "interrupted": sum(one["of"] for one in waits),
            **_spread("interruption_ms", [gap for one in waits for gap in one["all"]] or [0]),
            **_spread("udp_ms", [gap for one in waits for gap in one.get("udp", [])] or [0]), "idle_ms": max(one["idle_most"] for one in waits),
            **{what: sum(one[what] for one in of_it) for what in ("resets", "damaged", "lost")},
            "healed": len(healed), **_spread("healed_s", healed)})
    return found


def curves(trials):
    """Returns answers a second by time after each event, of the trials in the middle, with the least and the most."""
    found = []
    for event, of_it in _by_event(trials):
        at = {}
        for point in (point for one in of_it for point in one.get("curve", [])):
            at.setdefault(point["at_s"], []).append(point["answers_per_s"])
        found += [{"event": event, "at_s": at_s, "answers_per_s": statistics.median(values), "answers_per_s_min": min(values),
                   "answers_per_s_max": max(values)} for at_s, values in sorted(at.items())]
    return found


def _line(path):
    with open(path, encoding="utf-8") as file:
        return file.readline().rstrip("\n")


def busy():
    """Returns a warning if other programs want more processors than there are; otherwise nothing. For the time before a cluster is made."""
    load, processors = os.getloadavg()[0], os.sysconf("SC_NPROCESSORS_ONLN")
    return f"warning: before the first event the load of {processors} processors was {load:.0f}: other programs interrupt, too" if load > processors else ""


def machine():
    caches = sorted(glob.glob("/sys/devices/system/cpu/cpu0/cache/index*"))
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        processor = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), "unknown")
    return {"processor": processor, "cores": os.sysconf("SC_NPROCESSORS_ONLN"),
            "caches": [f"L{_line(f'{at}/level')} {_line(f'{at}/type')} {_line(f'{at}/size')}" for at in caches], "kernel": os.uname().release}
