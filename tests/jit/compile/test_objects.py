"""The store of objects, and the folder in which a request is compiled."""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

import pytest
from engine_bench import ALL, text_of
from real_files import PLAIN

from lltm_jit import jit
from lltm_jit.jit.compile import objects
from lltm_jit.jit.loading import engine
from lltm_jit.jit.store import cache


def entries(bench) -> list[Path]:
    return sorted((bench.builds / "objects").glob("*/*.json"))


def remade(bench, **changes) -> jit.BuildInfo:
    """Build again, from objects alone."""
    for record in bench.builds.glob("*/ok.json"):
        shutil.rmtree(record.parent)
    return engine.build(bench.spec(**changes))


def test_objects_are_found_by_commands_and_contents(bench):
    """Whatever else is built: other sources beside them, another linking, another name of a file
    that is the same.
    """
    bench.first()
    assert engine.build(bench.spec(ldflags=("-lm",))).reused == 2
    assert bench.counts == ["link"]
    bench.write("three.cpp", "three\n")
    assert engine.build(bench.spec()).reused == 2
    assert bench.counts == ["compile three.cpp", "link"]
    engine.build(bench.spec(cflags=("-DX",)))
    assert len(bench.counts) == 4


def test_flags_are_the_same_however_they_are_given(bench):
    bench.first(cflags=("-DA -DB='1  2'",))
    assert engine.build(bench.spec(cflags=("-DA", "-DB='1  2'"))).cached
    for other in ("-DB='1 2'", '-DB="1  2"', "-DB=1"):
        assert not engine.build(bench.spec(cflags=("-DA", other))).cached


def test_what_was_built_before_compiles_nothing(bench):
    """Edits back and forth, of a source and of a header, and of a header's time alone."""
    bench.first()
    header = bench.sources / "core/shared.h"
    for name, text in (("core/shared.h", "other\n"), ("two/two.cpp", "zwei\n")):
        before = (bench.sources / name).read_text()
        bench.edited(name, text, {"core/shared.h": "one.cpp"}.get(name, ""))
        bench.write(name, before)
        assert text_of(bench.load()).endswith("two")
        assert bench.counts == []
    os.utime(header, (1, 1))
    assert remade(bench).reused == 2
    assert bench.counts == ["link"]


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


def damaged(path: Path) -> None:
    path.chmod(0o600)
    path.write_bytes(path.read_bytes()[:-3] + b"xyz")


@pytest.mark.parametrize("end", [".json", ".o", "gone"])
def test_a_damaged_object_is_compiled_again(bench, end):
    bench.first()
    (entry,) = (path for path in entries(bench) if "two" in path.with_suffix(".o").read_text())
    if end == "gone":
        entry.with_suffix(".o").unlink()
    else:
        damaged(entry.with_suffix(end))
    assert remade(bench).compiled == 1
    assert bench.counts == ["compile two.cpp", "link"]
    assert remade(bench).reused == 2


def test_what_other_processes_do_to_objects_fails_no_build(bench, monkeypatch):
    """They remove entries while these are listed; and those of others cannot be marked as used."""
    bench.first()
    for entry in entries(bench):
        command, _, _ = entry.stem.partition("-")
        entry.with_name(f"{command}-gone.json").symlink_to("nowhere")

    def refuse(path, *_):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "utime", refuse)
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


def test_a_forced_build_compiles_everything(bench):
    bench.first()
    assert engine.build(bench.spec(), force=True).compiled == 2
    assert bench.counts == ALL


def test_a_file_of_the_future_makes_a_build_stale_at_once(real, monkeypatch):
    """Where a file system's clock is ahead, nobody can tell whether it was edited meanwhile."""
    source = real.write("source.cpp", f'#define FILE "value.h"\n#include FILE\n{PLAIN}')
    real.write("value.h", "#define VALUE 1\n")
    spec = jit.Spec("value", (str(source),), python_module=False)
    now = time.time_ns
    monkeypatch.setattr(objects.time, "time_ns", lambda: now() - 3600 * 10**9)
    engine.build(spec)
    assert engine.inspect(spec) is None
    monkeypatch.setattr(objects.time, "time_ns", now)
    assert engine.build(spec).compiled == 1
    assert engine.inspect(spec)


def test_a_killed_builders_leftovers_do_no_harm(bench):
    """They lie in the folder where the next build is made."""
    bench.run()
    (work,) = (bench.builds / "work").iterdir()
    bench.write("one/one.cpp", "//! error no\n")
    for name in ("one.o", "two.o", "_C.so", "one.o.d", "link.d", ".ninja_log", ".ninja_deps"):
        (work / name).write_text("# ninja log v7\n0\t1\t1\tone.o\tx\n")
    with pytest.raises(jit.BuildError):
        bench.load()
    bench.write("one/one.cpp", "uno\n")
    assert text_of(bench.load()) == "uno\ntwo"


def test_counts_of_coverage_land_beside_the_notes(real):
    """In the folder where it was compiled, which the next build of the request uses, too; a request
    with another folder takes no such object from the store.
    """
    source = real.write("source.cpp", PLAIN.replace("VALUE", "1"))
    flags = ("--coverage",)
    spec = jit.Spec("value", (str(source),), cflags=flags, ldflags=flags, python_module=False)
    seen = set()
    for each in (spec, spec._replace(ldflags=(*flags, "-lm"))):
        content = engine.build(each).library.read_bytes()
        (notes,) = {*real.builds.rglob("*.gcno")} - seen
        assert str(notes.with_suffix(".gcda")).encode() in content
        seen.add(notes)


def test_depfiles_are_read_as_compilers_write_them():
    assert objects._paths(r"a\ b.h c\#d.h e$$f.h g\:h.h i\j.h k\\\ l.h") == [
        *("a b.h", "c#d.h", "e$f.h", "g:h.h", r"i\j.h", "k\\ l.h")
    ]
