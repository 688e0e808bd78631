"""The one road from a spec to a loaded module, for import, reload and the user's own sources.

spec + toolchain -> key
already loaded in this process        the same module again
<key>/ok.json there and right         import; no process, no write but of its last use
else lock, look again, seed, compile in a worker, publish, import
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import torch

from . import cache, knobs, lock, registrations, retention
from .cache import DamagedBuild, Record
from .errors import BuildError, ToolchainError
from .fingerprint import Fingerprint, build_key, fingerprint
from .progress import Reporter
from .spec import BuildSpec
from .toolchain import Toolchain, detect

T = TypeVar("T")


@dataclass(frozen=True)
class BuildInfo:
    """How a build came about.

    ``reason``, ``seconds``, ``compiled`` and ``reused`` tell of the time when it was made;
    ``cached`` tells whether this process found it ready.
    """

    name: str
    key: str
    directory: Path
    library: Path
    reason: str
    seconds: float
    cached: bool
    compiled: int
    reused: int
    torch_version: str
    cuda_version: str | None
    compiler: str
    nvcc: str | None
    architectures: tuple[str, ...]
    sources: tuple[Path, ...]
    created: float

    @property
    def log(self) -> Path:
        """The compiler's whole output."""
        return self.directory / cache.LOG


@dataclass(frozen=True, eq=False)
class Build:
    """A loaded build. ``module`` is empty for what is not a Python module.

    ``content`` is the fingerprint that the key was made of.
    """

    module: ModuleType
    info: BuildInfo
    content: Fingerprint = field(repr=False)


_ATTEMPTS = 5  # builds begun anew because a source was edited meanwhile
_loaded: dict[str, Build] = {}  # by key; a library is never loaded twice, nor unloaded


def load(
    spec: BuildSpec,
    toolchain: Toolchain | None = None,
    *,
    verbose: bool | None = None,
    reporter: Reporter | None = None,
) -> Build:
    """Load the extension that a spec describes, and build it first where needed.

    Args:
        spec: what to build.
        toolchain: what to build with; by default what this machine has.
        verbose: tell every step; by default as LLTM_JIT_VERBOSE says.
        reporter: tells the steps, in place of a new one.

    Returns:
        The module and how it came about. The same content gives the same module again.

    Raises:
        BuildError: the sources do not compile, link or import; the text is the first error.
        ToolchainError: there is no compiler, or a setting cannot be used.
        CacheError: the directory for builds cannot be written, or is open to others.
    """
    tools = toolchain or detect()
    reporter = reporter or Reporter(verbose)

    def use(content: Fingerprint, asked: float) -> Build | None:
        key = build_key(content)
        if key in _loaded:
            reporter.detail(f"no work to do: {spec.name} {key} is loaded")
            return _loaded[key]
        registrations.check(spec)
        found = _obtain(spec, tools, content, asked, reporter)
        return _load_record(spec, tools, content, *found, reporter) if found else None

    return _with_content(spec, tools, reporter, use)


def find(spec: BuildSpec, toolchain: Toolchain) -> Build | None:
    """Load the extension if it is built; None where it has to be built first.

    Raises:
        BuildError: the library cannot be imported.
        CacheError: the directory for builds is open to others.
    """
    cache.check_private()
    reporter = Reporter()
    content = fingerprint(spec, toolchain)
    key = build_key(content)
    with lock.thread_lock(key):
        if key in _loaded:
            return _loaded[key]
        record = _find(key, reporter.say)
        if record is None:
            return None
        return _load_record(spec, toolchain, content, record, True, reporter)


def _load_record(
    spec: BuildSpec,
    toolchain: Toolchain,
    content: Fingerprint,
    record: Record,
    cached: bool,
    reporter: Reporter,
) -> Build:
    library = record.directory / record.library
    module = _import(spec, record.key, library)
    registrations.add(spec)
    reporter.detail(f"{'made' if spec.standalone else 'loaded'} {library}")
    _loaded[record.key] = Build(module, _info(record, spec, toolchain, cached), content)
    return _loaded[record.key]


def build(
    spec: BuildSpec,
    toolchain: Toolchain | None = None,
    *,
    force: bool = False,
    verbose: bool | None = None,
    reporter: Reporter | None = None,
) -> BuildInfo:
    """Build an extension without importing it.

    Args:
        spec, toolchain, verbose, reporter: as for :func:`load`.
        force: compile every file, also when the cache holds the build.

    Raises:
        BuildError, ToolchainError, CacheError: as for :func:`load`.
    """
    tools = toolchain or detect()
    reporter = reporter or Reporter(verbose)

    def make(content: Fingerprint, asked: float) -> BuildInfo | None:
        found = _obtain(spec, tools, content, asked, reporter, force=force)
        return _info(found[0], spec, tools, found[1]) if found else None

    return _with_content(spec, tools, reporter, make)


def adopt(spec: BuildSpec, content: Fingerprint, info: BuildInfo) -> Build:
    """Load a library that was built from this content outside the cache.

    A later :func:`load` of the same content gives it again.

    Raises:
        BuildError: the library cannot be imported.
    """
    _loaded[info.key] = Build(_import(spec, info.key, info.library), info, content)
    return _loaded[info.key]


def loaded(content: Fingerprint) -> Build | None:
    """The build of a content that this process has, if any."""
    return _loaded.get(build_key(content))


def inspect(spec: BuildSpec, toolchain: Toolchain) -> BuildInfo | None:
    """What the cache holds for a spec, None if nothing usable. Builds and imports nothing."""
    try:
        record = cache.read_record(
            cache.builds_directory() / build_key(fingerprint(spec, toolchain))
        )
    except DamagedBuild:
        return None
    return _info(record, spec, toolchain, cached=True) if record else None


def _with_content(
    spec: BuildSpec,
    toolchain: Toolchain,
    reporter: Reporter,
    action: Callable[[Fingerprint, float], T | None],
) -> T:
    """Act on the present content under the lock that the threads of this process share.

    The action also gets the time when it was asked for. It returns None when a source was edited
    while it was compiled.
    """
    cache.check_private()
    reporter.detail(f"the root for extensions is {cache.root()}")
    for _ in range(_ATTEMPTS):
        asked = time.time()
        content = fingerprint(spec, toolchain)
        with lock.thread_lock(build_key(content)):
            result = action(content, asked)
        if result is not None:
            return result
        reporter.say("a source was edited while it was compiled; building once more")
    raise BuildError(f"the sources of {spec.name!r} changed during each of {_ATTEMPTS} builds")


def _obtain(
    spec: BuildSpec,
    toolchain: Toolchain,
    content: Fingerprint,
    asked: float,
    reporter: Reporter,
    force: bool = False,
) -> tuple[Record, bool] | None:
    """The record of a build and whether it was there; None when a source was edited meanwhile."""
    key = build_key(content)
    record = None if force else _find(key, reporter.say)
    if record is not None:
        reporter.detail(f"no work to do: {record.directory} holds this build")
        return record, True
    if knobs.flag("LLTM_JIT_DISABLE_JIT"):
        raise ToolchainError(
            f"{spec.name} {key} is not built, and LLTM_JIT_DISABLE_JIT forbids to build it"
        )
    from . import builder  # a cached import does without it and what it imports: 20 ms

    with lock.build_lock(key, reporter.say):
        if not force:
            # What is damaged was told by the first look.
            record = _find(key, reporter.detail)
            if record is not None:
                return record, True
            lock.raise_failure_of_others(key, asked)
        record = builder.build(spec, toolchain, content, reporter, anew=force)
    return (record, False) if record else None


def _find(key: str, say: Callable[[str], None]) -> Record | None:
    """The record of a right build, now marked as used; a damaged one is told and counts as none."""
    if not retention.hold(key):
        return None
    try:
        record = cache.read_record(cache.builds_directory() / key)
        if record is not None:
            cache.check_library(record)
    except DamagedBuild as damage:
        say(f"the cached build {key} is damaged: {damage}")
        retention.release(key)
        return None
    return record


def _import(spec: BuildSpec, key: str, library: Path) -> ModuleType:
    """Import a checked library.

    It is created under a name of its own for each build, since pybind11 hands back the module it
    has under a known name; the last part is compiled into every object. What it defines then
    belongs to a module of the plain name, by which pickle finds it.
    """
    path = str(library)
    name = f"lltm_jit._builds.{key}.{spec.name}"
    try:
        if not spec.python_module:
            if not spec.standalone:
                torch.ops.load_library(path)
            module = ModuleType(name)
            module.__file__ = path
            return module
        import_spec = spec_from_file_location(name, path)
        assert import_spec is not None
        assert import_spec.loader is not None
        module = module_from_spec(import_spec)
        module.__name__ = spec.name
        import_spec.loader.exec_module(module)
    except (ImportError, OSError) as error:
        from . import diagnostics

        raise BuildError(diagnostics.explain_import(str(error), path, spec)) from error
    return module


def _info(record: Record, spec: BuildSpec, toolchain: Toolchain, cached: bool) -> BuildInfo:
    return BuildInfo(
        name=spec.name,
        key=record.key,
        directory=record.directory,
        library=record.directory / record.library,
        reason=record.reason,
        seconds=record.seconds,
        cached=cached,
        compiled=record.compiled,
        reused=record.reused,
        torch_version=toolchain.torch_version,
        cuda_version=toolchain.torch_cuda if spec.with_cuda else None,
        compiler=toolchain.cxx_version,
        nvcc=toolchain.nvcc_version if spec.with_cuda else None,
        architectures=spec.architectures,
        sources=spec.sources,
        created=record.created,
    )
