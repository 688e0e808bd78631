"""Programs whose kernels a child builds, for tests: what they print, and what of them runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from engine_bench import HERE

FOUND = {"text": "two", "cached": True, "reused": 0}  # what the child made


class Program:
    """child_once.py in a process of its own."""

    def __init__(self, bench, action, *families, launcher=(), **environment):
        words = [str(HERE / "child_once.py"), action, *(families or ["_C"])]
        directories = {f"FAMILY_{name}": str(bench.directory / name) for name in families}
        self.process = subprocess.Popen(
            [sys.executable, *launcher, *words],
            cwd=bench.directory,
            env={
                **os.environ,
                **bench.environment,
                **directories,
                "FAMILY__C": str(bench.sources),
                **environment,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def line(self) -> dict:
        return json.loads(self.process.stdout.readline())

    def go_on(self) -> None:
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self, status: int = 0) -> tuple[list[dict], str]:
        """What it printed, and what it said, once it has ended."""
        out, err = self.process.communicate(timeout=120)
        assert self.process.returncode == status, err
        return [json.loads(line) for line in out.splitlines()], err


def go(gate: Path) -> None:
    Path(f"{gate}.go").touch()


def noticed(bench, target: str = "one.o") -> bool:
    """Whether ninja knows that a compiler has ended."""
    return any(target in log.read_text() for log in bench.builds.glob("work/*/.ninja_log"))


def children(bench) -> set[int]:
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
        ours = f"TORCH_EXTENSIONS_DIR={root}" in variables
        if ours and command[1:3] == ["-I", "-c"]:
            found.add(int(process.name))
    return found
