"""Show what `benchmark stylegan` measured: tables, a plot, a file."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import _build, _plots, _report
from ._measure import Times
from ._report import in_columns, marked, microseconds

# The most that a result may be off, as a multiple of rounding alone: filtered_lrelu multiplies
# halves, and pairs of halves for a float. In double plain PyTorch is the exact result.
_LIMITS = {"float16": 2.2, "bfloat16": 1.1, "float32": 40.0, "float64": 0.0}
_LIMIT_OF_DOUBLE = 1e-13
_COLUMNS = ("case", "phase", "median", "IQR", "of copy", "plain PyTorch", "IQR", "ratio")
_WIDTHS = (18, 11, 9, 7, 13, 9, 5)  # of those after the first
_COLORS = {"kernels": "C0", "plain PyTorch": "C1"}
_COLUMNS_OF_PLOT = 2
_ABOVE = "faster than a copy of as many bytes: on a CPU, operands are in cache"


@dataclass(frozen=True)
class Row:
    """One case: seconds of the kernels, of plain PyTorch, and of a copy of as many bytes."""

    operator: str
    case: str
    phase: str
    device: str
    dtype: str
    shape: tuple[int, ...]
    in_graph: bool  # in a CUDA graph
    bytes: int  # the fewest that must move
    kernels: Times
    plain: Times
    copy: Times

    @property
    def times(self) -> tuple[Times, ...]:
        return (self.kernels, self.plain, self.copy)

    @property
    def share(self) -> float:
        """The bandwidth of the kernels, over the fewest bytes, as part of the copy's."""
        return self.copy.median / self.kernels.median

    @property
    def ratio(self) -> float:
        """Time of the kernels over that of plain PyTorch."""
        return self.kernels.median / self.plain.median

    @property
    def group(self) -> tuple:
        """What the rows of a table have in common."""
        return (self.operator, self.dtype, self.shape, self.device, self.in_graph)


@dataclass(frozen=True)
class Error:
    """Norm of the difference from float64 over the norm, of the result and of the gradient to x."""

    operator: str
    case: str
    dtype: str
    kernels: float
    plain: float
    rounding: float  # of the exact result, and nothing else
    kernels_gradient: float
    plain_gradient: float

    @property
    def good(self) -> bool:
        """Within the limit of the type; gradients of saved 16-bit results as plain PyTorch's."""
        return not self.above

    @property
    def above(self) -> list[str]:
        """What is not, in words; so is what is no number."""
        limit = max(_LIMITS[self.dtype] * self.rounding, _LIMIT_OF_DOUBLE)
        gradient_limit = max(limit, 2 * self.plain_gradient)
        figures = {
            "result": (self.kernels, limit),
            "gradient": (self.kernels_gradient, gradient_limit),
        }
        return [
            f"{self.operator}: {self.case}, {self.dtype}, {name} {error:.1e}, limit {most:.1e}"
            for name, (error, most) in figures.items()
            if not error <= most
        ]


def heading(row: Row, width: int) -> str:
    """The title of a row's table and its columns, the first of them of `width`."""
    how = ", in a CUDA graph" if row.in_graph else ""
    title = f"{row.operator}: {row.dtype}, {list(row.shape)}, {row.device}{how}"
    return f"{title}\n{in_columns(_COLUMNS, (width, *_WIDTHS))}"


def by_group(rows: Iterable[Row]) -> list[list[Row]]:
    tables: dict[tuple, list[Row]] = defaultdict(list)
    for row in rows:
        tables[row.group].append(row)
    return list(tables.values())


def show(rows: Iterable[Row], width: int) -> list[Row]:
    """Print a table of rows, each when it is there, the first column of `width`; returns them."""
    shown: list[Row] = []
    lines = ""
    for row in rows:
        if not shown:
            print(f"\n{heading(row, width)}")
        print(line(row, width), flush=True)
        shown.append(row)
        lines += line(row, width)
    for note in _report.notes(lines, _ABOVE):
        print(note)
    return shown


def line(row: Row, width: int) -> str:
    """The row below such a heading."""
    share = marked(_report.share(row.share), row.kernels, row.copy)
    ratio = marked(f"{row.ratio:.3f}", row.kernels, row.plain)
    cells = [row.case, row.phase, *_middle(row.kernels), share, *_middle(row.plain), ratio]
    return in_columns(cells, (width, *_WIDTHS))


def _middle(times: Times) -> list[str]:
    return [marked(microseconds(times.median), times), microseconds(times.upper - times.lower)]


def error_table(errors: Iterable[Error]) -> str:
    """Errors of results and of gradients, with those of plain PyTorch and of rounding alone."""
    lines = [["case", "dtype", "result", "plain", "rounding", "gradient", "plain", ""]]
    for error in errors:
        of_result = (error.kernels, error.plain, error.rounding)
        figures = (*of_result, error.kernels_gradient, error.plain_gradient)
        name = f"{error.operator}: {error.case}"
        mark = "" if error.good else "above"
        lines.append([name, error.dtype, *(f"{figure:.1e}" for figure in figures), mark])
    return f"norm of the difference from float64 over the norm\n{_build.table(lines)}"


def above(errors: Iterable[Error]) -> list[str]:
    """The errors above a limit, in words."""
    return [line for error in errors for line in error.above]


def save(path: Path, header: dict[str, str], rows: list[Row], errors: list[Error]) -> None:
    """Write everything as JSON."""
    parts = {"rows": [asdict(row) for row in rows], "errors": [asdict(error) for error in errors]}
    path.write_text(json.dumps({"header": header, **parts}, indent=1) + "\n", "utf-8")


def load_errors(path: Path) -> list[Error]:
    """Those in a file that :func:`save` wrote."""
    return [Error(**values) for values in json.loads(path.read_text("utf-8"))["errors"]]


def plot(path: Path, header: Mapping[str, str], rows: Iterable[Row]) -> None:
    """Draw the shares of the copy's bandwidth as bars: a panel for each dtype and shape."""
    tables: dict[tuple, list[Row]] = defaultdict(list)
    for row in rows:
        tables[(row.dtype, row.shape, row.device, row.in_graph)].append(row)
    longest = max(map(len, tables.values()))
    columns = min(len(tables), _COLUMNS_OF_PLOT)
    lines = -(-len(tables) // columns)
    size = (7, 2 + 0.2 * longest)
    figure, axes = _plots.panels(lines, columns, size, share="x")
    for axis in axes.flat[len(tables) :]:
        axis.set_visible(False)
    for axis, ((dtype, shape, device, in_graph), table) in zip(
        axes.flat, tables.items(), strict=False
    ):
        _panel(axis, table)
        how = ", in a CUDA graph" if in_graph else ", as the host calls" if device == "cuda" else ""
        axis.set_title(f"{dtype}, {list(shape)}{how}", fontsize=9, loc="right")
    every = [each for table in tables.values() for row in table for each in row.times]
    _plots.legend(figure, _COLORS, every, mark="pale", lines={"a copy": ":"}, band=False)
    _plots.save(figure, "StyleGAN operators: bandwidth, as a share of a copy's", header, path)


def _panel(axis: Any, rows: list[Row]) -> None:
    names = [f"{row.operator}: {row.case}, {row.phase}" for row in rows]
    for name, offset in (("kernels", -0.2), ("plain PyTorch", 0.2)):
        for row_number, row in enumerate(rows):
            times = row.kernels if name == "kernels" else row.plain
            axis.barh(
                row_number + offset,
                100 * row.copy.median / times.median,
                0.4,
                color=_COLORS[name],
                alpha=_plots.PALE if times.doubtful or row.copy.doubtful else 1.0,
            )
    axis.axvline(100, color="black", ls=":", lw=1)
    axis.set_yticks(range(len(names)), names, fontsize=7)
    axis.set_ylim(len(names) - 0.5, -0.5)
    axis.tick_params(labelbottom=True)
    axis.set_xlabel("% of a copy's bandwidth")
    axis.grid(axis="x", alpha=0.3)
    axis.set_axisbelow(True)
