"""What a source asks for that no compiler reports: names that may exist, and files for assemblers.

What cannot be told from the text is told too: a build of it must not be kept.
"""

from __future__ import annotations

import functools
import os
import re
from pathlib import Path
from typing import NamedTuple

from .blocks import without_comments

_HAS_INCLUDE = rb"__has_(?:include(?:_next)?|embed)\s*\(\s*([^)]*)"
_DEFINED = rb"#\s*define\s+\w+\s+([<\"][^>\"\n]+[>\"])"
_QUOTED = rb"[<\"][^<>\"]+[>\"]"
_CONDITION = rb"(?m)^[ \t]*#\s*(?:el)?if\b(.*)"
_UPWARD = rb"#\s*(?:include|import|include_next)\s*([<\"][^>\"\n]*\.\./[^>\"\n]*[>\"])"
# In the text of an assembler's source, or in a string of C++.
_INCBIN = rb"\.incbin\b(?:[ \t]|\\t)*(?:\\?\"([^\"\\\n]+)\\?\")?"


class Asks(NamedTuple):
    """What a file asks for."""

    looked_for: frozenset[str]  # names that are searched for
    by_macro: bool  # whether some of them are macros, whose value may be any name that is defined
    defined: frozenset[str]
    files: frozenset[str]  # that an assembler reads
    unknown: frozenset[str]  # what the text does not tell


@functools.lru_cache(maxsize=4096)
def of_file(path: str, *_stamp: int) -> Asks:
    """Those of a file whose stamp stands for it: every build reads the same system headers."""
    return of(Path(path).read_bytes())


def of(text: bytes) -> Asks:
    """Those of a text."""
    text = text.replace(b"\\\n", b"")
    defined = names_in(re.findall(_DEFINED, text))
    for condition in re.findall(_CONDITION, text):
        defined |= names_in(re.findall(_QUOTED, condition))
    asked = re.findall(_HAS_INCLUDE, text) if b"__has_" in text else []
    literal = [words for words in asked if words[:1] in (b"<", b'"')]
    by_macro = len(literal) < len(asked)
    upward = names_in(re.findall(_UPWARD, text)) if b"../" in text else set()
    upward |= {name for name in defined if "../" in name}
    files, unknown = _assembled(text) if b".incbin" in text else (set(), set())
    if any(b"(" in words for words in asked if words not in literal):
        asked = re.findall(_HAS_INCLUDE, _plain(text))
        if any(b"(" in words and words[:1] not in (b"<", b'"') for words in asked):
            unknown.add("__has_include of a macro with arguments")
    looked_for = names_in(literal) | upward
    rest = map(frozenset, (defined, files, unknown))
    return Asks(frozenset(looked_for), by_macro, *rest)


def quoted(text: str) -> set[str]:
    """The names in quotes or brackets in a text."""
    return names_in(re.findall(_QUOTED, os.fsencode(text)))


def names_in(words: list[bytes]) -> set[str]:
    """Names without their quotes or brackets."""
    return {os.fsdecode(word.strip(b'<>" \t')) for word in words}


def _assembled(text: bytes) -> tuple[set[str], set[str]]:
    """The files that an assembler includes, and whether it includes others."""
    named = {os.fsdecode(name) for name in re.findall(_INCBIN, _plain(text))}
    files = {name for name in named if os.path.isabs(name)}
    return files, {".incbin"} if named - files else set()


def _plain(text: bytes) -> bytes:
    return os.fsencode(without_comments(os.fsdecode(text)))
