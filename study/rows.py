"""What benches have written, as rows: rounds put together, lists unfolded, some of them chosen."""

import statistics


def merged(values):
    """One value of as many rounds: the median of medians, the least and the most of all. Rows of lists are matched by their names,
    and among rows of one name by their order."""
    first = values[0]
    if isinstance(first, dict):
        keys = dict.fromkeys(key for value in values for key in value)
        return {key: _member(key, [value[key] for value in values if key in value]) for key in keys}
    if isinstance(first, list):
        return _merged_lists(values)
    if isinstance(first, str):
        return " or ".join(dict.fromkeys(values))
    numbers = [value for value in values if value is not None]
    if all(number == first for number in numbers) or isinstance(first, bool):
        return first
    return statistics.median(numbers)


def _member(key, values):
    if all(isinstance(value, (int, float)) for value in values):
        if key.endswith("_min"):
            return min(values)
        if key.endswith("_max"):
            return max(values)
    if key == "bins":
        return {part: sum(value.get(part, 0) for value in values) / len(values) for part in {part for value in values for part in value}}
    return merged(values)


def _merged_lists(lists):
    if not all(isinstance(row, dict) for rows in lists for row in rows):
        return [merged(list(of_one_place)) for of_one_place in zip(*lists)]
    matched = {}
    for rows in lists:
        seen = {}
        for row in rows:
            # On which pages a table lies is no part of its name: another round may have got others.
            name = tuple((key, value) for key, value in row.items() if isinstance(value, str) and key not in ("pages", "failed"))
            seen[name] = seen.get(name, -1) + 1
            matched.setdefault((name, seen[name]), []).append(row)
    return [merged(rows) for rows in matched.values()]


def chosen(rows, wanted):
    """Those that have these values; where a list is given, one of them."""

    def fits(row):
        return all(row.get(key) in (value if isinstance(value, list) else [value]) for key, value in wanted.items())

    return [row for row in rows if fits(row)]


def unfolded(rows, key):
    """Where a row holds a list, a row for each of its members; where an object, one with its members, or if these are measured or
    counted, one for each: `part` is the name, `value` what it holds, `share` that of all."""
    if key is None:
        return rows
    return [{**row, **member} for row in rows for member in _members(row.get(key, []))]


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
    """Median, least and most of a value; the same three where it is but one. As so many times another value, where `per` names one."""
    value = row.get(key)
    if isinstance(value, dict):  # as {"ns_median": ...}
        three = value["ns_median"], value["ns_min"], value["ns_max"]
    elif value is not None:
        three = value, value, value
    elif row.get(f"{key}_median") is not None:
        three = tuple(row[f"{key}_{which}"] for which in ("median", "min", "max"))
    else:
        return None
    return tuple(one / row[per] for one in three) if per else three
