"""``load``: sources with ``torch/extension.h``: a file, a ``%%cpp`` cell, and kernels as strings.

They are compared with torch's ``load``, and its ``load_inline`` without and with ``use_pch``. The
kernels in ``programs/`` go to ``load_inline``, if CUDA sources can be built. Every step is a
process of its own, which imports torch before the clock starts; the sides take turns.
"""

import argparse
import json
import os
import statistics
from collections.abc import Iterator
from pathlib import Path

import torch

from lltm_jit.jit import LltmJitError, detect

from .builds import python, say, temporary_folder
from .shared.busy import Others
from .shared.table import Row, measured_once
from .shared.times import HOST, PROCESSORS

TITLE, WIDTH = "One source with torch/extension.h", 12

_CACHED = 3  # loads; their median counts

# A step prints its seconds, and the processor seconds of the compilers that it waited for.
_STEP = """
import json, os, resource, sys, time
import torch
from torch.utils import cpp_extension
side, kind, text = sys.argv[1:]
if side == "ours":
    os.environ["LLTM_JIT_AT_IMPORT"] = "0"
    from lltm_jit.jit.torch_api import load, load_inline
    if kind.endswith("cell"):
        from IPython.core.interactiveshell import InteractiveShell
        from lltm_jit.jit import ipython
        shell = InteractiveShell.instance()
        ipython.register(shell, lambda: None)
else:
    load, load_inline = cpp_extension.load, cpp_extension.load_inline
began = time.perf_counter()
if kind == "file":
    module = load("measured", [text])
elif not kind.endswith("cell") or (kind == "cuda_cell" and side != "ours"):
    declaration = "torch::Tensor run(torch::Tensor a, torch::Tensor b);"
    module = load_inline("measured", [declaration], [text], functions=["run"])
elif side == "ours":
    magic = "cpp" if kind == "cell" else "cuda"
    shell.run_cell_magic(magic, "measured", text)
    module = shell.user_ns["measured"]
else:
    more = {"functions": ["add"], "use_pch": side == "use_pch"}
    module = load_inline("measured", [text], **more)
if kind in ("file", "cell"):
    module.add(torch.zeros(1))
elif torch.cuda.is_available():
    module.run(*torch.ones(2, 64, 64, device="cuda"))
    torch.cuda.synchronize()
seconds = time.perf_counter() - began
children = resource.getrusage(resource.RUSAGE_CHILDREN)
print(json.dumps([seconds, children.ru_utime + children.ru_stime]), flush=True)
os._exit(0)
"""

_FUNCTION = "torch::Tensor add(torch::Tensor x) {{ return x + {}; }}\n"
_FILE = f"""#include <torch/extension.h>
{_FUNCTION}PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{{{ m.def("add", &add); }}}}
"""

_TITLES = {"file": "load of a file", "cell": "%%cpp cell", "cuda_cell": "%%cuda cell"}
_PROGRAMS = {path.stem: path for path in sorted(Path(__file__).parent.glob("programs/*.cu"))}

# The steps, and the goal for each: our time over torch's.
_GOALS = {"first build": 0.5, "edit": 0.45, "cached": 1.0}
_KERNEL_GOALS = {"first build": 0.27, "edit": 0.2, "cached": 1.0}

# Where torch puts a precompiled header of its own.
_THEIRS = Path(torch.__file__).parent / "include" / "torch" / "extension.h.gch"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--kinds",
        nargs="+",
        choices=[*_TITLES, *_PROGRAMS],
        help="what to load (default: all, without kernels where CUDA sources cannot be built)",
    )


def measure(args: argparse.Namespace) -> Iterator[list[Row]]:
    if _THEIRS.exists():
        raise LltmJitError(f"{_THEIRS} would speed up all sides; remove it first")
    with temporary_folder() as folder:
        yield from measure_in(folder, args.kinds or default_kinds())


def default_kinds() -> list[str]:
    return [*_TITLES, *_PROGRAMS] if detect().cuda else ["file", "cell"]


def measure_in(folder: Path, kinds: list[str]) -> Iterator[list[Row]]:
    with_header = os.access(_THEIRS.parent, os.W_OK)  # where torch wants to write its own
    for kind in kinds:
        name = "torch, load" if kind == "file" else "load_inline"
        sides = {"ours": "ours", "torch": name}
        others = Others()
        found = dict(zip(sides, steps(folder, kind, list(sides)), strict=True))
        if kind == "cell" and with_header:
            sides["use_pch"] = "use_pch"
            try:
                (found["use_pch"],) = steps(folder, kind, ["use_pch"])
            finally:
                for path in _THEIRS.parent.glob("extension.h.*"):
                    path.unlink()
        busy = others.many()
        steps_and_goals = _GOALS if kind in ("file", "cell") else _KERNEL_GOALS
        for number, (step, goal) in enumerate(steps_and_goals.items()):
            seconds = {
                other: dict(zip((HOST, PROCESSORS), found[side][number], strict=True))
                for side, other in sides.items()
            }
            goals = {name: goal, "use_pch": 1.0}
            yield measured_once(TITLE, step, _TITLES.get(kind, kind), seconds, goals, busy)


def steps(folder: Path, kind: str, sides: list[str]) -> list[list[tuple[float, float]]]:
    """The seconds of each step, for each side."""
    places = {side: folder / f"{kind}-{side}" for side in sides}
    say(f"{kind}: first build")
    first = [take(places[side], side, kind, 1) for side in sides]
    say(f"{kind}: edit, and cached")
    edits = [take(places[side], side, kind, 2) for side in sides]
    cached = [[take(places[side], side, kind, 2) for side in sides] for _ in range(_CACHED)]
    median = [
        (statistics.median(one for one, _ in times), statistics.median(two for _, two in times))
        for times in zip(*cached, strict=True)
    ]
    return [list(times) for times in zip(first, edits, median, strict=True)]


def take(place: Path, side: str, kind: str, value: int) -> tuple[float, float]:
    """One step, on a cache of its own."""
    place.mkdir(exist_ok=True)
    if kind not in ("file", "cell"):
        program = _PROGRAMS.get(kind, _PROGRAMS["element_wise"])
        text = program.read_text("utf-8").replace("EDIT = 1", f"EDIT = {value}")
    else:
        text = _FUNCTION.format(value)
    if kind == "file":
        source = place / "measured.cpp"
        whole = _FILE.format(value)
        if not source.exists() or source.read_text() != whole:
            source.write_text(whole)
        text = str(source)
    seconds, processors = json.loads(python(place, _STEP, side, kind, text).splitlines()[-1])
    return seconds, processors
