"""For all tests: none leaves a compiler behind that makes a precompiled header."""

import os

os.environ.setdefault("LLTM_JIT_PCH", "0")
