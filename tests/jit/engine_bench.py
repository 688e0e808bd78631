"""A workplace for the engine's tests: an empty cache, a small extension, a fake compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lltm_jit import jit
from lltm_jit.jit import variants
from lltm_jit.jit.variants import Variant

HERE = Path(__file__).parent
ALL = ["compile one.cpp", "compile two.cpp", "link"]  # of the small extension


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
    def counts(self) -> list[str]:
        """What the compiler was asked to do since the last look."""
        file = Path(self.environment["FAKE_COUNTS"])
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return sorted(lines)

    def write(self, name: str, text: str) -> Path:
        path = self.sources / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def write_compiler(
        self,
        version: str = "c++ (Fake) 1.2.3",
        directory: str = "bin",
        *,
        deaf: bool = False,
        orders: dict[str, tuple[str, str]] | None = None,
    ) -> Path:
        """One that takes the orders in a source, and more by the sources' names, or is deaf."""
        compiler = self.directory / directory / "c++"
        compiler.parent.mkdir(exist_ok=True)
        python = os.path.realpath(sys.executable)  # the environment's may have a blank in its path
        compiler.write_text(
            f"#!{python} -IS\nimport sys\nsys.path.insert(0, {str(HERE)!r})\n"
            f"import fake_cxx\nfake_cxx.main({version!r}, {deaf!r}, {orders or {}!r})\n"
        )
        compiler.chmod(0o755)
        return compiler

    def write_nvcc(self, root: str = "cuda") -> Path:
        """A CUDA toolkit with nvcc; its root."""
        nvcc = self.directory / root / "bin" / "nvcc"
        nvcc.parent.mkdir(parents=True)
        nvcc.write_text(self.write_compiler(directory="bin").read_text())
        nvcc.chmod(0o755)
        return nvcc.parents[1]

    def spec(self, **changes) -> jit.Spec:
        return jit.Spec("_C", (str(self.sources),))._replace(**changes)

    def load(self, **changes) -> jit.Build:
        """Load in this process."""
        return jit.load(self.spec(**changes))

    def first(self, **changes) -> jit.Build:
        """The same for the first time, which compiles everything."""
        build = self.load(**changes)
        assert self.counts == ALL
        return build

    def edited(self, name: str, text: str, compiled: str = "") -> jit.Build:
        """Load after an edit, which compiles that file or the one that includes it."""
        file = self.write(name, text)
        build = self.load()
        assert self.counts == [f"compile {compiled or file.name}", "link"]
        return build

    def start(self, repeats: int = 1, **environment: str) -> subprocess.Popen:
        """Load in a process of its own."""
        return subprocess.Popen(
            [sys.executable, str(HERE / "load_once.py"), str(self.sources), str(repeats)],
            env={**os.environ, **self.environment, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, repeats: int = 1, **environment: str) -> dict:
        """Load in a process of its own; the last result, with what was said in ``said``."""
        return finish(self.start(repeats, **environment))


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


def finish(process: subprocess.Popen) -> dict:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return {**json.loads(out.splitlines()[-1]), "said": err}


def load_variant(variant: Variant, function: str) -> int:
    """The function's address, as C++ asks for it."""
    variants.declare(variant)
    return variants.load_declared((variant.name, function, (), variant.label))


def text_of(build: jit.Build) -> str:
    """What the fake compiler compiled and linked."""
    return payload(build.module)


def payload(module_or_path: ModuleType | str) -> str:
    """The same of a module that was loaded, or of a library."""
    path = module_or_path if isinstance(module_or_path, str) else str(module_or_path.__file__)
    return Path(path).read_bytes().rpartition(b"#FAKE\n")[2].decode()


def wait_for(condition) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and is not yet collected does not."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def compiler_pid(gate: Path) -> int:
    """The compiler that stands at a gate, once it is there."""
    wait_for(lambda: gate.exists() and gate.read_text())
    return int(gate.read_text())
