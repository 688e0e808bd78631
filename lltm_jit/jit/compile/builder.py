"""One build: take objects from the store, compile the others, link, publish.

The caller has checked the request, and holds the lock of its place.
"""

from __future__ import annotations

import shutil
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from ..machine.toolchain import find_cxx
from ..machine.tools import cuda_cure, find_ninja, why_no_cxx
from ..request import texts
from ..request.request import Request, in_short, previous, reasons
from ..request.spec import CONSTANTS
from ..store import cache, files, retention
from ..store.cache import Record
from ..store.files import Inputs, digest_of
from ..user import settings
from ..user.errors import BuildError, BuildTimeout, CacheError, SourceEdited, ToolchainError
from ..user.progress import Reporter, many, source_name
from . import headers, jobs, ninja
from .headers import Headers
from .objects import Made, Store, finished

if TYPE_CHECKING:
    from . import nvrtc

# Seconds between two prunings after builds by NVRTC, which take less time than a pruning.
_PRUNING = 60
_pruned = -float(_PRUNING)  # the time of the last pruning


def check(request: Request) -> None:
    """Refuse a build that is known to fail, before anything is compiled. Writes nothing.

    Raises:
        ToolchainError: a compiler or ninja is missing, or a setting is wrong.
    """
    spec, tools = request.spec, request.toolchain
    if request.by_nvrtc:
        from . import nvrtc  # other builds do not need it

        nvrtc.check(request)
    else:
        if tools.cxx is None or not tools.cxx_version:
            raise ToolchainError("; ".join(why_no_cxx(find_cxx())))
        if request.with_cuda and not tools.cuda:
            raise ToolchainError(f"{spec.name} needs CUDA, but {tools.cuda_missing}; {cuda_cure()}")
        find_ninja()
    if request.architectures:
        from ..machine import gpus  # builds for the CPU do not need it

        if wrong := gpus.why_wrong(request.architectures):
            raise ToolchainError(wrong)
        if too_old := gpus.why_too_old(spec.title, request.architectures, spec.least_architecture):
            raise ToolchainError(too_old)
    retention.limit()  # a wrong limit would otherwise raise after the work, in the pruning


def build(request: Request, reporter: Reporter, *, anew: bool = False) -> Record:
    """Compile what is requested, and publish the result; ``anew`` takes nothing from the store.

    Raises:
        SourceEdited: a file changed while it was compiled.
        BuildError: a source does not compile or link.
        CacheError: the build cannot be written.
    """
    global _pruned
    last = None if anew else previous(request)
    why = ["rebuild was forced"] if anew else reasons(request, last)
    count = jobs.job_count(request.with_cuda)
    reporter.say(f"building {_announcement(request, count)}: {in_short(why)}")
    try:
        record = _Build(request, reporter, why, count, last).make(anew)
    finally:
        if not request.nvrtc or time.monotonic() - _pruned > _PRUNING:
            _pruned = time.monotonic()
            with suppress(CacheError, OSError):
                retention.prune()
    took = f"{record.seconds:.1f} s ({record.compiled} compiled, {record.reused} reused)"
    reporter.say(f"{request.spec.title} ready in {took}")
    return record


def last_failure(request: Request) -> tuple[int, BuildError | None]:
    """The time when a request's last build failed, and its error if the files are still the same:
    a new build of these files would fail in the same way.
    """
    path = request.work / cache.FAILURE
    with suppress(OSError, ValueError, KeyError, TypeError):  # no record, or a damaged one
        when, told = path.stat().st_mtime_ns, files.read_json(path)
        same = told["of"] == _state(request)
        return when, BuildError(told["text"], **told["parts"]) if same else None
    return 0, None


def _state(request: Request) -> str:
    """A digest of the request, and of the files that its sources may include."""
    read = files.closure(map(request.path_of, request.sources), request.searched)
    return digest_of([request.content, read])


def _tool(request: Request) -> ninja.BuildFile | nvrtc.Command:
    """The tool that compiles a request: ninja or NVRTC."""
    if not request.nvrtc:
        return ninja.BuildFile(request)
    from . import nvrtc  # other builds do not need it

    return nvrtc.Command(request)


class _Build:
    """One build of a request."""

    def __init__(
        self, request: Request, reporter: Reporter, why: list[str], jobs: int, last: Record | None
    ) -> None:
        self._request, self._reporter, self._why, self._jobs = request, reporter, why, jobs
        self._given_up = last.full if last else []
        self._headers: dict[str, Headers] = {}
        self._began = time.time()
        self._log = request.work / cache.LOG

    def make(self, anew: bool) -> Record:
        request, work = self._request, self._request.work
        self._prepare()
        self._state = _state(request)  # before the compilers read it
        if not request.nvrtc:  # code for the GPU alone includes nothing of torch
            self._headers = headers.of(request, self._given_up)
        with cache.writing():
            for chosen in self._headers.values():
                chosen.write(work)
        # The file system stamps files by a clock that may lag behind the system's.
        since = min(time.time_ns(), self._log.stat().st_ctime_ns)
        tool = _tool(request)
        store = Store(request, tool.commands(), self._headers, since)
        reused = {} if anew else {name: store.find(name) for name in request.objects}
        made: dict[str, Made] = {name: each for name, each in reused.items() if each is not None}
        turn = self._in_turn(made)
        tool.write(turn, self._headers, self._jobs)
        self._tell_plan(made)
        try:
            self._compile(tool, turn)
        except BaseException:
            with suppress(BuildError, CacheError, OSError):  # only speed is lost
                self._keep(store, made)
            raise
        self._keep(store, made)
        for each in filter(None, reused.values()):  # their inputs must still be the same
            store.changed.update(each.inputs.changes(request.base, store.stamps))
        record = self._record(store, made)
        cache.publish(work, record)
        store.stamps.keep_in(record.directory)
        return record

    def _prepare(self) -> None:
        """Remove an earlier build's outputs from the folder, and write the given texts."""
        request, work = self._request, self._request.work
        with cache.writing():
            cache.make_directory(work)
            cache.check_private(work)
            leftovers = [".ninja_log", ".ninja_deps", ninja.LINK_DEPENDENCIES]
            leftovers += [cache.LOG, cache.FAILURE, *(f"{name}.d" for name in request.objects)]
            for folder in work.glob("narrow-*"):
                shutil.rmtree(folder)
            for name in (*request.objects, request.product, *leftovers):
                (work / name).unlink(missing_ok=True)
            given = dict(request.spec.texts)
            if request.spec.variant:  # without #line, some call it ./constants.h
                given[CONSTANTS] = f'#line 1 "{CONSTANTS}"\n{request.spec.macros}'
            for name, text in given.items():
                (work / name).unlink(missing_ok=True)  # another user of a shared root may own it
                (work / name).write_text(text, "utf-8")
            self._log.write_text(self._log_head(), "utf-8", "backslashreplace")
            for path in (self._log, *(work / name for name in given)):
                cache.set_mode(path)

    def _in_turn(self, made: dict[str, Made]) -> list[str]:
        """The objects to compile, the largest sources first, so that no long compilation starts
        last and leaves the other processors idle.
        """
        request = self._request
        sizes = {}
        for name, source in request.objects.items():
            if name not in made:
                read = files.closure([request.path_of(source)], request.searched)
                sizes[name] = sum(files.stamp_of(path)[1] for path in read)
        return sorted(sizes, key=sizes.__getitem__, reverse=True)

    def _compile(self, tool: ninja.BuildFile | nvrtc.Command, turn: list[str]) -> None:
        """Compile these objects, and link. The output goes to the log.

        Raises:
            BuildError: a source does not compile or link.
        """
        request, reporter = self._request, self._reporter
        first = " ".join(source_name(request.objects[name], name) for name in turn[: self._jobs])
        link = not request.spec.device_code
        reporter.start(len(turn) + link, request.spec.title, first)
        try:
            # The log is flushed after each line, because waiting processes follow it.
            with cache.writing(), self._log.open("a", 1, "utf-8", "backslashreplace") as log:

                def on_line(line: str) -> None:
                    log.write(line + "\n")
                    reporter.line(line)

                with jobs.compilers(self._jobs, max(1, len(turn))) as mine:
                    status = tool.run(mine, on_line, reporter.tick) if turn or link else 0
        except BuildTimeout as error:
            done = finished(request.work)
            late = next((name for name in turn if name not in done), None)
            file = request.objects[late] if late else ""
            told = f"{error}, while compiling {source_name(file, late)}" if late else str(error)
            end = f"Error building extension '{request.spec.name}'; full log: {self._log}"
            text = f"{told}\n   = {end}"
            raise BuildTimeout(text, file=file or None, log=str(self._log)) from None
        finally:
            reporter.close()
        if status != 0 or not (request.work / request.product).exists():
            self._fail(status)
        said = self._log.read_text("utf-8")
        if "warning" in said:
            from . import diagnostics  # most builds do not need it

            for warning in diagnostics.warnings(said, request):
                reporter.report(warning)

    def _keep(self, store: Store, made: dict[str, Made]) -> None:
        """Put the compiled objects into the store.

        Raises:
            BuildError: a compiler did not report the files that it read.
        """
        for name, had in self._headers.items():
            if error := texts.read(self._request.work / had.folder / name):
                told = f"{name} got torch's full headers, because of: {error}"
                self._reporter.detail(told)
                self._headers[name] = had._replace(digest="", given_up=True)
        for name, seconds in finished(self._request.work).items():
            if name in self._request.objects and (kept := store.keep(name, seconds)):
                made[name] = kept

    def _record(self, store: Store, made: dict[str, Made]) -> Record:
        """The record of the build.

        Raises:
            SourceEdited: a file changed while it was compiled.
        """
        request, spec = self._request, self._request.spec
        linked = Inputs() if spec.device_code else store.linked()
        inputs = _joined([*(each.inputs for each in made.values()), linked], request)
        before, now = request.content["files"], Request(spec, request.toolchain).content
        edited = store.changed | {label for label, _ in before.items() ^ now["files"].items()}
        if edited or now != request.content:
            raise SourceEdited(*sorted(edited))
        library = request.work / request.product
        digest = files.digest(library)
        compiled = len(finished(request.work).keys() & {*request.objects})
        return Record(
            key=request.build_key(inputs, digest),
            spec=spec._asdict(),
            content=request.content,
            inputs=inputs,
            library=request.product,
            digest=digest,
            reason=", ".join(self._why),
            seconds=round(time.time() - self._began, 3),
            compiled=compiled,
            reused=len(request.sources) - compiled,
            created=time.time(),
            steps={name: each.seconds for name, each in made.items()},
            toolchain=request.toolchain._asdict(),
            full=[name for name, each in self._headers.items() if each.given_up],
            symbols=dict(pair for each in made.values() for pair in each.symbols.items()),
        )

    def _fail(self, status: int) -> None:
        """Raise the first error."""
        from . import diagnostics

        said = texts.read(self._log)  # empty if somebody removed the cache
        error = diagnostics.explain(said, self._request, self._log, status, self._jobs)
        told = {"of": self._state, "text": str(error), "parts": vars(error)}
        if error.line:  # without a line, a new try may succeed: a compiler may have been killed
            with suppress(OSError):  # only speed is lost
                files.write_json(self._request.work / cache.FAILURE, told)
        raise error

    def _tell_plan(self, made: dict[str, Made]) -> None:
        """Describe what is about to happen, for verbose output."""
        request, reporter = self._request, self._reporter
        given = settings.text("MAX_JOBS")
        by = "MAX_JOBS says" if given else "CPUs and memory allow; MAX_JOBS overrides"
        reporter.detail(f"{jobs.in_words(self._jobs)}, as {by}")
        if request.with_cuda and not request.nvrtc:
            cuda = request.toolchain
            reporter.detail(f"CUDA {cuda.nvcc_version} at {cuda.cuda_home}, cudart is linked")
        for name in made:
            reporter.detail(f"reusing {name}: its files are unchanged")
        for name, each in self._headers.items():
            reporter.detail(f"{name} gets {each.told}")
        if request.nvrtc:
            reporter.detail(f"compiled in this process by {request.nvrtc.path}")
        else:
            reporter.detail(f"torch wrote the build file {request.work / cache.BUILD_FILE}")

    def _log_head(self) -> str:
        """The first lines of the log: the facts that its reader needs."""
        request, tools = self._request, self._request.toolchain
        facts = {
            "extension": request.spec.name,
            "torch": tools.torch_version,
            "compiler": request.content["compiler"],
            "nvcc": f"{tools.nvcc_version} at {tools.cuda_home}" if request.content["nvcc"] else "",
            "without CUDA": tools.cuda_missing,
            "architectures": ";".join(request.architectures),
            "jobs": str(self._jobs),
            "environment": " ".join(f"{name}={value}" for name, value in tools.environment),
        }
        return "".join(f"# {name}: {value}\n" for name, value in facts.items() if value)


def _joined(parts: list[Inputs], request: Request) -> Inputs:
    """The inputs of a whole build, without its sources: the request lists these."""
    found = {label: digest for part in parts for label, digest in part.files.items()}
    read = {label: found[label] for label in found if label not in request.content["files"]}
    names = {name for part in parts for name in part.names}
    folders = dict.fromkeys(folder for part in parts for folder in part.folders)
    have = {each: files.names_in(files.place(request.base, each), names) for each in folders}
    return Inputs(read, {folder: sorted(names) for folder, names in have.items()}, sorted(names))


def _announcement(request: Request, count: int) -> str:
    tools = request.toolchain
    target, tool = "CPU", tools.compiler
    if request.with_cuda:
        target = ", ".join(f"sm_{arch.replace('.', '')}" for arch in request.architectures)
        told = ("NVRTC", request.nvrtc.version) if request.nvrtc else ("nvcc", tools.nvcc_version)
        tool = f"{told[0]} {told[1].rpartition('.')[0]}"
    note = f"; {request.note}" if request.note else ""
    work = f"{tool}, {many(len(request.sources), 'file')}, {jobs.in_words(count)}{note}"
    return f"{request.spec.title} for {target} ({work})"
