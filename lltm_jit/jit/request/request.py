"""What a spec means on this machine, and the key of its builds.

The key covers what is known before anything is compiled: the spec, the tools and their environment,
and the content of the sources. The files that the tools then read belong to a build
(``files.Inputs``). Both depend on contents, never on times.
"""

# No `from __future__ import annotations`: it makes a NamedTuple compile each of its annotations.

import hashlib
import os
import re
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from ..machine.toolchain import Nvrtc, Toolchain, detect, find_nvrtc
from ..store import cache, files
from ..store.cache import Record
from ..store.files import digest_of
from ..user import settings
from ..user.errors import BuildError, SourceMissing
from . import flags
from .spec import SOURCE_SUFFIXES, Spec, find_sources

IN_NAME = "the kernel's name: "  # starts an error in a name that NVRTC gets
# A flag that names a folder for headers or libraries.
_FOLDER = r"(?:-I|-L|-isystem|-iquote|-idirafter|--?library-path|--include-directory)"
_NAME = r"[\w.+][\w.+-]*"  # one that starts with a dash would be a flag
# The entries of a request's content in which a build of another machine may differ and still fit.
TOOLS = {
    *("cxx", "compiler", "scripts", "nvcc", "architectures", "with_cuda", "environment"),
    *("cflags", "cuda_cflags", "ldflags", "include_paths", "folder", "sources", "files", "narrow"),
}
WORDS = {  # what entries of the content are called
    "torch": "torch",
    "cuda": "torch's CUDA",
    "python": "the Python ABI",
    "machine": "the processor type",
    "processor": "the processor",
    "cxx": "the compiler's command",
    "compiler": "the compiler",
    "scripts": "the compilers' scripts",
    "nvcc": "nvcc",
    "architectures": "the architectures",
    "cflags": "the C++ flags",
    "cuda_cflags": "the CUDA flags",
    "ldflags": "the linker flags",
    "include_paths": "the include paths",
    "environment": "the compile environment",
    "with_cuda": "CUDA",
    "constants": "the constants",
    "kernels": "the kernels",
    "libraries": "torch's place",
    "narrow": "narrow headers",
}


class Request:
    """A spec with its sources, and with the tools, as they are now.

    ``content`` is all that is known before the build and decides the library's content, ready for
    JSON. ``key`` is its digest, with which the keys of all its builds begin. ``place`` is the name
    of the folder in which it is compiled, also after an edit of its files.
    """

    def __init__(self, spec: Spec, toolchain: Toolchain | None = None) -> None:
        self.spec = spec
        self.toolchain = tools = toolchain or detect()
        self.sources, self.include_paths, self.base, cuda = find_sources(spec, tools.cuda)
        self.with_cuda = cuda if spec.with_cuda is None else spec.with_cuda
        self.note = spec.note
        if self.with_cuda and not tools.cuda and spec.ours and spec.around:
            self.with_cuda, self.note = False, f"without CUDA, {tools.cuda_missing}"
        self._check()
        self.by_nvrtc = False  # it is also true if NVRTC is wanted and missing
        self.nvrtc = self._nvrtc()
        of = flags.of_nvrtc(spec) if self.nvrtc else flags.of(spec, tools, self.with_cuda)
        self.cflags, self.cuda_cflags, self.ldflags = of
        if self.nvrtc:
            self.architectures = flags.nvrtc_architecture(self.nvrtc)
        else:
            known = flags.architectures(tools, self.cuda_cflags)
            self.architectures = known if self.with_cuda else ()
        self.narrow = spec.narrow and settings.flag("LLTM_JIT_NARROW")
        self.content = self._content()
        # A family may have a thousand variants: each is found without reading the others' records.
        name = digest_of([spec.name, self.content.get("constants")])
        self.key = name[: cache.NAME] + digest_of(self.content)[: cache.REQUEST - cache.NAME]
        if spec.texts:  # their files are named relative to the folder where they are written
            self.base = str(self.work)

    def _nvrtc(self) -> Nvrtc | None:
        """NVRTC, if it compiles this request. It compiles device code for one architecture; nvcc,
        if there is one, compiles a variant, unless the variant asks for NVRTC.
        """
        spec, tools = self.spec, self.toolchain
        by_nvcc = spec.variant and tools.cuda and tools.cxx
        if not spec.device_code or (by_nvcc and not (spec.nvrtc and len(tools.architectures) == 1)):
            return None
        found = find_nvrtc(tools.cuda_home)
        self.by_nvrtc = not by_nvcc or found is not None
        return found

    @cached_property
    def place(self) -> str:
        """The folder in which it is compiled.

        Requests of one name with different texts have different folders, so that they can be built
        at the same time. Several checkouts of our own sources share a folder, and wait.
        """
        told = {name: value for name, value in self.content.items() if name != "files"}
        return digest_of([told, [text for _, text in self.spec.texts]])

    @cached_property
    def work(self) -> Path:
        """The path of that folder."""
        return cache.work_directory(self.place)

    def path_of(self, source: str) -> str:
        """The path of a source, also of a source that is given as a string."""
        return os.path.join(self.work, source)

    @cached_property
    def product(self) -> str:
        """The file that the build makes."""
        if self.spec.device_code:
            return next(iter(self.objects))
        return self.spec.name + ("" if self.spec.standalone else ".so")

    @cached_property
    def objects(self) -> dict[str, str]:
        """The objects, by torch's names without marks that the shell interprets, and their sources.

        Sources of the same name in different folders are told apart by a digest.
        """
        cuda = (".cu", ".cuh") if self.with_cuda else ()
        parts = [os.path.splitext(os.path.basename(path)) for path in self.sources]
        names = [
            (re.sub(r"^-|[^\w.+-]", "_", stem), ".cuda.o" if suffix in cuda else ".o")
            for stem, suffix in parts
        ]
        objects = {}
        for path, (stem, kind) in zip(self.sources, names, strict=True):
            if names.count((stem, kind)) > 1:
                digest = hashlib.sha256(os.fsencode(self.label(path))).hexdigest()
                stem = f"{stem}.{digest[:20]}"
            objects[stem + kind] = path
        return objects

    def label(self, path: str) -> str:
        """A file's name as the user sees it and as a key records it: relative if it is below the
        base of the sources.
        """
        start = os.path.join(self.base, "")
        return path[len(start) :] if path.startswith(start) and ".." not in path else path

    @cached_property
    def searched(self) -> list[str]:
        """The folders that the user names for headers and libraries."""
        told = (*self.spec.cflags, *self.spec.cuda_cflags, *self.spec.ldflags)
        words = "\n".join([*flags.words(told), *flags.parts(told)])
        given = re.findall(rf"(?m)^{_FOLDER}[\n=]?(/.*)", words)
        linked = os.environ.get("LIBRARY_PATH", "").split(os.pathsep)
        given += [folder for folder in linked if folder[:1] == "/"]
        return [*dict.fromkeys([*self.include_paths, *given])]

    @cached_property
    def folders(self) -> list[str]:
        """The user's own folders, in which a tool may look for headers or libraries."""
        beside = map(os.path.dirname, map(self.path_of, self.sources))
        return [*dict.fromkeys([*beside, *self.searched])]

    def is_own(self, path: str) -> bool:
        """Whether a file, or the name of a text, seems to belong to the user, not to a library."""
        if path.startswith(self._starts) or path in dict(self.spec.listings):
            return True
        return path[:1] == "/" and not path.startswith(flags.library_folders())

    @cached_property
    def _starts(self) -> tuple[str, ...]:
        return tuple([os.path.join(folder, "") for folder in self.folders])

    def matches(self, record: Record, stamps: files.Stamps) -> bool:
        """Whether a build is one of this request, and of the files as they are now."""
        return record.content == self.content and not record.inputs.changes(self.base, stamps)

    def _check(self) -> None:
        """Refuse a name that no module or file can have, an extension without sources, and
        paths that no build file can contain.
        """
        spec, name = self.spec, self.spec.name
        if spec.python_module and not (spec.variant or name.isidentifier()):
            raise BuildError(f"expected the module's name to be an identifier, but got {name!r}")
        if not re.fullmatch(_NAME, name) or name.startswith("."):
            raise BuildError(f"expected the extension's name to be a file name, but got {name!r}")
        if not self.sources:
            usual = ", ".join(SOURCE_SUFFIXES)
            raise BuildError(
                f"extension {name!r} has no sources; give it files that end in {usual}"
            )
        for paths, refused in ((self.sources, "|\n\r"), (self.include_paths, "$\n\r")):
            for path in paths:
                if found := next((mark for mark in refused if mark in path), ""):
                    raise BuildError(
                        f"a build file cannot contain {path}, because of the {found!r} in it; "
                        "move the sources to a directory without one"
                    )

    def _content(self) -> dict[str, Any]:
        spec, tools, cuda = self.spec, self.toolchain, self.with_cuda
        labels = [*map(self.label, self.sources)]
        if self.nvrtc:  # other compilers do not matter
            named = f"NVRTC {self.nvrtc.version}"
            tools = tools._replace(cxx=None, cxx_version=named, scripts=(), environment=())
        content = {
            "schema": cache.SCHEMA,
            "name": spec.name,
            "torch": tools.torch_version,
            "cuda": tools.torch_cuda,
            "python": tools.python_abi,
            "machine": tools.machine,
            "cxx": tools.cxx,
            "compiler": tools.cxx_version,
            "scripts": [
                f"{path} {digest}"
                for path, digest in tools.scripts
                if cuda or os.path.basename(path) != "nvcc"
            ],
            "nvcc": tools.nvcc_version if cuda and not self.nvrtc else None,
            "architectures": list(self.architectures),
            # The shell gets one text, however the flags were given. Each quote in it counts.
            "cflags": " ".join(self.cflags).split(" "),
            "cuda_cflags": " ".join(self.cuda_cflags).split(" "),
            "ldflags": " ".join(self.ldflags).split(" "),
            "include_paths": [*map(self.label, self.include_paths)],
            "environment": [f"{name}={value}" for name, value in tools.environment],
            "with_cuda": cuda,
            "product": [spec.python_module, spec.standalone, spec.device_code],
            "sources": labels,
            "files": self._digests(labels),
        }
        told = [*self.cflags, *self.cuda_cflags, tools.cxx or "", *map("=".join, tools.environment)]
        if any("=native" in flag for flag in told):
            from ..machine import tools as machine  # most imports do not need it

            content["processor"] = machine.processor()
        if not spec.ours:  # the code may name its folder, as by __FILE__
            content["folder"] = self.base
            content["narrow"] = self.narrow
        if spec.standalone:  # torch has the program look for its libraries there
            content["libraries"] = os.path.dirname(torch.__file__)
        if spec.functions:
            content["kernels"] = list(spec.functions)
        if spec.constants or spec.variant:
            content["constants"] = [f"{name}={value}" for name, value in spec.constants]
        return content

    def _digests(self, labels: list[str]) -> dict[str, str]:
        found, texts = {}, dict(self.spec.texts)
        for path, label in zip(self.sources, labels, strict=True):
            try:
                given = texts.get(path)
                if given is None:
                    found[label] = files.text(path).digest
                else:
                    found[label] = hashlib.sha256(given.encode()).hexdigest()
            except OSError as error:
                kind = SourceMissing if isinstance(error, FileNotFoundError) else BuildError
                raise kind(
                    f"error: cannot read {path}: {error.strerror}\n"
                    f"   = Error building extension '{self.spec.name}'"
                ) from error
        return found

    def build_key(self, inputs: files.Inputs, library: str) -> str:
        """The key of a build that was made from these files. If not all of them are known, the
        library's digest is a part of the key.
        """
        known = files.UNKNOWN not in inputs.files.values()
        told = digest_of([inputs.files, inputs.folders, "" if known else library])
        return self.key + told[: cache.FILES - cache.REQUEST]


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What changed from one build's content to another's, in phrases with the old and new value."""
    before, after = old["files"], new["files"]
    found = [f"{name} changed" for name in after if before.get(name, after[name]) != after[name]]
    # Headers of libraries that an include brings in do not interest the user.
    found += [f"{name} added" for name in after if name not in before and not os.path.isabs(name)]
    found += [f"{name} removed" for name in before if name not in after and not os.path.isabs(name)]
    for entry, words in WORDS.items():
        was, now = old.get(entry), new.get(entry)
        if was == now:
            continue
        if isinstance(was, list) and isinstance(now, list):
            gone = [each for each in was if each not in now]
            come = [each for each in now if each not in was]
            if gone or come:  # else their order changed
                was, now = gone, come
            was, now = (" ".join(map(str, each)) or "nothing" for each in (was, now))
        found.append(f"{words} changed from {was} to {now}")
    return found


def previous(request: Request) -> Record | None:
    """The last build of this name, which a new one of this request replaces."""
    return next(cache.records(request.key[: cache.NAME]), None)


def reasons(request: Request, old: Record | None) -> list[str]:
    """Why a build is needed, compared with the last one, one phrase per reason."""
    new = request.content
    if old is None:
        return ["first use" if request.spec.variant else "first build"]
    if old.content.get("folder") != new.get("folder"):
        return [f"the last build was in another folder, {old.content['folder']}"]
    phrases = differences(old.content, new)
    for change in old.inputs.changes(request.base, files.Stamps(old.directory)):
        phrases.append(f"{change} changed" if change in old.inputs.files else change)
    return phrases or ["the cached build cannot be used"]


def in_short(reasons: list[str]) -> str:
    """The first three reasons, and how many more there are."""
    more = f" and {len(reasons) - 3} more" if len(reasons) > 3 else ""
    return ", ".join(reasons[:3]) + more
