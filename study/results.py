"""Raw results: JSON lines, a run each. A file that was cut off or damaged loses no more than those lines."""

import json
import os
from dataclasses import replace

from experiments import shown_path

_HOLDS = {"experiment": str, "arguments": list, "round": int, "program": str, "seconds": (int, float)}


def _is_record(given):
    return (isinstance(given, dict) and all(isinstance(given.get(key), kind) for key, kind in _HOLDS.items())
            and (isinstance(given.get("result"), dict) or isinstance(given.get("failed"), str)))


class Results:
    """`damaged` says of each line that is none, which it is."""

    def __init__(self, path):
        self._path = path
        self.records = []
        self.damaged = []
        if not os.path.exists(path):
            return
        with open(path, encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, 1):
                try:
                    record = json.loads(line)
                    if not _is_record(record):
                        raise ValueError("no record of a run")
                    self.records.append(record)
                except ValueError as error:
                    self.damaged.append(f"{shown_path(path)}, line {number}: {error}")

    def add(self, record):
        os.makedirs(os.path.dirname(os.path.abspath(self._path)), exist_ok=True)
        text = json.dumps(record) + "\n"
        with open(self._path, "a+b") as file:
            # Behind a line that was cut off.
            if file.tell() > 0:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    text = "\n" + text
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        self.records.append(record)

    def of(self, run, program):
        """The last record of a run in its round by that program, or none. A capture of the same name may be another one."""
        for record in reversed(self.records):
            what = (record["experiment"], record["arguments"], record["round"], record.get("again", False), record["program"],
                    record.get("capture"))
            if what == (run.experiment, run.arguments, run.round, run.again, program, run.fingerprint):
                return record
        return None

    def rounds_of(self, run, program):
        """The last record of each of its rounds."""
        rounds = sorted({record["round"] for record in self.records if record["experiment"] == run.experiment})
        records = [self.of(replace(run, round=number), program) for number in rounds]
        return [record for record in records if record is not None]
