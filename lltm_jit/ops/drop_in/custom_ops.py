"""``torch_utils.custom_ops`` of the StyleGAN repositories, with this package's build engine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from lltm_jit._library import refuse
from lltm_jit.jit.torch_api import load

__all__ = ["get_plugin", "verbosity"]

verbosity = "brief"  # training scripts set it: "none", "brief" or "full"


def get_plugin(
    module_name: str,
    sources: Sequence[str],
    headers: Sequence[str] | None = None,
    source_dir: str | None = None,
    **build_kwargs: Any,
) -> Any:
    """Load an extension by :func:`lltm_jit.load`, and build it first if necessary.

    If ``verbosity`` of this module is ``"full"``, the compilers' commands and output are shown.

    Args:
        module_name: the name of the extension, and of its Python module.
        sources: C++ and CUDA files, in ``source_dir`` unless their paths are absolute.
        headers: no effect; a build depends on all headers that the compilers have read.
        source_dir: the folder of the sources; by default the working directory.
        build_kwargs: more arguments of :func:`lltm_jit.load`, such as ``extra_cuda_cflags``.

    Returns:
        The module.

    Raises:
        BuildError, ToolchainError, CacheError, FileNotFoundError, TypeError: as
            :func:`lltm_jit.load`.
        ValueError: if ``verbosity`` is neither ``"none"``, ``"brief"`` nor ``"full"``.
    """
    if verbosity not in ("none", "brief", "full"):
        wanted = "custom_ops.verbosity to be 'none', 'brief' or 'full'"
        refuse("get_plugin", wanted, repr(verbosity), ValueError)
    paths = [os.path.join(source_dir or "", source) for source in sources]
    return load(module_name, paths, verbose=verbosity == "full", **build_kwargs)
