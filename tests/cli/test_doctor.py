"""`python -m lltm_jit doctor` on this machine, and on machines where something is broken."""

import dataclasses
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small_checkout import CHECKOUT, environment
from torch.utils import cpp_extension

from lltm_jit.cli import _checks, _trial, _windows, main
from lltm_jit.jit import detect, gpus
from lltm_jit.jit.causes import cure_of
from lltm_jit.jit.extension import Extension


def findings(capsys):
    code = main(["doctor", "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture
def only(monkeypatch):
    """Run one check alone."""

    def choose(name):
        check = _checks.checks()[name]
        monkeypatch.setattr("lltm_jit.cli.doctor.checks", lambda: {name: check})

    return choose


def test_all_is_well_here(capsys):
    code, found = findings(capsys)
    assert [name for name, finding in found.items() if finding["status"] == "problem"] == []
    assert code == 0
    assert "compiled, linked and loaded in" in found["C++ trial build"]["text"]
    assert found["Python"]["text"].startswith(sys.version.split()[0])


def test_a_machine_that_must_not_build_is_not_ready(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("LLTM_JIT_DISABLE_JIT", "1")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    checks = {name: _checks.checks()[name] for name in ("settings", "build of basic")}
    monkeypatch.setattr("lltm_jit.cli.doctor.checks", lambda: checks)
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "LLTM_JIT_DISABLE_JIT forbids building; only what is built already is loaded" in out
    assert "an import builds it" not in out
    assert out.endswith("not ready to build: see settings\n")


def test_no_compiler(capsys, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    code, found = findings(capsys)
    assert code == 1
    assert found["C++ compiler"]["status"] == "problem"
    assert found["C++ compiler"]["cure"].startswith("unset CXX, which gives c++, or set it to")
    assert list(found) == list(_checks.checks())  # the rest is checked all the same


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
def test_a_compiler_that_is_set_and_not_there(capsys, only, monkeypatch, given, text, path):
    monkeypatch.setenv("CXX", given)
    monkeypatch.setenv("PATH", path)
    only("C++ compiler")
    _, found = findings(capsys)
    assert found["C++ compiler"]["text"] == text
    assert ("apt-get install g++" in found["C++ compiler"]["cure"]) == (path == "/nonexistent")


def test_no_gpu_is_not_told_by_torch_as_well(monkeypatch, tmp_path):
    """Its module of extensions warns when it is imported."""
    logger, said = logging.getLogger("torch.utils.cpp_extension"), []
    monkeypatch.delitem(sys.modules, "torch.utils.cpp_extension")
    monkeypatch.delattr(torch.utils, "cpp_extension")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "_is_compiled", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(logger, "handle", said.append)
    assert str(tmp_path) == _checks._cpp_extension().CUDA_HOME
    assert said == []
    assert logger.isEnabledFor(logging.WARNING)


def test_a_compiler_that_fails(capsys, only, monkeypatch, tmp_path):
    broken = tmp_path / "broken-c++"
    broken.write_text(
        "#!/bin/sh\necho 'cc1plus: fatal error: no disk: No space left on device' >&2\nexit 1\n"
    )
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    only("C++ trial build")
    code, found = findings(capsys)
    assert code == 1
    assert "No space left" in found["C++ trial build"]["text"]
    assert "free space on it" in found["C++ trial build"]["cure"]


@pytest.mark.parametrize("check", ["C++ compiler", "C++ trial build"])
def test_a_compiler_that_fails_without_a_word(capsys, only, monkeypatch, tmp_path, check):
    broken = tmp_path / "broken-c++"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    only(check)
    code, found = findings(capsys)
    assert code == 1
    assert found[check]["cure"].endswith("and set CXX to it")


@pytest.mark.parametrize("command", ["env c++", "c++ -pipe"])
def test_the_compiler_itself_is_judged(capfd, only, monkeypatch, command):
    monkeypatch.setenv("CXX", command)
    only("C++ compiler")
    _, found = findings(capfd)
    assert found["C++ compiler"]["status"] == "ok"
    assert f"({command})" in found["C++ compiler"]["text"]


def test_a_compiler_behind_what_is_missing_is_told(capfd, only, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-ccache c++")
    only("C++ compiler")
    _, found = findings(capfd)
    assert found["C++ compiler"]["status"] == "problem"


def test_a_check_that_breaks_is_reported(capsys, monkeypatch):
    def breaks():
        raise OSError("the disk is on fire")

    monkeypatch.setattr("lltm_jit.cli.doctor.checks", lambda: {"one": breaks, "two": _checks.ninja})
    code, found = findings(capsys)
    assert code == 1
    assert "the disk is on fire" in found["one"]["text"]
    assert found["two"]["status"] == "ok"


@pytest.mark.parametrize(
    ("variable", "value", "status", "text"),
    [
        (
            "MAX_JOBS",
            "many",
            "problem",
            "expected MAX_JOBS to be a positive integer or 0, but got 'many'",
        ),
        ("LLTM_JIT_VERBOSE", "x", "problem", "expected LLTM_JIT_VERBOSE to be 1 or 0, but got 'x'"),
        ("LLTM_JIT_VERBOS", "1", "warning", "LLTM_JIT_VERBOS is not a setting"),
    ],
)
def test_settings(capsys, only, monkeypatch, variable, value, status, text):
    monkeypatch.setenv(variable, value)
    only("settings")
    _, found = findings(capsys)
    assert found["settings"]["status"] == status
    assert found["settings"]["text"] == text


def test_a_wrong_setting_is_told_once(capsys, monkeypatch):
    monkeypatch.setenv("MAX_JOBS", "abc")
    code, found = findings(capsys)
    assert code == 1
    assert [name for name, finding in found.items() if finding["status"] == "problem"] == [
        "settings"
    ]
    assert found["memory"]["text"] == "skipped: see settings"


@pytest.mark.parametrize(
    ("capabilities", "version", "text"),
    [
        ([], "", "none, no NVIDIA driver that runs"),
        ([], "580.65.06", "none, driver 580.65.06"),
        ([(9, 0)], "580.65.06", "sm_90, driver 580.65.06"),
    ],
)
def test_the_driver_is_named(capsys, only, monkeypatch, capabilities, version, text):
    monkeypatch.setattr(gpus, "compute_capabilities", lambda: capabilities)
    monkeypatch.setattr(gpus, "driver_version", lambda: version)
    only("GPU")
    assert findings(capsys)[1]["GPU"]["text"].startswith(text)


def test_the_compiler_that_torch_wants_is_named(capsys, only, monkeypatch):
    wanted = r"torch needs g\+\+ \d+\.\d+ or newer, and C\+\+(17|20)$"
    only("C++ compiler")
    assert re.search(wanted, findings(capsys)[1]["C++ compiler"]["text"])
    monkeypatch.setattr("torch.utils.cpp_extension.MINIMUM_GCC_VERSION", (99, 0, 0))
    found = findings(capsys)[1]["C++ compiler"]
    assert found["status"] == "warning"
    assert "torch needs g++ 99.0 or newer" in found["text"]


def test_a_near_miss_is_put_right(capsys, only, monkeypatch):
    monkeypatch.setenv("LLTM_JIT_VERBOS", "1")
    only("settings")
    assert findings(capsys)[1]["settings"]["cure"] == "did you mean LLTM_JIT_VERBOSE?"


def test_a_root_open_to_others(capsys, only, monkeypatch, tmp_path):
    builds = tmp_path / "lltm_jit"
    builds.mkdir()
    builds.chmod(0o777)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    only("builds directory")
    code, found = findings(capsys)
    assert code == 1
    assert "other users may write to" in found["builds directory"]["text"]


@pytest.mark.parametrize("variable", ["TORCH_EXTENSIONS_DIR", "XDG_CACHE_HOME"])
def test_a_lock_that_torch_left(capsys, only, monkeypatch, tmp_path, variable):
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    lock = Path(cpp_extension._get_build_directory("my_extension", verbose=False)) / "lock"
    assert lock.is_relative_to(tmp_path)
    lock.touch()
    only("locks")
    assert findings(capsys)[1]["locks"]["status"] == "ok"  # a build may be running
    os.utime(lock, (0, 0))
    code, found = findings(capsys)
    assert code == 0
    assert found["locks"]["status"] == "warning"
    assert f"rm {lock}" in found["locks"]["cure"]


def test_too_many_jobs_for_the_memory(capsys, only, monkeypatch):
    monkeypatch.setenv("MAX_JOBS", "100000")
    only("memory")
    code, found = findings(capsys)
    assert (code, found["memory"]["status"]) == (0, "warning")
    assert found["memory"]["cure"].startswith("set MAX_JOBS=")


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize(("architecture", "good"), [("9.0a", True), ("1.0", False)])
def test_trial_of_nvcc(architecture, good):
    trial = _trial.cuda(dataclasses.replace(detect(), architectures=(architecture,)))
    assert (trial.error == "") == good
    if not good:
        assert "set TORCH_CUDA_ARCH_LIST to architectures that" in cure_of(trial.error)


def test_visual_studio_is_found_through_vswhere(tmp_path, monkeypatch):
    monkeypatch.setenv("PROGRAMFILES(X86)", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert _windows.find_vcvars(tmp_path) is None
    assert _checks.visual_studio().cure.startswith("install the Build Tools for Visual Studio")
    studio = tmp_path / "Microsoft Visual Studio" / "2022" / "BuildTools"
    vswhere = tmp_path / "Microsoft Visual Studio" / "Installer" / "vswhere.exe"
    vswhere.parent.mkdir(parents=True)
    vswhere.write_text(
        f'#!/bin/sh\n[ "$5" = -requires ] || [ "$4" = -requires ] && echo "{studio}"\n'
    )
    vswhere.chmod(0o755)
    assert _windows.find_vcvars(tmp_path) is None  # the installation is gone from its folder
    vcvars = studio / "VC" / "Auxiliary" / "Build" / "vcvarsall.bat"
    vcvars.parent.mkdir(parents=True)
    vcvars.touch()
    assert _windows.find_vcvars(tmp_path) == vcvars
    assert _checks.visual_studio().cure == f'run "{vcvars}" x64 in this window first'
    (tmp_path / "cl").touch(mode=0o755)
    assert _checks.visual_studio() == _checks.Finding("ok", str(vcvars))


@pytest.fixture
def run_without_torch(tmp_path):
    """Run Python where torch is there and cannot be imported."""
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.13: no such file')\n")
    paths = os.pathsep.join([str(tmp_path), environment(CHECKOUT)["PYTHONPATH"]])
    return lambda *words: subprocess.run(
        [sys.executable, *words],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )


def test_json_without_torch(run_without_torch):
    done = run_without_torch("-m", "lltm_jit", "doctor", "--json")
    assert (done.returncode, done.stderr) == (1, "")
    finding = json.loads(done.stdout)["torch"]
    assert finding["status"] == "problem"
    assert finding["text"].endswith("cannot be imported: libcudart.so.13: no such file")
    assert "--force-reinstall torch" in finding["cure"]


@pytest.mark.parametrize("words", [["-m", "lltm_jit", "doctor"], ["-c", "import lltm_jit"]])
def test_a_torch_that_cannot_be_imported(words, run_without_torch):
    done = run_without_torch(*words)
    assert done.returncode == 1
    *before, said, cure = done.stderr.splitlines()
    assert said.endswith(
        "rror: lltm_jit needs torch, which cannot be imported: libcudart.so.13: no such file"
    )
    assert cure == f"  -> run `{sys.executable} -m pip install --force-reinstall torch`"
    assert bool(before) == ("-c" in words)  # a traceback is for programs


def test_kernels_for_gpus_that_are_too_old_are_told(monkeypatch):
    tools = dataclasses.replace(_checks.present(), cuda_missing="", architectures=("7.5",))
    monkeypatch.setattr(_checks, "present", lambda: tools)
    monkeypatch.setattr(Extension, "info", lambda extension, tools: None)
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "7.5")
    found = _checks.build("basic")
    assert found.status == "problem"
    assert "8.0 and later, but TORCH_CUDA_ARCH_LIST='7.5' asks for 7.5" in found.text
