#!/usr/bin/env python3
"""Checks what the compiler and clang-tidy do not: which folder may include which, and the form of files.

    lint.py         one line a finding; exit status 1 if there is any
"""

import json
import os
import re
import subprocess
import sys

import comments

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

# The folders that each folder may include, besides itself and the public headers (millrace/).
LAYERS = {
    "include": (),
    "src/core": (),
    "src/port": ("core",),
    "src/parse": ("core", "port"),
    "src/fragments": ("core", "port", "parse"),
    "src/host": ("core", "parse"),
    "src/shard": ("core", "port", "parse", "fragments"),
    "src/replicate": ("core",),
    "src/conntrack": ("core",),
    "src/toml": ("core",),
    "src/function": ("core", "parse", "host", "toml"),
    "src/measure": ("core",),
    "src/traffic": ("core", "parse", "port"),
    "src/line": ("core", "port", "parse", "fragments", "replicate", "conntrack", "function", "measure"),
    "src/worker": ("core", "port", "parse", "shard", "replicate", "conntrack", "function", "measure", "line"),
    "src/config": ("core", "port", "host", "shard", "conntrack", "function", "line", "toml"),
    "src/live": ("core", "port", "parse", "host", "shard", "conntrack", "line", "worker", "config"),
    "src/control": ("core", "port", "shard", "function", "line", "worker", "config", "live"),
    "cli/command_line": ("core", "port"),
    "cli": (
        "core", "port", "parse", "host", "shard", "conntrack", "function", "measure", "traffic",
        "line", "worker", "config", "live", "control", "command_line",
    ),
    # `bench` may not include the dataplane's own command line, `cli`; no other folder may include `bench`.
    "bench": (
        "core", "host", "port", "parse", "shard", "conntrack", "function", "measure", "traffic",
        "line", "worker", "config", "command_line",
    ),
}
# Folders that may include everything.
FREE = ("tests", "examples")

# Libraries that only some files may include: (pattern of the header, beginnings of these files' paths).
CONFINED = (
    (re.compile(r"rte_"), ("src/port", "src/shard", "src/conntrack/table/rte_", "src/core/dpdk_", "src/conntrack/sharing/rte_",
                             "bench/live")),
    (re.compile(r"pcap"), ("src/port", "src/traffic", "tests")),
    (re.compile(r"nlohmann/"), ("src/core/json", "src/function", "src/control", "cli", "bench", "tests")),
    (re.compile(r"httplib"), ("src/control", "cli")),
    (re.compile(r"CLI/"), ("cli", "bench")),
    (re.compile(r"toml"), ("src/toml",)),
    # Benchmarks need these libraries, the dataplane does not.
    (re.compile(r"(libcuckoo|boost)/"), ("bench/peer",)),
    (re.compile(r"Zy(dis|core)"), ("bench/stepping",)),
)

# Each folder in src/function is a function. Its headers may be included by that folder, by the list of
# functions, and by tests and benchmarks of one function.
FUNCTIONS = "src/function"
FUNCTION_USERS = re.compile(
    r"src/function/kinds\.cc|src/.*_(test|fuzz)\.cc|src/.*/test_\w+\.h|tests/|bench/(path|overload|rules)"
)

MAX_LINES = 500  # of a file; below 400 is better
CODE = (".h", ".cc", ".c", ".go", ".py", ".sh", ".cmake")
TEXT = CODE + (".md", ".json", ".txt", ".toml", ".in")
SCRIPTS = ("demo", "check", ".ci/run")
SKIPPED = {"build", ".git", "__pycache__", ".cache"}

# A table's header may name its library's header in a macro, which is then included.
_INCLUDE = re.compile(r'^\s*#\s*(?:include|define\s+MILLRACE_LIBRARY)\s+(["<])([^">]+)[">]')
# Absolute paths that exist on one machine only; "[x]" keeps this file from matching itself.
_PATHS = re.compile(r"(?<![\w.$}])/(?:[h]ome|[r]oot|[w]ork|[U]sers)/\w|(?<![\w.$}])/[t]mp/\w")


def files():
    for directory, folders, names in os.walk(ROOT):
        folders[:] = sorted(f for f in folders if f not in SKIPPED)
        for name in sorted(names):
            yield os.path.relpath(os.path.join(directory, name), ROOT)


def layer_of(path):
    return next((layer for layer in LAYERS if path.startswith(layer + "/")), None)


def check_includes(path, lines):
    layer = layer_of(path)
    for number, line in enumerate(lines, 1):
        match = _INCLUDE.match(line)
        if not match:
            continue
        kind, header = match.groups()
        for pattern, homes in CONFINED:
            if kind == "<" and pattern.match(header) and not path.startswith(homes):
                yield number, f"includes <{header}>, which only {', '.join(homes)} may include"
        owner = re.match(r"function/(\w+)/", header)
        if owner and not path.startswith(f"{FUNCTIONS}/{owner[1]}/") and not FUNCTION_USERS.match(path):
            yield number, f'includes "{header}", which is the function {owner[1]}\'s own: use function/kind.h'
        if kind == "<" or layer is None or path.startswith(FREE):
            continue
        folder = header.split("/")[0] if "/" in header else layer.split("/")[-1]
        allowed = {layer.split("/")[-1], "millrace", *LAYERS[layer]}
        if layer == "include":
            allowed = {"millrace"}
        if folder not in allowed:
            yield number, f'includes "{header}"; {layer} may include {", ".join(sorted(allowed))}'


def check_text(path, lines):
    if len(lines) > MAX_LINES and path.endswith(CODE):
        yield len(lines), f"over {MAX_LINES} lines: is it one thing?"
    for number, line in enumerate(lines, 1):
        if line != line.rstrip() or ("\t" in line and not path.endswith(".go")):
            yield number, "trailing space or a tab"
        if _PATHS.search(line):
            yield number, "names a path of one machine"


def check_header(path, lines):
    if path.endswith(".h"):
        if "#pragma once" not in lines and not any(x.startswith("#ifndef ") for x in lines):
            yield 1, "a header without a guard"
        if not lines or not lines[0].startswith(("//", "/*")):
            yield 1, "a header opens with what it is"


def check_built(path):
    """Finds sources that are named in no CMakeLists.txt beside or above them, and so are never compiled."""
    folder, name = os.path.split(path)
    below = name
    while True:
        lists = os.path.join(ROOT, folder, "CMakeLists.txt")
        if os.path.exists(lists):
            with open(lists, encoding="utf-8") as file:
                text = file.read()
            if re.search(rf"(?<![\w./+-]){re.escape(below)}(?![\w./+-])", text):
                return
        if not folder:
            yield 1, "is in no CMakeLists.txt"
            return
        folder, last = os.path.split(folder)
        below = f"{last}/{below}"


def check_script(path, lines):
    first = lines[0] if lines else ""
    executable = os.access(os.path.join(ROOT, path), os.X_OK)
    if path in SCRIPTS and not executable:
        yield 1, "has no run bit"
    if executable and not first.startswith("#!"):
        yield 1, "has a run bit and no interpreter"


def check_schema():
    """Compares the reasons for drops in the schema of the statistics with those in the code."""
    with open(os.path.join(ROOT, "src/core/verdict.h"), encoding="utf-8") as file:
        kinds = re.findall(r'VerdictKind\{Verdict::\w+, "(\w+)", Outcome::(\w+)', file.read())
    verdicts = {name for name, outcome in kinds if outcome not in ("served", "host", "passed")}
    verdicts |= {"not_sent", "not_handed"}  # reasons of ports, which are no verdicts
    with open(os.path.join(ROOT, "docs/stats.schema.json"), encoding="utf-8") as file:
        packets = json.load(file)["properties"]["packets"]["properties"]
    dropped = set(packets["dropped"]["propertyNames"]["enum"])
    for reason in sorted(dropped ^ verdicts):
        yield 1, f"the reason {reason} must be both in src/core/verdict.h and here"


def check_shell():
    scripts = [p for p in files() if p.endswith(".sh") or p in SCRIPTS]
    try:
        done = subprocess.run(
            ["shellcheck", "--format=gcc", "--external-sources", *scripts],
            cwd=ROOT, capture_output=True, text=True,
        )
    except FileNotFoundError:
        return ["shellcheck is not installed"]
    return (done.stdout + done.stderr).strip().splitlines()


def main():
    findings = []
    for path in files():
        if not path.endswith(TEXT) and path not in SCRIPTS:
            continue
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            content = file.read()
        lines = content.splitlines()
        found = list(check_text(path, lines)) + list(check_header(path, lines))
        found += check_script(path, lines)
        found += comments.check(path, lines)
        if content and not content.endswith("\n"):
            found.append((len(lines), "no newline at the end"))
        if path.endswith((".h", ".cc", ".c")):
            found += check_includes(path, lines)
        if path.endswith((".cc", ".c")) and not path.startswith("examples"):
            found += check_built(path)
        findings += [f"{path}:{number}: {text}" for number, text in found]
    findings += [f"docs/stats.schema.json:{n}: {text}" for n, text in check_schema()]
    findings += check_shell()
    print("\n".join(findings) or "nothing found")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
