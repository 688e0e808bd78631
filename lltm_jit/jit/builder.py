"""One build: seed, compile in a worker, publish. The caller holds the key's lock."""

from __future__ import annotations

import shutil
import sysconfig
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from . import cache, diagnostics, knobs, lock, pch, pool, publish, retention
from .cache import BUILD_FILE, Record
from .cancel import Cancelled
from .errors import BuildError, CacheError, ToolchainError
from .fingerprint import (
    Fingerprint,
    build_key,
    differences,
    fingerprint,
    flags_key,
    in_short,
    reasons,
)
from .jobs import job_count
from .process import build_environment, find_ninja, run_worker
from .progress import Reporter
from .seed import Seed, describe_objects, seed
from .spec import BuildSpec
from .toolchain import Toolchain, cuda_cure


@dataclass(frozen=True)
class _Plan:
    """What is built, with what, and why."""

    spec: BuildSpec
    toolchain: Toolchain
    content: Fingerprint
    key: str
    why: list[str]
    jobs: int
    ninja: Path
    places: list[str]
    began: float

    def content_is_the_same(self) -> bool:
        """Whether no source was edited since the plan was made."""
        return fingerprint(self.spec, self.toolchain) == self.content

    def record(self, directory: Path, seeded: Seed, reporter: Reporter, *, failed: bool) -> Record:
        made = describe_objects(directory, self.ninja, self.spec, self.content)
        return Record(
            key=self.key,
            flags_key=flags_key(self.content),
            fingerprint=self.content,
            library=self.spec.product,
            digest="" if failed else cache.digest(directory / self.spec.product),
            reason=", ".join(self.why),
            seconds=round(time.time() - self.began, 3),
            compiled=reporter.compiled,
            reused=len(self.spec.sources) - reporter.compiled,
            created=time.time(),
            sources=[str(path) for path in self.spec.sources],
            places=self.places,
            objects={**seeded.objects, **made},
            build_file="" if failed else cache.digest(directory / BUILD_FILE),
            failed=failed,
        )


def build(
    spec: BuildSpec,
    toolchain: Toolchain,
    content: Fingerprint,
    reporter: Reporter,
    *,
    anew: bool = False,
) -> Record | None:
    """Compile a spec and publish the result; None when a source was edited meanwhile.

    ``anew`` reuses no object of an earlier build.

    Raises:
        BuildError: a source does not compile or link.
        ToolchainError: the compiler or ninja is missing.
        CacheError: the build cannot be written.
    """
    check(spec, toolchain)
    earlier = [record for record in cache.records() if record.fingerprint["name"] == spec.name]
    plan = _Plan(
        spec=spec,
        toolchain=toolchain,
        content=content,
        key=build_key(content),
        why=["asked for anew"] if anew else reasons(nearest(earlier, content), content),
        jobs=job_count(spec.with_cuda),
        ninja=find_ninja(),
        places=compile_line_places(spec, toolchain),
        began=time.time(),
    )
    reporter.say(f"building {_announcement(plan)}: {in_short(plan.why)}")
    directory = publish.new_directory(plan.key)
    try:
        # The objects of a build that failed serve as well.
        seeds = [] if anew else [*earlier, *cache.records(failed=True)]
        record = _build_in(directory, plan, reporter, seeds)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        retention.prune()
    if record is not None:
        lock.forget_failure(plan.key)
        reporter.report(
            f"ready in {record.seconds:.1f} s ({record.compiled} compiled, {record.reused} reused)"
        )
    return record


def _build_in(
    directory: Path, plan: _Plan, reporter: Reporter, seeds: list[Record]
) -> Record | None:
    """Compile in a fresh directory, and move it to its place."""
    with _texts_written(plan.spec, reporter):
        seeded = seed(directory, plan.ninja, plan.spec, plan.content, seeds, plan.places)
        publish.write_constants(directory, plan.spec)
        _tell_plan(plan, directory, seeded, reporter)
        try:
            _compile(plan, directory, seeded, reporter)
        except (BuildError, Cancelled, KeyboardInterrupt):
            with suppress(BuildError, CacheError, OSError):  # only speed is lost
                _keep_objects(plan, directory, seeded, reporter)
            raise
    if not plan.content_is_the_same():
        return None
    record = plan.record(directory, seeded, reporter, failed=False)
    publish.publish(directory, record)
    retention.hold(plan.key)  # before anybody prunes: by the clock, it need not be the newest
    return record


def _keep_objects(plan: _Plan, directory: Path, seeded: Seed, reporter: Reporter) -> None:
    """Keep what a failed build finished for the next one."""
    record = plan.record(directory, seeded, reporter, failed=True)
    if record.objects and plan.content_is_the_same():
        publish.keep_objects(directory, record)


def compile_line_places(spec: BuildSpec, toolchain: Toolchain) -> list[str]:
    """The paths that torch writes into its build file, in the same order for equal keys."""
    own = [str(path) for path in (*spec.sources, *spec.include_paths)]
    torch_directory = str(Path(torch.__file__).parent)
    return [*own, torch_directory, sysconfig.get_path("include"), str(toolchain.cuda_home)]


@contextmanager
def _texts_written(spec: BuildSpec, reporter: Reporter) -> Iterator[None]:
    """Write the sources that were given as strings, under a lock of their path, and keep it.

    The path is the same for each build of one name, so that only a changed string is compiled.
    """
    if not spec.texts:
        yield
        return
    with lock.file_lock(f"inline-{spec.name}", reporter.say):
        for path, text in spec.texts:
            with cache.writing():
                cache.make_directory(path.parents[1])
                cache.make_directory(path.parent)
                if not path.exists() or path.read_bytes() != text.encode():
                    path.unlink(missing_ok=True)  # it may be another's who shares the root
                    path.write_bytes(text.encode())
                    publish.set_mode(path)
        yield


def check(spec: BuildSpec, toolchain: Toolchain) -> None:
    """Refuse what is known to fail before anything is compiled.

    Raises:
        ToolchainError: a compiler or ninja is missing, or a setting cannot be used.
        CacheError: there is no place for builds.
    """
    if toolchain.cxx is None:
        raise ToolchainError(
            f"no C++ compiler was found, for there is no {knobs.text('CXX')!r}; install one "
            "(Debian and Ubuntu: `apt-get install g++`) or set CXX to yours"
        )
    if spec.with_cuda and not toolchain.cuda:
        raise ToolchainError(
            f"{spec.name} has CUDA sources, but {toolchain.cuda_missing}; {cuda_cure()}"
        )
    find_ninja()
    knobs.count("LLTM_JIT_KEEP")  # read after the work, which ends with pruning
    cache.make_builds_directory()


def nearest(earlier: list[Record], content: Fingerprint) -> Fingerprint | None:
    """The build to tell the difference from: of the same kind, and the most similar.

    The newest of several, and where one has the same flags, that.
    """
    similar = [
        record.fingerprint
        for record in earlier
        if record.fingerprint["files"].keys() & content["files"].keys()
        and record.fingerprint.get("constants") == content.get("constants")
    ]
    flags = flags_key(content)
    return min(
        (other for other in similar if _kind(other) == _kind(content)),
        key=lambda other: (flags_key(other) != flags, len(differences(other, content))),
        default=None,
    )


def _kind(content: Fingerprint) -> set[str]:
    """What a build for a debugger or a profiler is known by: it replaces no ordinary one."""
    return {"-g", "-lineinfo"} & {*content["cflags"], *content["cuda_cflags"]}


def _announcement(plan: _Plan) -> str:
    spec, toolchain = plan.spec, plan.toolchain
    name = f"{spec.title} " if spec.title else ""
    target = "CPU"
    tool = toolchain.compiler
    if spec.with_cuda:
        target = ", ".join(f"sm_{arch.replace('.', '')}" for arch in spec.architectures)
        tool = f"nvcc {toolchain.nvcc_version.rpartition('.')[0]}"
    count = len(spec.sources)
    note = f"; {spec.note}" if spec.note else ""
    return f"{name}for {target} ({tool}, {_many(count, 'file')}, {_many(plan.jobs, 'job')}{note})"


def _tell_plan(plan: _Plan, directory: Path, seeded: Seed, reporter: Reporter) -> None:
    """What is about to happen, for those who want the whole story."""
    by = "MAX_JOBS says" if knobs.text("MAX_JOBS") else "CPUs and memory allow; MAX_JOBS overrides"
    reporter.detail(f"{_many(plan.jobs, 'job')}, as {by}")
    if plan.spec.with_cuda:
        cuda = plan.toolchain
        reporter.detail(f"CUDA {cuda.nvcc_version} at {cuda.cuda_home}, cudart is linked")
    for name in seeded.objects:
        reporter.detail(f"taking over {name}, whose files are unchanged")
    written = "taking over" if seeded.build_file else "torch writes"
    reporter.detail(f"{written} the build file {directory / BUILD_FILE}")


def _many(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _compile(plan: _Plan, directory: Path, seeded: Seed, reporter: Reporter) -> None:
    """Let torch write the build file where there is none, and ninja build; all goes to the log."""
    spec = plan.spec
    request: dict[str, Any] = {
        "directory": str(directory),
        "ninja": str(plan.ninja),
        "name": spec.name,
        "sources": [str(path) for path in spec.sources],
        "objects": spec.objects,
        "cflags": list(spec.cflags),
        "cuda_cflags": list(spec.cuda_cflags),
        "ldflags": list(spec.ldflags),
        "include_paths": [str(path) for path in spec.include_paths],
        "with_cuda": spec.with_cuda,
        "standalone": spec.standalone,
    }
    log, library = directory / cache.LOG, directory / spec.product
    reporter.start(len(set(spec.objects) - seeded.objects.keys()) + 1)
    try:
        with cache.writing(), log.open("w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(_log_head(plan))

            def on_line(line: str) -> None:
                file.write(line + "\n")
                reporter.line(line)

            def work(build_file: str | None) -> int:
                asked = {**request, "build_file": build_file}
                return run_worker(asked, environment, on_line, reporter.tick, reporter.pause)

            with (
                pool.compilers(plan.ninja, plan.jobs) as variables,
                build_environment(spec, plan.toolchain, plan.ninja) as environment,
            ):
                environment |= variables
                # Where an earlier build's is taken over, torch would write the same after a second.
                status = 0 if seeded.build_file else work(None)
                if status == 0 and not library.exists():
                    with pch.beside(directory / BUILD_FILE, spec, plan.toolchain, reporter) as more:
                        environment |= more
                        reporter.tick([])  # no file has begun yet
                        status = work(seeded.build_file or BUILD_FILE)
    finally:
        reporter.close()
    if status != 0 or not library.exists():
        _fail(plan, log, status)


def _log_head(plan: _Plan) -> str:
    """What somebody needs to know who sees nothing but the log."""
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
    kept = cache.failed_log(plan.key)
    with cache.writing():
        cache.make_directory(kept.parent)  # `cache clear` removes it
        kept.unlink(missing_ok=True)  # it may be another's who shares the root
        shutil.copyfile(log, kept)
        publish.set_mode(kept)
    message = diagnostics.explain(kept.read_text("utf-8"), plan.spec, kept, status, plan.jobs)
    lock.record_failure(plan.key, message)
    raise BuildError(message)
