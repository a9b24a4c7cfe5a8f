#!/usr/bin/env python3
"""Replays the demo's capture with the README's configuration, and runs the commands of the README's section "Live
in five minutes" and of docs/nat.md's "NAT in five minutes" unchanged, in namespaces of their own.

    quick_start.py

The program is build/release/cli/millrace of this checkout, as in the README. Exit status 77 if the test cannot
run here.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
# `curl` tries five times here: servers may take a moment to listen, and a script is faster than a user.
_PRELUDE = """set -euo pipefail
sudo() { "$@"; }
curl() {
  local try
  for try in 1 2 3 4 5; do
    command curl --silent --max-time 5 "$@" && return
    sleep 0.5
  done
  return 1
}
"""


def blocks(page, title):
    """Returns the indented blocks of a page's section: the commands for the first terminal, and for the second."""
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        section = re.search(rf"^## {title}$(.*?)^## ", file.read(), re.S | re.M).group(1)
    found = re.findall(r"(?:^    .*\n)+", section, re.M)
    return [re.sub(r"^    ", "", block, flags=re.M) for block in found]


def first_configuration():
    """Checks the README's numbers for its web.toml and the demo's capture. Returns the errors, or an empty text."""
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
        readme = file.read()
    with open(os.path.join(ROOT, "demo"), encoding="utf-8") as file:
        profile = re.search(r'generate (--profile[^\\]*)', file.read()).group(1).split()
    program = os.path.join(ROOT, "build/release/cli/millrace")
    toml = re.search(r"<<'TOML'\n(.*?)    TOML\n", readme, re.S).group(1)
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/web.toml", "w", encoding="utf-8") as file:
            file.write(re.sub("^    ", "", toml, flags=re.M))
        subprocess.run([program, "generate", *profile, "--quiet", "--out", f"{folder}/campus.pcap"], check=True)

        def replay(*options):
            done = subprocess.run([program, "replay", "--in", f"{folder}/campus.pcap", "--stats", "-", "--quiet", *options],
                                  check=True, capture_output=True)
            return json.loads(done.stdout)

        without, balanced = replay(), replay("--config", f"{folder}/web.toml")
    if not all(backend["packets"] > 0 for backend in balanced["backends"]):
        return "a backend of web.toml received no packet in the replay"
    stateless = f"{without['packets']['stateless']:,}"
    served = f"{balanced['packets']['tracked']:,} packets of {balanced['connections']['opened']:,} connections"
    return "".join(f"README.md does not contain the replay's {number}\n" for number in (stateless, served) if number not in readme)


def run(apart, server, client):
    """Runs the commands of both terminals. Returns the second's finished process, and what millrace has said."""
    with tempfile.TemporaryDirectory() as folder:
        # The servers' pages are written to the README's place, build/web; the rest of the machine stays untouched.
        first, second = (os.path.join(folder, name) for name in ("first.sh", "second.sh"))
        with open(first, "w", encoding="utf-8") as file:
            file.write(_PRELUDE + server.replace("sudo build", "exec build"))
        with open(second, "w", encoding="utf-8") as file:
            file.write(_PRELUDE + client)
        script = f"""set -euo pipefail
mount -t tmpfs none /run
ip link set lo up
bash {first} 2>{folder}/said & live=$!
for try in $(seq 200); do
  if grep -q running {folder}/said; then break; fi
  sleep 0.1
done
status=0
bash {second} || status=$?
kill -TERM $live
wait $live || status=$?
exit $status
"""
        done = subprocess.run([*apart, "bash", "-c", script], cwd=ROOT, capture_output=True,
                              text=True, timeout=120)
        with open(os.path.join(folder, "said"), encoding="utf-8") as file:
            said = file.read()
    return done, said


def balanced(apart):
    """Runs the README's section. Returns 0 if both servers have answered."""
    start = time.monotonic()
    done, said = run(apart, *blocks("README.md", "Live in five minutes"))
    answers = re.findall(r"^(one|two)$", done.stdout, re.M)
    if done.returncode != 0 or set(answers) != {"one", "two"} or len(answers) != 8:
        print(said, done.stdout, done.stderr, f"status {done.returncode}")
        return 1
    print(f"{len(answers)} answers of both servers in {time.monotonic() - start:.0f} s")
    return 0


def translated(apart):
    """Runs the section of docs/nat.md. Returns 0 if the server has seen a public address, and the log names the customer."""
    done, said = run(apart, *blocks("docs/nat.md", "NAT in five minutes"))
    has_seen = re.search(r'198\.51\.100\.\d+ .*"GET / HTTP/1.1" 200', done.stderr)
    if done.returncode != 0 or not has_seen or '"customer":"10.0.0.5"' not in done.stdout:
        print(said, done.stdout, done.stderr, f"status {done.returncode}")
        return 1
    print("the customer's request had a public address, and the log names him")
    return 0


def main():
    if wrong := first_configuration():
        print(wrong)
        return 1
    missing = [name for name in ("ip", "curl", "unshare") if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        print("this test needs root, " + "".join(f"{name}, " for name in missing) + "and network namespaces")
        return 77
    # Processes that the script leaves running end with their PID namespace.
    apart = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if not os.path.exists("/dev/net/tun") or subprocess.run([*apart, "true"]).returncode != 0:
        print("no /dev/net/tun, or no namespaces, here")
        return 77
    return balanced(apart) or translated(apart)


if __name__ == "__main__":
    sys.exit(main())
