"""assert_accurate(), by which the operators' results are judged, sees errors of two roundings."""

import pytest
import torch
from op_testing import DTYPES, assert_accurate


@pytest.mark.parametrize("dtype", DTYPES[:3])
def test_an_element_that_is_two_roundings_off_is_seen(dtype):
    """However small it is, and however wrong the baseline is in another element."""
    exact = torch.rand(1000).to(dtype).double() + 1
    right = exact.to(dtype)
    assert_accurate(right, exact, right)
    wrong, baseline = right.clone(), right.clone()
    baseline[7] *= 1 + 8 * torch.finfo(dtype).eps
    size = 2**-8
    exact[3], wrong[3], baseline[3] = size, size, size
    assert_accurate(wrong, exact, baseline)
    wrong[3] += 2 * torch.finfo(dtype).eps * size
    with pytest.raises(AssertionError, match="and by 1 of 1000 elements"):
        assert_accurate(wrong, exact, baseline)


def test_parts_add_roundings_of_the_arithmetic():
    """Which is float for half: what is left of large parts is rounded to half, no more."""
    exact = torch.full((4,), 0.5, dtype=torch.double)
    for dtype, error in ((torch.float, 4e-6), (torch.half, 2e-3)):
        off = (exact + error).to(dtype)
        with pytest.raises(AssertionError, match="by 4 of 4 elements"):
            assert_accurate(off, exact, exact.to(dtype))
        if dtype == torch.float:
            assert_accurate(off, exact, exact.to(dtype), parts=torch.tensor(50.0))
        else:
            with pytest.raises(AssertionError, match="by 4 of 4 elements"):
                assert_accurate(off, exact, exact.to(dtype), parts=50.0)


@pytest.mark.parametrize("wrong", [0.0, -float("inf"), float("nan")])
def test_what_is_not_finite_must_be_where_it_belongs(wrong):
    exact = torch.tensor([1.0, float("inf"), float("nan"), 1e6], dtype=torch.double)
    right = exact.half()
    assert_accurate(right, exact, right)
    for place in range(1, 4):
        off = right.clone()
        off[place] = wrong
        if not (place == 2 and wrong != wrong):
            with pytest.raises(AssertionError):
                assert_accurate(off, exact, right)
