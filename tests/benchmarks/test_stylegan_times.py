"""`python -m benchmarks stylegan`, at small sizes."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from benchmarks.stylegan import OPERATORS, errors, operators, plain
from benchmarks.stylegan.cases import BACKWARD, FORWARD, OUTLIER, WITH_SIGNS, cases

CPU = torch.device("cpu")


def of(operator, shape=(2, 3, 8, 6), dtype=torch.float, device=CPU):
    return list(cases(operator, dtype, shape, device))


def test_limits_of_errors():
    good = {
        "result": 2e-4,
        "plain": 1.0,
        "rounding": 1e-4,
        "gradient": 4e-4,
        "plain_gradient": 2e-4,
    }
    assert errors.check(torch.half, **good) == "match"
    assert errors.check(torch.half, **{**good, "result": float("nan")}).startswith("error: result")
    assert errors.check(torch.bfloat16, **good) == "error: result 2.0e-04, limit 1.1e-04"
    wrong = errors.check(torch.half, **{**good, "gradient": 5e-4})
    assert wrong == "error: gradient 5.0e-04, limit 4.0e-04"


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_phase_does_what_it_says(operator):
    for case in of(operator):
        result = case.step(case.inputs(), "ref")()
        if case.phase == BACKWARD:
            inputs = case.inputs()
            assert [gradient.shape for gradient in result] == [tensor.shape for tensor in inputs]
            assert any(gradient.any() for gradient in result)
        else:
            assert result.requires_grad == (case.phase == WITH_SIGNS)


@pytest.mark.parametrize("operator", OPERATORS)
def test_plain_pytorch_computes_the_same(operator):
    for case in of(operator, (1, 2, 16, 16)):
        found = []
        for way in (nullcontext(), plain.instead_of_references()):
            inputs = [tensor.double().requires_grad_() for tensor in case.inputs()]
            with way:
                result = case.run(inputs, "ref")
            found.append([result, *torch.autograd.grad(result.sin().sum(), inputs)])
        torch.testing.assert_close(*found, rtol=1e-6, atol=1e-6)


def test_what_is_timed_as_plain_pytorch_is_no_reference(monkeypatch, quick_clock):
    """But what a user writes: filters are depthwise convolutions."""
    groups, conv2d = [], torch.nn.functional.conv2d

    def spy(*args, **named):
        groups.append(named["groups"])
        return conv2d(*args, **named)

    monkeypatch.setattr(torch.nn.functional, "conv2d", spy)
    for operator in OPERATORS:
        groups.clear()
        operators.rows(of(operator)[-1], 0.001, in_graph=False)
        assert set(groups) == (set() if operator == "bias_act" else {3})


def test_fewest_bytes_by_hand():
    size = 2 * 3 * 8 * 6

    def found(operator, name, phase=FORWARD, dtype=torch.float):
        named = [case for case in of(operator, dtype=dtype) if case.name == name]
        return next(case.bytes for case in named if case.phase == phase)

    assert found("bias_act", "tanh, NCHW", dtype=torch.half) == 2 * (size + size)
    assert found("bias_act", "lrelu, clamp, channels_last", BACKWARD) == 4 * (2 * size + 3 * size)
    name = "upsample2d, 4 taps, NCHW"
    assert found("upfirdn2d", name) == 4 * (size + 4 * size)
    assert found("upfirdn2d", name, BACKWARD) == 2 * found("upfirdn2d", name)
    assert found("upfirdn2d", "downsample2d, 12 + 12 taps, NCHW") == 4 * (size + size // 4)
    for name, bits in (("up 2, down 2", 1), ("up 2, down 2, clamped", 2)):
        signs = 4 * size * bits // 8
        assert found("filtered_lrelu", name) == 4 * 2 * size
        assert found("filtered_lrelu", name, WITH_SIGNS) == 4 * 2 * size + signs
        assert found("filtered_lrelu", name, BACKWARD) == 4 * 4 * size + 2 * signs


def test_outliers_are_in_as_many_planes_as_the_case_says():
    found = [case for case in of("filtered_lrelu", device=torch.device("meta")) if case.outliers]
    assert [case.outliers for case in found] == [1, 6]
    for case in found:
        x, _ = replace(case, device=CPU).inputs()
        counts = (x == OUTLIER).sum((2, 3)).flatten().tolist()
        assert counts == [1] * case.outliers + [0] * (6 - case.outliers)


def test_the_copy_moves_the_bytes_of_the_case():
    copied = operators.copy_in_rotation(80, CPU)()
    assert 2 * copied.nbytes == 80
    assert copied.fill_(torch.nan).isnan().all()  # as the timer in a graph does
