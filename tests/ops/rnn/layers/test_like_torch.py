"""What code for torch's recurrent layers finds: signatures, attributes, errors, dtypes, tracing."""

import copy
import inspect
import typing

import pytest
import torch
from layer_testing import ALL_LAYERS, ALL_THEIRS, LAYERS, THEIRS, pair, states_of, tensors
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

import lltm_jit

KINDS = ["LSTM", "GRU", "RNN"]
X, H = torch.zeros(4, 3, 5), torch.zeros(1, 3, 7)


def arguments(function) -> list[tuple[str, object]]:
    """Names and defaults of the arguments that may be given by position."""
    parameters = inspect.signature(function).parameters.values()
    return [(p.name, p.default) for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]


@pytest.mark.parametrize("kind", KINDS)
def test_the_constructors_take_the_same(kind):
    """torch's layers pass on what they are given, but for the mode, to the base class."""
    theirs = [each for each in arguments(nn.RNNBase.__init__) if each[0] != "mode"]
    more = ("relu",) if kind == "RNN" else ()
    if kind == "RNN":
        theirs = [*theirs[:4], ("nonlinearity", "tanh")]
    ours, right = both(kind)
    assert arguments(ours.__init__) == theirs
    args = (5, 7, 2, *more, False, True, 0.5, True, 0, "meta", torch.half)
    assert repr(ours(*args)) == repr(right(*args))
    assert ours(*args).weight_hh_l1_reverse.is_meta
    assert ours(*args).weight_hh_l1_reverse.dtype == torch.half


@pytest.mark.parametrize("kind", KINDS)
def test_the_calls_take_the_same(kind):
    ours, theirs = both(kind)
    assert arguments(ours.forward) == arguments(theirs.forward)
    overloads = getattr(typing, "get_overloads", lambda function: [])(theirs.forward)
    for each in overloads:
        assert arguments(each) == arguments(ours.forward)
    hx = (H, H) if kind == "LSTM" else H
    shapes = [[t.shape for t in tensors(K(5, 7)(input=X, hx=hx))] for K in (ours, theirs)]
    assert shapes[0] == shapes[1]


def both(kind: str) -> tuple[type[nn.Module], type[nn.Module]]:
    return getattr(lltm_jit, kind), getattr(nn, kind)


@pytest.mark.parametrize("kind", ALL_THEIRS)
@pytest.mark.parametrize("bias", [False, True])
def test_attributes_are_torchs(kind, bias):
    sizes = {"num_layers": 2, "bias": bias, "dropout": 1, "bidirectional": True}
    ours, theirs = ALL_LAYERS[kind](5, 7, **sizes), ALL_THEIRS[kind](5, 7, **sizes)
    assert isinstance(ours, type(theirs))
    for name in (*nn.RNNBase.__constants__, *(["nonlinearity"] if kind.startswith("RNN") else [])):
        assert getattr(ours, name) == getattr(theirs, name)
        assert type(getattr(ours, name)) is type(getattr(theirs, name))
    names = {id(parameter): name for name, parameter in ours.named_parameters()}
    found = [[names[id(parameter)] for parameter in layer] for layer in ours.all_weights]
    assert found == theirs._all_weights
    ours.weight_hh_l0 = nn.Parameter(torch.zeros(7 * ours.cell.gates, 7))
    assert ours.all_weights[0][1] is ours.weight_hh_l0


@pytest.mark.parametrize("kind", THEIRS)
def test_flat_weights_are_the_parameters_and_may_be_others(kind):
    """Where code for torch's layers puts weights with dropout."""
    ours, theirs = layers = pair(kind, 5, 7, 2)
    assert ours._flat_weights_names == theirs._flat_weights_names
    assert all(map(torch.equal, ours._flat_weights, theirs._flat_weights))
    x, weight = torch.randn(4, 3, 5), theirs.weight_hh_l1.detach() / 2
    usual = tensors(ours(x))
    for layer in layers:
        layer._flat_weights[5] = weight
    found, expected = (tensors(layer(x)) for layer in layers)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(tensors(ours(x, lengths=[4, 4, 4])), expected)
    assert not torch.equal(found[0], usual[0])
    assert dict(ours.named_parameters())["weight_hh_l1"] is not weight
    ours._flat_weights = list(ours.parameters())
    torch.testing.assert_close(tensors(ours(x)), usual)
    assert not any(name.startswith("weight") for name in vars(ours))


def test_methods_of_torchs_layers_are_there():
    """But for those that its layers have for themselves."""
    for kind in KINDS:
        ours, theirs = both(kind)
        missing = {name for name in dir(theirs(5, 7)) if not hasattr(ours(5, 7), name)}
        assert missing <= {"_flat_weight_refs", "_weights_have_changed"}


def test_another_nonlinearity_is_refused():
    message = r"^RNN\(\): expected nonlinearity to be 'tanh' or 'relu', but got 'elu'$"
    with pytest.raises(ValueError, match=message):
        lltm_jit.RNN(5, 7, nonlinearity="elu")


@pytest.mark.parametrize("given", [torch.float, torch.bfloat16, None], ids=str)
@pytest.mark.parametrize("kind", THEIRS)
def test_autocast_gives_the_dtypes_of_torchs(kind, given, device):
    """`given` is the dtype of the state, if there is one.

    On a GPU torch casts to half, whatever autocast's dtype is.
    """
    dtype = torch.half if device == "cuda" else torch.bfloat16
    ours, theirs = pair(kind, 5, 8, 2, device=device)
    x = torch.randn(4, 3, 5, device=device)
    hx = None if given is None else states_of(ours, 3, dtype=given, device=device)
    # Where a CPU has no instructions for bfloat16, torch's LSTM may fail.
    usual = [torch.bfloat16] * 3
    with torch.autocast(device, dtype):
        found = tensors(ours(x, hx))
        if (kind, device) != ("LSTM", "cpu"):
            expected = tensors(theirs(x, hx))
            usual = [t.dtype for t in expected]
    if (kind, device) == ("LSTM", "cpu"):
        expected = tensors(theirs(x, hx and tuple(t.float() for t in hx)))
    assert [t.dtype for t in found] == usual
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02, check_dtype=False)


# What may change the path that a call takes, and what a layer returns with it.
PATHS = {
    "a plain call": {},
    "lengths": {"lengths": [4, 2]},
    "reset": {"reset": True},
    "states": {"return_states": True},
    "packed": {"packed": [4, 2]},
    "packed, all as long": {"packed": [4, 4]},
    "checkpoint": {"checkpoint": 2},
    "no gradients": {"gradients": False},
}
SIZES = {
    "small": {},
    "both directions": {"bidirectional": True},
    "a stack": {"num_layers": 2},
    "projections": {"proj_size": 3},
    "batch_first": {"batch_first": True},
}


def on_path(kind: str, size: str, path: str, device: str, state: torch.dtype | None = None):
    """What ours returns, and what torch's does in a plain call without autocast."""
    ours, theirs = pair(kind, 5, 8, **SIZES[size], device=device)
    hx = None if state is None else states_of(ours, 2, dtype=state, device=device)
    x = torch.randn(*((2, 4) if ours.batch_first else (4, 2)), 5, device=device)
    named, given = dict(PATHS[path]), x
    ours.checkpoint = named.pop("checkpoint", 0)
    if "packed" in named:
        given = pack_padded_sequence(x, named.pop("packed"), batch_first=ours.batch_first)
    if "reset" in named:
        named["reset"] = torch.zeros(x.shape[:2], dtype=torch.bool, device=device)
    with torch.set_grad_enabled(named.pop("gradients", True)):
        output, last, *_ = ours(given, hx, **named)
        # Under autocast torch's LSTM fails where a CPU has no instructions for bfloat16.
        usual = () if torch.is_autocast_enabled(device) else tensors(theirs(x))
        return tensors((output, last)), usual


@pytest.mark.thinned
@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", THEIRS)
def test_what_a_layer_returns_may_be_detached_in_place(kind, size, path, device):
    """As truncated backpropagation does; a view cannot. Where torch's is one, so may ours be.

    With batch_first and packed, the output of an LSTM is one, and on a GPU, so that autograd
    notices changes in place; and without gradients, where nothing is to be detached.
    """
    if size == "projections" and kind != "LSTM":
        return
    found, usual = on_path(kind, size, path, device)
    may_be_view = size == "batch_first" or path == "packed, all as long"
    copied = kind != "LSTM" and found[0].is_cpu and found[0].requires_grad
    for i, (ours, theirs) in enumerate(zip(found, usual, strict=True)):
        if not theirs._is_view() and (i or copied or not may_be_view):
            ours.detach_()


@pytest.mark.thinned
@pytest.mark.parametrize("lengths", [None, [4, 4], [4, 2]])
@pytest.mark.parametrize("options", [{}, {"batch_first": True}, {"bidirectional": True}], ids=str)
@pytest.mark.parametrize("units", [8, 200])
@pytest.mark.parametrize("kind", [kind for kind in THEIRS if kind != "LSTM"])
def test_outputs_may_be_changed_in_place(kind, units, options, lengths):
    """On a CPU, before a backward pass that needs them; torch's LSTM is like ours on a GPU."""
    first, found = "batch_first" in options, []
    given = torch.randn(2, 4, 5) if first else torch.randn(4, 2, 5)
    if lengths is not None:
        given = pack_padded_sequence(given, lengths, batch_first=first)
    for layer in pair(kind, 5, units, 2, **options):
        output, _ = tensors(layer(given))
        output.mul_(0.5)
        output[0] = 0
        found.append([output, *torch.autograd.grad(output.square().sum(), layer.parameters())])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)


@pytest.mark.thinned
@pytest.mark.parametrize("state", [torch.float, torch.bfloat16, None], ids=str)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", THEIRS)
def test_autocast_gives_the_same_dtypes_on_every_path(kind, size, state, device):
    if size == "projections" and kind != "LSTM":
        return
    with torch.autocast(device, torch.bfloat16):
        found = {p: [t.dtype for t in on_path(kind, size, p, device, state)[0]] for p in PATHS}
    assert found == dict.fromkeys(PATHS, found["a plain call"])


class Tagger(nn.Module):
    def __init__(self, rnn: nn.Module) -> None:
        super().__init__()
        self.rnn = rnn
        self.out = nn.Linear(7, 2)

    def forward(self, x, lengths=None):
        output, state = self.rnn(x, lengths=lengths)
        return self.out(output), state


def test_symbolic_traces_have_a_layer_as_a_leaf(kind):
    model = Tagger(LAYERS[kind](5, 7)).double()
    graph = torch.fx.symbolic_trace(model, concrete_args={"lengths": None})
    assert [n.target for n in graph.graph.nodes if n.op == "call_module"] == ["rnn", "out"]
    x = torch.randn(4, 2, 5, dtype=torch.double)
    assert torch.equal(graph(x)[0], model(x)[0])
    whole = torch.fx.symbolic_trace(model)
    assert torch.equal(whole(x, [4, 2])[0], model(x, [4, 2])[0])


def test_script_says_why_not_and_what_instead():
    model = nn.Sequential(lltm_jit.LSTM(5, 7))
    expected = r"^LSTM\(\): torch.jit.script .* lltm_jit.revert\(copy.deepcopy\(model\)\)$"
    with pytest.raises(NotImplementedError, match=expected):
        torch.jit.script(model)
    x = torch.randn(4, 3, 5)
    found = torch.jit.script(lltm_jit.revert(copy.deepcopy(model)))(x)
    torch.testing.assert_close(tensors(found), tensors(model(x)))


@pytest.mark.parametrize("transform", ["grad", "vmap", "vmap of grad"])
def test_checkpoints_are_let_be_under_torch_func(transform):
    layer = lltm_jit.LSTM(5, 7, checkpoint=2, dtype=torch.double)
    x = torch.randn(3, 6, 2, 5, dtype=torch.double)

    def result() -> torch.Tensor:
        def loss(x):
            return layer(x)[0].square().sum()

        gradient, each = torch.func.grad(loss), torch.func.vmap
        if transform == "grad":
            return gradient(x[0])
        return each(loss if transform == "vmap" else gradient)(x)

    found = result()
    layer.checkpoint = 0
    torch.testing.assert_close(found, result())


@pytest.mark.parametrize("frozen", [False, True])
def test_forward_mode_goes_through_a_layer(kind, frozen):
    layer = LAYERS[kind](5, 7, batch_first=True, dtype=torch.double).requires_grad_(not frozen)
    x, tangent = torch.randn(2, 4, 3, 5, dtype=torch.double)
    result, found = torch.func.jvp(lambda x: layer(x)[0], (x,), (tangent,))
    weight = torch.randn_like(result)
    _, pull = torch.func.vjp(lambda x: layer(x)[0], x)
    torch.testing.assert_close((found * weight).sum(), (pull(weight)[0] * tangent).sum())
