"""Which kernels run a whole sequence, on GPUs that need not be there."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

import lltm_jit
from lltm_jit import native

# Architecture, bytes of shared memory that a block may ask for, SMs.
GPUS = {
    "H100, H200": (90, 227 * 1024, 132),
    "A100": (80, 163 * 1024, 108),
    "L4": (89, 99 * 1024, 58),
    "T4": (75, 64 * 1024, 40),
}
H100 = "H100, H200"
# Gates, states, parameters, and whether the gates are added.
CELLS = {"lltm": (3, 2, 0, True), "lstm": (4, 2, 0, True), "gru": (3, 1, 0, False)}


@pytest.fixture(scope="module")
def plans() -> Any:
    """The module of sequence_plans.cpp."""
    kernels = native.kernels_directory()
    sources = [
        Path(__file__).with_name("sequence_plans.cpp"),
        kernels / "rnn" / "sequence" / "sequence_plan.cpp",
    ]
    return lltm_jit.load("sequence_plans", sources, extra_include_paths=[str(kernels)])


def sizes(
    plans: Any, batch_size: int, hidden_size: int, type: str = "half", cell: str = "lltm"
) -> Any:
    result = plans.Sizes()
    result.steps, result.batch_size, result.hidden_size = 100, batch_size, hidden_size
    result.gates, result.states, result.parameters, result.adds_gates = CELLS[cell]
    result.type = getattr(plans.Type, type)
    return result


def gpu(plans: Any, name: str = H100) -> Any:
    result = plans.Gpu()
    result.architecture, result.shared_bytes, result.sms = GPUS[name]
    result.grids = True
    return result


def blocks(
    plans: Any, of: Any, name: str = H100, aligned: bool = True, way: str = "forward"
) -> int:
    """How many blocks a cluster has; 0 where a sequence runs step by step."""
    plan = plans.plan(of, aligned, getattr(plans.Pass, way), gpu(plans, name))
    return plan.shape.blocks if plan.one_launch else 0


@pytest.mark.parametrize(
    ("name", "type", "batch_size", "hidden_size", "planned"),
    [
        (H100, "half", 16, 32, (1, 2)),
        (H100, "half", 64, 128, (1, 4)),
        (H100, "bfloat16", 64, 256, (4, 4)),
        (H100, "half", 16, 512, (16, 16)),
        (H100, "half", 64, 512, (8, 8)),
        (H100, "half", 16, 768, (16, 16)),
        (H100, "half", 16, 1024, (64, 64)),
        (H100, "half", 16, 2048, (128, 128)),
        (H100, "float", 16, 32, (1, 2)),
        (H100, "float", 16, 512, (32, 16)),
        (H100, "float", 64, 512, (32, 32)),
        (H100, "float", 16, 1024, (64, 64)),
        (H100, "float", 16, 2048, (128, 128)),
        (H100, "float", 16, 2176, (0, 0)),
        (H100, "double", 16, 32, (0, 0)),
        ("A100", "half", 64, 128, (1, 1)),
        ("A100", "half", 16, 512, (0, 0)),
        ("L4", "bfloat16", 16, 64, (1, 1)),
        ("T4", "half", 16, 32, (0, 0)),
    ],
)
def test_way(plans, name, type, batch_size, hidden_size, planned):
    of = sizes(plans, batch_size, hidden_size, type)
    assert (blocks(plans, of, name), blocks(plans, of, name, way="backward")) == planned


# The quickest of the shapes that were timed on an H200, and others within 4 %.
QUICKEST = [
    ("half", "lltm", "forward", 16, 128, {(1, 8, 1, 4, 1, 0)}),
    ("half", "lltm", "forward", 16, 256,
     {(8, 2, 4, 4, 1, 0), (16, 1, 4, 4, 1, 0), (16, 1, 3, 4, 1, 0)}),
    ("half", "lltm", "forward", 16, 512, {(16, 2, 4, 4, 1, 0), (16, 2, 2, 4, 1, 0)}),
    ("half", "lltm", "forward", 16, 768, {(16, 3, 4, 4, 1, 3)}),
    ("half", "lltm", "forward", 64, 512, {(8, 4, 2, 8, 1, 0)}),
    ("half", "lltm", "forward", 128, 512,
     {(8, 4, 2, 16, 1, 2), (8, 4, 2, 16, 1, 3), (8, 4, 2, 16, 1, 1)}),
    ("half", "lltm", "backward", 16, 128, {(8, 1, 4, 4, 1, 0)}),
    ("half", "lltm", "backward", 16, 256, {(16, 1, 8, 4, 1, 0), (8, 2, 4, 4, 1, 0)}),
    ("half", "lltm", "backward", 16, 512, {(16, 2, 4, 4, 1, 0)}),
    ("half", "lltm", "backward", 16, 768, {(16, 3, 4, 4, 1, 4)}),
    ("half", "lltm", "backward", 64, 512, {(8, 4, 2, 8, 1, 3)}),
    ("half", "lltm", "backward", 128, 512, {(8, 4, 2, 16, 1, 2), (8, 4, 2, 16, 1, 1)}),
    ("half", "lstm", "forward", 16, 128,
     {(4, 2, 2, 4, 1, 0), (8, 1, 3, 4, 1, 0), (8, 1, 4, 4, 1, 0)}),
    ("half", "lstm", "forward", 64, 512, {(8, 4, 2, 8, 1, 5)}),
    ("half", "lstm", "forward", 128, 512, {(8, 4, 2, 16, 1, 6)}),
    ("half", "lstm", "backward", 16, 768, {(16, 3, 4, 4, 1, 7)}),
    ("half", "lstm", "backward", 128, 512, {(8, 4, 2, 16, 1, 6), (16, 2, 4, 8, 1, 0)}),
    ("float", "lltm", "forward", 16, 64, {(1, 4, 1, 4, 1, 0)}),
    ("float", "lltm", "forward", 16, 128, {(8, 1, 4, 4, 1, 0), (8, 1, 8, 4, 1, 0)}),
    ("float", "lltm", "forward", 16, 256, {(16, 1, 4, 4, 1, 0)}),
    ("float", "lltm", "forward", 16, 512, {(32, 1, 8, 4, 1, 0)}),
    ("float", "lltm", "forward", 64, 512, {(32, 1, 8, 16, 2, 0)}),
    ("float", "lltm", "forward", 128, 512, {(32, 1, 8, 32, 2, 1)}),
    ("float", "lltm", "forward", 64, 1024, {(64, 1, 8, 32, 2, 5)}),
    ("float", "lltm", "forward", 16, 2048, {(128, 1, 8, 16, 1, 7)}),
    ("float", "lltm", "backward", 16, 128, {(8, 1, 4, 4, 1, 0)}),
    ("float", "lltm", "backward", 16, 256, {(16, 1, 4, 4, 1, 0), (16, 1, 8, 4, 1, 0)}),
    ("float", "lltm", "backward", 16, 512, {(16, 2, 4, 4, 1, 2), (16, 2, 4, 4, 1, 1)}),
    ("float", "lltm", "backward", 64, 512, {(32, 1, 8, 16, 1, 1), (32, 1, 8, 16, 2, 0)}),
    ("float", "lltm", "backward", 128, 512, {(32, 1, 8, 32, 2, 2), (32, 1, 8, 32, 2, 1)}),
    ("float", "lltm", "backward", 64, 1024, {(64, 1, 8, 32, 2, 6), (64, 1, 8, 32, 2, 5)}),
    ("float", "lstm", "forward", 16, 512, {(32, 1, 8, 4, 1, 0)}),
    ("float", "lstm", "forward", 64, 512, {(32, 1, 8, 16, 1, 3), (32, 1, 8, 16, 2, 1)}),
    ("float", "lstm", "backward", 16, 512, {(32, 1, 8, 4, 1, 0)}),
    ("float", "lstm", "backward", 64, 512, {(32, 1, 8, 16, 1, 2)}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("type", "cell", "way", "batch_size", "hidden_size", "quickest"), QUICKEST, ids=str
)
def test_the_quickest_shape_is_planned(plans, type, cell, way, batch_size, hidden_size, quickest):
    of = sizes(plans, batch_size, hidden_size, type, cell)
    shape = plans.plan(of, True, getattr(plans.Pass, way), gpu(plans)).shape
    planned = (shape.blocks, shape.groups, shape.splits)
    planned += (shape.rows, shape.phases, shape.shared_tiles)
    assert planned in quickest


def test_rows_that_are_not_aligned_run_step_by_step(plans):
    assert blocks(plans, sizes(plans, 16, 128), aligned=False) == 0
    assert blocks(plans, sizes(plans, 16, 126)) == 0
    assert blocks(plans, sizes(plans, 16, 124)) == 1


def test_a_grid_has_no_more_blocks_than_the_chip_has_sms(plans):
    """They wait for each other, and so all of them must run."""
    of = sizes(plans, 16, 1024)
    assert plans.plan(of, True, plans.Pass.forward, gpu(plans)).shape.grid
    for sms in (132, 114, 64, 63, 40, 20):
        chip = gpu(plans)
        chip.sms = sms
        plan = plans.plan(of, True, plans.Pass.forward, chip)
        assert not plan.shape.grid or plan.shape.blocks <= sms


def test_there_are_no_grids_where_they_are_off(plans):
    chip = gpu(plans)
    chip.grids = False
    for hidden_size in (776, 1000, 1024, 2048):
        for way in (plans.Pass.forward, plans.Pass.backward):
            assert not plans.plan(sizes(plans, 16, hidden_size), True, way, chip).shape.grid


def test_a_grid_has_memory_for_each_step(plans):
    for way, arrays in ((plans.Pass.forward, 1), (plans.Pass.backward, 3)):
        for batch_size in (3, 16):
            of = sizes(plans, batch_size, 1000)
            plan = plans.plan(of, True, way, gpu(plans))
            assert plan.shape.grid
            least = of.steps * batch_size * 1000 * arrays * 2
            assert least <= plan.workspace <= 1.5 * least
    assert plans.plan(sizes(plans, 16, 512), True, plans.Pass.forward, gpu(plans)).workspace == 0


def test_clusters_take_more_rows_where_the_batch_is_large(plans):
    def rows(batch_size):
        plan = plans.plan(sizes(plans, batch_size, 512), True, plans.Pass.forward, gpu(plans))
        return plan.shape.rows

    assert [rows(16), rows(64), rows(128)] == [4, 8, 16]


@pytest.mark.parametrize("name", [H100, "A100", "L4"])
@pytest.mark.parametrize("type", ["half", "bfloat16", "float"])
@pytest.mark.parametrize("cell", CELLS)
def test_what_is_planned_can_run(plans, cell, type, name):
    """In one launch: within the registers' file, the shared memory and the barriers of a block."""
    seen = 0
    ways = (plans.Pass.forward, plans.Pass.backward)
    batch_sizes, hidden_sizes = (
        [1, 4, 7, 16, 33, 64, 128, 500],
        [*range(4, 300, 12), 512, 768, 1024],
    )
    for way, batch_size, hidden_size in itertools.product(ways, batch_sizes, hidden_sizes):
        of = sizes(plans, batch_size, hidden_size, type, cell)
        plan = plans.plan(of, True, way, gpu(plans, name))
        if not plan.one_launch:
            continue
        seen += 1
        shape = plan.shape
        assert shape.tiles() * 16 >= hidden_size
        if shape.grid:
            assert name == H100
            assert shape.blocks <= gpu(plans, name).sms
            assert shape.groups == 1
            # Each warp has a part of k.
            assert shape.tiles_of_warp() * (shape.splits - 1) < shape.tiles()
        else:
            assert shape.blocks in ((1, 2, 4, 8, 16) if name == H100 else (1,))
            assert shape.rows <= 16
            assert shape.groups <= 15
        assert shape.rows in (4, 8, 16, 32, 64)
        assert shape.splits * 8 >= shape.rows
        assert shape.phases in ((1, 2) if shape.grid and shape.rows >= 16 else (1,))
        assert shape.warps() <= 16
        assert shape.bytes == (4 if type == "float" else 2)
        assert shape.shared_bytes(of, way) <= gpu(plans, name).shared_bytes
        # Tiles of k that a warp multiplies, and the sums that each of them is added to.
        tiles, sums = shape.tiles_of_warp(), of.gates
        if way == plans.Pass.backward and shape.blocks > 1 and not shape.grid:
            tiles, sums = shape.own_tiles(of.gates), shape.output_tiles()
        assert shape.streamed_tiles == 0 or (shape.grid and shape.phases == 1)
        in_registers = tiles - shape.shared_tiles - shape.streamed_tiles
        assert 0 < in_registers <= tiles
        weights = 2 * shape.bytes * sums * in_registers
        assert weights < min(255, 65536 // (32 * shape.warps()))
    assert seen > 50
