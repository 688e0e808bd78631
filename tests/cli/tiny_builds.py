"""Builds for tests of commands: a tiny one, and those of the package that are loaded."""

import lltm_jit
from lltm_jit import native
from lltm_jit.jit import BuildSpec, detect


def tiny_spec(directory, text="int answer() { return 42; }\n"):
    """An extension that compiles in a tenth of a second: no Python module, no torch header."""
    (directory / "tiny").mkdir(exist_ok=True)
    (directory / "tiny" / "tiny.cpp").write_text(text)
    toolchain = detect()
    spec = BuildSpec("tiny", (directory / "tiny" / "tiny.cpp",), python_module=False)
    return spec, toolchain


def builds():
    """The builds of the families that are loaded."""
    for family in native.OWN:
        native.load(family)
    return lltm_jit.build_info().families
