"""One page that needs no network: findings, then a section a question, with its pictures, tables and commands."""

import os
from dataclasses import replace

import jinja2

import published
from experiments import RELATIONS
from pictures import draw
from results import AGAIN
from rows import chosen, merged, spread, unfolded

_FOLDER = os.path.dirname(os.path.abspath(__file__))


class Measured:
    """What runs of one experiment have shown: rounds put together, and those that failed."""

    def __init__(self, runs, results, program):
        self._lists = []  # of each run: what varied, and its result
        self.failed = []
        self.machine = None
        self.rounds = []
        for run in runs:
            records = [results.of(run, program)] if run.round == AGAIN else results.rounds_of(run, program)
            records = [record for record in records if record is not None]
            good = [record["result"] for record in records if "result" in record]
            command = "millrace " + " ".join(run.arguments)
            if not records:
                self.failed.append({"command": command, "why": "not run yet"})
            self.failed += [{"command": command, "why": record["failed"]} for record in records if "failed" in record]
            self.rounds.append(len(good))
            if good:
                self.machine = good[-1].get("machine", self.machine)
                self._lists.append((run.varied, merged(good)))

    def rows(self, wanted):
        """Those that a picture or a finding is about."""
        if "published" in wanted:
            rows = published.rows(wanted["published"])
        else:
            held = [(varied, result.get(wanted.get("list", "results"), [])) for varied, result in self._lists]
            rows = [{**varied, **row} for varied, of_run in held for row in of_run]
        return chosen(unfolded(rows, wanted.get("unfold")), wanted.get("rows", {}))


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


def _query(rows, wanted):
    """The row that a finding speaks of: the only one, or the least or most of a value."""
    for pick, choose in (("least", min), ("most", max)):
        if pick in wanted:
            rows = [row for row in rows if row.get(wanted[pick]) is not None]
            if rows:
                return choose(rows, key=lambda row: row[wanted[pick]])
    return rows[0] if rows else None


def _finding(finding, name, measured):
    """Its text with what was measured; none where that was not."""
    values = {}
    for what, wanted in finding.get("of", {}).items():
        source = measured.get(wanted.get("experiment", name))
        values[what] = _query(source.rows(wanted), wanted) if source else None
    if any(value is None for value in values.values()):
        return None
    for what, (above, below) in finding.get("ratio", {}).items():
        if not _member(values, below):
            return None
        values[what] = _member(values, above) / _member(values, below)
    named = {what: _Row(value) if isinstance(value, dict) else value for what, value in values.items()}
    agrees = None
    if "agrees" in finding:
        agrees = all(RELATIONS[relation](_member(values, left), _member(values, right)) for left, relation, right in finding["agrees"])
    return {"text": finding["text"].format(**named), "anchor": f"{name}-{finding.get('picture', 1)}", "agrees": agrees,
            "differs": finding.get("differs", "").format(**named)}


def _member(values, path):
    """A number stands for itself."""
    if not isinstance(path, str):
        return path
    for key in path.split("."):
        values = values[key]
    return values


class _Row:
    """A row whose values a text may name: {best.ns_median:.0f}."""

    def __init__(self, row):
        self.__dict__.update(row)


def _again(experiment, measured, again):
    """How far medians that were measured once more lie outside of the spread that is shown; none where that was not done."""
    outside, count = [], 0
    for picture in experiment.picture:
        if "published" in picture:
            continue
        shown = dict(_points(measured.rows(picture), picture))
        for where, (median, _, _) in _points(again.rows(picture), picture):
            if where in shown:
                _, least, most = shown[where]
                count += 1
                if not least <= median <= most:
                    outside.append(abs(median / (least if median < least else most) - 1) if least > 0 else abs(median))
    return {"count": count, "inside": count - len(outside), "farthest": max(outside, default=0)} if count else None


def _section(experiment, runs, measured, again):
    of_it = measured[experiment.name]
    pictures = []
    for number, picture in enumerate(experiment.picture, 1):
        rows = of_it.rows(picture)
        svg = draw(picture, rows)
        if svg is not None:
            pictures.append({"id": f"{experiment.name}-{number}", "title": picture["title"], "svg": svg, "table": _table(rows, picture),
                             "source": published.sources().get(picture.get("published"))})
    findings, failed = [], list(of_it.failed)
    for finding in experiment.finding:
        try:
            findings.append(_finding(finding, experiment.name, measured))
        except (AttributeError, KeyError) as error:
            failed.append({"command": finding["text"], "why": f"its file names what no result has: {error}"})
    shown = {picture["id"] for picture in pictures}
    return {"name": experiment.name, "question": experiment.question, "figures": experiment.figures, "notes": experiment.notes,
            "commands": ["millrace " + " ".join(run.arguments) for run in runs], "failed": failed, "pictures": pictures,
            "generated": [run.capture for run in runs if run.capture is not None and run.capture.command],
            "findings": [finding for finding in findings if finding and finding["anchor"] in shown],
            "rounds": sorted(set(of_it.rounds)), "again": _again(experiment, of_it, again)}


def write(path, planned, is_quick, results, program):
    """`planned`: experiments, each with its runs."""
    measured = {experiment.name: Measured(runs, results, program) for experiment, runs in planned}
    sections = []
    for experiment, runs in planned:
        once_more = [replace(run, round=AGAIN) for run in runs]
        sections.append(_section(experiment, runs, measured, Measured(once_more, results, program)))
    machine = next((of_one.machine for of_one in measured.values() if of_one.machine), None)
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(_FOLDER), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    text = environment.get_template("report.html.jinja").render(
        sections=sections, machine=machine, damaged=results.damaged, is_quick=is_quick)
    partial = path + ".partial"
    with open(partial, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(partial, path)
