"""Which kernels run a whole sequence, on GPUs that need not be there."""

import itertools
import math
from typing import Any

import pytest
import sequence_plans
from op_testing import for_each
from sequence_plans import QUICKEST, sizes

H100 = "H100"
WAYS = ["forward", "backward"]
way = for_each("way", WAYS)


def gpu(plans: Any, name: str = H100, **facts: Any) -> Any:
    return sequence_plans.gpu(plans, name, **facts)


def plan(plans: Any, *size: Any, way="forward", chip: Any = None, **facts: Any) -> Any:
    """For a batch size, a hidden size, a type and a cell."""
    of = sizes(plans, *size, **facts)
    return plans.plan(of, getattr(plans.Pass, way), chip or gpu(plans))


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
    """How many blocks a cluster has, each way; 0 where a sequence runs step by step."""
    size, chip = (batch_size, hidden_size, type), gpu(plans, name)
    found = [plan(plans, *size, way=way, chip=chip) for way in WAYS]
    assert tuple(each.shape.blocks if each.persistent else 0 for each in found) == planned


def test_no_gpu_before_8_multiplies_tf32(plans, way):
    for name, rounds in (("T4", False), ("L4", True)):
        found = plan(plans, 4, 32, "float", way=way, chip=gpu(plans, name), tf32=True)
        assert (found.persistent, found.shape.tf32) == (True, rounds)


def test_gpus_before_turing_go_step_by_step(plans):
    assert not plan(plans, 16, 32, chip=gpu(plans, "T4", architecture=70)).persistent


def test_rounded_floats(plans, way):
    """Their weights take half the room, so that more of them are in registers."""
    exact, rounded = (
        plan(plans, 16, 1024, "float", way=way, tf32=tf32).shape for tf32 in (False, True)
    )
    assert (exact.tf32, rounded.tf32) == (False, True)
    assert rounded.shared_tiles < exact.shared_tiles
    assert rounded.blocks == exact.blocks


@pytest.mark.parametrize(
    ("type", "cell", "way", "batch_size", "hidden_size", "quickest"), QUICKEST, ids=str
)
def test_the_quickest_shape_is_planned(plans, type, cell, way, batch_size, hidden_size, quickest):
    assert shape_of(plan(plans, batch_size, hidden_size, type, cell, way=way))[:6] in quickest


@pytest.mark.parametrize("batch_size", [1, 4, 16])
def test_floats_that_fill_the_chip_do_not_go_step_by_step(plans, way, batch_size):
    """A grid that reads a part of the weights at each step is quicker than reading all of them."""
    found = plan(plans, batch_size, 2048, "float", "lstm", way=way)
    assert found.persistent
    assert found.shape.grid
    assert found.shape.streamed_tiles > 0


@pytest.mark.parametrize("type", ["half", "bfloat16", "float"])
def test_any_hidden_size_is_planned_as_the_next_multiple_of_a_group(plans, cell, type):
    """Which has as many hidden units as a group of warps; weights and gates are padded."""
    for hidden_size in (*range(1, 41), 130, *range(649, 654), *range(1149, 1154)):
        group = -(-hidden_size // 16) * 16
        for way, batch_size in itertools.product(WAYS, (5, 64)):
            own, whole = (
                plan(plans, batch_size, size, type, cell, way=way) for size in (hidden_size, group)
            )
            assert (own.persistent, own.workspace) == (whole.persistent, whole.workspace)
            assert shape_of(own) == shape_of(whole)
            assert own.persistent or hidden_size > 1000


def test_a_grid_has_no_more_blocks_than_the_chip_has_sms(plans):
    """They wait for each other, and so all of them must run."""
    assert plan(plans, 16, 1024).shape.grid
    for sms in (132, 114, 64, 63, 40, 20):
        shape = plan(plans, 16, 1024, chip=gpu(plans, sms=sms)).shape
        assert not shape.grid or shape.blocks <= sms


def test_there_are_no_grids_where_they_are_off(plans, way):
    for hidden_size in (776, 1000, 1024, 2048):
        assert not plan(plans, 16, hidden_size, way=way, chip=gpu(plans, grids=False)).shape.grid


@pytest.mark.parametrize("batch_size", [16, 64])
def test_the_memory_of_a_grid_does_not_grow_with_the_steps(plans, batch_size, way):
    found = [
        plan(plans, batch_size, 1024, way=way, steps=steps) for steps in (64, 128, 2048, 1 << 20)
    ]
    assert all(each.shape.grid for each in found)
    few, *many = (each.workspace for each in found)
    assert few < many[0] <= 2**26
    assert len({*many}) == 1


@pytest.mark.parametrize(("way", "arrays"), [("forward", 1), ("backward", 3)])
def test_a_grid_has_memory_for_few_steps(plans, way, arrays):
    for batch_size in (3, 16):
        found, least = plan(plans, batch_size, 1000, way=way), 100 * batch_size * 1000 * arrays * 2
        assert found.shape.grid
        assert least <= found.workspace <= 1.5 * least
    assert plan(plans, 16, 512).workspace == 0


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


@pytest.mark.parametrize(("type", "cell"), [("half", "lstm"), ("float", "lltm"), ("half", "gru")])
def test_the_workspace_holds_what_the_kernels_index(plans, type, cell, way):
    chip, pass_, seen = gpu(plans), getattr(plans.Pass, way), set()
    for hidden_size, tf32 in itertools.product((560, 776, 1000, 1504, 2048), (False, True)):
        of = sizes(plans, 1, hidden_size, type, cell, tf32=tf32)
        for rows in range(1, 260):
            of.batch_size = rows
            for of.directions in range(1, 2 + (rows < 40)):
                found, needed = plans.plan(of, pass_, chip), 0
                if found.persistent and found.shape.grid:
                    needed = of_one_launch(of, found.shape, way, chip.sms)
                    seen.add("one launch")
                elif not found.persistent and found.many_rows.blocks:
                    needed = of_many_rows(of, found.many_rows)
                    seen.add("many rows")
                assert found.workspace >= needed, (rows, hidden_size, of.directions)
    assert seen == {"one launch", "many rows"}


def test_clusters_take_more_rows_where_the_batch_is_large(plans):
    assert [plan(plans, rows, 512).shape.rows for rows in (16, 64, 128)] == [4, 8, 16]


LSTM = ("half", "lstm")


def test_recurrences_are_planned_as_rows_are(plans, way):
    """The chip is divided among all of them: as if each had rows of the batch."""
    for hidden_size, (directions, heads) in itertools.product(
        (16, 64, 256, 512, 1024), ((2, 1), (1, 3), (2, 4), (1, 24))
    ):
        counts = {"directions": directions, "heads": heads}
        together = plan(plans, 64, hidden_size, *LSTM, way=way, **counts)
        rows = plan(plans, 64 * directions * heads, hidden_size, *LSTM, way=way)
        assert together.persistent
        if rows.persistent:
            assert shape_of(together) == shape_of(rows)
            assert together.workspace == rows.workspace


@pytest.mark.parametrize(("heads", "hidden_size"), [(3, 256), (6, 128), (12, 64), (24, 32)])
def test_heads_take_little_longer_than_one(plans, heads, hidden_size):
    one, all_heads = (plan(plans, 16, hidden_size, *LSTM, heads=n) for n in (1, heads))
    assert all_heads.cycles <= 1.2 * one.cycles


def test_directions_that_do_not_fit_beside_each_other_take_more_rows(plans):
    one, both = (plan(plans, 64, 512, *LSTM, directions=n) for n in (1, 2))
    assert (one.shape.rows, both.shape.rows) == (8, 16)
    assert one.cycles < both.cycles < 2 * one.cycles


@pytest.mark.parametrize("type", ["half", "float"])
def test_an_sm_has_no_room_for_more_blocks_than_it_needs_to_take(plans, way, type):
    """Else they would gather on the SMs that a product leaves first."""
    chip, pass_ = gpu(plans), getattr(plans.Pass, way)
    seen = set()
    for batch_size, hidden_size in itertools.product((1, 64, 512, 1024, 1 << 14), (16, 64, 256)):
        of = sizes(plans, batch_size, hidden_size, type, "lstm")
        found = plans.plan(of, pass_, chip)
        shape, at_once = found.shape, chip.sms
        if not found.persistent:
            continue
        if shape.blocks > 1:
            at_once = chip.clusters[shape.blocks.bit_length() - 2]
        needed = math.ceil(math.ceil(batch_size / shape.rows) / at_once)
        fitting = (chip.shared_bytes + 1024) // (found.shared_bytes + 1024)
        assert shape.shared_bytes(of, pass_) <= found.shared_bytes <= chip.shared_bytes
        if found.shared_bytes > shape.shared_bytes(of, pass_):
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
        of = sizes(plans, batch_size, hidden_size, type, cell, tf32=type == "float")
        found = plans.plan(of, way_of, chip)
        shape = found.many_rows
        assert shape.scaled == of.tf32
        assert shape.turns(batch_size) == 1
        assert not found.persistent
        assert shape.blocks == (2 if way == "forward" else 8)
        clusters = -(-hidden_size // shape.units)
        assert clusters <= chip.clusters[0 if way == "forward" else 2]
        assert shape.tiles == -(-batch_size // 64)
        depth = hidden_size * (1 if way == "forward" else of.gates)
        assert shape.chunks * 64 * shape.blocks >= depth
        assert 0 <= shape.streamed < shape.chunks
        assert shape.shared_bytes(of.gates, of.parameters) <= chip.shared_bytes
        # Two copies of what the steps exchange.
        assert found.workspace >= 2 * batch_size * depth * 2
        # A refused launch takes the next plan, and two directions run one after the other.
        after = plans.plan(of, way_of, plans.after_refusal(chip, found))
        assert after.many_rows.blocks == 0
        of.directions = 2
        both = plans.plan(of, way_of, chip)
        assert (both.persistent, both.many_rows.blocks) == (False, 0)


def test_more_rows_of_floats_take_turns(plans):
    def many_rows(hidden_size: int, way: str = "forward", tf32: bool = True) -> Any:
        return plan(plans, 256, hidden_size, "float", "lstm", way=way, tf32=tf32).many_rows

    shape = many_rows(1504)
    assert (shape.tiles, shape.turns(256), shape.turns(512)) == (4, 1, 2)
    shape = many_rows(2048)  # for which a thread has registers in two tiles alone
    assert (shape.tiles, shape.turns(256), shape.turns(128)) == (2, 2, 1)
    assert many_rows(2048, "backward").blocks == many_rows(2048, tf32=False).blocks == 0


@pytest.mark.parametrize("size", [(80, 1152), (64, 1024), (200, 800)], ids=str)
def test_plans_of_one_kind(plans, size):
    """What tools/fit_plan.py compares, whatever is quickest."""

    def kind(name: str) -> str:
        found = plan(plans, *size, chip=gpu(plans, kind=getattr(plans.Kind, name)))
        many_rows = found.many_rows.blocks > 0
        return "persistent" if found.persistent else "many_rows" if many_rows else "steps"

    kinds = ("steps", "persistent", "many_rows")
    assert tuple(map(kind, kinds)) == kinds
    assert kind("any") in kinds


@pytest.mark.parametrize(("way", "few"), [("forward", [1, 4]), ("backward", [3, 12])])
def test_few_steps_are_over_before_one_launch_has_its_weights(plans, way, few):
    def most_one_by_one(*size: int) -> int:
        """How many steps go step by step where more go in one launch."""
        found = (plan(plans, *size, *LSTM, way=way, steps=steps) for steps in range(1, 65))
        return next(steps for steps, each in enumerate(found) if each.persistent)

    assert [most_one_by_one(16, size) for size in (32, 256)] == [0, 0]
    assert [most_one_by_one(rows, 512) for rows in (64, 512)] == few


def test_few_rows_floats_and_chips_without_clusters_have_no_plan_of_many_rows(plans):
    def taken(*size: Any, **named: Any) -> bool:
        return plan(plans, *size, **named).many_rows.blocks > 0

    assert taken(80, 1152)
    assert taken(200, 800)
    # For three steps the weights are not worth their way to shared memory.
    assert not taken(200, 800, steps=3)
    assert not plan(plans, 200, 800, steps=3).persistent
    for size in [(64, 1152), (80, 1024), (257, 1024), (80, 2116), (80, 1152, "float")]:
        assert not taken(*size)
    for facts in ({"clusters": (0, 0, 0, 0)}, {"architecture": 100}):
        assert not taken(80, 1152, chip=gpu(plans, **facts))
