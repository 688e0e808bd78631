"""Which kernels run a whole sequence, on GPUs that need not be there."""

from __future__ import annotations

import itertools
import math
from typing import Any

import plans as all_plans
import pytest
import sequence_plans
from sequence_plans import QUICKEST, described, sizes

H100 = "H100"


@pytest.fixture(scope="module")
def plans() -> Any:
    return all_plans.load().sequence


def gpu(plans: Any, name: str = H100) -> Any:
    return sequence_plans.gpu(plans, name)


def blocks(plans: Any, of: Any, name: str = H100, way: str = "forward") -> int:
    """How many blocks a cluster has; 0 where a sequence runs step by step."""
    plan = plans.plan(of, getattr(plans.Pass, way), gpu(plans, name))
    return plan.shape.blocks if plan.persistent else 0


def shape_of(plan: Any) -> tuple[Any, ...]:
    shape = plan.shape
    names = ("blocks", "groups", "splits", "rows", "phases", "shared_tiles", "streamed_tiles")
    return tuple(getattr(shape, name) for name in names)


@pytest.mark.parametrize(
    ("name", "type", "batch_size", "hidden_size", "planned"),
    [
        (H100, "half", 16, 32, (1, 1)),
        (H100, "half", 64, 128, (1, 4)),
        (H100, "bfloat16", 64, 256, (4, 4)),
        (H100, "half", 16, 512, (16, 16)),
        (H100, "half", 64, 512, (8, 8)),
        (H100, "half", 16, 768, (16, 16)),
        (H100, "half", 16, 1024, (64, 64)),
        (H100, "half", 16, 2048, (128, 128)),
        (H100, "half", 512, 1024, (0, 0)),
        (H100, "float", 16, 32, (1, 1)),
        (H100, "float", 16, 512, (32, 16)),
        (H100, "float", 64, 512, (32, 32)),
        (H100, "float", 16, 1024, (64, 64)),
        (H100, "float", 16, 2048, (128, 128)),
        (H100, "float", 16, 2176, (0, 0)),
        (H100, "double", 16, 32, (0, 0)),
        ("A100", "half", 64, 128, (1, 1)),
        ("A100", "half", 16, 512, (0, 0)),
        ("L4", "bfloat16", 16, 64, (1, 1)),
        ("T4", "half", 16, 32, (1, 1)),
        ("T4", "float", 16, 32, (1, 1)),
        ("T4", "bfloat16", 16, 32, (0, 0)),
        ("T4", "half", 16, 512, (0, 0)),
        ("B200", "half", 64, 256, (8, 8)),
        ("B200", "bfloat16", 16, 1024, (64, 64)),
        ("B200", "half", 80, 1152, (72, 72)),
        ("RTX 5090", "half", 16, 256, (8, 8)),
        ("RTX 5090", "float", 16, 768, (48, 48)),
    ],
)
def test_way(plans, name, type, batch_size, hidden_size, planned):
    of = sizes(plans, batch_size, hidden_size, type)
    assert (blocks(plans, of, name), blocks(plans, of, name, way="backward")) == planned


def test_no_gpu_before_8_multiplies_tf32(plans):
    of = sizes(plans, 4, 32, "float")
    of.tf32 = True
    for way in (plans.Pass.forward, plans.Pass.backward):
        found = [plans.plan(of, way, gpu(plans, name)) for name in ("T4", "L4")]
        assert [(plan.persistent, plan.shape.tf32) for plan in found] == [
            (True, False),
            (True, True),
        ]


def test_gpus_before_turing_go_step_by_step(plans):
    chip = gpu(plans, "T4")
    chip.architecture = 70
    assert not plans.plan(sizes(plans, 16, 32), plans.Pass.forward, chip).persistent


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_rounded_floats(plans, way):
    """Their weights take half the room, so that more of them are in registers."""
    exact = sizes(plans, 16, 1024, "float")
    rounded = sizes(plans, 16, 1024, "float")
    rounded.tf32 = True
    shapes = [plans.plan(of, getattr(plans.Pass, way), gpu(plans)).shape for of in (exact, rounded)]
    assert [shape.tf32 for shape in shapes] == [False, True]
    assert shapes[1].shared_tiles < shapes[0].shared_tiles
    assert shapes[1].blocks == shapes[0].blocks


@pytest.mark.parametrize(
    ("type", "cell", "way", "batch_size", "hidden_size", "quickest"), QUICKEST, ids=str
)
def test_the_quickest_shape_is_planned(plans, type, cell, way, batch_size, hidden_size, quickest):
    of = sizes(plans, batch_size, hidden_size, type, cell)
    shape = plans.plan(of, getattr(plans.Pass, way), gpu(plans)).shape
    planned = (shape.blocks, shape.groups, shape.splits)
    planned += (shape.rows, shape.phases, shape.shared_tiles)
    assert planned in quickest


@pytest.mark.parametrize("batch_size", [1, 4, 16])
@pytest.mark.parametrize("way", ["forward", "backward"])
def test_floats_that_fill_the_chip_do_not_go_step_by_step(plans, way, batch_size):
    """A grid that reads a part of the weights at each step is quicker than reading all of them."""
    of = sizes(plans, batch_size, 2048, "float", "lstm")
    plan = plans.plan(of, getattr(plans.Pass, way), gpu(plans))
    assert plan.persistent
    assert plan.shape.grid
    assert plan.shape.streamed_tiles > 0


@pytest.mark.parametrize("type", ["half", "bfloat16", "float"])
def test_any_hidden_size_is_planned_as_the_next_multiple_of_a_group(plans, cell, type):
    """Which has as many hidden units as a group of warps; weights and gates are padded."""
    for hidden_size in (*range(1, 41), 130, *range(649, 654), *range(1149, 1154)):
        group = -(-hidden_size // 16) * 16
        for way, batch_size in itertools.product(
            (plans.Pass.forward, plans.Pass.backward), (5, 64)
        ):
            own, whole = (
                plans.plan(sizes(plans, batch_size, size, type, cell), way, gpu(plans))
                for size in (hidden_size, group)
            )
            assert (own.persistent, own.workspace) == (whole.persistent, whole.workspace)
            assert shape_of(own) == shape_of(whole)
            assert own.persistent or hidden_size > 1000


def test_a_grid_has_no_more_blocks_than_the_chip_has_sms(plans):
    """They wait for each other, and so all of them must run."""
    of = sizes(plans, 16, 1024)
    assert plans.plan(of, plans.Pass.forward, gpu(plans)).shape.grid
    for sms in (132, 114, 64, 63, 40, 20):
        chip = gpu(plans)
        chip.sms = sms
        plan = plans.plan(of, plans.Pass.forward, chip)
        assert not plan.shape.grid or plan.shape.blocks <= sms


def test_there_are_no_grids_where_they_are_off(plans):
    chip = gpu(plans)
    chip.grids = False
    for hidden_size in (776, 1000, 1024, 2048):
        for way in (plans.Pass.forward, plans.Pass.backward):
            assert not plans.plan(sizes(plans, 16, hidden_size), way, chip).shape.grid


def test_the_memory_of_a_grid_does_not_grow_with_the_steps(plans):
    for way, batch_size in itertools.product((plans.Pass.forward, plans.Pass.backward), (16, 64)):
        of, found = sizes(plans, batch_size, 1024), []
        for of.steps in (64, 128, 2048, 1 << 20):
            plan = plans.plan(of, way, gpu(plans))
            assert plan.shape.grid
            found.append(plan.workspace)
        assert found[0] < found[1] == found[2] == found[3] <= 2**26


def test_a_grid_has_memory_for_few_steps(plans):
    for way, arrays in ((plans.Pass.forward, 1), (plans.Pass.backward, 3)):
        for batch_size in (3, 16):
            of = sizes(plans, batch_size, 1000)
            plan = plans.plan(of, way, gpu(plans))
            assert plan.shape.grid
            least = of.steps * batch_size * 1000 * arrays * 2
            assert least <= plan.workspace <= 1.5 * least
    assert plans.plan(sizes(plans, 16, 512), plans.Pass.forward, gpu(plans)).workspace == 0


def of_one_launch(of: Any, shape: Any, way: str, sms: int) -> int:
    """The bytes of operands and of streamed weights that the blocks of a grid index."""
    sets = -(-of.batch_size // shape.rows) * of.directions * of.heads
    arrays = 1 if way == "forward" else of.gates
    operand = shape.rows * 16 * shape.tiles() * shape.bytes
    weights = of.gates * 16 * 16 * (2 if shape.tf32 else shape.bytes)
    streamed = shape.warps() * shape.streamed_tiles * weights
    blocks = min(sets, sms // shape.blocks) * shape.blocks
    return sets * min(of.steps + 1, 128) * arrays * operand + blocks * streamed


def of_many_rows(of: Any, shape: Any) -> int:
    """The bytes of two copies of what a step exchanges, and of streamed weights."""
    rows = -(-of.batch_size // (shape.tiles * shape.turns(of.batch_size)))
    exchanged = 2 * shape.tiles * -(-rows // 8) * 8 * shape.blocks * shape.chunks * 128
    clusters = -(-of.hidden_size // shape.units)
    return exchanged + clusters * shape.blocks * shape.streamed * shape.chunk_bytes(of.gates)


@pytest.mark.parametrize("way", ["forward", "backward"])
@pytest.mark.parametrize(("type", "cell"), [("half", "lstm"), ("float", "lltm"), ("half", "gru")])
def test_the_workspace_holds_what_the_kernels_index(plans, type, cell, way):
    """For every number of rows, of grids and of many rows."""
    chip, pass_, seen = gpu(plans), getattr(plans.Pass, way), set()
    for hidden_size, tf32 in itertools.product((560, 776, 1000, 1504, 2048), (False, True)):
        of = sizes(plans, 1, hidden_size, type, cell)
        of.tf32 = tf32
        for rows in range(1, 260):
            of.batch_size = rows
            for of.directions in range(1, 2 + (rows < 40)):
                plan = plans.plan(of, pass_, chip)
                needed = 0
                if plan.persistent and plan.shape.grid:
                    needed = of_one_launch(of, plan.shape, way, chip.sms)
                    seen.add("one launch")
                elif not plan.persistent and plan.many_rows.blocks:
                    needed = of_many_rows(of, plan.many_rows)
                    seen.add("many rows")
                assert plan.workspace >= needed, (rows, hidden_size, of.directions)
    assert seen == {"one launch", "many rows"}


def test_clusters_take_more_rows_where_the_batch_is_large(plans):
    def rows(batch_size):
        plan = plans.plan(sizes(plans, batch_size, 512), plans.Pass.forward, gpu(plans))
        return plan.shape.rows

    assert [rows(16), rows(64), rows(128)] == [4, 8, 16]


def recurrences(plans: Any, batch_size: int, hidden_size: int, directions: int, heads: int) -> Any:
    of = sizes(plans, batch_size, hidden_size, "half", "lstm")
    of.directions, of.heads = directions, heads
    return of


@pytest.mark.parametrize("way", ["forward", "backward"])
def test_recurrences_are_planned_as_rows_are(plans, way):
    """The chip is divided among all of them: as if each had rows of the batch."""
    for hidden_size, (directions, heads) in itertools.product(
        (16, 64, 256, 512, 1024), ((2, 1), (1, 3), (2, 4), (1, 24))
    ):
        together = recurrences(plans, 64, hidden_size, directions, heads)
        rows = recurrences(plans, 64 * directions * heads, hidden_size, 1, 1)
        both = [plans.plan(of, getattr(plans.Pass, way), gpu(plans)) for of in (together, rows)]
        assert both[0].persistent
        if both[1].persistent:
            assert shape_of(both[0]) == shape_of(both[1])
            assert both[0].workspace == both[1].workspace


@pytest.mark.parametrize(("heads", "hidden_size"), [(3, 256), (6, 128), (12, 64), (24, 32)])
def test_heads_take_little_longer_than_one(plans, heads, hidden_size):
    one, all_heads = (
        plans.plan(recurrences(plans, 16, hidden_size, 1, n), plans.Pass.forward, gpu(plans))
        for n in (1, heads)
    )
    assert all_heads.cycles <= 1.2 * one.cycles


def test_directions_that_do_not_fit_beside_each_other_take_more_rows(plans):
    one, both = (
        plans.plan(recurrences(plans, 64, 512, n, 1), plans.Pass.forward, gpu(plans))
        for n in (1, 2)
    )
    assert (one.shape.rows, both.shape.rows) == (8, 16)
    assert one.cycles < both.cycles < 2 * one.cycles


@pytest.mark.parametrize("way", ["forward", "backward"])
@pytest.mark.parametrize("type", ["half", "float"])
def test_an_sm_has_no_room_for_more_blocks_than_it_needs_to_take(plans, way, type):
    """Else they would gather on the SMs that a product leaves first."""
    chip, pass_ = gpu(plans), getattr(plans.Pass, way)
    seen = set()
    for batch_size, hidden_size in itertools.product((1, 64, 512, 1024, 1 << 14), (16, 64, 256)):
        of = sizes(plans, batch_size, hidden_size, type, "lstm")
        plan = plans.plan(of, pass_, chip)
        shape, at_once = plan.shape, chip.sms
        if not plan.persistent:
            continue
        if shape.blocks > 1:
            at_once = chip.clusters[shape.blocks.bit_length() - 2]
        needed = math.ceil(math.ceil(batch_size / shape.rows) / at_once)
        fitting = (chip.shared_bytes + 1024) // (plan.shared_bytes + 1024)
        assert shape.shared_bytes(of, pass_) <= plan.shared_bytes <= chip.shared_bytes
        if plan.shared_bytes > shape.shared_bytes(of, pass_):
            assert fitting == needed
            seen.add(needed)
    assert {1, 2} <= seen


MANY_ROWS = {
    "forward": [(65, 1060), (128, 1152), (80, 1150), (128, 1504), (96, 2048), (256, 1024)],
    "backward": [(65, 1060), (128, 1152), (80, 1150), (128, 1504)],
}


@pytest.mark.parametrize("type", ["half", "bfloat16", "float"])
@pytest.mark.parametrize("way", MANY_ROWS)
def test_clusters_of_a_grid_take_many_rows(plans, way, cell, type):
    chip, way_of = gpu(plans), getattr(plans.Pass, way)
    for batch_size, hidden_size in MANY_ROWS[way]:
        if type == "float" and batch_size > 128:
            continue
        of = sizes(plans, batch_size, hidden_size, type, cell)
        of.tf32 = type == "float"
        plan = plans.plan(of, way_of, chip)
        shape = plan.many_rows
        assert shape.scaled == of.tf32
        assert shape.turns(batch_size) == 1
        assert not plan.persistent
        assert shape.blocks == (2 if way == "forward" else 8)
        clusters = -(-hidden_size // shape.units)
        assert clusters <= chip.clusters[0 if way == "forward" else 2]
        assert shape.tiles == -(-batch_size // 64)
        depth = hidden_size * (1 if way == "forward" else of.gates)
        assert shape.chunks * 64 * shape.blocks >= depth
        assert 0 <= shape.streamed < shape.chunks
        assert shape.shared_bytes(of.gates, of.parameters) <= chip.shared_bytes
        # Two copies of what the steps exchange.
        assert plan.workspace >= 2 * batch_size * depth * 2
        # A refused launch takes the next plan, and two directions run one after the other.
        after = plans.plan(of, way_of, plans.after_refusal(chip, plan))
        assert after.many_rows.blocks == 0
        of.directions = 2
        both = plans.plan(of, way_of, chip)
        assert (both.persistent, both.many_rows.blocks) == (False, 0)


def test_more_rows_of_floats_take_turns(plans):
    of = sizes(plans, 256, 1504, "float", "lstm")
    of.tf32 = True
    shape = plans.plan(of, plans.Pass.forward, gpu(plans)).many_rows
    assert (shape.tiles, shape.turns(256), shape.turns(512)) == (4, 1, 2)
    of.hidden_size = 2048  # for which a thread has registers in two tiles alone
    shape = plans.plan(of, plans.Pass.forward, gpu(plans)).many_rows
    assert (shape.tiles, shape.turns(256), shape.turns(128)) == (2, 2, 1)
    assert plans.plan(of, plans.Pass.backward, gpu(plans)).many_rows.blocks == 0
    of.tf32 = False
    assert plans.plan(of, plans.Pass.forward, gpu(plans)).many_rows.blocks == 0


@pytest.mark.parametrize("size", [(80, 1152), (64, 1024), (200, 800)], ids=str)
def test_plans_of_one_kind(plans, size):
    """What tools/fit_plan.py compares, whatever is quickest."""

    def kind(name: str) -> str:
        chip = gpu(plans)
        chip.kind = getattr(plans.Kind, name)
        plan = plans.plan(sizes(plans, *size), plans.Pass.forward, chip)
        many_rows = plan.many_rows.blocks > 0
        return "persistent" if plan.persistent else "many_rows" if many_rows else "steps"

    kinds = ("steps", "persistent", "many_rows")
    assert tuple(map(kind, kinds)) == kinds
    assert kind("any") in kinds


@pytest.mark.parametrize(("way", "few"), [("forward", [1, 4]), ("backward", [3, 12])])
def test_few_steps_are_over_before_one_launch_has_its_weights(plans, way, few):
    def most_one_by_one(*size: Any) -> int:
        """How many steps go step by step where more go in one launch."""
        of = sizes(plans, *size, "half", "lstm")
        for steps in range(1, 65):
            of.steps = steps
            if plans.plan(of, getattr(plans.Pass, way), gpu(plans)).persistent:
                return steps - 1
        return 64

    assert [most_one_by_one(16, size) for size in (32, 256)] == [0, 0]
    assert [most_one_by_one(rows, 512) for rows in (64, 512)] == few


def test_few_rows_floats_and_chips_without_clusters_have_no_plan_of_many_rows(plans):
    forward = plans.Pass.forward

    def taken(*size: Any, chip: Any = None) -> bool:
        return plans.plan(sizes(plans, *size), forward, chip or gpu(plans)).many_rows.blocks > 0

    assert taken(80, 1152)
    assert taken(200, 800)
    few_steps = sizes(plans, 200, 800)
    few_steps.steps = 3  # for which the weights are not worth their way to shared memory
    plan = plans.plan(few_steps, forward, gpu(plans))
    assert (plan.persistent, plan.many_rows.blocks) == (False, 0)
    for size in [(64, 1152), (80, 1024), (257, 1024), (80, 2116), (80, 1152, "float")]:
        assert not taken(*size)
    assert not taken(80, 1152, chip=described(plans, 90, 227 * 1024, 132, (0, 0, 0, 0)))
    assert not taken(80, 1152, chip=described(plans, 100, 227 * 1024, 132, (66, 33, 16, 8)))
