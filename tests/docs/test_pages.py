"""The code of the README and of the pages in docs/ runs as it stands."""

import re
import runpy
import textwrap
from pathlib import Path

import pytest

from lltm_jit import ops

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.rst"))]
TESTED_ELSEWHERE = "many_kernels.rst"
MARKDOWN = r"^```(python|cpp)()\n(.*?)^```"
RST = r"^\.\. code-block:: (python|cpp)\n(?:   :caption: (\S+)\n)?((?:\n|   .*\n)+)"


def blocks(page):
    """The language, the file's name if it is one, and the text of each block of code."""
    pattern, text = MARKDOWN if page.suffix == ".md" else RST, page.read_text("utf-8")
    found = re.findall(pattern, text, re.MULTILINE | re.DOTALL if page.suffix == ".md" else re.M)
    return [(kind, caption, textwrap.dedent(code)) for kind, caption, code in found]


def cases():
    """Blocks that compile more than the package's kernels are slow."""
    for page in PAGES:
        if page.name == TESTED_ELSEWHERE:
            continue
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
