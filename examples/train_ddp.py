"""Train the language model of train_text.py on several processes at a time.

    torchrun --nproc-per-node 2 examples/train_ddp.py            CPU processes, or one per GPU
    torchrun --nproc-per-node 2 examples/train_ddp.py --fsdp     parameters sharded, not copied

Each process reads its own streams of the text, `--batch-size` of them, and gradients are averaged
after each step: by DistributedDataParallel, or with `--fsdp` by FSDP2, which shards the parameters.
The processes of a node share one build of the kernels, which the first one makes, and only the
process of rank 0 prints.
"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from train_text import (
    CharacterModel,
    make_parser,
    read_text,
    streams,
    train,
    unigram_bits,
    validation_bits,
)


def distribute(model: CharacterModel, shard: bool, device: str) -> nn.Module:
    """The model, trained by all processes together."""
    if not shard:
        return DistributedDataParallel(model)
    # Named, since by default the parameters would be sharded over GPUs wherever there are any.
    mesh = init_device_mesh(device.partition(":")[0], (dist.get_world_size(),))
    for part in (model.embedding, model.lltm, model.head):
        fully_shard(part, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def main() -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--fsdp", action="store_true", help="shard the parameters with FSDP2")
    args = parser.parse_args()
    local_rank = int(os.environ["LOCAL_RANK"])
    if args.device == "cuda":
        args.device = f"cuda:{local_rank}"
        torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl" if args.device.startswith("cuda") else "gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()

    torch.manual_seed(args.seed)  # the same first parameters everywhere
    alphabet, training, validation = read_text(args.text, args.device)
    model = distribute(CharacterModel(len(alphabet), args), args.fsdp, args.device)
    mine = slice(rank * args.batch_size, (rank + 1) * args.batch_size)
    train(model, streams(training, world_size * args.batch_size)[:, mine], args, silent=rank != 0)

    # Every process takes part, since with --fsdp each holds only a piece of the model.
    bits = validation_bits(model, streams(validation, args.batch_size), args.seq_len)
    if rank == 0:
        unigram = unigram_bits(training, validation, len(alphabet))
        how = "FSDP2" if args.fsdp else "DDP"
        print(f"{world_size} processes, {how}, {args.device.partition(':')[0]}")
        print(f"validation loss: {bits:.3f} bits/char; unigram model: {unigram:.3f} bits/char")
    dist.destroy_process_group()
    # The interpreter's own exit may hang: DDP's reducer and FSDP2's caches keep the process group,
    # and so threads of gloo. A thread that still has a tensor to drop needs the interpreter's lock:
    # it waits for ever if the holder of the lock waits for the thread, and aborts the process if
    # the interpreter has ended. (github.com/pytorch/pytorch/issues/190489)
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
