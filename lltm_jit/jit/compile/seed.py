"""Start a build from the objects of an earlier one, so that an edit compiles one file."""

from __future__ import annotations

import os
import shlex
import shutil
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from ..machine.toolchain import Toolchain
from ..request.fingerprint import Fingerprint, Request, flags
from ..request.spec import BuildSpec
from ..store import cache, manifest
from ..store.cache import BUILD_FILE, Record
from . import files_read

_WRAPPERS = ("ccache", "sccache")  # of which torch takes the first that is on PATH


@dataclass(frozen=True)
class Seed:
    """The reused objects, each with the files that it was made from.

    ``has_build_file`` is false if torch must write the build file first. ``search`` is where the
    compilers look for headers; empty if they have to be asked. ``names`` were looked for when the
    objects were made.
    """

    objects: dict[str, list[str]] = field(default_factory=dict)
    has_build_file: bool = False
    search: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)


def seed(
    directory: Path,
    request: Request,
    earlier: Iterable[Record],
    places: list[str],
    decided: list[str],
) -> Seed:
    """Fill an empty directory from the most similar build with the same flags.

    An object is reused only if every file that it was made from is unchanged, and no file has
    appeared that one of its includes would now find. Objects are copied, because the compiler
    writes into existing files. ``places`` are the paths that torch writes into its build file,
    which may be that of another variant of the source, and ``decided`` is what else it depends on.
    """
    spec, fingerprint = request.spec, request.content
    same = [
        other
        for other in earlier
        if flags(other.fingerprint) == flags(fingerprint)
        and (other.places == places or other.manifest["movable"])
    ]
    choices = [(_reusable(other, spec, fingerprint), other) for other in same]
    choices.sort(key=lambda choice: (len(choice[0]), choice[1].places == places), reverse=True)
    good: dict[str, list[str]] = {}
    # Any variant's build file will do, but a failed build's may be why it failed.
    written = (
        other
        for other in cache.named(spec.name)
        if (other.places, other.decided) == (places, decided)
        and _commands(other.fingerprint) == _commands(fingerprint)
    )
    taken = (each for each in written if _take(each, BUILD_FILE, each.build_file, directory))
    writer = next(taken, None)
    try:
        for files, record in choices[:1]:
            good = {
                name: files[name]
                for name, made in record.objects.items()
                if name in files and _take(record, name, made["digest"], directory)
            }
            _copy_times(record, directory, good)
        names = [name for _, record in choices[:1] for name in record.manifest["names"]]
        if writer is None:
            return Seed(good, names=names)
        search = [manifest.place(spec.base, label) for label in writer.manifest["search"]]
        return Seed(good, True, search, names)
    except OSError:  # not whole, or removed just now: only speed is lost
        for leftover in directory.iterdir():
            leftover.unlink()
        return Seed()


def _commands(fingerprint: Fingerprint) -> Fingerprint:
    """What is equal for all builds whose files are compiled by the same commands.

    Variants of one source are: their constants are in a header in the build's own directory.
    """
    return {**flags(fingerprint), "constants": None}


def write_rest(directory: Path, reused: Iterable[str], in_turn: list[str]) -> str:
    """Write a build file without the objects that exist already, because times must not decide
    about them, and with the others in the order to compile them; returns its name.
    """
    starts = tuple(f"build {name}: " for name in reused)
    text = (directory / BUILD_FILE).read_text("utf-8", "surrogateescape")
    rest = [line for line in text.splitlines(keepends=True) if not line.startswith(starts)]
    turns = {f"build {name}": turn for turn, name in enumerate(in_turn)}
    places = [place for place, line in enumerate(rest) if line.partition(": ")[0] in turns]
    lines = sorted((rest[place] for place in places), key=lambda s: turns[s.partition(": ")[0]])
    for place, line in zip(places, lines, strict=True):
        rest[place] = line
    (directory / "rest.ninja").write_text("".join(rest), "utf-8", "surrogateescape")
    return "rest.ninja"


def compile_line_places(spec: BuildSpec, toolchain: Toolchain) -> list[str]:
    """The paths that torch writes into its build file, in the same order for equal keys."""
    torch_directory = str(Path(torch.__file__).parent)
    return [*spec.places, torch_directory, sysconfig.get_path("include"), str(toolchain.cuda_home)]


def decisions(spec: BuildSpec, toolchain: Toolchain) -> list[str]:
    """What decides the content of a build file beside the request: what is on this machine.

    torch has it call the compilers by ccache or sccache, and looks where CUDA's libraries are; this
    engine has the linker tell what it reads, if it can.
    """
    several = len(shlex.split(toolchain.cxx or "")) > 1
    wrappers = () if several or os.environ.get("TORCH_NO_COMPILER_WRAPPER") else _WRAPPERS
    found = list(filter(shutil.which, wrappers))[:1]
    if spec.with_cuda and toolchain.cuda_home:
        found += [name for name in ("lib64", "lib") if Path(toolchain.cuda_home, name).exists()]
    if spec.device_code:  # nothing is linked
        return found
    return [*found, *files_read.linker_flags(spec, toolchain.cxx or "")]


def _reusable(record: Record, spec: BuildSpec, now: Fingerprint) -> dict[str, list[str]]:
    """The objects of a build that would be the same now, each with its files."""
    changes = manifest.changes(record.manifest, spec.base)
    if not changes.names.isdisjoint(manifest.parts(record.manifest["names"])):
        return {}
    files = record.fingerprint["files"]
    changes.files.update(label for label in files if files[label] != now["files"].get(label))
    found, wanted = {}, set(spec.objects)
    for name, made in record.objects.items():
        labels = [record.read[number] for number in made["files"]]
        if name in wanted and labels and not changes.touch(labels):
            found[name] = [manifest.place(spec.base, label) for label in labels]
    return found


def _take(record: Record, name: str, digest: str, directory: Path) -> bool:
    """Copy a file of a build if it is unchanged; nobody else can change the copy."""
    copy = directory / name
    try:
        shutil.copy2(record.directory / name, copy)
    except OSError:  # gone, or no file
        return False
    if manifest.digest_if_any(str(copy)) == digest:
        return True
    copy.unlink()
    return False


def _copy_times(record: Record, directory: Path, names: Iterable[str]) -> None:
    """Copy to ninja's log how long the reused objects took."""
    lines = files_read.ninja_log(record.directory)
    kept = [*lines[:1], *(line for line in lines[1:] if line.split("\t")[3] in names)]
    (directory / files_read.NINJA_LOG).write_text("".join(kept), "utf-8", "surrogateescape")
