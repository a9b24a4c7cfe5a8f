"""One page that needs no network: findings, then a section a question, with its pictures, tables and commands."""

import functools
import operator
import os
from dataclasses import replace

import jinja2

import published
from experiments import RELATIONS
from pictures import draw
from rows import apart, chosen, limit, merged, spread, unfolded

_WRONG = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError)  # of a picture or finding, beside what was measured
_FOLDER = os.path.dirname(os.path.abspath(__file__))


class NotMeasured(Exception):
    """What a finding is about, and no result has."""

    def __str__(self):
        return f"no result for {self.args[0]}"


class Measured:
    """What runs of one experiment have shown: rounds put together, and those that failed."""

    def __init__(self, runs, results, program):
        self._lists = {None: []}  # of all rounds together and of each: of every run what varied, and its result
        self.failed = []
        self.machines = []  # of all rounds
        self.rounds = []  # how many of each run
        warnings = []
        for run in runs:
            records = results.rounds_of(run, program)
            good = [record["result"] for record in records if "result" in record]
            if not records:
                self.failed.append({"command": run.shown_command, "why": "not run yet"})
            self.failed += [{"command": run.shown_command, "why": record["failed"]} for record in records if "failed" in record]
            self.rounds.append(len(good))
            warnings += [line for record in records for line in record.get("warnings", [])]
            if good:
                self.machines += [result["machine"] for result in good if isinstance(result.get("machine"), dict)]
                self._lists[None].append((run.varied, merged(good)))
            for record in records:
                if "result" in record:
                    self._lists.setdefault(record["round"], []).append((run.varied, merged([record["result"]])))
        self.warnings = list(dict.fromkeys(warnings))

    def __bool__(self):
        return bool(self._lists[None])

    @property
    def round_numbers(self):
        return [number for number in self._lists if number is not None]

    def rows(self, wanted, of_round=None):
        """Those that a picture or a finding is about."""
        if "published" in wanted:
            rows = published.rows(wanted["published"])
        else:
            held = [(varied, result.get(wanted.get("list", "results"), [])) for varied, result in self._lists[of_round]]
            rows = [{**varied, **row} for varied, of_run in held for row in of_run]
        rows = chosen(unfolded(rows, wanted.get("unfold")), wanted.get("rows", {}))
        return [row for row in rows if "x_most" not in wanted or row[wanted["x"]] <= wanted["x_most"]]


def _value(number):
    if isinstance(number, float):
        return f"{number:.4g}"
    return str(number)


def _points(rows, picture):
    """Where a picture shows something: panel, series and x, and the median, least and most there."""
    keys = [key for key in (picture.get("panel"), picture.get("series"), picture["x"]) if key]
    for row in rows:
        values = spread(row, picture["y"], picture.get("per"))
        if values is not None and row.get(picture["x"]) is not None:
            yield tuple(row.get(key, "") for key in keys), values


def _table(rows, picture):
    """Columns: what varies among these rows, then what is shown of them with its spread."""
    keys = [key for key in (picture.get("panel"), picture.get("series"), picture["x"]) if key]
    body = [[_value(value) for value in (*where, *values)] for where, values in _points(rows, picture)]
    return {"head": [key.replace("_", " ") for key in keys] + [f"{picture.get('y_label', picture['y'])}, median", "least", "most"],
            "body": body}


def _query(name, rows, wanted):
    """The row that a finding speaks of: the only one, or the least or most of a value."""
    for pick, choose in (("least", min), ("most", max)):
        if pick in wanted:
            rows = [row for row in rows if row.get(wanted[pick]) is not None]
            rows = [choose(rows, key=lambda row: row[wanted[pick]])] if rows else []
    if not rows:
        raise NotMeasured(name)
    if len(rows) > 1:
        raise ValueError(f"{len(rows)} results for {name}: say more in its rows, or least or most")
    return rows[0]


class _Row:
    """A row whose values a text may name: {best.ns_median:.0f}, {best.whole.ns_median:.0f}."""

    def __init__(self, name, row):
        self._name, self._row = name, row

    def __getitem__(self, key):
        value, name = self._row[key], f"{self._name}.{key}"
        if value is None:
            raise NotMeasured(name)
        return _Row(name, value) if isinstance(value, dict) else value

    __getattr__ = __getitem__

    def __format__(self, _):
        raise TypeError(f"{self._name} is a row: name a value of it")


def _value_at(values, path):
    """A number stands for itself."""
    if not isinstance(path, str):
        return path
    return functools.reduce(operator.getitem, path.split("."), values)


def _finding(finding, name, measured):
    """Its text with what was measured."""
    values = {}
    for what, wanted in finding.get("of", {}).items():
        values[what] = _Row(what, _query(what, measured[wanted.get("experiment", name)].rows(wanted), wanted))
    for what, paths in finding.get("sum", {}).items():
        values[what] = sum(_value_at(values, path) for path in paths)
    for what, (above, below) in finding.get("ratio", {}).items():
        if _value_at(values, below) == 0:
            raise NotMeasured(f"{what}: {below} is 0")
        values[what] = _value_at(values, above) / _value_at(values, below)
    agrees = None
    if "agrees" in finding:
        agrees = all(RELATIONS[relation](_value_at(values, left), _value_at(values, right)) for left, relation, right in finding["agrees"])
    return {"text": finding["text"].format(**values), "anchor": f"{name}-{finding.get('picture', 1)}", "agrees": agrees,
            "differs": finding.get("differs", "").format(**values)}


def _why(error):
    if isinstance(error, (AttributeError, LookupError)):
        return f"its file names what no result has: {error}"
    return str(error)


def _findings(experiment, measured, is_quick):
    """And those that fail. What was not run has none; the quick way measures less than some are about."""
    findings, failed = [], []
    for finding in experiment.finding:
        sources = {experiment.name, *(wanted.get("experiment", experiment.name) for wanted in finding.get("of", {}).values())}
        if not all(measured.get(source) for source in sources):
            continue
        try:
            findings.append(_finding(finding, experiment.name, measured))
        except NotMeasured as error:
            if not is_quick:
                failed.append({"command": finding["text"], "why": str(error)})
        except _WRONG as error:
            failed.append({"command": finding["text"], "why": _why(error)})
    return findings, failed


def _medians(rows, picture):
    return {where: median for where, (median, _, _) in _points(rows, picture)}


def _repeatability(picture, of_it, again):
    """How far two rounds lie apart, and what was measured again from what is shown. None where there is one round, or what is published."""
    if "published" in picture:
        return None
    # A share near 0 is many times another.
    relative = not picture.get("y_label", picture["y"]).startswith("share")
    between = apart([_medians(of_it.rows(picture, number), picture) for number in of_it.round_numbers], relative)
    from_shown = apart([_medians(rows, picture) for rows in (of_it.rows(picture), again.rows(picture))], relative)
    at_most = limit(between)

    def said(far):
        return f"{100 * far:.3g} %" if relative else f"{far:.2g}"

    return (between or from_shown) and {
        "rounds": between and {"are_many": len(between) >= 20, "at_most": said(at_most)},
        "again": from_shown and {"count": len(from_shown), "farthest": said(max(from_shown)),
                                 "within": between and str(sum(far <= at_most for far in from_shown))}}


def _pictures(experiment, of_it, again, is_quick):
    """And those that fail. The quick way measures less than some show."""
    pictures, failed = [], []
    for number, picture in enumerate(experiment.picture, 1):
        try:
            rows = of_it.rows(picture)
            svg = draw(picture, rows)
            if svg is not None:
                pictures.append({"id": f"{experiment.name}-{number}", "title": picture["title"], "svg": svg, "table": _table(rows, picture),
                                 "source": published.sources().get(picture.get("published")), "repeatability": _repeatability(picture, of_it, again)})
            elif of_it and not is_quick:
                failed.append({"command": picture["title"], "why": "no result has what it shows"})
        except _WRONG as error:
            failed.append({"command": picture["title"], "why": _why(error)})
    return pictures, failed


def _section(experiment, runs, measured, again, is_quick):
    of_it = measured[experiment.name]
    pictures, failed_pictures = _pictures(experiment, of_it, again, is_quick)
    findings, failed_findings = _findings(experiment, measured, is_quick)
    shown = {picture["id"] for picture in pictures}
    for finding in findings:
        if finding["anchor"] not in shown:
            finding["anchor"] = experiment.name
    return {"name": experiment.name, "question": experiment.question, "figures": experiment.figures, "notes": experiment.notes,
            "commands": [run.shown_command for run in runs],
            "warnings": of_it.warnings, "failed": of_it.failed + failed_pictures + failed_findings, "pictures": pictures, "findings": findings,
            "generated": [run.capture.shown_command for run in runs if run.capture is not None and run.capture.command],
            "rounds": sorted(set(of_it.rounds)), "rounds_again": sorted(set(again.rounds) - {0})}


def _described(machine):
    return (f"{machine.get('processor')}, {machine.get('cores')} processors; {', '.join(machine.get('caches') or [])}; "
            f"kernel {machine.get('kernel')}")


def _machines(measured):
    """Each as it is described, and the experiments of it. `measured`: pairs of experiment and what it has shown."""
    machines = {}
    for name, of_it in measured:
        for machine in of_it.machines:
            machines.setdefault(_described(machine), {})[name] = True
    return machines


def write(path, planned, is_quick, results, program):
    """`planned`: experiments, each with its runs."""
    measured = {experiment.name: Measured(runs, results, program) for experiment, runs in planned}
    again = {experiment.name: Measured([replace(run, again=True) for run in runs], results, program) for experiment, runs in planned}
    sections = [_section(experiment, runs, measured, again[experiment.name], is_quick) for experiment, runs in planned]
    machine = next((of_one.machines[-1] for of_one in measured.values() if of_one.machines), None)
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(_FOLDER), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    text = environment.get_template("report.html.jinja").render(
        sections=sections, rounds=sorted({number for section in sections for number in section["rounds"] if number}), machine=machine,
        machines=_machines([*measured.items(), *again.items()]), damaged=results.damaged, is_quick=is_quick)
    partial = path + ".partial"
    with open(partial, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(partial, path)
