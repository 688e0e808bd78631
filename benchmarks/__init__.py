"""Everything that measures: ``python -m benchmarks WHAT`` in the root of a checkout.

One module or folder for each WHAT: ``add_options(parser)``, ``measure(args)``, which yields groups
of rows that are compared with each other, ``WIDTH``, that of the tables' first column, and
``TITLE``, that of the plot. ``shared/`` has what all of them use: clocks, the table, the plot.
"""

# Here, so that the package knows that it is a command which imports it, and starts no build.
import lltm_jit  # noqa: F401
