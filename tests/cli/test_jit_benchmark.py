"""`python -m lltm_jit benchmark jit`, on a copy of the project with one operator, and `load`."""

import json
import re

from small_checkout import copy_with_my_op, replace, run_in

from lltm_jit.cli import _jit_benchmark, _load_benchmark, main
from lltm_jit.cli._busy import Others

TITLES = ("cold build of the package", "edit of basic/my_op/my_op_cpu.cpp", "cached import")

# As small as a Python module can be: torch's load takes a second for it.
OPPONENT = """
#include <Python.h>
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "opponent", nullptr, -1, nullptr};
PyMODINIT_FUNC PyInit_opponent() { return PyModule_Create(&definition); }
"""


def test_builds_edits_and_imports_are_timed(tmp_path):
    checkout, opponent = tmp_path / "checkout", tmp_path / "theirs"
    copy_with_my_op(checkout)
    opponent.mkdir()
    (opponent / "theirs.cpp").write_text(OPPONENT)
    replace(checkout / "lltm_jit/cli/_jit_benchmark.py", r"_IMPORTS = \d+", "_IMPORTS = 2")
    done = run_in(checkout, "-m", "lltm_jit", "benchmark", "jit", "--against", str(opponent))
    # The goals are for an opponent of a usual size, so the cold build is above its goal here.
    assert done.returncode == 1, done.stderr
    for title in (
        "cold build of the package",
        "edit of basic/my_op/my_op_cpu.cpp",
        "cached import",
    ):
        assert re.search(rf"^{title}.*? +~?\d+\.\d+ s +\d+\.\d+ s ", done.stdout, re.MULTILINE)
    assert re.search(r"^cold build .* above ", done.stdout, re.MULTILINE)
    assert (opponent / "theirs.cpp").read_text() == OPPONENT


def test_without_an_opponent_there_are_the_times_alone(capsys, monkeypatch, idle):
    edits = ("basic/my_op/my_op_cpu.cpp", "basic/my_op/my_op_cuda.cu")

    def python(folder, program, *arguments):
        if program == _jit_benchmark._OURS:
            return json.dumps({"cold": 9, **dict.fromkeys(edits, 1)}) + "\n/build"
        return "0.06"

    monkeypatch.setattr(_jit_benchmark, "python", python)
    monkeypatch.setattr(_jit_benchmark, "alone_seconds", lambda *_: 0.9)
    assert main(["benchmark", "jit"]) == 1
    out = capsys.readouterr().out
    for title in TITLES[:2]:
        assert re.search(rf"^{title} +\d+\.\d+ s( +-){{4}}$", out, re.MULTILINE)
    assert re.search(r"^cached import.*? +0\.060 s +0\.050 s +1\.200  above ", out, re.MULTILINE)


def test_an_opponent_that_is_not_there(capsys):
    assert main(["benchmark", "jit", "--against", "/nowhere"]) == 1
    assert "expected --against to be a directory with an extension's sources" in (
        capsys.readouterr().err
    )


def test_a_source_with_torchs_headers_is_timed_beside_torch(capsys, monkeypatch, tmp_path, idle):
    asked = []

    def python(folder, program, side, kind, package, text):
        asked.append((side, kind))
        (tmp_path / "extension.h.gch").write_text("made by torch")
        return json.dumps([{"ours": 1, "torch": 2, "use_pch": 4}[side], 0.25])

    monkeypatch.setattr(_load_benchmark, "python", python)
    monkeypatch.setattr(_load_benchmark, "_THEIRS", tmp_path / "extension.h.gch")
    assert main(["benchmark", "load"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [re.split("  +", line)[:5] for line in lines if "second edit" in line] == [
        ["load of a file, second edit", "1.000 s", "2.000 s", "0.500", "above"],
        ["%%cpp cell, second edit", "1.000 s", "2.000 s", "0.500", "above"],
        ["%%cpp cell, second edit", "1.000 s", "4.000 s", "0.250", "1.00"],
    ]
    assert "~" not in "".join(lines)
    assert asked[:4] == [("ours", "file"), ("torch", "file")] * 2
    assert asked.count(("use_pch", "cell")) == 6
    assert list(tmp_path.iterdir()) == []  # what torch put beside its header
    (tmp_path / "extension.h.gch").touch()
    assert main(["benchmark", "load"]) == 1
    assert "would speed up all sides; remove it first" in capsys.readouterr().err


def test_what_is_measured_beside_other_programs_is_marked(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(_load_benchmark, "python", lambda *_: json.dumps([1, 0.25]))
    monkeypatch.setattr(_load_benchmark, "_THEIRS", tmp_path / "extension.h.gch")
    monkeypatch.setattr(Others, "share", lambda others: 0.5)
    main(["benchmark", "load"])
    *table, note = capsys.readouterr().out.splitlines()
    assert [re.split("  +", line)[1:4] for line in table[1:]] == [
        ["~1.000 s", "~1.000 s", "~1.000"]
    ] * 9
    assert note == "~ unreliable: other programs used more than 10 % of the processors meanwhile"
