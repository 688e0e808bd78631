"""Training on two processes under torchrun."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = ["--steps", "30", "--batch-size", "8", "--seq-len", "8", "--hidden-size", "16"]

pytestmark = pytest.mark.skipif(
    not torch.distributed.is_available(), reason="needs torch.distributed"
)


def torchrun(*words):
    options = ["--nproc-per-node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *options, *words],
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("how", ["DDP", "FSDP2"])
def test_two_processes_train(how):
    flags = ["--fsdp"] if how == "FSDP2" else []
    done = torchrun(EXAMPLES / "train_ddp.py", *SMALL, "--device", "cpu", *flags)
    assert done.returncode == 0, done.stderr
    # Once each: the other process is silent.
    assert done.stdout.count(f"2 processes, {how}, cpu") == 1
    assert len(re.findall(r"validation loss: \S+ bits/char", done.stdout)) == 1
    assert done.stderr.count("training:   0%") == 1
    assert done.stderr.count("30/30") >= 1


@pytest.mark.parametrize("flags", [[], ["--fsdp"]])
def test_gradients_are_those_of_one_process(flags):
    done = torchrun(Path(__file__).with_name("ddp_gradients.py"), *flags)
    assert done.returncode == 0, done.stderr
    # Two processes write to one pipe, so that their lines may run into each other.
    for rank in range(2):
        assert done.stdout.count(f"rank {rank}: equal") == 1
