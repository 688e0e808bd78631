"""The key of a request, in two steps.

The key of a request covers what is known before anything is compiled: the name, the flags, the
tools, their environment, and the content of the sources. A build of the request adds what its
compilers and its linker read (``manifest.py``). Both depend on contents, never on times: a file
that changed under an older time stamp (``git checkout``, a reinstalled wheel) is noticed, and a
file that was only touched is not rebuilt.
"""

# No `from __future__ import annotations`: it makes a NamedTuple compile each of its annotations.

import hashlib
import os
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ..machine.toolchain import Toolchain
from ..store import cache, contents, manifest
from ..store.manifest import Manifest
from ..user.errors import BuildError, SourceMissing
from .spec import BuildSpec

Fingerprint = dict[str, Any]

_FILES = ("files", "sources")  # the entries that an edit changes; the rest are the flags


def fingerprint(spec: BuildSpec, toolchain: Toolchain) -> Fingerprint:
    """Everything known in advance that decides the content of the built library, ready for JSON."""
    cuda = spec.with_cuda
    labels = [spec.label(path) for path in spec.sources]
    content = {
        "name": spec.name,
        "torch": toolchain.torch_version,
        "cuda": toolchain.torch_cuda,
        "python": toolchain.python_abi,
        "machine": toolchain.machine,
        "cxx": toolchain.cxx,
        "compiler": toolchain.cxx_version,
        "scripts": [
            f"{path} {digest}"
            for path, digest in toolchain.scripts
            if cuda or os.path.basename(path) != "nvcc"
        ],
        "nvcc": toolchain.nvcc_version if cuda else None,
        "architectures": list(spec.architectures) if cuda else [],
        "cflags": list(spec.cflags),
        "cuda_cflags": list(spec.cuda_cflags) if cuda else [],
        "ldflags": list(spec.ldflags),
        "include_paths": [spec.label(path) for path in spec.include_paths],
        "environment": [f"{name}={value}" for name, value in toolchain.environment],
        "with_cuda": cuda,
        "product": spec.product,
        "python_module": spec.python_module,
        "sources": labels,
        "files": _files(spec, labels),
    }
    flags = [*spec.cflags, *spec.cuda_cflags, toolchain.cxx or ""]
    if any("=native" in flag for flag in [*flags, *map("=".join, toolchain.environment)]):
        from ..machine import tools  # which most imports do without

        content["processor"] = tools.processor()
    if spec.asked and not spec.texts:  # of load(): the code may name its folder, as by __FILE__
        content["folder"] = str(spec.base)
    if spec.standalone:  # torch has the program look for its libraries there
        content["libraries"] = str(Path(torch.__file__).parent)
    if spec.variant:
        content["constants"] = [f"{name}={value}" for name, value in spec.constants]
    return content


class Request(NamedTuple):
    """A request with its sources as they are now; all builds of it share its key."""

    spec: BuildSpec
    toolchain: Toolchain
    content: Fingerprint
    key: str

    @classmethod
    def of(cls, spec: BuildSpec, toolchain: Toolchain) -> "Request":
        """Look at the sources."""
        spec.check()
        content = fingerprint(spec, toolchain)
        return cls(spec, toolchain, content, _key(content))

    def is_of(
        self, asked: Fingerprint, made_of: Manifest, places: list[str], stamps: manifest.Stamps
    ) -> bool:
        """Whether a build, with its stamps, matches this request, and the files as they are now."""
        ours = self.spec.places
        return (
            asked == self.content
            and (made_of["movable"] or places[: len(ours)] == ours)
            and not any(manifest.changes(made_of, self.spec.base, self.toolchain.recorded, stamps))
        )


def build_key(request: str, made_of: Manifest) -> str:
    """The name of a build's directory, which starts with the key of its request."""
    return request[: cache.REQUEST] + manifest.key(made_of)[: cache.FILES - cache.REQUEST]


def _key(content: Fingerprint) -> str:
    whole = [content["name"], content.get("constants"), flags(content), content]
    ends = (0, cache.NAME, cache.CONSTANTS, cache.FLAGS, cache.FILES)
    lengths = (end - start for start, end in pairwise(ends))
    parts = zip(whole, lengths, strict=True)
    return "".join(contents.digest_of(part)[:length] for part, length in parts)


def flags(content: Fingerprint) -> Fingerprint:
    """What is equal for all builds that differ only in the contents of their files."""
    return {name: value for name, value in content.items() if name not in _FILES}


def whole(fingerprint: Fingerprint, made_of: Manifest) -> Fingerprint:
    """A request, together with the files that a build of it was made from."""
    return {**fingerprint, "files": manifest.content(made_of) | fingerprint["files"]}


def _files(spec: BuildSpec, labels: list[str]) -> dict[str, str]:
    found, texts = {}, dict(spec.texts)
    for path, label in zip(spec.sources, labels, strict=True):
        text = texts.get(path)
        try:
            found[label] = contents.of(str(path)).digest if text is None else _sha256(text)
        except OSError as error:
            kind = SourceMissing if isinstance(error, FileNotFoundError) else BuildError
            raise kind(
                f"error: cannot read {path}: {error.strerror}\n"
                f"   = Error building extension '{spec.name}'"
            ) from error
    return found


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
