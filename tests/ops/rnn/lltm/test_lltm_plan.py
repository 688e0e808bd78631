"""Which kernels run a cell, on devices that need not be there."""

import subprocess
import sys
from pathlib import Path

import lltm_plans
import plans
import pytest
from lltm_plans import gpu, problem

SMALL, MIDDLE, LARGE = (16, 32, 128), (64, 256, 512), (128, 1024, 1024)
H100 = "H100, H200"


@pytest.fixture(scope="module")
def planner():
    return plans.load().lltm


def planned(planner, sizes, type, name=H100, **facts):
    """The kernels of the forward and of the backward pass."""
    plan = planner.plan(problem(planner, sizes, type, **facts), gpu(planner, name))
    return plan.forward.name, plan.backward.name


def forward(*args, **facts):
    return planned(*args, **facts)[0]


def backward(*args, **facts):
    return planned(*args, **facts)[1]


@pytest.mark.parametrize(
    ("name", "type", "sizes", "kernels"),
    [
        (H100, "float", SMALL, ("Tiny", "Medium")),
        (H100, "float", MIDDLE, ("Medium", "Medium")),
        (H100, "float", LARGE, ("Large", "Large")),
        (H100, "double", SMALL, ("Medium", "Medium")),
        (H100, "double", MIDDLE, ("Medium", "Medium")),
        (H100, "double", LARGE, ("Library", "Library")),
        (H100, "half", SMALL, ("Medium", "Medium")),
        (H100, "half", MIDDLE, ("MediumCluster", "Medium")),
        (H100, "half", LARGE, ("LargeCluster", "Large")),
        (H100, "bfloat16", (64, 512, 1024), ("WideCluster", "Large")),
        ("H100 with code for 9.0", "half", SMALL, ("Medium", "Medium")),
        ("H100 with code for 9.0", "half", MIDDLE, ("Medium", "Medium")),
        ("H100 with code for 9.0", "half", LARGE, ("Library", "Large")),
        ("H100 with code for 9.0", "float", LARGE, ("Large", "Large")),
        ("A100", "float", SMALL, ("Tiny", "Medium")),
        ("A100", "float", MIDDLE, ("Medium", "Medium")),
        ("A100", "float", LARGE, ("Large", "Large")),
        ("A100", "half", MIDDLE, ("Medium", "Medium")),
        ("A100", "half", LARGE, ("Library", "Large")),
        ("A100", "half", (256, 256, 320), ("Large", "Large")),
        ("A100", "double", (256, 256, 320), ("Medium", "Large")),
        ("A40", "bfloat16", (256, 256, 320), ("Large", "Large")),
        ("A40", "float", SMALL, ("Tiny", "Medium")),
        ("A40", "float", LARGE, ("Library", "Library")),
        ("A40", "double", MIDDLE, ("Medium", "Large")),
        ("L4", "half", SMALL, ("Medium", "Medium")),
        ("L4", "bfloat16", (128, 256, 512), ("Large", "Large")),
        ("T4", "float", SMALL, ("Library", "Library")),
        ("T4", "half", MIDDLE, ("Library", "Library")),
        ("T4", "double", SMALL, ("Library", "Library")),
    ],
)
def test_kernels(planner, name, type, sizes, kernels):
    assert planned(planner, sizes, type, name) == kernels


# Each pair of sizes is one unit or row apart, with the kernel changing between the two.
@pytest.mark.parametrize(
    ("kernel", "type", "below", "above", "names"),
    [
        (forward, "float", (16, 64, 256), (17, 64, 256), "Tiny Medium"),  # work
        (forward, "float", (128, 64, 752), (128, 64, 768), "Medium Large"),  # 94 and 96 tiles
        (forward, "float", (256, 1024, 1024), (257, 1024, 1024), "Large Library"),  # work
        (forward, "double", (64, 1024, 1024), (65, 1024, 1024), "Medium Library"),
        (forward, "half", (32, 64, 512), (32, 64, 520), "Medium MediumCluster"),  # 64 and 65 tiles
        (forward, "half", (16, 64, 1056), (16, 64, 1064), "Medium WideCluster"),  # 132, 133
        (forward, "half", (17, 64, 720), (17, 64, 728), "MediumCluster WideCluster"),  # 30 and 31
        (forward, "half", (17, 64, 1200), (17, 64, 1208), "WideCluster Medium"),
        (forward, "half", (65, 64, 600), (65, 64, 608), "WideCluster LargeCluster"),
        (forward, "half", (128, 64, 1200), (129, 64, 1200), "LargeCluster Library"),
        (forward, "half", (64, 3072, 1024), (64, 3080, 1024), "WideCluster Library"),  # width
        (backward, "float", (32, 1088, 1024), (32, 1089, 1024), "Medium Large"),  # 132, 133 tiles
        (backward, "float", (512, 16, 512), (513, 16, 512), "Large Library"),  # rows
        (backward, "float", (256, 1024, 1024), (257, 1024, 1024), "Large Library"),  # work
        (backward, "bfloat16", LARGE, (129, 1024, 1024), "Large Library"),
        (backward, "double", (64, 1024, 1024), (65, 1024, 1024), "Large Library"),
        # A single row, beside which the weights are large.
        (forward, "float", (1, 256, 512), (1, 257, 512), "Tiny Library"),
        (backward, "float", (1, 1024, 1024), (1, 1025, 1024), "Medium Library"),
    ],
)
def test_limits_of_kernels(planner, kernel, type, below, above, names):
    assert [kernel(planner, sizes, type) for sizes in (below, above)] == names.split()


@pytest.mark.parametrize(("kernel", "below"), [(forward, "Medium"), (backward, "Large")])
def test_limit_of_floats_that_are_rounded(planner, kernel, below):
    assert kernel(planner, (64, 1024, 1024), "float", tf32=True) == below
    assert kernel(planner, (65, 1024, 1024), "float", tf32=True) == "Library"


def test_only_columns_that_are_asked_for_count(planner):
    assert backward(planner, (64, 1024, 512), "float") == "Large"
    assert backward(planner, (64, 1024, 512), "float", grad_columns=512) == "Medium"
    assert backward(planner, (64, 1024, 512), "float", grad_columns=0) == "Medium"


@pytest.mark.parametrize("name", [H100, "A100", "A40"])
@pytest.mark.parametrize("type", ["half", "bfloat16", "float", "double"])
def test_rows_that_are_not_aligned(planner, type, name):
    """The library has those of 16 bits; the medium tile takes a few of the others."""
    few = "Medium" if type in ("float", "double") else "Library"
    for sizes in (SMALL, MIDDLE) if few == "Library" else ((128, 256, 512),):
        assert planned(planner, sizes, type, name, aligned=False) == (few, few)
    for sizes in (LARGE, (129, 256, 512)):
        assert planned(planner, sizes, type, name, aligned=False) == ("Library", "Library")


def test_clusters_take_no_rows_that_overlap(planner):
    assert forward(planner, MIDDLE, "half", apart=False) == "Medium"
    assert forward(planner, LARGE, "half", apart=False) == "Library"


@pytest.mark.parametrize("sizes", [(0, 4, 8), (4, 8, 0), (0, 0, 0)])
def test_nothing_to_multiply(planner, sizes):
    for name in lltm_plans.GPUS:
        assert planned(planner, sizes, "float", name) == ("Library", "Library")
    plan = planner.plan(problem(planner, sizes, "float"), planner.Cpu())
    assert (plan.forward.name, plan.backward.name) == ("Library", "Library")


@pytest.mark.parametrize(
    ("name", "forward_stages", "medium", "large"),
    [(H100, 4, 4, 4), ("A100", 4, 4, 3), ("A40", 3, 3, 3), ("L4", 3, 3, 3)],
)
def test_stages_that_shared_memory_has_room_for(planner, name, forward_stages, medium, large):
    """Two of the large backward blocks share an SM of an A100 with three stages, not with four."""
    of_medium = planner.plan(problem(planner, SMALL, "float"), gpu(planner, name))
    of_large = planner.plan(problem(planner, (128, 256, 512), "float"), gpu(planner, name))
    assert (of_medium.backward.name, of_large.backward.name) == ("Medium", "Large")
    assert {of_medium.forward_stages, of_large.forward_stages} == {forward_stages}
    assert (of_medium.backward_stages, of_large.backward_stages) == (medium, large)


def test_only_a_row_of_floats_is_the_librarys(planner):
    assert forward(planner, (2, 512, 1024), "float") != "Library"
    assert forward(planner, (1, 1024, 2048), "double") != "Library"


@pytest.mark.parametrize(("type", "stages"), [("float", 3), ("half", 3), ("double", 4)])
def test_two_backward_blocks_share_an_sm_where_there_are_many_tiles(planner, type, stages):
    """Of the weights' gradient, 64 by 64: 120 and 135 for 132 SMs."""
    for sizes, expected in (((16, 208, 304), 4), ((16, 256, 320), stages)):
        plan = planner.plan(problem(planner, sizes, type), gpu(planner, H100))
        assert (plan.backward.name, plan.backward_stages) == ("Medium", expected)


@pytest.mark.parametrize("sms", [16, 78, 132])
@pytest.mark.parametrize("clusters", [0, 1, 4, 16, 33])
def test_clusters_run_all_at_once(planner, sms, clusters):
    """As many as the GPU says: none where it can launch none, as part of a chip may not."""
    part, seen = gpu(planner, H100), set()
    part.sms, part.clusters = sms, clusters
    tiles = {"MediumCluster": (64, 24), "WideCluster": (64, 40), "LargeCluster": (128, 40)}
    for batch_size in (1, 17, 64, 128, 200):
        for hidden_size in range(8, 1400, 8):
            sizes = (batch_size, 64, hidden_size)
            kernel = planner.plan(problem(planner, sizes, "half"), part).forward.name
            if kernel in tiles:
                seen.add(kernel)
                rows, units = tiles[kernel]
                assert -(-batch_size // rows) * -(-hidden_size // units) <= clusters
    assert seen or clusters < 16


def test_the_number_of_sms_counts(planner):
    """The same code and shared memory; 96 of 132 SMs are 58 of 80."""
    few = gpu(planner, H100)
    few.sms = 80
    cell = problem(planner, (64, 64, 928), "float")  # 58 large tiles
    assert planner.plan(cell, gpu(planner, H100)).forward.name == "Medium"
    assert planner.plan(cell, few).forward.name == "Large"
    cell.hidden_size -= 16
    assert planner.plan(cell, few).forward.name == "Medium"


def test_a_block_without_room_for_three_stages_leaves_all_to_the_library(planner):
    least = gpu(planner, "L4")
    for least.shared_bytes, planned in ((3 * 30464, "Tiny"), (3 * 30464 - 1, "Library")):
        assert planner.plan(problem(planner, SMALL, "float"), least).forward.name == planned


def on_cpu(planner, sizes, type, **features):
    """Whether forward and backward make their own products."""
    cpu = planner.Cpu()
    for name in ("wide_vectors", "bfloat16_products", "half_products", "many_threads"):
        setattr(cpu, name, features.get(name, False))
    plan = planner.plan(problem(planner, sizes, type), cpu)
    assert {plan.forward.name, plan.backward.name} <= {"Cpu", "Library"}
    return plan.forward.name == "Cpu", plan.backward.name == "Cpu"


@pytest.mark.parametrize("type", ["half", "bfloat16", "float", "double"])
def test_a_processor_without_wide_vectors(planner, type):
    assert on_cpu(planner, (16, 128, 128), type) == (True, True)
    assert on_cpu(planner, (17, 128, 128), type) == (False, False)


# Each pair of sizes is one row apart, with the kernel changing between the two.
@pytest.mark.parametrize(
    ("type", "features", "sizes", "own"),
    [
        ("float", (), (16, 1024, 1024), (True, True)),
        ("float", (), (17, 1024, 1024), (True, False)),
        ("float", (), (20000, 64, 64), (True, True)),
        ("float", (), (20001, 64, 64), (False, True)),
        ("float", ("many_threads",), LARGE, (True, True)),
        ("double", (), MIDDLE, (True, True)),
        ("double", (), (65, 256, 512), (True, False)),
        ("double", (), (20000, 64, 64), (True, False)),
        ("double", (), (20001, 64, 64), (False, False)),
        ("double", ("many_threads",), (16, 1024, 1024), (True, True)),
        ("double", ("many_threads",), (17, 1024, 1024), (True, False)),
        ("half", ("half_products", "many_threads"), (20000, 64, 64), (True, True)),
        ("half", ("half_products", "many_threads"), (20001, 64, 64), (False, True)),
        ("bfloat16", ("bfloat16_products", "many_threads"), (16, 1024, 1024), (False, True)),
        ("bfloat16", ("bfloat16_products", "many_threads"), (17, 1024, 1024), (False, False)),
        *[
            (type, features, sizes, own)
            for type, other in (("half", "bfloat16"), ("bfloat16", "half"))
            for features, sizes, own in [
                ((), LARGE, (True, True)),
                ((f"{type}_products",), (1, 1024, 1024), (True, True)),
                ((f"{type}_products",), (2, 1024, 1024), (False, False)),
                ((f"{other}_products",), (2, 1024, 1024), (True, True)),
            ]
        ],
    ],
)
def test_a_processor_with_wide_vectors(planner, type, features, sizes, own):
    assert on_cpu(planner, sizes, type, wide_vectors=True, **dict.fromkeys(features, True)) == own


@pytest.mark.slow
def test_the_tool_times_the_kernels():
    tool = Path(__file__).parents[4] / "tools" / "time_lltm_kernels.py"
    asked = [sys.executable, str(tool), "--sizes", "2,3,4", "--dtype", "float"]
    told = subprocess.run(asked, capture_output=True, text=True)
    assert told.returncode == 0, told.stderr
    assert all(f"float {way} 2,3,4: Library" in told.stdout for way in ("forward", "backward"))
