"""Experiments: what varies, what is fixed, which bench answers, and what is shown of it. One TOML file each."""

import itertools
import os
import tomllib
from dataclasses import dataclass, field

import published

_KEYS = {"question", "figures", "bench", "arguments", "quick", "vary", "quick_vary", "generate", "quick_generate", "rounds", "picture",
         "finding", "notes"}
_SOURCE_KEYS = {"rows", "list", "unfold", "published", "experiment"}
_PICTURE_KEYS = _SOURCE_KEYS | {"title", "x", "y", "per", "series", "panel", "x_label", "y_label", "kind", "log_x", "log_y"}
_FINDING_KEYS = {"text", "of", "ratio", "agrees", "differs", "picture"}
_OF_KEYS = _SOURCE_KEYS | {"least", "most"}
CAPTURE = "{capture}"  # among arguments: a file, generated or of the user


class Wrong(Exception):
    """What is wrong with an experiment's file, and what would be right."""


@dataclass(frozen=True)
class Capture:
    """`fingerprint` is of what it holds, or of what makes it."""

    name: str
    file: str
    fingerprint: str
    command: tuple = ()  # that generates it


@dataclass
class Run:
    """One command, which is run whole or not at all."""

    experiment: str
    varied: dict
    arguments: list
    round: int = 1
    capture: Capture | None = None

    @property
    def title(self):
        return ", ".join([self.experiment, *(f"{name} {value}" for name, value in self.varied.items())])

    @property
    def fingerprint(self):
        return self.capture and self.capture.fingerprint


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
    generate: dict = field(default_factory=dict)  # name: what `millrace generate` is told
    quick_generate: dict | None = None
    rounds: int | None = None  # no more than these: for what takes long, or is counted and not timed
    picture: list = field(default_factory=list)
    finding: list = field(default_factory=list)
    notes: str = ""

    @property
    def takes_captures(self):
        return CAPTURE in self.arguments

    def generated(self, is_quick):
        return self.quick_generate if is_quick and self.quick_generate is not None else self.generate

    def runs(self, is_quick, captures=()):
        """Each once; `captures`: for those that take one."""
        vary = self.quick_vary if is_quick and self.quick_vary is not None else self.vary
        arguments = self.quick if is_quick else self.arguments
        for capture in captures if self.takes_captures else [None]:
            for values in itertools.product(*vary.values()):
                varied = dict(zip(vary, values))
                options = [word for name, value in varied.items() for word in (f"--{name}", str(value))]
                if capture is not None:
                    varied = {"trace": capture.name, **varied}
                given = [capture.file if word == CAPTURE else word for word in arguments]
                yield Run(self.name, varied, ["bench", self.bench, *given, *options], capture=capture)


def _check_keys(path, what, given, known, needed):
    for key in given.keys() - known:
        raise Wrong(f"{path}: {what}{key}: no such key: give {', '.join(sorted(known))}")
    for key in needed:
        if key not in given:
            raise Wrong(f"{path}: {what}{key} is missing")
    source = given.get("published")
    if source is not None and source not in published.sources():
        raise Wrong(f"{path}: {what}published: {source}: give {', '.join(published.sources())}")


def read(path):
    name = os.path.splitext(os.path.basename(path))[0]
    try:
        with open(path, "rb") as file:
            given = tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        raise Wrong(f"{path}: {error}") from error
    _check_keys(path, "", given, _KEYS, ("question", "bench"))
    for picture in given.get("picture", []):
        _check_keys(path, "picture: ", picture, _PICTURE_KEYS, ("title", "x", "y"))
    for finding in given.get("finding", []):
        _check_keys(path, "finding: ", finding, _FINDING_KEYS, ("text",))
        for of in finding.get("of", {}).values():
            _check_keys(path, "finding: of: ", of, _OF_KEYS, ())
        if not 1 <= finding.get("picture", 1) <= len(given.get("picture", [])):
            raise Wrong(f"{path}: finding: picture: give the number of the picture that shows it, from 1")
    return Experiment(name=name, **given)


def read_all(folder):
    """In the order of their names."""
    experiments = [read(os.path.join(folder, name)) for name in sorted(os.listdir(folder)) if name.endswith(".toml")]
    names = [experiment.name for experiment in experiments]
    for experiment in experiments:
        for source in [*experiment.picture, *(of for finding in experiment.finding for of in finding.get("of", {}).values())]:
            if source.get("experiment", experiment.name) not in names:
                raise Wrong(f"{experiment.name}.toml: experiment: {source['experiment']}: give {', '.join(names)}")
    return experiments
