import os
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
