"""Results of benches as rows: merges rounds, unfolds lists, selects rows."""

import itertools
import math
import statistics

_PARTS = ("_median", "_min", "_max")  # what the names of a measurement's three values end with


def merged(values):
    """Returns one value for the values of several rounds: of medians the median, of least values the least, of most values the most. A number that a
    bench reports without least and most gets those of the rounds: `waiting`, `waiting_min`, `waiting_max`. Rows of lists are matched by their
    texts (the name of the table, for example), and rows with the same texts by their order. None means not measured."""
    values = [value for value in values if value is not None] or [None]
    first = values[0]
    if isinstance(first, dict):
        return _merged_objects(values)
    if isinstance(first, list):
        return _merged_lists(values)
    if isinstance(first, str):
        return " or ".join(dict.fromkeys(values))
    if isinstance(first, bool) or all(value == first for value in values):
        return first
    return statistics.median(values)


def _merged_objects(objects):
    together = {}
    keys = dict.fromkeys(key for of_one in objects for key in of_one)
    for key in keys:
        values = [of_one[key] for of_one in objects if of_one.get(key) is not None]
        together[key] = _member(key, values)
        # Members whose names are numbers belong to a distribution, and get no least and most.
        if _vary(values) and key.isidentifier() and not key.endswith(_PARTS) and not any(key + part in keys for part in _PARTS):
            together |= {f"{key}_min": min(values), f"{key}_max": max(values)}
    return together


def _vary(values):
    return all(type(value) in (int, float) for value in values) and len(set(values)) > 1


def _member(key, values):
    if _vary(values) and key.endswith("_min"):
        return min(values)
    if _vary(values) and key.endswith("_max"):
        return max(values)
    if key == "bins" and values:  # a distribution: bins that a round lacks are 0
        parts = sorted({part for value in values for part in value}, key=int)
        return {part: sum(value.get(part, 0) for value in values) / len(values) for part in parts}
    return merged(values)


def _merged_lists(lists):
    if not all(isinstance(row, dict) for rows in lists for row in rows):
        return [merged(list(of_one_place)) for of_one_place in zip(*lists)]
    matched = {}
    for rows in lists:
        seen = {}
        for row in rows:
            # `pages` is not part of the name, because another round may have got other pages.
            name = tuple((key, value) for key, value in row.items() if isinstance(value, str) and key not in ("pages", "failed"))
            seen[name] = seen.get(name, -1) + 1
            matched.setdefault((name, seen[name]), []).append(row)
    return [merged(rows) for rows in matched.values()]


def chosen(rows, wanted):
    """Returns the rows that have the `wanted` values; a list in `wanted` allows any of its members."""

    def fits(row):
        return all(row.get(key) in (value if isinstance(value, list) else [value]) for key, value in wanted.items())

    return [row for row in rows if fits(row)]


def unfolded(rows, key):
    """Returns rows with the member `key` unfolded. A list becomes a row for each of its elements. An object becomes one row with its
    members or, if its members are measurements or counts, a row for each of them, with `part` (its name), `value` (its value) and
    `share` (its share of the sum)."""
    if key is None:
        return rows
    return [{**row, **member} for row in rows for member in _members(row.get(key) or [])]


def _members(held):
    if isinstance(held, list):
        return held
    counted = all(part.isdigit() for part in held)
    if counted or any(isinstance(value, dict) for value in held.values()):
        whole = sum(_size(value) for value in held.values()) or 1
        return [{"part": int(part) if counted else part, "value": value, "share": _size(value) / whole} for part, value in held.items()]
    return [held]


def _size(value):
    return value["ns_median"] if isinstance(value, dict) else value


def spread(row, key, per=None):
    """Returns median, least and most of the value `key`; for a number without least and most that number three times; None if it was not measured. If `per`
    names another value, divides by that value."""
    value = row.get(key)
    if isinstance(value, dict):  # an object such as {"ns_median": ...}
        three = value["ns_median"], value["ns_min"], value["ns_max"]
    elif value is not None:
        three = value, row.get(f"{key}_min", value), row.get(f"{key}_max", value)
    else:
        three = tuple(row.get(f"{key}{part}") for part in _PARTS)
    if None in three or per and row[per] is None:
        return None
    return tuple(one / row[per] for one in three) if per else three


def apart(measurings, relative):
    """Returns the differences between every two of `measurings` at the same points; as shares of the larger value if `relative`. Each of
    `measurings` is a dictionary of values by point."""
    return [abs(one[where] - other[where]) / (relative and max(abs(one[where]), abs(other[where])) or 1)
            for one, other in itertools.combinations(measurings, 2) for where in one.keys() & other.keys()]


def percentile_95(differences):
    """Returns the smallest difference that 19 of 20 do not exceed; None if there are none."""
    return sorted(differences)[math.ceil(0.95 * len(differences)) - 1] if differences else None
