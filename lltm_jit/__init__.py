"""Fused operators for PyTorch that compile on import, and the build engine for your own kernels."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lltm_jit import _start  # first: it looks for torch

if os.name != "nt":
    from lltm_jit import native, ops
    from lltm_jit._library import when_imported
    from lltm_jit._placeholders import let_load
    from lltm_jit.jit import (
        BuildError,
        BuildInfo,
        BuildTimeout,
        CacheError,
        LltmJitError,
        ToolchainError,
    )
    from lltm_jit.native import include_path
    from lltm_jit.ops import basic as _basic
    from lltm_jit.ops.basic import *  # noqa: F403
    from lltm_jit.ops.rnn import sequence as _sequence  # noqa: F401  # defines its operators
    from lltm_jit.ops.rnn.lltm import LLTMCell, lltm_cell

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from lltm_jit import functional
    from lltm_jit._package import PackageInfo, build_info, reload, watch
    from lltm_jit._torch_tools import decompositions
    from lltm_jit._version import __version__ as __version__
    from lltm_jit.jit.kernel import Kernel, kernel
    from lltm_jit.jit.loading.reload import Reload
    from lltm_jit.jit.torch_api import build, load, load_inline
    from lltm_jit.ops.rnn.convert import convert, revert
    from lltm_jit.ops.rnn.layer_norm import LayerNormGRU, LayerNormLSTM
    from lltm_jit.ops.rnn.layers import GRU, LLTM, LSTM, RNN, SLSTM
    from lltm_jit.ops.rnn.own_cell import recurrent_cell
    from lltm_jit.ops.rnn.single_cells import GRUCell, LSTMCell, RNNCell

__all__ = [
    "GRU",
    "LLTM",
    "LSTM",
    "RNN",
    "SLSTM",
    "BuildError",
    "BuildInfo",
    "BuildTimeout",
    "CacheError",
    "GRUCell",
    "Kernel",
    "LLTMCell",
    "LSTMCell",
    "LayerNormGRU",
    "LayerNormLSTM",
    "LltmJitError",
    "PackageInfo",
    "RNNCell",
    "Reload",
    "ToolchainError",
    "build",
    "build_info",
    "convert",
    "decompositions",
    "functional",
    "include_path",
    "kernel",
    "lltm_cell",
    "load",
    "load_inline",
    "load_ipython_extension",
    "ops",
    "recurrent_cell",
    "reload",
    "revert",
    "watch",
]
if os.name != "nt":
    __all__ += _basic.__all__

# Imported at their first use, because most programs need only a few of them.
_LATER = {
    "lltm_jit._version": ("__version__",),
    "lltm_jit._package": ("PackageInfo", "build_info", "reload", "watch"),
    "lltm_jit.jit.kernel": ("Kernel", "kernel"),
    "lltm_jit.jit.loading.reload": ("Reload",),
    "lltm_jit.jit.torch_api": ("build", "load", "load_inline"),
    "lltm_jit._torch_tools": ("decompositions",),
    "lltm_jit.ops.rnn.convert": ("convert", "revert"),
    "lltm_jit.ops.rnn.layer_norm": ("LayerNormGRU", "LayerNormLSTM"),
    "lltm_jit.ops.rnn.layers": ("GRU", "LLTM", "LSTM", "RNN", "SLSTM"),
    "lltm_jit.ops.rnn.own_cell": ("recurrent_cell",),
    "lltm_jit.ops.rnn.single_cells": ("GRUCell", "LSTMCell", "RNNCell"),
}

# The modules of models, which torch.load() may make from a file.
_MODULES = {
    "lltm_jit.ops.basic": ("MyOp", "Sigmoid"),
    "lltm_jit.ops.rnn.layer_norm": _LATER["lltm_jit.ops.rnn.layer_norm"],
    "lltm_jit.ops.rnn.layers": _LATER["lltm_jit.ops.rnn.layers"],
    "lltm_jit.ops.rnn.lltm": ("LLTMCell",),
    "lltm_jit.ops.rnn.single_cells": _LATER["lltm_jit.ops.rnn.single_cells"],
    "lltm_jit.ops.stylegan.bias_act": ("BiasAct",),
    "lltm_jit.ops.stylegan.resample_modules": ("Downsample2d", "Filter2d", "Upsample2d"),
    "lltm_jit.ops.stylegan.stylegan2": ("FusedLeakyReLU",),
}
if not TYPE_CHECKING:  # else type checkers would accept any name

    def __getattr__(name: str) -> Any:
        if name == "functional":
            return import_module("lltm_jit.functional")
        for module, names in _LATER.items():
            if name in names:
                globals()[name] = getattr(import_module(module), name)
                return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


def load_ipython_extension(ipython: InteractiveShell) -> None:
    """Define the magics ``%lltm_reload``, ``%%cpp`` and ``%%cuda``, for ``%load_ext lltm_jit``.

    Args:
        ipython: the shell, which IPython passes.
    """
    from lltm_jit._package import reload
    from lltm_jit.jit import ipython as magics

    magics.register(ipython, reload)


if os.name == "nt":
    from lltm_jit import _windows

    _windows.stand_in(globals())
else:
    for _module, _names in _MODULES.items():
        let_load(_module, _names)
    when_imported(
        "torch.utils.flop_counter",
        lambda counter: import_module("lltm_jit._torch_tools").count_flops(counter),
    )
    # A command loads a family when it first uses it.
    native.start(*(() if _start.as_command else native.AT_IMPORT))
