"""As much of torch as the engine asks for, so that a test's process starts in no time.

FAKE_TORCH_CUDA in the environment is the CUDA version it claims to be built for.
"""

import ctypes
import os
from types import SimpleNamespace

__version__ = os.environ.get("FAKE_TORCH_VERSION", "9.8.7+fake")
version = SimpleNamespace(cuda=os.environ.get("FAKE_TORCH_CUDA"), __version__=__version__)
backends = SimpleNamespace(cpu=SimpleNamespace(get_cpu_capability=lambda: "DEFAULT"))
ops = SimpleNamespace(load_library=ctypes.CDLL)
