"""The plans of kernels, and the sizes at which the CPU's change, compiled once for all tests."""

import functools
from pathlib import Path
from typing import Any

import lltm_jit
from lltm_jit import native

KERNELS = native.kernels_directory()
_PLANS = ("rnn/cell_step", "rnn/sequence/plan", "stylegan/filtered_lrelu")


@functools.cache
def load() -> Any:
    """A module of modules: ``lltm``, ``sequence``, ``filtered_lrelu`` and ``cpu_bounds``."""
    sources = [Path(__file__).with_name("module.cpp")]
    sources += [KERNELS / place / "plan.cpp" for place in _PLANS]
    quick = {"extra_cflags": ["-O0"], "extra_include_paths": [str(KERNELS)]}
    return lltm_jit.load("plans_of_kernels", sources, **quick)
