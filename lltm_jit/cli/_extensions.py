"""Which extensions the words of a command mean."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from pathlib import Path

from lltm_jit import native
from lltm_jit.jit import LltmJitError
from lltm_jit.jit.loading.extension import Extension, extension, recorded
from lltm_jit.jit.store import cache
from lltm_jit.jit.store.cache import Record

from . import did_you_mean

ALL = "all"
HELP = (
    "a family of operators (basic, rnn, stylegan), the name of an extension that you loaded with "
    "lltm_jit.load, or the path of its sources or of its build_directory"
)


def add_argument(parser: argparse.ArgumentParser) -> None:
    """Add the argument for :func:`chosen`, a list of words."""
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"{HELP}; {ALL}: every family (default: {' and '.join(native.OWN)}, "
        "which have the operators of `lltm_jit` itself)",
    )


def add_one(parser: argparse.ArgumentParser, usual: str, default: str | None = None) -> None:
    """Add the argument for the word of :func:`one`; `usual` tells the default."""
    about = f"{HELP} (default: {usual})"
    parser.add_argument("name", nargs="?", metavar="NAME", default=default, help=about)


def chosen(words: Sequence[str]) -> list[Extension]:
    """The extensions that words mean; by default the families of the package's own names."""
    found = [each for word in words or native.OWN for each in meant(word)]
    return list({(each.name, each.packaged): each for each in found}.values())


def one(word: str) -> Extension:
    """The extension that a word means."""
    found = meant(word)
    if len(found) > 1:
        names = ", ".join(each.name for each in found)
        raise LltmJitError(f"expected one extension, but {word} means {len(found)}: {names}")
    return found[0]


def meant(word: str) -> list[Extension]:
    """What a word means: families, what was built of a path, or what was built under a name."""
    families = native.families()
    if word == ALL:
        return [native.extension(family) for family in families]
    if word in families:
        return [native.extension(word)]
    records = _records()
    path = Path(word).absolute()
    if path.exists():
        found = {each.name: each for each in _of_path(path, records)}
        return [found[word]] if word in found else list(found.values())
    for record in records:
        if record.fingerprint["name"] == word:
            return [recorded(record)]
    names = sorted({record.fingerprint["name"] for record in records})
    built = f"those built in {cache.root()} are {', '.join(names)}"
    raise LltmJitError(
        f"{word!r} is neither a path, nor a family ({', '.join(families)}), nor the name of an "
        f"extension that was built; {built if names else f'{cache.root()} has none'}"
        f"{did_you_mean(word, [*families, *names])}"
    )


def _of_path(path: Path, records: list[Record]) -> list[Extension]:
    for family in native.families():
        folder = native.kernels_directory() / family
        if folder in (path.resolve(), *path.resolve().parents):
            return [native.extension(family)]
    built: dict[str, Extension] = {}  # of several builds of a name the newest
    with cache.at_root(path):
        for record in _records():
            built.setdefault(record.fingerprint["name"], recorded(record, path))
    if built:
        return list(built.values())
    for record in records:
        given = [Path(place) for place in record.asked["paths"]]
        holds = any(path.is_relative_to(place) for place in given)
        if holds or all(place.is_relative_to(path) for place in given):
            built.setdefault(record.fingerprint["name"], recorded(record))
    name = re.sub(r"\W|^(?=\d)", "_", path.stem)
    return list(built.values()) or [extension(name, path)]


def _records() -> list[Record]:
    """The builds of extensions whose sources are there, newest first."""
    return [
        record
        for record in (*cache.records(), *cache.records(failed=True))
        if record.asked and all(Path(source).exists() for source in _given(record))
    ]


def _given(record: Record) -> list[str]:
    """The files and directories of an extension; sources given as text are always there."""
    return [] if record.asked["texts"] else record.asked["paths"]


def loader(extension: Extension) -> str:
    """In words, what loads an extension."""
    if extension.packaged is None:
        return "lltm_jit.load"
    return "an import" if extension.name in native.AT_IMPORT else "its first use"
