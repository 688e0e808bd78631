"""The code on the page "Many kernels, many processes" runs as it stands."""

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from lltm_jit.jit import detect

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "many_kernels.rst").read_text("utf-8")
BLOCK = r"^\.\. code-block:: (\w+)\n(?:   :caption: (\S+)\n)?((?:\n|   .*\n)+)"
BLOCKS = {
    caption or kind: textwrap.dedent(code)
    for kind, caption, code in re.findall(BLOCK, PAGE, re.MULTILINE)
}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a command where the files of the page are, and gives the lines that it prints."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "builds"))
    monkeypatch.setenv("LLTM_JIT_AT_IMPORT", "0")
    for name, code in BLOCKS.items():
        (tmp_path / name).write_text(code)

    def lines(*command):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return lines


def test_all_blocks_are_tested():
    assert BLOCKS.keys() == {"python", "judge.py", "compile.py", "sh"}
    assert PAGE.count(".. code-block::") == len(BLOCKS)


@pytest.mark.slow
def test_errors_as_data(run):
    assert run(sys.executable, "python") == re.findall(r"\)  # (.+)", BLOCKS["python"])


@pytest.mark.slow
def test_limits_of_time(run):
    assert run(sys.executable, "judge.py") == re.findall(r"``(SIG\w+)``", PAGE)


@pytest.mark.slow
def test_compile_here_and_load_there(run, tmp_path):
    """The second node gets the libraries of the first, and says that it must not compile."""
    files = {"1.cpp": "int one = 1;\n", "2.cpp": "int two = ;\n"}
    if detect().cuda:
        files["3.cu"] = "__global__ void three(int* x) { *x = 3; }\n"
    (tmp_path / "kernels").mkdir()
    for name, text in files.items():
        (tmp_path / "kernels" / name).write_text(text)
    lines = run("sh", "sh")
    here, there = lines[: len(files)], lines[len(files) :]
    assert re.match(r".*/kernels/2.cpp:1: .*expected", here.pop(1))
    assert "LLTM_JIT_DISABLE_JIT forbids building" in there.pop(1)
    assert here == there
    assert all(Path(library).exists() for library in here)
