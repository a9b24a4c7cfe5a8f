"""Runs what has not been run yet. Shows progress and the remaining time, and ends in order after an interrupt."""

import datetime
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

from experiments import CAPTURE, Capture, shown_path
from results import check_regular, check_result, parsed
from script import CANNOT_RUN, run_script

_MEASURES = "millrace-bench"  # the program that `millrace bench` runs
_WARNING = "warning: "  # marks a warning in a line of the program's output
_BROKEN = 3  # exit status of a broken capture; if there is a result, it is that of the readable part, and a warning says so
_MOST_SAID = 2000  # characters at the end of the error output that are kept


def fingerprint(path):
    """Returns the fingerprint of a program or a capture, which identifies its results. Raises OSError."""
    check_regular(path)
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def program_fingerprint(program):
    """Returns the fingerprint of millrace and millrace-bench together: of the millrace-bench beside millrace, or else in PATH; without
    either, of millrace alone. Raises OSError."""
    beside = os.path.join(os.path.dirname(program), _MEASURES)
    bench = beside if os.path.exists(beside) else shutil.which(_MEASURES)
    if bench is None:
        return fingerprint(program)
    both = fingerprint(program) + fingerprint(bench)
    return hashlib.sha256(both.encode()).hexdigest()[:16]


def generated(name, arguments, folder, program):
    """Returns a capture that `millrace generate` makes with `arguments` when it is needed. `program`: fingerprint of the program that makes it."""
    command = ["generate", *arguments]
    digest = hashlib.sha256(json.dumps([program, command]).encode()).hexdigest()[:16]
    file = os.path.join(folder, f"{name}.pcap")
    return Capture(name, file, digest, (*command, "--out", CAPTURE))


class Progress:
    """Shows progress: on a terminal one line that changes, elsewhere a line for each run. `expected`: the expected seconds of each run, by
    earlier rounds; None if there is no earlier round."""

    def __init__(self, expected):
        self._expected = expected
        self._took = []

    def show(self, title):
        done = len(self._took)
        known = self._took + [seconds for seconds in self._expected if seconds is not None]
        left = sum(sum(known) / len(known) if seconds is None else seconds for seconds in self._expected[done:]) if known else None
        about = f", about {_duration(left)} left" if left is not None else ""
        text = f"{done + 1} of {len(self._expected)}{about}: {title}"
        print(f"\r\033[K{text}" if sys.stderr.isatty() else text, end="" if sys.stderr.isatty() else "\n",
              file=sys.stderr, flush=True)

    def step(self, seconds):
        self._took.append(seconds)

    def end(self):
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _duration(seconds):
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


class RunFailed(Exception):
    """Says why a run has no result."""


class LeftOut(Exception):
    """Says why a script cannot run here."""


class ProgramChanged(Exception):
    """Says that the program was built anew meanwhile: measurements of the new build must not be mixed with the earlier ones."""


def _answer(program, arguments, capture=None, script=None):
    """Returns standard output and the warnings, in which the capture's path is shortened as by `shown_path`. Raises RunFailed or LeftOut."""
    if script is None:
        done = subprocess.run([program, *arguments], capture_output=True, text=True)
    else:
        done = run_script(script.command(program, arguments))
        if done.returncode == CANNOT_RUN:
            raise LeftOut((done.stderr.strip().splitlines() or [f"status {CANNOT_RUN}"])[-1])
    if done.returncode == 130:
        raise KeyboardInterrupt
    given, beside = done.stdout, done.stderr.strip()
    if capture is not None:
        given = given.replace(json.dumps(capture.file, ensure_ascii=False), json.dumps(shown_path(capture.file), ensure_ascii=False))
        beside = beside.replace(capture.file, shown_path(capture.file))
    said = beside[-_MOST_SAID:]
    if done.returncode < 0:
        raise RunFailed(": ".join(filter(None, (f"killed by {signal.Signals(-done.returncode).name}", said))))
    if done.returncode > 0 and not (done.returncode == _BROKEN and given):
        raise RunFailed(said or f"status {done.returncode}")
    return given, [line for line in beside.splitlines() if _WARNING in line]


def _make(program, capture):
    """Generates a capture, unless its file exists and was made by the same command and program."""
    mark = capture.file + ".made"
    if os.path.exists(mark):
        with open(mark, encoding="utf-8", errors="replace") as file:
            if file.read() == capture.fingerprint and os.path.exists(capture.file):
                return
        os.remove(mark)  # otherwise an interrupted generation would leave the mark of other contents
    os.makedirs(os.path.dirname(capture.file), exist_ok=True)
    _answer(program, [*capture.put_into(capture.command), "--quiet"])
    with open(mark, "w", encoding="utf-8") as file:
        file.write(capture.fingerprint)


def run_all(program, runs, results):
    """Runs all runs without a result in `results`. A run that failed or was left out is recorded, too, and tried again the next time. Raises
    ProgramChanged."""
    of_program = program_fingerprint(program)
    missing = [run for run in runs if "result" not in (results.of(run, of_program) or {})]

    def took(run):
        return next((record["seconds"] for record in results.rounds_of(replace(run, again=False), of_program) if "result" in record), None)

    progress = Progress([took(run) for run in missing])
    for run in missing:
        if program_fingerprint(program) != of_program:
            raise ProgramChanged
        progress.show(run.title + (f", round {run.round}" if run.round > 1 else ""))
        start = time.monotonic()
        began = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        record = {"experiment": run.experiment, "varied": run.varied, "arguments": run.arguments, "round": run.round, "again": run.again,
                  "program": of_program, "capture": run.fingerprint, "began": began}
        if run.script is not None:
            record["script"] = run.script.fingerprint
        try:
            if run.capture is not None and run.capture.command:
                _make(program, run.capture)
            answer, warnings = _answer(program, [*(run.arguments[2:] if run.script else run.command), "--json", "-"], run.capture, run.script)
            try:
                result = parsed(answer)
                check_result(result)
            except ValueError as error:
                raise RunFailed(f"its answer is {error}") from error
            record |= {"result": result, "warnings": warnings}
        except RunFailed as error:
            record["failed"] = str(error)
        except LeftOut as error:
            record["left_out"] = str(error)
        record["seconds"] = round(time.monotonic() - start, 1)
        results.add(record)
        progress.step(record["seconds"])
    progress.end()
