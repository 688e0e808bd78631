"""A test with an argument of one of these names runs for each of its values."""

from collections.abc import Iterator
from typing import Any

import plans as all_plans
import pytest
from layer_testing import LAYERS
from op_testing import DEVICES, for_each, taken
from sequence_testing import CELLS

cell = for_each("cell", CELLS)  # of the operator, by its name
kind = for_each("kind", LAYERS)  # of layer, by the name of its cell in capitals
reverse = for_each("reverse", [False, True])
bidirectional = for_each("bidirectional", [False, True])


@pytest.fixture(scope="session")
def plans() -> Any:
    """Those of whole sequences."""
    return all_plans.load().sequence


@pytest.fixture(params=[*DEVICES, "formulas"])
def path(request: pytest.FixtureRequest) -> Iterator[str]:
    """A device; a CPU's kernels, and the formulas of a device that has no kernel of ours."""
    with taken(request.param, "rnn") as device:
        yield device
