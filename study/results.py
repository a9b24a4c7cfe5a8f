"""Keeps raw results: a line of JSON for each run. If a file is cut off or damaged, only the damaged lines are lost."""

import errno
import json
import lzma
import os
from dataclasses import replace

from experiments import Capture, shown_path
from script import Script

_HOLDS = {"experiment": str, "varied": dict, "arguments": list, "round": int, "program": str}
_MOST_DAMAGED = 10  # lines that are reported
_MOST_SECONDS = 1e9  # of a run


def check_regular(path):
    """Raises OSError if the path exists and is not a regular file: reading a pipe, for example, may never end."""
    if os.path.lexists(path) and not os.path.isfile(path):
        raise OSError(errno.EINVAL, "Not a regular file", path)


def parsed(text):
    """Returns the parsed JSON. Raises ValueError with the beginning of a text that is not JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"no JSON: {text.strip()[:80]!r}") from error


def _is_texts(given):
    return isinstance(given, list) and all(isinstance(text, str) for text in given)


def _is_machine(given):
    return isinstance(given, dict) and _is_texts(given.get("caches", [])) and not any(
        isinstance(value, (dict, list)) for key, value in given.items() if key != "caches")


def check_result(given):
    """Raises ValueError if `given` is no JSON object, or if its `machine` or `results` is malformed. These two keys may be missing."""
    if not isinstance(given, dict):
        raise ValueError("no JSON object")
    if "machine" in given and not _is_machine(given["machine"]):
        raise ValueError("JSON whose `machine` does not describe a machine")
    rows = given.get("results", [])
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("JSON whose `results` is no list of rows")


def _check_record(given):
    seconds = given.get("seconds") if isinstance(given, dict) else None
    if not (type(seconds) in (int, float) and 0 <= seconds <= _MOST_SECONDS and _is_texts(given.get("warnings", []))
            and all(type(given.get(key)) is kind for key, kind in _HOLDS.items())
            and (isinstance(given.get("result"), dict) or any(isinstance(given.get(key), str) for key in ("failed", "left_out")))):
        raise ValueError("no record of a run")
    if "result" in given:
        check_result(given["result"])


class Results:
    """The records of a file. `damaged` names the lines that are not records."""

    def __init__(self, path, must_exist=False):
        self._path = path
        self.records = []
        self.damaged = []
        check_regular(path)
        if not must_exist and not os.path.exists(path):
            return
        opener = lzma.open if path.endswith(".xz") else open
        with opener(path, "rt", encoding="utf-8", errors="replace") as file:
            try:
                for number, line in enumerate(file, 1):
                    self._take(line, f"{shown_path(path)}, line {number}")
            except (EOFError, lzma.LZMAError) as error:
                self.damaged.append(f"{shown_path(path)}: {error}")
        more = len(self.damaged) - _MOST_DAMAGED
        if more > 0:
            self.damaged[_MOST_DAMAGED:] = [f"{shown_path(path)}: {more} more lines"]

    def _take(self, line, where):
        try:
            record = parsed(line)
            _check_record(record)
            self.records.append(record)
        except ValueError as error:
            self.damaged.append(f"{where}: {error}")

    def add(self, record):
        os.makedirs(os.path.dirname(os.path.abspath(self._path)), exist_ok=True)
        text = json.dumps(record) + "\n"
        with open(self._path, "a+b") as file:
            # If the last line was cut off, it is ended first.
            if file.tell() > 0:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    text = "\n" + text
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        self.records.append(record)

    def captures_of(self, experiment, program, but):
        """Returns the captures of an experiment in the records of `program`, the last one of each name, without the names in `but`. Records
        have no paths, so the captures have made-up ones."""
        named = [(record["varied"].get("trace"), record.get("capture")) for record in self.records
                 if (record["experiment"], record["program"]) == (experiment.name, program)]
        last = dict(pair for pair in named if _is_texts(list(pair)) and pair[0] not in but)
        return [Capture(name, f"{name}.pcap", digest) for name, digest in last.items()]

    def script_of(self, experiment, program):
        """Returns the script of the experiment's last record, which names only its fingerprint."""
        return next((Script("", "", record["script"]) for record in reversed(self.records)
                     if (record["experiment"], record["program"]) == (experiment.name, program) and isinstance(record.get("script"), str)), None)

    def of(self, run, program):
        """Returns the program's last record of a run in its round, or None. The capture or script must have the same fingerprint, too."""
        for record in reversed(self.records):
            what = (record["experiment"], record["arguments"], record["round"], record.get("again", False), record["program"],
                    record.get("capture"), record.get("script"))
            if what == (run.experiment, run.arguments, run.round, run.again, program, run.fingerprint, run.script and run.script.fingerprint):
                return record
        return None

    def rounds_of(self, run, program):
        """Returns the last record of each of the run's rounds."""
        rounds = sorted({record["round"] for record in self.records if record["experiment"] == run.experiment})
        records = [self.of(replace(run, round=number), program) for number in rounds]
        return [record for record in records if record is not None]
