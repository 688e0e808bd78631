"""``jit``: builds, rebuilds and cached imports of this package, also beside torch's `load`.

Everything happens in a temporary folder, on copies: a process builds, edits a file, and reloads, as
a person would.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lltm_jit import native
from lltm_jit.jit import LltmJitError, Toolchain, detect
from lltm_jit.jit.machine.tools import find_ninja
from lltm_jit.jit.store.cache import WHEEL_FOLDER
from lltm_jit.jit.user import settings

from . import options
from .shared.busy import Others
from .shared.table import Row, measured_once
from .shared.times import HOST

TITLE, WIDTH = "Builds of the package", 34

_IMPORTS = 7

# Prints the seconds of: the first build, then a build after an edit of each file.
_TORCH = """
import json, sys, time
from torch.utils.cpp_extension import load
request = json.loads(sys.argv[1])
def build():
    began = time.perf_counter()
    load(request["name"], request["sources"], extra_cflags=request["cflags"],
         extra_ldflags=request["ldflags"], build_directory=request["directory"],
         is_python_module=False)
    return time.perf_counter() - began
seconds = {"cold": build()}
for path in request["sources"]:
    with open(path, "a") as file:
        file.write("\\n// edited\\n")
    seconds[path] = build()
print(json.dumps(seconds))
"""

# Builds a copy of the package by importing it. A rebuild ends when the new kernels have run.
_OURS = """
import json, sys, time
from pathlib import Path
import torch
copy, kernels, *names = sys.argv[1:]
sys.path.insert(0, copy)
began = time.perf_counter()
import lltm_jit
builds = [lltm_jit.native.load(family) for family in lltm_jit.native.OWN]
seconds = {"cold": time.perf_counter() - began}
for name in names:
    with Path(kernels, name).open("a") as file:
        file.write("\\n// edited\\n")
    began = time.perf_counter()
    builds = {build.info.name: build for build in lltm_jit.reload().builds}
    for device in ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]:
        x = torch.ones(8, device=device)
        lltm_jit.my_op(x, x).tolist()
    seconds[name] = time.perf_counter() - began
print(json.dumps(seconds))
print(builds["basic"].info.directory)
print(builds["basic"].request.work)
"""

_IMPORT = """
import time
began = time.perf_counter()
import torch
middle = time.perf_counter()
import lltm_jit
print(time.perf_counter() - middle)
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    options.add_opponent(parser)


def measure(args: argparse.Namespace) -> Iterator[list[Row]]:
    if args.against and not args.against.is_dir():
        raise LltmJitError(
            f"expected --against to be a directory with an extension's sources, but got "
            f"{args.against}"
        )
    with temporary_folder() as folder:
        yield from measure_in(folder, args.against, args.define, detect())


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """A folder that the cache of builds may lie in, since others cannot write to it."""
    with tempfile.TemporaryDirectory(prefix="lltm_jit-benchmark-") as folder:
        os.chmod(folder, 0o700)
        yield Path(folder)


def measure_in(
    folder: Path, opponent: Path | None, defines: list[str], tools: Toolchain
) -> Iterator[list[Row]]:
    kernels = copy_of_package(folder)
    edited_cpp, edited_cuda = "basic/operators.cpp", "basic/operators_cuda.cu"
    edits = [edited_cpp, *([edited_cuda] if tools.cuda else [])]
    theirs: dict[str, float] = {}
    sources: list[Path] = []
    others = Others()
    if opponent is not None:
        say("torch's load of the opponent")
        theirs, sources = torch_seconds(folder, opponent, defines, tools)
    say("this engine")
    output = python(folder, _OURS, str(folder), str(kernels), *edits).splitlines()
    ours, directory, work = json.loads(output[-3]), Path(output[-2]), Path(output[-1])
    busy = others.many()
    cold = [("torch, cold", theirs["cold"], 0.5)] if theirs else []
    yield rows("cold build of the package", ours["cold"], cold, busy)
    of_cpp = [
        (f"torch, {source.name}", theirs[str(source)], 1 / 3)
        for source in [source for source in sources if source.suffix != ".cu"][:1]
    ]
    yield rows(f"edit of {edited_cpp}", ours[edited_cpp], of_cpp, busy)
    if tools.cuda:
        alone = alone_seconds(directory, work)
        of_cuda = [("2 s, for a small op", 2.0, 1.0), ("nvcc and link alone", alone, 1.3)]
        of_cuda += [
            (f"torch, {source.name}", theirs[str(source)], 1 / 20)
            for source in sources
            if source.suffix == ".cu"
        ]
        yield rows(f"edit of {edited_cuda}", ours[edited_cuda], of_cuda, busy)
    say("cached import")
    others = Others()
    python(folder, "import lltm_jit")
    seconds = [float(python(folder, _IMPORT)) for _ in range(_IMPORTS)]
    middle, busy = statistics.median(seconds), others.many()
    yield rows("cached import beyond torch's", middle, [("50 ms", 0.05, 1.0)], busy)


def rows(case: str, ours: float, others: list[tuple[str, float, float]], busy: bool) -> list[Row]:
    """Our seconds, and the name, seconds and goal of each other side."""
    seconds = {"ours": {HOST: ours}, **{name: {HOST: theirs} for name, theirs, _ in others}}
    goals = {name: goal for name, _, goal in others}
    return measured_once(TITLE, case, "", seconds, goals, busy)


def copy_of_package(folder: Path) -> Path:
    """Copy the package and its kernels, without libraries; returns the folder of the kernels."""
    package, kernels = Path(native.__file__).parent, native.kernels_directory()
    shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns(WHEEL_FOLDER))
    copy = folder / kernels.relative_to(package.parent)
    if not copy.exists():  # it exists if the kernels are inside the package
        shutil.copytree(kernels, copy)
    return copy


def torch_seconds(
    folder: Path, opponent: Path, defines: list[str], tools: Toolchain
) -> tuple[dict[str, float], list[Path]]:
    """torch's times for the first build and after an edit of each source."""
    copy = folder / "opponent"
    shutil.copytree(opponent, copy)
    (folder / "torch").mkdir()
    suffixes = (".cpp", ".cc", ".cu") if tools.cuda else (".cpp", ".cc")
    sources = sorted(path for path in copy.rglob("*") if path.suffix in suffixes)
    request = {
        "name": "opponent",
        "sources": [str(path) for path in sources],
        "cflags": [f"-D{define}" for define in defines],
        "ldflags": [],
        "directory": str(folder / "torch"),
    }
    return json.loads(python(folder, _TORCH, json.dumps(request)).splitlines()[-1]), sources


def alone_seconds(directory: Path, work: Path) -> float:
    """Seconds of the commands of the last build, of one edited file, with nothing around them."""
    words = [str(find_ninja()), "-t", "commands"]
    done = subprocess.run(words, cwd=directory, capture_output=True, text=True, check=True)
    copy = work.with_name("alone")
    shutil.copytree(work, copy)
    began = time.perf_counter()
    for command in done.stdout.splitlines():
        subprocess.run(command, shell=True, cwd=copy, check=True, capture_output=True)
    return time.perf_counter() - began


def python(folder: Path, program: str, *arguments: str) -> str:
    """Run a program with the folder as its only cache; returns what it prints.

    Raises:
        LltmJitError: the program failed; the text is the end of its output.
    """
    package = Path(native.__file__).parents[1]
    environment = {
        **os.environ,
        # Also the settings in MAX_JOBS.env, which a copy of the package does not read.
        **{name: value for name in settings.SETTINGS if (value := settings.text(name))},
        "TORCH_EXTENSIONS_DIR": str(folder / "extensions"),
        "LLTM_JIT_QUIET": "1",
        "PYTHONPATH": os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")]),
        # Python's modules are compiled once, as where Python may write beside them.
        "PYTHONPYCACHEPREFIX": str(folder / "bytecode"),
        "PYTHONDONTWRITEBYTECODE": "",
    }
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        errors="replace",
    )
    if done.returncode:
        raise LltmJitError(f"a measured program failed: {done.stderr[-2000:]}")
    return done.stdout


def say(text: str) -> None:
    print(f"lltm_jit: measuring {text}", file=sys.stderr, flush=True)
