"""`python -m benchmarks sequence`, at small sizes."""

import json
from dataclasses import replace

import pytest
import torch

from benchmarks.__main__ import main
from benchmarks.sequence import check, compile_kernels, heads, others, published, resets, to_tf32
from benchmarks.sequence.cases import BACKWARD, FORWARD, LOOP, OURS, PHASES, Case, operations
from benchmarks.sequence.floor import gpu_floor
from benchmarks.sequence.goals import goals
from lltm_jit.ops.rnn.recurrent_layer.warm import Warmed

CPU, GPU = torch.device("cpu"), torch.device("cuda")
CASE = Case(2, 8, 3, torch.float, CPU)


@pytest.mark.parametrize("hidden_size", [1, 8, 58])
@pytest.mark.parametrize("layer", ["LSTM", "GRU"])
def test_tf32_may_round_factors_and_no_more(monkeypatch, layer, hidden_size):
    """Beside torch's layer, which does not round here."""
    right, off = OURS[layer].forward, 1.0

    def rounded(layer, x):
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.copy_(to_tf32(parameter))
        output, state = right(layer, to_tf32(x))
        return output * off, state

    monkeypatch.setattr(OURS[layer], "forward", rounded)
    case = Case(4, hidden_size, 9, torch.float, CPU, layer=layer)
    assert check(case, layer, FORWARD)[0].startswith("error")
    case = replace(case, precision="tf32")
    assert check(case, layer, FORWARD)[0] == "match"
    off = 1.01
    assert check(case, layer, FORWARD)[0].startswith("error")


def test_kernels_are_compiled_once_for_calls_that_share_them(monkeypatch):
    asked = []

    def warm(layer, rows, training):
        precision = torch.backends.cudnn.rnn.fp32_precision
        asked.append((type(layer).__name__, rows, layer.hidden_size, training, precision))

    monkeypatch.setattr(Warmed, "warm", warm)
    on_gpu = replace(CASE, device=GPU)
    others = [replace(on_gpu, precision="tf32"), replace(on_gpu, steps=9)]
    compile_kernels([(case, ["LSTM"]) for case in (*others, on_gpu)])
    assert sorted(asked) == [
        ("LSTM", 2, 8, training, precision)
        for training in (False, True)
        for precision in ("ieee", "tf32")
    ]


def test_operations_by_hand():
    products = 2 * (3 * 8) * (8 + 8)  # of the LLTM: two rows, three gates, input and output
    assert operations(CASE, "LLTM", FORWARD) == 2 * products
    assert operations(CASE, "LLTM", BACKWARD) == 6 * products
    assert operations(CASE, "LSTM", FORWARD) * 3 == operations(CASE, "LLTM", FORWARD) * 4


def of_gpu(batch_size, hidden_size, dtype=torch.half, layer="LLTM", phase=FORWARD):
    """The floor, in microseconds."""
    return 1e6 * gpu_floor(Case(batch_size, hidden_size, 256, dtype, GPU), layer, phase)


def test_the_floor_grows_with_the_work():
    assert of_gpu(16, 512) < of_gpu(16, 512, layer="LSTM") < of_gpu(64, 512, layer="LSTM")
    assert of_gpu(16, 512) < of_gpu(16, 512, torch.float) < of_gpu(16, 512, torch.double)
    assert of_gpu(16, 512, phase=BACKWARD) > 2 * of_gpu(16, 512)
    assert of_gpu(16, 2048) > 0.95  # no cluster holds the weights: the grid meets


def test_the_loop_is_the_layer():
    loop, layer = CASE.module(LOOP), CASE.module("LLTM")
    layer.load_state_dict(loop.state_dict())
    torch.testing.assert_close(loop(CASE.input())[0], layer(CASE.input())[0])


@pytest.mark.parametrize("phase", PHASES)
def test_heads_do_what_they_say(phase):
    results = heads._call("slstm", phase, 3, 2, 4, 8, torch.float, CPU)()
    shapes = [(3, 2, 32), (2, 32), (3, 2, 32)] if phase == FORWARD else [(3, 2, 128), (4, 32, 8)]
    assert [result.shape for result in results] == shapes
    assert all(result.any() for result in results)


def test_goals_that_documents_name():
    types = [(torch.half, "ieee")]
    published_cases = {case.title: case for case in published.published_cases(GPU, types)}
    assert len(published_cases) == 24
    found = goals(published_cases["LSTM 2 x 650, B20 T35"], "LSTM", FORWARD)
    assert found == {"nn.LSTM": 0.5}
    on_gpu = Case(16, 128, 256, torch.half, GPU)
    assert goals(on_gpu, "LLTM", FORWARD) == {"nn.LSTM": 0.21, LOOP: None}
    assert goals(replace(on_gpu, hidden_size=100), "LLTM", FORWARD)["nn.LSTM"] is None
    assert heads.goals(48, on_gpu=True)["slstm"] == {"lstm": 1.35}


def test_drawn_sizes_are_those_of_their_seed():
    types = [(torch.half, "ieee"), (torch.float, "tf32")]
    drawn = [list(published.drawn_cases(GPU, types, 200, seed=seed)) for seed in (3, 3, 4)]
    assert drawn[0] == drawn[1] != drawn[2]
    for name, most in (("batch_size", 512), ("hidden_size", 2112), ("steps", 256), ("layers", 4)):
        assert min(getattr(case, name) for case in drawn[0]) >= 1
        assert 0.9 * most <= max(getattr(case, name) for case in drawn[0]) <= most


def test_a_script_beside_ours_has_our_gradients():
    for phase in PHASES:
        steps = others._norms(2, 5, torch.double, CPU, phase)
        torch.testing.assert_close(steps["LayerNormLSTM"](), steps["TorchScript"]())


def test_resets(tmp_path, quick_clock):
    """Our LSTM in one call, and torch's in all the ways that it can take resets."""
    file = tmp_path / "figures.json"
    words = ["-b", "2", "-s", "8", "--resets", "--steps", "40", "--seconds", "0.001"]
    assert main(["sequence", *words, "--json", str(file)]) == 0
    found = json.loads(file.read_text())["rows"]
    for ours, to_states, theirs in (found[:3], found[3:6]):
        assert (ours["name"], to_states["name"]) == (resets.OURS, resets.TO_STATES)
        assert ours["check"] == to_states["check"] == "match"
        assert theirs["name"] in resets.OF_TORCH
    case = resets.cases(torch.double, "ieee", CPU, (40, 3, 8))[0]
    marks, x = resets.marks_of(case), case.input()
    outputs = [way(case, marks)(x)[0] for way in {**resets.OF_OURS, **resets.OF_TORCH}.values()]
    assert marks.any()
    assert len(outputs) == 5
    for output in outputs[1:]:
        torch.testing.assert_close(output, outputs[0])
