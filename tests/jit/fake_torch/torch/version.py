import os

__version__ = os.environ.get("FAKE_TORCH_VERSION", "9.8.7+fake")
cuda = os.environ.get("FAKE_TORCH_CUDA") or None
