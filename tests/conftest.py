"""For all tests: none leaves a maker of precompiled headers behind, and Ctrl-C works.

hypothesis draws the same examples in every run, so that a failure can be repeated.
"""

import os
import signal

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

os.environ.setdefault("LLTM_JIT_PCH", "0")

# A shell lets what it starts in the background ignore it, and so would the programs of tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
