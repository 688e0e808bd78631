"""The compiled kernels of this package: one extension per family, replaced by a reload.

Callers write ``native.rnn.lltm_cell(...)`` at each call and keep no reference, so that a reload
reaches all of them. The import starts a child that builds, and the first use of a family waits for
its build.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function

from lltm_jit._library import OPERATORS
from lltm_jit._placeholders import Placeholders
from lltm_jit.jit import Build, Spec
from lltm_jit.jit.loading import background, engine
from lltm_jit.jit.loading.build import swap_ops, thread_lock
from lltm_jit.jit.store import cache
from lltm_jit.jit.user import settings

OWN = ("basic", "rnn")  # the families of the package's own names; the default of commands
AT_IMPORT = ("rnn",)  # the families that importing the package loads
LEAST_ARCHITECTURE = (7, 5)  # the oldest GPUs that the families' CUDA kernels run on

# Functions to call with a family's module at its first use, and after a reload of the package.
when_used: dict[str, list[Callable[[ModuleType], None]]] = defaultdict(list)
when_reloaded: list[Callable[[], object]] = []

_current: dict[str, Build] = {}
_placeholders: dict[str, Placeholders] = {}
_PACKAGED = Path(__file__).parent / cache.WHEEL_FOLDER  # the families' libraries in a wheel
_TURN = "families"  # the lock of the threads that swap families


def kernels_directory() -> Path:
    """The C++ and CUDA sources: inside the installed package, or next to it in a checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "kernels"
    return installed if installed.is_dir() else package.parent / "kernels"


def include_path() -> Path:
    """Return the include path of the headers ``core/...`` and ``rnn/...``, for your own projects.

    Pass it to :func:`lltm_jit.load` as one of ``extra_include_paths``.

    Example:
        >>> (include_path() / "core" / "math" / "activations.h").is_file()
        True
    """
    return kernels_directory()


def families() -> list[str]:
    """The folders of kernels next to core/, each an extension of its own."""
    folders = kernels_directory().iterdir()
    return sorted(folder.name for folder in folders if (folder / "bindings.cpp").is_file())


def spec(family: str) -> Spec:
    """A family's extension: its files, and what they include of core/."""
    root = kernels_directory()
    return Spec(
        family,
        (str(root / family),),
        ours=True,
        around=str(root),
        packaged=str(_PACKAGED),
        least_architecture=LEAST_ARCHITECTURE,
    )


def start(*names: str) -> None:
    """Load the families that are built; a child builds the others, and their first use waits.

    The first use of any other family with defined operators loads or builds it. This holds for all
    families with ``LLTM_JIT_AT_IMPORT=0``, so that tools can import the engine alone. With
    ``LLTM_JIT_BACKGROUND=0`` or ``LLTM_JIT_VERBOSE=1`` the import waits for its builds.
    """
    missing = []
    for family in names if settings.flag("LLTM_JIT_AT_IMPORT") else ():
        wanted = spec(family)
        build = engine.find(wanted) if _may_wait() else engine.load(wanted)
        if build is not None:
            use(build)
        else:
            missing.append(wanted)
    for family, operators in OPERATORS.items():
        if family not in _current and family not in _placeholders:
            _placeholders[family] = Placeholders(operators, partial(load, family))
    if missing:
        background.start(missing)


def load(family: str) -> Build:
    """The current build of a family, which is loaded first if necessary."""
    if family not in _current:
        build = engine.load(spec(family))
        with thread_lock(_TURN):
            if family not in _current:
                use(build)
    return _current[family]


def use(build: Build) -> None:
    """Make a loaded build the current one of its family."""
    family = build.info.name
    background.collect(family)
    with thread_lock(_TURN):
        old = _current.get(family)
        if old is build:
            return
        swap_ops(old.module if old else None, build.module)
        globals()[family] = build.module
        _current[family] = build
        for listener in [*when_used[family]]:
            listener(build.module)
        if placeholders := _placeholders.pop(family, None):
            placeholders.remove()


def formula(family: str, name: str, *args: Any, **named: Any) -> Any:
    """An operator as a composition of ATen operations, even if it has kernels."""
    if has_torch_function(args):  # else a mode, as of a default device, would call the operator
        return handle_torch_function(formula, args, family, name, *args, **named)
    load(family)
    operator = getattr(torch.ops.lltm_jit, name).default
    explicit = torch._C._dispatch_has_kernel_for_dispatch_key(
        operator.name(), "CompositeExplicitAutograd"
    )
    key = "CompositeExplicitAutograd" if explicit else "CompositeImplicitAutograd"
    return operator._op_dk(getattr(torch._C.DispatchKey, key), *args, **named)


def builds() -> dict[str, Build]:
    """The current build of each family that is in use."""
    return dict(_current)


def wanted() -> list[str]:
    """The families that an import loads, and those that were used since."""
    return sorted({*AT_IMPORT, *_current})


def _may_wait() -> bool:
    """Whether a child may build, so that the first use waits instead of the import."""
    return settings.flag("LLTM_JIT_BACKGROUND") and not (
        settings.flag("LLTM_JIT_VERBOSE") or settings.flag("LLTM_JIT_DISABLE_JIT")
    )


def __getattr__(name: str) -> ModuleType:
    """A family's module, at its first use; afterwards it is an attribute."""
    if name[:1] != "_" and name in families():
        return load(name).module
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
