"""For all tests: none leaves a maker of precompiled headers behind, and Ctrl-C works.

hypothesis draws the same examples in every run, so that a failure can be repeated.
"""

import os
import signal
from itertools import combinations

import pytest
from hypothesis import settings

# `make test` takes the first, `make test-all` the second, `make matrix` the third.
for profile, examples in {"quick": 10, "usual": 50, "long": 200}.items():
    settings.register_profile(profile, derandomize=True, deadline=None, max_examples=examples)
settings.load_profile("usual")

os.environ.setdefault("LLTM_JIT_PCH", "0")

# A shell lets what it starts in the background ignore it, and so would the programs of tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Of a test marked `pairs`, those cases are slow that bring no two values together anew.

    The case with most new pairs comes first, so that few are left.
    """
    grids = {}
    for item in items:
        if item.get_closest_marker("pairs"):
            pairs = set(combinations(item.callspec.indices.items(), 2))
            grids.setdefault(item.function, []).append((item, pairs))
    for cases in grids.values():
        met = set()
        while cases:
            item, pairs = max(cases, key=lambda case: len(case[1] - met))
            if pairs <= met:
                break
            met |= pairs
            cases.remove((item, pairs))
        for item, _ in cases:
            item.add_marker("slow")
