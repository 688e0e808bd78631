"""Kernels that are compiled ahead of a layer's calls, for GPUs that need not be there."""

import os
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from layer_testing import ALL_LAYERS
from op_testing import needs_gpu

import lltm_jit
from lltm_jit import native
from lltm_jit.cli import main
from lltm_jit.jit import ToolchainError, variants
from lltm_jit.ops.rnn.recurrent_layer import warm

H100 = warm.GPUS["H100"]
CALLS = warm.Calls("lstm", 512, 64, torch.half, training=True, lengths=False)


def planned(
    dtype: str,
    hidden_size: int,
    gpu: str = "H100",
    *,
    cell: str = "lstm",
    counts: tuple[int, int] = (1, 1),
    padded: bool = False,
    training: bool = True,
    lengths: bool = False,
) -> list[tuple[str, str, dict[str, str]]]:
    """Name, function and constants of the kernels that calls need; counts: directions, heads."""
    sizes, uses = (64, 64, hidden_size, *counts, padded), (training, lengths)
    found = native.rnn.planned_variants(cell, dtype, *sizes, *uses, warm.GPUS[gpu])
    return [(kernel, function, dict(constants)) for kernel, function, constants, _ in found]


def test_what_training_needs():
    (forward, start, one), (backward, start_backward, other) = planned("float16", 512)
    assert (forward, start) == ("rnn.sequence_forward", "sequence_forward")
    assert (backward, start_backward) == ("rnn.sequence_backward", "sequence_backward")
    cell = {"CELL": "lltm_jit::LstmCell", "ELEMENT": "Half", "CONTROLS": "0"}
    assert one.items() >= {**cell, "SHAPE": "8, 4, 2, 8, 1, 5, 0, 2, 0, 0", "SAVES": "1"}.items()
    assert other.items() >= {**cell, "SHAPE": "8, 4, 2, 8, 1, 7, 0, 2, 0, 0"}.items()
    assert "SAVES" not in other
    *_, (_, _, rounded) = planned("tf32", 512)
    assert (rounded["ELEMENT"], rounded["SHAPE"][-3:]) == ("float", ", 1")


def test_what_other_calls_need():
    ((kernel, _, constants),) = planned("bfloat16", 512, training=False, lengths=True)
    assert (kernel, constants["SAVES"], constants["CONTROLS"]) == ("rnn.sequence_forward", "0", "1")
    for dtype, gpu in (("float64", "H100"), ("float32", "A100")):
        steps = planned(dtype, 512, gpu)
        assert [(kernel, function) for kernel, function, _ in steps] == [
            ("rnn.sequence_steps", "sequence_forward_step"),
            ("rnn.sequence_steps", "sequence_backward_step"),
        ]
        assert steps[0][2] == steps[1][2]  # one build


def test_what_a_cell_that_normalises_needs():
    """Clusters if they hold the weights of aligned units, else the kernel of a step."""

    def needed(*args, **named) -> set[str]:
        found = planned(*args, cell="layer_norm_lstm", counts=(2, 1), lengths=True, **named)
        return {function for _, function, _ in found}

    clusters = {"sequence_forward", "sequence_backward"}
    steps = {"normalised_forward_step", "normalised_backward_step"}
    assert needed("float16", 512) == needed("float32", 256, "H200") == clusters
    assert needed("float16", 1024) == needed("float16", 512, "A100") == steps
    assert needed("float64", 64) == needed("float16", 201, padded=True) == steps


def test_what_is_planned_was_declared():
    asked = native.rnn.planned_variants(
        "gru", "float32", 64, 16, 128, 1, 1, False, True, False, H100
    )
    for variant in map(variants.declared, asked):
        assert variant.source.is_file()
        assert {*dict(variant.constants)} > {"CELL", "ELEMENT", "SHAPE"}


def test_recurrences_share_a_kernel_where_rows_are_aligned():
    """And take turns, each with the kernel of a single one, where a head's are not."""

    def several(hidden_size: int, *counts: int) -> list[str]:
        found = planned("float16", hidden_size, counts=counts, padded=hidden_size % 4 > 0)
        return [constants["SEVERAL"] for _, _, constants in found]

    assert several(64, 1, 12) == several(256, 2, 1) == ["1", "1"]
    assert several(64, 1, 1) == several(65, 1, 12) == ["0", "0"]


def test_wrong_arguments_are_told():
    lstm = lltm_jit.LSTM(3, 4)
    with pytest.raises(TypeError, match=r"LSTM\.warm\(\): expected batch_size to be an int"):
        lstm.warm(2.5)
    with pytest.raises(ValueError, match=r"LSTM\.warm\(\): expected batch_size .* but got -1"):
        lstm.warm(-1)
    with pytest.raises(ValueError, match=r"warm\(\): .* batch_size .* 2\*\*63, but got 10{30}$"):
        lstm.warm(10**30)
    with pytest.raises(ValueError, match=r"expected dtype to be one of .*, but got torch\.int8"):
        lstm.warm(2, dtype=torch.int8)


@pytest.mark.skipif(torch.cuda.is_available(), reason="is about machines without a GPU")
def test_without_a_gpu_it_is_told(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    with pytest.raises(ToolchainError, match=r"LSTM\.warm\(\): expected a GPU, but torch sees"):
        lltm_jit.LSTM(3, 4).warm(2)


def test_without_cuda_nothing_is_built(monkeypatch, capsys):
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(native, "load", None)
    words = ["--layer", "none.h:Cell", "--hidden", "4", "--batch", "2", "--gpu", "H200"]
    assert main(["warm", *words]) == 1
    text = f"error: warm(): expected a torch with CUDA, but got {torch.__version__}\n"
    assert capsys.readouterr().err == text
    with pytest.raises(ToolchainError, match="expected a torch with CUDA"):
        warm.warm("warm", CALLS, H100)


@pytest.fixture
def with_nvcc(monkeypatch):
    """The package as if it were built with CUDA, for 8.0; gives the variants that are asked for."""
    asked = []
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    info = SimpleNamespace(info=SimpleNamespace(cuda_version="13.0"))
    monkeypatch.setattr(native, "load", lambda family: info)
    monkeypatch.setattr(variants, "architectures", lambda variant: ("8.0",))
    monkeypatch.setattr(variants, "builds_of", lambda variants: asked.extend(variants) or [])
    return asked


def test_kernels_for_other_gpus_are_refused(with_nvcc):
    with pytest.raises(ToolchainError, match=r"capability 9\.0, but .*_ARCH_LIST asks for 8\.0"):
        warm.warm("warm", CALLS, H100)
    assert with_nvcc == []
    warm.warm("warm", CALLS, warm.GPUS["A100"])
    assert {(each.name, each.note) for each in with_nvcc} == {
        ("rnn.sequence_steps", "compiled ahead of calls")
    }


def test_calls_of_a_single_step_find_their_kernels(with_nvcc, monkeypatch):
    """Which go step by step, where longer ones do not."""
    monkeypatch.setattr(variants, "architectures", lambda variant: ("9.0a",))
    warm.warm("warm", CALLS, H100)
    names = [each.name.removeprefix("rnn.sequence_") for each in with_nvcc]
    assert names == ["forward", "backward", "steps", "steps"]


def test_the_command_asks_for_what_a_layer_does(with_nvcc, monkeypatch, capsys):
    monkeypatch.setattr(variants, "architectures", lambda variant: ("9.0a",))
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0a")
    words = ["--layer", "LSTM", "--hidden", "192", "--batch", "16", "--num-heads", "3"]
    words += ["--bidirectional", "--dtype", "half", "--gpu", "H100"]
    assert main(["warm", *words]) == 0
    asked = with_nvcc[:]
    of_sequences = [each for each in asked if not each.name.endswith("steps")]
    assert {dict(each.constants)["SEVERAL"] for each in of_sequences} == {"1"}
    with_nvcc.clear()
    layer = lltm_jit.LSTM(8, 192, bidirectional=True, num_heads=3, device="meta")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(native.rnn, "sequence_gpu", lambda: H100, raising=False)
    layer.warm(16, dtype=torch.half)
    assert with_nvcc == asked


def test_the_command(monkeypatch, capsys):
    seen = []
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(warm, "warm", lambda *given: seen.append(given) or [])
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "")
    sizes = ["--hidden", "512", "--batch", "64", "--dtype", "half"]
    words = ["warm", "--layer", "LSTM", *sizes, "--gpu", "H100"]
    torch.backends.cudnn.allow_tf32 = True
    assert main(words) == 0
    assert seen == [("warm", CALLS, H100)]
    assert torch.backends.cudnn.rnn.fp32_precision == "tf32"
    assert os.environ["TORCH_CUDA_ARCH_LIST"] == "9.0a"
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    assert main([*words, "--inference", "--lengths", "--exact"]) == 0
    assert torch.backends.cudnn.rnn.fp32_precision != "tf32"
    assert seen[1][1] == replace(CALLS, training=False, lengths=True)
    assert os.environ["TORCH_CUDA_ARCH_LIST"] == "9.0"
    assert main([*words, "--num-heads", "4", "--bidirectional"]) == 0
    assert seen[2][1] == replace(CALLS, directions=2, num_heads=4)
    assert main([*words, "--num-heads", "5"]) == 1
    assert "expected --num-heads to divide --hidden 512, but got 5\n" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*words[:-1], "B200"])
    assert "invalid choice: 'B200' (choose from " in capsys.readouterr().err
    assert main(["warm", "--layer", "RNN", *words[3:]]) == 1
    names = ", ".join(ALL_LAYERS)
    assert f"to be {names}, or HEADER:TYPE, but got 'RNN'" in capsys.readouterr().err


@needs_gpu
@pytest.mark.parametrize("lengths", [None, [3, 5, 2]])
def test_a_call_then_starts_no_process(lengths):
    lstm = lltm_jit.LSTM(8, 256, device="cuda", dtype=torch.half)
    lstm.warm(3, lengths=lengths is not None)
    started: list = []
    sys.addaudithook(
        lambda event, args: started.append(args) if event == "subprocess.Popen" else None
    )
    output, _ = lstm(torch.randn(5, 3, 8, device="cuda", dtype=torch.half), lengths=lengths)
    output.sum().backward()
    assert started == []
