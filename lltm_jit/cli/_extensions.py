"""Finds the extensions that the words of a command mean."""

import argparse
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from lltm_jit import native
from lltm_jit.jit import LltmJitError, Spec
from lltm_jit.jit.compile import builder
from lltm_jit.jit.compile.ninja import BuildFile
from lltm_jit.jit.request.request import Request
from lltm_jit.jit.request.spec import spec
from lltm_jit.jit.store import cache
from lltm_jit.jit.store.cache import Record

from . import did_you_mean

ALL = "all"
HELP = (
    "a family of operators (basic, rnn, stylegan), the name of an extension that you loaded with "
    "lltm_jit.load, or the path of its sources or of its build_directory"
)
_USUAL = f"{' and '.join(native.OWN)}, which have the operators of `lltm_jit` itself"


def add_argument(parser: argparse.ArgumentParser, usual: str = _USUAL, many: bool = True) -> None:
    """Add the argument for :func:`chosen` or :func:`one`, whose help names the default."""
    about = f"{HELP}{f'; {ALL}: every family' if many else ''} (default: {usual})"
    name, nargs = ("names", "*") if many else ("name", "?")
    parser.add_argument(name, nargs=nargs, metavar="NAME", help=about)


def chosen(words: Sequence[str]) -> list[Spec]:
    """The extensions that words mean; by default the families of the package's own names."""
    found = [each for word in words or native.OWN for each in _meant(word)]
    return list({(each.name, each.packaged): each for each in found}.values())


def one(word: str) -> Spec:
    """The extension that a word means."""
    found = _meant(word)
    if len(found) > 1:
        names = ", ".join(each.name for each in found)
        raise LltmJitError(f"expected one extension, but {word} means {len(found)}: {names}")
    return found[0]


def _meant(word: str) -> list[Spec]:
    """What a word means: families, the builds from a path, or the build of a name."""
    families = native.families()
    if word == ALL:
        return [native.spec(family) for family in families]
    if word in families:
        return [native.spec(word)]
    records, path = _records(), Path(word).absolute()
    if path.exists():
        found = {each.name: each for each in _of_path(path, records)}
        return [found[word]] if word in found else list(found.values())
    for record in records:
        if record.name == word:
            return [Spec.of_record(record.spec)]
    names = sorted({record.name for record in records})
    built = f"those built in {cache.root()} are {', '.join(names)}"
    raise LltmJitError(
        f"{word!r} is neither a path, nor a family ({', '.join(families)}), nor the name of an "
        f"extension that was built; {built if names else f'{cache.root()} has none'}"
        f"{did_you_mean(word, [*families, *names])}"
    )


def _of_path(path: Path, records: list[Record]) -> list[Spec]:
    for family in native.families():
        folder = native.kernels_directory() / family
        if folder in (path.resolve(), *path.resolve().parents):
            return [native.spec(family)]
    built: dict[str, Spec] = {}  # the newest build of each name
    with cache.at_root(path):
        for record in _records():
            built.setdefault(record.name, Spec.of_record(record.spec)._replace(root=str(path)))
    if built:
        return list(built.values())
    for record in records:
        given = [Path(place) for place in record.spec["paths"]]
        holds = any(path.is_relative_to(place) for place in given)
        if given and (holds or all(place.is_relative_to(path) for place in given)):
            built.setdefault(record.name, Spec.of_record(record.spec))
    name = re.sub(r"\W|^(?=\d)", "_", path.stem)
    return list(built.values()) or [spec(name, path)]


def _records() -> list[Record]:
    """The builds of extensions whose sources exist, newest first."""
    return [
        record
        for record in cache.records()
        if not record.spec["ours"] and all(map(os.path.exists, record.spec["paths"]))
    ]


def loader(spec: Spec) -> str:
    """What loads an extension, in words."""
    if not spec.ours:
        return "lltm_jit.kernel" if spec.nvrtc else "lltm_jit.load"
    return "an import" if spec.name in native.AT_IMPORT else "its first use"


@contextmanager
def requested(spec: Spec) -> Iterator[Request]:
    """An extension's request on this machine; its root is used inside the ``with`` block."""
    with cache.at_root(spec.root):
        yield Request(spec)


def build_file(request: Request) -> BuildFile:
    """The commands of a request, built or not. A compiler must exist."""
    builder.check(request)
    if request.nvrtc:
        raise LltmJitError(
            f"{request.spec.name} is a kernel, which NVRTC compiles without a command of its own; "
            f"`python -m lltm_jit log {request.spec.name}` shows the options"
        )
    return BuildFile(request)
