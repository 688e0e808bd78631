"""A test with an argument of one of these names runs for each of its values."""

from collections.abc import Iterator

import pytest
from op_testing import DEVICES, for_each, taken
from operator_cases import CASES, Case

case = for_each("case", CASES)


@pytest.fixture(params=[*DEVICES, "formulas"])
def path(request: pytest.FixtureRequest, case: Case) -> Iterator[str]:
    """A device; a CPU's kernels, and the formulas of a device that has no kernel of ours."""
    with taken(request.param, case.family) as device:
        yield device
