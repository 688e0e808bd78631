"""A test with an argument of one of these names runs for each of its values."""

from __future__ import annotations

from typing import Any

import pytest
from op_testing import DEVICES
from sequence_testing import CELLS, LAYERS


def each(name: str, values: Any) -> Any:
    return pytest.fixture(name=name, params=values)(lambda request: request.param)


device = each("device", DEVICES)
cell = each("cell", CELLS)  # of the operator, by its name
kind = each("kind", LAYERS)  # of layer, by the name of its cell in capitals
reverse = each("reverse", [False, True])
bidirectional = each("bidirectional", [False, True])
