"""Runs clang-tidy on the sources, each with the options that compile it in build/release, through ccache if the system has it. Prints
the findings. Exit status: 1 if there are findings or no sources, 77 if build/release is not configured.

    cmake/tidy.py [--since COMMIT] CLANG_TIDY VERSION

Tests and fuzz targets are left out. With --since only these sources are checked: those that have changed after that commit other than in comments, those of the same name
as a changed header, and one that includes a changed header if none of the others does; all sources if the commit is unknown, or .clang-tidy has changed.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/release"
COMPILER = ROOT / "cmake/tidy_compiler.sh"
RULES = ROOT / ".clang-tidy"
COMMENT = "^ *//[/<! ]*([^N/<! ]|$)"  # a line that is a comment, and none for clang-tidy (NOLINT)
INCLUDE = re.compile(r'^\s*#\s*include "(.*)"', re.MULTILINE)


def options_of(command):
    """Returns the options of a compiler's command line, without those that name the source, the object or precompiled headers, and without options
    that only GCC has."""
    words = iter(shlex.split(command))
    options = []
    for word in words:
        if word in ("-o", "-c"):
            next(words)
        elif word == "-include":
            header = next(words)
            if "cmake_pch" not in header:
                options += [word, header]
        elif word == "-fpch-preprocess" or word.startswith("--param="):
            continue
        elif word.startswith("-") or options:  # or an option's argument
            options.append(word)
    return options


def included(path):
    """Returns the project's files that the file `path` includes directly."""
    folders = (path.parent, ROOT, ROOT / "src", ROOT / "cli", ROOT / "include")
    named = {(folder / name).resolve() for name in INCLUDE.findall(path.read_text()) for folder in folders}
    return {file for file in named if file.is_file()}


def reached(path, known):
    """Returns the project's files that the file `path` includes, directly or through others. `known` keeps results between calls."""
    if path not in known:
        known[path] = set()  # ends a circle
        named = included(path)
        known[path] = named.union(*(reached(file, known) for file in named))
    return known[path]


def options_by_source():
    """Returns the compiler's options for each source. For a source that is compiled once for each table these are the options of one table; a source in a
    unity source has the options of the unity source."""
    found = {}
    for entry in reversed(json.loads((BUILD / "compile_commands.json").read_text())):
        unit = Path(entry["directory"], entry["file"]).resolve()
        options = options_of(entry["command"])
        for source in included(unit) if unit.parent.name == "unity" else [unit]:
            name = source.relative_to(ROOT)
            if name.parts[0] in ("src", "cli", "bench") and not name.stem.endswith(("_test", "_fuzz")):
                found[source] = options
    return dict(sorted(found.items()))


def changed(sources, commit, known):
    """Returns the sources to check because of changes after `commit`. `known`: see `reached`."""
    files = set()
    for command in (["diff", "--numstat", "--no-renames", "--relative", f"-I{COMMENT}", commit, "--"],
                    ["ls-files", "--others", "--exclude-standard"]):
        try:
            listed = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return list(sources)
        files |= {ROOT / line.split("\t")[-1] for line in listed.stdout.splitlines()}
    if RULES in files:
        return list(sources)
    chosen = [source for source in sources if source in files or source.with_suffix(".h") in files]
    for header in sorted(file for file in files if file.suffix in (".h", ".inc")):
        if not any(header in reached(source, known) for source in chosen):
            chosen += [source for source in sources if header in reached(source, known)][:1]
    return chosen


def works(ccache):
    """Returns True if ccache works here. It does not if it cannot write to its folder, for example."""
    return subprocess.run([ccache, "c++", "-c", "-x", "c++", "-o", BUILD / "ccache.o", BUILD / "ccache.cc"],
                          capture_output=True).returncode == 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--since", metavar="COMMIT")
    parser.add_argument("clang_tidy")
    parser.add_argument("version")
    asked = parser.parse_args()
    if not (BUILD / "compile_commands.json").exists():
        print("not built: see the step release")
        sys.exit(77)
    options = options_by_source()
    known = {}
    chosen = list(options) if asked.since is None else changed(options, asked.since, known)
    # clang-tidy also checks macros, comments and code that is not compiled here. These are not in the preprocessed text that ccache compares, so
    # ccache also compares the files in `counts`.
    counts = {source: (RULES, COMPILER, source, *sorted(reached(source, known))) for source in chosen}
    results = ROOT / "build/check/tidy"
    results.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "CLANG_TIDY": asked.clang_tidy,
        "CCACHE_BASEDIR": str(ROOT),
        "CCACHE_NOHASHDIR": "1",
        "CCACHE_COMPILERCHECK": "string:" + asked.version,
        "CCACHE_COMPILERTYPE": "gcc",
        "CCACHE_CPP2": "1",  # clang-tidy gets the source, not the preprocessed text
    }
    launcher = [ccache] if (ccache := shutil.which("ccache")) and works(ccache) else []

    def look(source):
        result = results / str(source.relative_to(ROOT)).replace("/", "-")
        return subprocess.run([*launcher, COMPILER, *options[source], "-o", result, "-c", source], cwd=BUILD,
                              env={**environment, "CCACHE_EXTRAFILES": ":".join(map(str, counts[source]))}, stdin=subprocess.DEVNULL, capture_output=True, text=True)

    found = False
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for looked in pool.map(look, chosen):
            print(looked.stdout, end="")
            print(re.sub(r"^\d+ warnings? generated\.\n", "", looked.stderr, flags=re.MULTILINE), end="")
            found = found or looked.returncode != 0
    print(f"{len(chosen)} of {len(options)} sources" + ("" if found else ", no findings"))
    sys.exit(1 if found or not options else 0)


if __name__ == "__main__":
    main()
