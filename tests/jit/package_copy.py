"""A copy of the package beside two small families, whose compiler may wait at a gate."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from engine_bench import Bench, alive, compiler_pid

from lltm_jit import native


class Package:
    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.gate = bench.directory / "gate"
        for family in native.OWN:
            bench.write(f"{family}/bindings.cpp", f"{family}\n")
        shutil.copytree(Path(native.__file__).parent, bench.directory / "lltm_jit")

    @contextmanager
    def started(self, *words: str, **variables: str) -> Iterator[subprocess.Popen]:
        """Python in a process of its own, which Ctrl-C reaches."""
        path = f"{self._bench.directory}:{os.environ.get('PYTHONPATH', '')}"
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        process = subprocess.Popen(
            [sys.executable, *words],
            cwd=self._bench.directory,
            env={**os.environ, "PYTHONPATH": path, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
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

    def assert_ctrl_c_ends(self, process: subprocess.Popen) -> str:
        """While a compiler waits at the gate; returns what the process said."""
        pid = compiler_pid(self.gate)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate(timeout=30)  # the compiler would wait for minutes
        assert not alive(pid)
        return said
