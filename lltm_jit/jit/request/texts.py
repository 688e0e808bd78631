"""What the text of a source tells, but no compiler reports."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

# Strings, characters, and numbers, in which a quote may separate digits. A comment never starts
# inside a string.
LITERALS = (
    r"""R"(?P<end>\w*)\(.*?\)(?P=end)"|"(?:\\.|[^"\\\n])*"|\b\d(?:'?[\w.])*|'(?:\\.|[^'\\\n])+'"""
)
_COMMENT = rf"//[^\n]*|/\*.*?\*/|(?P<literal>{LITERALS})"
_QUOTED = r"[<\"]([^<>\"\n]+)[>\"]"
_UPWARD = r"#\s*(?:include|import|include_next)\s*[<\"]([^>\"\n]*\.\./[^>\"\n]*)[>\"]"
# This may stand in an assembler's source, or in a string of C++.
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
    if "__has_" in text:  # it asks for a name, or for a macro's value in a directive or flag
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


def read(path: str | Path) -> str:
    """The text of a file; empty if it cannot be read, which a compiler will report."""
    with suppress(OSError):
        return Path(path).read_text("utf-8", "replace")
    return ""
