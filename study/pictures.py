"""Draws pictures as SVG in the page's colours: axes and labels get the colour of the surrounding text. The legend is text of the
page, so that it wraps on a narrow page."""

import io
import re

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.ticker import MaxNLocator  # noqa: E402

from rows import spread  # noqa: E402

_TEXT = "#010203"  # replaced by the page's text colour
# Colours of Okabe and Ito, which colour-blind readers can tell apart. Beyond eight series the dashes differ, too.
_COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#7f7f7f"]
_DASHES = ["-", "--", ":"]
_MARKERS = "osD^vP*X"
_DRAWN = {"-": "─", "--": "╌", ":": "┈", **dict(zip(_MARKERS, "●■◆▲▼✚★✖"))}  # dashes and markers as characters
_FEW = 6  # up to this many values of x, each has a tick

matplotlib.rcParams.update({
    "svg.fonttype": "none", "svg.hashsalt": "millrace", "font.family": "sans-serif", "font.size": 10,
    "text.color": _TEXT, "axes.labelcolor": _TEXT, "axes.edgecolor": _TEXT, "xtick.color": _TEXT, "ytick.color": _TEXT,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25, "legend.frameon": False,
    "figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none",
})


def _shown(value):
    return f"{value:,}" if type(value) is int else f"{value:g}" if isinstance(value, float) else str(value)


def _spread(row, picture):
    return spread(row, picture["y"], picture.get("per"))


def _style(number):
    return {"color": _COLOURS[number % len(_COLOURS)], "linestyle": _DASHES[number // len(_COLOURS) % len(_DASHES)],
            "marker": _MARKERS[number % len(_MARKERS)]}


def _series(rows, picture, names):
    """Returns number, name and rows of each series that has rows. The number is the series' place in `names`: it chooses colour and
    dashes, so that a series looks the same in every panel."""
    by = {name: [] for name in names}
    for row in rows:
        by[_name(row, picture)].append(row)
    return [(number, name, of_it) for number, (name, of_it) in enumerate(by.items()) if of_it]


def _name(row, picture):
    return str(row.get(picture.get("series"), ""))


def _lines(axes, rows, picture, names):
    for number, _, of_it in _series(rows, picture, names):
        points = sorted((row[picture["x"]], *_spread(row, picture)) for row in of_it)
        x, median, least, most = zip(*points)
        style = _style(number)
        axes.plot(x, median, markersize=4, linewidth=1.4, **style)
        axes.fill_between(x, least, most, color=style["color"], alpha=0.15, linewidth=0)
    if picture.get("log_x"):
        axes.set_xscale("log")
    values = sorted({row[picture["x"]] for row in rows})
    if len(values) <= _FEW:
        axes.set_xticks(values, map(_shown, values))
        axes.set_xticks([], minor=True)
    elif not picture.get("log_x") and all(isinstance(value, int) for value in values):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _heights(axes, rows, picture):
    """Sets the scale of the y axis, which all panels share. A linear axis begins at 0, or at the least median if that is negative."""
    shown = [_spread(row, picture) for row in rows]
    if picture.get("log_y"):
        axes.set_yscale("log")
    elif any(most for _, _, most in shown):
        axes.set_ylim(bottom=min(0, *(median for median, _, _ in shown)))
    else:
        axes.set_ylim(0, 1)


def _bars(axes, rows, picture, names):
    places = list(dict.fromkeys(row[picture["x"]] for row in rows))
    series = _series(rows, picture, names)
    width = 0.8 / len(series)
    for at, place in enumerate(places):
        here = [(number, row) for number, _, of_it in series for row in of_it if row[picture["x"]] == place]
        for nth, (number, row) in enumerate(here):
            median, least, most = _spread(row, picture)
            middle = at + (nth - (len(here) - 1) / 2) * width
            axes.bar(middle, median, width, color=_COLOURS[number % len(_COLOURS)])
            axes.errorbar(middle, median, [[median - least], [most - median]], color=_TEXT, linewidth=0.8, capsize=2)
    labels = [_shown(place) for place in places]
    slanted = sum(map(len, labels)) > 50
    axes.set_xticks(range(len(places)), labels, rotation=30 if slanted else 0, ha="right" if slanted else "center")
    axes.grid(visible=False, axis="x")


def _legend(picture, names):
    """Returns for each name its colour, and its line and marker as characters."""
    for number, name in enumerate(names):
        style = _style(number)
        dash = _DRAWN[style["linestyle"]]
        drawn = "■" if picture.get("kind") == "bars" else dash + _DRAWN[style["marker"]] + dash
        yield {"name": name, "colour": style["color"], "drawn": drawn}


def draw(picture, results):
    """Returns the picture of the results: `svg` for a page, and its `legend`; None if there is nothing to show."""
    pyplot.close("all")  # a drawing that failed is still open
    rows = [row for row in results if row.get(picture["x"]) is not None and _spread(row, picture)]
    if not rows:
        return None
    panels = list(dict.fromkeys(row.get(picture.get("panel")) for row in rows))
    names = list(dict.fromkeys(_name(row, picture) for row in rows))
    bars = picture.get("kind") == "bars"
    # Panels with bars need the whole width, so they stand below each other.
    across, down = (1, len(panels)) if bars else (len(panels), 1)
    figure, grid = pyplot.subplots(down, across, figsize=(max(8, 3.6 * across), 1 + 2.8 * down), sharey=True, squeeze=False,
                                   layout="constrained")
    for axes, panel in zip(grid.flat, panels):
        of_panel = [row for row in rows if row.get(picture.get("panel")) == panel]
        (_bars if bars else _lines)(axes, of_panel, picture, names)
        axes.set_xlabel(picture.get("x_label", picture["x"]))
        if len(panels) > 1:
            axes.set_title(f"{picture['panel'].replace('_', ' ')} {panel}", fontsize=10)
    _heights(grid[0, 0], rows, picture)
    for axes in grid[:, 0]:
        axes.set_ylabel(picture.get("y_label", picture["y"]))
    with io.StringIO() as out:
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
        text = out.getvalue()
    text = text[text.index("<svg"):].replace(_TEXT, "currentColor")
    # The page's style sets the width, and uses `--drawn`, the width of the drawing.
    drawn = f'<svg style="--drawn: {figure.get_figwidth():g}in" '
    svg = re.sub(r'<svg ([^>]*?)\b(?:height|width)="[^"]*" ?([^>]*?)\b(?:height|width)="[^"]*"', rf"{drawn}\1\2", text, count=1)
    legend = list(_legend(picture, names)) if len(names) > 1 else []
    return {"svg": svg, "of": picture.get("series", "").replace("_", " "), "legend": legend}
