"""Fused operators for PyTorch that compile on import, and the build engine for your own kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lltm_jit import _start, functional, native  # _start first: it looks for torch
from lltm_jit.functional import d_sigmoid, lltm_cell, my_op, sigmoid
from lltm_jit.jit import BuildError, BuildInfo, CacheError, LltmJitError, ToolchainError
from lltm_jit.jit.reload import Reload
from lltm_jit.jit.torch_api import build, load, load_inline
from lltm_jit.native import PackageInfo, build_info, include_path, reload, watch
from lltm_jit.ops.basic.my_op import MyOp
from lltm_jit.ops.basic.sigmoid import Sigmoid
from lltm_jit.ops.rnn.layers import GRU, LLTM, LSTM
from lltm_jit.ops.rnn.lltm import LLTMCell
from lltm_jit.ops.rnn.own_cell import recurrent_cell

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

__version__ = "0.1.0"

__all__ = [
    "GRU",
    "LLTM",
    "LSTM",
    "BuildError",
    "BuildInfo",
    "CacheError",
    "LLTMCell",
    "LltmJitError",
    "MyOp",
    "PackageInfo",
    "Reload",
    "Sigmoid",
    "ToolchainError",
    "build",
    "build_info",
    "d_sigmoid",
    "functional",
    "include_path",
    "lltm_cell",
    "load",
    "load_inline",
    "load_ipython_extension",
    "my_op",
    "recurrent_cell",
    "reload",
    "sigmoid",
    "watch",
]


def load_ipython_extension(ipython: InteractiveShell) -> None:
    """Define the magics ``%lltm_reload``, ``%%cpp`` and ``%%cuda``, for ``%load_ext lltm_jit``.

    Args:
        ipython: the shell, which IPython passes.
    """
    from lltm_jit.jit import ipython as magics

    magics.register(ipython, reload)


if not _start.as_command:  # a command that needs the extension loads it itself
    native.start(*native.AT_IMPORT)
