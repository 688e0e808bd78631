"""`python -m benchmarks cell`, at small sizes."""

from types import SimpleNamespace

import pytest
import torch

from benchmarks import other_cell
from benchmarks.__main__ import main
from benchmarks.cell import PHASES, Case
from lltm_jit.ops.rnn.lltm import lltm_cell_reference

QUICK = ["cell", "-b", "2", "-f", "3", "-s", "4", "--seconds", "0.001"]


def opponent(scale):
    """A module as the tutorial's, of functions in Python; right if the scale is 1."""

    def forward(*operands):
        new_h, new_cell = lltm_cell_reference(*operands)
        return [new_h, new_cell, *operands[:1], *operands[2:]]

    def backward(grad_h, grad_cell, new_cell, input, bias, old_h, old_cell, weights):
        saved = (input, weights, bias, old_h, old_cell)
        with torch.enable_grad():
            operands = [tensor.detach().requires_grad_() for tensor in saved]
            outputs = lltm_cell_reference(*operands)
        grads = torch.autograd.grad(outputs, operands, [grad_h, grad_cell])
        d_input, d_weights, d_bias, d_old_h, d_old_cell = grads
        return [d_old_h, d_input, d_weights, d_bias, scale * d_old_cell]

    return SimpleNamespace(forward=forward, backward=backward)


@pytest.mark.parametrize("scale", [1, 2])
def test_an_opponent_is_built_checked_and_comes_first(
    scale, capsys, tmp_path, monkeypatch, quick_clock
):
    built = []

    def load(spec):
        built.append(spec)
        return SimpleNamespace(module=opponent(scale))

    monkeypatch.setattr(other_cell.engine, "load", load)
    (tmp_path / "theirs.cpp").touch()
    against = ["--against", str(tmp_path), "--define", "SCALE=1"]
    assert main([*QUICK, *against]) == scale - 1
    assert built[0].paths == (str(tmp_path),)
    assert "-DSCALE=1" in built[0].cflags
    _, *rows = capsys.readouterr().out.split("\n\n")[1].splitlines()[1:]
    assert f" {tmp_path.name} " in rows[0]
    assert (" match " if scale == 1 else " error ") in rows[0]
    assert " reference " in rows[1]
    assert rows[1].endswith(f" 2.00 of {tmp_path.name}")


def test_operations_and_bytes_by_hand():
    case = Case(2, 3, 4, torch.float32, torch.device("cpu"))
    assert case.operations(PHASES[0]) == 2 * 2 * 12 * 7
    assert case.operations(PHASES[2]) == 3 * case.operations(PHASES[1])
    weights, input, state, gates = 12 * 7 + 12, 2 * 3, 2 * 2 * 4, 3 * 2 * 4
    assert case.bytes(PHASES[0]) == 4 * (weights + input + 2 * state)
    assert case.bytes(PHASES[1]) == case.bytes(PHASES[0]) + 4 * gates
