"""What the tools of one build report that they read, and where they look for it."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import sys
from collections.abc import Iterable
from pathlib import Path

from ..machine.tools import output_of
from ..request.spec import BuildSpec

LINK_DEPENDENCIES = "link.d"
NINJA_LOG = ".ninja_log"
TELL_LINK = f"-Wl,--dependency-file={LINK_DEPENDENCIES}"
_MULTIARCH = getattr(sys.implementation, "_multiarch", "")
_LIBRARIES = [
    os.path.join(root, "lib", kind).rstrip("/")
    for root in ("/usr/local", "/usr")
    for kind in (_MULTIARCH, "")
]

_SEARCH = re.compile(r"(?:(-L|--?library-path\b=?)|(-l|--?library\b=?))(.*)")
_PATH = re.compile(r"(?<![^@=])/.*")  # in a word: all of it, or behind `@` or `=`
_PASSED_ON = r"^-W[lap],|^-X(?:linker|compiler|assembler|preprocessor)$"

# What makes a command that compiles say where it looks for headers, and compile nothing.
_ASK = {".cuda.o": "-E -Xcompiler -v -x cu", ".o": "-E -v -x c++"}


def ninja_log(directory: Path) -> list[str]:
    """The lines of ninja's log, its head first; without one that a full disk has cut off."""
    try:
        text = (directory / NINJA_LOG).read_text("utf-8", "surrogateescape")
    except OSError:
        return []
    return [line for line in text.splitlines(keepends=True) if line.endswith("\n")]


def finished(directory: Path) -> dict[str, float]:
    """The outputs that ninja made without an error, and the seconds that each took."""
    steps = (line.split("\t") for line in ninja_log(directory)[1:])
    return {output: (int(end) - int(start)) / 1000 for start, end, _, output, _ in steps}


def compiled_from(directory: Path, spec: BuildSpec, target: str) -> list[str]:
    """The files that an object was made from, as the compiler reports them; empty if it did not."""
    try:
        text = (directory / f"{target}.d").read_text("utf-8", "surrogateescape")
    except OSError:
        return []
    _, _, rest = text.replace("\\\n", " ").partition(":")
    first, _, _ = rest.partition("\n")
    told = [_whole(directory, path) for path in _paths(first)]
    return told and [*told, *flag_files((*spec.cflags, *spec.cuda_cflags))]


def _paths(text: str) -> list[str]:
    """The paths in a rule of make as compilers write it.

    A blank or a tab has a backslash before it, and those that stand before it in the name are
    doubled. Elsewhere a backslash is itself.
    """
    words = re.findall(r"(?:\\[ \t#:]|\\\\(?=\\*[ \t])|\$\$|[^ \t])+", text)
    return [re.sub(r"\\([ \t#:])|\\(\\)(?=\\*[ \t])|\$(\$)", r"\1\2\3", word) for word in words]


def linker_flags(spec: BuildSpec, cxx: str) -> tuple[str, ...]:
    """The flag that makes the linker report what it reads, if it has one."""
    command = f"{cxx} {' '.join(spec.ldflags)} -Wl,--help"
    return (TELL_LINK,) if "--dependency-file" in output_of(command) else ()


def linked_from(directory: Path, spec: BuildSpec) -> list[str]:
    """The files that the linker read, or those that the flags name if it does not report any."""
    try:
        text = (directory / LINK_DEPENDENCIES).read_text("utf-8", "surrogateescape")
        lines = text.partition("\n\n")[0].splitlines()[1:]
        told = [line.removesuffix("\\").strip() for line in lines]  # blanks are not escaped
    except OSError:
        folders, names = libraries(spec)
        told = [os.path.join(folder, name) for name in names for folder in folders]
        told += _words(spec)
    told += flag_files(spec.ldflags)
    objects = {_whole(directory, name) for name in spec.objects}
    paths = dict.fromkeys(_whole(directory, name) for name in told)
    # Files of the compiler's own that it has removed are among them.
    return [path for path in paths if path not in objects and os.path.isfile(path)]


def libraries(spec: BuildSpec) -> tuple[list[str], list[str]]:
    """Where libraries are searched for, and under which names."""
    words = _words(spec)
    folders: list[str] = []
    names: list[str] = []
    for word, following in itertools.zip_longest(words, words[1:], fillvalue=""):
        if match := _SEARCH.fullmatch(word):
            found = folders if match[1] else names
            found.append(match[3] or following)
    folders += os.environ.get("LIBRARY_PATH", "").split(os.pathsep)
    exact = [name[1:] for name in names if name.startswith(":")]
    usual = [f"lib{name}{end}" for name in names if name[:1] != ":" for end in (".so", ".a")]
    return [*filter(os.path.isabs, folders), *_LIBRARIES], exact + usual


def flag_files(flags: Iterable[str]) -> list[str]:
    """The files that flags name, such as files of flags or specs, which no compiler reports."""
    words = [word for word in _with_files(_parts(split_flags(flags))) if word[:2] != "-D"]
    named = [match[0] for word in words for match in _PATH.finditer(word)]
    return list(dict.fromkeys(filter(os.path.isfile, named)))


def _words(spec: BuildSpec) -> list[str]:
    """The words that the linker gets."""
    return _with_files(_parts(split_flags(spec.ldflags)))


def _parts(words: Iterable[str]) -> list[str]:
    """Words, with those for the tools behind a compiler as these get them."""
    return [part for word in words for part in re.sub(_PASSED_ON, "", word).split(",") if part]


def _with_files(words: list[str], depth: int = 9) -> list[str]:
    """Words, and after each that names a file of words (``@file``), those in it."""
    found = []
    for word in words:
        found.append(word)
        if re.match("@/", word) and depth and os.path.isfile(word[1:]):
            text = Path(word[1:]).read_text("utf-8", "surrogateescape")
            found += _with_files(_parts(split_flags([text])), depth - 1)
    return found


def split_flags(flags: Iterable[str]) -> list[str]:
    """Flags as the shell splits them; each may be several."""
    joined = " ".join(flags)
    try:
        return shlex.split(joined)
    except ValueError:
        return joined.split()


# As torch writes it, in g++'s words and, before 2.11, in nvcc's for CUDA.
_DEPFILE = (
    r" (?:-MM?D|--generate-(?:nonsystem-)?dependencies-with-compile)"
    r" (?:-MF|--dependency-output) \S+"
)


def search(directory: Path, spec: BuildSpec, ninja: Path, environment: dict[str, str]) -> list[str]:
    """Where the compilers look for headers, even in directories that do not exist."""
    found: dict[str, None] = {}
    for end, ask in _ASK.items():
        target = next((name for name in spec.objects if _end(name) == end), None)
        if target is None:
            continue
        told = output_of([str(ninja), "-t", "commands", target], directory)
        command = told.strip().rpartition("\n")[2]
        command = re.sub(_DEPFILE, "", command)
        command = re.sub(r" -c .* -o \S+", f" {ask} {os.devnull} -o {os.devnull}", command)
        found |= dict.fromkeys(_searched(output_of(command, directory, environment)))
    return [_whole(directory, path) for path in found]


def _end(target: str) -> str:
    return ".cuda.o" if target.endswith(".cuda.o") else ".o"


def _searched(told: str) -> list[str]:
    missing = re.findall(r'(?m)^ignoring \w+ directory "(.+)"', told)
    lists = re.findall(r"(?ms)^#include [<\"].+?starts here:\n(.*?)(?=^\S)", told)
    lines = [line.strip() for part in lists for line in part.splitlines()]
    return [*lines, *missing]


def _whole(directory: Path, path: str) -> str:
    return path if os.path.isabs(path) else os.path.normpath(os.path.join(directory, path))
