"""The import of a checked library into the process.

What a library registers while it is loaded, a process can register only once: a second
``TORCH_LIBRARY`` block for the same namespace makes torch abort the process inside the loader,
where nothing can be caught. So such a library is refused before it is built.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import torch

from . import cache, private
from .cache import DamagedBuild, Record
from .errors import BuildError
from .spec import BuildSpec

# Compiled when they are used, which a cached import does not. Texts in quotes are matched too, for
# what looks like a comment in one is none.
_COMMENT = r"""(?s)//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+')"""
_BLOCK = r"\b((?:STABLE_)?TORCH_LIBRARY(?:_FRAGMENT)?)\s*\(\s*(\w+)"
# The parameters of a macro that makes such a block, whose namespace is told where it is used.
_DEFINE = r"#[ \t]*define[ \t]+\w+\(([^)\n]*)\)[^\n]*TORCH_LIBRARY"

_registered: set[str] = set()


def check(spec: BuildSpec, files: Iterable[Path]) -> None:
    """Refuse an extension whose static registrations this process has already made.

    Args:
        spec: the spec of the extension.
        files: what its sources include, as far as that is known.

    Raises:
        BuildError: with the blocks, and what to do instead.
    """
    if _registered and (again := sorted(_registered & _blocks(spec, files).keys())):
        raise BuildError(
            f"error: {spec.name} registers operators when it is loaded, in {', '.join(again)}, "
            "and this process has already registered them; torch would abort it\n"
            "   = restart Python to load the new build, or define the operators from Python with "
            "torch.library.Library(...).define, and register the C++ implementations in functions "
            "register_ops() and release_ops() of the module, which a reload calls"
        )


def check_library(record: Record) -> Path:
    """Check the content of a build's library, and return its path.

    Raises:
        DamagedBuild: the library is missing or is not what was built, or others may write to it.
    """
    library = record.directory / record.library
    if problem := private.why_not_private(library):
        raise DamagedBuild(problem)
    try:
        same = cache.digest(library) == record.digest
    except OSError as error:
        raise DamagedBuild(f"{record.library} cannot be read: {error.strerror}") from error
    if not same:
        raise DamagedBuild(f"{record.library} is not the file that was built")
    return library


def import_library(spec: BuildSpec, key: str, library: Path, files: Iterable[Path]) -> ModuleType:
    """Import a checked library, whose sources include these files.

    Each build is imported under a name of its own, because pybind11 returns the module that it
    already has under a known name; the last part of the name is compiled into every object. What
    the library defines then belongs to a module of the plain name, where pickle finds it.

    Raises:
        BuildError: it cannot be imported, or registers operators a second time.
        CacheError: others may write to it.
    """
    cache.check_private(library)
    check(spec, files)
    path = str(library)
    module = ModuleType(f"lltm_jit._builds.{key}.{spec.name}")
    module.__file__ = path
    try:
        if spec.python_module:
            import_spec = spec_from_file_location(module.__name__, path)
            assert import_spec is not None
            assert import_spec.loader is not None
            module = module_from_spec(import_spec)
            module.__name__ = spec.name
            import_spec.loader.exec_module(module)
        elif not spec.standalone:
            torch.ops.load_library(path)
    except (ImportError, OSError) as error:
        from . import diagnostics

        raise BuildError(diagnostics.explain_import(str(error), path, spec)) from error
    if not spec.standalone and (blocks := _blocks(spec, files)):
        content = library.read_bytes()
        stripped = b".symtab" not in content
        _registered.update(b for b, symbol in blocks.items() if stripped or symbol in content)
    return module


def without_comments(text: str) -> str:
    """C++ with a space in place of each comment."""
    return re.sub(_COMMENT, lambda match: match[1] or " ", text)


def _blocks(spec: BuildSpec, files: Iterable[Path]) -> dict[str, bytes]:
    """The blocks in the sources, each with a symbol that its library has if it was compiled."""
    texts = dict(spec.texts)
    found = {}
    for path in dict.fromkeys((*spec.sources, *spec.headers, *files)):
        try:
            text = texts.get(path) or path.read_text("utf-8", errors="replace")
        except OSError:
            continue  # removed since; the build will tell
        if "TORCH_LIBRARY" not in text:
            continue
        text = without_comments(text).replace("\\\n", " ")
        parameters = set(re.findall(r"\w+", " ".join(re.findall(_DEFINE, text))))
        for macro, namespace in re.findall(_BLOCK, text):
            # Several extensions may each add a fragment to one namespace, or use the same macro.
            shared = macro.endswith("FRAGMENT") or namespace in parameters
            owner = f" of {spec.name}" if shared else ""
            symbol = f"{macro}_init_{'' if namespace in parameters else namespace}"
            found[f"{macro}({namespace}){owner}"] = symbol.encode()
    return found
