"""Sizes and GPUs for the plan of whole sequences, and the shapes that were found quickest."""

from typing import Any

from sequence_testing import cell_of

from lltm_jit.ops.rnn.recurrent_layer import warm

# Architecture, bytes of shared memory that a block may ask for, SMs, and how many clusters of 2, 4,
# 8 and 16 blocks run at once.
GPUS = {name: (*facts[:3], facts[4:]) for name, facts in warm.GPUS.items()}
GPUS |= {  # whose clusters nobody has counted
    "B200": (100, 227 * 1024, 148, (74, 37, 18, 9)),
    "RTX 5090": (120, 99 * 1024, 170, (85, 42, 21, 0)),
}

# The quickest of the shapes that were timed on an H200, and others within 4 %.
QUICKEST = [
    ("half", "lltm", "forward", 16, 128, [(1, 8, 1, 4, 1, 0)]),
    ("half", "lltm", "forward", 16, 256,
     [(8, 2, 4, 4, 1, 0), (16, 1, 4, 4, 1, 0), (16, 1, 3, 4, 1, 0)]),
    ("half", "lltm", "forward", 16, 512, [(16, 2, 4, 4, 1, 0), (16, 2, 2, 4, 1, 0)]),
    ("half", "lltm", "forward", 16, 768, [(16, 3, 4, 4, 1, 3)]),
    ("half", "lltm", "forward", 64, 512, [(8, 4, 2, 8, 1, 0)]),
    ("half", "lltm", "forward", 128, 512,
     [(8, 4, 2, 16, 1, 2), (8, 4, 2, 16, 1, 3), (8, 4, 2, 16, 1, 1)]),
    ("half", "lltm", "backward", 16, 128, [(8, 1, 4, 4, 1, 0)]),
    ("half", "lltm", "backward", 16, 256, [(16, 1, 8, 4, 1, 0), (8, 2, 4, 4, 1, 0)]),
    ("half", "lltm", "backward", 16, 512, [(16, 2, 4, 4, 1, 0)]),
    ("half", "lltm", "backward", 16, 768, [(16, 3, 4, 4, 1, 4)]),
    ("half", "lltm", "backward", 64, 512, [(8, 4, 2, 8, 1, 3)]),
    ("half", "lltm", "backward", 128, 512, [(8, 4, 2, 16, 1, 2), (8, 4, 2, 16, 1, 1)]),
    ("half", "lstm", "forward", 16, 128,
     [(4, 2, 2, 4, 1, 0), (8, 1, 3, 4, 1, 0), (8, 1, 4, 4, 1, 0)]),
    ("half", "lstm", "forward", 64, 512, [(8, 4, 2, 8, 1, 5)]),
    ("half", "lstm", "forward", 128, 512, [(8, 4, 2, 16, 1, 6)]),
    ("half", "lstm", "forward", 20, 1504, [(94, 1, 8, 24, 1, 6)]),
    ("half", "lstm", "forward", 80, 1024, [(64, 1, 8, 48, 2, 3)]),
    ("half", "lstm", "forward", 128, 640, [(40, 1, 8, 48, 2, 0)]),
    ("half", "lstm", "backward", 16, 768, [(16, 3, 4, 4, 1, 7)]),
    ("half", "lstm", "backward", 20, 1504, [(94, 1, 8, 24, 1, 8)]),
    ("half", "lstm", "backward", 48, 1504, [(0, 0, 0, 0, 0, 0)]),  # step by step
    ("half", "lstm", "backward", 80, 1024, [(64, 1, 8, 48, 2, 5)]),
    ("half", "lstm", "backward", 128, 512, [(8, 4, 2, 16, 1, 6), (16, 2, 4, 8, 1, 0)]),
    ("float", "lltm", "forward", 16, 64, [(1, 4, 1, 2, 1, 0)]),
    ("float", "lltm", "forward", 16, 128, [(8, 1, 4, 4, 1, 0), (8, 1, 8, 4, 1, 0)]),
    ("float", "lltm", "forward", 16, 256, [(16, 1, 4, 4, 1, 0)]),
    ("float", "lltm", "forward", 16, 512, [(32, 1, 8, 4, 1, 0)]),
    ("float", "lltm", "forward", 64, 512, [(32, 1, 8, 16, 2, 0)]),
    ("float", "lltm", "forward", 128, 512, [(32, 1, 8, 32, 2, 1)]),
    ("float", "lltm", "forward", 64, 1024, [(64, 1, 8, 32, 2, 5)]),
    ("float", "lltm", "forward", 16, 2048, [(128, 1, 8, 16, 1, 7)]),
    ("float", "lltm", "backward", 16, 128, [(8, 1, 4, 4, 1, 0)]),
    ("float", "lltm", "backward", 16, 256, [(16, 1, 4, 4, 1, 0), (16, 1, 8, 4, 1, 0)]),
    ("float", "lltm", "backward", 16, 512, [(16, 2, 4, 4, 1, 2), (16, 2, 4, 4, 1, 1)]),
    ("float", "lltm", "backward", 64, 512, [(32, 1, 8, 16, 1, 1), (32, 1, 8, 16, 2, 0)]),
    ("float", "lltm", "backward", 128, 512, [(32, 1, 8, 32, 2, 2), (32, 1, 8, 32, 2, 1)]),
    ("float", "lltm", "backward", 64, 1024, [(64, 1, 8, 32, 2, 6), (64, 1, 8, 32, 2, 5)]),
    ("float", "lstm", "forward", 37, 32, [(1, 2, 1, 2, 1, 0)]),
    ("float", "lstm", "forward", 256, 64, [(1, 4, 1, 2, 1, 0)]),
    ("float", "lstm", "backward", 37, 32, [(1, 2, 1, 2, 1, 0)]),
    ("float", "lstm", "backward", 256, 64, [(1, 4, 1, 2, 1, 0)]),
    ("float", "lstm", "backward", 384, 64, [(2, 2, 2, 8, 1, 0)]),
    ("float", "gru", "backward", 64, 64, [(1, 4, 1, 2, 1, 0)]),
    ("float", "lstm", "forward", 16, 512, [(32, 1, 8, 4, 1, 0)]),
    ("float", "lstm", "forward", 64, 512, [(32, 1, 8, 16, 1, 3), (32, 1, 8, 16, 2, 1)]),
    ("float", "lstm", "backward", 16, 512, [(32, 1, 8, 4, 1, 0)]),
    ("float", "lstm", "backward", 64, 512, [(32, 1, 8, 16, 1, 2)]),
]  # fmt: skip


def sizes(
    plans: Any,
    batch_size: int,
    hidden_size: int,
    type: str = "half",
    cell: str = "lltm",
    **facts: Any,
) -> Any:
    result = plans.Sizes()
    result.steps, result.batch_size, result.hidden_size = 100, batch_size, hidden_size
    result.type = getattr(plans.Type, type)
    result.directions = result.heads = 1
    names = ("gates", "states", "parameters", "adds_gates", "normalises")
    for name, fact in ({name: getattr(cell_of(cell), name) for name in names} | facts).items():
        setattr(result, name, fact)
    return result


def gpu(plans: Any, name: str, **facts: Any) -> Any:
    result = described(plans, *GPUS[name])
    for fact, value in facts.items():
        setattr(result, fact, value)
    return result


def described(plans: Any, architecture: int, shared_bytes: int, sms: int, clusters: Any) -> Any:
    result = plans.Gpu()
    result.architecture, result.shared_bytes, result.sms = architecture, shared_bytes, sms
    result.grids, result.clusters = True, clusters
    return result
