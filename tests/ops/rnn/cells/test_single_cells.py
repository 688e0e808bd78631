"""Single steps against torch's, and what they have of them."""

import copy
import pickle

import pytest
import torch
from layer_testing import as_list, as_state, derivatives
from op_testing import for_each
from torch import nn

import lltm_jit
from lltm_jit.ops.rnn.single_cells import RNNCell

SIZE = RNNCell._least_size  # from which each is a sequence of one step
KINDS = {
    "LSTMCell": {},
    "GRUCell": {},
    "RNNCell": {},
    "RNNCell, relu": {"nonlinearity": "relu"},
}
kind = for_each("kind", KINDS)


def pair(kind: str, hidden_size: int = SIZE, **options) -> tuple[nn.Module, nn.Module]:
    """Ours and torch's, with the same parameters."""
    name = kind.partition(",")[0]
    options = {**KINDS[kind], "dtype": torch.double, **options}
    ours, theirs = (getattr(m, name)(5, hidden_size, **options) for m in (lltm_jit, nn))
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


def states(kind: str, *shape: int, **options):
    h, c = (torch.randn(shape, **{"dtype": torch.double, **options}) for _ in range(2))
    return (h, c) if kind == "LSTMCell" else h


@pytest.mark.thinned
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("batch", [(3,), (0,), ()], ids=str)
@pytest.mark.parametrize("hidden_size", [7, SIZE])
def test_torchs_own_cells_give_the_same(kind, hidden_size, batch, state, bias, device):
    cells = pair(kind, hidden_size, bias=bias, device=device)
    x = torch.randn(*batch, 5, dtype=torch.double, device=device)
    hx = states(kind, *batch, hidden_size, device=device) if state else None
    found = []
    for cell in cells:
        leaves = [t.clone().requires_grad_() for t in (x, *as_list(hx))]
        results = as_list(cell(leaves[0], as_state(leaves[1:]) if state else None))
        found.append([*results, *derivatives(results, [*leaves, *cell.parameters()])])
    torch.testing.assert_close(*found)


def test_they_are_torchs_but_for_the_step(kind):
    ours, theirs = pair(kind)
    assert isinstance(ours, type(theirs))
    assert repr(ours) == repr(theirs)
    x = torch.randn(3, 5, dtype=torch.double)
    expected = as_list(ours(x))
    for each in (
        copy.deepcopy(ours),
        pickle.loads(pickle.dumps(ours)),
        torch.compile(ours, fullgraph=True, backend="aot_eager"),
        torch.fx.symbolic_trace(nn.Sequential(ours)),
    ):
        torch.testing.assert_close(as_list(each(x)), expected)
    with pytest.raises(NotImplementedError, match=r"torch\.jit\.script .* lltm_jit\.revert"):
        torch.jit.script(ours)


def test_a_step_is_the_operators(kind, monkeypatch):
    """From the least size on, on a CPU; torch's elsewhere."""
    cell, calls, x = pair(kind)[0], [], torch.randn(3, 5, dtype=torch.double)
    monkeypatch.setattr(type(cell), "_step", lambda *args: calls.append(args))
    for device in ("cpu", "meta"):
        cell.to(device)(x.to(device))
        assert len(calls) == 1


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.half], ids=str)
def test_autocast_gives_the_dtypes_of_torchs(kind, dtype):
    cells = pair(kind, dtype=torch.float)
    x, hx = torch.randn(3, 5), states(kind, 3, SIZE, dtype=torch.float)
    with torch.autocast("cpu", dtype):
        found = [as_list(cell(x, hx)) for cell in cells]
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("batch", [(3,), ()], ids=str)
def test_states_may_be_detached_in_place_where_torchs_may(kind, batch, device):
    """Between the pieces of truncated backpropagation."""
    ours, theirs = pair(kind, device=device)
    x = torch.randn(*batch, 5, dtype=torch.double, device=device)
    for state, usual in zip(as_list(ours(x)), as_list(theirs(x)), strict=True):
        assert state._is_view() <= usual._is_view()
        if not usual._is_view():
            state.detach_()


def test_a_state_that_is_changed_in_place_has_right_gradients(kind):
    """No backward pass needs the last one, an LSTM's `c`; autograd would not see the change."""
    cell, x, found = pair(kind)[0], torch.randn(3, 5, dtype=torch.double), []
    for change in (torch.Tensor.mul, torch.Tensor.mul_):
        *others, last = as_list(cell(x))
        found.append(derivatives([*others, change(last, 2)], [*cell.parameters()]))
    torch.testing.assert_close(*found)


def test_second_derivatives_and_torch_func(kind):
    cell, theirs = pair(kind)
    x = torch.randn(2, 5, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: as_list(cell(x))[0].sum(), x[:1])
    found = torch.func.vmap(lambda row: as_list(cell(row))[0])(x)
    torch.testing.assert_close(found, as_list(theirs(x))[0])  # torch cannot batch its LSTM's


@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr", "half"])
def test_what_has_no_step_of_ours_has_torchs(kind, layout):
    ours, theirs = pair(kind)
    x, hx = torch.randn(3, 5, dtype=torch.double), states(kind, 3, SIZE)
    if layout != "half":
        x = getattr(x, layout)()
    elif kind == "LSTMCell":
        hx = (hx[0], hx[1].half())
    torch.testing.assert_close(as_list(ours(x, hx)), as_list(theirs(x, hx)))
    if layout == "half" and kind == "LSTMCell":
        ours, theirs, x, h = ours.bfloat16(), theirs.bfloat16(), x.bfloat16(), hx[0].bfloat16()
        torch.testing.assert_close(ours(x, (h, h.float())), theirs(x, (h, h.float())))


def test_a_build_that_fails_is_no_reason_for_torchs(monkeypatch):
    def fails(*args):
        raise lltm_jit.BuildError("no compiler")

    monkeypatch.setattr(lltm_jit.GRUCell, "_step", fails)
    with pytest.raises(lltm_jit.BuildError, match="no compiler"):
        lltm_jit.GRUCell(3, 4)(torch.zeros(2, 3))


X = torch.zeros(3, 5, dtype=torch.double)
# An input, and the shape of a state, or a state.
WRONG = {
    "input's rank": (torch.zeros(3, 1, 5), None),
    "a number": (torch.zeros(()), None),
    "features": (torch.zeros(3, 6), None),
    "no tensor": (None, (3, SIZE)),
    "a dtype": (X.float(), (3, SIZE)),
    "hx's rank": (X, (1, 3, SIZE)),
    "hx's batch": (X, (2, SIZE)),
    "hx without a batch": (X, (SIZE,)),
    "hx with one": (X[0], (1, SIZE)),
    "hx's size": (X, (3, SIZE + 1)),
    "hx's dtype": (X, (3, SIZE)),
    "a list for hx": (X, [1]),
}


@pytest.mark.parametrize("way", WRONG)
def test_errors_are_torchs(kind, way):
    x, hx = WRONG[way]
    if isinstance(hx, tuple):
        dtype = torch.float if way == "hx's dtype" else torch.double
        hx = states(kind, *hx, dtype=dtype)
    if x is not None and way != "a dtype":
        x = x.double()
    found = []
    for cell in pair(kind):
        with pytest.raises((TypeError, ValueError, RuntimeError, AttributeError, IndexError)) as e:
            cell(x, hx)
        found.append((e.type, str(e.value)))
    assert found[0] == found[1]
