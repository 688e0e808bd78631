"""Kernels of recurrent layers, compiled before a layer is called."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lltm_jit import native
from lltm_jit._library import DTYPES, refuse, refuse_wrong_size
from lltm_jit.jit import Build, ToolchainError
from lltm_jit.jit.machine import gpus, toolchain
from lltm_jit.ops.rnn.recurrent_layer.inputs import name_of
from lltm_jit.ops.rnn.recurrent_layer.torch_layer import TorchLayer
from lltm_jit.ops.rnn.sequence import ALIGNED, needs_padding

_KILOBYTES = 1024
_MANY_STEPS = 1024  # layers run side by side at this length if they do at any
_LENGTHS = (_MANY_STEPS, 1)  # numbers of steps whose kernels may differ
# The facts that decide how a sequence runs on a GPU: architecture, bytes of shared memory that a
# block may ask for, SMs, whether all blocks may wait for each other, and its occupancy: how many
# clusters of 2, 4, 8 and 16 blocks run at once. The list has the GPUs for which this is known; GPUs
# before 9.0 have no clusters.
GPUS = {
    "H100": (90, 227 * _KILOBYTES, 132, True, 66, 30, 15, 7),
    "H200": (90, 227 * _KILOBYTES, 132, True, 66, 30, 15, 7),
    "A100": (80, 163 * _KILOBYTES, 108, True, 0, 0, 0, 0),
    "L4": (89, 99 * _KILOBYTES, 58, True, 0, 0, 0, 0),
    "L40S": (89, 99 * _KILOBYTES, 142, True, 0, 0, 0, 0),
    "T4": (75, 64 * _KILOBYTES, 40, True, 0, 0, 0, 0),
    "RTX 3090": (86, 99 * _KILOBYTES, 82, True, 0, 0, 0, 0),
    "RTX 4090": (89, 99 * _KILOBYTES, 128, True, 0, 0, 0, 0),
}


@dataclass(frozen=True)
class Calls:
    """The facts that decide which kernels the calls of a layer need."""

    cell: str
    hidden_size: int
    batch_size: int
    dtype: torch.dtype
    training: bool  # whether there are backward passes
    lengths: bool  # whether calls are given lengths or resets
    directions: int = 1
    num_heads: int = 1
    num_layers: int = 1  # layers of one direction may run side by side


def warm(name: str, calls: Calls, gpu: tuple[int, ...] | None = None) -> list[Build]:
    """Compile the kernels that calls need, all at the same time, and load them.

    Args:
        name: the caller, in messages.
        calls: the calls to compile for.
        gpu: as in :data:`GPUS`; by default the current one.

    Returns:
        The builds of the kernels, in the order in which calls need them.

    Raises:
        TypeError, ValueError: no call may have this batch size or dtype.
        ToolchainError: there is no GPU, or neither NVRTC nor nvcc for it.
        BuildError, CacheError: as :func:`lltm_jit.load`.
    """
    from lltm_jit.jit import variants  # an import does not need it

    refuse_wrong_size(name, "batch_size", calls.batch_size)
    refuse_wrong_size(name, "hidden_size", calls.hidden_size)
    if calls.dtype not in DTYPES:
        known = ", ".join(map(str, DTYPES))
        refuse(name, f"dtype to be one of {known}", repr(calls.dtype), ValueError)
    refuse_no_cuda(name, gpu)
    if native.load("rnn").info.cuda_version is None:
        missing = toolchain.detect().cuda_missing
        raise ToolchainError(f"{name}(): expected CUDA kernels, but the build has none: {missing}")
    described = native.rnn.sequence_gpu() if gpu is None else gpu
    if not calls.batch_size or not calls.hidden_size:
        return []
    dtype = str(calls.dtype).removeprefix("torch.")
    if calls.dtype is torch.float and torch.backends.cudnn.rnn.fp32_precision == "tf32":
        dtype = "tf32"
    units = calls.hidden_size // calls.num_heads
    sizes = (calls.batch_size, units, calls.directions, calls.num_heads)
    one = calls.directions == calls.num_heads == 1
    padded = needs_padding(units, calls.dtype) and (one or units % ALIGNED > 0)
    uses = (calls.training, calls.lengths)
    asked = []
    lengths = [(steps, padded and steps > 1) for steps in _LENGTHS]
    if padded and calls.directions > 1:
        lengths.append((1, True))  # if the weights are small
    for steps, pads in lengths:
        found = native.rnn.planned_variants(
            calls.cell, dtype, steps, *sizes, pads, *uses, described
        )
        asked += [each for each in found if each not in asked]
    if calls.num_layers > 1 and one and not (padded or calls.lengths):
        stack = (_MANY_STEPS, calls.batch_size, units, calls.num_layers)
        if native.rnn.layers_part(calls.cell, dtype, *stack, calls.training, described):
            several = (*stack[:3], calls.num_layers, 1, False)
            asked += native.rnn.planned_variants(calls.cell, dtype, *several, *uses, described)
    wanted = [replace(variants.declared(each), note="compiled ahead of calls") for each in asked]
    compiled = variants.architectures(wanted[0])
    if compiled and not gpus.runs_any(compiled, divmod(described[0], 10)):
        raise ToolchainError(
            f"{name}(): expected architectures that run on compute capability "
            f"{described[0] / 10}, but TORCH_CUDA_ARCH_LIST asks for {';'.join(compiled)}"
        )
    return variants.builds_of(wanted)


def refuse_no_cuda(name: str, gpu: tuple[int, ...] | None) -> None:
    """Refuse to compile without CUDA, before anything is built.

    Raises:
        ToolchainError: torch is built without CUDA; or it sees no GPU, and none is given.
    """
    if torch.version.cuda is None:
        raise ToolchainError(f"{name}(): expected a torch with CUDA, but got {torch.__version__}")
    if gpu is None and not torch.cuda.is_available():
        raise ToolchainError(
            f"{name}(): expected a GPU, but torch sees none; `python -m lltm_jit warm --gpu` "
            "compiles for a GPU of another machine"
        )


class Warmed(TorchLayer):
    """The part of a layer that compiles its kernels before it is called."""

    weight_ih_l0: Tensor

    def warm(
        self,
        batch_size: int,
        *,
        dtype: torch.dtype | None = None,
        training: bool = True,
        lengths: bool = False,
    ) -> None:
        """Compile the kernels that calls need on the GPU, so that no call waits for a compiler.

        On a GPU, the first call compiles kernels for its batch size, hidden size and dtype. Calls
        of few steps may need other kernels, which this compiles, too. All of them stay in the
        cache: another process only loads them. ``python -m lltm_jit warm`` does this without a
        layer, and for a GPU of another machine.

        Args:
            batch_size: B. A batch of another size may need other kernels.
            dtype: the dtype of the calls, such as bfloat16 under autocast; by default the layer's.
            training: whether there are backward passes.
            lengths: whether calls are given ``lengths`` or ``reset``. (With ``reset_to``, or
                ``return_states``, the first call compiles more.)

        Raises:
            TypeError, ValueError: if no call may have this ``batch_size`` or ``dtype``.
            ToolchainError: if there is no GPU, or no compiler for it.
            BuildError, CacheError: as :func:`lltm_jit.load`.

        Example:
            Compile before the first batch of a job. (Before you capture a CUDA graph, call the
            layer itself once: a call sets up more than kernels.) ::

                lstm = lltm_jit.LSTM(64, 512, device="cuda", dtype=torch.half)
                lstm.warm(64)
        """
        weight = self.weight_ih_l0
        sizes, recurrences = (self.hidden_size, batch_size), (self._directions, self.num_heads)
        uses = (dtype or weight.dtype, training, lengths)
        with torch.cuda.device_of(weight):
            calls = Calls(self.cell.name, *sizes, *uses, *recurrences, self.num_layers)
            warm(f"{name_of(self)}.warm", calls)
