"""Which kernels run filtered_lrelu, on GPUs that need not be there."""

import plans
import pytest
from flr_testing import centred_padding
from hypothesis import given
from hypothesis import strategies as st

# Architecture, and the bytes of shared memory that a block may ask for.
GPUS = {
    "H200": (90, 227 * 1024),
    "A100": (80, 163 * 1024),
    "L4": (89, 99 * 1024),
    "T4": (75, 65536),
}


@pytest.fixture(scope="module")
def planner():
    return plans.load().filtered_lrelu


def kernel(planner, gpu: str = "H200", **call) -> str:
    architecture, shared_bytes = GPUS[gpu]
    return planner.plan(architecture=architecture, shared_bytes=shared_bytes, **call)[0]


@pytest.mark.parametrize("signs", ["none", "write"])
@pytest.mark.parametrize("type", ["half", "bfloat16", "float"])
@pytest.mark.parametrize(("up", "down"), [(2, 2), (2, 1), (1, 2), (4, 2), (2, 4), (4, 4), (1, 1)])
def test_factors_of_the_tensor_cores(planner, up, down, type, signs):
    taps = {1: 12, 2: 12, 4: 24}
    call = {"up": up, "down": down, "fu": (taps[up], 0), "fd": (taps[down], 0)}
    call["padding"] = centred_padding(64, up, down, taps[up] + taps[down])[0]
    for gpu in ("H200", "A100", "L4"):
        assert kernel(planner, gpu, type=type, signs=signs, **call) == "TensorCores"
    assert kernel(planner, "T4", type=type, signs=signs, **call) == "Direct"


def long(x: int, y: int = 0) -> dict:
    return {"fu": (x, y), "fd": (x, y), "padding": 400}


NONE = (1, 0)
PLANES = {"fu": NONE, "fd": NONE, "up": 1, "down": 1, "padding": 0, "type": "double"}


@pytest.mark.parametrize(
    ("planned", "gpu", "call"),
    [
        ("TensorCores", "H200", {}),
        ("TensorCores", "H200", {"fu": NONE, "up": 1, "padding": 0}),
        ("Direct", "H200", {"type": "double"}),
        ("Direct", "H200", {"up": 3}),
        ("Direct", "H200", {"down": 5}),
        ("Direct", "H200", {"fu": (13, 0)}),
        ("Direct", "H200", {"fd": (25, 0), "down": 4}),
        ("Direct", "H200", {"fu": (3, 4)}),
        ("Direct", "H200", {"fd": (1, 1)}),
        ("Direct", "H200", {"slope": 2.0}),
        ("Direct", "H200", {"slope": -1.5, "signs": "write"}),
        ("Direct", "H200", {"shape": (2, 4, 64, 64)}),
        ("Direct", "H200", {"shape": (1, 1, 500, 500)}),
        ("Direct", "H200", {"type": "float", **long(13)}),
        ("Direct", "T4", {"type": "double", **long(13)}),
        ("Direct", "A100", {"type": "double", **long(20, 20)}),
        ("Direct", "H200", {"type": "float", **long(48)}),
        ("Formula", "H200", {"type": "half", **long(96)}),
        ("Formula", "H200", {"type": "double", **long(96)}),
        ("Formula", "T4", {"type": "float", **long(60)}),
        ("Formula", "H200", {"type": "float", **long(200)}),
        ("Formula", "T4", {"type": "float", **long(96)}),
        ("Formula", "H200", {"type": "float", **long(30, 300)}),
        # Each plane is a tile, and a grid has fewer than 2^31 blocks.
        ("Direct", "H200", {"shape": (2**16, 2**15 - 1, 1, 1), **PLANES}),
        ("Formula", "H200", {"shape": (2**16, 2**15, 1, 1), **PLANES}),
    ],
    ids=str,
)
def test_kernels_of_calls(planner, planned, gpu, call):
    assert kernel(planner, gpu, **call) == planned


@pytest.mark.parametrize("size", [48, 100])
@pytest.mark.parametrize(("up", "down"), [(u, d) for u in (1, 2, 4) for d in (1, 2, 4)])
def test_every_padding_is_for_the_tensor_cores_both_ways(planner, up, down, size):
    """Whatever the lengths of the filters; up to two tiles of the sign map and more."""
    most = {1: 12, 2: 12, 4: 24}
    for fu in {1 if up == 1 else 2, 5, most[up] - 1, most[up]}:
        for fd in {1 if down == 1 else 2, 6, most[down]}:
            for padding in range(12, 12 + 8 * up + 64):
                call = {"type": "half", "shape": (16, 512, size, size), "up": up, "down": down}
                found = planner.both_ways(fu=fu, fd=fd, padding=padding, **call)
                assert [kernel for kernel, _ in found] == ["TensorCores"] * 2, (fu, fd, padding)


@pytest.mark.parametrize("gpu", ["H200", "A100", "L4"])
@pytest.mark.parametrize("type", ["half", "float"])
@pytest.mark.parametrize(("up", "down"), [(u, d) for u in (1, 2, 4) for d in (1, 2, 4)])
def test_variants_fit_the_shared_memory(planner, up, down, type, gpu):
    shared_bytes = GPUS[gpu][1]
    for padding in (14, 17, 19, 30):
        call = {"type": type, "shape": (16, 512, 64, 64), "up": up, "down": down}
        taps = {"fu": 6 * max(up, 2), "fd": 6 * max(down, 2)}
        for kernel, size in planner.both_ways(
            padding=padding, shared_bytes=shared_bytes, **call, **taps
        ):
            assert kernel == "TensorCores"
            assert 0 < size <= shared_bytes


def test_a_gpu_without_room_for_a_variant(planner):
    call = {"type": "float", "shape": (16, 512, 64, 64), "up": 1, "down": 1}
    found = planner.both_ways(fu=12, fd=12, padding=11, shared_bytes=24 * 1024, **call)
    assert "TensorCores" not in [kernel for kernel, _ in found]


@given(data=st.data())
def test_tiles_fit_the_shared_memory(planner, data):
    taps = st.tuples(st.integers(1, 300), st.sampled_from([0, 0, 1, 4, 30, 80]))
    call = {name: data.draw(taps) for name in ("fu", "fd")}
    call |= {name: data.draw(st.integers(1, 9)) for name in ("up", "down")}
    shared_bytes = data.draw(st.sampled_from([gpu[1] for gpu in GPUS.values()]))
    planned, rows, columns, size = planner.plan(
        type=data.draw(st.sampled_from(["half", "float", "double"])),
        signs=data.draw(st.sampled_from(["none", "write"])),
        padding=310,
        architecture=75,
        shared_bytes=shared_bytes,
        **call,
    )
    assert planned in ("Direct", "Formula")
    if planned == "Direct":
        assert rows > 0 < columns
        assert 0 < size <= shared_bytes


@pytest.mark.parametrize(
    ("gpu", "type", "tile"),
    [
        ("H200", "float", (32, 32)),
        ("T4", "float", (16, 32)),
        ("H200", "double", (32, 32)),
        ("T4", "double", (16, 16)),
    ],
)
def test_two_blocks_share_an_sm(planner, gpu, type, tile):
    shared_bytes = GPUS[gpu][1]
    call = {"type": type, "fu": (13, 0), "architecture": 75, "shared_bytes": shared_bytes}
    _, rows, columns, size = planner.plan(**call)
    assert (rows, columns) == tile
    assert 2 * size <= shared_bytes


@pytest.mark.parametrize(
    ("size", "down", "tile"),
    [
        (16, 2, (8, 8)),
        (18, 2, (16, 16)),
        (8, 2, (4, 4)),
        (16, 1, (16, 16)),
        (32, 1, (32, 32)),
        (33, 1, (32, 32)),
        (70, 2, (32, 32)),
    ],
)
def test_small_images_have_the_smallest_tile_that_holds_them(planner, size, down, tile):
    call = {"shape": (2, 3, size, size), "up": 1, "fu": (1, 0), "down": down}
    for taps in (12, 24):
        planned, rows, columns, _ = planner.plan(fd=(taps, 0), padding=(taps - down) // 2, **call)
        assert planned == "Direct"
        assert (rows, columns) == tile
