"""`python -m lltm_jit doctor` where a compiler is missing, broken or too old."""

import os
import re
import shutil

import pytest

from lltm_jit.cli import doctor, main
from lltm_jit.cli.doctor import trial
from lltm_jit.jit import detect
from lltm_jit.jit.user.causes import cure_of


def test_no_compiler(findings, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    code, found = findings()
    assert code == 1
    assert found["C++ compiler"]["status"] == "problem"
    assert found["C++ compiler"]["cure"].startswith("unset CXX, which gives c++, or set it to")
    assert list(found) == list(doctor.checks())  # the rest is checked all the same


def test_text_names_what_to_mend(capsys, only, monkeypatch):
    monkeypatch.setenv("CXX", "")
    monkeypatch.setenv("PATH", "/nonexistent")
    only("C++ compiler")
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "problem  C++ compiler" in out
    assert "-> install one" in out
    assert out.endswith("not ready to build: see C++ compiler\n")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("no-such-compiler", "CXX is set to 'no-such-compiler', which is not on PATH"),
        ("/nonexistent", "CXX is set to '/nonexistent', which does not exist"),
        ("/etc/passwd", "CXX is set to '/etc/passwd', which is not a program that can be run"),
        ("/no/ccache c++", "CXX is set to '/no/ccache c++', and '/no/ccache' does not exist"),
    ],
)
@pytest.mark.parametrize("path", [os.environ["PATH"], "/nonexistent"])
def test_a_compiler_that_is_set_and_not_there(finding, monkeypatch, given, text, path):
    monkeypatch.setenv("CXX", given)
    monkeypatch.setenv("PATH", path)
    found = finding("C++ compiler")
    assert found["text"] == text
    assert ("apt-get install g++" in found["cure"]) == (path == "/nonexistent")


def test_a_compiler_that_fails(finding, monkeypatch, tmp_path):
    broken = tmp_path / "broken-c++"
    broken.write_text(
        "#!/bin/sh\necho 'cc1plus: fatal error: no disk: No space left on device' >&2\nexit 1\n"
    )
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    found = finding("C++ trial build")
    assert found["status"] == "problem"
    assert "No space left" in found["text"]
    assert "free space on it" in found["cure"]


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("exit 7", "status 7, and prints nothing"),
        ("echo no server >&2; exit 7", "status 7: no server"),
        ("exit 0", "status 0, and prints nothing"),
    ],
)
def test_a_compiler_that_does_not_work(finding, monkeypatch, tmp_path, script, told):
    broken = tmp_path / "broken-c++"
    broken.write_text(f"#!/bin/sh\n{script}\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    found = finding("C++ compiler")
    assert found["status"] == "problem"
    assert found["text"] == f"`{broken} --version` ends with {told}"
    assert found["cure"].startswith("repair it, or set CXX to a compiler that works")


def test_a_compiler_that_only_links(finding, monkeypatch, tmp_path):
    broken = tmp_path / "broken-c++"
    refuse = 'case "$*" in *-c*) echo no licence >&2; exit 3;; esac'
    broken.write_text(f'#!/bin/sh\n{refuse}\nexec c++ "$@"')
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    found = finding("C++ trial build")
    assert (found["status"], found["text"]) == ("problem", f"{broken} fails: no licence")
    assert found["cure"].startswith("repair it, or set CXX to a compiler that works")


@pytest.mark.parametrize("command", ["env c++", "c++ -pipe", "no-such-ccache c++"])
def test_the_compiler_itself_is_judged_and_what_runs_it(finding, monkeypatch, command):
    monkeypatch.setenv("CXX", command)
    found, there = finding("C++ compiler"), "no-such" not in command
    assert found["status"] == ("ok" if there else "problem")
    assert (f"({command})" in found["text"]) == there


def test_the_compiler_that_torch_wants_is_named(finding, monkeypatch):
    wanted = r"torch needs g\+\+ \d+\.\d+ or newer, and C\+\+(17|20)$"
    assert re.search(wanted, finding("C++ compiler")["text"])
    monkeypatch.setattr("torch.utils.cpp_extension.MINIMUM_GCC_VERSION", (99, 0, 0))
    found = finding("C++ compiler")
    assert found["status"] == "warning"
    assert "torch needs g++ 99.0 or newer" in found["text"]


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize(("architecture", "good"), [("9.0a", True), ("1.0", False)])
def test_trial_of_nvcc(architecture, good):
    error = trial.cuda(detect()._replace(architectures=(architecture,)))
    assert (error == "") == good
    if not good:
        assert "set TORCH_CUDA_ARCH_LIST to architectures that" in cure_of(error)
