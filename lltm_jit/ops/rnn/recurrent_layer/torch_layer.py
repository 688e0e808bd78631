"""What a recurrent layer has in common with torch's: arguments, parameters, attributes, tracing.

Sizes: I is the input size, H the hidden size, D the number of directions, G the gates of the cell,
P its parameters per hidden unit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import FunctionType, ModuleType
from typing import Any, ClassVar, NoReturn, TypeVar

import torch
from torch import Tensor, nn
from torch.fx import Proxy

from lltm_jit._library import when_imported
from lltm_jit.ops.rnn.recurrent_layer.inputs import name_of, refuse_wrong_arguments
from lltm_jit.ops.rnn.recurrent_layer.types import Cell

Module = TypeVar("Module", bound=nn.Module)


class TorchLayer(nn.RNNBase):
    """The part of a layer that code for torch's layers sees. It has no cache of its weights."""

    cell: ClassVar[Cell]
    projects: ClassVar[bool] = False  # whether it takes a proj_size
    output_may_change: ClassVar[bool] = False  # in place, as with torch's layer on a CPU
    # Defaults for converted layers: torch's objects do not have these attributes.
    checkpoint: int = 0
    num_heads: int = 1

    # Not the methods of torch's layers, which maintain a cache of weights.
    __setattr__ = nn.Module.__setattr__
    _apply = nn.Module._apply
    _replicate_for_data_parallel = nn.Module._replicate_for_data_parallel

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: torch.device | str | int | None = None,
        dtype: torch.dtype | None = None,
        *,
        checkpoint: int = 0,
        num_heads: int = 1,
    ) -> None:
        nn.Module.__init__(self)
        name = type(self).__name__
        sizes = {"input_size": input_size, "hidden_size": hidden_size, "checkpoint": checkpoint}
        sizes["proj_size"] = proj_size
        flags = {"bias": bias, "batch_first": batch_first}
        refuse_wrong_arguments(name, sizes, flags, num_layers, num_heads, dropout, self.projects)
        self.mode = self.cell.name.upper()
        self.input_size = input_size
        self.hidden_size = hidden_size
        self.num_layers = num_layers
        self.bias = bias
        self.batch_first = batch_first
        self.dropout = float(dropout)
        self.bidirectional = bidirectional
        self.proj_size = proj_size
        self.checkpoint = checkpoint
        self.num_heads = num_heads
        self._all_weights: list[list[str]] = []  # RNNBase.all_weights reads these names
        for suffix in (s for k in range(num_layers) for s in self._suffixes(k)):
            shapes = self._shapes(suffix)
            self._all_weights.append([*shapes])
            for weight, shape in shapes.items():
                parameter = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
                self.register_parameter(weight, parameter)
        self.reset_parameters()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__.copy()

    def __setstate__(self, state: dict[str, Any]) -> None:
        nn.Module.__setstate__(self, state)
        _ = self.cell  # an unpickled layer may be traced next, which cannot wait for a build

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def _output_size(self) -> int:
        """The features of one direction's output."""
        return self.proj_size or self.hidden_size

    def _shapes(self, *suffixes: str) -> dict[str, tuple[int, ...]]:
        """The shapes of the parameters with these suffixes, in torch's order."""
        units, gates = self.hidden_size // self.num_heads, self.cell.gates
        rows = (gates * self.hidden_size,)
        found: dict[str, tuple[int, ...]] = {}
        for suffix in suffixes:
            first = suffix in self._suffixes(0)
            inputs = self.input_size if first else self._output_size * self._directions
            hidden = (gates * units, self.proj_size or units)
            shapes: dict[str, tuple[int, ...]] = {"weight_ih": (*rows, inputs)}
            if self.cell.product:
                heads = (self.num_heads,) if self.num_heads > 1 else ()
                shapes["weight_hh"] = (*heads, *hidden)
            if self.bias:
                shapes["bias_ih"] = rows
                if self.cell.hidden_bias:
                    shapes["bias_hh"] = rows
            if self.proj_size:
                shapes["weight_hr"] = (self.proj_size, self.hidden_size)
            if self.cell.parameters:
                shapes["parameters"] = (self.cell.parameters, self.hidden_size)
            found |= {f"{kind}_{suffix}": shape for kind, shape in shapes.items()}
        return found

    def _suffixes(self, layer: int) -> list[str]:
        """How the names of a layer's parameters end, in the order of states."""
        return [f"l{layer}", f"l{layer}_reverse"][: self._directions]

    def flatten_parameters(self) -> None:
        """Do nothing: code for torch.nn.LSTM calls this, but no contiguous storage is needed."""

    _init_flat_weights = _update_flat_weights = flatten_parameters

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> _FlatWeights:
        """The weights that torch's layers compute with; weight dropout puts others there."""
        return _FlatWeights(self, self._flat_weights_names)

    @_flat_weights.setter
    def _flat_weights(self, weights: list[Tensor]) -> None:
        self._flat_weights[:] = weights

    def _returned(self, output: Tensor, recorded: bool = False) -> Tensor:
        """The output as a call returns it: a copy where a backward pass needs what may change."""
        if recorded or not (self.output_may_change and output.is_cpu and output.requires_grad):
            return output
        return output.clone()

    def extra_repr(self) -> str:
        """The arguments that differ from their defaults, as torch.nn.LSTM shows them."""
        words = [("checkpoint", self.checkpoint, 0), ("num_heads", self.num_heads, 1)]
        others = [f", {name}={value}" for name, value, usual in words if value != usual]
        return super().extra_repr() + "".join(others)

    def __prepare_scriptable__(self) -> NoReturn:
        """Refuse torch.jit.script, which calls this.

        Raises:
            NotImplementedError: always, with what to do instead.
        """
        refuse_script(self)


def _let_compile(builder: ModuleType) -> None:
    """Let torch.compile trace our layers, although they derive from torch's recurrent layers.

    It refuses torch's layers, because it would unroll them step by step. Ours call operators of
    this package. ``torch._dynamo.config.allow_rnn`` is for both kinds, so it is set only while
    torch.compile looks at one of ours.
    """
    look: Callable[..., Any] | None = getattr(builder.VariableBuilder, "wrap_module", None)
    if look is None:  # another torch: what calls a layer runs uncompiled
        return

    @wraps(look)
    def wrap_module(self: Any, value: nn.Module) -> Any:
        if not isinstance(value, TorchLayer):
            return look(self, value)
        with builder.config.patch(allow_rnn=True):
            return look(self, value)

    builder.VariableBuilder.wrap_module = wrap_module


when_imported("torch._dynamo.variables.builder", _let_compile)


class _FlatWeights(list[Tensor]):
    """The weights of a layer. A tensor that is put here replaces a parameter in calls."""

    def __init__(self, layer: TorchLayer, names: list[str]) -> None:
        super().__init__(getattr(layer, name) for name in names)
        self.layer, self.names = layer, names

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(index, value)
        for name, weight in zip(self.names, self, strict=True):
            self.layer.__dict__.pop(name, None)
            if weight is not getattr(self.layer, name, None):
                self.layer.__dict__[name] = weight


def named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A copy of a function with another name in Python's messages."""
    parts = (function.__code__, function.__globals__, function.__name__)
    copy = FunctionType(*parts, function.__defaults__, function.__closure__)
    for each in ("__kwdefaults__", "__doc__", "__module__", "__annotations__"):
        setattr(copy, each, getattr(function, each))
    copy.__qualname__ = name
    return copy


def under_own_name(module: type[Module]) -> type[Module]:
    """Give the inherited ``__init__`` and ``forward`` of a class names of its own in messages."""
    for each in ("__init__", "forward"):
        if each not in vars(module):
            name = f"{module.__name__}.{each}"
            setattr(module, each, named(name, getattr(module, each)))
    return module


def refuse_script(module: nn.Module) -> NoReturn:
    """Say what to do instead of torch.jit.script."""
    raise NotImplementedError(
        f"{name_of(module)}(): torch.jit.script cannot compile it; use torch.export or "
        "torch.jit.trace, or script a model with torch's own layers, "
        "lltm_jit.revert(copy.deepcopy(model))"
    )


def traced(module: nn.Module, input: Proxy, *args: object, **named: object) -> Proxy:
    """A call in a graph of torch.fx, which does not look into modules of torch.nn, or into ours."""
    tracer = input.tracer
    kept = {name: value for name, value in named.items() if value is not None}
    path = tracer.path_of_module(module)
    return tracer.create_proxy("call_module", path, (input, *args), kept)
