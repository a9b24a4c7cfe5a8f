"""One page that needs no network: findings, then a section a question, with its picture, table and command."""

import operator
import os

import jinja2

import published
from experiments import rows_of, unfolded
from pictures import draw, spread

_RELATIONS = {"<": operator.lt, ">": operator.gt, "is": operator.eq}
_FOLDER = os.path.dirname(os.path.abspath(__file__))


def _value(number):
    if isinstance(number, float):
        return f"{number:.4g}"
    return str(number)


def _table(rows, picture):
    """Columns: what varies among these rows, then what is shown of them with its spread."""
    keys = [key for key in (picture.get("panel"), picture.get("series"), picture["x"]) if key]
    body = []
    for row in rows_of(unfolded(rows, picture.get("unfold")), picture.get("rows", {})):
        values = spread(row, picture["y"])
        if values is None or picture["x"] not in row:
            continue
        body.append([_value(row.get(key, "")) for key in keys] + [_value(value) for value in values])
    return {"head": [key.replace("_", " ") for key in keys] + [f"{picture.get('y_label', picture['y'])}, median", "least", "most"],
            "body": body}


def _query(rows, wanted):
    """The row that a finding speaks of: the only one, or the least or most of a value."""
    from_where = published.rows(wanted["published"]) if "published" in wanted else unfolded(rows, wanted.get("unfold"))
    found = rows_of(from_where, wanted.get("rows", {}))
    for pick, choose in (("least", min), ("most", max)):
        if pick in wanted:
            found = [row for row in found if row.get(wanted[pick]) is not None]
            if found:
                return choose(found, key=lambda row: row[wanted[pick]])
    return found[0] if found else None


def _finding(finding, rows, anchor):
    """Its text with what was measured; none where that was not."""
    values = {name: _query(rows, wanted) for name, wanted in finding.get("of", {}).items()}
    if any(value is None for value in values.values()):
        return None
    for name, (above, below) in finding.get("ratio", {}).items():
        if not _member(values, below):
            return None
        values[name] = _member(values, above) / _member(values, below)
    named = {name: _Row(value) if isinstance(value, dict) else value for name, value in values.items()}
    agrees = None
    if "agrees" in finding:
        agrees = all(_RELATIONS[relation](_member(values, left), _member(values, right)) for left, relation, right in finding["agrees"])
    return {"text": finding["text"].format(**named), "anchor": anchor, "agrees": agrees,
            "differs": finding.get("differs", "").format(**named)}


def _member(values, path):
    """A number stands for itself."""
    if not isinstance(path, str):
        return path
    name, _, key = path.partition(".")
    return values[name][key] if key else values[name]


class _Row:
    """A row whose values a text may name: {best.ns_median:.0f}."""

    def __init__(self, row):
        self.__dict__.update(row)


def _section(experiment, runs, results, program):
    rows, failed, machine = [], [], None
    for run in runs:
        record = results.of(run, program)
        command = "millrace " + " ".join(run.arguments)
        if record is None:
            failed.append({"command": command, "why": "not run yet"})
        elif "failed" in record:
            failed.append({"command": command, "why": record["failed"]})
        else:
            machine = record["result"].get("machine", machine)
            rows += [{**run.varied, **row} for row in record["result"]["results"]]
    pictures = []
    for picture in experiment.picture:
        source = picture.get("published")
        of_picture = published.rows(source) if source else rows
        svg = draw(picture, of_picture)
        if svg is not None:
            pictures.append({"title": picture["title"], "svg": svg, "table": _table(of_picture, picture),
                             "source": published.sources().get(source)})
    findings = [_finding(finding, rows, experiment.name) for finding in experiment.finding] if rows else []
    return {"name": experiment.name, "question": experiment.question, "figures": experiment.figures, "notes": experiment.notes,
            "commands": ["millrace " + " ".join(run.arguments) for run in runs], "failed": failed, "pictures": pictures,
            "findings": [finding for finding in findings if finding], "machine": machine}


def write(path, planned, is_quick, results, program):
    """`planned`: experiments, each with its runs."""
    sections = [_section(experiment, runs, results, program) for experiment, runs in planned]
    machine = next((section["machine"] for section in sections if section["machine"]), None)
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(_FOLDER), autoescape=True, trim_blocks=True, lstrip_blocks=True)
    text = environment.get_template("report.html.jinja").render(
        sections=sections, machine=machine, damaged=results.damaged, is_quick=is_quick)
    partial = path + ".partial"
    with open(partial, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(partial, path)
