"""What the text of a source tells and no compiler reports."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

# Strings, characters, and numbers, in which a quote separates digits: what looks like a comment in
# a string is none.
LITERALS = (
    r"""R"(?P<end>\w*)\(.*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"|\b\d(?:'?[\w.])*|'(?:\\.|[^'\\\n])+'"""
)
_COMMENT = rf"//[^\n]*|/\*.*?\*/|(?P<literal>{LITERALS})"
_BLOCK = re.compile(r"\b((?:STABLE_)?TORCH_LIBRARY(?:_FRAGMENT)?)\s*\(\s*(\w+)")
# The parameters of a macro that makes such a block, whose namespace is told where it is used.
_DEFINE = r"#[ \t]*define[ \t]+\w+\(([^)\n]*)\)[^\n]*TORCH_LIBRARY"
_OPERATOR = r'\bdef\s*\(\s*(?:\w+\s*\(\s*)?(?:R"\w*\()?"?\s*(?:\w+::)?(\w+)'

_QUOTED = r"[<\"]([^<>\"\n]+)[>\"]"
_UPWARD = r"#\s*(?:include|import|include_next)\s*[<\"]([^>\"\n]*\.\./[^>\"\n]*)[>\"]"
# In the text of an assembler's source, or in a string of C++.
_ASSEMBLED = r"\.(?:incbin|include)\b(?:[ \t]|\\t)*\\?\"([^\"\\\n]+)\\?\""
_INCBIN = r"\.incbin\b"


class Asks(NamedTuple):
    """What a text asks for: names that may exist, and files that an assembler reads.

    ``untold`` says that the text does not tell which files those are.
    """

    names: set[str]
    assembled: set[str]
    untold: bool


def asks(text: str, flags: Iterable[str] = ()) -> Asks:
    """What a text asks for, if it is compiled with these flags."""
    text = text.replace("\\\n", "")
    names = set(re.findall(_UPWARD, text)) if "../" in text else set()
    if "__has_" in text:  # of a name, or of a macro with any value that a directive or flag gives
        told = [*re.findall(r"#.*", text), *flags]
        names.update(name for words in told for name in re.findall(_QUOTED, words))
    if ".inc" not in text:
        return Asks(names, set(), False)
    text = without_comments(text)
    assembled = set(re.findall(_ASSEMBLED, text))
    return Asks(names, assembled, not assembled and re.search(_INCBIN, text) is not None)


def without_comments(text: str) -> str:
    """C++ with a space in place of each comment."""
    return re.sub(_COMMENT, lambda match: match["literal"] or " ", text, flags=re.DOTALL)


def blocks(texts: Iterable[str], extension: str) -> dict[str, bytes]:
    """What a library of these texts registers with torch when it is loaded.

    Each has a symbol that the library contains if the block was compiled.
    """
    found: dict[str, bytes] = {}
    for text in texts:
        if "TORCH_LIBRARY" not in text:
            continue
        text = without_comments(text).replace("\\\n", " ")
        parameters = set(re.findall(r"\w+", " ".join(re.findall(_DEFINE, text))))
        for match in _BLOCK.finditer(text):
            macro, namespace = match.groups()
            made_by_macro = namespace in parameters
            symbol = f"{macro}_init_{'' if made_by_macro else namespace}".encode()
            # Several extensions may each add a fragment to one namespace, or use the same macro.
            operators = re.findall(_OPERATOR, _body(text, match.end()))
            if macro.endswith("FRAGMENT") and operators and not made_by_macro:
                found |= {f"{macro}({namespace}) of {name}": symbol for name in operators}
            else:
                shared = macro.endswith("FRAGMENT") or made_by_macro
                found[f"{macro}({namespace})" + f" of {extension}" * shared] = symbol
    return found


def _body(text: str, start: int) -> str:
    """What stands between the next brace and the one that closes it."""
    depth, begin = 0, text.find("{", start)
    for mark in re.finditer(r"[{}]", text[begin:] if begin >= 0 else ""):
        depth += 1 if mark[0] == "{" else -1
        if depth == 0:
            return text[begin : begin + mark.end()]
    return ""


def read(paths: Iterable[str]) -> list[str]:
    """The texts of files, without those that cannot be read, which a compiler tells."""
    found = []
    for path in dict.fromkeys(paths):
        with suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
            found.append(file.read())
    return found
