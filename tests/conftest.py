"""For all tests: Ctrl-C works, help is as wide everywhere, and thinned tests have few quick cases.
Where torch's own compiler cannot link, what needs it is expected to fail.

hypothesis draws the same examples in every run, so that a failure can be repeated.
"""

import os
import signal
import sys
from itertools import combinations

import pytest
from hypothesis import HealthCheck, settings

# `make test` takes the first, `make test-all` the second, `make matrix` the third.
# None minds how long an example takes, nor how long one is drawn: the machine may be busy.
patient = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
for profile, examples in {"quick": 10, "usual": 50, "long": 200}.items():
    settings.register_profile(profile, derandomize=True, max_examples=examples, **patient)
settings.load_profile("usual")

os.environ["COLUMNS"] = "80"  # help is as wide, whatever the terminal

# A shell lets what it starts in the background ignore it, and so would the programs of tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_keyboard_interrupt(excinfo):
    """Workers that do not end at once are killed, and nobody waits for a traceback."""
    excinfo.traceback = excinfo.traceback[-1:]  # pytest would read the source of all the others
    if workers := sys.modules.get("xdist.workermanage"):
        workers.NodeManager.EXIT_TIMEOUT = 0.1


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """torch's inductor writes its own path unquoted, so it cannot link below a blank."""
    try:
        return (yield)
    except (RuntimeError, AssertionError) as error:
        if " " in sys.prefix and "cannot find -ltorch" in str(error):
            pytest.xfail("torch's inductor cannot link, because torch's path contains a blank")
        raise


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the cases of thinned tests as slow, but for enough to have each pair of values in one.

    The case with most new pairs is taken first, so that few are quick, on each device by itself.
    """
    grids = {}
    for item in items:
        if item.get_closest_marker("thinned"):
            values = [(name, repr(value)) for name, value in item.callspec.params.items()]
            pairs = set(combinations(values, 2))
            grid = (item.function, item.callspec.params.get("device"))
            grids.setdefault(grid, []).append((item, pairs))
    for cases in grids.values():
        seen = set()
        while cases:
            case = max(cases, key=lambda case: len(case[1] - seen))
            if case[1] <= seen:
                break
            seen |= case[1]
            cases.remove(case)
        for item, _ in cases:
            item.add_marker("slow")
