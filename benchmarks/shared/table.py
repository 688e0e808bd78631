"""The table of all benchmarks: its rows, how they are printed, saved, and compared with others."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import groupby
from pathlib import Path

import torch

from lltm_jit.jit import LltmJitError
from lltm_jit.jit.loading.build import in_columns

from .times import GRAPH, Times, constant

_NOTES = {
    "~": "~ unreliable: the machine was busy (an IQR above a quarter of the median, threads that "
    "waited for a processor, or other programs that used more than 10 % of the processors)",
    ">100%": ">100%: faster than the floor, which is an H200's, or the time of a product or a "
    "copy whose operands were not in the cache",
}


@dataclass(frozen=True)
class Row:
    """One implementation in one case. A group of rows, which are compared, differs in names."""

    table: str  # its title: what all rows below it have in common
    case: str
    phase: str
    name: str  # the implementation's
    times: dict[str, Times] = field(default_factory=dict)  # by the way of calling
    beside: dict[str, float | None] = field(default_factory=dict)  # the goal beside each other name
    floor: float = 0.0  # a lower bound in seconds; 0 if unknown
    figures: dict[str, float] = field(default_factory=dict)  # other figures, by heading
    check: str = "-"  # "match", "error 1.2e-03", or "-" if there is nothing to match

    @property
    def group(self) -> tuple[str, str, str]:
        return (self.table, self.case, self.phase)

    @property
    def mode(self) -> str:
        """The way of calling that goals are for: in a graph, if it was timed there."""
        return GRAPH if GRAPH in self.times else next(iter(self.times))

    @property
    def best(self) -> Times:
        return self.times[self.mode]

    @property
    def title(self) -> str:
        return ", ".join(filter(None, (self.table, self.case, self.phase, self.name)))


Group = Sequence[Row]


def type_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def group_of(
    table: str,
    case: str,
    phase: str,
    found: Mapping[str, dict[str, Times]],
    beside: Mapping[str, Mapping[str, float | None]],
) -> list[Row]:
    """A group of rows from the times of each name, and what each is beside."""
    return [
        Row(table, case, phase, name, times, dict(beside.get(name, {})))
        for name, times in found.items()
    ]


def measured_once(
    table: str,
    case: str,
    phase: str,
    seconds: Mapping[str, Mapping[str, float]],
    beside: Mapping[str, float | None],
    busy: bool,
) -> list[Row]:
    """A group of rows from seconds by name and way of calling; the first is beside the others."""
    times = {
        name: {mode: constant(each, busy) for mode, each in by_mode.items()}
        for name, by_mode in seconds.items()
    }
    return group_of(table, case, phase, times, {next(iter(seconds)): beside})


def groups(rows: Iterable[Row]) -> list[list[Row]]:
    """Rows that follow each other and are compared with each other."""
    return [list(found) for _, found in groupby(rows, key=lambda row: row.group)]


# --------------------------------------------------------------------------------------- printed --


def show(measured: Iterable[Group], width: int) -> list[Row]:
    """Print tables, each group of rows as soon as it is measured; returns the rows.

    The first column, of the cases, has the given width.
    """
    shown: list[Row] = []
    text, columns = "", []
    for group in measured:
        if not shown or shown[-1].table != group[0].table:
            _print_notes(text)
            text, columns = "", _columns(group)
            heads = [("case", width, ""), ("phase", 18, ""), ("", 13, "")]
            headings = [(head, size) for head, size, _ in [*heads, *columns]]
            print(f"\n{group[0].table}\n{_line(*zip(*headings, strict=True))}")
        for row in group:
            first = row is group[0]
            labels = [row.case if first else "", row.phase if first else "", row.name]
            cells = [*labels, *(cell(row, group) for _, _, cell in columns)]
            line = _line(cells, [width, 18, 13, *(size for _, size, _ in columns)])
            print(line, flush=True)
            text += line
        shown += group
    _print_notes(text)
    return shown


def _print_notes(text: str) -> None:
    for mark, note in _NOTES.items():
        if mark in text:
            print(note)


def _line(cells: Iterable[str], widths: Iterable[int]) -> str:
    return "  ".join(map(str.ljust, cells, widths)).rstrip()


Cell = Callable[[Row, Group], str]


def _columns(group: Group) -> list[tuple[str, int, Cell]]:
    """Heading, width and content of a table's columns, from its first group of rows."""
    columns: list[tuple[str, int, Cell]] = []
    if any(row.check != "-" for row in group):
        columns.append(("check", 5, lambda row, _: row.check))
    for mode in _keys(row.times for row in group):
        columns += [(mode, 10, partial(_median, mode)), ("IQR", 9, partial(_iqr, mode))]
    if any(row.floor for row in group):
        columns += [("floor", 9, _floor), ("share", 6, _share)]
    for name in _keys(row.figures for row in group):
        columns.append((name, max(8, len(name)), partial(_figure, name)))
    if any(row.times for row in group):
        columns.append(("beside others", 0, _beside))
    return columns


def _keys(found: Iterable[Mapping[str, object]]) -> list[str]:
    return list(dict.fromkeys(key for each in found for key in each))


def _median(mode: str, row: Row, _: Group) -> str:
    times = row.times.get(mode)
    return marked(duration(times.median), times) if times else "-"


def _iqr(mode: str, row: Row, _: Group) -> str:
    times = row.times.get(mode)
    return duration(times.upper - times.lower) if times and times.count > 1 else "-"


def _floor(row: Row, _: Group) -> str:
    return duration(row.floor) if row.floor else "-"


def _share(row: Row, _: Group) -> str:
    """The floor as a share of the time; 100 % is the most that is possible."""
    if not row.floor:
        return "-"
    share = row.floor / row.best.median
    return marked(f"{share:.0%}" if share <= 1.005 else ">100%", row.best)


def _figure(name: str, row: Row, _: Group) -> str:
    if name not in row.figures:
        return "-"
    value = row.figures[name]
    text = f"{value:.1f}" if value >= 1 else f"{value:.1e}"
    return marked(text, row.best) if row.times else text


def _beside(row: Row, group: Group) -> str:
    return "; ".join(_compared(row, other) for other in group if other.name in row.beside)


def _compared(row: Row, other: Row) -> str:
    """A ratio to another's time, with the ratios of other ways of calling in brackets, and the
    goal."""
    goal = row.beside[other.name]
    ratios = {
        mode: _ratio(row.times[mode], other.times[mode])
        for mode in row.times
        if mode in other.times
    }
    best = ratios.pop(row.mode, "-")
    more = "".join(f" ({ratio} {mode})" for mode, ratio in ratios.items())
    aim = "" if goal is None else f", goal {goal:.3g}"
    return f"{best} of {other.name}{more}{aim}"


def _ratio(ours: Times, theirs: Times) -> str:
    ratio = ours.median / theirs.median
    return marked(f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.3f}", ours, theirs)


def marked(text: str, *times: Times) -> str:
    """A figure, marked if its times are doubtful."""
    return f"~{text}" if any(each.doubtful for each in times) else text


def duration(seconds: float) -> str:
    if seconds >= 0.1:
        return f"{seconds:.3f} s"
    microseconds = seconds * 1e6
    return f"{microseconds:.3f} us" if microseconds < 10 else f"{microseconds:.1f} us"


def missed(rows: Iterable[Row]) -> list[str]:
    """The rows above a goal, in words, those furthest above it first."""
    found = [
        (excess, f"{row.title}: {_compared(row, other)}")
        for group in groups(rows)
        for row in group
        for other in group
        if (excess := _excess(row, other)) > 1
    ]
    return [words for _, words in sorted(found, key=lambda pair: -pair[0])]


def _excess(row: Row, other: Row) -> float:
    """Our time over the goal; with a goal in a graph, other ways of calling must be no slower."""
    goal = row.beside.get(other.name)
    if not goal:
        return 0.0
    return max(
        (
            times.median / other.times[mode].median / (goal if mode == row.mode else max(goal, 1))
            for mode, times in row.times.items()
            if mode in other.times
        ),
        default=0.0,
    )


def wrong(rows: Iterable[Row]) -> list[str]:
    """The rows with a result that is further from the exact one than it may be, in words."""
    return [f"{row.title}: {row.check}" for row in rows if row.check.startswith("error")]


# ------------------------------------------------------------------------------- saved, compared --


def save(path: Path, header: Mapping[str, str], rows: Iterable[Row]) -> None:
    """Write header and rows as JSON."""
    told = {"header": header, "rows": [asdict(row) for row in rows]}
    path.write_text(json.dumps(told, indent=1) + "\n", "utf-8")


def load(path: Path) -> tuple[dict[str, str], list[Row]]:
    """Read what :func:`save` wrote: the header, and the rows.

    Raises:
        LltmJitError: the file cannot be read, or is of another kind.
    """
    try:
        told = json.loads(path.read_text("utf-8"))
        return told["header"], [_row(**values) for values in told["rows"]]
    except OSError as error:
        raise LltmJitError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise LltmJitError(f"{path} is not a file that this benchmark's --json wrote") from error


def _row(times: dict[str, dict[str, float]], **values: object) -> Row:
    found = {mode: Times(**each) for mode, each in times.items()}  # type: ignore[arg-type]
    return Row(times=found, **values)  # type: ignore[arg-type]


def comparison(before: Iterable[Row], now: Iterable[Row]) -> str:
    """Ratios of medians, new to old, with marks on changes beyond the noise of both runs.

    A change is beyond the noise if the middle halves of the two samples do not overlap.
    """
    earlier = {row.title: row for row in before}
    lines = [["case", "", "before", "now", "now/before", ""]]
    for row in now:
        was_row = earlier.get(row.title)
        for mode, times in row.times.items():
            was = was_row.times.get(mode) if was_row else None
            if was:
                medians = [duration(each.median) for each in (was, times)]
                ratio = f"{times.median / was.median:.2f}"
                lines.append([row.title, mode, *medians, ratio, _change(was, times)])
    if len(lines) == 1:
        return "no case is in both runs"
    return in_columns(lines)


def _change(old: Times, new: Times) -> str:
    if old.doubtful or new.doubtful:
        return "~"
    return "faster" if new.upper < old.lower else "SLOWER" if new.lower > old.upper else ""
