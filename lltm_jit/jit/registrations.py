"""Operators that a library registers while it is loaded, which a process can do only once.

A second ``TORCH_LIBRARY`` block of one namespace makes torch end the process from within the
loader, where nothing can be caught. So it is refused before the library is built.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

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
    """Refuse an extension whose static registrations this process has made already.

    Args:
        spec: of the extension.
        files: what its sources include, as far as it is known.

    Raises:
        BuildError: with the blocks and the ways out.
    """
    if not _registered:
        return
    if again := sorted(_registered & _blocks(spec, files)):
        raise BuildError(
            f"error: {spec.name} registers operators while it is loaded, in {', '.join(again)}, "
            "and this process has done that already; torch would end it\n"
            "   = restart Python to load the new build, or define the operators from Python with "
            "torch.library.Library(...).define, and register the C++ implementations in functions "
            "register_ops() and release_ops() of the module, which a reload calls"
        )


def add(spec: BuildSpec, files: Iterable[Path]) -> None:
    """Note what a library registered when it was loaded."""
    _registered.update(_blocks(spec, files))


def without_comments(text: str) -> str:
    """C++ with a space in place of each comment."""
    return re.sub(_COMMENT, lambda match: match[1] or " ", text)


def _blocks(spec: BuildSpec, files: Iterable[Path]) -> set[str]:
    texts = dict(spec.texts)
    found = set()
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
            found.add(f"{macro}({namespace}){owner}")
    return found
