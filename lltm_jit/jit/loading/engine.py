"""The only path from a spec to a loaded module: for imports, reloads, and the user's sources.

spec + tools -> request, with its key
already loaded in this process               the same module again
<key>/ok.json valid and current: cache hit   import; starts no process, notes only the last use
else lock, look again, compile, publish, import
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextvars import copy_context
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ..request.request import Request, previous
from ..request.spec import Spec, folders_below
from ..store import cache
from ..store.cache import DamagedBuild, Record
from ..store.files import Stamps
from ..user import settings
from ..user.errors import BuildError, SourceEdited, ToolchainError, cancelled_by
from . import background
from .build import Build, BuildInfo, check_library, import_library, info_of, own_files, thread_lock

if TYPE_CHECKING:
    from ..user.progress import Reporter

T = TypeVar("T")

_ATTEMPTS = 5  # builds that start over because a source was edited meanwhile
_loaded: dict[str, Build] = {}  # by key; a library is never loaded twice, nor unloaded


def load(spec: Spec, *, verbose: bool | None = None, reporter: Reporter | None = None) -> Build:
    """Load the extension that a spec describes, and build it first if necessary.

    Steps are printed as LLTM_JIT_VERBOSE says, by default. The same content gives the same module
    again.

    Raises:
        BuildError: the sources do not compile, link or import; the text is the first error.
        ToolchainError: there is no compiler, or a setting cannot be used.
        CacheError: the directory for builds cannot be written, or is open to others.
    """
    reporter = reporter or _reporter(verbose)

    def use(request: Request) -> Build:
        if build := _ready(request, reporter.say):
            reporter.detail(f"no work to do: {build.info.directory} holds this build")
        else:
            build = _import(request, *_make(request, reporter))
        reporter.detail(f"{'made' if spec.standalone else 'loaded'} {build.info.library}")
        if build.operators:
            from . import operators

            with thread_lock("operators"):
                operators.put_in_force(build.operators)
        return build

    return _with_request(spec, reporter, use)


def find(spec: Spec) -> Build | None:
    """Load the extension if it is built; None if it would have to be built first."""
    with cache.at_root(spec.root):
        cache.check_private()
        request = Request(spec)
        with thread_lock(request.key):
            return _ready(request, lambda text: _reporter().say(text))


def loaded(spec: Spec) -> Build | None:
    """The build of a spec that this process has, if any."""
    return _find_loaded(Request(spec))


def _ready(request: Request, say: Callable[[str], None]) -> Build | None:
    """The build of a request that is loaded, or that can be loaded without compiling."""
    if build := _find_loaded(request):
        return build
    record = _in_package(request) or _find(request, say)
    return _import(request, record, cached=True) if record else None


def _find_loaded(request: Request) -> Build | None:
    for key, build in list(_loaded.items()):  # other threads load, too
        stamps = Stamps(build.info.directory)
        if key.startswith(request.key) and request.matches(build.record, stamps):
            return build
    return None


def _import(request: Request, record: Record, cached: bool) -> Build:
    """Load a library that is known to be valid; a later load of its content returns it again."""
    if record.key not in _loaded:
        info = info_of(record, request, cached=cached)
        module = import_library(request, record)
        for build in list(_loaded.values()):
            if build.record.name == record.name and not build.spec.ours:
                build.keep_classes()
        _loaded[record.key] = Build(module, record, request, info)
        _warn_of_gpus(request)
    return _loaded[record.key]


def _warn_of_gpus(request: Request) -> None:
    """Say which of this machine's GPUs have no code in a build whose architectures were chosen."""
    chosen = settings.text("TORCH_CUDA_ARCH_LIST") or (
        request.architectures != request.toolchain.architectures
    )
    if not request.with_cuda or not chosen:
        return
    from ..machine import gpus

    for major, minor in gpus.compute_capabilities():
        if not gpus.runs_any(request.architectures, (major, minor)):
            _reporter().say(
                f"{request.spec.title} has code for {', '.join(request.architectures)} alone, and "
                f"none for this machine's GPU of {major}.{minor}: its kernels cannot run there; "
                f"add {major}.{minor} to TORCH_CUDA_ARCH_LIST, or to your -gencode flags"
            )


def build(spec: Spec, *, force: bool = False, reporter: Reporter | None = None) -> BuildInfo:
    """Build an extension without importing it; ``force`` compiles even files that are cached."""
    reporter = reporter or _reporter()

    def make(request: Request) -> BuildInfo:
        found = None if force else _find(request, reporter.say)
        record, cached = (found, True) if found else _make(request, reporter, force)
        return info_of(record, request, cached=cached)

    return _with_request(spec, reporter, make)


def inspect(spec: Spec) -> BuildInfo | None:
    """What :func:`load` would find; None if it would compile. Builds and imports nothing."""
    with cache.at_root(spec.root):
        request = Request(spec)
        record = _in_package(request) or _find(request, lambda text: None)
        return info_of(record, request, cached=True) if record else None


def folders(spec: Spec) -> list[str]:
    """The directories of a build's files, and all directories below a directory of sources."""
    with cache.at_root(spec.root):
        request = Request(spec)
        last = previous(request)
        paths = map(Path, map(request.path_of, request.sources))
        found = {str(path.parent) for path in paths if not spec.texts}
        if last is not None and last.content.get("folder") == request.content.get("folder"):
            found |= {str(path.parent) for path in own_files(request, last)}
    for path in filter(Path.is_dir, map(Path, spec.paths)):
        found.update(folders_below(path))
    return sorted(found)


def _with_request(spec: Spec, reporter: Reporter, action: Callable[[Request], T]) -> T:
    """Run an action on the present sources, under the lock that the threads of this process share.

    If a source is edited during the build, the action is run again.
    """
    with cache.at_root(spec.root):
        cache.check_private()
        reporter.detail(f"builds are kept in {cache.root()}")
        named = ""
        for _ in range(_ATTEMPTS):
            request = Request(spec)
            try:
                with thread_lock(request.key):
                    return action(request)
            except KeyboardInterrupt as interrupt:
                told = f"KeyboardInterrupt: {spec.title} is not built; what it compiled is kept"
                interrupt._render_traceback_ = told.splitlines  # type: ignore[attr-defined]  # in IPython
                raise
            except SourceEdited as error:
                named = f" ({', '.join(error.args)})" if error.args else ""
                reporter.say(f"a source changed during the build{named}; building again")
    raise BuildError(
        f"the sources of {spec.name!r} changed during each of {_ATTEMPTS} builds{named}"
    )


def _make(request: Request, reporter: Reporter, force: bool = False) -> tuple[Record, bool]:
    """The record of a new build, and whether another process has just made it."""
    if settings.flag("LLTM_JIT_DISABLE_JIT"):
        raise ToolchainError(
            f"{request.spec.name} {request.key} is not built, and LLTM_JIT_DISABLE_JIT forbids "
            "building it"
        )
    from ..compile import builder
    from ..store import lock
    from ..user.progress import Follower

    background.stand_back(request.spec)
    builder.check(request)
    follower = Follower(reporter, request.work / cache.LOG)
    before, _ = builder.last_failure(request)
    with lock.held(request.place, reporter.say, follower.look):
        reporter.close()
        # The first look has reported damaged builds.
        if not force and (record := _find(request, reporter.detail)):
            return record, True
        failed, error = builder.last_failure(request)
        if error and failed > before:  # while this process waited
            raise error
        return builder.build(request, reporter, anew=force), False


def _reporter(verbose: bool | None = None, label: str = "") -> Reporter:
    from ..user.progress import Reporter

    return Reporter(verbose, label)


def _find(request: Request, say: Callable[[str], None]) -> Record | None:
    """The record of a valid and current build, now marked as used; a damaged one is reported.

    Without a compiler, any build of this name that fits will do.
    """
    by_nvrtc = request.by_nvrtc and not request.spec.variant
    with_compiler = by_nvrtc or request.toolchain.cxx is not None
    start = request.key if with_compiler else request.key[: cache.NAME]
    for directory in cache.directories(start):
        try:
            record, stamps = cache.read_record(directory), Stamps(directory)
            if record is None:
                continue
            if with_compiler:
                fits = request.matches(record, stamps)
            else:
                from . import packaged  # programs with a compiler do not need it

                fits = not packaged.why_not(request, record)
            if fits:
                cache.mark_used(directory)  # first, so that nobody prunes it meanwhile
                check_library(record, stamps)
                return record
        except DamagedBuild as damage:
            say(f"the cached build {directory.name} is damaged: {damage}")
    return None


def _in_package(request: Request) -> Record | None:
    """The record of a library that a wheel brings for a request, if it fits."""
    folder = Path(request.spec.packaged or Path(request.base) / cache.WHEEL_FOLDER)
    if request.spec.texts or not (folder / f"{request.spec.name}.json").exists():
        return None
    from . import packaged

    return packaged.matching(request, folder)


def package(spec: Spec, folder: Path) -> None:
    """Build an extension, and put its library into a folder of a wheel, next to its record."""
    import shutil

    info = build(spec)
    record = cache.read_record(info.directory)
    assert record is not None
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy2(info.library, folder)
    told = record._replace(reason="compiled when the package was built")
    cache.write_record(folder / f"{spec.name}.json", told)


def load_all(specs: Sequence[Spec]) -> list[Build]:
    """Load several extensions; those that are not built yet are built at the same time."""
    labels = [spec.name if len(specs) > 1 else "" for spec in specs]
    loads = zip(specs, labels, strict=True)
    return at_once(partial(load, spec, reporter=_reporter(label=label)) for spec, label in loads)


def build_all(
    specs: Iterable[Spec], *, force: bool = False, verbose: bool | None = None
) -> list[BuildInfo]:
    """Build several extensions at the same time, unless they are cached, without loading them."""
    return at_once(
        partial(build, spec, force=force, reporter=_reporter(verbose, spec.name)) for spec in specs
    )


def at_once(calls: Iterable[Callable[[], T]]) -> list[T]:
    """The results of several builds; when one fails, the others are cancelled."""
    from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

    calls, unwanted = list(calls), threading.Event()
    if len(calls) == 1:
        return [calls[0]()]
    with ThreadPoolExecutor(len(calls) or 1) as pool, cancelled_by(unwanted):
        try:
            futures = [pool.submit(copy_context().run, call) for call in calls]
            pending = set(futures)
            while pending:  # short waits, because a signal that another thread gets ends no wait
                done, pending = wait(pending, 0.1, FIRST_COMPLETED)
                for future in done:
                    future.result()  # raises its error
        except BaseException:
            unwanted.set()
            raise
        return [future.result() for future in futures]
