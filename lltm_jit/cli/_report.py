"""Show measurements: a table, ratios to an earlier run, a plot."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lltm_jit.jit import LltmJitError

from . import _build
from ._measure import Times

_COLUMNS = ["implementation", "check", "median", "IQR", "min", "speed-up", "GFLOP/s", "GB/s"]
_LABEL_HEIGHT = 0.055  # of a panel


@dataclass(frozen=True)
class Row:
    """One implementation at one size in one phase."""

    device: str
    dtype: str
    batch_size: int
    input_size: int
    hidden_size: int
    phase: str
    implementation: str
    check: str  # "match", "error 1.2e-03", or "-" for what has nothing to match
    host: Times
    graph: Times | None  # inside a CUDA graph
    gflops: float
    gflops_share: float  # of what a matrix product reaches on this machine
    gbytes: float
    gbytes_share: float  # of what a copy reaches

    @property
    def group(self) -> tuple:
        """What rows have in common that are compared with each other."""
        sizes = (self.batch_size, self.input_size, self.hidden_size)
        return (self.device, self.dtype, *sizes, self.phase)

    @property
    def key(self) -> tuple:
        return (*self.group, self.implementation)


def tables(rows: Iterable[Row]) -> str:
    """One table a size and phase; speed-ups are against its first row."""
    groups: dict[tuple, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row.group].append(row)
    return "\n\n".join(_table(group) for group in groups.values())


def _table(rows: list[Row]) -> str:
    first = rows[0]
    sizes = (
        f"batch {first.batch_size}, input {first.input_size}, hidden {first.hidden_size}"
        f", {first.dtype}, {first.device}"
    )
    with_graph = any(row.graph for row in rows)
    lines = [_COLUMNS + (["in a graph", "speed-up"] if with_graph else [])]
    for row in rows:
        host = row.host
        cells = [
            row.implementation,
            row.check,
            microseconds(host.median),
            microseconds(host.upper - host.lower),
            microseconds(host.least),
            f"{first.host.median / host.median:.2f}x",
            f"{row.gflops:.1f} ({row.gflops_share:.0%})",
            f"{row.gbytes:.1f} ({row.gbytes_share:.0%})",
        ]
        if with_graph and row.graph:
            base = first.graph.median / row.graph.median if first.graph else 0
            cells += [microseconds(row.graph.median), f"{base:.2f}x" if base else "-"]
        elif with_graph:
            cells += ["-", "-"]
        lines.append(cells)
    rates = "; rates are of the time in a graph" if with_graph else ""
    return f"{first.phase}: {sizes}{rates}\n{_build.table(lines)}"


def microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us"


def in_columns(cells: Iterable[str], widths: Iterable[int]) -> str:
    """A line of a table that is printed while it is measured; the last cell may be wider."""
    return "  ".join(map(str.ljust, cells, widths)).rstrip()


def save(path: Path, header: dict[str, str], rows: Sequence[Any]) -> None:
    """Write header and rows, which are dataclasses, as JSON."""
    rows_as_json = [asdict(row) for row in rows]
    path.write_text(json.dumps({"header": header, "rows": rows_as_json}, indent=1) + "\n", "utf-8")


def load(path: Path) -> tuple[dict[str, str], list[Row]]:
    """Read what :func:`save` wrote.

    Raises:
        LltmJitError: the file cannot be read, or is of another kind.
    """
    try:
        told = json.loads(path.read_text("utf-8"))
        return told["header"], [_row(values) for values in told["rows"]]
    except OSError as error:
        raise LltmJitError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise LltmJitError(f"{path} is not a file that benchmark --json wrote") from error


def _row(values: dict[str, Any]) -> Row:
    times = {name: Times(**values[name]) if values[name] else None for name in ("host", "graph")}
    return Row(**{**values, **times})


def comparison(before: Iterable[Row], now: Iterable[Row]) -> str:
    """Ratios of medians, new to old; what lies beyond the noise of both runs is marked.

    Beyond noise means that the middle halves of the two samples do not meet.
    """
    earlier = {row.key: row for row in before}
    lines = [["case", "implementation", "before", "now", "now/before", "", "in a graph", ""]]
    for row in now:
        old = earlier.get(row.key)
        if old is None:
            continue
        sizes = f"({row.batch_size}, {row.input_size}, {row.hidden_size}) {row.dtype} {row.device}"
        times = [microseconds(old.host.median), microseconds(row.host.median)]
        graph = _ratio(old.graph, row.graph) if old.graph and row.graph else ["", ""]
        cells = [f"{row.phase}: {sizes}", row.implementation, *times, *_ratio(old.host, row.host)]
        lines.append(cells + graph)
    if len(lines) == 1:
        return "no case is in both runs"
    return _build.table(lines)


def _ratio(old: Times, new: Times) -> list[str]:
    mark = ""
    if new.upper < old.lower:
        mark = "faster"
    if new.lower > old.upper:
        mark = "SLOWER"
    return [f"{new.median / old.median:.2f}", mark]


def need_matplotlib() -> None:
    """Look for what :func:`plot` draws with, before anything is measured.

    Raises:
        LltmJitError: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise LltmJitError("--plot needs matplotlib: `python -m pip install matplotlib`")


def plot(path: Path, header: dict[str, str], rows: list[Row]) -> None:
    """Draw time over hidden size, both logarithmic: a panel a phase, a line an implementation."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    phases = list(dict.fromkeys(row.phase for row in rows))
    figure, axes = pyplot.subplots(1, len(phases), figsize=(5 * len(phases), 4.2), squeeze=False)
    for axis, phase in zip(axes[0], phases, strict=True):
        lines: dict[str, dict[int, Times]] = defaultdict(dict)
        for row in rows:
            if row.phase == phase:
                lines[row.implementation][row.hidden_size] = row.host
        draw_lines(axis, lines)
        axis.set_title(phase)
        axis.set_xlabel("hidden size")
    axes[0][0].set_ylabel("time of one call, us")
    batches = ", ".join(str(size) for size in dict.fromkeys(row.batch_size for row in rows))
    figure.suptitle(f"LLTM cell, {rows[0].dtype}, batch {batches}: {machine(header)}", y=0.99)
    figure.tight_layout()
    figure.savefig(path, dpi=150)
    pyplot.close(figure)


def machine(header: dict[str, str]) -> str:
    """Where figures were measured, in the title of a plot."""
    return header.get("GPU") or f"{header['CPU']}, threads: {header.get('threads', '?')}"


def draw_lines(axis: Any, lines: Mapping[str, Mapping[int, Times]]) -> None:
    """Draw times by name and hidden size, both logarithmic."""
    ends = []
    for name, points in lines.items():
        sizes = sorted(points)
        times = [points[size] for size in sizes]
        (line,) = axis.plot(sizes, [each.median * 1e6 for each in times], marker="o", ms=3)
        lower, upper = [each.lower * 1e6 for each in times], [each.upper * 1e6 for each in times]
        axis.fill_between(sizes, lower, upper, alpha=0.2, color=line.get_color(), lw=0)
        ends.append((sizes[-1], times[-1].median * 1e6, name, line.get_color()))
    axis.set_xscale("log", base=2)
    axis.set_yscale("log")
    axis.grid(alpha=0.3, which="major")
    _label(axis, ends)


def _label(axis: Any, ends: Iterable[tuple[float, float, str, str]]) -> None:
    """Write each line's name beside its end, in its colour, no two over each other."""
    limits = [math.log(limit) for limit in axis.get_ylim()]
    lowest = 0.0
    for _, time, name, color in sorted(ends, key=lambda end: end[1]):
        height = (math.log(time) - limits[0]) / (limits[1] - limits[0])
        height = max(height, lowest)
        lowest = height + _LABEL_HEIGHT
        place = {"xycoords": "axes fraction", "va": "center", "fontsize": 9, "color": color}
        axis.annotate(f" {name}", (1.0, height), annotation_clip=False, **place)
