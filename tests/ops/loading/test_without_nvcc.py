"""What a machine has that has torch and a wheel with the families' libraries, and no compiler."""

import importlib
import os
import re
import shutil
from pathlib import Path

import pytest
from op_testing import needs_gpu, run_program

from lltm_jit import jit, native
from lltm_jit.jit.compile import nvrtc
from lltm_jit.jit.loading import engine
from lltm_jit.jit.machine.toolchain import find_nvrtc
from lltm_jit.jit.request import texts
from lltm_jit.jit.store import cache

KERNELS = native.kernels_directory()
INCLUDE = re.compile(r"(?m)^#include ([<\"])(.+)[>\"]")


def test_headers_of_variants_are_ours():
    """NVRTC has no standard library, and CUDA's headers may be missing."""
    importlib.import_module("lltm_jit.ops.stylegan.filtered_lrelu")  # which declares its own
    ours = [name for name in jit.kernels if re.match(r"rnn\.sequence_|stylegan\.", name)]
    waiting, seen = [jit.kernels[name]().source for name in ours], set()
    assert len(waiting) == 8
    waiting += (KERNELS / "rnn" / "cells").glob("*.h")
    while waiting:
        path = waiting.pop()
        if path in seen or path == KERNELS / "core/launch/api.h":  # which is empty for NVRTC
            continue
        seen.add(path)
        for kind, name in INCLUDE.findall(texts.read(str(path))):
            found = KERNELS / name if kind == '"' else Path(nvrtc.STANDARD, name)
            assert found.is_file(), f"{path} includes {name}"
            waiting.append(found)
    assert len(seen) > 50


BUILDS = """
import itertools, sys
from lltm_jit.jit import variants
from lltm_jit.ops.rnn import sequence
from lltm_jit.ops.stylegan import filtered_lrelu

cells = {"slstm": "Slstm", "lstm": "Lstm"}
shapes = {"Half": "16,2,4,4,1,0,0,2,0,0", "float": "16,2,4,16,2,0,1,4,1,0"}
use = {"CONTROLS": "1", "PADDED": "1", "SEVERAL": "0"}
asked = []
for (header, cell), (element, shape) in zip(cells.items(), shapes.items()):
    names = {
        "CELL_HEADER": f'"rnn/cells/{header}.h"',
        "CELL": f"lltm_jit::{cell}Cell",
        "ELEMENT": element,
    }
    every = {**names, **use, "SHAPE": shape}
    asked += [
        ("rnn.sequence_forward", {**every, "SAVES": "1"}),
        ("rnn.sequence_backward", {**every, "ALL_STATES": "0"}),
        ("rnn.sequence_steps", names),
    ]
many = {**every, "ELEMENT": "BFloat16", "SHAPE": "2,24,2,9,5,0,0"}
asked += [
    ("rnn.sequence_many_rows_forward", {**many, "SAVES": "1"}),
    ("rnn.sequence_many_rows_backward", many),
]
call = "UP=2 DOWN=2 UP_TAPS=12 DOWN_TAPS=12 SIGNS=Write WHOLE=true OUT_TILES=8 IN_SLICES=8 WARPS=8"
call = dict(word.split("=") for word in call.split())
asked += [("stylegan.filtered_lrelu", {**call, "ELEMENT": each}) for each in ("Half", "float")]
wanted = [variants.declared((name, "", tuple(more.items()), name)) for name, more in asked]
for build in variants.builds_of(wanted):
    assert build.info.compiler.startswith("NVRTC "), build.info
    assert build.info.library.read_bytes()[:4] == b"\\x7fELF"
"""


def run(place: Path, program: str, path: Path | None = None) -> str:
    """What a program says to stderr on a machine without compilers; its cache is in a place."""
    variables = {"PATH": str(place), "CXX": "no-compiler", "CUDA_HOME": "/nowhere"}
    variables |= {"TORCH_EXTENSIONS_DIR": f"{place}/root"}
    if path:
        variables["PYTHONPATH"] = str(path)
    return run_program(program, cwd=place, env={**os.environ, **variables}).stderr


@pytest.mark.skipif(find_nvrtc(None) is None, reason="needs a torch with CUDA, but no GPU")
@pytest.mark.parametrize("architecture", ["9.0a", pytest.param("8.0", marks=pytest.mark.slow)])
def test_variants_are_compiled_by_nvrtc(architecture, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", architecture)
    monkeypatch.setenv("LLTM_JIT_AT_IMPORT", "0")
    assert run(tmp_path, BUILDS).count("(1 compiled, 0 reused)") == 10
    assert "compiled" not in run(tmp_path, BUILDS)


CALLS = """
import torch
import lltm_jit
from lltm_jit.ops.filtered_lrelu import filtered_lrelu

torch.manual_seed(0)
ours = lltm_jit.LSTM(64, 128, device="cuda", dtype=torch.half)
theirs = torch.nn.LSTM(64, 128, device="cuda", dtype=torch.half)
theirs.load_state_dict(ours.state_dict())
x = torch.randn(20, 8, 64, device="cuda", dtype=torch.half, requires_grad=True)

def results(layer):
    output, _ = layer(x)
    grads = torch.autograd.grad(output.float().square().sum(), [x, *layer.parameters()])
    return output, *grads

for one, other in zip(results(ours), results(theirs)):
    torch.testing.assert_close(one, other, atol=2e-2, rtol=2e-2)

f = torch.full((12,), 1 / 12, device="cuda")
x = torch.randn(4, 64, 64, 64, device="cuda", dtype=torch.half, requires_grad=True)
both = []
for how in ({}, {"impl": "ref"}):
    y = filtered_lrelu(x, f, f, up=2, down=2, padding=11, **how)
    both.append((y, *torch.autograd.grad(y.float().square().sum(), x)))
for one, other in zip(*both):
    assert (one - other).float().norm() < 1e-2 * other.float().norm()
"""


@needs_gpu
@pytest.mark.slow
def test_layers_of_a_wheel_run_at_full_speed(tmp_path):
    """With the kernels that a machine with nvcc has, which NVRTC compiles."""
    shutil.copytree(Path(native.__file__).parent, tmp_path / "site" / "lltm_jit")
    package = tmp_path / "site" / "lltm_jit"
    shutil.copytree(KERNELS, package / "kernels", dirs_exist_ok=True)
    for family in native.families():
        engine.package(native.spec(family), package / cache.WHEEL_FOLDER)
    said = run(tmp_path, CALLS, tmp_path / "site")
    variants = re.findall(r"building (\w+) variant .*?(\w+) for sm_\w+ \(NVRTC", said)
    assert {("rnn", "training"), ("rnn", "backward"), ("stylegan", "signs")} <= {*variants}
    assert "slower kernel" not in said
