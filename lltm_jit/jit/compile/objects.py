"""The object store: an object is found by its command and the digests of the files that it read.

It works like ccache's direct mode: a command has a few entries, each with the files that its
compiler read. If none of them has changed, that is a cache hit: the entry's object is used again.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch

from ..request import flags, texts
from ..request.request import Request
from ..store import cache, files, private
from ..store.files import STALE, UNKNOWN, Inputs, digest_of
from ..user.errors import BuildError
from .headers import Headers
from .ninja import LINK_DEPENDENCIES

NINJA_LOG = ".ninja_log"
SYMBOLS = ".symbols"  # follows an object's name: a file of its kernels' names
_ENTRIES = 8  # how many entries of a command are tried
# With these flags, an object contains the path of its folder, or files are written beside it.
_PLACED = re.compile(r"--coverage|-fprofile|-ftest-coverage|-gsplit-dwarf|-save-temps")
_NOT_PREPROCESSED = (".s", ".i", ".ii")  # the compiler reports no files for these
# Headers of torch and the compiler, whose versions are in the key; the group is the included name.
_TORCH = "|".join({re.escape(f(os.path.dirname(torch.__file__))) for f in (str, os.path.realpath)})
_VERSIONED = re.compile(
    rf"(?:(?:{_TORCH})/(?:include(?:/torch/csrc/api/include)?|lib)"
    r"|/usr/lib/gcc/[^/]+/[^/]+/include[^/]*|/usr/include/(?:[^/]+/)?c\+\+/[^/]+)/(.*)"
)
# The entries of a request's content that a compiler's command does not show.
_OF_TOOLS = {
    *("schema", "torch", "cuda", "python", "machine", "cxx", "compiler", "scripts", "nvcc"),
    *("environment", "processor"),
}
_SECOND = 1_000_000_000
_TEXT_BYTES = 4 << 20  # larger files are not searched for names that they ask for


class Made(NamedTuple):
    """An object in the folder where a request is compiled."""

    digest: str
    inputs: Inputs
    seconds: float
    symbols: dict[str, list[str]]  # from NVRTC: kernels' names and types


class Store:
    """The objects of one request. ``changed`` names the files edited during the build."""

    def __init__(
        self, request: Request, commands: dict[str, str], headers: Mapping[str, Headers], since: int
    ) -> None:
        self._request, self._commands, self._headers = request, commands, headers
        self._since = since
        self.stamps = files.Stamps()
        # The user's files as the build begins. The engine alone writes the texts given as strings.
        digests = request.content["files"]
        self._given = {request.path_of(name): digests[name] for name, _ in request.spec.texts}
        self._before = files.closure(map(request.path_of, request.sources), request.searched)
        tools = {k: v for k, v in request.content.items() if k in _OF_TOOLS}
        placed = [request.place] if _PLACED.search(" ".join(commands.values())) else []
        self._same = [tools, request.spec.macros, placed]
        self.changed: set[str] = set()

    def _command(self, name: str) -> str:
        """A digest of the command that compiles an object, and of its headers. It is the same for
        all checkouts of our own sources.
        """
        command = self._commands[name]
        if self._request.spec.ours:
            command = command.replace(os.path.join(self._request.base, ""), "./")
        headers = self._headers[name].digest if name in self._headers else ""
        return digest_of([command, headers, *self._same])

    def find(self, name: str) -> Made | None:
        """Take an object from the store, if the files that it was made from are unchanged."""
        command, folder = self._command(name), self._folder(name)
        found = [path.name for path in folder.glob(f"{command}-*.json")]
        found.sort(key=partial(cache.last_use, folder), reverse=True)
        for entry in map(folder.joinpath, found[:_ENTRIES]):
            with suppress(OSError, ValueError, KeyError, TypeError):  # gone, or damaged
                if private.why_not_private(entry):
                    continue
                told = files.read_json(entry)
                inputs = Inputs(**told["inputs"])
                if inputs.changes(self._request.base, self.stamps):
                    continue
                cache.link_or_copy(entry.with_suffix(".o"), self._request.work / name)
                if files.digest(self._request.work / name) == told["digest"]:
                    for path in (entry, entry.with_suffix(".o")):
                        cache.mark_used(folder, path.name)
                    return Made(told["digest"], inputs, told["seconds"], told["symbols"])
                (self._request.work / name).unlink()
        return None

    def keep(self, name: str, seconds: float) -> Made | None:
        """Put a compiled object into the store; None if a file that it read has been edited.

        Raises:
            BuildError: the compiler did not report the files that it read.
        """
        request = self._request
        source = request.objects[name]
        read = _compiled_from(request, name)
        if not read and source.endswith(_NOT_PREPROCESSED):
            read = [request.path_of(source)]
        if not read:
            raise BuildError(
                f"error: the compiler did not report which headers {name} includes, so edits of "
                "these would go unnoticed; CXX must pass on -MMD and -MF"
            )
        given = [*request.cflags, *request.cuda_cflags]
        known = len(self.changed)
        inputs = self.inputs([*read, *flags.named_files(given)])
        symbols = json.loads(texts.read(f"{request.work / name}{SYMBOLS}") or "{}")
        made = Made(files.digest(request.work / name), inputs, seconds, symbols)
        if not self.changed.isdisjoint(inputs.files) or len(self.changed) > known:
            return None
        if {STALE, UNKNOWN}.isdisjoint(inputs.files.values()):
            self._put(name, made)
        return made

    def _put(self, name: str, made: Made) -> None:
        folder = self._folder(name)
        entry = folder / f"{self._command(name)}-{digest_of(made.inputs)}.json"
        with cache.writing():
            cache.make_directory(folder)
            with files.replacing(entry.with_suffix(".o")) as partial:
                cache.link_or_copy(self._request.work / name, partial)
            files.write_json(entry, {**made._asdict(), "inputs": made.inputs._asdict()})

    def _folder(self, name: str) -> Path:
        return cache.builds_directory() / "objects" / self._command(name)[:2]

    def linked(self) -> Inputs:
        """The files that the linker read, besides the objects."""
        return self.inputs(_linked_from(self._request), _library_names(self._request))

    def inputs(self, read: Iterable[str], looked_for: Iterable[str] = ()) -> Inputs:
        """The inputs: these files, and the names that a tool looked for, perhaps in vain."""
        request, tails = self._request, [*looked_for]
        made_here = os.path.join(request.work, "")
        folders, paths = {*request.folders}, []
        assembled: dict[str, str] = {}
        for path in dict.fromkeys([_plain(path) if ".." in path else path for path in read]):
            if match := _VERSIONED.fullmatch(path):
                tails.append(match[1])
            elif path in self._given or not path.startswith(made_here):
                paths.append(path)
        own = [*filter(request.is_own, paths)]
        for path in own:
            folders.add(os.path.dirname(path))
            asked = self._asks(path)
            tails += asked.names
            folders.update(_upward(request.folders, asked.names))
            assembled |= self._assembled(asked)
        names, there = files.looked_up(sorted(folders), paths, tails)
        there.pop(str(request.work), None)  # a file made in the work folder is no input
        for folder, have in there.items():  # a file that appeared in front of one that was read
            beside = {os.path.join(folder, name) for name in have}
            for path in beside.difference(paths, self._before):
                if os.path.isfile(path) and 0 < self._came(path) <= time.time_ns():
                    self.changed.add(request.label(path))
        return Inputs(
            assembled | self._digests(paths),
            {request.label(folder): have for folder, have in there.items()},
            names,
        )

    def _assembled(self, asked: texts.Asks) -> dict[str, str]:
        """The files that an assembler includes. If they are unknown, the object is not kept."""
        found = {}
        for name in asked.assembled:
            places = (os.path.join(folder, name) for folder in ("/", *self._request.searched))
            there = next(filter(os.path.isfile, places), "")
            told = self._digests([there]) if there else {f"{name}, for an assembler": STALE}
            found.update(told)
        return found | ({"a file for an assembler": UNKNOWN} if asked.untold else {})

    def _digests(self, paths: Iterable[str]) -> dict[str, str]:
        """The digests of files that were read, by label. Notes which were edited meanwhile."""
        request, found = self._request, {}
        labels = {path: request.label(path) for path in paths if path not in self._given}
        outside = self.stamps.digests([path for path, label in labels.items() if label[:1] == "/"])
        for path, label in labels.items():
            found[label] = outside[path] if path in outside else files.text_digest(path)
            if path in self._before:
                changed = found[label] != self._before[path]
            else:
                came = self._came(path)
                changed = 0 < came <= time.time_ns()
                if came and not changed:  # its clock is ahead: a change would not show
                    found[label] = STALE
            if changed:
                self.changed.add(label)
        given = {path: self._given[path] for path in paths if path in self._given}
        return found | {os.path.basename(path): digest for path, digest in given.items()}

    def _came(self, path: str) -> int:
        """The time when a file or a link last changed, by the clock of its file system; 0 if that
        was before the build began.
        """
        try:
            came = max(os.stat(path).st_ctime_ns, os.lstat(path).st_ctime_ns)
        except OSError:  # it is gone
            return time.time_ns()
        # A clock that counts whole seconds rounds them down.
        since = self._since if came % _SECOND else self._since // _SECOND * _SECOND
        return came if came >= since else 0

    def _asks(self, path: str) -> texts.Asks:
        told = ""
        with suppress(OSError):
            if os.path.getsize(path) <= _TEXT_BYTES:
                told = texts.read(path)
        return texts.asks(told, (*self._request.cflags, *self._request.cuda_cflags))


def _upward(folders: Iterable[str], names: Iterable[str]) -> set[str]:
    """The folders to which names with ``../`` lead."""
    leading = [name for name in names if "../" in name]
    return {
        os.path.normpath(os.path.join(folder, os.path.dirname(name)))
        for folder in folders
        for name in leading
    }


def _plain(path: str) -> str:
    """A path without its ``..``; behind a link, the text alone may resolve them wrongly."""
    plain = os.path.normpath(path)
    with suppress(OSError):
        if os.path.samefile(plain, path):
            return plain
    return os.path.realpath(path)


def finished(work: Path) -> dict[str, float]:
    """The outputs that ninja made without an error, and the seconds that each took."""
    found = {}
    with suppress(OSError):
        lines = (work / NINJA_LOG).read_text("utf-8", "surrogateescape").splitlines(keepends=True)
        for line in lines[1:]:
            if line.endswith("\n"):  # else a full disk has cut off the line
                start, end, _, output, _ = line.split("\t")
                found[output] = (int(end) - int(start)) / 1000
    return found


def _compiled_from(request: Request, name: str) -> list[str]:
    """The files that an object was made from, as the compiler reports them; empty if it did not."""
    try:
        text = (request.work / f"{name}.d").read_text("utf-8", "surrogateescape")
    except OSError:
        return []
    _, _, rest = text.replace("\\\n", " ").partition(":")
    first, _, _ = rest.partition("\n")
    return [os.path.join(request.work, path) for path in _paths(first)]


def _paths(text: str) -> list[str]:
    """The paths in a rule of make as compilers write it.

    A backslash precedes a blank or a tab, and a name's own backslashes before either are doubled.
    Elsewhere a backslash stands for itself.
    """
    words = re.findall(r"(?:\\[ \t#:]|\\\\(?=\\*[ \t])|\$\$|[^ \t])+", text)
    return [re.sub(r"\\([ \t#:])|\\(\\)(?=\\*[ \t])|\$(\$)", r"\1\2\3", word) for word in words]


def _linked_from(request: Request) -> list[str]:
    """The files that the linker read, or if it reports none, the files that the flags name."""
    try:
        text = (request.work / LINK_DEPENDENCIES).read_text("utf-8", "surrogateescape")
        lines = text.partition("\n\n")[0].splitlines()[1:]
        told = [line.removesuffix("\\").strip() for line in lines]  # blanks are not escaped
    except OSError:
        names = _library_names(request)
        told = [os.path.join(folder, name) for folder in request.folders for name in names]
    told += flags.named_files(request.ldflags)
    paths = (os.path.join(request.work, name) for name in told)
    # The compiler has already removed some temporary files of its own.
    return [path for path in paths if os.path.isfile(path)]


def _library_names(request: Request) -> list[str]:
    """The names of the files that ``-l`` looks for."""
    words = "\n".join(flags.parts(request.ldflags))
    names = re.findall(r"(?m)^(?:-l|--?library\b[=\n])\n?(.+)", words)
    exact = [name[1:] for name in names if name[:1] == ":"]
    usual = [f"lib{name}{end}" for name in names if name[:1] != ":" for end in (".so", ".a")]
    return exact + usual
