"""Programs that import a StyleGAN repository's operators get these instead, without an edit."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType

from lltm_jit._library import refuse

__all__ = ["install", "uninstall"]


@dataclass
class _Package(MetaPathFinder, Loader):
    """Stands in `sys.meta_path`, and finds modules of ours under another package's names."""

    name: str
    modules: dict[str, str]  # our modules by those names, with the package itself

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == self.name:
            return spec_from_loader(fullname, self)
        if fullname.startswith(f"{self.name}."):
            message = (
                f"No module named {fullname!r}: {self.name} is lltm_jit's, which consists of "
                f"{', '.join(self.modules)}; "
                f"lltm_jit.ops.uninstall({self.name!r}) gives the other one back"
            )
            raise ModuleNotFoundError(message, name=fullname)
        return None

    def exec_module(self, module: ModuleType) -> None:
        # import takes the modules that a loader has put there. All of them come at once, because
        # an import of the module op.upfirdn2d alone would hide the function of that name in op.
        sys.modules.update({name: import_module(ours) for name, ours in self.modules.items()})


@dataclass
class _Parents(MetaPathFinder, Loader):
    """Stands last in `sys.meta_path`, and provides the parent packages that are missing."""

    name: str

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        above = self.name.startswith(f"{fullname}.")
        return spec_from_loader(fullname, self, is_package=True) if above else None

    def exec_module(self, module: ModuleType) -> None: ...


_OPERATORS = ["bias_act", "conv2d_gradfix", "conv2d_resample", "filtered_lrelu", "fma"]
_OPERATORS += ["grid_sample_gradfix", "upfirdn2d"]

_PACKAGES = {
    "op": {
        "op": "lltm_jit.ops.stylegan2",
        "op.conv2d_gradfix": "lltm_jit.ops.conv2d_gradfix",
        "op.fused_act": "lltm_jit.ops.stylegan2.fused_act",
        "op.upfirdn2d": "lltm_jit.ops.stylegan2.upfirdn2d",
    },
    "torch_utils.custom_ops": {"torch_utils.custom_ops": "lltm_jit.ops.drop_in.custom_ops"},
    "torch_utils.ops": {
        "torch_utils.ops": "lltm_jit.ops",
        **{f"torch_utils.ops.{name}": f"lltm_jit.ops.{name}" for name in _OPERATORS},
    },
}


def install(name: str) -> None:
    """Make a program's imports of a repository's operators find this package's operators instead.

    Call it in the script itself, before its imports, so that spawned processes do the same. Other
    modules of the same parent, such as ``torch_utils.misc``, are still the repository's. A second
    call changes nothing.

    Pickled objects then name classes of this package, and cannot be loaded without it: save a
    ``state_dict`` for others.

    Args:
        name: the package to stand in for. ``"torch_utils.ops"`` is in StyleGAN2-ADA and in
            StyleGAN3, and ``"op"`` in the PyTorch port of StyleGAN2. ``"torch_utils.custom_ops"``
            is the module that compiles a repository's own extensions, here with
            :func:`lltm_jit.load`. For a copy inside another package, give its full name, such as
            ``"models.stylegan2.op"``. Parent packages that the program lacks are empty.

    Raises:
        ValueError: if ``name`` does not end in one of these.
        RuntimeError: if the repository's package is already imported.

    Example:
        >>> lltm_jit.ops.install("op")
        >>> from op import FusedLeakyReLU, upfirdn2d
        >>> FusedLeakyReLU.__module__
        'lltm_jit.ops.stylegan.stylegan2'
        >>> lltm_jit.ops.uninstall("op")
    """
    package = _package("install", name)
    if package in sys.meta_path:
        return
    if name in sys.modules:
        raise RuntimeError(
            f"install(): {name} is already imported, from {_origin(sys.modules[name])}; call "
            f"lltm_jit.ops.install({name!r}) before anything imports it, at the top of the script "
            "or in a new process"
        )
    sys.meta_path.insert(0, package)
    sys.meta_path.append(_Parents(name))


def uninstall(name: str) -> None:
    """Undo :func:`install`: the next import finds the repository's package again.

    Objects that were imported from this package stay in use. Without an ``install`` before it, the
    call changes nothing.

    Args:
        name: as for :func:`install`.

    Raises:
        ValueError: if ``name`` is no name that can be installed.
    """
    package = _package("uninstall", name)
    if package not in sys.meta_path:
        return
    sys.meta_path.remove(package)
    sys.meta_path.remove(_Parents(name))
    if name not in sys.modules:
        return
    for each in package.modules:
        sys.modules.pop(each, None)
    parent, _, child = name.rpartition(".")
    if hasattr(sys.modules.get(parent), child):
        delattr(sys.modules[parent], child)


def _package(function: str, name: str) -> _Package:
    for ours, modules in _PACKAGES.items():
        if f".{name}".endswith(f".{ours}"):
            before = name.removesuffix(ours)
            return _Package(name, {before + each: place for each, place in modules.items()})
    names = ", ".join(map(repr, _PACKAGES))
    refuse(function, f"name to end in one of {names}", repr(name), ValueError)


def _origin(module: ModuleType) -> str:
    places = [getattr(module, "__file__", None), *getattr(module, "__path__", [])]
    return next(filter(None, places), "an unknown place")
