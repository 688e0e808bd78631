"""What a build was made from: files by content, and names that a tool may have looked for."""

import os
import shutil
import time
from types import SimpleNamespace

import pytest
from harness import ALL, text_of
from small_files import write

from lltm_jit import jit
from lltm_jit.jit import torch_api
from lltm_jit.jit.loading import engine
from lltm_jit.jit.request import flags
from lltm_jit.jit.request.request import Request
from lltm_jit.jit.store import files
from lltm_jit.jit.store.files import STALE, Inputs, Stamps


def test_changes_of_files_and_of_names(tmp_path):
    base, outside = tmp_path / "base", str(write(tmp_path / "lib" / "theirs.h", "theirs"))
    write(base / "mine.h", "mine")
    paths = [outside, f"{base}/mine.h"]
    names, folders = files.looked_up([str(base)], paths, ["torch/extension.h"])
    digests = {outside: files.digest(outside), "mine.h": files.digest(base / "mine.h")}
    inputs = Inputs(digests, {str(base): folders[str(base)]}, names)

    def changes() -> list[str]:
        return inputs.changes(str(base), Stamps(tmp_path))

    assert changes() == []
    write(base / "unrelated.h")
    assert changes() == []
    for hiding in ("lib", "theirs.h", "torch"):
        (base / hiding).mkdir()
        assert changes() == [f"{hiding} came or went in {base}"]
        (base / hiding).rmdir()
    assert changes() == []
    write(tmp_path / "lib" / "theirs.h", "edited")
    write(base / "mine.h", "edited")
    assert sorted(changes()) == [outside, "mine.h"]
    os.unlink(outside)
    assert sorted(changes()) == [outside, "mine.h"]


@pytest.mark.parametrize("there", ["", "a/x.h", "a/b/x.h"])
@pytest.mark.parametrize("beside", [False, True])
def test_a_name_inside_folders_that_may_be_there(tmp_path, there, beside):
    """Also where one of them is searched itself."""
    if there:
        write(tmp_path / there)
    folders = [str(tmp_path), *([str(tmp_path / "a")] if beside else [])]
    names, have = files.looked_up(folders, [], ["a/b/c.h"])
    inputs = Inputs({}, have, names)
    if there == "a/b/x.h":  # or a folder on the way comes, which counts, too
        write(tmp_path / "a" / "b" / "unrelated.h")
        write(tmp_path / "a" / "unrelated.h")
        assert inputs.changes("/", Stamps(tmp_path)) == []
    write(tmp_path / "a" / "b" / "c.h")
    assert inputs.changes("/", Stamps(tmp_path))


def test_links_that_lead_in_circles(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / name).symlink_to(".")
    _, have = files.looked_up([str(tmp_path)], ["a/b/c/x.h"])
    assert len(have) == 2


def test_the_other_objects_are_reused(bench):
    bench.first()
    build = bench.edited("one/core/shared.h", "a header that comes first\n", "one.cpp")
    assert text_of(build).startswith("a header that comes first")
    assert build.info.reason == "core came or went in kernels/one"


def test_a_project_where_libraries_lie_has_headers_of_its_own(bench, monkeypatch):
    """As in /usr/src/app: those in the folders that it names, in front of which one may come."""
    monkeypatch.setattr(flags, "library_folders", lambda: (f"{bench.directory}/",))
    include = bench.directory / "project" / "include"
    header = write(include / "mine.h", "mine\n")
    bench.write("one/one.cpp", '#include "mine.h"\none\n')
    given = {"cflags": (f"-I{include.parent}/first", f"-I{include}")}
    bench.first(**given)
    assert str(include) in engine.folders(bench.spec(**given))
    for path, text in ((header, "edited\n"), (include.parent / "first" / "mine.h", "in front\n")):
        write(path, text)
        assert text_of(bench.load(**given)).startswith(text)
        assert bench.counts == ["compile one.cpp", "link"]


def test_another_checkout_of_our_own_shares_a_build(bench):
    first = engine.build(bench.spec(ours=True))
    assert bench.counts == ALL
    copy = bench.directory / "another" / "kernels"
    shutil.copytree(bench.sources, copy)
    spec = bench.spec(ours=True, paths=(str(copy),))
    assert engine.build(spec).key == first.key
    assert bench.counts == []
    # What it watches are its own files, also where it lies in an environment.
    assert all(file.is_relative_to(copy) for file in engine.load(spec).files)
    write(copy / "core" / "shared.h", "edited\n")
    assert engine.build(spec).key != first.key
    assert "compile one.cpp" in bench.counts


def test_a_header_elsewhere_is_that_of_the_own_checkout(bench):
    """Which one that is, a label relative to the sources would not tell."""
    for name in ("a", "b"):
        source = write(bench.directory / name / "csrc" / "one.cpp", '#include "../far/x.h"\n')
        write(bench.directory / name / "far" / "x.h", f"{name}\n")
        torch_api.load("_C", source)
    assert len([*bench.builds.glob("*/ok.json")]) == 2


def test_a_program_is_made_for_the_place_of_torchs_libraries(bench, monkeypatch):
    """torch writes it into the program, which would not start once they are elsewhere."""

    def keys():
        specs = (bench.spec(), bench.spec(standalone=True, python_module=False))
        return [Request(spec).key for spec in specs]

    module, program = keys()
    monkeypatch.setattr("torch.__file__", str(bench.directory / "torch" / "__init__.py"))
    assert keys()[0] == module
    assert keys()[1] != program


@pytest.fixture
def theirs(tmp_path) -> str:
    return str(write(tmp_path / "theirs.h", "one"))


@pytest.fixture
def settled(monkeypatch):
    """All files count as written long ago."""
    monkeypatch.setattr(files, "_TICK_NS", -(10**18))
    monkeypatch.setattr(files, "_COARSE_TICK_NS", -(10**18))


def test_stamps_stand_for_contents_where_they_may(theirs, tmp_path, monkeypatch, settled):
    path, folder = theirs, tmp_path / "build"
    folder.mkdir()
    stamps = Stamps(folder)
    first = stamps.digests([path])
    read = []
    monkeypatch.setattr(files, "digest", lambda path: read.append(path) or "read")
    assert Stamps(folder).digests([path]) == first
    assert read == []
    device = os.stat(path).st_dev
    monkeypatch.setitem(files._changeable, device, False)  # as an image is mounted
    assert Stamps(folder).digests([path]) == {path: "read"}
    monkeypatch.setitem(files._changeable, device, True)
    monkeypatch.setattr(files, "_boot", lambda: "another")
    assert Stamps(folder).digests([path]) == {path: "read"}
    monkeypatch.setattr(files, "_boot", lambda: "")  # where the system does not tell
    for _ in range(2):
        assert Stamps(folder).digests([path]) == {path: "read"}
    monkeypatch.undo()
    gone = [f"{path}.gone", "a\0b"]
    assert Stamps(folder).digests(gone) == dict.fromkeys(gone, STALE)


@pytest.mark.parametrize("kept", ["size", "size and time"])
def test_an_edited_file_has_another_stamp(theirs, tmp_path, settled, kept):
    """Whatever is put back: the system alone writes the time of a change."""
    stamps = Stamps(tmp_path)
    before, times = stamps.digests([theirs]), os.stat(theirs)
    time.sleep(0.02)  # a file system's clock may tick only every few milliseconds
    write(theirs, "two")
    if kept == "size and time":
        os.utime(theirs, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert stamps.digests([theirs]) != before


def test_a_file_that_may_still_change_is_read_again(theirs, tmp_path, monkeypatch):
    for name in ("_TICK_NS", "_COARSE_TICK_NS"):
        monkeypatch.setattr(files, name, 10**18)
    assert_read_again(theirs, tmp_path, monkeypatch)


def test_a_file_system_that_cannot_be_written_is_noticed(theirs, tmp_path, monkeypatch, settled):
    monkeypatch.setattr(files, "_changeable", {})
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_flag=os.ST_RDONLY))
    assert_read_again(theirs, tmp_path, monkeypatch)


def assert_read_again(path, folder, monkeypatch):
    stamps = Stamps(folder)
    stamps.digests([path])
    monkeypatch.setattr(files, "digest", lambda path: "read")
    assert stamps.digests([path]) == {path: "read"}


def test_hosts_of_one_boot_are_told_apart(monkeypatch):
    """Containers of one machine have its boot, and other files."""
    boot = files._boot.__wrapped__
    here = boot()
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename="another"))
    assert boot() not in (here, "")


def test_stamps_of_hosts_that_are_gone_do_not_pile_up(theirs, tmp_path, monkeypatch, settled):
    """As of containers that share a cache, each of which is a host of its own."""
    for number in range(20):
        monkeypatch.setattr(files, "_boot", lambda number=number: f"{number}")
        Stamps(tmp_path).digests([theirs])
        os.utime(tmp_path / f"stamps-{number}.json", (number, number))
    left = {file.name for file in tmp_path.glob("stamps-*")}
    assert len(left) < 10
    assert {"stamps-19.json", "stamps-18.json"} <= left


def test_a_stamp_that_was_fresh_before_the_file_was_read(tmp_path, monkeypatch):
    """The file may have changed while it was read, without another stamp."""
    path, began, read = tmp_path / "one.h", 10**18 + 1, os.read
    clock = [began]

    def read_slowly(*how):
        clock[0] += 2 * files._TICK_NS
        return read(*how)

    path.write_text("one")
    monkeypatch.setattr(files, "time", SimpleNamespace(time_ns=lambda: clock[0]))
    monkeypatch.setattr(files, "_stamp", lambda status: [1, 3, began, began, 1])
    monkeypatch.setattr(os, "read", read_slowly)
    first = files.text(str(path)).digest
    path.write_text("two")
    assert files.text(str(path)).digest != first


def test_texts_that_are_included(tmp_path):
    source = str(write(tmp_path / "a" / "one.cpp", '#include "one.h"\n# import <far/two.h>\n'))
    near, far = write(tmp_path / "a" / "one.h"), write(tmp_path / "far" / "two.h")
    write(tmp_path / "far" / "three.h")
    found = {*files.closure([source, "gone.cpp"], [str(tmp_path)])}
    assert found == {source, str(near), str(far)}


def test_a_library_among_the_sources_is_not_searched_as_a_text(tmp_path, monkeypatch):
    """It may have a gigabyte, which each process would decode."""
    library = tmp_path / "libtheirs.a"
    library.write_bytes(b'\x7fELF\0\n#include "one.h"\n')
    monkeypatch.setattr(os, "fsdecode", lambda content: pytest.fail("it was decoded"))
    assert files.text_digest(str(library)) == files.digest(library)


def test_our_specs_survive_json(bench):
    spec = bench.spec(constants=(("A", "1"),), texts=(("a.cpp", "x"),))
    (bench.directory / "x.json").touch()
    files.write_json(bench.directory / "x.json", spec._asdict())
    assert jit.Spec.of_record(files.read_json(bench.directory / "x.json")) == spec
