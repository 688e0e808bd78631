import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """The processes that a test starts find the package in a checkout that is not installed."""
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES.parent), prepend=os.pathsep)


@pytest.fixture
def run():
    """Run Python with these words in another process, where the examples are; it must end well."""

    def run(*words):
        how = {"cwd": EXAMPLES, "capture_output": True, "text": True, "timeout": 300}
        done = subprocess.run([sys.executable, *words], **how)
        assert done.returncode == 0, done.stderr
        return done

    return run


@pytest.fixture
def run_here(monkeypatch, capsys):
    """Run an example with these words in this process, which has torch; gives what it printed."""

    def run(name, *words):
        script = EXAMPLES / name
        monkeypatch.setattr(sys, "argv", [str(script), *words])
        monkeypatch.syspath_prepend(str(script.parent))
        runpy.run_path(str(script), run_name="__main__")
        return capsys.readouterr()

    return run
