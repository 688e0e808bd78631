"""The plot of all benchmarks: a panel for each table, a dot for each time."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .table import Row, duration
from .times import GRAPH

_MARKERS = {GRAPH: "D"}  # in a CUDA graph; all others are dots
_COLUMNS = 2
_BAND = 0.3  # height of the lines of a case, together
_WIDTH_OF_NAME = 2.8  # inches for a name in the legend


def possible() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def draw(path: Path, title: str, header: Mapping[str, str], rows: Sequence[Row]) -> None:
    """Draw times from left to right: cases below each other, a colour for each implementation.

    A line through a dot spans the middle half of the times; the dots of doubtful times are hollow.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = [row for row in rows if row.times]
    tables = list(dict.fromkeys(row.table for row in rows))
    colors = {name: f"C{i}" for i, name in enumerate(dict.fromkeys(row.name for row in rows))}
    panels = [[row for row in rows if row.table == table] for table in tables]
    columns = min(len(tables), _COLUMNS)
    lines = -(-len(tables) // columns)
    longest = max(len({row.group for row in panel}) for panel in panels)
    figure, axes = pyplot.subplots(
        lines,
        columns,
        figsize=(8 * columns, 2 + lines * (1.2 + 0.3 * longest)),
        squeeze=False,
        layout="constrained",
        sharex=True,  # so that panels can be compared
    )
    for axis in axes.flat[len(tables) :]:
        axis.set_visible(False)
    for axis, panel in zip(axes.flat, panels, strict=False):
        _panel(axis, panel, colors)
        axis.set_title(panel[0].table, fontsize=9)
    _legend(figure, rows, colors)
    machine = header.get("GPU") or f"{header.get('CPU')}, threads: {header.get('threads', '?')}"
    figure.suptitle(f"{title}\n{machine}, torch {header.get('torch', '?')}", fontsize=10)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def _panel(axis: Any, rows: Sequence[Row], colors: Mapping[str, str]) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    phases = list(dict.fromkeys(row.phase for row in rows))
    cases = list(dict.fromkeys((phases.index(row.phase), row.case) for row in rows))
    places = {case: place for place, case in enumerate(sorted(cases, key=lambda case: case[0]))}
    names = list(dict.fromkeys(row.name for row in rows))
    for row in rows:
        middle = places[phases.index(row.phase), row.case]
        place = middle + _BAND * (2 * names.index(row.name) / max(1, len(names) - 1) - 1)
        for mode, times in row.times.items():
            axis.plot([times.lower, times.upper], [place, place], color=colors[row.name], lw=1)
            filling = "white" if times.doubtful else colors[row.name]
            axis.plot(
                times.median,
                place,
                _MARKERS.get(mode, "o"),
                ms=4,
                color=colors[row.name],
                markerfacecolor=filling,
            )
        if row.floor:
            axis.plot(row.floor, middle, "|", color="black", ms=12)
    labels = [", ".join(filter(None, (case, phases[phase]))) for phase, case in places]
    axis.set_yticks(range(len(labels)), labels, fontsize=7)
    axis.set_ylim(len(labels) - 0.5, -0.5)
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: _round(seconds)))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.tick_params(axis="x", labelbottom=True, labelsize=7, rotation=45)
    axis.grid(axis="x", alpha=0.3)
    axis.set_axisbelow(True)


def _round(seconds: float) -> str:
    """A `duration` without trailing zeros."""
    number, unit = duration(seconds).split()
    return f"{float(number):g} {unit}"


def _legend(figure: Any, rows: Sequence[Row], colors: Mapping[str, str]) -> None:
    """Below the panels: what colours and marks mean."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    def mark(marker: str, label: str, **more: Any) -> Line2D:
        return Line2D([], [], color="gray", ls="", marker=marker, ms=5, label=label, **more)

    modes = dict.fromkeys(mode for row in rows for mode in row.times)
    handles: list[Any] = [Patch(color=color, label=name) for name, color in colors.items()]
    handles += [mark(_MARKERS.get(mode, "o"), mode) for mode in modes]
    handles.append(Line2D([], [], color="gray", lw=1, label="middle half of the times"))
    if any(row.floor for row in rows):
        handles.append(mark("|", "floor"))
    if any(times.doubtful for row in rows for times in row.times.values()):
        handles.append(mark("o", "hollow: machine busy, unreliable", mfc="white"))
    columns = min(len(handles), int(figure.get_figwidth() / _WIDTH_OF_NAME))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=8)
