"""Looks with clang-tidy at the sources that standard input names, one a line: at each with the command that compiles it in build/release,
through ccache where the system has it. Prints the findings; its status is 1 where there are some.

    cmake/tidy.py CLANG_TIDY VERSION <names
"""

import json
import os
import re
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The compiler, what only GCC knows, and headers that only GCC has compiled before.
LEFT_OUT = re.compile(r"^.*?/c\+\+ | -fpch-preprocess| --param=\S+| -include \S+cmake_pch\S+| -o \S+ -c \S+")


def commands():
    """Those that compile, by the names of their sources: once what is compiled for each table, and each for itself what is
    compiled together."""
    by_name = {}
    for entry in reversed(json.loads((ROOT / "build/release/compile_commands.json").read_text())):
        command = f"{shutil.which('ccache') or ''} {ROOT}/cmake/tidy_compiler.sh {LEFT_OUT.sub('', entry['command'])}"
        unit = Path(entry["file"])
        together = re.findall('#include "(.*)"', unit.read_text()) if unit.parent.name == "together" else [unit.name]
        for file in (os.path.normpath(unit.parent / name) for name in together):
            name = os.path.relpath(file, ROOT)
            result = ROOT / "build/check/tidy" / name.replace("/", "-")
            by_name[name] = f"cd {entry['directory']} && {command} -o {result} -c {file}"
    return by_name


def main():
    clang_tidy, version = sys.argv[1:]
    (ROOT / "build/check/tidy").mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "CLANG_TIDY": clang_tidy,
        "CCACHE_BASEDIR": str(ROOT),
        "CCACHE_NOHASHDIR": "1",
        "CCACHE_COMPILERCHECK": "string:" + version,
        "CCACHE_COMPILERTYPE": "gcc",
        "CCACHE_EXTRAFILES": f"{ROOT}/.clang-tidy",
        "CCACHE_COMMENTS": "1",  # some silence a check
    }
    known = commands()

    def look(command):
        return subprocess.run(command, shell=True, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)

    found = False
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        # Another processor's sources are in no command here.
        for result in pool.map(look, (known[name] for name in sys.stdin.read().split() if name in known)):
            sys.stdout.write(result.stdout)
            sys.stderr.write(re.sub(r"^\d+ warnings? generated\.\n", "", result.stderr, flags=re.MULTILINE))
            found = found or result.returncode != 0
    sys.exit(found)


if __name__ == "__main__":
    main()
