"""The LLTM cell on a GPU: launches, and the plans of other chips.

test_sequence_gpu.py has streams, graphs and devices.
"""

import lltm_plans
import pytest
import torch
from lltm_testing import cell_inputs, to_double
from op_testing import ACTIVATIONS, DTYPES, bits, bounds, captured_in_graph, needs_gpu
from sequence_testing import all_accurate, launched
from test_lltm import check_against_float64

from lltm_jit import native
from lltm_jit.functional import lltm_cell
from lltm_jit.ops.rnn.lltm import lltm_cell_reference

pytestmark = needs_gpu
# For chips with less shared memory than this one. The last sizes take the large tiles; unaligned
# rows of 16 bits are the library's.
UNALIGNED = (65, 33, 129)
TYPES = dict(zip(DTYPES, ("half", "bfloat16", "float", "double"), strict=True))
OTHER_CHIPS = [
    (name, sizes, dtype)
    for name in ("A100", "A40")
    for sizes in ((16, 32, 128), (64, 256, 512), UNALIGNED, (256, 256, 320))
    for dtype in DTYPES
    if sizes != UNALIGNED or dtype.itemsize > 2
]


@pytest.fixture
def own_products():
    """Kernels with products of their own, whose instructions GPUs have from 8.0 on."""
    if native.rnn.sequence_gpu()[0] < 80:
        pytest.skip("on this GPU the library multiplies")


@pytest.mark.usefixtures("own_products")
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("sizes", [(16, 32, 128), (64, 256, 512)])
def test_forward_is_one_launch(sizes, dtype, requires_grad, tmp_path):
    inputs = cell_inputs(*sizes, dtype=dtype, device="cuda", requires_grad=requires_grad)
    kernels = launched(lambda: lltm_cell(*inputs), tmp_path)
    assert len(kernels) == 1, kernels
    assert "lltm" in kernels[0]["name"]


@pytest.mark.usefixtures("own_products")
def test_backward_is_three_launches_at_most(dtype, tmp_path):
    """With every gradient asked for, and the results' given: autograd itself launches nothing."""
    inputs = cell_inputs(16, 32, 128, dtype=dtype, device="cuda", requires_grad=True)
    results = lltm_cell(*inputs)
    given = [torch.randn_like(result) for result in results]

    def backward():
        torch.autograd.grad(results, inputs, given, retain_graph=True)

    kernels = launched(backward, tmp_path)
    assert 1 <= len(kernels) <= 3, kernels
    assert all("lltm" in kernel["name"] for kernel in kernels), kernels


def planned_for(name, sizes, dtype):
    """The launchers, and the cell with its plan for the GPU of this name."""
    planner = lltm_plans.launches()
    here, described = planner.this_gpu(), lltm_plans.gpu(planner, name)
    if here.architecture < 80 or here.shared_bytes < described.shared_bytes:
        pytest.skip(f"this GPU cannot run what is planned for the {name}")
    problem = lltm_plans.problem(planner, sizes, TYPES[dtype], aligned=sizes != UNALIGNED)
    return planner, problem, planner.plan(problem, described)


def with_four_stages(plan):
    """The same tiles as on a chip with all the shared memory that they were made for."""
    plan.forward_stages = plan.backward_stages = 4
    return plan


@pytest.mark.parametrize(("name", "sizes", "dtype"), OTHER_CHIPS)
def test_forward_as_on_a_chip_with_less_shared_memory(name, sizes, dtype):
    planner, problem, plan = planned_for(name, sizes, dtype)
    inputs = cell_inputs(*sizes, dtype=dtype, device="cuda")
    actual = planner.cell(problem, plan, *inputs)

    def expected(input, weights, bias, old_h, old_cell):
        state = lltm_cell_reference(input, weights, bias, old_h, old_cell)
        pre = torch.addmm(bias, torch.cat([old_h, input], 1), weights.t())
        i, o, candidate = pre.chunk(3, 1)
        gates = [i.sigmoid(), o.sigmoid(), torch.nn.functional.elu(candidate)]
        return [*state, torch.cat(gates, 1)]

    exact, baseline = expected(*to_double(inputs)), expected(*inputs)
    all_accurate(actual, exact, baseline, ulps=4, sums=True, parts=ACTIVATIONS)
    assert bits(planner.cell(problem, with_four_stages(plan), *inputs)) == bits(actual)


@pytest.mark.parametrize(("name", "sizes", "dtype"), OTHER_CHIPS)
def test_products_as_on_a_chip_with_less_shared_memory(name, sizes, dtype):
    planner, problem, plan = planned_for(name, sizes, dtype)
    input, weights, _, old_h, _ = cell_inputs(*sizes, dtype=dtype, device="cuda")
    operands = torch.randn(sizes[0], 3 * sizes[2]).to(input), input, weights, old_h
    actual = planner.products(problem, plan, *operands)

    def expected(grad_pre, input, weights, old_h):
        grad_x = grad_pre @ weights
        grad_weights = grad_pre.t() @ torch.cat([old_h, input], 1)
        hidden = old_h.size(1)
        return [grad_x[:, hidden:], grad_weights, grad_pre.sum(0), grad_x[:, :hidden]]

    exact, baseline = expected(*(t.double() for t in operands)), expected(*operands)
    all_accurate(actual, exact, baseline, ulps=16, sums=True, parts=ACTIVATIONS)
    assert bits(planner.products(problem, with_four_stages(plan), *operands)) == bits(actual)


def test_a_refused_cluster_takes_another_tile():
    """As that of a row which no copy engine takes, which the plan is not told of here."""
    planner = lltm_plans.launches()
    if not planner.this_gpu().wgmma:
        pytest.skip("the code here has no clusters for the cell")
    inputs = cell_inputs(1, 256, 512, dtype=torch.half, device="cuda")
    problem = lltm_plans.problem(planner, (1, 256, 512), "half")
    plan = planner.plan(problem, planner.this_gpu())

    def cell(kernel, stride):
        plan.forward = kernel
        input = inputs[0].as_strided((1, 256), (stride, 1))
        return bits(planner.cell(problem, plan, input, *inputs[1:]))

    cluster, large = planner.Forward.MediumCluster, planner.Forward.Large
    assert cell(cluster, 257) == cell(large, 257) == cell(large, 256)


# Of aligned rows, from a cell that takes clusters in 16 bits; neighbours of a size are not aligned.
@pytest.mark.usefixtures("own_products")
@pytest.mark.parametrize("changed", [0, 1, 2], ids=["batch", "input", "hidden"])
def test_sizes_at_which_plans_change(dtype, changed):
    planner, aligned = lltm_plans.launches(), 16 // dtype.itemsize
    step = aligned if changed else 1

    def with_size(size: int) -> tuple[int, ...]:
        return tuple(size if i == changed else usual for i, usual in enumerate((64, 256, 512)))

    def planned(size: int) -> tuple:
        problem = lltm_plans.problem(planner, with_size(size), TYPES[dtype])
        plan = planner.plan(problem, planner.this_gpu())
        return plan.forward, plan.forward_stages, plan.backward, plan.backward_stages

    changes = bounds(planned, range(step, 4100 if changed == 1 else 1300, step))
    assert changes
    for size in sorted({b + near for b in changes for near in (-step, -1, 0, 1)} - {0}):
        check_against_float64(with_size(size), dtype, "cuda", bias=True)


@pytest.mark.parametrize("dtype", [torch.float, torch.half])
def test_steps_in_a_row_have_the_bits_of_steps_apart(dtype):
    """A kernel is set up while the one before it runs, and must wait for all that this does.

    The launches queue up behind a kernel that sleeps, so that none waits for Python.
    """
    inputs = cell_inputs(64, 256, 512, dtype=dtype, device="cuda", requires_grad=True)
    input, weights, bias, old_h, old_cell = inputs

    def steps(between=None):
        h, c = old_h, old_cell
        for _ in range(200):
            h, c = lltm_cell(input, weights, bias, h, c)
            if between is not None:
                between()
                if h.requires_grad:
                    h.register_hook(lambda grad: between())
        return h, c

    def run(between=None):
        with torch.no_grad():  # states of steps ago are written over
            torch.cuda._sleep(20_000_000)
            plain = steps(between)
        torch.cuda._sleep(20_000_000)
        results = steps(between)
        torch.cuda._sleep(60_000_000)
        given = [torch.full_like(result, 1 / 64) for result in results]
        return [*plain, *results, *torch.autograd.grad(results, inputs, given)]

    expected = run(between=torch.cuda.synchronize)
    assert all(t.isfinite().all() for t in expected)
    assert bits(run()) == bits(expected)
    with torch.no_grad():
        assert bits(captured_in_graph(steps)) == bits(expected[:2])
