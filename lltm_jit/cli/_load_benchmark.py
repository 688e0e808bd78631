"""``benchmark load``: one source with ``torch/extension.h``, by ``load`` and as a ``%%cpp`` cell.

Beside torch's ``load``, and its ``load_inline`` without and with ``use_pch``. Every step is a
process of its own, in which torch is imported before the clock starts; the sides take turns.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from lltm_jit import native
from lltm_jit.jit import LltmJitError

from . import _build, _busy
from ._jit_benchmark import python, say

_CACHED = 3  # loads, of which the median counts
_PATIENCE = 1800  # seconds that the precompiled header may take

# One step: prints the seconds, and those of the processors in compilers that were waited for.
_STEP = """
import json, os, resource, sys, time, types
import torch
from torch.utils import cpp_extension
side, kind, package, text = sys.argv[1:]
if side == "ours":  # without the package's own extensions, which an import would build
    sys.modules["lltm_jit"] = types.ModuleType("lltm_jit")
    sys.modules["lltm_jit"].__path__ = [package]
    from lltm_jit.jit.torch_api import load
    if kind == "cell":
        from IPython.core.interactiveshell import InteractiveShell
        from lltm_jit.jit import ipython
        shell = InteractiveShell.instance()
        ipython.register(shell, lambda: None)
else:
    load = cpp_extension.load
began = time.perf_counter()
if kind == "file":
    module = load("measured", [text])
elif side == "ours":
    shell.run_cell_magic("cpp", "measured", text)
    module = shell.user_ns["measured"]
else:
    more = {"functions": ["add"], "use_pch": side == "use_pch"}
    module = cpp_extension.load_inline("measured", [text], **more)
module.add(torch.zeros(1))
seconds = time.perf_counter() - began
children = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([seconds, children.ru_utime + children.ru_stime]), flush=True)
os._exit(0)
"""

_FUNCTION = "torch::Tensor add(torch::Tensor x) {{ return x + {}; }}\n"
_FILE = f"""#include <torch/extension.h>
{_FUNCTION}PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{{{ m.def("add", &add); }}}}
"""

# The steps, and what is aimed at beside torch.
_GOALS = {"first build": 1.05, "second edit": 0.4, "cached": 1.0}

# Where torch puts a precompiled header of its own.
_THEIRS = Path(torch.__file__).parent / "include" / "torch" / "extension.h.gch"


@dataclass(frozen=True)
class Line:
    """One step: seconds, and processor seconds, of ours and of the other side."""

    title: str
    ours: tuple[float, float]
    other: tuple[float, float]
    other_title: str
    goal: float
    busy: bool

    @property
    def good(self) -> bool:
        return self.ours[0] <= self.goal * self.other[0]


def run() -> int:
    """Measure, print the table; 1 when a ratio is above its goal."""
    if _THEIRS.exists():
        raise LltmJitError(f"{_THEIRS} would speed up all sides; remove it first")
    heads = ["", "ours", "other", "ratio", "goal", "processors: ours", "other", "the other side"]
    rows, good, any_busy = [heads], True, False
    with tempfile.TemporaryDirectory(prefix="lltm_jit-benchmark-") as folder:
        os.chmod(folder, 0o700)
        for line in measure(Path(folder)):
            seconds, other = line.ours[0], line.other[0]
            say(f"{line.title}: {seconds:.3f} s, {line.other_title} {other:.3f} s")
            ratio = _busy.marked(f"{seconds / other:.3f}", line.busy)
            ratio += "" if line.good else "  above"
            any_busy |= line.busy
            processors = [f"{each[1]:.2f} s" for each in (line.ours, line.other)]
            both = (_busy.marked(f"{each:.3f} s", line.busy) for each in (seconds, other))
            times = [*both, ratio, f"{line.goal:.2f}"]
            rows.append([line.title, *times, *processors, line.other_title])
            good &= line.good
    print(_build.table(rows))
    if any_busy:
        print(_busy.NOTE)
    return 0 if good else 1


def measure(folder: Path) -> Iterator[Line]:
    """The lines of the table."""
    titles = {"file": "load of a file", "cell": "%%cpp cell"}
    names = {"file": "torch, load", "cell": "torch, load_inline"}
    for kind in ("file", "cell"):
        others = _busy.Others()
        ours, torchs = steps(folder, kind, ["ours", "torch"])
        busy = others.many()
        for (step, goal), one, other in zip(_GOALS.items(), ours, torchs, strict=True):
            yield Line(f"{titles[kind]}, {step}", one, other, names[kind], goal, busy)
    if not os.access(_THEIRS.parent, os.W_OK):  # where torch wants to write
        return
    others = _busy.Others()
    try:
        (torchs,) = steps(folder, "cell", ["use_pch"])
    finally:
        for path in _THEIRS.parent.glob("extension.h.*"):
            path.unlink()
    busy |= others.many()
    for step, one, other in zip(_GOALS, ours, torchs, strict=True):
        yield Line(f"{titles['cell']}, {step}", one, other, "torch, use_pch", 1.0, busy)


def steps(folder: Path, kind: str, sides: list[str]) -> list[list[tuple[float, float]]]:
    """For each side the seconds of each step."""
    places = {side: folder / f"{kind}-{side}" for side in sides}
    say(f"{kind}: first build")
    first = [take(places[side], side, kind, 1) for side in sides]
    if "ours" in sides:
        say(f"{kind}: first edit, and the precompiled header")
        wait_for_header(places["ours"])
    for side in sides:
        take(places[side], side, kind, 2)
    say(f"{kind}: second edit, and cached")
    edits = [take(places[side], side, kind, 3) for side in sides]
    cached = [[take(places[side], side, kind, 3) for side in sides] for _ in range(_CACHED)]
    median = [
        (statistics.median(one for one, _ in times), statistics.median(two for _, two in times))
        for times in zip(*cached, strict=True)
    ]
    return [list(times) for times in zip(first, edits, median, strict=True)]


def take(place: Path, side: str, kind: str, value: int) -> tuple[float, float]:
    """One step, on a cache of its own."""
    place.mkdir(exist_ok=True)
    text = _FUNCTION.format(value)
    if kind == "file":
        source = place / "measured.cpp"
        whole = _FILE.format(value)
        if not source.exists() or source.read_text() != whole:
            source.write_text(whole)
        text = str(source)
    package = str(Path(native.__file__).parent)
    seconds, processors = json.loads(
        python(place, _STEP, side, kind, package, text).splitlines()[-1]
    )
    return seconds, processors


def wait_for_header(place: Path) -> None:
    """Until the precompiled header that a build has begun is whole, or its maker has given up."""
    headers, until = place / "extensions" / "lltm_jit" / "pch", time.monotonic() + _PATIENCE
    while list(headers.glob("tmp-*")):
        if time.monotonic() > until:
            raise LltmJitError(f"no precompiled header within {_PATIENCE} s")
        time.sleep(0.2)
