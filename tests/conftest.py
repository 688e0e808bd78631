"""For all tests: none leaves a maker of precompiled headers behind, and Ctrl-C works."""

import os
import signal

os.environ.setdefault("LLTM_JIT_PCH", "0")

# A shell lets what it starts in the background ignore it, and so would the programs of tests.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
