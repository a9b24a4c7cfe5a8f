"""Published figures, for pictures and findings; never mixed with measurements made here."""

import csv
import functools
import os
import statistics
import tomllib

_FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "published")


@functools.cache
def sources():
    """Returns each source's paper and machine, by name."""
    with open(os.path.join(_FOLDER, "sources.toml"), "rb") as file:
        return tomllib.load(file)


@functools.cache
def rows(name):
    """Returns a source's rows in the form of a bench's rows. Rows of the file that differ only in measured values become one row, with their
    median, least and most: `mpps_median`, `mpps_min`, `mpps_max`."""
    with open(os.path.join(_FOLDER, f"{name}.csv"), encoding="utf-8", newline="") as file:
        given = list(csv.DictReader(file))
    series = {}
    for row in given:
        what = tuple((key, _value(value)) for key, value in row.items() if not _is_measured(key) and value)
        series.setdefault(what, []).append({key: float(value) for key, value in row.items() if key.endswith("_median") and value})
    return [{**dict(what), **_spreads(measured)} for what, measured in series.items() if any(measured)]


def _is_measured(key):
    return key.endswith("_median") or key in ("commit", "runs")


def _value(text):
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() else number


def _spreads(measured):
    spreads = {}
    for key in {key for of_one in measured for key in of_one}:
        values = [of_one[key] for of_one in measured if key in of_one]
        name = key.removesuffix("_median")
        spreads |= {f"{name}_median": statistics.median(values), f"{name}_min": min(values), f"{name}_max": max(values)}
    return spreads
