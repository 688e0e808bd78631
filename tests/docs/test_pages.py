"""The code of the README and of the pages in docs/ runs as it stands."""

import os
import re
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from small_files import write

from lltm_jit import ops
from lltm_jit.jit import detect

ROOT = Path(__file__).parents[2]
MANY_KERNELS = ROOT / "docs" / "many_kernels.rst"  # whose programs are other processes
PAGES = [ROOT / "README.md", *sorted({*(ROOT / "docs").glob("**/*.rst")} - {MANY_KERNELS})]
MARKDOWN = r"^```(python|cpp)()\n(.*?)^```"
RST = r"^\.\. code-block:: (python|cpp|sh)\n(?:   :caption: (\S+)\n)?((?:\n|   .*\n)+)"


def blocks(page):
    """The language, the file's name if it is one, and the text of each block of code."""
    pattern, text = MARKDOWN if page.suffix == ".md" else RST, page.read_text("utf-8")
    found = re.findall(pattern, text, re.MULTILINE | re.DOTALL if page.suffix == ".md" else re.M)
    return [(kind, caption, textwrap.dedent(code)) for kind, caption, code in found]


def cases():
    """Blocks that compile more than the package's kernels are slow."""
    for page in PAGES:
        found = blocks(page)
        files = {name: code for _, name, code in found if name}
        programs = [code for kind, name, code in found if kind == "python" and not name]
        for number, code in enumerate(programs):
            compiles = re.search(r"\b(load|load_inline|recurrent_cell|compile)\(", code)
            marks = [pytest.mark.slow] if compiles else []
            yield pytest.param(files, code, id=f"{page.stem}-{number}", marks=marks)


@pytest.mark.parametrize(("files", "code"), list(cases()))
def test_python_runs(files, code, tmp_path, monkeypatch, capsys):
    """In this process, for another would import torch for each."""
    for name, text in {**files, "program.py": code}.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    runpy.run_path("program.py", run_name="__main__")
    ops.uninstall("op")
    expected = re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == expected


OF_MANY = {caption or kind: code for kind, caption, code in blocks(MANY_KERNELS)}


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs a command beside the files of many_kernels.rst, and gives the lines that it prints."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "builds"))
    monkeypatch.setenv("LLTM_JIT_AT_IMPORT", "0")
    for name, code in OF_MANY.items():
        write(tmp_path / name, code)

    def lines(*command):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return lines


def test_all_blocks_of_many_kernels_are_tested():
    assert OF_MANY.keys() == {"python", "judge.py", "compile.py", "sh"}
    assert MANY_KERNELS.read_text("utf-8").count(".. code-block::") == len(OF_MANY)


@pytest.mark.slow
def test_programs_of_many_kernels(run):
    """They print the errors as data, and what ends a program."""
    signals = re.findall(r"``(SIG\w+)``", MANY_KERNELS.read_text("utf-8"))
    assert run(sys.executable, "python") == re.findall(r"\)  # (.+)", OF_MANY["python"])
    assert run(sys.executable, "judge.py") == signals


@pytest.mark.slow
def test_compile_here_and_load_there(run, tmp_path):
    """The second node gets the libraries of the first, and says that it must not compile."""
    files = {"1.cpp": "int one = 1;\n", "2.cpp": "int two = ;\n"}
    if detect().cuda:
        files["3.cu"] = "__global__ void three(int* x) { *x = 3; }\n"
    for name, text in files.items():
        write(tmp_path / "kernels" / name, text)
    lines = run("sh", "sh")
    here, there = lines[: len(files)], lines[len(files) :]
    assert re.match(r".*/kernels/2.cpp:1: .*expected", here.pop(1))
    assert "LLTM_JIT_DISABLE_JIT forbids building" in there.pop(1)
    assert here == there
    assert all(Path(library).exists() for library in here)
