"""What an import of the package starts, with torch itself and the fake compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from engine_bench import HERE, alive, compiler_pid, wait_for

LEAVE = """
import threading, lltm_jit
print(threading.active_count())
"""
# A cached load is what a program does at every run.
LOAD = """
import json, sys, lltm_jit
for _ in range(2):
    lltm_jit.load("_C", sys.argv[1])
print("loaded", flush=True)
input()
print(json.dumps(lltm_jit.native.load("rnn").info.cached))
"""


@pytest.fixture
def gate(bench, tmp_path) -> Path:
    """The compilers of one source of the package wait here."""
    gate = tmp_path / "gate"
    bench.write_compiler(orders={"gemm.cpp": ("wait", str(gate))})
    return gate


def start(bench, program: str, *arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        cwd=HERE.parents[1],
        env={**os.environ, **bench.environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_an_import_starts_no_thread_and_the_process_may_end(bench, gate):
    process = start(bench, LEAVE)
    assert process.communicate(timeout=50) == ("1\n", "")
    assert process.returncode == 0
    if gate.exists():  # else it ended even before the compiler began
        wait_for(lambda: not alive(compiler_pid(gate)))


@pytest.mark.slow
def test_a_load_lets_the_packages_build_go_on(bench, gate):
    process = start(bench, LOAD, str(bench.sources))
    compiler = compiler_pid(gate)
    assert process.stdout.readline() == "loaded\n"
    assert alive(compiler)
    Path(f"{gate}.go").touch()
    out, said = process.communicate("\n", timeout=100)
    assert process.returncode == 0, said
    assert json.loads(out) is True
    assert bench.counts.count("compile gemm.cpp") == 1
