"""Sizes and GPUs for the plan of whole sequences."""

from __future__ import annotations

from typing import Any

from sequence_testing import cell_of

from lltm_jit.ops.rnn.recurrent_layer import warm

# Architecture, bytes of shared memory that a block may ask for, SMs, and how many clusters of 2, 4,
# 8 and 16 blocks run at once.
GPUS = {name: (*facts[:3], facts[4:]) for name, facts in warm.GPUS.items()}
GPUS["T4"] = (75, 64 * 1024, 40, (0, 0, 0, 0))


def sizes(
    plans: Any, batch_size: int, hidden_size: int, type: str = "half", cell: str = "lltm"
) -> Any:
    result = plans.Sizes()
    result.steps, result.batch_size, result.hidden_size = 100, batch_size, hidden_size
    for fact in ("gates", "states", "parameters", "adds_gates"):
        setattr(result, fact, getattr(cell_of(cell), fact))
    result.type = getattr(plans.Type, type)
    result.directions = result.heads = 1
    return result


def gpu(plans: Any, name: str) -> Any:
    return described(plans, *GPUS[name])


def described(plans: Any, architecture: int, shared_bytes: int, sms: int, clusters: Any) -> Any:
    result = plans.Gpu()
    result.architecture, result.shared_bytes, result.sms = architecture, shared_bytes, sms
    result.grids, result.clusters = True, clusters
    return result
