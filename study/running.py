"""Runs what has not been run yet: with progress, the time that is left, and an end in order."""

import datetime
import hashlib
import json
import subprocess
import sys
import time


def fingerprint(path):
    """Of a program or a capture, so that another's results are not taken for its own."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


class Progress:
    """On a terminal one line that changes, elsewhere a line a run."""

    def __init__(self, count):
        self._count = count
        self._done = 0
        self._start = time.monotonic()

    def show(self, title):
        passed = time.monotonic() - self._start
        left = f", about {_words(passed / self._done * (self._count - self._done))} left" if self._done else ""
        text = f"{self._done + 1} of {self._count}{left}: {title}"
        print(f"\r\033[K{text}" if sys.stderr.isatty() else text, end="" if sys.stderr.isatty() else "\n",
              file=sys.stderr, flush=True)

    def step(self):
        self._done += 1

    def end(self):
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _words(seconds):
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def run_all(program, runs, results):
    """Those that `results` has not. A run that fails is a result, too: it is tried again the next time."""
    of_program = fingerprint(program)
    missing = [run for run in runs if "result" not in (results.of(run, of_program) or {})]
    progress = Progress(len(missing))
    for run in missing:
        progress.show(run.title)
        start = time.monotonic()
        began = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        done = subprocess.run([program, *run.arguments, "--json", "-", "--quiet"], capture_output=True, text=True)
        if done.returncode == 130:
            raise KeyboardInterrupt
        record = {"experiment": run.experiment, "varied": run.varied, "arguments": run.arguments, "program": of_program,
                  "capture": run.capture, "began": began, "seconds": round(time.monotonic() - start, 1)}
        try:
            if done.returncode != 0:
                raise ValueError(done.stderr.strip() or f"status {done.returncode}")
            record["result"] = json.loads(done.stdout)
        except ValueError as error:
            record["failed"] = str(error)
        results.add(record)
        progress.step()
    progress.end()
