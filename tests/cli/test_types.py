"""The types that a program sees, as mypy and pyright see them (basedpyright is pyright on PyPI)."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_checkout import CHECKOUT

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent / "typed" / "a_users_program.py"


@pytest.mark.slow
def test_mypy_strict():
    words = ["--strict", "--config-file=", "--follow-imports=silent", f"--cache-dir={os.devnull}"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *words, PROGRAM],
        env={**os.environ, "MYPYPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_pyright_strict(tmp_path):
    places = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    checker = shutil.which("basedpyright", path=places)
    if checker is None:
        pytest.fail("basedpyright is not installed: `python -m pip install basedpyright`")
    shutil.copy(PROGRAM, tmp_path)
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(CHECKOUT)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(
        [checker, "--project", tmp_path, "--pythonpath", sys.executable, "--outputjson"],
        capture_output=True,
        text=True,
    )
    found = json.loads(done.stdout)
    assert found["generalDiagnostics"] == []
    assert found["summary"]["filesAnalyzed"] == 1
