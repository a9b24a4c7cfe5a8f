#!/usr/bin/env python3
"""Runs `millrace replay` without configuration over every capture of a folder.

    replay_traces.py MILLRACE [FOLDER] [--skip-judge]

Each run must end with status 0; or with 3 if libpcap itself refuses the file, if millrace does not read
the link type, or if the file breaks off in the middle; a run of such a broken file must write statistics all
the same. No sanitizer may report an error; the statistics must add up and obey docs/stats.schema.json; every
packet that libpcap sees must be counted (in a pcapng file, every packet that captures.py sees: libpcap does not read all of them); and
check_balance.py must find no error in the written capture. Exit status 1 if any of this fails, 77 if the
folder is absent.
"""

import argparse
import collections
import ctypes
import ctypes.util
import json
import os
import subprocess
import sys
import tempfile

import captures
import check_balance

HERE = os.path.dirname(os.path.abspath(__file__))
TRACES = os.path.join(HERE, "..", "..", "shared", "traces")
SCHEMA = os.path.join(HERE, "..", "docs", "stats.schema.json")
READ = {
    captures.ETHERNET,
    captures.RAW,
    captures.RAW_OLD,
    captures.IPV4,
    captures.IPV6,
    captures.SLL,
    captures.SLL2,
}
_SKIPPED = 77


class Libpcap:
    """Reads pcap files with libpcap, through its C interface, and pcapng files with captures.py."""

    def __init__(self):
        name = ctypes.util.find_library("pcap") or "libpcap.so.0.8"
        self.library = ctypes.CDLL(name)
        self.library.pcap_open_offline.restype = ctypes.c_void_p
        for call in ("pcap_datalink", "pcap_close"):
            getattr(self.library, call).argtypes = [ctypes.c_void_p]
        self.library.pcap_next_ex.argtypes = [ctypes.c_void_p] * 3

    def look(self, path):
        """Returns (link types, number of packets, True if the file was read to its end), or None if libpcap refuses the file."""
        with open(path, "rb") as file:
            if file.read(4) == b"\x0a\x0d\x0d\x0a":
                capture = captures.Capture(path)
                links = [capture.link_of(packet) for packet in capture]
                return set(links), len(links), capture.whole
        message = ctypes.create_string_buffer(256)
        handle = self.library.pcap_open_offline(os.fsencode(path), message)
        if not handle:
            return None
        header, data = ctypes.c_void_p(), ctypes.c_void_p()
        count = 0
        while (left := self.library.pcap_next_ex(handle, ctypes.byref(header), ctypes.byref(data))) == 1:
            count += 1
        link = self.library.pcap_datalink(handle)
        self.library.pcap_close(handle)
        return {link}, count, left == -2  # PCAP_ERROR_BREAK: the end


def run(millrace, path, folder, *more):
    """Runs a replay with the options `more`. Returns the finished process, the statistics or None, and the path of the
    written capture."""
    stats, out = os.path.join(folder, "stats.json"), os.path.join(folder, "out.pcap")
    for old in (stats, out):
        if os.path.exists(old):
            os.remove(old)
    command = [millrace, "replay", "--in", path, "--out", out, "--stats", stats, "--quiet", *more]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    if not os.path.exists(stats):
        return done, None, out
    with open(stats, encoding="utf-8") as file:
        return done, json.load(file), out


def problems(done, stats, opinion):
    """Yields the errors of one run, apart from those in the written packets."""
    if any(word in done.stderr for word in ("Sanitizer", "runtime error")):
        yield f"a sanitizer: {done.stderr.strip()[:2000]}"
    readable = opinion is not None and opinion[0] <= READ
    expected = 0 if readable and opinion[2] else 3
    if readable and stats is None:
        yield "the run wrote no statistics"
    if done.returncode != expected:
        yield f"status {done.returncode}, expected {expected}: {done.stderr.strip()[-300:]}"
    if done.returncode == 3 and len(done.stderr.strip().splitlines()) != 1:
        yield f"not a one-line error: {done.stderr.strip()[:300]}"
    if stats is None:
        return
    p = stats["packets"]
    gone = p["out"] + sum(p["dropped"].values()) + p["consumed"] + p["held"] + p["hopped"]
    if p["in"] + p["generated"] != gone:
        yield f"{p['in']} packets came in and {p['generated']} were generated, but {gone} were sent, dropped, consumed or held"
    served = p["tracked"] + p["stateless"] + p["related"] + sum(p["untracked"].values())
    c = stats["connections"]
    if c["opened"] != c["live"] + sum(c["closed"].values()):
        yield f"{c['opened']} connections were opened, which must be the sum of {c['live']} live and the closed ones: {c['closed']}"
    if served < p["out"]:
        yield f"{p['out']} packets were sent, and each must be counted as tracked, stateless, related or untracked, but only {served} are"
    if opinion is not None and p["in"] != opinion[1]:
        yield f"{p['in']} packets came in, but the capture has {opinion[1]}"


def capture_files(folder):
    for directory, _, names in sorted(os.walk(folder)):
        for name in sorted(names):
            if not name.endswith((".md", ".txt")):
                yield os.path.join(directory, name)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("millrace", help="the program to test")
    parser.add_argument("folder", nargs="?", default=TRACES)
    parser.add_argument("--skip-judge", action="store_true", help="leave out check_balance.py")
    options = parser.parse_args()
    if not os.path.isdir(options.folder):
        print(f"skipped: no folder {os.path.relpath(options.folder)}")
        return _SKIPPED
    try:
        import jsonschema
    except ImportError:
        print(f"{parser.prog}: needs the package python3-jsonschema", file=sys.stderr)
        return 2
    with open(SCHEMA, encoding="utf-8") as file:
        schema = jsonschema.Draft202012Validator(json.load(file))

    libpcap = Libpcap()
    failures = 0
    statuses, totals = collections.Counter(), collections.Counter()
    with tempfile.TemporaryDirectory() as scratch:
        for path in capture_files(options.folder):
            opinion = libpcap.look(path)
            done, stats, out = run(options.millrace, path, scratch)
            wrong = list(problems(done, stats, opinion))
            statuses[done.returncode] += 1
            if stats is not None:
                wrong += [f"statistics: {e.json_path}: {e.message}" for e in schema.iter_errors(stats)]
                totals.update(stats["packets"]["untracked"])
                totals["tracked"] += stats["packets"]["tracked"]
                if not options.skip_judge:
                    wrong += check_balance.check(path, out, stats)[0].errors
            for text in wrong[:10]:
                print(f"{os.path.relpath(path, options.folder)}: {text}")
            failures += bool(wrong)
    files = sum(statuses.values())
    print(f"{files} captures, by exit status {dict(sorted(statuses.items()))}, {failures} with errors (allowed: 0)")
    print(", ".join(f"{count:,} {name}" for name, count in totals.most_common() if count))
    return 1 if failures or not files else 0


if __name__ == "__main__":
    sys.exit(main())
