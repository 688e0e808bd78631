"""What a library registers with torch when it is loaded, as its sources say."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from .spec import BuildSpec

# Compiled when they are used, which a cached import does not. Strings, characters, and numbers, in
# which a quote separates digits: what looks like a comment in a string is none.
LITERALS = (
    r"""R"(?P<end>\w*)\(.*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"|\b\d(?:'?[\w.])*|'(?:\\.|[^'\\\n])+'"""
)
_COMMENT = rf"//[^\n]*|/\*.*?\*/|(?P<literal>{LITERALS})"
_BLOCK = r"\b((?:STABLE_)?TORCH_LIBRARY(?:_FRAGMENT)?)\s*\(\s*(\w+)"
# The parameters of a macro that makes such a block, whose namespace is told where it is used.
_DEFINE = r"#[ \t]*define[ \t]+\w+\(([^)\n]*)\)[^\n]*TORCH_LIBRARY"


def without_comments(text: str) -> str:
    """C++ with a space in place of each comment."""
    return re.sub(_COMMENT, lambda match: match["literal"] or " ", text, flags=re.DOTALL)


def of_library(spec: BuildSpec, files: Iterable[Path], library: Path) -> list[str]:
    """The blocks that were compiled into a library, whose sources include these files."""
    if spec.standalone or not (blocks := of_sources(spec, files)):
        return []
    content = library.read_bytes()
    stripped = b".symtab" not in content
    return [block for block, symbol in blocks.items() if stripped or symbol in content]


def of_sources(spec: BuildSpec, files: Iterable[Path]) -> dict[str, bytes]:
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
