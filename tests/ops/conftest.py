"""The tests of operators draw the same numbers in every run, so that a failure can be repeated.

A test with an argument of one of these names runs for each of its values.
"""

import sys
from collections.abc import Iterator

import pytest
import torch
from op_testing import DEVICES, DTYPES, for_each

device = for_each("device", DEVICES)
dtype = for_each("dtype", DTYPES)


@pytest.fixture
def rules_for_vmap() -> Iterator[None]:
    """Our operators run once for a whole batch, and not once a sample as without a rule."""
    torch._C._functorch._set_vmap_fallback_enabled(False)
    yield
    torch._C._functorch._set_vmap_fallback_enabled(True)


def pytest_runtest_setup() -> None:
    torch.manual_seed(0)
    # Layers on a GPU follow this setting of torch; most tests are about exact products.
    torch.backends.cudnn.allow_tf32 = False
    # It counts recompiles by code, which a test's cases share, and remembers which sizes changed.
    if dynamo := sys.modules.get("torch._dynamo"):
        dynamo.reset()


def pytest_runtest_teardown() -> None:
    """Give the GPU's memory back, which several processes of tests share."""
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()
