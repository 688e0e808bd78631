"""Models whose recurrent layers become ours, and torch's again."""

import copy
import importlib
import inspect
import operator
import pickle
import pkgutil
import subprocess
import sys

import pytest
import torch
from layer_testing import ALL_THEIRS, tensors
from torch import nn
from torch.nn.utils import parametrizations, weight_norm

import lltm_jit
from lltm_jit.ops.rnn import convert as converting
from lltm_jit.ops.rnn.own_cell import OwnCell
from lltm_jit.ops.rnn.recurrent_layer import RecurrentLayer

KINDS = [kind.__name__ for kind in converting.OURS]


class Tagger(nn.Module):
    """Looks at the class of its layer, as TorchRL's modules do."""

    def __init__(self, kind: str, **options) -> None:
        super().__init__()
        self.kind, self.rnn = kind, getattr(nn, kind)(5, 7, **options)
        self.out = nn.Linear(7, 2, **options)

    def forward(self, x):
        if not isinstance(self.rnn, getattr(nn, self.kind)):
            raise TypeError(type(self.rnn))
        result = self.rnn(x)
        while not torch.is_tensor(result):
            result = result[0]
        return self.out(result)


@pytest.mark.parametrize("kind", KINDS)
def test_a_converted_model_is_the_same_model(kind, device):
    """Parameters, hooks, names, mode and whoever else knows the layer; results within rounding."""
    model = Tagger(kind, dtype=torch.double, device=device).eval()
    model.alias = layer = model.rnn
    calls = []
    hook = layer.register_forward_hook(lambda *args: calls.append(type(args[0])))
    names, parameters = list(model.state_dict()), list(model.parameters())
    optimiser = torch.optim.SGD(parameters, lr=0.1)
    x = torch.randn(3, 5, dtype=torch.double, device=device)
    expected = model(x)
    assert lltm_jit.convert(model) is model
    assert model.rnn is model.alias is layer
    assert not layer.training
    assert type(layer) is getattr(lltm_jit, kind)
    assert list(model.state_dict()) == names
    assert all(map(operator.is_, model.parameters(), parameters))
    torch.testing.assert_close(model(x), expected)
    assert calls == [getattr(nn, kind), getattr(lltm_jit, kind)]
    hook.remove()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    exported = torch.export.export(model, (x,)).module()
    for same in (copy.deepcopy(model), compiled, exported):
        torch.testing.assert_close(same(x), expected)

    model(x).square().sum().backward()
    optimiser.step()
    trained = model(x)
    assert not torch.allclose(trained, expected)
    assert lltm_jit.revert(model) is model
    assert model.rnn is layer
    assert type(layer) is getattr(nn, kind)
    assert all(map(operator.is_, model.parameters(), parameters))
    torch.testing.assert_close(model(x), trained)


@pytest.mark.filterwarnings("error:.*does not replace")
@pytest.mark.parametrize("kind", ALL_THEIRS)
def test_there_and_back_twice_leaves_no_trace(kind):
    theirs = ALL_THEIRS[kind](5, 7, 2, bidirectional=True)
    ours = lltm_jit.convert(lltm_jit.convert(copy.deepcopy(theirs)))
    same = lltm_jit.revert(lltm_jit.revert(ours))
    assert vars(same).keys() == vars(theirs).keys()
    assert same._flat_weights_names == theirs._flat_weights_names
    moved = pickle.loads(pickle.dumps(same)).double()
    x = torch.randn(4, 3, 5, dtype=torch.double)
    torch.testing.assert_close(tensors(moved(x)), tensors(theirs.double()(x)))


def test_revert_makes_torchs_layers_of_ours():
    ours = lltm_jit.LSTM(5, 7, 2, batch_first=True, checkpoint=2)
    x, saved = torch.randn(3, 4, 5), ours.state_dict()
    expected = ours(x)
    theirs, usual = lltm_jit.revert(ours), nn.LSTM(5, 7, 2, batch_first=True)
    assert (repr(theirs), vars(theirs).keys()) == (repr(usual), vars(usual).keys())
    torch.testing.assert_close(tensors(theirs(x)), tensors(expected))
    assert list(theirs.state_dict()) == list(saved)
    weights = [weight for layer in theirs.all_weights for weight in layer]
    assert [*map(id, weights)] == [*map(id, theirs.parameters())]


@pytest.mark.parametrize(
    "first", [pytest.param("import torch._dynamo", marks=pytest.mark.slow), "pass"]
)
def test_torchs_own_layers_are_compiled_as_before(first):
    """Not at all, unless the program says so; whichever is imported first."""
    program = (
        f"import torch\n{first}\nimport lltm_jit\n"
        "for module in (lltm_jit.LSTM(3, 4), torch.nn.LSTM(3, 4)):\n"
        "    run = torch.compile(module, fullgraph=True, backend='eager')\n"
        "    try: print(run(torch.ones(2, 1, 3))[0].shape[2])\n"
        "    except torch._dynamo.exc.Unsupported: print('unsupported')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["4", "unsupported"], done.stderr


class Plain(nn.LSTM):
    """A subclass that adds to a layer, and changes nothing of its call."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes, batch_first=True)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.ones_(self.bias_hh_l0)

    def last(self, x):
        return self(x)[1][0]


class PlainCell(nn.GRUCell): ...


@pytest.mark.filterwarnings("error:.*does not replace")
@pytest.mark.parametrize("kind", [Plain, PlainCell])
def test_plain_subclasses_are_converted(kind):
    """They stay instances of their class, can be copied and pickled, and come back."""
    layer = kind(5, 7)
    x = torch.randn(2, 5) if kind is PlainCell else torch.randn(2, 3, 5)
    expected = layer(x)
    assert lltm_jit.convert(lltm_jit.convert(layer)) is layer
    assert isinstance(layer, kind)
    assert isinstance(layer, getattr(lltm_jit, kind.__mro__[1].__name__))
    assert repr(layer) == repr(kind(5, 7))
    for same in (layer, copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert type(same) is type(layer)
        torch.testing.assert_close(same(x), expected)
    if kind is Plain:
        torch.testing.assert_close(layer.last(x), expected[1][0])
    assert type(layer)(5, 7)(x)[0].shape == expected[0].shape
    normed = parametrizations.weight_norm(copy.deepcopy(layer), next(iter(layer.state_dict())))
    torch.testing.assert_close(normed(x), expected)
    assert type(lltm_jit.revert(layer)) is kind
    torch.testing.assert_close(layer(x), expected)


def modules_of_ours() -> list[type[nn.Module]]:
    """All that a model may have, but for cells of one's own, which a file may not compile."""
    found = []
    for module in pkgutil.walk_packages(lltm_jit.ops.__path__, "lltm_jit.ops."):
        for name, value in vars(importlib.import_module(module.name)).items():
            own = isinstance(value, type) and value.__module__ == module.name
            bases = (OwnCell, *RecurrentLayer.__mro__)
            if own and issubclass(value, nn.Module) and name[0] != "_" and value not in bases:
                found.append(value)
    return found


def test_models_that_are_saved_whole_are_loaded_as_weights_only(tmp_path):
    """In a process that has imported this package, and in another one where it has used nothing."""
    kinds, arguments = modules_of_ours(), {"BiasAct": (3,), "FusedLeakyReLU": (3,)}
    assert len(kinds) > 12
    model = []
    for kind in kinds:
        signature = inspect.signature(kind.__init__).parameters
        sized = "hidden_size" in signature or issubclass(kind, nn.RNNBase)
        given = ([1, 3, 1],) if "f" in signature else (5, 7) if sized else ()
        model.append(kind(*arguments.get(kind.__name__, given)))
    torch.save(model, tmp_path / "model.pt")
    program = (
        "import sys, torch, lltm_jit\n"
        "assert not {'lltm_jit.ops.rnn.layers', 'lltm_jit.ops.stylegan'} & {*sys.modules}\n"
        "for module in torch.load(sys.argv[1], weights_only=True): print(type(module).__name__)\n"
    )
    call = [sys.executable, "-c", program, str(tmp_path / "model.pt")]
    done = subprocess.run(call, capture_output=True, text=True)
    assert done.stdout.split() == [kind.__name__ for kind in kinds], done.stderr
    again = torch.load(tmp_path / "model.pt", weights_only=True)
    assert [type(module) for module in again] == kinds
    for module, same in zip(model, again, strict=True):
        torch.testing.assert_close(module.state_dict(), same.state_dict())


class Mine(nn.LSTM):
    forward = nn.LSTM.__call__


class Checks(nn.GRU):
    check_input = nn.GRU.__call__


class Other(nn.RNNBase): ...


def replaced() -> nn.Module:
    layer = nn.LSTM(5, 7)
    layer.forward = lambda x: x
    return layer


def quantized(layer: nn.Module) -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(layer), {type(layer)})[0]


QUANTIZED = "it is quantized, or prepared for that"
LEFT = {
    "a subclass": (lambda: Mine(5, 7), r"its class \S*Mine has a forward\(\) of its own$"),
    "a check": (lambda: Checks(5, 7), r"its class \S*Checks has a check_input\(\) of its own$"),
    "a base": (lambda: Other("GRU", 5, 7), r"no layer of ours for its class \S*Other$"),
    "its forward": (replaced, r"its forward\(\) was replaced"),
    "parametrised": (
        lambda: parametrizations.weight_norm(nn.GRU(5, 7), "weight_hh_l0"),
        "convert it first, and parametrise it then",
    ),
    "a dtype": (lambda: nn.LSTM(5, 7, dtype=torch.complex64), "dtype is torch.complex64"),
    "quantized": (lambda: quantized(nn.LSTM(5, 7)), QUANTIZED),
    "a quantized cell": (lambda: quantized(nn.GRUCell(5, 7)), QUANTIZED),
    "scripted": (lambda: torch.jit.script(nn.LSTM(5, 7)), "compiled by TorchScript"),
}


@pytest.mark.filterwarnings("ignore:.*quantization", "ignore:.*torch.jit.script")
@pytest.mark.parametrize(("make", "reason"), LEFT.values(), ids=LEFT)
def test_what_is_left_is_named_with_the_reason(make, reason):
    model = nn.Sequential(nn.Linear(5, 5), make())
    kind = type(model[1])
    message = rf"^convert\(\) does not replace:\n  1 \({kind.__name__}\): .*{reason}"
    with pytest.warns(UserWarning, match=message) as found:
        lltm_jit.convert(model)
    assert found[0].filename == __file__
    assert type(model[1]) is kind


def test_revert_names_what_torch_has_no_layer_for():
    ours = (lltm_jit.LLTM(5, 8), lltm_jit.GRU(8, 8), lltm_jit.LSTM(8, 8, num_heads=2))
    expected = (
        r"^revert\(\) does not replace:\n  0 \(LLTM\): torch has no such layer\n"
        r"  2 \(LSTM\): torch has no layer with heads$"
    )
    with pytest.warns(UserWarning, match=expected):
        model = lltm_jit.revert(nn.Sequential(*ours))
    assert [type(each) for each in model] == [lltm_jit.LLTM, nn.GRU, lltm_jit.LSTM]


def normalised() -> nn.Module:
    """Its weight is made before each call by a hook."""
    model = Tagger("LSTM")
    weight_norm(model.rnn, "weight_hh_l0")
    return model


class WeightDrop(nn.Module):
    """As language models have it: each call makes the weight of what is trained, ``raw``."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(5, 7)
        self.raw = nn.Parameter(self.rnn.weight_hh_l0.detach())
        del self.rnn.weight_hh_l0
        self.rnn.weight_hh_l0 = self.raw.clone()
        self.at = self.rnn._flat_weights_names.index("weight_hh_l0")

    def forward(self, x):
        weight = nn.functional.dropout(self.raw, 0.5, self.training)
        self.rnn.weight_hh_l0 = weight
        self.rnn._flat_weights[self.at] = weight
        return self.rnn(x)[0]


class Shared(nn.Module):
    """A layer of two names and a weight of two layers, in containers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({"a": nn.GRU(5, 5), "b": nn.Sequential(nn.GRU(5, 5))})
        self.again = nn.ModuleList([self.layers["a"]])
        self.layers["b"][0].weight_hh_l0 = self.layers["a"].weight_hh_l0

    def forward(self, x):
        for layer in (self.layers["a"], self.layers["b"][0], self.again[0]):
            layer.flatten_parameters()
            x = layer(x)[0]
        return x


class Speech(nn.Module):
    """A layer, and a decoder of single cells."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.LSTM(4, 6, 2, bidirectional=True, proj_size=3, batch_first=True)
        self.cell = nn.LSTMCell(6, 6)

    def forward(self, x):
        state = None
        for step in self.encoder(x)[0].unbind(1):
            state = self.cell(step, state)
        return state[0]


MODELS = {normalised: (4, 3, 5), WeightDrop: (4, 3, 5), Shared: (4, 3, 5), Speech: (3, 9, 4)}


@pytest.mark.filterwarnings("error:.*does not replace", "ignore:.*weight_norm")
@pytest.mark.parametrize("make", MODELS)
def test_models_compute_and_train_as_before(make):
    found = []
    for change in (lltm_jit.convert, lambda m: lltm_jit.revert(lltm_jit.convert(m)), lambda m: m):
        torch.manual_seed(0)
        model = change(make().double())
        x = torch.randn(MODELS[make], dtype=torch.double)
        optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            model(x).square().sum().backward()
            optimiser.step()
        found.append({"output": model.eval()(x), **model.state_dict()})
    assert list(found[0]) == list(found[1]) == list(found[2])
    torch.testing.assert_close(found[:2], found[1:])


@pytest.mark.parametrize("kind", KINDS)
def test_weights_may_be_plain_tensors(kind):
    model = getattr(nn, kind)(5, 7)
    for name, weight in list(model.named_parameters()):
        delattr(model, name)
        setattr(model, name, weight.detach())
    x = torch.randn(3, 5)
    expected = model(x)
    assert type(lltm_jit.convert(model)) is getattr(lltm_jit, kind)
    torch.testing.assert_close(model(x), expected)


def test_a_model_must_be_a_module():
    with pytest.raises(TypeError, match=r"^convert\(\): expected model to be a .*, but got type$"):
        lltm_jit.convert(nn.LSTM)
