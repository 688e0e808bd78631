"""Training on two processes under torchrun."""

import re
from pathlib import Path

import pytest
import torch
import torch.distributed

SMALL = ["--steps", "100", "--batch-size", "16", "--seq-len", "16", "--hidden-size", "32"]

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="needs torch.distributed"
)
two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
DEVICES = ["cpu", pytest.param("cuda", marks=two_gpus)]


@pytest.fixture
def torchrun(run):
    options = ["--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    return lambda *words: run("-m", "torch.distributed.run", *options, *words)


@pytest.mark.slow
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("how", ["DDP", "FSDP2"])
def test_two_processes_train(how, device, torchrun):
    flags = ["--fsdp"] if how == "FSDP2" else []
    done = torchrun("train_ddp.py", *SMALL, "--device", device, *flags)
    # Once each: the other process is silent.
    assert done.stdout.count(f"2 processes, {how}, {device}") == 1
    ((model, unigram),) = re.findall(
        r"validation loss: (\S+) bits/char; unigram model: (\S+) bits/char", done.stdout
    )
    assert float(model) < float(unigram) - 0.2
    assert done.stderr.count("training:   0%") == 1
    assert done.stderr.count("100/100") >= 1


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_are_those_of_one_process(device, run):
    """Over gloo, and over NCCL on GPUs."""
    flags = ["--cuda"] if device == "cuda" else []
    done = run(Path(__file__).with_name("ddp_gradients.py"), *flags)
    # Two processes write to one pipe, so that their lines may run into each other.
    for line in ("rank 0: DDP", "rank 1: DDP", "rank 0: FSDP2", "rank 1: FSDP2"):
        assert done.stdout.count(f"{line} equal") == 1
