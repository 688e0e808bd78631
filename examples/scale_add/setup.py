"""Puts the compiled kernels into a wheel, for one version of torch and one kind of machine:

`LLTM_JIT_PREBUILD=1 python -m pip wheel --no-build-isolation --no-deps .`
"""

import os

from setuptools import setup

kernels = {}
if os.environ.get("LLTM_JIT_PREBUILD") == "1":
    # It imports torch, which an ordinary build does without.
    from lltm_jit.jit import wheel

    kernels = wheel.arguments("scale_add")
setup(**kernels)
