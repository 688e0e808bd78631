import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """The processes that a test starts find the package in a checkout that is not installed."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]), prepend=os.pathsep)


@pytest.fixture
def run():
    """Run Python with these words in another process."""
    return lambda *words: subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=300
    )


@pytest.fixture
def run_here(monkeypatch, capsys):
    """Run a script with these words in this process, which has torch; gives what it printed."""

    def run(script, *words):
        monkeypatch.setattr(sys, "argv", [str(script), *words])
        monkeypatch.syspath_prepend(str(script.parent))
        runpy.run_path(str(script), run_name="__main__")
        return capsys.readouterr()

    return run
