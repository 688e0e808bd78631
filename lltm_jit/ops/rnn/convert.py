"""Converts the recurrent layers of a model from torch's to ours, and back."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from types import new_class
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize

from lltm_jit._library import DTYPES, refuse
from lltm_jit.ops.rnn import layers, single_cells
from lltm_jit.ops.rnn.recurrent_layer import RecurrentLayer

OURS: dict[type[nn.Module], type[nn.Module]] = {
    nn.LSTM: layers.LSTM,
    nn.GRU: layers.GRU,
    nn.RNN: layers.RNN,
    nn.LSTMCell: single_cells.LSTMCell,
    nn.GRUCell: single_cells.GRUCell,
    nn.RNNCell: single_cells.RNNCell,
}
THEIRS = {ours: theirs for theirs, ours in OURS.items()}
_subclasses: dict[type[nn.Module], type] = {}  # convert()'s subclasses, by the user's
# The methods that torch's forward() calls, and those that keep a layer's weights.
_METHODS = ["forward", "check_input", "check_hidden_size", "check_forward_args", "permute_hidden"]
_METHODS += ["get_expected_hidden_size", "get_expected_cell_size", "__setattr__", "_apply"]
_CACHE = ("_flat_weights", "_flat_weights_names", "_flat_weight_refs")  # RNNBase's cache of weights


def convert(model: nn.Module) -> nn.Module:
    """Replace torch's recurrent layers in a model by this package's.

    Each :class:`torch.nn.LSTM`, ``GRU`` and ``RNN`` in it, and each of their single cells, becomes
    one of ours. It stays the same object, with its parameters, hooks, name, mode, dtype and device,
    so that an optimiser or anything else that refers to it needs no update. It is still an instance
    of torch's class, or of your subclass, and is called as before. Its ``state_dict`` does not
    change. A model that is saved as a whole can be loaded where lltm_jit is imported first; for
    other machines save ``lltm_jit.revert(copy.deepcopy(model))``.

    A warning names each layer that stays torch's, with the reason: its ``forward`` is not torch's
    own, it is parametrised or quantized, or there are no kernels for its dtype or device.

    On a GPU the output of a layer with ``batch_first`` is a view, which ``output.detach_()``
    refuses: write ``output = output.detach()``. States may be detached in place.

    Args:
        model: the model, or a single layer. It is changed in place.

    Returns:
        ``model``.

    Raises:
        TypeError: if ``model`` is not a module.

    Example:
        >>> model = torch.nn.ModuleDict({"rnn": torch.nn.LSTM(3, 4, num_layers=2)})
        >>> lltm_jit.convert(model)
        ModuleDict(
          (rnn): LSTM(3, 4, num_layers=2)
        )
        >>> type(model["rnn"]) is lltm_jit.LSTM
        True
    """
    return _replaced("convert", model, _reason_to_keep_theirs, _make_ours)


def revert(model: nn.Module) -> nn.Module:
    """Put torch's recurrent layers back into a model: the opposite of :func:`convert`.

    It is for tools that know only torch's own layers, such as TorchScript and dynamic quantization.
    To keep the model as it is, revert a copy: ``lltm_jit.revert(copy.deepcopy(model))``.

    A warning names each layer that stays as it is because torch has no such layer:
    :class:`lltm_jit.LLTM`, :class:`lltm_jit.SLSTM`, cells of your own, and layers with heads.
    ``checkpoint=`` is lost.

    Args:
        model: as for :func:`convert`.

    Returns:
        ``model``, changed in place.

    Raises:
        TypeError: if ``model`` is not a module.

    Example:
        >>> lstm = lltm_jit.revert(lltm_jit.LSTM(3, 4))
        >>> type(lstm) is torch.nn.LSTM
        True
    """
    return _replaced("revert", model, _reason_to_keep_ours, _make_theirs)


def _replaced(
    function: str,
    model: nn.Module,
    reason_to_keep: Callable[[nn.Module], str | None],
    make: Callable[[nn.Module], None],
) -> nn.Module:
    if not isinstance(model, nn.Module):
        got = type(model).__name__
        refuse(function, "model to be a torch.nn.Module", got, TypeError)
    left = []
    for name, module in _recurrent(model):
        reason = reason_to_keep(module)
        if reason is None:
            make(module)
        elif reason:
            left.append(f"{name or 'the model'} ({type(module).__name__}): {reason}")
    if left:
        warnings.warn("\n  ".join([f"{function}() does not replace:", *left]), stacklevel=3)
    return model


def _recurrent(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The recurrent layers and cells of a model, each once, with their names."""
    kinds = (nn.RNNBase, nn.RNNCellBase)
    names = {kind.__name__ for kind in OURS}
    for name, module in model.named_modules():
        kind = getattr(module, "original_name", type(module).__name__)
        scripted = isinstance(module, torch.jit.ScriptModule)
        if isinstance(module, kinds) or ((scripted or _quantized(module)) and kind in names):
            yield name, module


def _quantized(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torch.ao.nn.")


def _reason_to_keep_theirs(module: nn.Module) -> str | None:
    """Why a module cannot become ours; None if it can, empty if it is ours already."""
    kind = type(module)
    if isinstance(module, (RecurrentLayer, *THEIRS)):
        return ""
    if _quantized(module):
        return "it is quantized, or prepared for that"
    if isinstance(module, torch.jit.ScriptModule):
        return "it is compiled by TorchScript"
    if parametrize.is_parametrized(module):
        return "it is parametrised: convert it first, and parametrise it then"
    theirs = _torchs(kind)
    if theirs is None:
        return f"there is no layer of ours for its class {kind.__module__}.{kind.__qualname__}"
    for name in _METHODS:
        if getattr(kind, name, None) is not getattr(theirs, name, None):
            return f"its class {kind.__module__}.{kind.__qualname__} has a {name}() of its own"
    if "forward" in vars(module):
        return "its forward() was replaced"
    # A weight that is not trained may be a plain tensor.
    weight = module.weight_ih_l0 if isinstance(module, nn.RNNBase) else module.weight_ih
    if weight.dtype not in DTYPES:
        return f"its dtype is {weight.dtype}"
    if weight.device.type not in ("cpu", "cuda", "meta"):
        return f"there are no kernels for its device, {weight.device}"
    return None


def _reason_to_keep_ours(module: nn.Module) -> str | None:
    """Why a module cannot become torch's; None if it can, empty if it is torch's already."""
    if _theirs(type(module)):
        return None if getattr(module, "num_heads", 1) == 1 else "torch has no layer with heads"
    if _theirs(parametrize.type_before_parametrizations(module)):
        return "it is parametrised: revert it first, and parametrise it then"
    return "torch has no such layer" if isinstance(module, RecurrentLayer) else ""


def _make_ours(module: nn.Module) -> None:
    for name in _CACHE:
        vars(module).pop(name, None)
    module.__class__ = _ours(type(module))
    if isinstance(module, RecurrentLayer):
        _ = module.cell  # a trace may follow, and cannot wait for a library


def _make_theirs(module: nn.Module) -> None:
    module.__class__ = _theirs(type(module))
    for name in ("checkpoint", "num_heads"):
        vars(module).pop(name, None)
    if isinstance(module, nn.RNNBase):
        module._flat_weights_names = [name for names in module._all_weights for name in names]
        module._init_flat_weights()


def _torchs(kind: type[nn.Module]) -> type[nn.Module] | None:
    """The class of torch that this is, or derives from, if we have a class for it."""
    return next((each for each in kind.__mro__ if each in OURS), None)


def _ours(kind: type[nn.Module]) -> Any:
    """Our class for one of torch's; for a user's subclass, a class of both it and ours."""
    theirs = _torchs(kind)
    assert theirs is not None
    if kind is theirs:
        return OURS[kind]
    if kind not in _subclasses:
        body: dict[str, Any] = {"__module__": kind.__module__, "__doc__": kind.__doc__}
        body |= {"_subclass": kind, "__reduce_ex__": _reduced}
        bases = (kind, OURS[theirs])
        _subclasses[kind] = new_class(kind.__name__, bases, exec_body=lambda own: own.update(body))
    return _subclasses[kind]


def _theirs(kind: type[nn.Module]) -> Any:
    """The class from which :func:`_ours` has made a class; None if it has not made it."""
    return THEIRS.get(kind) or vars(kind).get("_subclass")


def _reduced(module: nn.Module, protocol: int) -> tuple[Any, ...]:
    """What pickle keeps of a layer whose class :func:`_ours` has made."""
    usual, theirs = object.__reduce_ex__(module, max(protocol, 2)), _theirs(type(module))
    return usual if theirs is None else (_empty, (theirs,), *usual[2:])  # type: ignore[return-value]


def _empty(kind: type[nn.Module]) -> nn.Module:
    made = _ours(kind)
    return made.__new__(made)
