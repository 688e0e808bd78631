"""What the engine's tests share: an empty cache, a small extension, a fake compiler, programs."""

import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen
from types import ModuleType
from typing import Any

import fake_cxx
import pytest
from small_files import script, write

from lltm_jit import jit, native
from lltm_jit.jit import variants
from lltm_jit.jit.variants import Variant

HERE = Path(__file__).parent
PROGRAM = HERE / "program.py"
ALL = ["compile one.cpp", "compile two.cpp", "link"]  # of the small extension
TEXT = "shared header\none\ntwo"  # of its library


class Gate:
    """Where a compiler waits whose source has the order."""

    def __init__(self, path: Path) -> None:
        self.path, self.order = path, f"//! wait {path}\n"

    def reached(self) -> int:
        """The process of the compiler, once it waits here."""
        wait_for(lambda: self.path.exists() and self.path.read_text())
        return int(self.path.read_text())

    def open(self) -> None:
        Path(f"{self.path}.go").touch()

    def then(self, call: Callable[[], object]) -> None:
        """Call something once a compiler waits here, in a thread."""
        threading.Thread(target=lambda: (self.reached(), call())).start()


@dataclass
class Bench:
    """One empty cache, one small extension, one fake compiler."""

    directory: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def sources(self) -> Path:
        return self.directory / "kernels"

    @property
    def builds(self) -> Path:
        return Path(self.environment["TORCH_EXTENSIONS_DIR"]) / "lltm_jit"

    @property
    def records(self) -> list[Path]:
        return list(self.builds.glob("*/ok.json"))

    @property
    def counts(self) -> list[str]:
        """What the compiler was asked to do since the last look."""
        return sorted(self.in_order)

    @property
    def in_order(self) -> list[str]:
        """The same in its order."""
        file = Path(self.environment["FAKE_COUNTS"])
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return lines

    def write(self, name: str | Path, text: str) -> Path:
        return write(self.sources / name, text)

    def gates(self, *names: str) -> list[Gate]:
        """Have the compiler of each of these files wait at a gate of its own."""
        gates = [Gate(self.directory / f"gate-{number}") for number in range(len(names))]
        for name, gate in zip(names, gates, strict=True):
            self.write(f"{name}.cpp", gate.order)
        return gates

    def write_compiler(self, version: str = "c++ (Fake) 1.2.3", directory: str = "bin") -> Path:
        """One that takes the orders in a source."""
        text = fake_cxx.SCRIPT.replace("VERSION", version)
        return script(self.directory / directory / "c++", text)

    def write_nvcc(self, root: str = "cuda") -> Path:
        """A CUDA toolkit with nvcc; its root."""
        nvcc = write(self.directory / root / "bin" / "nvcc")
        shutil.copy(self.write_compiler(), nvcc)
        return nvcc.parents[1]

    def spec(self, **changes: Any) -> jit.Spec:
        return jit.Spec("_C", (str(self.sources),))._replace(**changes)

    def load(self, **changes: Any) -> jit.Build:
        """Load in this process."""
        return jit.load(self.spec(**changes))

    def first(self, **changes: Any) -> jit.Build:
        """The same for the first time, which compiles everything."""
        build = self.load(**changes)
        assert self.counts == ALL
        return build

    def fails(self, match: str, **changes: Any) -> jit.BuildError:
        """The error of a load in this process that does not compile."""
        with pytest.raises(jit.BuildError, match=match) as caught:
            self.load(**changes)
        return caught.value

    def edited(self, name: str, text: str, compiled: str = "") -> jit.Build:
        """Load after an edit, which compiles that file or the one that includes it."""
        file = self.write(name, text)
        build = self.load()
        assert self.counts == [f"compile {compiled or file.name}", "link"]
        return build

    def start(self, *words: object, launcher: Sequence[str] = (), **environment: str) -> Popen:
        """Load in a process of its own, or have program.py do what the words say."""
        words = words or ("load", self.sources)
        return started([*launcher, PROGRAM, *words], self, {**self.environment, **environment})

    def run(self, **environment: str) -> dict:
        """Load in a process of its own; the result, with what was said in ``said``."""
        return finish(self.start(**environment))

    def waiting(self, gate: Gate) -> list[Popen]:
        """A process that builds, whose compiler stands at the gate, and one that waits for it."""
        builds = self.start()
        gate.reached()
        waits = self.start()
        assert "waiting for process" in waits.stderr.readline()
        return [builds, waits]


def finish(process: Popen) -> dict:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return {**json.loads(out.splitlines()[-1]), "said": err}


def started(
    words: Sequence[object], bench: Bench, environment: Mapping[str, str], stderr: int = PIPE
) -> Popen:
    """Python in a process of its own, whose standard streams are pipes."""
    return Popen(
        [sys.executable, *words],
        cwd=bench.directory,
        env={**os.environ, **environment},
        stdin=PIPE,
        stdout=PIPE,
        stderr=stderr,
        text=True,
    )


class Program:
    """A program whose kernels a child builds: what it prints, and what of it runs."""

    def __init__(self, bench: Bench, action: str, *families: str, **how: Any) -> None:
        folders = {f"FAMILY_{name}": str(bench.directory / name) for name in families}
        folders["FAMILY__C"] = str(bench.sources)
        self.process = bench.start(action, *(families or ("_C",)), **folders, **how)

    def line(self) -> dict:
        return json.loads(self.process.stdout.readline())

    def go_on(self) -> None:
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> tuple[list[dict], str]:
        """What it printed, and what it said, once it has ended."""
        out, err = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, err
        return [json.loads(line) for line in out.splitlines()], err

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def children(bench: Bench) -> set[int]:
    """The children that were started for this bench and run."""
    root, found = str(bench.builds.parent), set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command, variables = (
                (process / name).read_bytes().decode(errors="replace").split("\0")
                for name in ("cmdline", "environ")
            )
        except OSError:
            continue  # it has just ended, or is another user's
        if f"TORCH_EXTENSIONS_DIR={root}" in variables and command[1:3] == ["-I", "-c"]:
            found.add(int(process.name))
    return found


class Package:
    """A copy of the package beside small families, whose compiler may wait at a gate."""

    def __init__(self, bench: Bench) -> None:
        self._bench, self.gate = bench, Gate(bench.directory / "gate")
        for family in native.OWN:
            bench.write(f"{family}/bindings.cpp", f"{family}\n")
        shutil.copytree(Path(native.__file__).parent, bench.directory / "lltm_jit")

    @contextmanager
    def started(self, *words: str, **variables: str) -> Iterator[Popen]:
        """Python in a process of its own, which Ctrl-C reaches."""
        path = f"{self._bench.directory}:{os.environ.get('PYTHONPATH', '')}"
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        process = started(words, self._bench, {"PYTHONPATH": path, **variables}, STDOUT)
        signal.signal(signal.SIGINT, before)
        try:
            yield process
        finally:
            process.kill()

    def run(self, program: str, **variables: str) -> str:
        """What a program prints and says, which must end well."""
        with self.started("-c", program, **variables) as process:
            said, _ = process.communicate(timeout=100)
        assert process.returncode == 0, said
        return said

    def assert_ctrl_c_ends(self, process: Popen) -> str:
        """While a compiler waits at the gate; returns what the process said."""
        pid = self.gate.reached()
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=30)  # the compiler would wait for minutes
        assert not alive(pid)
        return said


def slow(*values: object) -> object:
    """A case of a test that is in the slow tier."""
    return pytest.param(*values, marks=pytest.mark.slow)


def tiers(cases: Mapping[str, Any], quick: Collection[str] | None = None) -> list:
    """Parameters of a test by their names; slow are those that are not quick, or not named so."""
    if quick is None:
        quick = [name for name, case in cases.items() if case.quick]
    assert cases.keys() >= {*quick}
    return [
        pytest.param(case, id=name, marks=() if name in quick else pytest.mark.slow)
        for name, case in cases.items()
    ]


def load_variant(variant: Variant, function: str) -> int:
    """The function's address, as C++ asks for it."""
    variants.declare(variant)
    return variants.load_declared((variant.name, function, (), variant.label))


def text_of(built: jit.Build | ModuleType | str) -> str:
    """What the fake compiler compiled and linked, of a build, a module or a library."""
    module = built.module if isinstance(built, jit.Build) else built
    path = module if isinstance(module, str) else str(module.__file__)
    return Path(path).read_bytes().rpartition(b"#FAKE\n")[2].decode()


def wait_for(condition: Callable[[], object]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)


def in_threads(*calls: Callable[[], object]) -> None:
    """Run calls at the same time, to their end, and raise an error of one."""
    with ThreadPoolExecutor(len(calls)) as pool:
        for running in [pool.submit(call) for call in calls]:
            running.result()


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and is not yet collected does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False
