import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """The processes that a test starts find the package in a checkout that is not installed."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]), prepend=os.pathsep)
