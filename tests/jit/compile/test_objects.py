"""The store of objects, and what stays there of a build that fails or does not end."""

import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest
from harness import ALL, TEXT, alive, text_of

from lltm_jit import jit
from lltm_jit.jit.compile import objects
from lltm_jit.jit.loading import build as builds
from lltm_jit.jit.loading import engine
from lltm_jit.jit.request.request import Request
from lltm_jit.jit.request.spec import spec
from lltm_jit.jit.store import cache, lock
from lltm_jit.jit.torch_api import build, load
from lltm_jit.jit.user.errors import Cancelled, cancelled_by

NUMBER = 'extern "C" int value() { return 1; }\n'


def entries(bench) -> list[Path]:
    return sorted((bench.builds / "objects").glob("*/*.json"))


def remade(bench, **changes) -> jit.BuildInfo:
    """Build again, from objects alone."""
    for record in bench.records:
        shutil.rmtree(record.parent)
    return engine.build(bench.spec(**changes))


def test_objects_are_found_by_commands_and_contents(bench):
    """Whatever else is built: other sources beside them, another linking. No time counts."""
    bench.first()
    os.utime(bench.sources / "core/shared.h", (1, 1))
    assert engine.build(bench.spec(ldflags=("-lm",))).reused == 2
    assert bench.counts == ["link"]
    bench.write("three.cpp", "three\n")
    assert engine.build(bench.spec()).reused == 2
    assert bench.counts == ["compile three.cpp", "link"]
    engine.build(bench.spec(cflags=("-DX",)))
    assert len(bench.counts) == 4
    assert engine.build(bench.spec(), force=True).compiled == 3
    assert len(bench.counts) == 4


def test_flags_are_the_same_however_they_are_given(bench):
    bench.first(cflags=("-DA -DB='1  2'",))
    assert engine.build(bench.spec(cflags=("-DA", "-DB='1  2'"))).cached
    for other in ("-DB='1 2'", '-DB="1  2"', "-DB=1"):
        assert not engine.build(bench.spec(cflags=("-DA", other))).cached


def test_another_checkout_of_our_own_sources_takes_their_objects(bench, tmp_path):
    """Of the user's own, the code may name its folder, so these are compiled there."""
    copies = [tmp_path / name / "kernels" for name in ("a", "b")]
    for copy in copies:
        shutil.copytree(bench.sources, copy)
    for ours, expected in ((False, ALL), (True, ["link"])):
        engine.build(bench.spec(ours=ours, paths=(str(copies[0]),)))
        assert bench.counts == ALL
        remade(bench, ours=ours, paths=(str(copies[1]),))
        assert bench.counts == expected


@pytest.mark.parametrize("end", [".json", ".o", "gone"])
def test_a_damaged_object_is_compiled_again(bench, end):
    bench.first()
    (entry,) = (path for path in entries(bench) if "two" in path.with_suffix(".o").read_text())
    if end == "gone":
        entry.with_suffix(".o").unlink()
    else:
        damaged = entry.with_suffix(end)
        damaged.chmod(0o600)
        damaged.write_bytes(damaged.read_bytes()[:-3] + b"xyz")
    assert remade(bench).compiled == 1
    assert bench.counts == ["compile two.cpp", "link"]
    assert remade(bench).reused == 2


def test_what_other_processes_do_to_objects_fails_no_build(bench, monkeypatch):
    """They remove entries while these are listed; and those of others cannot be marked as used."""
    bench.first()
    for entry in entries(bench):
        command, _, _ = entry.stem.partition("-")
        entry.with_name(f"{command}-gone.json").symlink_to("nowhere")
    monkeypatch.setattr(os, "utime", Mock(side_effect=PermissionError))
    assert remade(bench).reused == 2
    assert bench.counts == ["link"]


def test_threads_put_equal_objects_into_the_store(bench, monkeypatch):
    """Of two builds that differ in their linking alone, at the same time."""
    both, link_or_copy = threading.Barrier(2, timeout=30), cache.link_or_copy

    def link_together(source: Path, target: Path) -> None:
        link_or_copy(source, target)
        if target.suffix == ".partial" and "objects" in target.parts:
            both.wait()

    monkeypatch.setattr(cache, "link_or_copy", link_together)
    monkeypatch.setenv("MAX_JOBS", "4")
    source = bench.write("two/two.cpp", "two\n")
    specs = [jit.Spec("_C", (str(source),), ldflags=flags) for flags in ((), ("-lm",))]
    assert [info.compiled for info in engine.build_all(specs)] == [1, 1]
    assert len(entries(bench)) == 1


def test_a_file_of_the_future_makes_a_build_stale_at_once(real, monkeypatch):
    """Where a file system's clock is ahead, nobody can tell whether it was edited meanwhile."""
    source = real.write("source.cpp", f'#define FILE "value.h"\n#include FILE\n{NUMBER}')
    real.write("value.h", "")
    asked = jit.Spec("value", (str(source),), python_module=False)
    now = time.time_ns
    monkeypatch.setattr(objects.time, "time_ns", lambda: now() - 3600 * 10**9)
    engine.build(asked)
    assert engine.inspect(asked) is None
    monkeypatch.setattr(objects.time, "time_ns", now)
    assert engine.build(asked).compiled == 1
    assert engine.inspect(asked)


def test_a_killed_builders_leftovers_do_no_harm(bench):
    """They lie in the folder where the next build is made."""
    bench.run()
    (work,) = (bench.builds / "work").iterdir()
    bench.write("one/one.cpp", "//! error no\n")
    for name in ("one.o", "two.o", "_C.so", "one.o.d", "link.d", ".ninja_log", ".ninja_deps"):
        (work / name).write_text("# ninja log v7\n0\t1\t1\tone.o\tx\n")
    bench.fails("no")
    bench.write("one/one.cpp", "uno\n")
    assert text_of(bench.load()) == "uno\ntwo"


def test_counts_of_coverage_land_beside_the_notes(real):
    """In the folder where it was compiled, which the next build of the request uses, too; a request
    with another folder takes no such object from the store.
    """
    flags = ("--coverage",)
    paths = (str(real.write("source.cpp", NUMBER)),)
    seen = set()
    for more in ((), ("-lm",)):
        asked = jit.Spec("value", paths, flags, ldflags=(*flags, *more), python_module=False)
        content = engine.build(asked).library.read_bytes()
        (notes,) = {*real.builds.rglob("*.gcno")} - seen
        assert str(notes.with_suffix(".gcda")).encode() in content
        seen.add(notes)


def test_depfiles_are_read_as_compilers_write_them():
    assert objects._paths(r"a\ b.h c\#d.h e$$f.h g\:h.h i\j.h k\\\ l.h") == [
        *("a b.h", "c#d.h", "e$f.h", "g:h.h", r"i\j.h", "k\\ l.h")
    ]


def test_failed_build_raises_the_first_error_and_the_next_try_builds(bench, monkeypatch):
    monkeypatch.chdir(bench.directory)
    path = bench.write("one/one.cpp", "//! error 'nonsense' was not declared\n")
    for _ in range(2):
        error = bench.fails("nonsense")
        assert "compile one.cpp" in bench.counts
        lines = str(error).splitlines()
        assert lines[:5] == [
            "error: 'nonsense' was not declared",
            "  --> kernels/one/one.cpp:1:5",
            "  |",
            "1 | //! error 'nonsense' was not declared",
            "  |     ^",
        ]
        log = lines[5].rpartition("full log: ")[2]
        assert "'nonsense' was not declared" in Path(log).read_text()
    assert isinstance(error, ImportError)
    assert isinstance(error, RuntimeError)  # as torch's own
    assert "Error building extension '_C'" in str(error)
    path.write_text("one\n")
    assert "one" in text_of(bench.load())


def test_what_a_failed_build_finished_is_not_compiled_again(bench):
    for said, first in (("this is wrong", ["compile one.cpp"]), ("still wrong", [])):
        bench.write("two/two.cpp", f"//! error {said}\n")
        bench.fails(said)
        assert bench.counts == [*first, "compile two.cpp"]
    assert text_of(bench.edited("two/two.cpp", "two\n")) == TEXT


@pytest.fixture
def second_waits(bench, gate, monkeypatch):
    """One file is compiled, and then another one's compiler waits at the gate."""
    monkeypatch.setenv("MAX_JOBS", "1")
    bench.write("one/one.cpp", "long, and so the first\n" * 99)
    bench.write("two/two.cpp", gate.order)
    return gate


def test_what_a_cancelled_build_finished_is_not_compiled_again(bench, second_waits):
    unwanted = threading.Event()
    second_waits.then(unwanted.set)
    with cancelled_by(unwanted), pytest.raises(Cancelled):
        engine.build(bench.spec())
    assert bench.counts == ["compile one.cpp", "compile two.cpp"]
    bench.edited("two/two.cpp", "two\n")


def test_a_build_that_takes_too_long_is_ended(bench, second_waits, hour):
    """With its compilers; what was finished is kept, and the next try compiles the rest."""
    second_waits.then(hour.set)
    with pytest.raises(jit.BuildTimeout) as caught:
        load("_C", bench.sources, timeout=900)
    error = caught.value
    told = "error: the build was ended after 900 s, while compiling two.cpp\n"
    assert str(error).startswith(told)
    assert error.file == str(bench.sources / "two/two.cpp")
    assert "FAILED" not in Path(error.log).read_text()
    assert not alive(second_waits.reached())
    assert bench.counts == ["compile one.cpp", "compile two.cpp"]
    bench.write("two/two.cpp", "two\n")
    load("_C", bench.sources, timeout=100)
    assert bench.counts == ["compile two.cpp", "link"]
    load("_C", bench.sources, timeout=0)  # which builds nothing


@pytest.mark.parametrize("several", [False, True])
def test_a_build_that_is_not_loaded_is_ended_too(bench, gate, hour, several):
    bench.write("two/two.cpp", gate.order)
    gate.then(hour.set)
    one = {"name": "_C", "sources": bench.sources}
    with pytest.raises(jit.BuildTimeout, match="the build was ended after 900 s"):
        build([one], timeout=900) if several else build(**one, timeout=900)
    assert not alive(gate.reached())


@pytest.mark.parametrize("timeout", [-1, float("nan")])
def test_a_timeout_that_is_no_time_is_refused(bench, timeout):
    with pytest.raises(ValueError, match=f"expected timeout to be a .* but got {timeout}"):
        load("_C", bench.sources, timeout=timeout)
    assert bench.counts == []


def test_the_wait_for_another_build_counts(bench):
    request = Request(spec("_C", bench.sources))
    who = f"waiting for process {os.getpid()}"
    with lock.held(request.place, print), pytest.raises(jit.BuildTimeout, match=who):
        load("_C", bench.sources, timeout=0.2)
    with ThreadPoolExecutor(1) as pool, builds.thread_lock(request.key):
        waiting = pool.submit(load, "_C", bench.sources, timeout=0.2)
        with pytest.raises(jit.BuildTimeout, match="while waiting for another thread"):
            waiting.result()
    assert bench.counts == []


@pytest.mark.parametrize("left", ["", "# ninja log v7\n0\t5\t17"])
def test_a_log_of_ninja_that_a_full_disk_cut_off(tmp_path, left):
    (tmp_path / ".ninja_log").write_text(left)
    assert objects.finished(tmp_path) == {}


def test_error_of_the_compiler_stands_when_nothing_can_be_kept(bench, monkeypatch):
    monkeypatch.setattr(cache, "link_or_copy", Mock(side_effect=OSError("no space")))
    bench.write("two/two.cpp", "//! error this is wrong\n")
    bench.fails("this is wrong")
