"""Show measurements: a table, ratios to an earlier run, a plot."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from lltm_jit.jit import LltmJitError

from . import _build, _busy, _plots
from ._measure import Times

RowT = TypeVar("RowT")

_COLUMNS = ["implementation", "check", "median", "IQR", "min", "speed-up", "GFLOP/s", "GB/s"]
_DOUBTFUL = (
    "~ unreliable: the machine was busy (an IQR above a quarter of the median, or threads "
    "that waited for a processor)"
)
_ABOVE = ">100%: "


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
        host, best = row.host, row.graph or row.host
        cells = [
            row.implementation,
            row.check,
            marked(microseconds(host.median), host),
            microseconds(host.upper - host.lower),
            microseconds(host.least),
            marked(f"{first.host.median / host.median:.2f}x", host, first.host),
            marked(f"{row.gflops:.1f} ({share(row.gflops_share)})", best),
            marked(f"{row.gbytes:.1f} ({share(row.gbytes_share)})", best),
        ]
        if row.graph and first.graph:
            ratio = f"{first.graph.median / row.graph.median:.2f}x"
            cells += [
                marked(microseconds(row.graph.median), row.graph),
                marked(ratio, row.graph, first.graph),
            ]
        elif row.graph:
            cells += [marked(microseconds(row.graph.median), row.graph), "-"]
        elif with_graph:
            cells += ["-", "-"]
        lines.append(cells)
    rates = "; rates are of the time in a graph" if with_graph else ""
    table = f"{first.phase}: {sizes}{rates}\n{_build.table(lines)}"
    return with_notes(table, "more than a product or a copy reached here: operands are in cache")


def marked(text: str, *times: Times) -> str:
    """A figure, with a mark before it where the times that it is made of are doubtful."""
    return _busy.marked(text, any(each.doubtful for each in times))


def share(value: float) -> str:
    """A share of what is possible, which nothing exceeds."""
    return f"{value:.0%}" if value <= 1.005 else ">100%"


def with_notes(table: str, above: str) -> str:
    """A table, and below it what its marks mean; ``above`` explains a share beyond 100 %."""
    return "\n".join([table, *notes(table, above)])


def notes(table: str, above: str) -> list[str]:
    """What stands below a table, where it has marks."""
    found = [_DOUBTFUL] if "~" in table else []
    return [*found, f"{_ABOVE}{above}"] if ">100%" in table else found


def microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us"


def in_columns(cells: Iterable[str], widths: Iterable[int]) -> str:
    """A line of a table that is printed while it is measured; the last cell may be wider."""
    return "  ".join(map(str.ljust, cells, widths)).rstrip()


def save(path: Path, header: dict[str, str], rows: Sequence[Any]) -> None:
    """Write header and rows, which are dataclasses, as JSON."""
    rows_as_json = [asdict(row) for row in rows]
    path.write_text(json.dumps({"header": header, "rows": rows_as_json}, indent=1) + "\n", "utf-8")


def load(path: Path, kind: type[RowT]) -> tuple[dict[str, str], list[RowT]]:
    """Read what :func:`save` wrote: the header, and the rows, dataclasses of this kind.

    Raises:
        LltmJitError: the file cannot be read, or is of another kind.
    """
    try:
        told = json.loads(path.read_text("utf-8"))
        return told["header"], [kind(**_fields(values)) for values in told["rows"]]
    except OSError as error:
        raise LltmJitError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LltmJitError(f"{path} is not a file that this benchmark's --json wrote") from error


def _fields(values: dict[str, Any]) -> dict[str, Any]:
    def field(value: Any) -> Any:
        if isinstance(value, dict):
            return Times(**value)
        return tuple(value) if isinstance(value, list) else value

    return {name: field(value) for name, value in values.items()}


def show_header(header: Mapping[str, str]) -> None:
    for name, fact in header.items():
        print(f"{name}: {fact}")


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
    return with_notes(_build.table(lines), "")


def _ratio(old: Times, new: Times) -> list[str]:
    mark = ""
    if old.doubtful or new.doubtful:
        mark = "~"
    elif new.upper < old.lower:
        mark = "faster"
    elif new.lower > old.upper:
        mark = "SLOWER"
    return [f"{new.median / old.median:.2f}", mark]


def plot(path: Path, header: Mapping[str, str], rows: Sequence[Row]) -> None:
    """Draw times over the sizes: a panel a phase, a colour an implementation."""
    sizes = list(dict.fromkeys((row.batch_size, row.input_size, row.hidden_size) for row in rows))
    hidden = [size[2] for size in sizes]
    sweep = len({size[0] for size in sizes}) == 1 and len(set(hidden)) == len(hidden)
    # Sizes of which nothing but the hidden one varies are at its place; others stand side by side.
    places = {size: float(size[2] if sweep else 2**i) for i, size in enumerate(sizes)}
    phases = list(dict.fromkeys(row.phase for row in rows))
    names = dict.fromkeys(row.implementation for row in rows)
    colors = {name: f"C{i}" for i, name in enumerate(names)}
    times = [each for row in rows for each in (row.host, row.graph) if each]
    figure, axes = _plots.panels(1, len(phases), (4.2, 4.2))
    for axis, phase in zip(axes[0], phases, strict=True):
        for style in (_plots.HOST, _plots.GRAPH):
            lines: dict[str, dict[float, Times]] = defaultdict(dict)
            for row in rows:
                of_style = row.host if style == _plots.HOST else row.graph
                if row.phase == phase and of_style:
                    place = places[row.batch_size, row.input_size, row.hidden_size]
                    lines[row.implementation][place] = of_style
            _plots.draw_lines(axis, lines, colors, style)
        labels = [str(size[2]) if sweep else "\n".join(map(str, size)) for size in sizes]
        _plots.label_axes(axis, dict(zip(places.values(), labels, strict=True)), times)
        axis.set_title(phase, fontsize=10)
        axis.set_xlabel("hidden size" if sweep else "batch, input and hidden size")
    axes[0][0].set_ylabel("time of one call")
    _plots.legend(figure, colors, times, _plots.STYLES if any(row.graph for row in rows) else None)
    batch = f", batch {sizes[0][0]}" if sweep else ""
    _plots.save(figure, f"LLTM cell, {rows[0].dtype}{batch}", header, path)
