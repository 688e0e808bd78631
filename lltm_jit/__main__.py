"""``python -m lltm_jit <command>``, and the same as the script ``lltm-jit``."""

import io
import os
import sys

if os.name == "nt":
    from lltm_jit._windows import main
else:
    from lltm_jit.cli import main


def run() -> int:
    """Run the command that the program's arguments name; returns its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # As stderr does: a path may hold any character.
        sys.stdout.reconfigure(errors="backslashreplace")
    return main()


if __name__ == "__main__":
    sys.exit(run())
