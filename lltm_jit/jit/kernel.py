"""``kernel``: a CUDA kernel without C++ around it, compiled by NVRTC and launched from Python.

The builds of kernels are kept, reported and reloaded like all others.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .launch import Kernel
from .loading import engine
from .parameters import kernels_in
from .request.request import IN_NAME
from .request.spec import CUDA_SUFFIXES, Spec, absolute
from .request.texts import read
from .user.errors import BuildError, ended_after, own_frames_hidden
from .variants import check_constants

__all__ = ["Kernel", "kernel"]


@own_frames_hidden
def kernel(
    source: str | os.PathLike[str],
    name: str | Sequence[str],
    *,
    constants: Mapping[str, object] | None = None,
    include_paths: Sequence[str | os.PathLike[str]] = (),
    options: Sequence[str] = (),
    verbose: bool = False,
    timeout: float | None = None,
) -> Any:
    """A CUDA kernel that is launched on tensors; NVRTC compiles it, unless it is in the cache.

    NVRTC comes with torch's CUDA, and compiles in a few hundredths of a second. The source has
    ``__global__`` functions and the code that they call, and includes nothing of torch.

    Args:
        source: the path of a ``.cu`` or ``.cuh`` file, or the text itself.
        name: the function's name, with the arguments of a template, such as ``"scale<float>"``; or
            a list of names, whose kernels are compiled together.
        constants: macros and their values, defined in front of the source.
        include_paths: directories to search for headers. CUDA's own headers are always found.
        options: more options for NVRTC, such as ``"--use_fast_math"``.
        verbose: print every step.
        timeout: seconds after which a build is ended; this needs the NVRTC of CUDA 13 or later.

    Returns:
        A :class:`Kernel`, or for a list of names a tuple of them.

    Raises:
        BuildError: if the source does not compile, or declares no such kernel.
        BuildTimeout: if the build takes longer than ``timeout``.
        ToolchainError: if there is no NVRTC.
        CacheError: if the directory for builds cannot be used.

    Example:
        Launch a kernel with a grid and a block::

            text = '''
            template <typename T>
            __global__ void scale(const T* x, T* y, long n, float factor) {
              long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
              if (i < n) y[i] = x[i] * T(factor);
            }
            '''
            scale = lltm_jit.kernel(text, "scale<float>")
            x = torch.randn(1000, device="cuda")
            y = torch.empty_like(x)
            scale[(x.numel() + 255) // 256, 256](x, y, x.numel(), 2.0)
    """
    names = (name,) if isinstance(name, str) else tuple(name)
    text, how = os.fspath(source), (names, constants, include_paths, options)
    is_path = text.endswith((*CUDA_SUFFIXES, ".cuh")) and "\n" not in text
    if is_path or isinstance(source, os.PathLike):
        stem = re.sub(r"[^\w.+-]", "_", Path(text).stem)
        made = spec_of(stem, *how)._replace(paths=absolute([text]))
    else:
        plain = re.match(r"\w+", names[0].partition("<")[0].rpartition("::")[2])
        made = with_text(spec_of(plain[0] if plain else "kernel", *how), "source", text)
    with ended_after(timeout):
        kernels = kernels_of(made, verbose)
    return kernels[0] if isinstance(name, str) else kernels


def with_text(spec: Spec, called: str, text: str) -> Spec:
    """The spec with a text as its source; errors call the text ``called``."""
    written = f'#line 1 "{called}"\n{text}\n'
    return spec._replace(texts=((f"{spec.name}.cu", written),), listings=((called, text),))


def spec_of(
    name: str,
    functions: Sequence[str],
    constants: Mapping[str, object] | None = None,
    include_paths: Sequence[str | os.PathLike[str]] = (),
    options: Sequence[str] = (),
) -> Spec:
    """The spec of some kernels, still without their source."""
    if isinstance(options, str):  # else it is taken letter by letter
        raise TypeError(f"expected options to be a list, but got {options!r}")
    values = {
        key: str(int(v) if isinstance(v, bool) else v) for key, v in (constants or {}).items()
    }
    check_constants(name, values.items())
    return Spec(
        name,
        cuda_cflags=tuple(map(shlex.quote, options)),
        include_paths=absolute(include_paths),
        python_module=False,
        narrow=False,
        constants=tuple(sorted(values.items())),
        device_code=True,
        nvrtc=True,
        functions=tuple(functions),
    )


def kernels_of(spec: Spec, verbose: bool | None = None) -> tuple[Kernel, ...]:
    """The kernels that a spec names, from one build."""
    try:
        build = engine.load(spec, verbose=verbose or None)
    except BuildError as error:
        if not (error.message or "").startswith(IN_NAME):
            raise
        texts = [text for _, text in spec.texts] or [read(path) for path in spec.paths]
        found = ", ".join(name for text in texts for name in kernels_in(text)) or "none"
        raise BuildError(f"{error}\nthe kernels of the source: {found}") from error
    return tuple(Kernel(name, build) for name in spec.functions)
