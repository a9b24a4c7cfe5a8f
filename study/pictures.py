"""Pictures as SVG that follows the page: what is black in it has the colour of the text around it."""

import io
import re

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402

from rows import spread  # noqa: E402

_TEXT = "#010203"  # replaced by the page's own
# Okabe and Ito's, which colour-blind readers tell apart; beyond them, other dashes.
_COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6bb1", "#7f7f7f"]
_DASHES = ["-", "--", ":"]
_MARKERS = "osD^vP*X"

matplotlib.rcParams.update({
    "svg.fonttype": "none", "svg.hashsalt": "millrace", "font.family": "sans-serif", "font.size": 10,
    "text.color": _TEXT, "axes.labelcolor": _TEXT, "axes.edgecolor": _TEXT, "xtick.color": _TEXT, "ytick.color": _TEXT,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25, "legend.frameon": False,
    "figure.facecolor": "none", "axes.facecolor": "none", "savefig.facecolor": "none",
})


def _spread(row, picture):
    return spread(row, picture["y"], picture.get("per"))


def _style(number):
    return {"color": _COLOURS[number % len(_COLOURS)], "linestyle": _DASHES[number // len(_COLOURS) % len(_DASHES)],
            "marker": _MARKERS[number % len(_MARKERS)]}


def _series(rows, picture, names):
    """Those of these rows, each with its place among all: it looks the same in every panel."""
    by = {name: [] for name in names}
    for row in rows:
        by[_name(row, picture)].append(row)
    return [(number, name, of_it) for number, (name, of_it) in enumerate(by.items()) if of_it]


def _name(row, picture):
    return str(row.get(picture.get("series"), ""))


def _lines(axes, rows, picture, names):
    for number, name, of_it in _series(rows, picture, names):
        points = sorted((row[picture["x"]], *_spread(row, picture)) for row in of_it)
        x, median, least, most = zip(*points)
        style = _style(number)
        axes.plot(x, median, label=name, markersize=4, linewidth=1.4, **style)
        axes.fill_between(x, least, most, color=style["color"], alpha=0.15, linewidth=0)
    if picture.get("log_x"):
        axes.set_xscale("log")
    if picture.get("log_y"):
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)


def _bars(axes, rows, picture, names):
    places = list(dict.fromkeys(str(row[picture["x"]]) for row in rows))
    series = _series(rows, picture, names)
    width = 0.8 / len(series)
    for nth, (number, name, of_it) in enumerate(series):
        for row in of_it:
            median, least, most = _spread(row, picture)
            at = places.index(str(row[picture["x"]])) + (nth - (len(series) - 1) / 2) * width
            axes.bar(at, median, width, color=_COLOURS[number % len(_COLOURS)], label=name)
            axes.errorbar(at, median, [[median - least], [most - median]], color=_TEXT, linewidth=0.8, capsize=2)
            name = None
    slanted = sum(map(len, places)) > 50
    axes.set_xticks(range(len(places)), places, rotation=30 if slanted else 0, ha="right" if slanted else "center")
    axes.grid(visible=False, axis="x")


def draw(picture, results):
    """The picture of those results, as text to stand in a page; none where it has nothing to show."""
    pyplot.close("all")  # one that failed is still there
    rows = [row for row in results if row.get(picture["x"]) is not None and _spread(row, picture)]
    if not rows:
        return None
    panels = list(dict.fromkeys(row.get(picture.get("panel")) for row in rows))
    names = list(dict.fromkeys(_name(row, picture) for row in rows))
    bars = picture.get("kind") == "bars"
    # Bars need all of the width.
    across, down = (1, len(panels)) if bars else (len(panels), 1)
    figure, grid = pyplot.subplots(down, across, figsize=(max(8, 3.6 * across), 1 + 2.8 * down), sharey=True, squeeze=False,
                                   layout="constrained")
    for axes, panel in zip(grid.flat, panels):
        of_panel = [row for row in rows if row.get(picture.get("panel")) == panel]
        (_bars if bars else _lines)(axes, of_panel, picture, names)
        axes.set_xlabel(picture.get("x_label", picture["x"]))
        if len(panels) > 1:
            axes.set_title(f"{picture['panel'].replace('_', ' ')} {panel}", fontsize=10)
    for axes in grid[:, 0]:
        axes.set_ylabel(picture.get("y_label", picture["y"]))
    by_label = {label: handle for axes in grid.flat for handle, label in zip(*axes.get_legend_handles_labels())}
    labels = [name for name in names if name in by_label]
    if len(labels) > 1:
        figure.legend([by_label[label] for label in labels], labels, loc="outside right upper", fontsize=9, title=picture["series"].replace("_", " "), title_fontsize=9)
    with io.StringIO() as out:
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
        text = out.getvalue()
    text = text[text.index("<svg"):].replace(_TEXT, "currentColor")
    # The page decides how wide it is, and is told how wide it was drawn.
    drawn = f'<svg style="--drawn: {figure.get_figwidth():g}in" '
    return re.sub(r'<svg ([^>]*?)\b(?:height|width)="[^"]*" ?([^>]*?)\b(?:height|width)="[^"]*"', rf"{drawn}\1\2", text, count=1)
