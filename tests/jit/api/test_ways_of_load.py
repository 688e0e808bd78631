"""Ways of load and load_inline that no other test has, without those that take torch's headers.

`python tests/jit/ways_of_load.py` runs all of them, on torch's functions too.
"""

from __future__ import annotations

import os
import types
from unittest import mock

import pytest
from engine_bench import tiers
from ways import WAYS

from lltm_jit.jit import torch_api

UNTESTED = {way.name: way for way in WAYS if not (way.tested or way.headers or way.cuda)}


@pytest.mark.parametrize("way", tiers(UNTESTED))
def test_way(way, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with mock.patch.dict(os.environ, TORCH_EXTENSIONS_DIR=str(tmp_path / "cache")):
        side = types.SimpleNamespace(load=torch_api.load, load_inline=torch_api.load_inline)
        assert way.function(side) == way.expected
