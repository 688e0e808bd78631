"""The commands about the LLTM cell, at small sizes, and `info`."""

import json
import platform
import re

import pytest
import torch
from small_checkout import CHECKOUT, run_in

import lltm_jit
from lltm_jit import functional, native
from lltm_jit.jit.user.settings import SETTINGS

SMALL = ["-b", "2", "-f", "3", "-s", "4"]
NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
on_devices = pytest.mark.parametrize("flags", [[], pytest.param(["-c"], marks=NEEDS_GPU)])
FIGURES = r"\d+\.\d{3}/\d+\.\d{3}"


@on_devices
@pytest.mark.parametrize(("variant", "scale"), [("py", "s"), ("cpp", "ms"), ("cpp", "us")])
def test_benchmark_prints_the_tutorials_line(told, variant, scale, flags):
    expected = f"Forward: {FIGURES} {scale} \\| Backward {FIGURES} {scale}\n"
    said = told("benchmark", variant, *SMALL, *flags, "-r", "3", "--scale", scale)
    assert re.fullmatch(expected, said)


@NEEDS_GPU
def test_benchmark_cuda_runs_on_the_gpu_unasked(told):
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.max_memory_allocated()
    assert "us | Backward" in told("benchmark", "cuda", *SMALL, "-r", "3", "-d")
    assert torch.cuda.max_memory_allocated() > before


@pytest.mark.skipif(torch.version.cuda is not None, reason="needs a build without CUDA kernels")
def test_without_cuda_kernels_cuda_is_refused(told, monkeypatch):
    """A GPU that torch sees is not enough: the fused cell would be ATen's."""
    for command in (["benchmark", "cuda"], ["check", "forward", "-c"], ["check-grad", "cuda"]):
        assert "error: expected a CUDA device, but " in told(*command, code=1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    said = told("check-grad", "cuda", *SMALL, code=1)
    assert "expected CUDA kernels, but the build has none: " in said


@on_devices
def test_check_compares_every_implementation(told, flags):
    lines = told("check", "forward", "backward", *flags).splitlines()
    assert len(lines) == (8 if flags else 4)
    for line in lines:
        assert re.fullmatch(r"(Forward|Backward): Baseline \(Python\) vs\. [\w+ ]+ \.\.\. Ok", line)
    assert "new_cell, difference:\ntensor(" in told("check", "forward", "-v", *SMALL)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_check_fails_when_an_implementation_is_wrong(told, monkeypatch, direction):
    right = functional.lltm_cell

    def wrong(*operands, impl):
        new_h, new_cell = right(*operands, impl=impl)
        return (new_h, new_cell * 1.001) if impl == "fused" else (new_h, new_cell)

    monkeypatch.setattr(functional, "lltm_cell", wrong)
    out = told("check", direction, code=1)
    assert "vs. C++ ... Ok" in out
    assert "vs. fused CPU ... FAILED" in out


@on_devices
@pytest.mark.parametrize("variant", ["py", "cpp"])
def test_check_grad_passes(told, variant, flags):
    assert told("check-grad", variant, *SMALL, *flags) == "Ok\n"


def test_check_grad_fails_on_a_wrong_gradient(told, monkeypatch):
    right = functional.lltm_cell

    def wrong(input, *operands, impl):
        return right(input * 2 - input.detach(), *operands, impl=impl)

    monkeypatch.setattr(functional, "lltm_cell", wrong)
    assert told("check-grad", "py", *SMALL, code=1).startswith("FAILED\nJacobian mismatch")


def test_info_shows_the_loaded_builds(told, builds):
    info = lltm_jit.build_info()
    facts = json.loads(told("info", "--json", *native.OWN))
    assert facts.keys() == {*info._fields}
    for name in native.OWN:  # `cached` tells of the process that asks
        build = builds[name]._replace(cached=True)
        assert facts["families"][name] == json.loads(json.dumps(build._asdict(), default=str))
        assert (build.torch_version, bool(build.reason)) == (torch.__version__, True)
    assert facts["toolchain"] == json.loads(json.dumps(info.toolchain._asdict()))
    versions = (lltm_jit.__version__, platform.python_version(), torch.__version__)
    assert (info.lltm_jit_version, info.python_version, info.toolchain.torch_version) == versions
    out = told("info")
    assert torch.__version__ in out
    assert all(builds[name].key in out for name in native.OWN)
    assert builds["rnn"].key not in told("info", "basic")


def test_info_shows_the_settings_that_are_not_at_their_default(monkeypatch, told, tmp_path):
    given = {"TORCH_EXTENSIONS_DIR": str(tmp_path), "LLTM_JIT_CACHE_GB": "7"}
    for name in SETTINGS:
        monkeypatch.setenv(name, given.get(name, ""))
    assert json.loads(told("info", "--json"))["settings"] == given
    shown = [line for line in told("info").splitlines() if line.startswith("setting")]
    assert shown == [f"setting   {name}={value}" for name, value in given.items()]


PROGRAM = """
import os, sys
from lltm_jit.cli import main

_, root, *sizes = sys.argv
os.environ["TORCH_EXTENSIONS_DIR"], usual = root, os.environ.get("TORCH_EXTENSIONS_DIR", "")
assert main(["info"]) == main(["benchmark", "py", *sizes, "-r", "1"]) == 0
assert "torch.utils.cpp_extension" not in sys.modules
os.environ["TORCH_EXTENSIONS_DIR"] = usual
for words in ("benchmark cpp -r 1", "check forward", "check-grad cpp"):
    if not (child := os.fork()):  # which has loaded nothing yet
        os._exit(main([*words.split(), *sizes]))
    assert os.waitpid(child, 0)[1] == 0, words
"""


def test_a_command_loads_what_it_uses_and_what_needs_no_build_makes_none(tmp_path):
    run_in(CHECKOUT, "-c", PROGRAM, tmp_path, *SMALL, LLTM_JIT_AT_IMPORT="0")
    assert list(tmp_path.rglob("ok.json")) == []
