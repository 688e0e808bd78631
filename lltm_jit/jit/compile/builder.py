"""One build: seed, compile in a worker, publish. The caller holds the key's lock."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..machine import gpus
from ..machine.toolchain import Toolchain
from ..machine.tools import find_ninja
from ..request import blocks, inline
from ..request.checks import check
from ..request.differences import in_short, nearest, reasons
from ..request.fingerprint import Request, build_key
from ..request.spec import BuildSpec
from ..store import cache, contents, lock, publish, retention
from ..store.cache import BUILD_FILE, ObjectRecord, Record
from ..store.manifest import own_files
from ..user import settings
from ..user.cancel import Cancelled
from ..user.errors import BuildError, CacheError, SourceEdited, ToolchainError
from ..user.progress import Reporter, many
from . import diagnostics, files_read, jobs, pch
from .manifest_writer import Writer
from .process import build_environment, run_worker
from .seed import Seed, compile_line_places, decisions, seed, write_rest
from .torch_build_file import NEEDS_MORE

# The attributes of a spec that the worker gets as they are.
_TOLD = ("name", "objects", "product", "cflags", "cuda_cflags", "with_cuda", "standalone")


@dataclass(frozen=True)
class _Plan:
    """What is built, with what, and why."""

    request: Request
    why: list[str]
    jobs: int
    ninja: Path
    places: list[str]
    decided: list[str]
    began: float

    @property
    def spec(self) -> BuildSpec:
        return self.request.spec

    @property
    def toolchain(self) -> Toolchain:
        return self.request.toolchain


def build(request: Request, reporter: Reporter, *, anew: bool = False) -> Record:
    """Compile what is requested, and publish the result.

    ``anew`` reuses no object of an earlier build.

    Raises:
        SourceEdited: a file changed while it was compiled.
        BuildError: a source does not compile or link.
        ToolchainError: the compiler or ninja is missing.
        CacheError: the build cannot be written.
    """
    spec, toolchain, content = request.spec, request.toolchain, request.content
    check(spec, toolchain)
    if too_old := gpus.why_too_old(spec.title, spec.architectures, spec.least_architecture):
        raise ToolchainError(too_old)
    key = request.key
    earlier = cache.records(key[: cache.CONSTANTS])
    earlier = [record for record in earlier if record.fingerprint["name"] == spec.name]
    plan = _Plan(
        request=request,
        why=["rebuild was forced"] if anew else reasons(nearest(earlier, content), spec, content),
        jobs=jobs.job_count(spec.with_cuda),
        ninja=find_ninja(),
        places=compile_line_places(spec, toolchain),
        decided=decisions(spec, toolchain),
        began=time.time(),
    )
    reporter.say(f"building {_announcement(plan)}: {in_short(plan.why)}")
    directory = publish.new_directory(key)
    try:
        # The objects of a build that failed serve as well.
        seeds = None if anew else [*earlier, *cache.records(key[: cache.CONSTANTS], failed=True)]
        record = _build_in(directory, plan, reporter, seeds)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        retention.prune()
    lock.forget_failure(key)
    took = f"{record.seconds:.1f} s ({record.compiled} compiled, {record.reused} reused)"
    reporter.say(f"{spec.title} ready in {took}")
    return record


def _build_in(
    directory: Path, plan: _Plan, reporter: Reporter, seeds: list[Record] | None
) -> Record:
    """Compile in a fresh directory, and move it into place; without seeds, all of it."""
    # By the clock that files are stamped with, which may lag behind the other.
    since = min(time.time_ns(), directory.stat().st_ctime_ns)
    with inline.texts_written(plan.spec, reporter):
        seeded = Seed()
        if seeds is not None:
            seeded = seed(directory, plan.request, seeds, plan.places, plan.decided)
        inline.write_constants(directory, plan.spec)
        _tell_plan(plan, directory, seeded, reporter)
        try:
            _compile(plan, directory, seeded, reporter)
            record = _record(plan, directory, seeded, reporter, since)
        except (BuildError, Cancelled, KeyboardInterrupt, SourceEdited):
            if seeded.objects or files_read.finished(directory):
                with suppress(BuildError, CacheError, OSError, SourceEdited):  # only speed is lost
                    kept = _record(plan, directory, seeded, reporter, since, failed=True)
                    publish.keep_objects(directory, kept)
            raise
    publish.publish(directory, record)
    return record


def _record(
    plan: _Plan,
    directory: Path,
    seeded: Seed,
    reporter: Reporter,
    since: int,
    *,
    failed: bool = False,
) -> Record:
    """Record what the tools read; for a build that failed, also which objects can be reused.

    Raises:
        BuildError: a compiler did not report what it read.
        SourceEdited: a file changed while it was compiled.
    """
    spec = plan.spec
    search = seeded.search
    with build_environment(directory, spec, plan.toolchain, plan.ninja) as environment:
        search = search or files_read.search(directory, spec, plan.ninja, environment)
    objects = dict(seeded.objects)
    for name in files_read.finished(directory):
        if name in spec.objects and name not in objects:
            if made_from := files_read.compiled_from(directory, spec, name):
                objects[name] = made_from
            elif not failed:
                raise BuildError(
                    f"error: the compiler did not report which headers {name} includes, so edits "
                    "of these would go unnoticed; CXX must pass on -MMD and -MF"
                )
    linked = [] if failed else files_read.linked_from(directory, spec)
    folders, libraries = files_read.libraries(spec)
    writer = Writer(spec, plan.toolchain.cuda_home, [*search, *folders], since)
    labels = {name: writer.add(files) for name, files in objects.items()}
    writer.add(linked, linked=True)
    made_of = writer.finish([*libraries, *seeded.names])
    if writer.too_late or (writer.edited and not failed):
        raise SourceEdited(*sorted(writer.edited))
    if Request.of(spec, plan.toolchain) != plan.request:
        raise SourceEdited
    right = {name: found for name, found in labels.items() if writer.edited.isdisjoint(found)}
    read = list(dict.fromkeys(label for found in right.values() for label in found))
    place = {label: number for number, label in enumerate(read)}
    own = own_files(made_of, spec.base)
    return Record(
        key=plan.request.key if failed else build_key(plan.request.key, made_of),
        fingerprint=plan.request.content,
        manifest=made_of,
        read=read,
        library=spec.product,
        digest="" if failed else contents.digest(directory / spec.product),
        reason=", ".join(plan.why),
        seconds=round(time.time() - plan.began, 3),
        compiled=reporter.compiled,
        reused=len(spec.sources) - reporter.compiled,
        created=time.time(),
        places=plan.places,
        objects={
            name: ObjectRecord(
                digest=contents.digest(directory / name), files=[place[label] for label in found]
            )
            for name, found in right.items()
        },
        build_file="" if failed else contents.digest(directory / BUILD_FILE),
        decided=plan.decided,
        asked=spec.asked,
        toolchain=plan.toolchain._asdict(),
        registers=[] if failed else blocks.of_library(spec, own, directory / spec.product),
        failed=failed,
    )


def _announcement(plan: _Plan) -> str:
    spec, toolchain = plan.spec, plan.toolchain
    target, tool = "CPU", toolchain.compiler
    if spec.with_cuda:
        target = ", ".join(f"sm_{arch.replace('.', '')}" for arch in spec.architectures)
        tool = f"nvcc {toolchain.nvcc_version.rpartition('.')[0]}"
    note = f"; {spec.note}" if spec.note else ""
    work = f"{tool}, {many(len(spec.sources), 'file')}, {jobs.in_words(plan.jobs)}{note}"
    return f"{spec.title} for {target} ({work})"


def _tell_plan(plan: _Plan, directory: Path, seeded: Seed, reporter: Reporter) -> None:
    """Describe what is about to happen, for verbose output."""
    given = settings.text("MAX_JOBS")
    by = "MAX_JOBS says" if given else "CPUs and memory allow; MAX_JOBS overrides"
    reporter.detail(f"{jobs.in_words(plan.jobs)}, as {by}")
    if plan.spec.with_cuda:
        cuda = plan.toolchain
        reporter.detail(f"CUDA {cuda.nvcc_version} at {cuda.cuda_home}, cudart is linked")
    for name in seeded.objects:
        reporter.detail(f"reusing {name}: its files are unchanged")
    written = "taking over" if seeded.has_build_file else "torch writes"
    reporter.detail(f"{written} the build file {directory / BUILD_FILE}")


def _compile(plan: _Plan, directory: Path, seeded: Seed, reporter: Reporter) -> None:
    """Let torch write the build file if there is none, then run ninja; output goes to the log."""
    spec = plan.spec
    request: dict[str, Any] = {name: getattr(spec, name) for name in _TOLD} | {
        "directory": str(directory),
        "ninja": str(plan.ninja),
        "sources": [str(path) for path in spec.sources],
        "ldflags": [*spec.ldflags, *(word for word in plan.decided if word.startswith("-Wl,"))],
        "include_paths": [str(path) for path in spec.include_paths],
    }
    log, library = directory / cache.LOG, directory / spec.product
    steps = len({*spec.objects, spec.product} - seeded.objects.keys())
    reporter.start(steps, title=spec.title)
    try:
        # By lines, for the processes that follow it.
        with cache.writing(), log.open("w", 1, "utf-8", "backslashreplace") as file:
            file.write(_log_head(plan))

            def on_line(line: str) -> None:
                file.write(line + "\n")
                reporter.line(line)

            def work(build_file: str | None = None, all_of_torch: bool = False) -> int:
                asked = {**request, "build_file": build_file, "all_of_torch": all_of_torch}
                return run_worker(asked, environment, on_line, reporter.tick, reporter.pause)

            with (
                jobs.compilers(plan.ninja, max(1, plan.jobs - pch.taken_jobs())) as variables,
                build_environment(directory, spec, plan.toolchain, plan.ninja) as environment,
            ):
                environment |= variables
                # Where an earlier build's is taken over, torch would write the same after a second.
                status = 0 if seeded.has_build_file else work()
                if status == NEEDS_MORE:
                    status = work(all_of_torch=True)
                if status == 0:
                    rest = write_rest(directory, seeded.objects, spec.in_turn)
                    with pch.beside(directory / BUILD_FILE, spec, plan.toolchain, reporter) as more:
                        environment |= more
                        reporter.tick([])  # no file has begun yet
                        status = work(rest)
    finally:
        reporter.close()
    if status != 0 or not library.exists():
        _fail(plan, log, status)
    for warning in diagnostics.warnings(log.read_text("utf-8"), spec):
        reporter.report(warning)


def _log_head(plan: _Plan) -> str:
    """What a reader of the log alone needs to know."""
    with_cuda, toolchain = plan.spec.with_cuda, plan.toolchain
    facts = {
        "extension": plan.spec.name,
        "torch": toolchain.torch_version,
        "compiler": toolchain.cxx_version,
        "nvcc": f"{toolchain.nvcc_version} at {toolchain.cuda_home}" if with_cuda else "",
        "without CUDA": toolchain.cuda_missing,
        "architectures": ";".join(plan.spec.architectures),
        "jobs": str(plan.jobs),
        "environment": " ".join(f"{name}={value}" for name, value in toolchain.environment),
    }
    return "".join(f"# {name}: {value}\n" for name, value in facts.items() if value)


def _fail(plan: _Plan, log: Path, status: int) -> None:
    kept = cache.failed_log(plan.request.key)
    with cache.writing():
        cache.make_directory(kept.parent)  # `cache clear` removes it
        kept.unlink(missing_ok=True)  # it may be another's who shares the root
        shutil.copyfile(log, kept)
        publish.set_mode(kept)
    said = kept.read_text("utf-8")
    error = diagnostics.explain(said, plan.spec, kept, status, plan.jobs)
    blamed = diagnostics.blamed(said, plan.spec)
    if not any(os.stat(path).st_ctime >= plan.began for path in blamed):  # edited meanwhile
        lock.record_failure(plan.request.key, str(error), blamed)
    raise error
