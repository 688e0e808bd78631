"""The elementwise operators ``my_op`` and ``sigmoid``."""
