"""Show what `benchmark sequence` measured: tables, a plot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import _plots, _report
from ._measure import Times
from ._report import marked, share
from ._sequence_cases import LOOP, PHASES, THEIRS

# What is aimed at, beside torch's layer with 256 steps and as many features as hidden units, on an
# H200 and on a CPU with two threads: (batch, hidden) -> LLTM's forward, and forward + backward.
_GOALS = {
    ("cuda", "float16"): {
        (16, 128): (0.21, 0.26),
        (16, 256): (0.36, 0.23),
        (16, 512): (0.42, 0.33),
        (16, 768): (0.52, 0.42),
        (64, 512): (0.16, 0.16),
        (128, 512): (0.25, 0.20),
        (16, 1024): (0.7, 0.6),
        (64, 1024): (0.35, 0.35),
        (16, 2048): (0.5, 0.5),
    },
    ("cuda", "bfloat16"): {
        (16, 128): (0.09, 0.11),
        (16, 256): (0.10, 0.10),
        (16, 512): (0.12, 0.13),
        (16, 768): (0.17, 0.18),
        (64, 512): (0.16, 0.18),
        (128, 512): (0.27, 0.28),
        (16, 1024): (0.22, 0.3),
        (64, 1024): (0.35, 0.4),
        (16, 2048): (0.5, 0.5),
    },
    ("cuda", "float32"): {
        (16, 128): (0.30, 0.40),
        (16, 256): (0.25, 0.20),
        (16, 512): (0.25, 0.20),
        (16, 768): (0.35, 0.30),
        (64, 512): (0.30, 0.25),
        (128, 512): (0.45, 0.35),
        (16, 1024): (0.45, 0.4),
        (64, 1024): (0.5, 0.45),
        (16, 2048): (0.5, 0.5),
    },
    ("cpu", "float32"): {(16, 128): (0.70, 0.65), (16, 256): (0.70, 0.65), (16, 512): (0.75, 0.65)},
    ("cpu", "bfloat16"): {(16, 128): (0.7, 0.7), (16, 256): (0.7, 0.7), (16, 512): (0.7, 0.7)},
}
_CPU_GOAL_OF_LSTM = 0.9  # beside torch's
_GOALS_OF_LLTM = {"LSTM": 1.4, "GRU": 1.3}  # on a GPU: at most so many times the LLTM's time
SIZES = {device: [*_GOALS[device, "float32"]] for device in ("cpu", "cuda")}

_COLUMNS = (  # and their widths
    ("B, H", 9), ("phase", 18), ("layer", 5), ("ours", 8), ("IQR", 6), ("torch", 8), ("IQR", 6),
    ("ratio", 5), ("goal", 4), ("of LLTM", 7), ("goal", 4), ("floor", 7), ("share", 5),
)  # fmt: skip
_MORE_COLUMNS = {
    "cuda": (("eager", 8), ("torch", 8), ("ratio", 5), ("check", 5)),
    "cpu": ((LOOP, 13), ("ratio", 5), ("check", 5)),
}


_STYLES = {False: _plots.HOST, True: _plots.GRAPH}  # of lines, in a CUDA graph
_ABOVE = {  # why a share can be more than 100 %
    "cpu": "faster than the product that was measured as this machine's peak",
    "cuda": "faster than the floor, which is that of an H200",
}


@dataclass(frozen=True)
class Row:
    """One layer at one size in one phase; seconds a step, on a GPU in a CUDA graph."""

    layer: str
    phase: str
    device: str
    dtype: str
    batch_size: int
    hidden_size: int
    steps: int
    check: str  # "match" or "error 1.2e-03"
    floor: float
    ours: Times
    torch: Times  # of torch.nn's layer
    lltm: Times | None  # our LLTM in the same turns
    eager: Times | None  # as the host calls, on a GPU
    eager_torch: Times | None
    loop: Times | None  # of tutorial cells, on a CPU

    @property
    def ratio(self) -> float:
        """Our time over torch's."""
        return self.ours.median / self.torch.median

    @property
    def goal(self) -> float | None:
        """Of the ratio."""
        of_type = _GOALS.get((self.device, self.dtype), {})
        of_size = of_type.get((self.batch_size, self.hidden_size))
        if of_size is None or (self.layer, self.device) == ("LSTM", "cpu"):
            return of_size and _CPU_GOAL_OF_LSTM
        return of_size[PHASES.index(self.phase)] if self.layer == "LLTM" else None

    @property
    def of_lltm(self) -> float | None:
        """Our time over that of our LLTM."""
        return None if self.lltm is None else self.ours.median / self.lltm.median

    @property
    def goal_of_lltm(self) -> float | None:
        return _GOALS_OF_LLTM.get(self.layer) if self.device == "cuda" else None

    @property
    def share(self) -> float:
        """The floor as part of our time."""
        return self.floor / self.ours.median


def by_dtype(rows: Iterable[Row]) -> list[list[Row]]:
    tables: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        tables[row.dtype].append(row)
    return list(tables.values())


def show(rows: Iterable[Row]) -> list[Row]:
    """Print a table of rows, each when it is there; returns them."""
    shown: list[Row] = []
    lines = ""
    for row in rows:
        if not shown:
            print(f"\n{heading(row)}")
        print(line(row), flush=True)
        shown.append(row)
        lines += line(row)
    for note in _report.notes(lines, _ABOVE[shown[0].device]):
        print(note)
    return shown


def heading(row: Row) -> str:
    """The title of a row's table, and its columns."""
    how = ", in a CUDA graph" if row.device == "cuda" else ""
    title = f"{row.dtype}, {row.device}, {row.steps} steps, us a step{how}"
    return f"{title}\n{_in_columns(row, (name for name, _ in _columns(row)))}"


def line(row: Row) -> str:
    """The row below such a heading."""
    cells = [f"{row.batch_size}, {row.hidden_size}", row.phase, row.layer]
    for times in (row.ours, row.torch):
        cells += [_median(times), _time(times.upper - times.lower)]
    cells += [marked(_ratio(row.ratio), row.ours, row.torch), _ratio(row.goal)]
    of_lltm = _ratio(row.of_lltm)
    cells += [marked(of_lltm, row.ours, row.lltm) if row.lltm else of_lltm]
    cells += [_ratio(row.goal_of_lltm), _time(row.floor), marked(share(row.share), row.ours)]
    if row.eager and row.eager_torch:
        eager = _ratio(row.eager.median / row.eager_torch.median)
        cells += [_median(row.eager), _median(row.eager_torch)]
        cells += [marked(eager, row.eager, row.eager_torch)]
    elif row.loop:
        cells += [_median(row.loop)]
        cells += [marked(_ratio(row.ours.median / row.loop.median), row.ours, row.loop)]
    else:
        cells += ["-", "-"]
    return _in_columns(row, [*cells, row.check])


def _in_columns(row: Row, cells: Iterable[str]) -> str:
    return _report.in_columns(cells, (width for _, width in _columns(row)))


def _columns(row: Row) -> tuple[tuple[str, int], ...]:
    return _COLUMNS + _MORE_COLUMNS[row.device]


def _median(times: Times) -> str:
    return marked(_time(times.median), times)


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.3f}" if seconds < 10e-6 else f"{seconds * 1e6:.1f}"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def above(rows: Iterable[Row]) -> list[str]:
    """The rows above a goal, in words."""
    found = []
    for row in rows:
        name = f"{row.layer} {row.dtype}, {row.phase}, B {row.batch_size}, H {row.hidden_size}"
        if row.goal is not None and row.ratio > row.goal:
            ratio = marked(_ratio(row.ratio), row.ours, row.torch)
            found.append(f"{name}: {ratio} of {THEIRS[row.layer]}, goal {row.goal:.2f}")
        goal, of_lltm = row.goal_of_lltm, row.of_lltm
        if goal is not None and row.lltm and of_lltm is not None and of_lltm > goal:
            ratio = marked(_ratio(of_lltm), row.ours, row.lltm)
            found.append(f"{name}: {ratio} of the LLTM, goal {goal:.2f}")
    return found


def plot(path: Path, header: Mapping[str, str], rows: Sequence[Row]) -> None:
    """Draw time a step over hidden size: a panel a type and phase, a colour a layer.

    Of the batch size that most rows have.
    """
    sizes = [row.batch_size for row in rows]
    batch_size, first = max(sizes, key=sizes.count), rows[0].layer
    rows = [row for row in rows if row.batch_size == batch_size]
    tables = by_dtype(rows)
    places = {float(row.hidden_size): str(row.hidden_size) for row in rows}
    every = [(row.ours, row.torch, row.eager, row.eager_torch, row.loop) for row in rows]
    times = [each for of_row in every for each in of_row if each]
    floors = [Times(row.floor, row.floor, row.floor, row.floor, 1) for row in rows]
    colors = {name: f"C{i}" for i, name in enumerate(_names(rows))}
    figure, axes = _plots.panels(len(PHASES), len(tables), (4.2, 3.6))
    for column, table in zip(axes.T, tables, strict=True):
        for axis, phase in zip(column, PHASES, strict=True):
            points = [row for row in table if row.phase == phase]
            floor = {row.hidden_size: 1e6 * row.floor for row in points if row.layer == first}
            axis.plot(sorted(floor), [floor[h] for h in sorted(floor)], "k:", lw=1, marker="_")
            for graph, style in _STYLES.items():
                _plots.draw_lines(axis, _lines(points, graph), colors, style)
            _plots.label_axes(axis, places, [*times, *floors])
            axis.set_title(f"{table[0].dtype}, {phase}", fontsize=10)
    for axis in axes[-1]:
        axis.set_xlabel("hidden size")
    for left, *_ in axes:
        left.set_ylabel("time of one step")
    styles = _plots.STYLES if rows[0].device == "cuda" else {}
    _plots.legend(figure, colors, times, {**styles, f"the {first}'s floor": ":"})
    title = f"Recurrent layers, batch {batch_size}, {rows[0].steps} steps"
    _plots.save(figure, title, header, path)


def _names(rows: Iterable[Row]) -> list[str]:
    """Of the lines, the layers' own first."""
    rows = list(rows)
    theirs = [THEIRS[row.layer] for row in rows]
    loops = [LOOP for row in rows if row.loop]
    return list(dict.fromkeys([*(row.layer for row in rows), *theirs, *loops]))


def _lines(rows: Iterable[Row], in_graph: bool) -> dict[str, dict[float, Times]]:
    """Times by name and hidden size: those in a CUDA graph, or as the host calls."""
    lines: dict[str, dict[float, Times]] = defaultdict(dict)
    for row in rows:
        on_gpu = row.device == "cuda"
        ours, theirs = (row.eager, row.eager_torch) if on_gpu else (row.ours, row.torch)
        if in_graph:
            ours, theirs = (row.ours, row.torch) if on_gpu else (None, None)
        for name, times in ((row.layer, ours), (THEIRS[row.layer], theirs)):
            if times:
                lines[name][row.hidden_size] = times
        if row.loop and not in_graph:
            lines[LOOP][row.hidden_size] = row.loop
    return lines
