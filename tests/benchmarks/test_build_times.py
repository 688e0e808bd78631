"""`python -m benchmarks jit`, `load` and `kernel`."""

import json
import re
import shutil

import pytest
from small_files import MODULE, write

from benchmarks import builds, kernel, load
from benchmarks.__main__ import main
from benchmarks.shared.busy import Others
from lltm_jit import native

EDITS = ("basic/operators.cpp", "basic/operators_cuda.cu")

# A family as small, with an operator that gives what it gets.
SMALL = """
#include <Python.h>
static PyObject* first(PyObject*, PyObject* args) {
  return Py_NewRef(PyTuple_GetItem(args, 0));
}
static PyMethodDef methods[] = {{"my_op", first, METH_VARARGS, nullptr}, {}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "basic", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_basic() { return PyModule_Create(&definition); }
"""


@pytest.mark.slow
def test_builds_edits_and_imports_are_timed(tmp_path, capsys, monkeypatch, idle):
    """On a copy with one small family."""
    copy_of_package, opponent = builds.copy_of_package, tmp_path / "theirs"

    def small_copy(folder):
        kernels = copy_of_package(folder)
        for name in native.families():
            shutil.rmtree(kernels / name)
        write(kernels / "basic" / "bindings.cpp", SMALL)
        (kernels / EDITS[0]).touch()
        names = folder / "lltm_jit/native.py"
        pattern, text = r"\b(OWN|AT_IMPORT) = \(.*?\)", names.read_text()
        names.write_text(re.sub(pattern, r'\1 = ("basic",)', text))
        return kernels

    write(opponent / "theirs.cpp", MODULE)
    monkeypatch.setattr(builds, "copy_of_package", small_copy)
    monkeypatch.setattr(builds, "_IMPORTS", 2)
    missed = main(["jit", "--against", str(opponent)])
    out, err = capsys.readouterr()
    assert missed == ("\nslower than their goals:\n" in out), err
    titles = {"cold build of the package": "torch, cold", EDITS[0]: "torch, theirs.cpp"}
    for title, other in {**titles, "cached import": "50 ms"}.items():
        assert re.search(rf"{title}.* ours .*\d u?s .* of {other}, goal ", out)
    assert "Builds of the package, cold build of the package, ours: " in out
    assert (opponent / "theirs.cpp").read_text() == MODULE


def test_without_an_opponent_there_are_the_times_alone(capsys, monkeypatch, idle):
    def python(folder, program, *arguments):
        if program == builds._OURS:
            return json.dumps({"cold": 9, **dict.fromkeys(EDITS, 1)}) + "\n/build\n/work"
        return "0.06"

    monkeypatch.setattr(builds, "python", python)
    monkeypatch.setattr(builds, "alone_seconds", lambda *_: 0.9)
    assert main(["jit"]) == 1
    out = capsys.readouterr().out
    assert re.search(r"^cold build of the package +ours +9\.000 s +-$", out, re.MULTILINE)
    assert re.search(rf"^edit of {EDITS[0]} +ours +1\.000 s +-$", out, re.MULTILINE)
    assert re.search(r"^cached import.* 60000\.0 us +- +1\.20 of 50 ms, goal 1$", out, re.MULTILINE)
    assert "\nslower than their goals:\n" in out


def test_a_source_with_torchs_headers_is_timed_beside_torch(capsys, monkeypatch, tmp_path, idle):
    asked, file = [], tmp_path / "figures.json"
    headers = tmp_path / "include"
    headers.mkdir()

    def python(folder, program, side, kind, text):
        asked.append((side, kind))
        if side == "use_pch":
            (headers / "extension.h.gch").write_text("made by torch")
        return json.dumps([{"ours": 1, "torch": 2, "use_pch": 4}[side], 0.25])

    monkeypatch.setattr(load, "python", python)
    monkeypatch.setattr(load, "_THEIRS", headers / "extension.h.gch")
    assert main(["load", "--json", str(file)]) == 1
    lines = capsys.readouterr().out.splitlines()
    ours = [re.split("  +", line) for line in lines if line.startswith("edit")]
    ratios = ["1.000 s", "-", "0.250 s", "-", "0.50 of torch, load (1.00 processors), goal 0.45"]
    assert ours[0][1:] == ["load of a file", "ours", *ratios]
    more = "0.50 of load_inline (1.00 processors), goal 0.45; 0.25 of use_pch (1.00 processors)"
    assert ours[1][-1] == f"{more}, goal 1"
    assert asked[:4] == [("ours", "file"), ("torch", "file")] * 2
    assert asked.count(("use_pch", "cell")) == 5
    assert list(headers.iterdir()) == []  # what torch put beside its header
    (headers / "extension.h.gch").touch()
    assert main(["load"]) == 1
    assert "would speed up all sides; remove it first" in capsys.readouterr().err


def test_the_rows_of_a_kernel(monkeypatch):
    """A cached call is that of the process after the first, and a launch is beside an addition."""

    def python(folder, program, side, value):
        times = {"ours": [0.2, 0.04, 5e-6, 4e-6], "torch": [0.4, 0.1, 2e-5, 4e-6]}[side]
        return json.dumps([times[0] / (10 if (side, value) == ("ours", "2") else 1), *times[1:]])

    monkeypatch.setattr(kernel, "python", python)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr(Others, "share", lambda others: 0.0)
    rows = [row for group in kernel.measure(None) for row in group]
    ours = {row.case: row.times["as called"].median for row in rows if row.name == "ours"}
    assert ours == {"first call": 0.2, "edit": 0.04, "cached": 0.02, "launch, host": 5e-6}
    assert [row.name for row in rows[-3:]] == ["ours", "_compile_kernel", "torch.add"]


def test_what_is_measured_beside_other_programs_is_marked(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(load, "python", lambda *_: json.dumps([1, 0.25]))
    monkeypatch.setattr(load, "_THEIRS", tmp_path / "extension.h.gch")
    monkeypatch.setattr(Others, "share", lambda others: 0.5)
    main(["load"])
    _, table, _ = capsys.readouterr().out.split("\n\n")
    *rows, note = table.splitlines()[2:]
    assert all(" ~1.000 s " in row for row in rows)
    assert note.startswith("~ unreliable: the machine was busy")
