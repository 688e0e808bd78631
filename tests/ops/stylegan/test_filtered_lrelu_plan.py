"""Which kernels run filtered_lrelu, on GPUs that need not be there."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lltm_jit
from lltm_jit import native

# Architecture, and the bytes of shared memory that a block may ask for.
GPUS = {
    "H200": (90, 227 * 1024),
    "A100": (80, 163 * 1024),
    "L4": (89, 99 * 1024),
    "T4": (75, 65536),
}


@pytest.fixture(scope="module")
def roads():
    kernels = native.kernels_directory()
    plan = kernels / "stylegan" / "filtered_lrelu" / "filtered_lrelu_plan.cpp"
    sources = [Path(__file__).with_name("flr_roads.cpp"), plan]
    return lltm_jit.load("flr_roads", sources, extra_include_paths=[str(kernels)])


def road(roads, gpu: str = "H200", **call) -> str:
    architecture, shared_bytes = GPUS[gpu]
    return roads.plan(architecture=architecture, shared_bytes=shared_bytes, **call)[0]


@pytest.mark.parametrize("signs", ["none", "write"])
@pytest.mark.parametrize("type", ["half", "bfloat16", "float"])
@pytest.mark.parametrize(("up", "down"), [(2, 2), (2, 1), (1, 2), (4, 2), (2, 4), (4, 4), (1, 1)])
def test_factors_of_the_tensor_cores(roads, up, down, type, signs):
    taps = {1: 12, 2: 12, 4: 24}
    call = {"up": up, "down": down, "fu": (taps[up], 0), "fd": (taps[down], 0), "padding": 20}
    for gpu in ("H200", "A100", "L4"):
        assert road(roads, gpu, type=type, signs=signs, **call) == "TensorCores"
    assert road(roads, "T4", type=type, signs=signs, **call) == "Direct"


@pytest.mark.parametrize(
    "call",
    [
        {"type": "double"},
        {"up": 3},
        {"down": 5},
        {"fu": (13, 0)},
        {"fd": (25, 0), "down": 4},
        {"fu": (3, 4)},
        {"fd": (1, 1)},
        {"shape": (2, 4, 64, 64)},
        {"shape": (1, 1, 500, 500)},
    ],
    ids=str,
)
def test_what_the_tensor_cores_do_not_take(roads, call):
    assert road(roads) == "TensorCores"
    assert road(roads, **call) == "Direct"


def test_filters_that_are_none_are_for_tensor_cores_where_the_factor_is_1(roads):
    none = {"fu": (1, 0), "up": 1, "padding": 0}
    assert road(roads, **none) == "TensorCores"


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("type", ["float", "double"])
@pytest.mark.parametrize(
    ("taps", "planned"),
    [
        ((13, 0), "Direct"),
        ((20, 20), "Direct"),
        ((96, 0), "Passes"),
        ((700, 0), "Formula"),
        ((30, 300), "Formula"),
    ],
)
def test_longer_filters(roads, gpu, type, taps, planned):
    assert road(roads, gpu, type=type, fu=taps, fd=taps, padding=400) == planned


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_tiles_fit_the_shared_memory(roads, data):
    taps = st.tuples(st.integers(1, 300), st.sampled_from([0, 0, 1, 4, 30, 80]))
    call = {name: data.draw(taps) for name in ("fu", "fd")}
    call |= {name: data.draw(st.integers(1, 9)) for name in ("up", "down")}
    shared_bytes = data.draw(st.sampled_from([gpu[1] for gpu in GPUS.values()]))
    planned, launches = roads.plan(
        type=data.draw(st.sampled_from(["half", "float", "double"])),
        signs=data.draw(st.sampled_from(["none", "write"])),
        padding=310,
        architecture=75,
        shared_bytes=shared_bytes,
        **call,
    )
    assert len(launches) == {"Direct": 1, "Passes": 2, "Formula": 0}[planned]
    for rows, columns, size in launches:
        assert rows > 0 < columns
        assert size <= shared_bytes


@pytest.mark.parametrize(
    ("gpu", "type", "tile"),
    [
        ("H200", "float", (32, 32)),
        ("T4", "float", (16, 32)),
        ("H200", "double", (32, 32)),
        ("T4", "double", (16, 16)),
    ],
)
def test_two_blocks_share_an_sm(roads, gpu, type, tile):
    shared_bytes = GPUS[gpu][1]
    call = {"type": type, "fu": (13, 0), "architecture": 75, "shared_bytes": shared_bytes}
    ((rows, columns, size),) = roads.plan(**call)[1]
    assert (rows, columns) == tile
    assert 2 * size <= shared_bytes
