"""What is found on a machine: compilers, CUDA roots, architectures, jobs."""

from __future__ import annotations

import ctypes
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import ninja
import pytest
from engine_bench import text_of
from torch.utils import cpp_extension

from lltm_jit import jit, native
from lltm_jit.cli import _checks, main
from lltm_jit.jit import builder, cache, fingerprint, gpus, jobs, knobs, memo, process, toolchain

CUDA = {"FAKE_TORCH_CUDA": "13.0", "TORCH_CUDA_ARCH_LIST": "8.0;9.0a"}


@pytest.fixture
def cuda(bench, monkeypatch):
    """A bench with a CUDA source, and a torch that has CUDA."""
    bench.write("three.cu", "three\n")
    for name in ("CUDA_HOME", "CUDA_PATH", "TORCH_CUDA_ARCH_LIST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("torch.version.cuda", "13.0")
    monkeypatch.setattr(gpus, "compute_capabilities", list)
    return bench


ALL = ["compile one.cpp", "compile three.cu", "compile two.cpp", "link"]


def test_cuda_build_and_changed_architectures(cuda):
    home = str(cuda.write_nvcc())
    first = cuda.run(**CUDA, CUDA_HOME=home)
    assert cuda.counts == ALL
    assert first["architectures"] == ["8.0", "9.0a"]
    assert (
        "building _C for sm_80, sm_90a (nvcc 13.0, 3 files, 2 jobs): first build" in first["said"]
    )
    assert cuda.run(**CUDA, CUDA_HOME=home)["cached"]
    second = cuda.run(**{**CUDA, "TORCH_CUDA_ARCH_LIST": "8.0;12.0a"}, CUDA_HOME=home)
    assert second["reason"] == "the architectures changed from 9.0a to 12.0a"
    assert cuda.counts == ALL


def test_without_nvcc_a_cpu_build_that_says_so(cuda, tmp_path):
    result = cuda.run(**CUDA, CUDA_HOME=str(tmp_path / "nowhere"))
    assert cuda.counts == ["compile one.cpp", "compile two.cpp", "link"]
    place = f"(CUDA_HOME is {tmp_path / 'nowhere'})"
    assert f"without CUDA, nvcc was not found {place}" in result["said"]


def test_nvcc_behind_a_wrapper_script_tells_its_real_root(cuda, tmp_path, monkeypatch):
    root = cuda.write_nvcc("real-cuda")
    wrapper = tmp_path / "wrappers" / "nvcc"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nexec {root}/bin/nvcc "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}{os.pathsep}{os.environ['PATH']}")
    found = jit.detect()
    assert (found.nvcc, found.cuda_home) == (str(wrapper), str(root))
    assert (found.nvcc_version, found.cuda) == ("13.0.88", True)


def test_given_root_wins_over_path(cuda, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", str(cuda.write_nvcc()))
    assert jit.detect().cuda_home == os.environ["CUDA_HOME"]


def test_nvcc_of_another_major_version_is_not_used(cuda, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", str(cuda.write_nvcc()))
    monkeypatch.setattr("torch.version.cuda", "12.8")
    assert jit.detect().cuda_missing == "nvcc is 13.0.88, but torch needs CUDA 12.8"


@pytest.mark.parametrize(
    ("listed", "present", "expected"),
    [
        ("", [(9, 0)], ("9.0a",)),
        ("", [(8, 0), (8, 0)], ("8.0",)),
        ("", [(12, 0), (8, 6)], ("8.6", "12.0a")),
        ("", [(13, 1)], ("12.0+PTX",)),  # newer than this nvcc
        ("", [], ("8.0", "9.0+PTX")),
        ("native", [(9, 0)], ("9.0a",)),
        ("8.0;9.0+PTX", [(9, 0)], ("8.0", "9.0+PTX")),
        ("8.0 9.0", [], ("8.0", "9.0")),
        ("Ampere;Hopper", [], ("8.0", "8.6+PTX", "9.0+PTX")),
        ("Ampere+Tegra 9.0a", [], ("8.7", "9.0a")),
    ],
)
def test_architectures(cuda, monkeypatch, listed, present, expected):
    monkeypatch.setenv("CUDA_HOME", str(cuda.write_nvcc()))
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", listed)
    monkeypatch.setattr(gpus, "compute_capabilities", lambda: present)
    assert jit.detect().architectures == expected


KNOWN = "7.5, 8.0, 9.0, 12.0"


@pytest.mark.parametrize(
    ("listed", "got"),
    [
        ("abc", "'abc'"),
        ("9.9", "'9.9'"),
        ("8.0;9.9+PTX", "'9.9+PTX' in '8.0;9.9+PTX'"),
        ("sm_90", "'sm_90'"),
        (";", "';'"),
    ],
)
def test_architectures_that_are_not_understood(cuda, monkeypatch, capsys, listed, got):
    monkeypatch.setenv("CUDA_HOME", str(cuda.write_nvcc()))
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", listed)
    with pytest.raises(jit.ToolchainError) as told:
        cuda.load()
    assert str(told.value) == (
        "TORCH_CUDA_ARCH_LIST is not understood: expected architectures such as '8.0;9.0a', "
        f"of those that this nvcc knows ({KNOWN}), but got {got}"
    )
    assert cuda.counts == []  # no compiler was started
    few = {"settings": _checks.settings, "CUDA trial build": _checks.cuda_trial}
    monkeypatch.setattr("lltm_jit.cli.doctor.checks", lambda: few)
    assert main(["doctor", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["settings"]["text"] == str(told.value)
    assert found["CUDA trial build"]["text"] == "skipped: see settings"


def test_flags_for_architectures_take_the_place_of_the_list(cuda, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", str(cuda.write_nvcc()))
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "abc")
    spec = cuda.spec(cuda_cflags=("-gencode=arch=compute_80,code=sm_80",))
    builder.check_tools(spec, jit.detect())


@pytest.mark.parametrize(
    ("listed", "present", "asks"),
    [
        ("7.5;8.0", [(9, 0)], "TORCH_CUDA_ARCH_LIST='7.5;8.0' asks for 7.5"),
        ("Turing", [], "TORCH_CUDA_ARCH_LIST='Turing' asks for 7.5+PTX"),
        ("", [(7, 5), (8, 0)], "a GPU of this machine asks for 7.5"),
        ("native", [(7, 5)], "a GPU of this machine asks for 7.5"),
        ("8.0 9.0a", [(7, 5)], ""),
        ("", [(8, 0), (9, 0)], ""),
    ],
)
def test_architectures_that_kernels_are_not_written_for(cuda, monkeypatch, listed, present, asks):
    """Those of the package; a user's own kernels are compiled for any."""
    monkeypatch.setenv("CUDA_HOME", str(cuda.write_nvcc()))
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", listed)
    monkeypatch.setattr(gpus, "compute_capabilities", lambda: present)
    family = cuda.spec(least_architecture=native.LEAST_ARCHITECTURE)
    if not asks:
        assert jit.engine.build(family, jit.detect()).architectures
        return
    with pytest.raises(jit.ToolchainError) as told:
        jit.engine.build(family, jit.detect())
    assert str(told.value) == (
        f"_C has CUDA kernels for compute capability 8.0 and later, but {asks}; set "
        "TORCH_CUDA_ARCH_LIST to architectures from 8.0 on, with which it runs on such GPUs and "
        "on the CPU"
    )
    assert cuda.counts == []  # no compiler was started
    jit.engine.build(cuda.spec(), jit.detect())


def test_every_family_says_what_its_kernels_are_written_for():
    for family in native.families():
        assert native.spec(family, jit.detect()).least_architecture == (8, 0)


@pytest.mark.parametrize("name", gpus.NAMED_ARCHITECTURES)
def test_names_of_architectures_mean_what_they_mean_to_torch(monkeypatch, name):
    flags = []
    for listed in (name, ";".join(gpus.NAMED_ARCHITECTURES[name])):
        monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", listed)
        flags.append(cpp_extension._get_cuda_arch_flags())
    assert flags[0] == flags[1]


MANAGEMENT_LIBRARY = """
#include <cstring>
extern "C" {
int nvmlInit_v2() { return 0; }
int nvmlShutdown() { return 0; }
int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  return length < 80 ? 7 : (std::strcpy(text, "580.65.06"), 0);
}
int nvmlDeviceGetCount_v2(unsigned* count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = reinterpret_cast<void*>(index + 8ul);
  return 0;
}
int nvmlDeviceGetCudaComputeCapability(void* device, int* major, int* minor) {
  *major = static_cast<int>(reinterpret_cast<unsigned long>(device));
  *minor = 0;
  return 0;
}
}
"""


def test_driver_and_gpus_through_the_management_library(tmp_path, monkeypatch):
    source, library = tmp_path / "nvml.cpp", tmp_path / "libnvidia-ml.so.1"
    source.write_text(MANAGEMENT_LIBRARY)
    subprocess.run(["c++", "-shared", "-fPIC", source, "-o", library], check=True)
    load = ctypes.CDLL
    monkeypatch.setattr(ctypes, "CDLL", lambda name: load(str(tmp_path / name)))
    assert gpus.driver_version() == "580.65.06"
    assert gpus.compute_capabilities() == [(8, 0), (9, 0)]
    monkeypatch.setattr(ctypes, "CDLL", lambda name: load(str(tmp_path / "not-there")))
    assert gpus.driver_version() == ""
    assert gpus.compute_capabilities() == []


def test_compilers_are_asked_once(bench, monkeypatch):
    first = jit.detect()
    monkeypatch.setattr(toolchain, "_run", lambda command: pytest.fail(f"ran {command}"))
    assert jit.detect() == first


def test_memo_of_others_is_not_believed(bench, monkeypatch):
    jit.detect()
    memo = bench.builds / "toolchain.json"
    known = json.dumps(cache.read_json(memo)).replace("1.2.3", "6.6.6")
    cache.write_json(memo, json.loads(known))
    assert "6.6.6" in jit.detect().cxx_version
    bench.builds.chmod(0o777)
    assert "1.2.3" in jit.detect().cxx_version


@pytest.mark.parametrize("text", ["", "no JSON", "[]", '{"check": "",\n"more": 1}'])
def test_damaged_memo_is_asked_anew(cuda, monkeypatch, text):
    monkeypatch.setenv("CUDA_HOME", str(cuda.write_nvcc()))
    monkeypatch.setattr(gpus, "compute_capabilities", lambda: [(9, 0)])
    found = jit.detect()
    memo = cuda.builds / "toolchain.json"
    known = cache.read_json(memo)
    memo.write_text(text or memo.read_text().replace("13.0", "13.1"))
    assert jit.detect() == found
    assert cache.read_json(memo) == known


@pytest.mark.parametrize("command", ["{ccache} {cxx}", "env A=1 {cxx}", "{cxx} -DA"])
def test_a_compiler_in_several_words(bench, monkeypatch, command):
    ccache = bench.directory / "ccache"
    ccache.write_text('#!/bin/sh\nexec "$@"\n')
    ccache.chmod(0o755)
    monkeypatch.setenv("CXX", command.format(ccache=ccache, cxx=bench.environment["CXX"]))
    found = jit.detect()
    assert (found.cxx, found.cxx_version) == (os.environ["CXX"], "c++ (Fake) 1.2.3")
    assert text_of(bench.load()) == "shared header\none\ntwo"
    bench.write_compiler("c++ (Fake) 2.0.0")
    assert jit.detect().cxx_version == "c++ (Fake) 2.0.0"


@pytest.mark.parametrize("change", ["another", "earlier"])
def test_a_compiler_behind_a_ccache_under_its_name(bench, monkeypatch, change):
    """As distributions install it: a link to ccache, which starts the next c++ on PATH."""
    ccache = bench.directory / "tools" / "ccache"
    ccache.parent.mkdir()
    ccache.write_text('#!/bin/sh\nPATH="${PATH#*:}" exec c++ "$@"\n')
    ccache.chmod(0o755)
    (bench.directory / "links").mkdir()
    (bench.directory / "links" / "c++").symlink_to(ccache)
    places = [str(bench.directory / name) for name in ("links", "early", "bin")]
    monkeypatch.setenv("PATH", os.pathsep.join([*places, os.environ["PATH"]]))
    monkeypatch.setenv("CXX", "c++")
    bench.load()
    assert jit.detect().cxx_version == "c++ (Fake) 1.2.3"
    bench.write_compiler("c++ (Fake) 2.0.0", "bin" if change == "another" else "early")
    assert jit.detect().cxx_version == "c++ (Fake) 2.0.0"
    assert bench.load().info.reason.startswith("the compiler changed from c++ (Fake) 1.2.3")


def test_which_compiler_a_ccache_starts_may_be_in_its_settings(bench, monkeypatch):
    monkeypatch.setattr(memo, "is_ccache", lambda program: True)
    monkeypatch.setenv("CCACHE_CONFIGPATH", str(bench.directory / "ccache.conf"))
    jit.detect()
    asked = []
    run = toolchain._run
    monkeypatch.setattr(toolchain, "_run", lambda command: asked.append(command) or run(command))
    jit.detect()
    assert asked == []
    (bench.directory / "ccache.conf").write_text("compiler = clang++")
    jit.detect()
    assert asked
    asked.clear()
    monkeypatch.setenv("CCACHE_COMPILER", "clang++")
    jit.detect()
    assert asked


@pytest.mark.parametrize(
    ("said", "family"),
    [
        ("g++ (GCC) 14.1\nCopyright (C) 2024 Free Software Foundation, Inc.", "gcc"),
        ("x86_64-conda-linux-gnu-c++ 12\nCopyright Free Software Foundation, Inc.", "gcc"),
        ("Ubuntu clang version 18.1\nTarget: x86_64-pc-linux-gnu", "clang"),
        ("Intel(R) oneAPI DPC++/C++ Compiler 2025.0\nTarget: x86_64-unknown-linux-gnu", ""),
        ("Microsoft (R) C/C++ Optimizing Compiler Version 19.40", ""),
        ("nvc++ 25.1-0 64-bit target on x86-64 Linux -tp haswell", ""),
    ],
)
def test_which_compilers_are_gcc(bench, monkeypatch, said, family):
    monkeypatch.setattr(toolchain, "_run", lambda command: said)
    assert jit.detect().cxx_family == family


def test_native_code_is_for_one_processor(bench, monkeypatch):
    cpus = bench.directory / "cpuinfo"
    monkeypatch.setattr(fingerprint, "_CPUS", cpus)
    cpus.write_text("model name : one\nflags : avx\n")
    flags = {"cflags": ("-march=native",)}
    keys = [bench.load().info.key, bench.load(**flags).info.key]
    cpus.write_text("model name : two\nflags : sse\n")
    assert bench.load().info.key == keys[0]
    build = bench.load(**flags)
    assert build.info.key not in keys
    assert re.match(r"the processor changed from one \(\w+\) to two \(", build.info.reason)


def test_what_lies_beside_ninja_does_not_come_before_path(bench, monkeypatch):
    (bench.directory / "tools").mkdir()
    (bench.directory / "tools" / "ninja").symlink_to(process.find_ninja())
    wrong = bench.write_compiler("c++ (Fake) 6.6.6", directory="tools")
    wrong.write_text("#!/bin/sh\nexit 1\n")
    monkeypatch.setattr(ninja, "BIN_DIR", str(wrong.parent))
    right = Path(bench.environment["CXX"]).parent
    monkeypatch.setenv("PATH", f"{right}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("CXX", "c++")
    assert text_of(bench.load()) == "shared header\none\ntwo"


@pytest.mark.parametrize(
    ("name", "value"), [("CXX", "'c++"), ("CXX", " "), ("LLTM_JIT_TRUST_ROOT", "perhaps")]
)
def test_detect_survives_settings_that_cannot_be_used(bench, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    assert (jit.detect().cxx is None) == (name == "CXX")


def test_detect_survives_everything_missing(bench, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.setenv("CXX", "no-such-compiler")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", "/dev/null/nowhere")
    found = jit.detect()
    assert (found.cxx, found.cxx_version) == (None, "")


def test_ninja_is_taken_from_its_wheel_else_from_path(bench, monkeypatch, tmp_path):
    wheel = tmp_path / "wheel"
    wheel.mkdir()
    (wheel / "ninja.py").write_text(f"BIN_DIR = {str(wheel)!r}\n")
    (wheel / "ninja").symlink_to(process.find_ninja())
    monkeypatch.setenv("PYTHONPATH", str(wheel), prepend=os.pathsep)
    monkeypatch.setattr(ninja, "BIN_DIR", str(wheel))
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert process.find_ninja() == wheel / "ninja"
    assert bench.run()["compiled"] == 2
    monkeypatch.setitem(sys.modules, "ninja", None)  # as if it were not installed
    with pytest.raises(jit.ToolchainError, match="ninja was not found; run `python -m pip install"):
        process.find_ninja()
    other = tmp_path / "ninja"
    other.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert process.find_ninja() == other


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine whose /proc and /sys are texts."""
    monkeypatch.delenv("MAX_JOBS", raising=False)
    files: dict[str, str] = {"/proc/self/cgroup": "0::/box\n"}
    monkeypatch.setattr(jobs, "_read", lambda path: files.get(str(path), ""))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(16))
    files["/proc/meminfo"] = f"MemAvailable: {64 << 20} kB\n"
    return files


def test_jobs_by_affinity(machine):
    assert jobs.job_count(with_cuda=False) == 16


@pytest.mark.parametrize(("with_cuda", "expected"), [(False, 5), (True, 2)])
def test_jobs_by_memory(machine, with_cuda, expected):
    machine["/proc/meminfo"] = f"MemTotal: 99999999999 kB\nMemAvailable: {11 << 20} kB\n"
    assert jobs.job_count(with_cuda) == expected


def test_jobs_by_cgroup(machine):
    machine["/sys/fs/cgroup/box/cpu.max"] = "350000 100000\n"
    assert jobs.job_count(with_cuda=False) == 3
    machine["/sys/fs/cgroup/box/memory.max"] = f"{6 << 30}\n"
    machine["/sys/fs/cgroup/box/memory.current"] = f"{4 << 30}\n"
    machine["/sys/fs/cgroup/box/memory.stat"] = f"anon 1\ninactive_file {2 << 30}\n"
    assert jobs.job_count(with_cuda=False) == 2
    machine["/sys/fs/cgroup/box/memory.max"] = "max\n"
    machine["/sys/fs/cgroup/box/cpu.max"] = "max 100000\n"
    assert jobs.job_count(with_cuda=False) == 16


def test_jobs_as_given(machine, monkeypatch):
    monkeypatch.setenv("MAX_JOBS", "40")
    assert jobs.job_count(with_cuda=True) == 40
    monkeypatch.setenv("MAX_JOBS", "many")
    with pytest.raises(
        jit.ToolchainError, match="MAX_JOBS to be a positive integer or 0, but got 'many'"
    ):
        jobs.job_count(with_cuda=True)


def test_knobs(monkeypatch):
    monkeypatch.setenv("LLTM_JIT_QUIET", "perhaps")
    with pytest.raises(jit.ToolchainError, match="LLTM_JIT_QUIET to be 1 or 0, but got 'perhaps'"):
        knobs.flag("LLTM_JIT_QUIET")
    for value, expected in (("1", True), ("2", True), ("yes", True), ("0", False), ("", False)):
        monkeypatch.setenv("LLTM_JIT_QUIET", value)
        assert knobs.flag("LLTM_JIT_QUIET") is expected
    assert all(knob.help and Path(knob.name).name == name for name, knob in knobs.KNOBS.items())


def test_a_setting_that_is_not_utf_8_is_logged_and_used(bench):
    result = bench.run(CPATH="/gr\udcf6")
    log = bench.builds / result["key"] / "build.log"
    assert "CPATH=/gr\\udcf6" in log.read_text()


def test_a_path_that_is_not_utf_8_is_told(bench):
    bench.write("gr\udcf6.cpp", "x\n")
    with pytest.raises(jit.BuildError, match="a path or a flag is not UTF-8: change it"):
        bench.load()
