"""Show what `benchmark stylegan` measured: tables, a plot, a file."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import _build
from ._measure import Times
from ._report import in_columns, machine, microseconds

# The most that a result may be off, as a multiple of rounding alone: filtered_lrelu multiplies
# halves, and pairs of halves for a float. In double plain PyTorch is the exact result.
_LIMITS = {"float16": 2.2, "bfloat16": 1.1, "float32": 40.0, "float64": 0.0}
_LIMIT_OF_DOUBLE = 1e-13
_COLUMNS = ("case", "phase", "median", "IQR", "of copy", "plain PyTorch", "IQR", "ratio")
_WIDTHS = (18, 11, 9, 7, 13, 9, 5)  # of those after the first
_COLORS = {"kernels": "C0", "plain PyTorch": "C1"}


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
        limit = max(_LIMITS[self.dtype] * self.rounding, _LIMIT_OF_DOUBLE)
        gradient_limit = max(limit, 2 * self.plain_gradient)
        return self.kernels <= limit and self.kernels_gradient <= gradient_limit


def heading(row: Row, width: int) -> str:
    """The title of a row's table and its columns, the first of them of `width`."""
    how = ", in a CUDA graph" if row.in_graph else ""
    title = f"{row.operator}: {row.dtype}, {list(row.shape)}, {row.device}{how}"
    return f"{title}\n{in_columns(_COLUMNS, (width, *_WIDTHS))}"


def line(row: Row, width: int) -> str:
    """The row below such a heading."""
    share, ratio = f"{row.share:.0%}", f"{row.ratio:.3f}"
    cells = [row.case, row.phase, *_middle(row.kernels), share, *_middle(row.plain), ratio]
    return in_columns(cells, (width, *_WIDTHS))


def _middle(times: Times) -> list[str]:
    return [microseconds(times.median), microseconds(times.upper - times.lower)]


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


def save(path: Path, header: dict[str, str], rows: list[Row], errors: list[Error]) -> None:
    """Write everything as JSON."""
    parts = {"rows": [asdict(row) for row in rows], "errors": [asdict(error) for error in errors]}
    path.write_text(json.dumps({"header": header, **parts}, indent=1) + "\n", "utf-8")


def plot(path: Path, header: dict[str, str], rows: Iterable[Row]) -> None:
    """Draw the shares of the copy's bandwidth as bars: a panel for each dtype and shape."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels: dict[tuple, list[Row]] = defaultdict(list)
    for row in rows:
        panels[(row.dtype, row.shape, row.device)].append(row)
    longest = max(map(len, panels.values()))
    size = (7 * len(panels), 1.5 + 0.22 * longest)
    figure, axes = pyplot.subplots(1, len(panels), figsize=size, squeeze=False)
    for axis, (key, points) in zip(axes[0], panels.items(), strict=True):
        _panel(axis, points)
        axis.set_title(f"{key[0]}, {list(key[1])}, {key[2]}", fontsize=9)
    axes[0][0].legend(fontsize=8)
    figure.suptitle(f"StyleGAN operators, bandwidth as part of a copy's: {machine(header)}")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def _panel(axis: Any, rows: list[Row]) -> None:
    names = [f"{row.operator}: {row.case}, {row.phase}" for row in rows]
    shares = {
        "kernels": [row.share for row in rows],
        "plain PyTorch": [row.share * row.ratio for row in rows],
    }
    for (name, values), offset in zip(shares.items(), (-0.2, 0.2), strict=True):
        places = [place + offset for place in range(len(names))]
        axis.barh(places, [100 * value for value in values], 0.4, label=name, color=_COLORS[name])
    axis.set_yticks(range(len(names)), names, fontsize=7)
    axis.invert_yaxis()
    axis.set_xlabel("% of a copy's bandwidth")
    axis.grid(axis="x", alpha=0.3)
