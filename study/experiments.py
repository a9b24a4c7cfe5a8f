"""Experiments: what varies, what is fixed, which bench answers, and what is shown of it. One TOML file each."""

import itertools
import os
import tomllib
from dataclasses import dataclass, field

import published

_KEYS = {"question", "figures", "bench", "arguments", "quick", "vary", "quick_vary", "picture", "finding", "notes"}
_PICTURE_KEYS = {"title", "rows", "x", "y", "series", "panel", "x_label", "y_label", "kind", "log_x", "log_y", "unfold", "published"}
_FINDING_KEYS = {"text", "of", "ratio", "agrees", "differs"}
CAPTURE = "{capture}"  # among arguments: the file that the user gave


class Wrong(Exception):
    """What is wrong with an experiment's file, and what would be right."""


@dataclass
class Run:
    """One command, which is run whole or not at all."""

    experiment: str
    varied: dict
    arguments: list
    capture: str | None = None  # its fingerprint, where it reads one

    @property
    def title(self):
        return ", ".join([self.experiment, *(f"{name} {value}" for name, value in self.varied.items())])


@dataclass
class Experiment:
    name: str
    question: str
    bench: str
    figures: str = ""  # of the papers, that it does again
    arguments: list = field(default_factory=list)
    quick: list = field(default_factory=list)  # in place of them, for the quick report
    vary: dict = field(default_factory=dict)  # option: values; a run for each combination
    quick_vary: dict | None = None
    picture: list = field(default_factory=list)
    finding: list = field(default_factory=list)
    notes: str = ""

    @property
    def takes_capture(self):
        return CAPTURE in self.arguments

    def runs(self, is_quick, capture=None):
        """`capture`: of those that take one, its file and fingerprint."""
        vary = self.quick_vary if is_quick and self.quick_vary is not None else self.vary
        arguments = self.quick if is_quick else self.arguments
        for values in itertools.product(*vary.values()):
            varied = dict(zip(vary, values))
            options = [word for name, value in varied.items() for word in (f"--{name}", str(value))]
            if not self.takes_capture:
                yield Run(self.name, varied, ["bench", self.bench, *arguments, *options])
            elif capture is not None:
                file, fingerprint = capture
                given = [file if word == CAPTURE else word for word in arguments]
                yield Run(self.name, varied, ["bench", self.bench, *given, *options], fingerprint)


def read(path):
    name = os.path.splitext(os.path.basename(path))[0]
    try:
        with open(path, "rb") as file:
            given = tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        raise Wrong(f"{path}: {error}") from error
    for key in given.keys() - _KEYS:
        raise Wrong(f"{path}: {key}: no such key: give {', '.join(sorted(_KEYS))}")
    for key in ("question", "bench"):
        if key not in given:
            raise Wrong(f"{path}: {key} is missing")
    for what, keys, needed in (("picture", _PICTURE_KEYS, ("title", "x", "y")), ("finding", _FINDING_KEYS, ("text",))):
        for one in given.get(what, []):
            for key in one.keys() - keys:
                raise Wrong(f"{path}: {what}: {key}: no such key: give {', '.join(sorted(keys))}")
            for key in needed:
                if key not in one:
                    raise Wrong(f"{path}: {what}: {key} is missing")
            for source in [one.get("published"), *(of.get("published") for of in one.get("of", {}).values())]:
                if source is not None and source not in published.sources():
                    raise Wrong(f"{path}: {what}: published: {source}: give {', '.join(published.sources())}")
    return Experiment(name=name, **given)


def read_all(folder):
    """In the order of their names."""
    return [read(os.path.join(folder, name)) for name in sorted(os.listdir(folder)) if name.endswith(".toml")]


def rows_of(rows, wanted):
    """Those that have these values; where a list is given, one of them."""

    def fits(row):
        return all(row.get(key) in (value if isinstance(value, list) else [value]) for key, value in wanted.items())

    return [row for row in rows if fits(row)]


def unfolded(rows, key):
    """Where a row holds a list, a row for each of its members; where an object, one with its members, or if these are measured, one for
    each: `part` is the name, `value` what it holds."""
    if key is None:
        return rows
    return [{**row, **member} for row in rows for member in _members(row.get(key, []))]


def _members(held):
    if isinstance(held, list):
        return held
    if any(isinstance(value, dict) for value in held.values()):
        return [{"part": part, "value": value} for part, value in held.items()]
    return [held]
