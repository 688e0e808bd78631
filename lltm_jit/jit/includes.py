"""Which of the user's own headers his sources include, directly or through others."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch

_INCLUDE = rb'(?m)^[ \t]*#[ \t]*(?:include|import)[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)'


def headers_of(
    sources: Iterable[Path],
    include_paths: Iterable[Path],
    texts: Mapping[Path, str] | None = None,
) -> tuple[Path, ...]:
    """The headers that a compiler could read for these sources, by a text search.

    Conditions around an include are not evaluated: a header too many only costs its digest.
    ``texts`` are sources that need not be on disk.
    """
    paths = list(include_paths)
    found: dict[Path, None] = {}
    waiting = list(sources)
    while waiting:
        file = waiting.pop()
        try:
            text = texts[file].encode() if texts and file in texts else file.read_bytes()
        except OSError:
            continue  # a source that cannot be read is told when it is digested
        for quoted, bracketed in re.findall(_INCLUDE, text):
            name = (quoted or bracketed).decode(errors="surrogateescape")
            header = _find(name, [file.parent, *paths] if quoted else paths)
            if header is not None and header not in found:
                found[header] = None
                waiting.append(header)
    return tuple(sorted(found))


def included_names(text: bytes) -> list[str]:
    """What a source includes, as it is written, in quotes or brackets."""
    return [
        (quoted or bracketed).decode(errors="surrogateescape")
        for quoted, bracketed in re.findall(_INCLUDE, text)
    ]


def own_paths(include_paths: Iterable[Path], system: Iterable[Path]) -> list[Path]:
    """The include paths whose headers may change while torch, Python and the compilers stay.

    Those change with their versions, which the key has. ``system`` names further such directories.
    """
    outside = (*_system_directories(), *system)
    return [path for path in include_paths if not _below(path, outside)]


def include_flags(flags: Sequence[str]) -> list[Path]:
    """The directories that flags add to the search for headers: -Idir, -I dir, -isystem dir."""
    found = []
    for flag, following in itertools.zip_longest(flags, flags[1:], fillvalue=""):
        for prefix in ("-I", "-iquote", "-isystem"):
            if flag == prefix:
                found.append(following)
            elif flag.startswith(prefix):
                found.append(flag[len(prefix) :].strip())
    return [Path(directory).absolute() for directory in found if directory]


def _find(name: str, directories: list[Path]) -> Path | None:
    for directory in directories:
        candidate = directory / name
        if candidate.is_file():
            return candidate.resolve()
    return None


def _system_directories() -> tuple[Path, ...]:
    import sysconfig  # a cached import does without it: 4 ms

    return (
        Path(torch.__file__).parent,
        Path(sysconfig.get_path("include")),
        Path(sys.base_prefix, "include"),
        Path("/usr/include"),
        Path("/usr/local/include"),
    )


def _below(path: Path, directories: Iterable[Path]) -> bool:
    return any(path.is_relative_to(directory) for directory in directories)
