"""The files of a build, with the fake compiler: what of it serves another, and what does not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from engine_bench import ALL, finish, text_of, wait_for

from lltm_jit import jit
from lltm_jit.jit import torch_api
from lltm_jit.jit.loading import engine
from lltm_jit.jit.request.fingerprint import Request
from lltm_jit.jit.store import contents, manifest


def test_the_other_objects_are_reused(bench):
    bench.first()
    build = bench.edited("one/core/shared.h", "a header that comes first\n", "one.cpp")
    assert text_of(build).startswith("a header that comes first")
    assert build.info.reason == "core came or went on its search path"


def test_another_checkout_shares_a_build(bench):
    first = engine.build(bench.spec(), jit.detect())
    assert bench.counts == ALL
    copy = bench.directory / "another" / "kernels"
    shutil.copytree(bench.sources, copy)
    spec = jit.BuildSpec.from_directory("_C", copy, jit.detect())
    assert engine.build(spec, jit.detect()).key == first.key
    assert bench.counts == []
    (copy / "core" / "shared.h").write_text("edited\n")
    assert engine.build(spec, jit.detect()).key != first.key
    assert bench.counts == ["compile one.cpp", "link"]


def test_a_header_elsewhere_is_that_of_the_own_checkout(bench):
    """Which one that is, a label relative to the sources would not tell."""
    keys = []
    for name in ("a", "b"):
        folder = bench.directory / name / "csrc"
        folder.mkdir(parents=True)
        (folder / "one.cpp").write_text('#include "../far/x.h"\n')
        (folder.parent / "far").mkdir()
        (folder.parent / "far" / "x.h").write_text(f"{name}\n")
        torch_api.load("_C", folder / "one.cpp")
        keys.append({path.parent.name for path in bench.builds.glob("*/ok.json")})
    assert len(keys[1]) == 2


@pytest.mark.parametrize("edit", [lambda path: path.write_text("edited\n"), Path.unlink])
def test_a_header_edited_while_it_is_compiled_is_compiled_again(bench, edit: Callable):
    gate = bench.directory / "gate"
    bench.write("one/core/shared.h", "found first\n")
    header = bench.sources / "one/core/shared.h" if edit is Path.unlink else None
    source = '#include "core/shared.h"\n' + f"//! wait {gate}\n"
    bench.write("one/one.cpp", source)
    process = bench.start()
    wait_for(gate.exists)
    edit(header or bench.sources / "one/core/shared.h")
    Path(f"{gate}.go").touch()
    result = finish(process)
    assert result["text"].startswith("shared header" if header else "edited")
    assert "a source changed during the build" in result["said"]
    assert bench.counts.count("compile two.cpp") == 1  # kept for the second try


def test_a_program_is_made_for_the_place_of_torchs_libraries(bench, monkeypatch):
    """torch writes it into the program, which would not start once they are elsewhere."""

    def keys():
        specs = (bench.spec(), bench.spec(standalone=True, python_module=False))
        return [Request.of(spec, jit.detect()).key for spec in specs]

    module, program = keys()
    monkeypatch.setattr("torch.__file__", str(bench.directory / "torch" / "__init__.py"))
    assert keys()[0] == module
    assert keys()[1] != program


def test_without_compilers_a_load_vouches_for_no_folder(tmp_path, monkeypatch):
    """It takes what is missing for a part of the compilers, which a later load may have."""
    monkeypatch.setattr(manifest, "is_settled", lambda stamp: True)
    found = {str(tmp_path): [["a.h"], 0, "", *[0] * 4]}
    made_of = {**manifest.empty(), "wanted": [["a.h"]], "folders": found}
    stamps = manifest.Stamps(tmp_path)
    assert not any(manifest.changes(made_of, tmp_path, recorded=True, stamps=stamps))
    assert manifest.changes(made_of, tmp_path, stamps=stamps).names == {"a.h"}


def test_a_stamp_that_was_fresh_before_the_file_was_read(tmp_path, monkeypatch):
    """The file may have changed while it was read, without another stamp."""
    path, began, read = tmp_path / "one.h", 10**18 + 1, os.read
    clock = [began]

    def read_slowly(*how):
        clock[0] += 2 * contents._TICK_NS
        return read(*how)

    path.write_text("one")
    monkeypatch.setattr(contents, "time", SimpleNamespace(time_ns=lambda: clock[0]))
    monkeypatch.setattr(contents, "_stamp", lambda status: [3, began, began, 1])
    monkeypatch.setattr(os, "read", read_slowly)
    first = contents.of(str(path)).digest
    path.write_text("two")
    assert contents.of(str(path)).digest != first
