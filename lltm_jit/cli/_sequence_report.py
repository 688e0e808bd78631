"""Show what `benchmark sequence` measured: tables, a plot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from . import _report
from ._measure import Times
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


def heading(row: Row) -> str:
    """The title of a row's table, and its columns."""
    how = ", in a CUDA graph" if row.device == "cuda" else ""
    title = f"{row.dtype}, {row.device}, {row.steps} steps, us a step{how}"
    return f"{title}\n{_in_columns(row, (name for name, _ in _columns(row)))}"


def line(row: Row) -> str:
    """The row below such a heading."""
    cells = [f"{row.batch_size}, {row.hidden_size}", row.phase, row.layer]
    for times in (row.ours, row.torch):
        cells += [_time(times.median), _time(times.upper - times.lower)]
    ratios = (row.ratio, row.goal, row.of_lltm, row.goal_of_lltm)
    cells += [*map(_ratio, ratios), _time(row.floor), f"{row.share:.0%}"]
    if row.eager and row.eager_torch:
        eager = row.eager.median / row.eager_torch.median
        cells += [_time(row.eager.median), _time(row.eager_torch.median), _ratio(eager)]
    elif row.loop:
        cells += [_time(row.loop.median), _ratio(row.ours.median / row.loop.median)]
    else:
        cells += ["-", "-"]
    return _in_columns(row, [*cells, row.check])


def _in_columns(row: Row, cells: Iterable[str]) -> str:
    return _report.in_columns(cells, (width for _, width in _columns(row)))


def _columns(row: Row) -> tuple[tuple[str, int], ...]:
    return _COLUMNS + _MORE_COLUMNS[row.device]


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
            found.append(f"{name}: {row.ratio:.2f} of {THEIRS[row.layer]}, goal {row.goal:.2f}")
        goal, of_lltm = row.goal_of_lltm, row.of_lltm
        if goal is not None and of_lltm is not None and of_lltm > goal:
            found.append(f"{name}: {of_lltm:.2f} of the LLTM, goal {goal:.2f}")
    return found


def plot(path: Path, header: dict[str, str], rows: list[Row]) -> None:
    """Draw time a step over hidden size: a panel a type and phase, a line a layer.

    Of the batch size that most rows have.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    sizes = [row.batch_size for row in rows]
    batch_size, first = max(sizes, key=sizes.count), rows[0].layer
    panels: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row.batch_size == batch_size:
            panels[row.phase, row.dtype].append(row)
    dtypes = list(dict.fromkeys(row.dtype for row in rows))
    size = (5 * len(dtypes), 8)
    figure, axes = pyplot.subplots(len(PHASES), len(dtypes), figsize=size, squeeze=False)
    for (phase, dtype), points in panels.items():
        axis = axes[PHASES.index(phase)][dtypes.index(dtype)]
        floors = {row.hidden_size: row.floor * 1e6 for row in points if row.layer == first}
        axis.plot(sorted(floors), [floors[hidden] for hidden in sorted(floors)], "k:", lw=1)
        _report.draw_lines(axis, _lines(points))
        axis.set_title(f"{dtype}, {phase}")
    for axis in axes[-1]:
        axis.set_xlabel("hidden size")
    for left, *_ in axes:
        left.set_ylabel(f"us a step (dotted: the {first}'s floor)")
    how = f"batch {batch_size}, {rows[0].steps} steps"
    figure.suptitle(f"Recurrent layers, {how}: {_report.machine(header)}", y=0.99)
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _lines(rows: Iterable[Row]) -> dict[str, dict[int, Times]]:
    """Times by name and hidden size."""
    lines: dict[str, dict[int, Times]] = defaultdict(dict)
    for row in rows:
        lines[row.layer][row.hidden_size] = row.ours
        lines[THEIRS[row.layer]][row.hidden_size] = row.torch
        if row.loop:
            lines[LOOP][row.hidden_size] = row.loop
    return lines
