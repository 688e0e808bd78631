"""`python -m lltm_jit doctor` on this machine, and on machines where something is broken."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from small_checkout import CHECKOUT, environment
from torch.torch_version import TorchVersion
from torch.utils import cpp_extension

from lltm_jit.cli import doctor, main
from lltm_jit.cli.doctor import builds, tools
from lltm_jit.jit.loading.extension import Extension
from lltm_jit.jit.machine import gpus


def test_all_is_well_here(findings):
    code, found = findings()
    assert [name for name, finding in found.items() if finding["status"] == "problem"] == []
    assert code == 0
    assert "compiled, linked and loaded in" in found["C++ trial build"]["text"]
    assert found["Python"]["text"].startswith(sys.version.split()[0])


@pytest.mark.parametrize(
    ("version", "status"),
    [("2.8.1", "problem"), ("2.9.0", "ok"), ("2.13.1+cu130", "ok"), ("2.14.0", "warning")],
)
def test_a_torch_that_was_not_tested(finding, monkeypatch, version, status):
    monkeypatch.setattr(torch, "__version__", TorchVersion(version))
    found = finding("torch")
    assert found["status"] == status
    assert ("newer than 2.13, the newest that was tested" in found["text"]) == (status == "warning")


def test_commands_do_not_warn_of_a_numpy_that_is_not_there(tmp_path):
    (tmp_path / "numpy.py").write_text("raise ModuleNotFoundError('no numpy')\n")
    path = os.pathsep.join([str(tmp_path), str(CHECKOUT)])
    done = subprocess.run(
        [sys.executable, "-m", "lltm_jit", "--version"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_machine_that_must_not_build_is_not_ready(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("LLTM_JIT_DISABLE_JIT", "1")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    checks = {name: doctor.checks()[name] for name in ("settings", "build of basic")}
    monkeypatch.setattr("lltm_jit.cli.doctor.checks", lambda: checks)
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "LLTM_JIT_DISABLE_JIT forbids building; only existing builds load" in out
    assert "an import builds it" not in out
    assert out.endswith("not ready to build: see settings\n")


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
    assert str(tmp_path) == tools._cpp_extension().CUDA_HOME
    assert said == []
    assert logger.isEnabledFor(logging.WARNING)


def test_a_check_that_breaks_is_reported(findings, monkeypatch):
    def breaks():
        raise OSError("the disk is on fire")

    monkeypatch.setattr("lltm_jit.cli.doctor.checks", lambda: {"one": breaks, "two": tools.ninja})
    code, found = findings()
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
    ],
)
def test_settings(finding, monkeypatch, variable, value, status, text):
    monkeypatch.setenv(variable, value)
    found = finding("settings")
    assert found["status"] == status
    assert found["text"] == text


def test_a_wrong_setting_is_told_once(findings, monkeypatch):
    monkeypatch.setenv("MAX_JOBS", "abc")
    code, found = findings()
    assert code == 1
    assert [name for name, finding in found.items() if finding["status"] == "problem"] == [
        "settings"
    ]
    assert found["memory"]["text"] == "skipped: see settings"


@pytest.mark.parametrize(
    ("capabilities", "version", "text"),
    [
        ([], "", "none, no working NVIDIA driver"),
        ([], "580.65.06", "none, driver 580.65.06"),
        ([(9, 0)], "580.65.06", "sm_90, driver 580.65.06"),
    ],
)
def test_the_driver_is_named(finding, monkeypatch, capabilities, version, text):
    monkeypatch.setattr(gpus, "compute_capabilities", lambda: capabilities)
    monkeypatch.setattr(gpus, "driver_version", lambda: version)
    assert finding("GPU")["text"].startswith(text)


def test_misspelt_names_are_told_with_the_right_ones(finding, monkeypatch, capsys):
    monkeypatch.setenv("LLTM_JIT_VERBOS", "1")
    monkeypatch.setenv("LLTM_JIT_ATIMPORT", "0")
    monkeypatch.setenv("MAX_JBOS", "3")
    monkeypatch.setenv("CXXFLAGS", "-O2")  # another program's, and no mistake
    wrong = [
        "LLTM_JIT_ATIMPORT is not a setting; did you mean LLTM_JIT_AT_IMPORT?",
        "LLTM_JIT_VERBOS is not a setting; did you mean LLTM_JIT_VERBOSE?",
        "MAX_JBOS is not a setting; did you mean MAX_JOBS?",
    ]
    found = finding("settings")
    assert (found["status"], found["text"]) == ("warning", ", ".join(wrong))
    capsys.readouterr()
    assert main(["info", "basic"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {f"setting   {line}" for line in wrong} <= {*lines}


def test_a_root_open_to_others(finding, monkeypatch, tmp_path):
    builds = tmp_path / "lltm_jit"
    builds.mkdir()
    builds.chmod(0o777)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    found = finding("builds directory")
    assert found["status"] == "problem"
    assert "other users may write to" in found["text"]


@pytest.mark.parametrize("variable", ["TORCH_EXTENSIONS_DIR", "XDG_CACHE_HOME"])
def test_a_lock_that_torch_left(finding, monkeypatch, tmp_path, variable):
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    lock = Path(cpp_extension._get_build_directory("my_extension", verbose=False)) / "lock"
    assert lock.is_relative_to(tmp_path)
    lock.touch()
    assert finding("locks")["status"] == "ok"  # a build may be running
    os.utime(lock, (0, 0))
    found = finding("locks")
    assert found["status"] == "warning"
    assert f"rm {lock}" in found["cure"]


def test_too_many_jobs_for_the_memory(finding, monkeypatch):
    monkeypatch.setenv("MAX_JOBS", "100000")
    found = finding("memory")
    assert found["status"] == "warning"
    assert found["cure"].startswith("set MAX_JOBS=")


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
    too_old = builds.present()._replace(cuda_missing="", architectures=("7.5",))
    monkeypatch.setattr(builds, "present", lambda: too_old)
    monkeypatch.setattr(Extension, "info", lambda extension: None)
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "7.5")
    found = builds.build("basic")
    assert found.status == "problem"
    assert "8.0 and later, but TORCH_CUDA_ARCH_LIST='7.5' asks for 7.5" in found.text
