"""What the plots of `benchmark` share: their axes, ticks, bands and legends."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lltm_jit.jit import LltmJitError

from ._measure import Times

HOST, GRAPH = "-", "--"  # lines of times
STYLES = {"as the host calls": HOST, "in a CUDA graph": GRAPH}
PALE = 0.4  # opacity of what is not to be relied on
_ROUND = (1, 2, 5)  # what labels begin with
_BAND = 0.2  # its opacity
_WIDTH = 6.0  # of a figure at the least, for its title and legend; inches
_WIDTH_OF_NAME = 2.8  # in a legend


def need_matplotlib() -> None:
    """Look for what plots are drawn with, before anything is measured.

    Raises:
        LltmJitError: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise LltmJitError("--plot needs matplotlib: `python -m pip install matplotlib`")


def machine(header: Mapping[str, str]) -> str:
    """Where figures were measured, in the title of a plot."""
    return header.get("GPU") or f"{header['CPU']}, threads: {header.get('threads', '?')}"


def panels(rows: int, columns: int, size: tuple[float, float], share: str = "y") -> tuple[Any, Any]:
    """A figure and its axes, in rows; panels share one axis, that they can be compared."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        rows,
        columns,
        figsize=(max(columns * size[0], _WIDTH), rows * size[1]),
        squeeze=False,
        layout="constrained",
        sharex=share == "x",
        sharey=share == "y",
    )
    return figure, axes


def draw_lines(
    axis: Any, lines: Mapping[str, Mapping[float, Times]], colors: Mapping[str, str], style: str
) -> None:
    """Draw times by name and place, in microseconds: the median, and the middle half as a band."""
    for name, points in lines.items():
        places = sorted(points)
        times = [points[place] for place in places]
        color = colors[name]
        axis.plot(places, [1e6 * each.median for each in times], style, color=color, lw=1.5)
        for place, each in zip(places, times, strict=True):
            filling = "white" if each.doubtful else color
            axis.plot(place, 1e6 * each.median, "o", ms=4, color=color, markerfacecolor=filling)
        lower, upper = [1e6 * each.lower for each in times], [1e6 * each.upper for each in times]
        axis.fill_between(places, lower, upper, alpha=_BAND, color=color, lw=0)


def label_axes(axis: Any, places: Mapping[float, str], times: Iterable[Times]) -> None:
    """Both axes logarithmic, with round numbers written out; the times set the limits of y."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    every = [1e6 * end for each in times for end in (each.lower, each.upper)]
    ticks = round_numbers(min(every), max(every))
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.set_xticks(list(places), list(places.values()))
    axis.yaxis.set_major_locator(FixedLocator(ticks))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda time, _: f"{time:g} us"))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.yaxis.set_minor_locator(NullLocator())
    axis.set_ylim(ticks[0], ticks[-1])
    axis.grid(alpha=0.3)


def round_numbers(least: float, most: float) -> list[float]:
    """From one below the least to one above the most, two or more; few where they are far apart."""
    decades = range(math.floor(math.log10(least)), math.ceil(math.log10(most)) + 1)
    heads = _ROUND if len(decades) < 5 else _ROUND[:1]
    numbers = [head * 10.0**decade for decade in decades for head in heads]
    first = max(number for number in numbers if number <= least)
    last = min((number for number in numbers if number >= most), default=numbers[-1])
    return [number for number in numbers if first <= number <= last] if last > first else numbers


def legend(
    figure: Any,
    colors: Mapping[str, str],
    times: Sequence[Times],
    lines: Mapping[str, str] | None = None,
    band: bool = True,
    mark: str = "hollow",
) -> None:
    """Below the panels: what colours mean, styles of lines, the band, and the mark of doubt."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Patch(color=color, label=name) for name, color in colors.items()]
    handles += [
        Line2D([], [], color="black", ls=style, lw=1, label=name)
        for name, style in (lines or {}).items()
    ]
    if band:
        handles.append(
            Patch(color="gray", alpha=_BAND, lw=0, label="band: middle half of the times")
        )
    if any(each.doubtful for each in times):
        label = f"{mark}: machine busy, unreliable"
        hollow = Line2D([], [], color="gray", ls="", marker="o", ms=5, mfc="white", label=label)
        handles.append(hollow if mark == "hollow" else Patch(color="gray", alpha=PALE, label=label))
    columns = min(len(handles), int(figure.get_figwidth() / _WIDTH_OF_NAME))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=8)


def save(figure: Any, title: str, header: Mapping[str, str], path: Path) -> None:
    """Write the figure under a title of two lines, the second about the machine."""
    from matplotlib import pyplot

    figure.suptitle(f"{title}\n{machine(header)}, torch {header.get('torch', '?')}", fontsize=10)
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
