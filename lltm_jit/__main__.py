"""``python -m lltm_jit <command>``, which the script ``lltm-jit`` runs, too."""

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
        # A path may hold any character; stderr already escapes these.
        sys.stdout.reconfigure(errors="backslashreplace")
    return main()


if __name__ == "__main__":
    sys.exit(run())
