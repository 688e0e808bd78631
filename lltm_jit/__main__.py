"""``python -m lltm_jit <command>``."""

import io
import sys

from lltm_jit.cli import main

if isinstance(sys.stdout, io.TextIOWrapper):
    sys.stdout.reconfigure(errors="backslashreplace")  # as stderr: a path may hold any character
sys.exit(main())
