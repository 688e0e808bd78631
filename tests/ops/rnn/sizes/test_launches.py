"""How kernels of whole sequences stand beside what is launched before and after them."""

import gc
import shutil
import subprocess

import pytest
import torch
from op_testing import bits, captured_in_graph, needs_gpu
from sequence_testing import LAYERS, launched

from lltm_jit import native
from lltm_jit.ops.rnn.recurrent_layer import stack as of_stacks


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("kernel", ["forward", "backward"])
def test_what_follows_a_sequence_is_not_started_early(kernel, tmp_path):
    """Blocks of the next sequence would share the SMs that this one leaves free."""
    constants = {
        "CELL_HEADER": '"rnn/cells/lstm.h"',
        "CELL": "lltm_jit::LstmCell",
        "ELEMENT": "Half",
        "SHAPE": "2, 1, 2, 4, 1, 0, 0, 2, 0, 0",
        **dict.fromkeys(("CONTROLS", "PADDED", "SEVERAL", "SAVES", "ALL_STATES"), "0"),
    }
    header, code = tmp_path / "constants.h", tmp_path / "code.ptx"
    header.write_text("".join(f"#define {name} {value}\n" for name, value in constants.items()))
    kernels = native.kernels_directory()
    source = kernels / f"rnn/sequence/variants/{kernel}.cu"
    options = ["-ptx", "-arch=sm_90a", "--expt-relaxed-constexpr", f"-I{kernels}"]
    subprocess.run(["nvcc", *options, "-include", header, "-o", code, source], check=True)
    text = code.read_text()
    assert "griddepcontrol.wait" in text  # for what is before it
    assert "griddepcontrol.launch_dependents" not in text


CASES = [
    ("LSTM", torch.half, {}),
    ("LSTM", torch.bfloat16, {"bidirectional": True}),
    ("GRU", torch.half, {"bidirectional": True, "dropout": 0.1}),
    ("GRU", torch.float, {"bias": False}),
]


@pytest.fixture
def stack(monkeypatch):
    """Makes a stack of layers that run one after the other, and an input."""
    monkeypatch.setattr(of_stacks, "_is_plain", lambda layer, x: False)

    def of(kind: str, dtype: torch.dtype, named: dict, hidden_size: int = 128):
        layer = LAYERS[kind](48, hidden_size, 3, dtype=dtype, device="cuda", **named)
        return layer, torch.randn(128, 32, 48, dtype=dtype, device="cuda", requires_grad=True)

    return of


def gradients(layer, x, inputs=None) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)  # of dropout
    output, _ = layer(x)
    return torch.autograd.grad(output.float().square().sum(), inputs or [x, *layer.parameters()])


def at_once(layer, x) -> tuple[torch.Tensor, ...]:
    """What anomaly mode looks at is never put off."""
    with pytest.warns(UserWarning, match="Anomaly"), torch.autograd.detect_anomaly():
        return gradients(layer, x)


@needs_gpu
@pytest.mark.parametrize(("kind", "dtype", "named"), CASES)
def test_gradients_put_off_have_the_bits_of_others(kind, dtype, named, stack):
    """Gradients of weights beside the sequence of the layer below: Note [Weights later]."""
    layer, x = stack(kind, dtype, named)
    expected = at_once(layer, x)
    for _ in range(3):
        assert bits(gradients(layer, x)) == bits(expected)
    names = [name for name, _ in layer.named_parameters()]
    some = names.index("weight_hh_l1")
    assert bits(gradients(layer, x, [layer.weight_hh_l1])) == bits([expected[1 + some]])
    if not layer.dropout:
        assert bits(captured_in_graph(lambda: gradients(layer, x))) == bits(expected)


@needs_gpu
@pytest.mark.parametrize(("hidden_size", "streams"), [(128, 2), (100, 1)])
def test_products_run_on_a_stream_of_their_own(hidden_size, streams, stack, tmp_path):
    """But not of padded gates. Who reads gradients in the backward pass finds them filled."""
    layer, x = stack("LSTM", torch.half, {}, hidden_size)
    expected = at_once(layer, x)
    work = launched(lambda: gradients(layer, x), tmp_path)
    assert len({each["args"]["stream"] for each in work}) == streams
    seen = {}
    for name, weight in layer.named_parameters():
        weight.register_hook(lambda grad, name=name: seen.update({name: grad.clone()}))
    torch.manual_seed(0)
    layer(x)[0].float().square().sum().backward()
    assert bits([seen[name] for name, _ in layer.named_parameters()]) == bits(expected[1:])


@needs_gpu
def test_hooks_of_a_node_see_its_gradients(stack):
    layer, x = stack("LSTM", torch.half, {})
    expected = at_once(layer, x)
    output, _ = layer(x)
    seen = []
    output.grad_fn.register_hook(
        lambda grads, _: seen.extend(g.clone() for g in grads if g is not None)
    )
    output.float().square().sum().backward()
    names = [name for name, _ in layer.named_parameters()]
    assert bits([expected[1 + names.index("weight_hh_l2")]])[0] in bits(seen)


@needs_gpu
def test_second_gradients_are_put_off_by_nobody(stack):
    layer, x = stack("LSTM", torch.float, {})
    first = torch.autograd.grad(
        layer(x)[0].square().sum(), [*layer.parameters()], create_graph=True
    )
    (of_x,) = torch.autograd.grad(sum(g.square().sum() for g in first), [x])
    assert of_x.isfinite().all()
    assert of_x.abs().sum() > 0


@pytest.fixture
def pair():
    """Two layers, an input of the first, and what the second one gives."""
    lower, upper = (LAYERS["LSTM"](128, 128, dtype=torch.half, device="cuda") for _ in range(2))
    x = torch.randn(128, 32, 128, dtype=torch.half, device="cuda", requires_grad=True)
    return lower, upper, x


@needs_gpu
def test_weights_have_gradients_when_the_input_of_their_module_has(pair):
    """Where hooks of modules, and FSDP, look for them."""
    lower, upper, x = pair
    seen = []

    def look(module: torch.nn.Module, *_: object) -> None:
        seen.extend(weight.grad is not None for weight in module.parameters())

    upper.register_full_backward_hook(look)
    upper(lower(x)[0])[0].float().square().sum().backward()
    assert seen == [True] * 4


@needs_gpu
def test_calls_on_slices_add_their_gradients_at_once(pair):
    lower, _, x = pair
    upper = LAYERS["LSTM"](128, 1024, dtype=torch.half, device="cuda")
    every, state, outputs = lower(x)[0], None, []
    for one in every.split(1):
        output, state = upper(one, state)
        outputs.append(output)
    loss = torch.cat(outputs).sum()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    loss.backward()
    of_weights = sum(weight.nbytes for weight in upper.parameters())
    assert torch.cuda.max_memory_allocated() - before < 8 * of_weights


@needs_gpu
def test_a_backward_pass_that_fails_leaves_no_memory(pair):
    lower, upper, x = pair
    upper(lower(x)[0])[0].float().sum().backward()  # what is made once

    def fail(_: torch.Tensor) -> None:
        raise RuntimeError("no memory, say")

    gc.collect()
    before = torch.cuda.memory_allocated()
    between = lower(x)[0]
    between.register_hook(fail)
    loss = upper(between)[0].float().sum()
    with pytest.raises(RuntimeError, match="no memory, say"):
        loss.backward()
    del between, loss
    gc.collect()
    x.sum().backward()  # what was ready to run has left the thread's queue then
    assert torch.cuda.memory_allocated() == before
