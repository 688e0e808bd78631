"""The code of the README and of the pages in docs/ runs as it stands."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

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
def test_python_runs(files, code, tmp_path):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    expected = re.findall(r"^print\(.*\)  # (.*)$", code, re.MULTILINE)
    assert done.stdout.splitlines() == expected
