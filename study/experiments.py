"""Reads experiments, one TOML file each: the bench or script, its fixed and varied arguments, pictures and findings."""

import itertools
import operator
import os
import re
import shlex
import string
import tomllib
from dataclasses import dataclass, field

import published
from script import Script, shown_script

RELATIONS = {"<": operator.lt, ">": operator.gt, "is": operator.eq}


def _is(*kinds):
    return lambda given: type(given) in kinds


def _is_list(fits):
    return lambda given: isinstance(given, list) and all(map(fits, given))


def _is_table(fits):
    return lambda given: isinstance(given, dict) and all(map(fits, given.values()))


_is_operand = _is(str, int, float)


def _is_file_name(name):
    return name and not set(name) & set("/\0")


def _is_comparison(given):
    return isinstance(given, list) and len(given) == 3 and _is_list(_is_operand)(given) and given[1] in RELATIONS


def _is_number(given):
    return type(given) is int and given >= 1


# Kinds of values that a key may hold, in the words of error messages; each has a check.
_TEXT, _YES, _TABLE, _NUMBER, _KIND = "a text", "true or false", "a table", "a whole number from 1", '"bars" or "lines"'
_TEXTS, _TABLES = "a list of texts", "a table of tables"
_LISTS, _COMMANDS = "a table of lists of texts and numbers", "a table of lists of texts, by names that files may have"
_WORDS, _NUMBERS = "a table of texts", "a whole number from 1, or a list of them"
_PICTURES, _FINDINGS = "it as [[picture]]", "it as [[finding]]"
_SUM, _RATIO = 'NAME = ["ONE", "OTHER", ...]', 'NAME = ["ONE", "OTHER"]'
_AGREES = f'[["ONE", RELATION, "OTHER"], ...], RELATION one of {", ".join(RELATIONS)}'
_CHECKS = {
    _TEXT: _is(str), _YES: _is(bool), _TABLE: _is(dict), _NUMBER: _is_number,
    _WORDS: _is_table(_is(str)), _NUMBERS: lambda given: _is_number(given) or given != [] and _is_list(_is_number)(given),
    _KIND: lambda given: given in ("bars", "lines"), _TEXTS: _is_list(_is(str)), _TABLES: _is_table(_is(dict)),
    _LISTS: _is_table(_is_list(_is_operand)),
    _COMMANDS: lambda given: _is_table(_is_list(_is(str)))(given) and all(map(_is_file_name, given)),
    _PICTURES: _is_list(_is(dict)), _FINDINGS: _is_list(_is(dict)), _SUM: _is_table(_is_list(_is_operand)),
    _RATIO: _is_table(lambda given: _is_list(_is_operand)(given) and len(given) == 2), _AGREES: _is_list(_is_comparison),
}

_KEYS = {"question": _TEXT, "figures": _TEXT, "bench": _TEXT, "live": _TEXT, "arguments": _TEXTS, "quick": _TEXTS, "vary": _LISTS,
         "quick_vary": _LISTS, "generate": _COMMANDS, "quick_generate": _COMMANDS, "rounds": _NUMBER, "picture": _PICTURES, "finding": _FINDINGS, "notes": _TEXT}
_SOURCE_KEYS = {"rows": _TABLE, "list": _TEXT, "unfold": _TEXT, "published": _TEXT}
_PICTURE_KEYS = _SOURCE_KEYS | {"title": _TEXT, "x": _TEXT, "y": _TEXT, "per": _TEXT, "series": _TEXT, "panel": _TEXT, "x_label": _TEXT,
                                "y_label": _TEXT, "kind": _KIND, "log_x": _YES, "log_y": _YES, "x_most": _NUMBER,
                                "columns": _TEXTS, "words": _WORDS, "absolute": _YES}
_FINDING_KEYS = {"text": _TEXT, "of": _TABLES, "sum": _SUM, "ratio": _RATIO, "agrees": _AGREES, "differs": _TEXT, "picture": _NUMBERS}
_OF_KEYS = _SOURCE_KEYS | {"experiment": _TEXT, "least": _TEXT, "most": _TEXT}
PROGRAM = "build/release/cli/millrace"  # the name in the commands that the page shows
LIVE = "live"  # the first argument of a run of a script, whose name follows
CAPTURE = "{capture}"  # in arguments: stands for a file, generated or given by the user


def pictures_of(finding):
    """Returns the numbers of the pictures that show the finding."""
    given = finding.get("picture", 1)
    return given if isinstance(given, list) else [given]


class UsageError(Exception):
    """Says what is wrong with an option or an experiment's file, and what would be right."""


def shown_path(file):
    """Returns the path below the current folder, or else the bare name: the page shall not show this machine's folders."""
    path = os.path.relpath(file)
    return os.path.basename(path) if path.startswith(os.pardir) else path


@dataclass(frozen=True)
class Capture:
    """A capture. `fingerprint` identifies its contents, or the command and program that generate it."""

    name: str
    file: str
    fingerprint: str
    command: tuple = ()  # the arguments that generate the capture, with {capture} for the file; empty: a given file

    def put_into(self, words):
        return [self.file if word == CAPTURE else word for word in words]

    def shown_in(self, words):
        return shlex.join([PROGRAM, *(shown_path(self.file) if word == CAPTURE else word for word in words)])

    @property
    def shown_command(self):
        return self.shown_in(self.command)


@dataclass
class Run:
    """One command, which is run to its end or not at all. `arguments` have {capture} in place of the capture's path, since the file may be moved."""

    experiment: str
    varied: dict
    arguments: list
    round: int = 1
    again: bool = False  # True: part of a second measurement, which is compared with the first one and not merged with it
    capture: Capture | None = None
    script: Script | None = None  # is run in place of millrace

    @property
    def title(self):
        return ", ".join([self.experiment, *(f"{name} {value}" for name, value in self.varied.items())])

    @property
    def fingerprint(self):
        return self.capture and self.capture.fingerprint

    @property
    def command(self):
        return self.capture.put_into(self.arguments) if self.capture else self.arguments

    @property
    def is_of_script(self):
        return self.arguments[0] == LIVE

    @property
    def shown_command(self):
        if self.is_of_script:
            return shown_script(self.arguments[1], PROGRAM, self.arguments[2:])
        return self.capture.shown_in(self.arguments) if self.capture else shlex.join([PROGRAM, *self.arguments])


@dataclass
class Experiment:
    name: str
    question: str
    bench: str = ""
    live: str = ""  # in place of `bench`: the name of a script of bench/live
    figures: str = ""  # figures of papers that the experiment repeats
    arguments: list = field(default_factory=list)
    quick: list | None = None  # replaces `arguments` for the quick report
    vary: dict = field(default_factory=dict)  # option: values; a run for each combination
    quick_vary: dict | None = None
    generate: dict = field(default_factory=dict)  # name: arguments of `millrace generate`
    quick_generate: dict | None = None
    rounds: int | None = None  # the most rounds: for runs that take long, or that only count
    picture: list = field(default_factory=list)
    finding: list = field(default_factory=list)
    notes: str = ""

    @property
    def takes_captures(self):
        return CAPTURE in self.arguments

    def generated(self, is_quick):
        return self.quick_generate if is_quick and self.quick_generate is not None else self.generate

    def runs(self, is_quick, captures=(), of_script=None):
        """Yields the runs of one round: one for each combination of `vary` and, if the experiment takes captures, for each of `captures`. The quick
        report has no runs of scripts."""
        if is_quick and self.live:
            return
        what = [LIVE, self.live] if self.live else ["bench", self.bench]
        vary = self.quick_vary if is_quick and self.quick_vary is not None else self.vary
        arguments = self.quick if is_quick and self.quick is not None else self.arguments
        for capture in captures if self.takes_captures else [None]:
            for values in itertools.product(*vary.values()):
                varied = dict(zip(vary, values))
                options = [word for name, value in varied.items() for word in (f"--{name}", str(value))]
                if capture is not None:
                    varied = {"trace": capture.name, **varied}
                yield Run(self.name, varied, [*what, *arguments, *options], capture=capture, script=of_script)


def _check(path, what, given, known, needed):
    for key in given.keys() - known.keys():
        raise UsageError(f"{path}: {what}{key}: no such key: give {', '.join(sorted(known))}")
    for key in needed:
        if key not in given:
            raise UsageError(f"{path}: {what}{key} is missing")
    for key, value in given.items():
        if not _CHECKS[known[key]](value):
            raise UsageError(f"{path}: {what}{key}: give {known[key]}")
    source = given.get("published")
    if source is not None and source not in published.sources():
        raise UsageError(f"{path}: {what}published: {source}: no such source: give {', '.join(published.sources())}")


def _check_finding(path, finding, pictures):
    _check(path, "finding: ", finding, _FINDING_KEYS, ("text",))
    for of in finding.get("of", {}).values():
        _check(path, "finding: of: ", of, _OF_KEYS, ())
    if max(pictures_of(finding)) > pictures:
        raise UsageError(f"{path}: finding: picture: give the number of the picture that shows it, from 1 to {pictures}: the file has {pictures}")
    if "agrees" in finding and "differs" not in finding:
        raise UsageError(f"{path}: finding: differs is missing: give a text for results that differ from the published ones: {finding['text']}")
    _check_names(path, finding)


def _names_in(text):
    return [field for _, field, _, _ in string.Formatter().parse(text) if field is not None]


def _check_names(path, finding):
    """Checks, before hours are spent, that a finding uses each name that it defines, and defines each name that it uses."""
    given = [name for key in ("of", "sum", "ratio") for name in finding.get(key, {})]
    operands = [operand for key in ("sum", "ratio") for operands in finding.get(key, {}).values() for operand in operands]
    operands += [operand for left, _, right in finding.get("agrees", []) for operand in (left, right)]
    try:
        used = _names_in(finding["text"]) + _names_in(finding.get("differs", ""))
    except ValueError as error:
        raise UsageError(f"{path}: finding: {error}: {finding['text']}") from error
    used = {name.partition(".")[0] for name in (*used, *operands) if isinstance(name, str)}
    for name in sorted(used.difference(given)):
        raise UsageError(f"{path}: finding: {name}: no such name: give it as of.{name}, sum.{name} or ratio.{name}: {finding['text']}")
    for name in given:
        if name not in used:
            raise UsageError(f"{path}: finding: {name} is used nowhere: {finding['text']}")


def read(path):
    name = os.path.splitext(os.path.basename(path))[0]
    try:
        with open(path, "rb") as file:
            given = tomllib.load(file)
    except (ValueError, RecursionError) as error:  # not TOML, or not UTF-8
        raise UsageError(f"{path}: {error}") from error
    _check(path, "", given, _KEYS, ("question",))
    if ("bench" in given) == ("live" in given):
        raise UsageError(f"{path}: give either bench or live")
    if "live" in given and CAPTURE in given.get("arguments", []):
        raise UsageError(f"{path}: arguments: {CAPTURE}: no script takes a capture")
    for picture in given.get("picture", []):
        _check(path, "picture: ", picture, _PICTURE_KEYS, ("title", "x", "y"))
    for finding in given.get("finding", []):
        _check_finding(path, finding, len(given.get("picture", [])))
    return Experiment(name=name, **given)


def _place(name):
    """Returns the sort key of an experiment: the number that its name begins with, then the name."""
    return int(re.match(r"\d*", name)[0] or 0), name


def read_all(folder):
    """Returns the folder's experiments in the order of their numbers: 10 comes after 9."""
    names = sorted((os.path.splitext(name)[0] for name in os.listdir(folder) if name.endswith(".toml")), key=_place)
    experiments = [read(os.path.join(folder, f"{name}.toml")) for name in names]
    for experiment in experiments:
        for of in (of for finding in experiment.finding for of in finding.get("of", {}).values()):
            if of.get("experiment", experiment.name) not in names:
                raise UsageError(f"{experiment.name}.toml: experiment: {of['experiment']}: no such experiment: give {', '.join(names)}")
    return experiments
