"""The build file that torch writes: by which private parts of torch, and what it depends on."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from engine_bench import text_of, tiers
from torch.utils import cpp_extension

from lltm_jit.jit.compile import files_read, worker
from lltm_jit.jit.machine import gpus

PROGRAM = """
import importlib, sys
sys.path.insert(0, sys.argv[1])
import torch_build_file, worker

original = importlib.import_module

def import_module(name):
    module = original(name)
    if name == "torch.version" and sys.argv[3]:
        module.cuda = module.cuda or "13.0"
    return module

def all_of_torch():
    import torch
    torch.cuda._is_compiled = lambda: bool(import_module("torch.version").cuda)
    torch.cuda.is_available = lambda: False
    return original("torch.utils.cpp_extension")

importlib.import_module = import_module
if sys.argv[2] == "all of torch":
    torch_build_file._alone = all_of_torch
status = worker.main()
assert ("torch._C" in sys.modules) == (sys.argv[2] == "all of torch")
sys.exit(status)
"""
KINDS = {
    "module": {
        "objects": ["other.o"],
        "cflags": ["-O2", "-DX='a b'"],
        "ldflags": ["-lm"],
        "include_paths": ["/a b"],
    },
    "program": {"standalone": True},
    "cuda": {"with_cuda": True, "cuda_cflags": ["-O2"], "objects": ["x.o", "y.cuda.o"]},
}


def build_file(folder, kind: str, torchs: str) -> str:
    cuda = "cuda" * (kind == "cuda")  # as with a toolkit, also where there is none: nothing runs
    variables = {"TORCH_CUDA_ARCH_LIST": "8.0;9.0", "CUDA_VISIBLE_DEVICES": ""}
    variables |= {"CXX": "env c++", "TORCH_NO_COMPILER_WRAPPER": "1"}
    variables |= {"CUDA_HOME": str(folder)} if cuda else {}
    sources = [str(folder / name) for name in ("x.cpp", "y.cu")]
    request = {"name": "x", "sources": sources, "objects": ["x.o"]}
    request |= {"build_file": None, "all_of_torch": False}
    request |= {"directory": str(folder), "sys_path": sys.path, "standalone": False}
    request |= {name: [] for name in ("cflags", "cuda_cflags", "ldflags", "include_paths")}
    request |= {"with_cuda": False, **KINDS[kind]}
    request["sources"] = sources[: len(request["objects"])]
    for source in sources:
        open(source, "w").close()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, os.path.dirname(worker.__file__), torchs, cuda],
        env={**os.environ, **variables},
        stdin=subprocess.PIPE,  # a worker ends when it is closed
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    said = process.stdout.read()
    process.stdin.close()
    assert process.wait() == 0, f"lltm_jit/jit/compile/torch_build_file.py: {said}"
    path = folder / "build.ninja"
    text = path.read_text()
    path.unlink()
    return text


@pytest.mark.parametrize("kind", tiers(dict(zip(KINDS, KINDS, strict=True)), ("cuda",)))
def test_the_private_parts_of_torch_are_where_the_engine_knows_them(tmp_path, kind):
    """It imports one module alone, gives names to one function, and edits lines of the file."""
    texts = [build_file(tmp_path, kind, torchs) for torchs in ("a module", "all of torch")]
    assert "build x.so: link" in texts[0] or kind == "program"
    assert ("compute_90" in texts[0]) == (kind == "cuda")
    assert texts[0] == texts[1]
    for object_file in KINDS[kind].get("objects", ["x.o"]):
        assert f"build {object_file}: " in texts[0]
    assert "\ncxx = env c++\n" in texts[0]
    asked = re.findall(r"(?m)^  (command = .* -c .*|depfile.*|deps.*)$", texts[0])
    told = 2 if kind == "cuda" else 1
    assert [line for line in asked if line.startswith("dep")] == ["depfile = $out.d"] * told
    deps = r" -MD -MF \$out\.d | --generate-dependencies-with-compile --dependency-output \$out\.d "
    assert sum(re.search(deps, line) is not None for line in asked) == told


def ccache(bench) -> Path:
    """One that notes that it was called."""
    path = bench.directory / "wrappers" / "ccache"
    path.parent.mkdir(exist_ok=True)
    path.write_text('#!/bin/sh\necho wrapped >> "$FAKE_COUNTS"\nexec "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def wrapping(bench, monkeypatch):
    """A bench whose torch calls compilers by a ccache that is on PATH, as newer ones do."""
    monkeypatch.setenv("FAKE_TORCH_WRAPS", "1")
    monkeypatch.setenv("PATH", f"{bench.directory / 'wrappers'}{os.pathsep}{os.environ['PATH']}")
    return bench


def edit(bench, text: str) -> bool:
    """Edit a source, and build; whether the compilers were called by ccache."""
    bench.write("two/two.cpp", text)
    assert text_of(bench.load()).endswith(text)
    return "wrapped" in bench.counts


def test_a_ccache_that_comes_and_goes(wrapping, monkeypatch):
    """A build file that was taken over named it, so that every edit failed once it was gone."""
    assert not edit(wrapping, "one")
    path = ccache(wrapping)
    assert edit(wrapping, "two")
    monkeypatch.setenv("TORCH_NO_COMPILER_WRAPPER", "1")
    assert not edit(wrapping, "three")
    monkeypatch.delenv("TORCH_NO_COMPILER_WRAPPER")
    assert edit(wrapping, "four")
    path.unlink()
    assert not edit(wrapping, "five")


def test_the_place_of_cudas_libraries(bench, monkeypatch):
    bench.write("three.cu", "three\n")
    home = bench.write_nvcc()
    for name, value in {"CUDA_HOME": str(home), "TORCH_CUDA_ARCH_LIST": "8.0"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("torch.version.cuda", "13.0")
    monkeypatch.setattr(gpus, "compute_capabilities", list)
    (home / "lib").mkdir()
    for number, folder in enumerate(("lib", "lib64")):
        (home / folder).mkdir(exist_ok=True)
        bench.write("two/two.cpp", f"{number}\n")
        assert f"-L{home}/{folder} " in (bench.load().info.directory / "build.ninja").read_text()


def test_a_linker_that_no_longer_tells_what_it_reads(bench, monkeypatch):
    edit(bench, "one")
    monkeypatch.setattr(files_read, "linker_flags", lambda *_: ())
    bench.write("two/two.cpp", "two")
    assert "--dependency-file" not in (bench.load().info.directory / "build.ninja").read_text()


# What torch's module reads of the machine when it writes a build file, and where that counts.
KNOWN = {
    "CXX": "the command of the compiler is in the key",
    "CC": "in the key, as all of toolchain._COMPILE_ENVIRONMENT",
    "CUDA_INC_PATH": "in the key",
    "PYTORCH_NVCC": "in the key",
    "TORCH_CUDA_ARCH_LIST": "set by the engine, from what is in the key",
    "TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES": "removed by build_environment",
    "TORCH_NO_COMPILER_WRAPPER": "seed.decisions",
    "which(wrapper)": "seed.decisions",
    "exists(_join_cuda_home(lib_dir))": "seed.decisions",
    "exists(_join_cuda_home('lib'))": "seed.decisions",
    "exists(_join_cuda_home(extra_lib_dir))": "seed.decisions",
    "exists(filename)": "the build file itself",
}


# A variable, the call of a look-up, or a call of a program.
READS = (
    r"os\.(?:environ\.get|getenv|environ)[(\[]'(\w+)'",
    r"(?:shutil|os|os\.path)\.((?:which|exists|is\w+|listdir)\(.*)",
    r"((?:subprocess|glob)\..*)",
)


def test_whatever_torch_reads_of_the_machine_counts():
    """Its functions that write the file are searched for variables, programs and files."""
    tree = ast.parse(Path(cpp_extension.__file__).read_text())
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    waiting, seen, found = ["_write_ninja_file_to_build_library", "_prepare_ldflags"], set(), set()
    while waiting:
        seen.add(name := waiting.pop())
        for node in ast.walk(functions[name]):
            text = ast.unparse(node) if isinstance(node, (ast.Call, ast.Subscript)) else ""
            found.update(match[1] for match in (re.match(each, text) for each in READS) if match)
            called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
            if called in functions.keys() - seen and not re.search("rocm|sycl|hip|icpx", called):
                waiting.append(called)
    assert {name for name in found if "'cl'" not in name} - KNOWN.keys() == set()
    assert {"CC", "exists(_join_cuda_home('lib'))"} <= found
