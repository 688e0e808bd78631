"""The only path from a spec to a loaded module, for import, reload and the user's own sources.

spec + toolchain -> key of the request
already loaded in this process              the same module again
<key>/ok.json there, valid and current      import; no process, only its last use is written
else lock, look again, seed, compile in a worker, publish, import
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..machine.toolchain import Toolchain, detect
from ..request.fingerprint import Fingerprint, Request
from ..request.spec import BuildSpec
from ..store import cache, manifest
from ..store.cache import DamagedBuild, Record
from ..store.manifest import Manifest
from ..user import settings
from ..user.errors import BuildError, SourceEdited, ToolchainError
from . import importing
from .build_result import Build, BuildInfo, info_of

if TYPE_CHECKING:
    from ..user.progress import Reporter

T = TypeVar("T")

_ATTEMPTS = 5  # builds that start over because a source was edited meanwhile
_loaded: dict[str, Build] = {}  # by key; a library is never loaded twice, nor unloaded


def load(
    spec: BuildSpec,
    toolchain: Toolchain | None = None,
    *,
    verbose: bool | None = None,
    reporter: Reporter | None = None,
    asked: float | None = None,
) -> Build:
    """Load the extension that a spec describes, and build it first if necessary.

    By default it is built with what this machine has, and steps are printed as LLTM_JIT_VERBOSE
    says. ``asked`` is the time of the request: a build that has failed since is not made again. The
    same content gives the same module again.

    Raises:
        BuildError: the sources do not compile, link or import; the text is the first error.
        ToolchainError: there is no compiler, or a setting cannot be used.
        CacheError: the directory for builds cannot be written, or is open to others.
    """
    reporter = reporter or _reporter(verbose)

    def use(request: Request, asked: float) -> Build:
        if build := _loaded_build(request):
            reporter.detail(f"no work to do: {spec.name} {build.info.key} is loaded")
            return build
        importing.check(spec, _known_headers(spec))
        build = _load_record(request, *_obtain(request, asked, reporter))
        reporter.detail(_done(build))
        return build

    return _with_request(spec, toolchain, reporter, use, asked)


def find(spec: BuildSpec, toolchain: Toolchain) -> Build | None:
    """Load the extension if it is built; None if it would have to be built first."""
    cache.check_private()
    request = Request.of(spec, toolchain)
    with importing.thread_lock(request.key):
        if build := _loaded_build(request):
            return build
        record = _find(request, lambda text: _reporter().say(text))
        if record is None:
            return None
        build = _load_record(request, record, cached=True)
        if settings.flag("LLTM_JIT_VERBOSE"):
            _reporter().detail(_done(build))
        return build


def loaded(spec: BuildSpec, toolchain: Toolchain) -> Build | None:
    """The build of a spec that this process has, if any."""
    return _loaded_build(Request.of(spec, toolchain))


def _loaded_build(request: Request) -> Build | None:
    for key, build in list(_loaded.items()):  # other threads load, too
        if not key.startswith(request.key[: cache.REQUEST]):
            continue
        stamps = manifest.Stamps(build.info.directory)
        if request.is_of(build.request, build.manifest, build.spec.places, stamps):
            stamps.save()
            return build
    return None


def _known_headers(spec: BuildSpec) -> list[Path]:
    """What the sources included when this process last loaded a build of them."""
    return [
        header
        for build in list(_loaded.values())
        if build.info.name == spec.name and not set(spec.sources).isdisjoint(build.spec.sources)
        for header in manifest.own_files(build.manifest, build.spec.base)
    ]


def _load_record(request: Request, record: Record, cached: bool) -> Build:
    if record.key not in _loaded:
        info = info_of(record, request.spec, cached=cached)
        return adopt(request.spec, record.fingerprint, record.manifest, info, record.registers)
    return _loaded[record.key]


def _done(build: Build) -> str:
    return f"{'made' if build.spec.standalone else 'loaded'} {build.info.library}"


def build(
    spec: BuildSpec,
    toolchain: Toolchain | None = None,
    *,
    force: bool = False,
    reporter: Reporter | None = None,
) -> BuildInfo:
    """Build an extension without importing it; with ``force`` every file, even if it is cached."""
    reporter = reporter or _reporter()

    def make(request: Request, asked: float) -> BuildInfo:
        record, cached = _obtain(request, asked, reporter, force=force)
        return info_of(record, spec, cached=cached)

    return _with_request(spec, toolchain, reporter, make)


def adopt(
    spec: BuildSpec,
    asked: Fingerprint,
    made_of: Manifest,
    info: BuildInfo,
    registers: Iterable[str] = (),
) -> Build:
    """Load a library that is known to be valid, even one from outside the cache.

    A later :func:`load` of the same content returns it again.
    """
    module = importing.import_library(spec, info.key, info.library, registers)
    _loaded[info.key] = Build(module, info, spec, asked, made_of)
    return _loaded[info.key]


def inspect(spec: BuildSpec, toolchain: Toolchain) -> BuildInfo | None:
    """What the cache has for a spec, or None. Builds and imports nothing."""
    record = _find(Request.of(spec, toolchain), lambda text: None, to_load=False)
    return info_of(record, spec, cached=True) if record else None


def known_files(spec: BuildSpec, toolchain: Toolchain) -> list[Path]:
    """The user's files that a spec is built from, with the headers of the build used last."""
    if build := loaded(spec, toolchain):
        return [*build.files, *spec.headers]
    places, earlier = spec.places, cache.named(spec.name)
    last = next((each for each in earlier if each.places[: len(places)] == places), None)
    found = manifest.own_files(last.manifest, spec.base) if last else []
    return [*spec.sources, *spec.headers, *found]


def _with_request(
    spec: BuildSpec,
    toolchain: Toolchain | None,
    reporter: Reporter,
    action: Callable[[Request, float], T],
    asked: float | None = None,
) -> T:
    """Run an action on the present sources, under the lock that the threads of this process share.

    The action also gets the time of the request. If a source is edited during the build, the action
    is run again.
    """
    tools = toolchain or detect(spec.name)
    named: tuple[str, ...] = ()
    cache.check_private()
    reporter.detail(f"builds are kept in {cache.root()}")
    for _ in range(_ATTEMPTS):
        began = time.time() if asked is None else asked
        request = Request.of(spec, tools)
        try:
            with importing.thread_lock(request.key):
                return action(request, began)
        except KeyboardInterrupt as interrupt:
            told = f"KeyboardInterrupt: {spec.title} is not built; what it compiled so far is kept"
            interrupt._render_traceback_ = told.splitlines  # type: ignore[attr-defined]  # in IPython
            raise
        except SourceEdited as error:
            named = error.args
            reporter.say("a source changed during the build; building again")
    which = f", the last time {', '.join(named)}" if named else ""
    raise BuildError(
        f"the sources of {spec.name!r} changed during each of {_ATTEMPTS} builds{which}"
    )


def _obtain(
    request: Request, asked: float, reporter: Reporter, force: bool = False
) -> tuple[Record, bool]:
    """The record of a build, and whether it was cached."""
    record = None if force else _find(request, reporter.say)
    if record is not None:
        reporter.detail(f"no work to do: {record.directory} holds this build")
        return record, True
    if settings.flag("LLTM_JIT_DISABLE_JIT"):
        raise ToolchainError(
            f"{request.spec.name} {request.key} is not built, and LLTM_JIT_DISABLE_JIT forbids "
            "building it"
        )
    from ..compile import builder
    from ..store import lock
    from . import child

    with lock.build_lock(request.key, reporter):
        if not force:
            # The first look reported damaged builds.
            record = _find(request, reporter.detail)
            if record is not None:
                return record, True
            lock.raise_failure_of_others(request.key, asked)
        with child.stands_back():
            return builder.build(request, reporter, anew=force), False


def _reporter(verbose: bool | None = None) -> Reporter:
    from ..user.progress import Reporter

    return Reporter(verbose)


def _find(request: Request, say: Callable[[str], None], to_load: bool = True) -> Record | None:
    """The record of a valid and current build, now marked as used; a damaged one is reported."""
    for directory in cache.directories(request.key[: cache.REQUEST]):
        try:
            record, stamps = cache.read_record(directory), manifest.Stamps(directory)
            if record and request.is_of(record.fingerprint, record.manifest, record.places, stamps):
                if to_load:
                    cache.mark_used(directory)  # first, so that nobody prunes it meanwhile
                importing.check_library(record, stamps)
                stamps.save()
                return record
        except DamagedBuild as damage:
            say(f"the cached build {directory.name} is damaged: {damage}")
    return None
