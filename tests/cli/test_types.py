"""The types that a program sees, as mypy and pyright see them (basedpyright is pyright on PyPI)."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from small_checkout import CHECKOUT, run_in

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).parent / "typed" / "a_users_program.py"


def test_mypy_strict():
    words = ["--strict", "--config-file=", "--follow-imports=silent", f"--cache-dir={os.devnull}"]
    done = run_in(CHECKOUT, "-m", "mypy", *words, PROGRAM, MYPYPATH=str(CHECKOUT))
    assert done.returncode == 0, done.stdout + done.stderr


def test_pyright_strict(tmp_path):
    places = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    checker = shutil.which("basedpyright", path=places)
    assert checker, "basedpyright is not installed: `python -m pip install basedpyright`"
    shutil.copy(PROGRAM, tmp_path)
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(CHECKOUT)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    words = [checker, "--project", tmp_path, "--pythonpath", sys.executable, "--outputjson"]
    found = json.loads(subprocess.run(words, capture_output=True, text=True).stdout)
    assert found["generalDiagnostics"] == []
    assert found["summary"]["filesAnalyzed"] == 1
