"""As much of torch as the engine asks for, so that a test's process starts in no time.

FAKE_TORCH_CUDA in the environment is the CUDA version it claims to be built for.
"""

import ctypes
from types import SimpleNamespace

from . import version

__version__ = version.__version__
backends = SimpleNamespace(cpu=SimpleNamespace(get_cpu_capability=lambda: "DEFAULT"))
library = None  # which a worker has only with all of torch
ops = SimpleNamespace(load_library=ctypes.CDLL)
