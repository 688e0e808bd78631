"""The package without its own kernels: the child of an import builds what the environment names."""

from pathlib import Path

__path__.append(str(Path(__file__).parents[4] / "lltm_jit"))
