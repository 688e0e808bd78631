"""A lower bound on the time of a step of a recurrent layer: a roofline with latencies."""

import math

import torch

from .cases import FORWARD, Case, gates, operations

# An H200's figures, in cycles unless noted; kernels/rnn/sequence/README.md has their
# sources.
_CLOCK = 1.8e9
_SMS = 132
_CLUSTERS = {1: 132, 2: 66, 4: 30, 8: 15, 16: 7}  # the clusters that run at once, by blocks in each
_BLOCK_BYTES = (227 + 192) * 1024  # for weights: shared memory, three quarters of the registers
_ROWS = 4  # the fewest of a cluster: half of a product of 16-bit types
_BARRIER, _EXCHANGE = 60, 300  # within a block; between the blocks of a cluster, through DSMEM
_RECEIVED = 21  # bytes a cycle
_GRID = 1000  # a word's way through L2
_CELL = 150  # from a gate's sum to the output
_SM_PRODUCTS = 4 * 2048 / 6.2  # multiply-adds a cycle of 16-bit types, by mma.sync
_LIBRARY = 990e12  # operations per second of cuBLAS's GEMMs
_COST = {torch.float: 3, torch.double: 15}  # how many products of 16-bit types one product takes


def gpu_floor(case: Case, layer: str, phase: str) -> float:
    """A lower bound in seconds per step, for persistent kernels with the weights on the chip.

    A step waits for the output of the step before, so its parts come one after the other: the
    output's way to the blocks that need it, the products, and the cell. A cluster takes some rows
    of the batch, and its blocks share the hidden units. If the weights do not fit into a cluster,
    the whole grid shares them. The backward pass has as long a chain. Layers follow each other, and
    directions run at once. cuBLAS computes the products of all steps at once: one GEMM forward,
    three more backward.
    """
    rows, hidden, width = case.batch_size, case.hidden_size, case.dtype.itemsize
    rounded = case.precision == "tf32"
    cost = 1 if rounded else _COST.get(case.dtype, 1)
    weights, weight_width = gates(layer) * hidden**2, 2 if rounded else width
    chains = [_GRID + cost * rows * weights / (_SMS * _SM_PRODUCTS)]
    for blocks, clusters in _CLUSTERS.items():
        if weights * weight_width > blocks * _BLOCK_BYTES:
            continue
        of_cluster = _ROWS * math.ceil(rows / clusters / _ROWS)
        received = of_cluster * hidden * width / _RECEIVED
        exchange = _BARRIER if blocks == 1 else _EXCHANGE + received
        chains.append(exchange + cost * of_cluster * weights / (blocks * _SM_PRODUCTS))
    chain = case.layers * (min(chains) + _CELL) / _CLOCK
    of_steps = 2 * rows * weights * case.layers * case.directions
    product = cost * (operations(case, layer, FORWARD) - of_steps) / _LIBRARY
    return chain + product if phase == FORWARD else 2 * chain + 4 * product


def floor(case: Case, layer: str, phase: str, peak: float) -> float:
    """A lower bound in seconds per step; on a CPU the products at this machine's `peak`."""
    if case.device.type == "cuda":
        return gpu_floor(case, layer, phase)
    return operations(case, layer, phase) / peak
