"""Sequences on a GPU that cannot launch what is planned, and at the sizes where plans change."""

import itertools
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import sequence_plans
import torch
from op_testing import bits, bounds, needs_gpu
from sequence_plans import sizes
from sequence_testing import Inputs, inputs_of, launched, ours
from test_sequence import check

from lltm_jit import native
from lltm_jit.functional import recurrent_sequence
from lltm_jit.jit.machine import gpus

pytestmark = needs_gpu
ANY = 1 << 30
TYPES = {torch.half: "half", torch.bfloat16: "bfloat16", torch.float: "float"}


def limit(planned: int = ANY, launched: int = ANY) -> tuple[int, ...]:
    """Have sequences run as on a GPU with less room for blocks; the clusters that it has left."""
    return native.rnn.limit_sequence_blocks(planned, launched)


@pytest.fixture(autouse=True)
def no_limit():
    yield
    limit()


def this_gpu(plans, clusters):
    return sequence_plans.described(plans, *native.rnn.sequence_gpu()[:3], clusters)


def launched_blocks(function, directory) -> list[int]:
    """The blocks of each kernel for a whole sequence that `function` launches."""
    kernels = launched(function, directory)
    return [kernel["args"]["grid"][0] for kernel in kernels if kernel["name"] == "sequence_forward"]


def planned_blocks(plan, batch_size) -> list[int]:
    """What such a kernel is launched with; nothing where the sequence goes step by step."""
    return [plan.shape.blocks * -(-batch_size // plan.shape.rows)] if plan.persistent else []


@pytest.mark.parametrize("largest", [1, 2, 4, 8, 16])
@pytest.mark.parametrize(
    ("cell", "dtype", "units"), [("gru", torch.half, 256), ("lstm", torch.float, 128)], ids=str
)
def test_no_larger_cluster_is_launched_than_the_gpu_can(
    plans, cell, dtype, units, largest, tmp_path
):
    """Whether the plan knows it, or only the launch tells."""
    clusters = limit(planned=largest)
    assert [count > 0 for count in clusters] == [size <= largest for size in (2, 4, 8, 16)]
    inputs = inputs_of(cell, 3, 16, units, dtype, "cuda", control=True)
    check(cell, inputs)
    run = partial(ours, cell, inputs.requires_grad())
    of = sizes(plans, 16, units, TYPES[dtype], cell, steps=3)
    plan = plans.plan(of, plans.Pass.forward, this_gpu(plans, clusters))
    assert launched_blocks(run, tmp_path) == planned_blocks(plan, 16)
    expected = bits(run())
    if not plan.persistent or not plan.shape.grid:
        limit(launched=largest)
        assert bits(run()) == expected


@pytest.mark.parametrize("hidden_size", [64, 1024])
def test_a_gpu_that_refuses_all_launches_goes_step_by_step(hidden_size, tmp_path):
    inputs = inputs_of("lltm", 3, 16, hidden_size, torch.half, "cuda")
    limit(launched=0)
    assert launched_blocks(lambda: recurrent_sequence("lltm", *inputs), tmp_path) == []
    check("lltm", inputs)


def test_a_plan_is_for_the_code_that_runs():
    """As under TORCH_CUDA_ARCH_LIST=7.5+PTX, where the GPU could do more."""
    compiled = [gpus.number(name) for name in native.load("rnn").info.architectures]
    assert divmod(native.rnn.sequence_gpu()[0], 10) in compiled


def in_grids():
    """Skips where no code takes a whole chip."""
    if native.rnn.sequence_gpu()[0] < 90:
        pytest.skip("grids are for compute capability 9.0 and later")


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize(("cell", "batch_size"), [("lstm", 16), ("gru", 64), ("lltm", 5)])
def test_the_steps_of_a_grid_take_turns_in_memory(cell, batch_size, dtype, tmp_path):
    """After a reset, what was computed in the same memory before makes no difference to any bit."""
    in_grids()
    parts, steps = 12, 100  # of fewer steps than there are places
    few = inputs_of(cell, steps, batch_size, 1024, dtype, "cuda", state=False).requires_grad()
    control = torch.zeros(parts * steps, batch_size, dtype=torch.uint8, device="cuda")
    control[::steps] = 1
    many = few._replace(gates=few.gates.detach().repeat(parts, 1, 1).requires_grad_())
    many = many._replace(control=control)
    few = few._replace(control=control[:steps])
    grad = torch.randn(steps, batch_size, 1024, device="cuda", dtype=dtype)

    def run(given: Inputs) -> list[torch.Tensor]:
        output = recurrent_sequence(cell, *given)[0]
        repeated = grad.repeat(len(output) // steps, 1, 1)
        return [output, *torch.autograd.grad(output, given.gates, repeated)]

    blocks = launched_blocks(lambda: run(many), tmp_path)
    assert blocks[0] >= 64
    expected = bits(run(few))
    for _ in range(5):
        found = run(many)
        for first in range(0, len(control), steps):
            assert bits([each[first : first + steps] for each in found]) == expected


def test_a_refused_plan_is_not_tried_again(plans):
    in_grids()
    inputs = inputs_of("lltm", 200, 16, 1024, torch.half, "cuda", state=False)

    def peak() -> int:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        with torch.no_grad():
            recurrent_sequence("lltm", *inputs)
        return torch.cuda.max_memory_allocated() - before

    usual = peak()
    limit(launched=16)
    first, later = peak(), peak()
    of = sizes(plans, 16, 1024, "half", "lltm", steps=200)
    workspace = plans.plan(of, plans.Pass.forward, this_gpu(plans, limit())).workspace
    assert min(usual, first) - later > workspace / 2
    assert peak() == usual


def test_without_memory_for_a_grid_it_goes_step_by_step():
    in_grids()
    inputs = inputs_of("lltm", 2048, 16, 1024, torch.half, "cuda", state=False)
    output_bytes = 2048 * 16 * 1024 * 2

    def run():
        with torch.no_grad():
            return recurrent_sequence("lltm", *inputs)

    limit(launched=0)
    expected = bits(run())
    limit()
    in_one_launch = bits(run())
    torch.cuda.empty_cache()
    # torch asks for 20 MiB where a tensor has from 1 to 10, as the workspace does.
    room = torch.cuda.memory_reserved() + output_bytes + 2**23
    torch.cuda.set_per_process_memory_fraction(room / torch.cuda.mem_get_info()[1])
    try:
        # Takes nothing of what is free beside memory that is in use.
        with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
            found = bits(run())
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert found != in_one_launch
    assert found == expected


def compile_kernels(cell: str, given: Inputs) -> None:
    """Those of the forward and the backward pass, in this thread and not in autograd's."""
    results = torch.ops.lltm_jit.recurrent_sequence_forward(*given, False, cell)
    output, *_, saved_gates, saved_cells = results
    mask = [tensor is not None for tensor in given[:6]]
    called = (*given, False, cell, False, False)
    torch.ops.lltm_jit.recurrent_sequence_backward(
        output, None, None, *called, output, saved_gates, saved_cells, mask
    )


@pytest.mark.parametrize(("cell", "dtype"), [("lltm", torch.half), ("lstm", torch.float)], ids=str)
def test_sizes_at_which_plans_change(plans, cell, dtype):
    """And their neighbours: numbers of hidden units, with few rows and steps or none."""
    gpu = this_gpu(plans, limit())

    def kernels(hidden_size: int) -> list:
        of = sizes(plans, 2, hidden_size, TYPES[dtype], cell)
        both = [plans.plan(of, way, gpu) for way in (plans.Pass.forward, plans.Pass.backward)]
        return [(plan.persistent, plan.shape.grid, plan.shape.blocks > 1) for plan in both]

    changes = bounds(kernels, range(4, 2400, 4))
    assert changes[-1] > 2048
    hidden_sizes = sorted({b + near for b in changes for near in (-4, -1, 0, 1)})
    inputs = [
        inputs_of(cell, steps, batch_size, hidden_size, dtype, "cuda")
        for hidden_size in hidden_sizes
        for steps, batch_size in itertools.product((1, 2), (1, 2))
    ]
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda given: compile_kernels(cell, given), inputs[::4]))
    for given in inputs:
        check(cell, given)
    for hidden_size in hidden_sizes:
        nothing = inputs_of(cell, 2, 0, hidden_size, dtype, "cuda")
        assert recurrent_sequence(cell, *nothing)[0].shape == (2, 0, hidden_size)
        with pytest.raises(RuntimeError, match="at least one step"):
            recurrent_sequence(cell, *inputs_of(cell, 0, 2, hidden_size, dtype, "cuda"))
