"""What a program sees of the types: mypy and pyright read it in test_prebuilt.py. It never runs."""

from contextlib import AbstractContextManager
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence
from typing_extensions import assert_type

import lltm_jit
from lltm_jit.ops import (
    bias_act,
    conv2d_gradfix,
    conv2d_resample,
    filtered_lrelu,
    fma,
    grid_sample,
    upfirdn2d,
)
from lltm_jit.ops.stylegan2 import FusedLeakyReLU, fused_leaky_relu

assert_type(lltm_jit.__version__, str)


def operators(x: Tensor) -> None:
    assert_type(lltm_jit.my_op(x, x), Tensor)
    assert_type(lltm_jit.sigmoid(x), Tensor)
    assert_type(lltm_jit.functional.d_sigmoid(x), Tensor)
    assert_type(lltm_jit.lltm_cell(x, x, None, x, x), tuple[Tensor, Tensor])
    assert_type(lltm_jit.MyOp()(x, x), Tensor)
    assert_type(lltm_jit.Sigmoid()(x), Tensor)


def layers(x: Tensor, packed: PackedSequence) -> Tensor:
    output, (h, c) = lltm_jit.LLTM(input_size=32, hidden_size=128)(x, lengths=[50, 31])
    assert_type(h, Tensor)
    assert_type(lltm_jit.LSTM(3, 4, dtype=torch.half)(x, (h, c))[1], tuple[Tensor, Tensor])
    assert_type(lltm_jit.LSTM(3, 4)(packed)[0], PackedSequence)
    assert_type(lltm_jit.LSTM(3, 4)(x, hx=(h, c))[0], Tensor)
    assert_type(lltm_jit.GRU(3, 4)(x, reset=x), tuple[Tensor, Tensor])
    _, last, states = lltm_jit.LSTM(3, 4)(x, reset=x, reset_to=(h, c), return_states=True)
    assert_type(last, tuple[Tensor, Tensor])
    assert_type(states, tuple[Tensor, Tensor])
    cell = lltm_jit.LLTMCell(3, 4)
    assert_type(cell(x, (h, c)), tuple[Tensor, Tensor])
    assert_type(cell.weights, torch.nn.Parameter)
    assert_type(lltm_jit.convert(lltm_jit.revert(cell)), torch.nn.Module)
    return output.square().mean()


def a_cell_of_ones_own(x: Tensor) -> Tensor:
    minimal = lltm_jit.recurrent_cell("my_cell.h", "MinimalCell")
    minimal.check()
    output, state = minimal(input_size=32, hidden_size=128)(x)
    assert_type(state, Tensor | tuple[Tensor, ...])
    return output.sum()


def kernels_of_ones_own(x: Tensor) -> Tensor:
    module: ModuleType = lltm_jit.load("mine", "kernels/", extra_cflags=["-O3"])
    lltm_jit.load_inline("two", "int f();", functions=["f"])
    path: str = lltm_jit.load("lib", Path("lib.cpp"), is_python_module=False)
    assert path
    assert_type(lltm_jit.build("mine", "kernels/", with_cuda=False), lltm_jit.BuildInfo)
    assert_type(lltm_jit.build([{"name": "mine", "sources": "x.cpp"}]), list[lltm_jit.BuildInfo])
    assert_type(lltm_jit.reload(module), ModuleType)
    assert_type(lltm_jit.reload(), lltm_jit.Reload)
    assert_type(lltm_jit.reload().seconds, float)
    assert_type(lltm_jit.build_info(module).directory, Path)
    assert_type(lltm_jit.build_info(), lltm_jit.PackageInfo)
    assert_type(lltm_jit.watch(module), AbstractContextManager[None])
    assert_type(lltm_jit.include_path(), Path)
    result: Tensor = module.blend(x)
    return result


def operators_of_stylegan(x: Tensor) -> None:
    lltm_jit.ops.install("op")
    conv2d_gradfix.enabled = True
    with conv2d_gradfix.no_weight_gradients():
        assert_type(conv2d_gradfix.conv2d(x, x, stride=(2, 1)), Tensor)
    f = upfirdn2d.setup_filter([1, 3, 3, 1])
    assert_type(f, Tensor)
    assert_type(upfirdn2d.upsample2d(x, f), Tensor)
    assert_type(upfirdn2d.setup_filter([[1, 2], [3, 4]], "cuda"), Tensor)
    assert_type(bias_act.bias_act(x, x, act="lrelu", clamp=256), Tensor)
    assert_type(filtered_lrelu.filtered_lrelu(x, f, f, up=2, padding=3), Tensor)
    assert_type(conv2d_resample.conv2d_resample(x, x, f, up=2), Tensor)
    assert_type(fma.fma(x, x, x), Tensor)
    assert_type(grid_sample.grid_sample(x, x), Tensor)
    assert_type(fused_leaky_relu(x), Tensor)
    assert_type(FusedLeakyReLU(3)(x), Tensor)
