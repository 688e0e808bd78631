"""Which module stands for a build, after loads, reloads and in threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from ways import MODULE

from lltm_jit import jit
from lltm_jit.jit import torch_api
from lltm_jit.jit.loading import engine, importing, reload
from lltm_jit.jit.store import cache


@pytest.fixture
def edited(bench):
    """Load the sources with another text in them."""

    def load(text: str):
        bench.write("two/two.cpp", f"{text}\n")
        return torch_api.load("_C", bench.sources)

    return load


def test_load_gives_what_it_gave_before_also_after_a_reload_of_another(edited):
    first, second = edited("one"), edited("two")
    assert reload.reload_module(first).build is reload.given(second)
    assert edited("two") is second
    third = edited("one")  # the build's own module shows the other one
    assert third not in (first, second)
    reload.reload_module(first)
    assert edited("one") is third
    assert first.__file__ == third.__file__


def test_two_folders_of_equal_content_are_two_modules(tmp_path, monkeypatch):
    """Each names its own folder, and has a reload of its own."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "root"))
    folders, modules = [tmp_path / "first", tmp_path / "the second"], []
    for folder in folders:
        folder.mkdir()
        (folder / "one.cpp").write_text(f"#define VALUE sizeof(__FILE__) - 1\n{MODULE}")
        modules.append(torch_api.load("same", folder / "one.cpp"))
    lengths = [len(f"{folder}/one.cpp") for folder in folders]
    assert [module.value() for module in modules] == lengths
    (folders[0] / "one.cpp").write_text(MODULE)
    reload.reload_module(modules[1])
    assert [module.value() for module in modules] == lengths
    reload.reload_module(modules[0])
    assert [module.value() for module in modules] == [1, lengths[1]]
    (folders[1] / "one.cpp").write_text(MODULE)
    reload.reload_module(modules[1])
    assert modules[0] is not modules[1]


def at_once(call) -> set:
    """What a call gives in several threads."""
    barrier = threading.Barrier(4)

    def run(_):
        barrier.wait()
        return call()

    with ThreadPoolExecutor(4) as pool:
        return set(pool.map(run, range(4)))


def test_threads_get_one_module(bench, edited):
    first = edited("one")
    edited("two")
    reload.reload_module(first)
    bench.write("two/two.cpp", "one\n")
    assert len(at_once(lambda: torch_api.load("_C", bench.sources))) == 1


def test_a_packaged_library_is_imported_once(bench, monkeypatch):
    spec = jit.Spec("_C", (str(bench.sources),))
    place = bench.directory / cache.WHEEL_FOLDER
    engine.package(spec, place)
    imported, original = [], importing.import_library
    monkeypatch.setattr(
        importing, "import_library", lambda *each: imported.append(each) or original(*each)
    )
    builds = at_once(lambda: jit.load(spec))
    assert len(builds) == len(imported) == 1
    assert builds.pop().info.directory == place
