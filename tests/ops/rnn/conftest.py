"""A test with an argument of one of these names runs for each of its values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from layer_testing import LAYERS
from op_testing import DEVICES, taken
from sequence_testing import CELLS


def each(name: str, values: Any) -> Any:
    return pytest.fixture(name=name, params=values)(lambda request: request.param)


device = each("device", DEVICES)
cell = each("cell", CELLS)  # of the operator, by its name
kind = each("kind", LAYERS)  # of layer, by the name of its cell in capitals
reverse = each("reverse", [False, True])
bidirectional = each("bidirectional", [False, True])


@pytest.fixture(params=[*DEVICES, "formulas"])
def path(request: pytest.FixtureRequest) -> Iterator[str]:
    """A device; a CPU's kernels, and the formulas of a device that has no kernel of ours."""
    with taken(request.param, "rnn") as device:
        yield device
