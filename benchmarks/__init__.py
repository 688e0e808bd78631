"""Everything that measures: ``python -m benchmarks WHAT`` in the root of a checkout.

Each WHAT is a module or a folder with ``add_options(parser)``, ``measure(args)``, which yields
groups of rows to compare, ``WIDTH``, the width of the tables' first column, and ``TITLE``, the
title of the plot. All of them use ``shared/``: clocks, the table, the plot.
"""

# This import lets the package see that a command imports it, so that it starts no build.
import lltm_jit  # noqa: F401
