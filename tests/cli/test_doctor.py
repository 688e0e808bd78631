"""`python -m lltm_jit doctor` on this machine, and on machines where something is broken."""

import json
import re
import shutil
import sys
from types import SimpleNamespace

import pytest
import torch
from small_checkout import CHECKOUT, environment, run_in
from small_files import script
from torch.torch_version import TorchVersion

from lltm_jit.cli import doctor
from lltm_jit.jit import detect
from lltm_jit.jit.request import request


def problems(found):
    return [name for name, finding in found.items() if finding["status"] == "problem"]


def test_all_is_well_here(findings):
    found = findings()
    assert problems(found) == []
    assert "compiled, linked and loaded in" in found["C++ trial build"]["text"]
    assert found["Python"]["text"].startswith(sys.version.split()[0])
    assert re.search(r": \d+\.\d of at most \d+ GB", found["builds directory"]["text"])


def test_a_torch_that_was_not_tested(finding, monkeypatch):
    versions = {"2.8.1": "problem", "2.9.0": "ok", "2.13.1+cu130": "ok", "2.14.0": "warning"}
    for version, status in versions.items():
        monkeypatch.setattr(torch, "__version__", TorchVersion(version))
        found = finding("torch")
        assert found["status"] == status
        untested = "newer than 2.13, the newest that was tested"
        assert (untested in found["text"]) == (status == "warning")


def test_a_machine_that_must_not_build_is_not_ready(told, monkeypatch, empty_root):
    monkeypatch.setenv("LLTM_JIT_DISABLE_JIT", "1")
    checks = {name: doctor.checks()[name] for name in ("settings", "build of basic")}
    monkeypatch.setattr("lltm_jit.cli.doctor.checks", lambda: checks)
    out = told("doctor", code=1)
    assert "LLTM_JIT_DISABLE_JIT forbids building; only existing builds load" in out
    assert "builds it" not in out
    assert out.endswith("not ready to build: see settings\n")


@pytest.mark.parametrize(
    ("free", "status"), [(1e7, "problem"), (5e8, "warning"), (5e9, "ok"), (None, "problem")]
)
def test_a_full_disk(finding, monkeypatch, free, status):
    """Or one that cannot be asked: a check that breaks is reported."""

    def usage(path):
        if free is None:
            raise OSError("the disk is on fire")
        return SimpleNamespace(free=free)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    found = finding("builds directory")
    told = f"{free / 1e9:.1f} GB are free" if free else "the disk is on fire"
    assert (found["status"], told in found["text"]) == (status, True)


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [("MAX_JOBS", "many", "a positive integer or 0"), ("LLTM_JIT_VERBOSE", "x", "1 or 0")],
)
def test_a_wrong_setting_is_told_once(findings, monkeypatch, variable, value, expected):
    monkeypatch.setenv(variable, value)
    found = findings("settings", "memory")
    assert problems(found) == ["settings"]
    text = f"expected {variable} to be {expected}, but got {value!r}"
    assert found["settings"]["text"] == text
    assert (found["memory"]["text"] == "skipped: see settings") == (variable == "MAX_JOBS")


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        ("LLTM_JIT_VERBOS", "did you mean LLTM_JIT_VERBOSE?"),
        ("LLTM_JIT_DISABLED_JIT", "did you mean LLTM_JIT_DISABLE_JIT?"),
        ("LLTM_JIT_SPEED", "MAX_JOBS.env.example lists all settings"),
    ],
)
def test_misspelt_names_are_told(finding, monkeypatch, told, name, cure):
    monkeypatch.setenv(name, "1")
    monkeypatch.setenv("CXXFLAGS", "-O2")  # another program's, and no mistake
    wrong = f"{name} is not a setting; {cure}"
    found = finding("settings")
    assert (found["status"], found["text"]) == ("warning", wrong)
    assert f"setting   {wrong}" in told("info", "basic").splitlines()


@pytest.mark.parametrize("version", ["580.65.06", ""])
def test_the_driver_of_the_gpu(finding, monkeypatch, tmp_path, version):
    """Its version, where the system tells it."""
    file = tmp_path / "version"
    if version:
        file.write_text(f"{version}\n")
    monkeypatch.setattr(doctor, "_DRIVER", file)
    monkeypatch.setattr(doctor.gpus, "compute_capabilities", lambda: [(9, 0)])
    monkeypatch.setattr(torch.version, "cuda", None)
    told = f"sm_90, driver {version}" if version else "sm_90"
    assert finding("GPU")["text"] == f"{told}, but this torch is built without CUDA"


def test_a_root_open_to_others(finding, empty_root):
    (empty_root / "lltm_jit").mkdir(parents=True)
    (empty_root / "lltm_jit").chmod(0o777)
    found = finding("builds directory")
    assert found["status"] == "problem"
    assert "other users may write to" in found["text"]


def test_too_many_jobs_for_the_memory(finding, monkeypatch):
    monkeypatch.setenv("MAX_JOBS", "100000")
    found = finding("memory")
    assert found["status"] == "warning"
    assert found["cure"].startswith("set MAX_JOBS=")


DOCTOR = ["-m", "lltm_jit", "doctor"]


@pytest.mark.parametrize("words", [DOCTOR, [*DOCTOR, "--json"], ["-c", "import lltm_jit"]])
def test_a_torch_that_cannot_be_imported(words, tmp_path):
    (tmp_path / "torch.py").write_text("raise ImportError('libcudart.so.13: no such file')\n")
    paths = environment(tmp_path, CHECKOUT)["PYTHONPATH"]
    done = run_in(CHECKOUT, *words, code=1, PYTHONPATH=paths)
    text = "lltm_jit needs torch, which cannot be imported: libcudart.so.13: no such file"
    cure = f"run `{sys.executable} -m pip install --force-reinstall torch`"
    if "--json" in words:
        assert done.stderr == ""
        finding = {"status": "problem", "text": text, "cure": cure}
        assert json.loads(done.stdout) == {"torch": finding}
    else:
        *before, said, told = done.stderr.splitlines()
        assert (said.endswith(f"rror: {text}"), told) == (True, f"  -> {cure}")
        assert bool(before) == ("-c" in words)  # a traceback is for programs


def test_kernels_for_gpus_that_are_too_old_are_told(monkeypatch, empty_root):
    too_old = detect()._replace(cuda_missing="", architectures=("7.0",))
    monkeypatch.setattr(request, "detect", lambda: too_old)
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "7.0")
    found = doctor.build("basic")
    assert found.status == "problem"
    assert "7.5 and later, but TORCH_CUDA_ARCH_LIST='7.0' asks for 7.0" in found.text


def test_a_compiler_that_is_not_there(finding, told, monkeypatch):
    """The rest is checked, and the cure is told."""
    for given in ("no-such-compiler", "/nonexistent", "/etc/passwd", "/no/ccache c++"):
        with monkeypatch.context() as patch:
            patch.setenv("CXX", given)
            found = finding("C++ compiler")
        assert found["text"] == f"CXX is set to {given!r}, which is not found"
        assert (found["status"], "apt-get install g++" in found["cure"]) == ("problem", True)
    monkeypatch.undo()
    checks = doctor.checks()
    monkeypatch.setenv("CXX", "no-such-compiler")
    out = told("doctor", code=1)
    assert "problem  C++ compiler" in out
    assert "-> unset CXX, or set it to a compiler that exists" in out
    assert all(f" {name} " in out for name in checks)
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.delenv("CXX", raising=False)
    assert finding("C++ compiler")["text"] == "no C++ compiler was found"


FULL_DISK = "cc1plus: fatal error: no disk: No space left on device"


@pytest.mark.parametrize(
    ("program", "check", "text", "cure"),
    [
        ("exit 7", "compiler", "`{} --version` ends with status 7, and prints nothing", "repair"),
        ("echo none >&2; exit 7", "compiler", "`{} --version` ends with status 7: none", "repair"),
        ("exit 0", "compiler", "`{} --version` ends with status 0, and prints nothing", "repair"),
        (f"echo '{FULL_DISK}' >&2; exit 1", "trial build", "{} fails: " + FULL_DISK, "a disk is"),
        (
            'case "$*" in *-c*) echo no licence >&2; exit 3;; esac; exec c++ "$@"',
            *("trial build", "{} fails: no licence", "repair it, or set CXX to a compiler that"),
        ),
    ],
)
def test_a_compiler_that_does_not_work(finding, monkeypatch, tmp_path, program, check, text, cure):
    broken = str(script(tmp_path / "broken-c++", program))
    monkeypatch.setenv("CXX", broken)
    found = finding(f"C++ {check}")
    assert (found["status"], found["text"]) == ("problem", text.format(broken))
    assert found["cure"].startswith(cure)


@pytest.mark.parametrize("command", ["env c++", "c++ -pipe", "no-such-ccache c++", "unknown"])
def test_the_compiler_itself_is_judged_and_what_runs_it(
    finding, monkeypatch, tmp_path, command, caplog
):
    if command == "unknown":
        text = '[ "$1" != --version ] && exec c++ "$@"; echo cc 1.0'
        command = str(script(tmp_path / "unknown", text))
    monkeypatch.setenv("CXX", command)
    found = finding("C++ compiler")
    status = "problem" if "no-such" in command else "warning" if "unknown" in command else "ok"
    assert found["status"] == status
    assert (f"({command}); torch needs C++" in found["text"]) == (status != "problem")
    assert caplog.text == ""  # torch has nothing to add


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize(("architecture", "good"), [("9.0a", True), ("1.0", False)])
def test_trial_of_nvcc(finding, monkeypatch, architecture, good):
    tools = detect()._replace(architectures=(architecture,), cuda_missing="")
    monkeypatch.setattr(doctor, "detect", lambda: tools)
    found = finding("CUDA trial build")
    assert (found["status"] == "ok") == good
    assert ("set TORCH_CUDA_ARCH_LIST to architectures that" in found["cure"]) == (not good)


def test_a_command_starts_no_builds_and_says_nothing_of_a_numpy_that_is_not_there(tmp_path):
    (tmp_path / "numpy.py").write_text("raise ModuleNotFoundError('no numpy')\n")
    paths = environment(tmp_path, CHECKOUT)["PYTHONPATH"]
    more = {"PYTHONPATH": paths, "TORCH_EXTENSIONS_DIR": str(tmp_path / "builds")}
    assert run_in(CHECKOUT, "-m", "lltm_jit", "--version", **more).stderr == ""
    assert not (tmp_path / "builds").exists()
