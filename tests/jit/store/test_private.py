"""Nothing is loaded, imported or compiled from a place where another user may write."""

import ast
import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from harness import ALL, TEXT

import lltm_jit
from lltm_jit import jit
from lltm_jit.jit.loading import engine
from lltm_jit.jit.store import cache, private

NOBODY = 65534

# Every call in the package that loads code into a process, or runs Python from a file, by the
# function that makes it, and why no other user can choose what it loads.
LOADS = {
    ("__init__.py", "__getattr__"): "this package's own",
    ("_placeholders.py", "let_load"): "this package's own",
    ("_placeholders.py", "make"): "this package's own",
    ("jit/loading/build.py", "import_library"): "it checks the library first",
    ("jit/loading/build.py", "_initialize"): "what import_library checked",
    ("jit/loading/build.py", "operators_of"): "what import_library loaded, once more",
    ("jit/variants.py", "_address"): "what import_library loaded, once more",
    ("jit/variants.py", "ask_driver"): "the driver's, found by the system's loader",
    ("jit/variants.py", "driver_words"): "the driver's, found by the system's loader",
    ("jit/variants.py", "load_device_code"): "what import_library was given, and checked",
    ("jit/launch.py", "load"): "the driver's, found by the system's loader",
    ("ops/drop_in/__init__.py", "exec_module"): "this package's own",
    ("ops/rnn/own_cell.py", "load"): "what import_library loaded, once more",
    ("cli/doctor.py", "_trial"): "in a temporary directory of this process, with mode 700",
    ("jit/machine/gpus.py", "compute_capabilities"): "the driver's, found by the system's loader",
    ("jit/machine/nvrtc.py", "_library"): "torch's own, or that of the toolkit, as its nvcc",
    ("jit/compile/guard.py", "main"): "the C library, which Python has loaded",
    ("jit/wheel.py", "_put"): "the package whose setup.py runs",
    ("cli/__init__.py", "module_of"): "this package's own",
}


def calls_that_load() -> set[tuple[str, str]]:
    package = Path(lltm_jit.__file__).parent
    names = r"CDLL|PyDLL|load_library|LoadLibrary|exec_module|load_module|import_module|__import__"
    names += r"|run_path|run_module"
    found = set()
    known = rf"((.*\.)?({names})|exec|eval)\(.*|.*\('cu(Library|Module)Load\w*'.*"
    for file in package.rglob("*.py"):
        for function in ast.walk(ast.parse(file.read_text())):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
                calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
                if any(re.fullmatch(known, ast.unparse(call), re.DOTALL) for call in calls):
                    found.add((file.relative_to(package).as_posix(), function.name))
    return found


def test_every_call_that_loads_code_is_known():
    assert calls_that_load() == LOADS.keys()


def give_away(path: Path) -> str:
    """Let another user write to a path; what errors then say of it."""
    if os.geteuid() == 0:
        os.chown(path, NOBODY, -1)
        return f"{path} belongs to user {NOBODY}, but you are user 0"
    path.chmod(path.stat().st_mode | 0o022)
    return f"other users may write to {path} "


@pytest.mark.parametrize("name", [".", "_C.json", "_C.so"])
def test_a_packaged_library(bench, monkeypatch, capsys, name):
    """Another user may have put it beside sources in /tmp. It is passed over, and built."""
    place = bench.directory / cache.WHEEL_FOLDER
    engine.package(bench.spec(), place)
    assert jit.inspect(bench.spec()).directory == place
    said = give_away((place / name).resolve())
    assert jit.inspect(bench.spec()).directory.parent == bench.builds
    assert f"the packaged library of _C is not used: {said}" in capsys.readouterr().err
    monkeypatch.setenv("LLTM_JIT_TRUST_ROOT", "1")  # a group shares it on purpose
    assert jit.inspect(bench.spec()).directory == place


@pytest.mark.parametrize("name", [".", "ok.json", "_C.so"])
def test_a_build_in_the_cache(bench, name):
    key = bench.run()["key"]
    assert bench.counts == ALL
    said = give_away((bench.builds / key / name).resolve())
    result = bench.run()
    assert said in result["said"]
    assert result["text"] == TEXT
    assert bench.counts == ["link"]
    assert bench.run()["said"] == ""


@pytest.mark.parametrize("name", ["objects", "objects/*", "objects/*/*.json"])
def test_objects_in_the_store(bench, name):
    bench.first()
    for path in [*bench.builds.glob(name)]:
        give_away(path)
    bench.write("one/one.cpp", "un\n")
    assert bench.load().info.reused == 0


@pytest.mark.parametrize("name", ["work", "work/*"])
def test_where_a_request_is_compiled(bench, name):
    """A cache that a group had shared, of which only the folder itself was closed again."""
    bench.first()
    (place,) = bench.builds.glob(name)
    said = give_away(place)
    bench.write("one/one.cpp", "un\n")
    with pytest.raises(jit.CacheError, match=f"^{re.escape(said)}"):
        bench.load()
    assert bench.counts == []


def test_answers_of_compilers(bench):
    assert bench.run()["processes"] > 0
    assert bench.run()["processes"] == 0
    (memo,) = bench.builds.glob("tools-*.json")
    give_away(memo)
    assert bench.run()["processes"] > 0


def test_root_that_others_may_write_to_is_refused(bench):
    bench.run()
    bench.builds.chmod(0o777)
    result = bench.run()
    assert result["error"] == "CacheError"
    assert "other users may write to" in result["message"]
    assert f"chmod go-w {bench.builds}" in result["message"]
    assert bench.run(LLTM_JIT_TRUST_ROOT="1")["cached"]
    bench.builds.chmod(0o755)
    bench.builds.parent.chmod(0o777)
    assert bench.run()["error"] == "CacheError"


@pytest.mark.parametrize("place", ["", "a/b"])
@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_folder_on_the_way_that_others_may_write_to(tmp_path, monkeypatch, place, mode):
    monkeypatch.setattr(private, "_is_own_group", lambda path, group: False)
    way = tmp_path / "way" / place
    (way / "more").mkdir(parents=True)
    (tmp_path / "link").symlink_to(way)
    for root in (way / "more" / "root", tmp_path / "link" / "root"):
        for bits, refused in ((0o755, False), (mode, True), (0o1777, False)):  # the last as /tmp
            way.chmod(bits)
            told = private.why_not_private(root)
            assert told.endswith(f"(mode {mode:o}; fix: `chmod go-w {way}`)" if refused else "")
            assert bool(told) == refused


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("name", ["way", "link", "link/root"])
def test_a_folder_or_a_link_on_the_way_that_is_anothers(tmp_path, name):
    (tmp_path / "way" / "root").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "way")
    assert private.why_not_private(tmp_path / "link" / "root") == ""
    os.chown(tmp_path / name, 1234, -1, follow_symlinks=False)
    told = private.why_not_private(tmp_path / "link" / "root")
    assert told == f"{tmp_path / name} belongs to user 1234, but you are user 0"


def test_a_folder_like_tmp_may_lead_to_a_place_but_not_be_one(tmp_path):
    """Others cannot replace what is in it, but may put more files there."""
    (tmp_path / "tmp" / "own").mkdir(parents=True)
    (tmp_path / "tmp").chmod(0o1777)
    for name in ("one.so", "own/one.so"):
        (tmp_path / "tmp" / name).touch()
    said = private.why_not_private(tmp_path / "tmp" / "one.so")
    assert said.startswith(f"other users may write to {tmp_path}/tmp ")
    assert private.why_not_private(tmp_path / "tmp" / "own" / "one.so") == ""


def test_a_group_that_is_this_users_alone_is_no_other(tmp_path, monkeypatch):
    """But with an access control list, the bits of the group stand for all users in it."""
    (tmp_path / "way").mkdir()
    (tmp_path / "way").chmod(0o775)
    with monkeypatch.context() as patch:
        patch.setattr(private, "_is_own_group", lambda path, group: group == os.getgid())
        assert private.why_not_private(tmp_path / "way" / "root") == ""
    monkeypatch.setattr(os, "getxattr", lambda path, name: b"", raising=False)
    assert not private._is_own_group(tmp_path, tmp_path.stat().st_gid)


def test_the_home_directory_counts_but_nothing_above_it(tmp_path, monkeypatch):
    home = tmp_path / "above" / "home"
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    give_away(home.parent)
    assert private.why_not_private(home / "root") == ""
    assert private.why_not_private(home) == ""
    said = give_away(home)
    assert private.why_not_private(home / "root").startswith(said)


def test_the_user_who_stands_for_all_others_is_not_trusted(monkeypatch):
    """In a user namespace, `/` and this code may belong to nobody, as any other user's files do."""
    overflow = int(Path("/proc/sys/kernel/overflowuid").read_text())
    with monkeypatch.context() as patch:
        patch.setattr(os, "stat", lambda path: SimpleNamespace(st_uid=overflow))
        trusted = private._trusted.__wrapped__()
    assert overflow not in trusted - {os.geteuid()}
