"""``warm``: compile ahead of time what a recurrent layer needs on a GPU.

A job whose kernels are in the cache needs no compiler. The GPU may be another machine's.

examples:
  python -m lltm_jit warm --layer LSTM --hidden 512 --batch 64 --dtype half
  python -m lltm_jit warm --layer GRU --hidden 256 --batch 32 --dtype bfloat16 --inference
  python -m lltm_jit warm --layer LSTM --hidden 512 --batch 64 --gpu H200
                                   on a machine without a GPU, such as while an image is built
  python -m lltm_jit warm --layer LSTM --hidden 768 --batch 16 --num-heads 12 --bidirectional
  python -m lltm_jit warm --layer peephole.h:PeepholeCell --hidden 128 --batch 16
"""

import argparse
import os

import torch

from lltm_jit.jit import LltmJitError
from lltm_jit.jit.loading.build import in_columns
from lltm_jit.jit.machine import gpus
from lltm_jit.jit.user import settings
from lltm_jit.ops.rnn import layers, own_cell
from lltm_jit.ops.rnn.recurrent_layer import warm

from .lltm import DTYPES, positive

LAYERS = {name.upper(): name for name in layers.LAYERS}  # the names of their cells


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    about = f"{', '.join(LAYERS)}, or HEADER:TYPE for a cell of your own"
    add("--layer", required=True, metavar="LAYER", help=about)
    add("--hidden", required=True, type=positive, metavar="N", help="hidden units")
    add("--batch", required=True, type=positive, metavar="N", help="batch size")
    about = "number of heads (default: 1)"
    add("--num-heads", type=positive, default=1, metavar="N", help=about)
    add("--bidirectional", action="store_true", help="for a bidirectional layer")
    about = "dtype of the calls, such as bfloat16 under autocast (default: float)"
    add("--dtype", choices=DTYPES, default="float", help=about)
    about = "for floats that are not rounded to TF32: torch.backends.cudnn.allow_tf32 = False"
    add("--exact", action="store_true", help=about)
    add("--inference", action="store_true", help="for calls without backward passes")
    add("--lengths", action="store_true", help="for calls with lengths or reset")
    about = f"{', '.join(warm.GPUS)} (default: the GPU of this machine)"
    add("--gpu", choices=warm.GPUS, metavar="GPU", help=about)


def run(args: argparse.Namespace) -> int:
    if args.hidden % args.num_heads:
        told = f"to divide --hidden {args.hidden}, but got {args.num_heads}"
        raise LltmJitError(f"expected --num-heads {told}")
    gpu = warm.GPUS[args.gpu] if args.gpu else None
    warm.refuse_no_cuda("warm", gpu)  # before a cell of the user's is compiled
    if gpu and not settings.text("TORCH_CUDA_ARCH_LIST"):  # as a machine with this GPU builds
        os.environ["TORCH_CUDA_ARCH_LIST"] = gpus.architecture(divmod(gpu[0], 10))
    if args.exact:
        torch.backends.cudnn.allow_tf32 = False
    header, colon, name = args.layer.partition(":")
    if args.layer not in LAYERS and not (colon and name):
        known = f"{', '.join(LAYERS)}, or HEADER:TYPE"
        raise LltmJitError(f"expected --layer to be {known}, but got {args.layer!r}")
    cell = LAYERS.get(args.layer) or own_cell.recurrent_cell(header, name).cell.name
    sizes = (cell, args.hidden, args.batch, DTYPES[args.dtype])
    uses = (not args.inference, args.lengths, 1 + args.bidirectional, args.num_heads)
    builds = warm.warm("warm", warm.Calls(*sizes, *uses), gpu)
    print(in_columns([(build.spec.title, str(build.info.library)) for build in builds]))
    return 0
