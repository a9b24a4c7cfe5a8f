"""Writes the page, which needs no network: findings, then a section for each question, with pictures, tables and commands."""

import functools
import operator
import os
import string
from dataclasses import replace

import jinja2

import published
from experiments import RELATIONS, pictures_of
from rows import apart, chosen, merged, percentile_95, spread, unfolded

# Raised if a picture or finding does not fit the results, or if the results of rounds are not alike.
_DATA_ERRORS = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError)
_FOLDER = os.path.dirname(os.path.abspath(__file__))


class NotMeasured(Exception):
    """Says which row or value of a finding no result has."""

    def __str__(self):
        return f"no result for {self.args[0]}"


class Measured:
    """Results of the runs of one experiment: rounds merged, and failed runs."""

    def __init__(self, runs, results, program):
        self._together = []  # a pair for each run: the varied options, and the run's result merged over all rounds
        self._by_round = {}  # by number of the round: such pairs with the results of that round
        self.failed = []
        self.left_out = []  # why runs were left out, each reason once
        self.machines = []  # of all results
        self.rounds = []  # for each run the number of rounds with a result
        warnings = []
        for run in runs:
            records = results.rounds_of(run, program)
            good = [record["result"] for record in records if "result" in record]
            if not records:
                self.failed.append({"command": run.shown_command, "why": "not run yet"})
            self.failed += [{"command": run.shown_command, "why": record["failed"]} for record in records if "failed" in record]
            try:
                together = good and merged(good)
            except _DATA_ERRORS as error:
                self.failed.append({"command": run.shown_command, "why": f"its rounds do not fit together: {error}"})
                records, good = [], []
            left_out = [record["left_out"] for record in records if "left_out" in record]
            self.left_out = list(dict.fromkeys(self.left_out + left_out))
            if good or not left_out:
                self.rounds.append(len(good))
            warnings += [line for record in records for line in record.get("warnings", [])]
            if good:
                self.machines += [result["machine"] for result in good if isinstance(result.get("machine"), dict)]
                self._together.append((run.varied, together))
            for record in records:
                if "result" in record:
                    self._by_round.setdefault(record["round"], []).append((run.varied, record["result"]))
        self.warnings = _folded(warnings)

    def __bool__(self):
        return bool(self._together)

    @property
    def round_numbers(self):
        return list(self._by_round)

    def rows(self, wanted, of_round=None):
        """Returns the rows that a picture or a finding selects."""
        if "published" in wanted:
            rows = published.rows(wanted["published"])
        else:
            of_runs = self._together if of_round is None else self._by_round[of_round]
            held = [(varied, result.get(wanted.get("list", "results"), [])) for varied, result in of_runs]
            rows = [{**varied, **row} for varied, of_run in held for row in of_run]
        rows = chosen(unfolded(rows, wanted.get("unfold")), wanted.get("rows", {}))
        rows = [row for row in rows if "x_most" not in wanted or row[wanted["x"]] <= wanted["x_most"]]
        words = wanted.get("words", {})
        return [{key: words.get(str(value), value) for key, value in row.items()} for row in rows] if words else rows


def _folded(warnings):
    """Returns lists of warnings that differ only in the first word behind "warning: " or in words with digits. Each warning is in one list, once."""
    alike = {}
    for line in dict.fromkeys(warnings):
        said = line.partition("warning: ")[2].split()[1:]
        alike.setdefault(tuple(word for word in said if not any(map(str.isdigit, word))), []).append(line)
    return list(alike.values())


def _value(number):
    if isinstance(number, float):
        return f"{number:.4g}"
    return str(number)


def _points(rows, picture):
    """Yields each point of a picture: panel, series and x; then median, least and most of y."""
    keys = [key for key in (picture.get("panel"), picture.get("series"), picture["x"]) if key]
    for row in rows:
        values = spread(row, picture["y"], picture.get("per"))
        if values is not None and row.get(picture["x"]) is not None:
            yield tuple(row.get(key, "") for key in keys), values


def _table(rows, picture):
    """Returns a picture's table: panel, series and x; median, least and most of y; then the median of each of `columns`."""
    keys = [key for key in (picture.get("panel"), picture.get("series"), picture["x"]) if key]
    more = picture.get("columns", [])
    body = [[_value(value) for value in (*where, *values, *((spread(row, key) or [""])[0] for key in more))]
            for row in rows for where, values in _points([row], picture)]
    head = [*keys, f"{picture.get('y_label', picture['y'])}, median", "least", "most", *more]
    return {"head": [key.replace("_", " ") for key in head], "body": body}


def _query(name, rows, wanted):
    """Returns the row that a finding names: the only one, or the one with the least or most of a value."""
    for pick, choose in (("least", min), ("most", max)):
        if pick in wanted:
            rows = [row for row in rows if row.get(wanted[pick]) is not None]
            rows = [choose(rows, key=lambda row: row[wanted[pick]])] if rows else []
    if not rows:
        raise NotMeasured(name)
    if len(rows) > 1:
        raise ValueError(f"{name} selects {len(rows)} rows and must select one: give more keys in its `rows`, or give `least` or `most`")
    return rows[0]


class _Row:
    """Lets texts name the values of a row: {best.ns_median:.0f}, {best.whole.ns_median:.0f}."""

    def __init__(self, name, row):
        self._name, self._row = name, row

    def __getitem__(self, key):
        value, name = self._row[key], f"{self._name}.{key}"
        if value is None:
            raise NotMeasured(name)
        return _Row(name, value) if isinstance(value, dict) else value

    def __format__(self, _):
        raise TypeError(f"{self._name} is a row: name a value of it")


def _value_at(values, path):
    """Returns the value at a path such as `best.mpps_median`; a number is its own value."""
    if not isinstance(path, str):
        return path
    return functools.reduce(operator.getitem, path.split("."), values)


class _Text(string.Formatter):
    """Formats texts with values of rows, without access to other attributes of Python objects."""

    def get_field(self, field_name, args, kwargs):
        return _value_at(kwargs, field_name), field_name

    def convert_field(self, value, conversion):
        if conversion is not None:
            raise ValueError(f"!{conversion} is not allowed in a text: write {{name.key}} or {{name.key:format}}")
        return value


def _holds(values, comparison, far):
    """Returns two truth values: that the comparison holds, and that its values differ by as much as rounds do or more (True also for `is`, and
    if `far` is None). `far`: how far rounds differ, and True if that is a share of the larger value; None if it is not known."""
    left, relation, right = (comparison[1] if at == 1 else _value_at(values, comparison[at]) for at in range(3))
    holds = RELATIONS[relation](left, right)
    if relation == "is" or far is None:
        return holds, True
    at_most, relative = far
    return holds, abs(left - right) >= at_most * (max(abs(left), abs(right)) if relative else 1)


def _verdict(values, finding, far):
    """Returns the verdict on a finding: "not" if a comparison fails by more than rounds differ; else "within" if the values of a comparison
    differ by less than rounds do; else "as"."""
    compared = [_holds(values, comparison, far) for comparison in finding["agrees"]]
    if (False, True) in compared:
        return "not"
    return "as" if all(clear for _, clear in compared) else "within"


def _finding(finding, name, measured, far):
    """Returns the finding with the measured values in its text."""
    values = {}
    for what, wanted in finding.get("of", {}).items():
        values[what] = _Row(what, _query(what, measured[wanted.get("experiment", name)].rows(wanted), wanted))
    for what, paths in finding.get("sum", {}).items():
        values[what] = sum(_value_at(values, path) for path in paths)
    for what, (above, below) in finding.get("ratio", {}).items():
        if _value_at(values, below) == 0:
            raise NotMeasured(f"{what}: {below} is 0")
        values[what] = _value_at(values, above) / _value_at(values, below)
    return {"text": _Text().format(finding["text"], **values), "verdict": "agrees" in finding and _verdict(values, finding, far),
            "differs": _Text().format(finding.get("differs", ""), **values)}


def _why(error):
    if isinstance(error, (AttributeError, LookupError)):
        return f"the experiment's file has a name that no result has: {error}"
    return str(error)


def _findings(experiment, measured, shown, is_quick):
    """Returns the findings of an experiment, and the failed ones. Findings that need an experiment that was not run are left out. So are,
    in the quick report, findings without results, and all verdicts."""
    findings, failed = [], []
    for finding in experiment.finding:
        others = dict.fromkeys(wanted["experiment"] for wanted in finding.get("of", {}).values() if "experiment" in wanted)
        sources = [experiment.name, *others]
        anchors = [anchor for number in pictures_of(finding) if (anchor := f"{experiment.name}-{number}") in shown]
        if not all(measured.get(source) for source in sources):
            continue
        try:
            far = next((shown[anchor] for anchor in anchors if shown[anchor]), None)
            made = _finding(finding, experiment.name, measured, far)
            findings.append(made | {"anchors": anchors or [experiment.name], "others": list(others),
                                    "verdict": not is_quick and made["verdict"]})
        except NotMeasured as error:
            if not is_quick:
                failed.append({"command": finding["text"], "why": str(error)})
        except _DATA_ERRORS as error:
            failed.append({"command": finding["text"], "why": _why(error)})
    return findings, failed


def _medians(rows, picture):
    return {where: median for where, (median, _, _) in _points(rows, picture)}


def _repeatability(picture, of_it, again):
    """Returns how far two rounds differ, and how far the medians of a second measurement (`again`) differ from those shown. Returns nothing
    for published figures, or if there is only one round and no second measurement."""
    if "published" in picture:
        return None
    relative = not picture.get("absolute")
    between = apart([_medians(of_it.rows(picture, number), picture) for number in of_it.round_numbers], relative)
    from_shown = apart([_medians(rows, picture) for rows in (of_it.rows(picture), again.rows(picture))], relative)
    at_most = percentile_95(between)

    def said(far):
        return f"{100 * far:.3g} %" if relative else f"{far:.2g}"

    return (between or from_shown) and {
        "far": between and (at_most, relative),
        "rounds": between and {"are_many": len(between) >= 20, "at_most": at_most and said(at_most)},
        "again": from_shown and {"count": len(from_shown), "farthest": max(from_shown) and said(max(from_shown)),
                                 "within": between and str(sum(far <= at_most for far in from_shown))}}


def _pictures(experiment, of_it, again, is_quick):
    """Returns the pictures of an experiment, and the failed ones. The quick report leaves out pictures without results."""
    from pictures import draw  # takes half a second, so only for a page

    pictures, failed = [], []
    for number, picture in enumerate(experiment.picture, 1):
        try:
            rows = of_it.rows(picture)
            drawn = draw(picture, rows)
            if drawn is not None:
                pictures.append({"id": f"{experiment.name}-{number}", "title": picture["title"], "drawn": drawn, "table": _table(rows, picture),
                                 "source": published.sources().get(picture.get("published")), "repeatability": _repeatability(picture, of_it, again)})
            elif of_it and not is_quick:
                failed.append({"command": picture["title"], "why": "no result has the values that it shows"})
        except _DATA_ERRORS as error:
            failed.append({"command": picture["title"], "why": _why(error)})
    return pictures, failed


def _section(experiment, runs, measured, again, is_quick):
    of_it = measured[experiment.name]
    pictures, failed_pictures = _pictures(experiment, of_it, again, is_quick)
    shown = {picture["id"]: picture["repeatability"] and picture["repeatability"]["far"] for picture in pictures}
    findings, failed_findings = _findings(experiment, measured, shown, is_quick)
    return {"name": experiment.name, "question": experiment.question, "figures": experiment.figures, "notes": experiment.notes,
            "commands": [run.shown_command for run in runs],
            "warnings": of_it.warnings, "left_out": of_it.left_out, "failed": of_it.failed + failed_pictures + failed_findings, "pictures": pictures, "findings": findings,
            "generated": [run.capture.shown_command for run in runs if run.capture is not None and run.capture.command],
            "rounds": sorted(set(of_it.rounds)), "rounds_again": sorted(set(again.rounds) - {0})}


def _described(machine):
    return (f"{machine.get('processor')}, {machine.get('cores')} processors; {', '.join(machine.get('caches') or [])}; "
            f"kernel {machine.get('kernel')}")


def _machines(measured):
    """Returns each machine's description with its experiments. `measured`: pairs of experiment and `Measured`."""
    machines = {}
    for name, of_it in measured:
        for machine in of_it.machines:
            machines.setdefault(_described(machine), {})[name] = True
    return machines


def _missing(planned, measured):
    """Returns the number of runs without a result, or with fewer rounds than the run that has most, if their experiment allows as many."""
    most = max([1, *(count for of_one in measured.values() for count in of_one.rounds)])
    return sum(count < min(most, experiment.rounds or most) for experiment, _ in planned for count in measured[experiment.name].rounds)


def write(path, planned, is_quick, results, program):
    """Writes the page. `planned`: pairs of an experiment and its runs."""
    measured = {experiment.name: Measured(runs, results, program) for experiment, runs in planned}
    again = {experiment.name: Measured([replace(run, again=True) for run in runs], results, program) for experiment, runs in planned}
    sections = [_section(experiment, runs, measured, again[experiment.name], is_quick) for experiment, runs in planned]
    machine = next((of_one.machines[-1] for of_one in measured.values() if of_one.machines), None)
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(_FOLDER), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    text = environment.get_template("report.html.jinja").render(
        sections=sections, rounds=sorted({number for section in sections for number in section["rounds"] if number}), machine=machine,
        runs=sum(len(runs) for _, runs in planned), missing=_missing(planned, measured), sources=published.sources(),
        machines=_machines([*measured.items(), *again.items()]), damaged=results.damaged, is_quick=is_quick)
    partial = path + ".partial"
    with open(partial, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(text)
    os.replace(partial, path)
