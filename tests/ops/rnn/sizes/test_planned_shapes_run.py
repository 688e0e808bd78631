"""That what is planned for a whole sequence can run, on GPUs that need not be there."""

import itertools
import shutil
import subprocess
from typing import Any

import pytest
from sequence_plans import described, gpu, sizes

from lltm_jit import native

# Those of which nobody has said what clusters they run.
NEWER_GPUS = {
    "a seventh of an H200": (90, 227 * 1024, 16),
    "H20": (90, 227 * 1024, 78),
    "H200": (90, 227 * 1024, 132),
    "B200": (100, 227 * 1024, 148),
    "Thor": (110, 227 * 1024, 20),
    "RTX 5090": (120, 99 * 1024, 170),
    "GB10": (121, 99 * 1024, 48),
}


def assert_can_run(of: Any, way: Any, gpu: Any, plan: Any, backward: bool) -> None:
    """In one launch: within the registers, shared memory, barriers and clusters of the GPU."""
    shape = plan.shape
    assert shape.tiles() * 16 >= of.hidden_size
    if shape.grid:
        assert gpu.grids
        assert gpu.architecture >= 90
        assert shape.blocks <= gpu.sms
        assert shape.groups == 1
        # Each warp has a part of k.
        assert shape.tiles_of_warp() * (shape.splits - 1) < shape.tiles()
    else:
        at_once = dict(zip((1, 2, 4, 8, 16), (gpu.sms, *gpu.clusters), strict=True))
        assert at_once[shape.blocks] > 0
        assert shape.rows <= 16
        assert shape.groups <= 15
    usual = (4, 8, 16, 24, 32, 48, 64)
    assert shape.rows in usual or (shape.rows, shape.blocks, shape.bytes) == (2, 1, 4)
    assert shape.splits * 8 >= shape.rows
    assert shape.phases in ((1, 2) if shape.grid and shape.rows >= 16 else (1,))
    assert shape.warps() <= 16
    assert shape.shared_bytes(of, way) <= gpu.shared_bytes
    # Tiles of k that a warp multiplies, and the sums that each of them is added to.
    tiles, sums = shape.tiles_of_warp(), of.gates
    if backward and shape.blocks > 1 and not shape.grid:
        tiles, sums = shape.own_tiles(of.gates), shape.output_tiles()
    assert shape.streamed_tiles == 0 or (shape.grid and shape.phases == 1)
    in_registers = tiles - shape.shared_tiles - shape.streamed_tiles
    assert 0 < in_registers <= tiles
    weights = 2 * shape.bytes * sums * in_registers
    assert weights < min(255, 65536 // (32 * shape.warps()))


BATCH_SIZES = [1, 4, 7, 16, 33, 64, 128, 500]
HIDDEN_SIZES = [1, 2, 3, *range(5, 300, 11), 512, 650, 768, 1024, 1151]


@pytest.mark.thinned
@pytest.mark.parametrize("name", ["H100", "A100", "L4", "T4", "B200", "RTX 5090"])
@pytest.mark.parametrize("type", ["half", "bfloat16", "float"])
def test_what_is_planned_can_run(plans, cell, type, name):
    seen, chip = 0, gpu(plans, name)
    ways = (plans.Pass.forward, plans.Pass.backward)
    for way, batch_size, hidden_size in itertools.product(ways, BATCH_SIZES, HIDDEN_SIZES):
        of = sizes(plans, batch_size, hidden_size, type, cell)
        plan = plans.plan(of, way, chip)
        if plan.persistent:
            seen += 1
            assert_can_run(of, way, chip, plan, way == plans.Pass.backward)
            assert plan.shape.bytes == (4 if type == "float" else 2)
            assert chip.architecture >= 90 or plan.shape.blocks == 1
            assert chip.architecture >= 80 or type != "bfloat16"
    assert seen > 50 or (name, type) == ("T4", "bfloat16")


@pytest.mark.parametrize("name", ["H100", "A100", "B200"])
@pytest.mark.parametrize("type", ["half", "float"])
@pytest.mark.parametrize("cell", ["layer_norm_lstm", "layer_norm_gru"])
def test_a_cell_that_normalises_runs_in_clusters_or_step_by_step(plans, cell, type, name):
    seen, chip = 0, gpu(plans, name)
    ways = (plans.Pass.forward, plans.Pass.backward)
    for way, batch_size, hidden_size in itertools.product(ways, BATCH_SIZES, HIDDEN_SIZES):
        of = sizes(plans, batch_size, hidden_size, type, cell)
        plan = plans.plan(of, way, chip)
        assert plan.many_rows.blocks == 0
        if plan.persistent:
            seen += 1
            assert_can_run(of, way, chip, plan, way == plans.Pass.backward)
            assert plan.shape.blocks > 1
            assert not plan.shape.grid
            assert hidden_size % 4 == 0
            shape, sums = plan.shape, 2 if way == plans.Pass.forward else 4
            ordinary = sizes(plans, batch_size, hidden_size, type, cell, normalises=False)
            room = shape.shared_bytes(of, way) - shape.shared_bytes(ordinary, way)
            assert room == sums * 8 * (shape.tiles() * shape.rows + 1)
    assert (seen > 50) == (chip.architecture >= 90)


def clusters(sms: int, largest: int) -> tuple[int, ...]:
    """How many of each size run at once, of those up to the largest that the GPU can launch."""
    return tuple(sms // size if size <= largest else 0 for size in (2, 4, 8, 16))


@pytest.mark.parametrize("largest", [0, 1, 2, 4, 8, 16])
@pytest.mark.parametrize("name", NEWER_GPUS)
def test_no_larger_cluster_is_planned_than_the_gpu_can_launch(plans, name, largest):
    architecture, shared_bytes, sms = NEWER_GPUS[name]
    chip = described(plans, architecture, shared_bytes, sms, clusters(sms, largest))
    ways, seen = (plans.Pass.forward, plans.Pass.backward), set()
    types = [("half", "lltm"), ("float", "lstm"), ("bfloat16", "gru")]
    for (type, cell), way, batch_size, hidden_size in itertools.product(
        types, ways, (1, 16, 128), (32, 128, 192, 256, 384, 512, 768, 1024, 2048)
    ):
        of = sizes(plans, batch_size, hidden_size, type, cell)
        plan = plans.plan(of, way, chip)
        if plan.persistent:
            assert_can_run(of, way, chip, plan, way == plans.Pass.backward)
            assert plan.shape.grid or plan.shape.blocks <= max(largest, 1)
            seen.add("grid" if plan.shape.grid else plan.shape.blocks)
    assert 1 in seen
    assert largest < 2 or seen & {2, 4, 8, 16}


def test_clusters_that_would_run_in_turn_are_not_planned(plans):
    of = sizes(plans, 16, 512)
    for at_once, blocks_planned in ((4, 16), (1, 8)):
        chip = described(plans, 90, 227 * 1024, 132, (66, 33, 16, at_once))
        assert plans.plan(of, plans.Pass.forward, chip).shape.blocks == blocks_planned


@pytest.mark.parametrize("name", NEWER_GPUS)
def test_a_refused_launch_takes_the_next_plan_and_at_last_none(plans, name):
    architecture, shared_bytes, sms = NEWER_GPUS[name]
    types = [("half", "lltm"), ("float", "lstm")]
    ways = (plans.Pass.forward, plans.Pass.backward)
    for (type, cell), way, hidden_size in itertools.product(types, ways, (64, 256, 512, 768, 1024)):
        of = sizes(plans, 16, hidden_size, type, cell)
        chip = described(plans, architecture, shared_bytes, sms, clusters(sms, 16))
        refused = []
        while (plan := plans.plan(of, way, chip)).persistent:
            assert_can_run(of, way, chip, plan, way == plans.Pass.backward)
            kind = "grid" if plan.shape.grid else plan.shape.blocks
            assert kind not in refused
            refused.append(kind)
            chip = plans.after_refusal(chip, plan)
        assert len(refused) <= 6
    assert plan.workspace == 0


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
