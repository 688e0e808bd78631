"""Gradients of processes that share a batch are those of one that has it whole.

With DDP, and with FSDP, which has the parameters shared, too; ``--cuda`` gives each process a GPU.
"""

import copy
import os
import sys
import tempfile

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.multiprocessing import start_processes
from torch.nn.parallel import DistributedDataParallel

from lltm_jit.ops.rnn.layers import LAYERS

RANKS, STEPS, PER_RANK, INPUT, HIDDEN = 2, 5, 3, 4, 6


def gradients(model, inputs):
    output, state = model(inputs)
    last = state if isinstance(state, torch.Tensor) else state[-1]
    (output.square().mean() + last.square().mean()).backward()
    return [parameter.grad for parameter in model.parameters()]


def compare(kind, sharded, device):
    """Check the gradients of a layer in both directions."""
    torch.manual_seed(0)
    whole = kind(INPUT, HIDDEN, bidirectional=True, dtype=torch.double)
    inputs = torch.randn(STEPS, PER_RANK * dist.get_world_size(), INPUT, dtype=torch.double)
    whole, inputs = whole.to(device), inputs.to(device)
    shared = copy.deepcopy(whole)
    expected = gradients(whole, inputs)
    first = dist.get_rank() * PER_RANK
    if sharded:
        mesh = init_device_mesh(device.partition(":")[0], (dist.get_world_size(),))
        model = fully_shard(shared, mesh=mesh)
    else:
        model = DistributedDataParallel(shared)
    actual = gradients(model, inputs[:, first : first + PER_RANK])
    if sharded:
        actual = [gradient.full_tensor() for gradient in actual]
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


def run(rank, store):
    device = "cpu"
    if "--cuda" in sys.argv:
        device = f"cuda:{rank}"
        torch.cuda.set_device(device)
    backend = "gloo" if device == "cpu" else "nccl"
    dist.init_process_group(backend, f"file://{store}/store", world_size=RANKS, rank=rank)
    for way, sharded in (("DDP", False), ("FSDP2", True)):
        for kind in dict.fromkeys(LAYERS.values()):
            compare(kind, sharded, device)
        print(f"rank {rank}: {way} equal", flush=True)
    dist.destroy_process_group()
    os._exit(0)  # as examples/train_ddp.py does, for its reasons


if __name__ == "__main__":
    # A fork has imported torch, but cannot use a GPU that its parent may have seen.
    method = "spawn" if "--cuda" in sys.argv else "fork"
    with tempfile.TemporaryDirectory() as folder:
        start_processes(run, (folder,), RANKS, start_method=method)
