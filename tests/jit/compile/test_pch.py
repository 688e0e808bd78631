"""The precompiled header: when it is made and used."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest
from engine_bench import alive, compiler_pid, finish, wait_for

from lltm_jit.jit import BuildError, BuildSpec, detect, load
from lltm_jit.jit.compile import pch
from lltm_jit.jit.store import retention

INCLUDE = "#include <torch/extension.h>\n"
FIRST = "// what it is\n/* and * why */ #pragma once\n" + INCLUDE


@pytest.fixture(autouse=True)
def room(monkeypatch):
    monkeypatch.setattr(pch, "_MEMORY", 0)
    monkeypatch.setattr(pch, "_DISK", 0)
    monkeypatch.setenv("LLTM_JIT_PCH", "1")


@pytest.fixture
def own(bench):
    """A source that begins with the include, beside one that does not."""
    bench.write("one/one.cpp", f"{FIRST}one\n")
    return bench


def headers(bench) -> list[Path]:
    return sorted(path.parent for path in bench.builds.glob("pch/*/header.json"))


def made(bench) -> Path:
    """The header, once it is there."""
    wait_for(lambda: [path for path in headers(bench) if not path.name.startswith("tmp-")])
    return headers(bench)[0]


def test_is_made_beside_the_first_build_and_used_by_the_next(own):
    own.load()
    made(own)
    assert own.counts == sorted(["compile one.cpp", "compile two.cpp", "header", "link"])
    own.write("one/one.cpp", f"{FIRST}two\n")
    assert own.load().info.compiled == 1
    assert own.counts == ["compile one.cpp with a header", "link"]
    assert list(own.builds.glob("pch/tmp-*")) == []


@pytest.mark.parametrize(
    "text",
    [
        "one\n",
        "int x;\n" + INCLUDE,
        "/**/" * 40,
        "#  include <a.h>\n" + INCLUDE,
        '#include "a.h"\n' + INCLUDE,
    ],
)
def test_is_not_made_for_a_source_that_begins_otherwise(bench, text):
    bench.write("one/one.cpp", text)
    bench.load()
    assert not (bench.builds / "pch").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"LLTM_JIT_PCH": "0"},
        {"CPATH": "/nowhere"},
        {"CPLUS_INCLUDE_PATH": "/nowhere"},
    ],
)
def test_is_not_made_where_it_is_not_wanted(own, changes, monkeypatch):
    for name, value in changes.items():
        monkeypatch.setenv(name, value)
    own.load()
    assert not (own.builds / "pch").exists()


@pytest.mark.parametrize(
    "flags",
    ["-include x.h", "-imacros x.h", "@flags", "-Wp,-DX", "-I$HOME", "-DX='`id`'", "-Winvalid-pch"],
)
def test_is_not_made_where_a_flag_may_change_what_is_included(own, flags):
    file = own.write("build.ninja", f"cxx = c++\ncflags = -O2 {flags}\n")
    assert pch.of(file, own.spec(), detect()) is None


def header_of(own, flags: str, cxx: str = "c++") -> pch.Header:
    file = own.write("build.ninja", f"cxx = {cxx}\ncflags = {flags}\n")
    found = pch.of(file, own.spec(), detect())
    assert found is not None
    return found


def test_one_header_for_all_names_and_include_paths_and_another_for_other_flags(own):
    first = header_of(own, "-DTORCH_EXTENSION_NAME=a -isystem /t -fPIC -std=c++17")
    assert first.command == ("c++", "-isystem", "/t", "-fPIC", "-std=c++17")
    again = header_of(own, "-DTORCH_EXTENSION_NAME=b -isystem /t -fPIC -std=c++17 -I/x -I /y")
    assert (again.key, again.searched) == (first.key, ("/x", "/y"))
    keys = {first.key}
    for flags in (
        "-isystem /t -std=c++17",
        "-isystem /u -fPIC -std=c++17",
        "-isystem /t -fPIC -std=c++20",
        *(
            f"-isystem /t -fPIC -std=c++17 {flag}"
            for flag in (
                "-O2",
                "-O3",
                "-g",
                "-DNDEBUG",
                "-march=native",
                "-UX",
                "-DCPU_CAPABILITY=AVX2",
            )
        ),
    ):
        keys.add(header_of(own, flags).key)
    keys.add(header_of(own, "-isystem /t -fPIC -std=c++17", "g++").key)
    assert len(keys) == 12


@pytest.mark.parametrize(
    "change", [{"cxx_version": "c++ 9"}, {"torch_version": "1"}, {"python_abi": "x"}]
)
def test_another_compiler_or_torch_gets_a_header_of_its_own(own, change):
    key = header_of(own, "-O2").key
    other = pch.of(own.sources / "build.ninja", own.spec(), detect()._replace(**change))
    assert other.key != key


def test_another_family_of_compilers_goes_without(own):
    own.write_compiler("clang version 19")
    own.load()
    assert not (own.builds / "pch").exists()


def test_who_asks_for_it_waits_for_it(own, capsys):
    own.load(with_header=True)
    assert own.counts == sorted(
        ["header", "compile one.cpp with a header", "compile two.cpp with a header", "link"]
    )
    assert "waiting for the precompiled header" in capsys.readouterr().err


def test_a_compiler_that_fails_is_not_asked_again(own, monkeypatch):
    monkeypatch.setenv("FAKE_HEADER", "error no")
    own.load(with_header=True)
    own.write("one/one.cpp", f"{FIRST}two\n")
    own.load(with_header=True)
    assert own.counts.count("header") == 1
    assert "error: no" in json.loads((made(own) / "header.json").read_text())["failed"]
    os.utime(made(own) / "header.json", (0, 0))
    own.write("one/one.cpp", f"{FIRST}three\n")
    monkeypatch.delenv("FAKE_HEADER")
    own.load(with_header=True)
    assert "compile one.cpp with a header" in own.counts


def test_a_build_that_fails_has_it_made_too(own):
    own.write("one/one.cpp", f"{FIRST}//! error x\n")
    with pytest.raises(BuildError):
        own.load()
    made(own)


def test_a_changed_file_of_torch_gives_another_header(own, template, monkeypatch, tmp_path):
    copy = tmp_path / "torch.h"
    shutil.copyfile(template, copy)
    monkeypatch.setenv("FAKE_TEMPLATE", str(copy))
    own.load(with_header=True)
    copy.write_bytes(copy.read_bytes() + b" ")
    own.write("one/one.cpp", f"{FIRST}two\n")
    own.counts.clear()
    own.load(with_header=True)
    assert own.counts.count("header") == 1


def test_a_process_does_not_wait_for_it_and_it_outlives_the_process(own, tmp_path):
    gate = tmp_path / "gate"
    own.run(FAKE_HEADER=f"wait {gate}")
    assert alive(compiler_pid(gate))
    Path(f"{gate}.go").touch()
    made(own)


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGKILL])
def test_an_ended_maker_leaves_nothing(own, tmp_path, monkeypatch, signal_number):
    gate = tmp_path / "gate"
    monkeypatch.setenv("FAKE_HEADER", f"wait {gate}")
    own.load()
    compiler = compiler_pid(gate)
    status = Path(f"/proc/{compiler}/status").read_text()
    maker = int(next(line for line in status.splitlines() if line.startswith("PPid")).split()[1])
    os.kill(maker, signal_number)
    if signal_number == signal.SIGTERM:
        wait_for(lambda: not alive(compiler))
    else:
        os.kill(compiler, signal_number)
        wait_for(lambda: not alive(maker))
        retention.prune_headers()
    wait_for(lambda: list(own.builds.glob("pch/*")) == [])


def test_of_those_that_nobody_waits_for_one_is_made_at_a_time(own, tmp_path, monkeypatch):
    gate = tmp_path / "gate"
    monkeypatch.setenv("FAKE_HEADER", f"wait {gate}")
    for number in range(3):
        own.load(cflags=(f"-DX={number}",))
    compiler_pid(gate)
    assert own.counts.count("header") == 1
    Path(f"{gate}.go").touch()
    made(own)
    own.load(cflags=("-DX=3",))
    wait_for(lambda: len(headers(own)) == 2)


def test_one_that_is_made_counts_as_a_job(own, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_HEADER", f"wait {tmp_path / 'gate'}")
    own.load()
    compiler_pid(tmp_path / "gate")
    for name in ("one", "two"):
        own.write(f"{name}/{name}.cpp", f"//! wait {tmp_path / name}\n")
    process = own.start()
    wait_for(lambda: (tmp_path / "one").exists() or (tmp_path / "two").exists())
    time.sleep(0.5)
    assert not ((tmp_path / "one").exists() and (tmp_path / "two").exists())
    for name in ("gate", "one", "two"):
        (tmp_path / f"{name}.go").touch()
    assert finish(process)["compiled"] == 2


def test_none_is_made_while_another_build_uses_the_jobs(own, tmp_path):
    gate = tmp_path / "gate"
    own.write("one/one.cpp", f"//! wait {gate}\n")
    other = threading.Thread(target=own.load)
    other.start()
    compiler_pid(gate)
    (tmp_path / "second").mkdir()
    (tmp_path / "second" / "second.cpp").write_text(FIRST)
    load(BuildSpec.from_directory("_C", tmp_path / "second", detect()))
    Path(f"{gate}.go").touch()
    other.join()
    assert "header" not in own.counts
    assert not (own.builds / "pch").exists()


def test_one_job_makes_none(own, monkeypatch):
    monkeypatch.setenv("MAX_JOBS", "1")
    own.load()
    assert not (own.builds / "pch").exists()


def test_prune_keeps_those_used_last(own):
    for index in range(4):
        place = own.builds / "pch" / f"{index:020}"
        (place / "torch").mkdir(parents=True)
        (place / "torch" / "extension.h.gch").write_bytes(b"12345")
        (place / "header.json").write_text("{}")
        os.utime(place / "header.json", (time.time() - index,) * 2)
    os.utime(own.builds / "pch" / f"{1:020}" / "header.json", (0, 0))
    (own.builds / "locks").mkdir()
    assert list(retention.header_sizes().values()) == [7] * 4
    assert len(retention.prune_headers()) == 2
    assert list(retention.header_sizes()) == [f"{0:020}", f"{2:020}"]
