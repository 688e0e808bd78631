"""The commands of `python -m lltm_jit`, at small sizes."""

import json
import os
import platform
import re
import signal
import subprocess
import sys

import pytest
import torch

import lltm_jit
from lltm_jit import functional, native
from lltm_jit.cli import main
from lltm_jit.jit.user.settings import SETTINGS

SMALL = ["-b", "2", "-f", "3", "-s", "4"]
DEVICE_FLAGS = [
    pytest.param([], id="cpu"),
    pytest.param(
        ["-c"],
        id="cuda",
        marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    ),
]
FIGURES = r"\d+\.\d{3}/\d+\.\d{3}"


def run_module(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "lltm_jit", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
    )


@pytest.mark.slow
def test_a_path_that_the_terminal_cannot_show_is_shown_all_the_same(tmp_path):
    root = tmp_path / "größe"
    done = run_module("cache", "list", TORCH_EXTENSIONS_DIR=str(root), PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")
    assert "gr\\xf6\\xdfe" in done.stdout


@pytest.mark.parametrize("flags", DEVICE_FLAGS)
@pytest.mark.parametrize("variant", ["py", "cpp"])
@pytest.mark.parametrize("scale", ["s", "ms", "us"])
def test_benchmark_prints_the_tutorials_line(capsys, variant, scale, flags):
    assert main(["benchmark", variant, *SMALL, *flags, "-r", "3", "--scale", scale]) == 0
    expected = f"Forward: {FIGURES} {scale} \\| Backward {FIGURES} {scale}\n"
    assert re.fullmatch(expected, capsys.readouterr().out)


@pytest.mark.slow
def test_benchmark_of_plain_pytorch_builds_nothing(tmp_path):
    done = run_module("benchmark", "py", *SMALL, "-r", "1", TORCH_EXTENSIONS_DIR=str(tmp_path))
    assert done.returncode == 0
    assert re.fullmatch(f"Forward: {FIGURES} us \\| Backward {FIGURES} us\n", done.stdout)
    assert list(tmp_path.rglob("ok.json")) == []


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_benchmark_cuda_runs_on_the_gpu_unasked(capsys):
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.max_memory_allocated()
    assert main(["benchmark", "cuda", *SMALL, "-r", "3", "-d"]) == 0
    assert torch.cuda.max_memory_allocated() > before
    assert "us | Backward" in capsys.readouterr().out


@pytest.mark.skipif(torch.version.cuda is not None, reason="needs a build without CUDA kernels")
def test_without_cuda_kernels_cuda_is_refused(capsys, monkeypatch):
    """A GPU that torch sees is not enough: the fused cell would be ATen's."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert main(["check-grad", "cuda", *SMALL]) == 1
    assert "expected CUDA kernels, but the build has none: " in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without GPU")
@pytest.mark.parametrize(
    "command", [["benchmark", "cuda"], ["check", "forward", "-c"], ["check-grad", "cuda"]]
)
def test_without_a_gpu_cuda_is_refused(capsys, command):
    assert main(command) == 1
    assert "error: expected a CUDA device, but " in capsys.readouterr().err


@pytest.mark.parametrize("flags", DEVICE_FLAGS)
def test_check_compares_every_implementation(capsys, flags):
    assert main(["check", "forward", "backward", *flags]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == (8 if flags else 4)
    for line in lines:
        assert re.fullmatch(r"(Forward|Backward): Baseline \(Python\) vs\. [\w+ ]+ \.\.\. Ok", line)


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_check_fails_when_an_implementation_is_wrong(capsys, monkeypatch, direction):
    right = functional.lltm_cell

    def wrong(*operands, impl):
        new_h, new_cell = right(*operands, impl=impl)
        return (new_h, new_cell * 1.001) if impl == "fused" else (new_h, new_cell)

    monkeypatch.setattr(functional, "lltm_cell", wrong)
    assert main(["check", direction]) == 1
    out = capsys.readouterr().out
    assert "vs. C++ ... Ok" in out
    assert "vs. fused CPU ... FAILED" in out


def test_check_verbose_prints_the_values(capsys):
    assert main(["check", "forward", "-v", *SMALL]) == 0
    assert "new_cell, difference:\ntensor(" in capsys.readouterr().out


@pytest.mark.parametrize("flags", DEVICE_FLAGS)
@pytest.mark.parametrize("variant", ["py", "cpp"])
def test_grad_check_passes(capsys, variant, flags):
    assert main(["check-grad", variant, *SMALL, *flags]) == 0
    assert capsys.readouterr().out == "Ok\n"


def test_grad_check_fails_on_a_wrong_gradient(capsys, monkeypatch):
    right = functional.lltm_cell

    def wrong(input, *operands, impl):
        return right(input * 2 - input.detach(), *operands, impl=impl)

    monkeypatch.setattr(functional, "lltm_cell", wrong)
    assert main(["check-grad", "py", *SMALL]) == 1
    assert capsys.readouterr().out.startswith("FAILED\nJacobian mismatch")


def test_grad_check_wants_a_variant_or_the_table(capsys):
    with pytest.raises(SystemExit):
        main(["check-grad"])
    assert "expected a variant (py, cpp or cuda) or --table" in capsys.readouterr().err


@pytest.mark.parametrize("flags", DEVICE_FLAGS)
def test_grad_check_table_shows_that_float32_is_not_enough(capsys, flags):
    assert main(["check-grad", "--table", *flags]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert rows == [
        ["dtype", "eps", "lltm_jit.sigmoid", "torch.sigmoid"],
        ["float32", "1e-03", "passes", "passes"],
        ["float32", "1e-04", "fails", "fails"],
        ["float64", "1e-04", "passes", "passes"],
        ["float64", "1e-06", "passes", "passes"],
    ]


def test_grad_check_table_fails_when_sigmoid_is_wrong(monkeypatch):
    monkeypatch.setattr(functional, "sigmoid", lambda x: torch.sigmoid(x) + 0.1 * x.detach())
    assert main(["check-grad", "--table"]) == 1


def test_info_shows_the_loaded_builds(capsys):
    for family in native.OWN:
        native.load(family)
    info = lltm_jit.build_info()
    assert main(["info", "--json", *info.families]) == 0
    facts = json.loads(capsys.readouterr().out)
    families = {name: build._replace(cached=True) for name, build in info.families.items()}
    assert facts.keys() == {*info._fields}
    for name, build in families.items():  # `cached` tells of the process that asks
        assert facts["families"][name] == json.loads(json.dumps(build._asdict(), default=str))
    assert facts["toolchain"] == json.loads(json.dumps(info.toolchain._asdict()))
    assert info.lltm_jit_version == lltm_jit.__version__
    assert info.python_version == platform.python_version()
    assert info.toolchain.torch_version == torch.__version__
    with pytest.raises(AttributeError):
        info.families = {}
    assert main(["info"]) == 0
    out = capsys.readouterr().out
    assert torch.__version__ in out
    for build in (info.families[family] for family in native.OWN):
        assert build.torch_version == torch.__version__
        assert build.reason
        assert build.key in out
    assert main(["info", "basic"]) == 0
    out = capsys.readouterr().out
    assert info.families["basic"].key in out
    assert info.families["rnn"].key not in out


def test_info_shows_the_settings_that_are_not_at_their_default(monkeypatch, capsys, tmp_path):
    given = {"TORCH_EXTENSIONS_DIR": str(tmp_path), "LLTM_JIT_KEEP": "7"}
    for name in SETTINGS:
        monkeypatch.setenv(name, given.get(name, ""))
    assert main(["info", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"] == given
    assert main(["info"]) == 0
    shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith("setting")]
    assert shown == [f"setting   {name}={value}" for name, value in given.items()]


def test_info_neither_builds_nor_imports_the_builder(tmp_path):
    done = run_module(
        "info", "--json", TORCH_EXTENSIONS_DIR=str(tmp_path), PYTHONPROFILEIMPORTTIME="1"
    )
    assert done.returncode == 0
    facts = json.loads(done.stdout)
    assert facts["toolchain"]["torch_version"] == torch.__version__
    assert facts["families"] == {}
    assert list(tmp_path.rglob("ok.json")) == []
    assert " torch.utils\n" in done.stderr
    assert "torch.utils.cpp_extension" not in done.stderr


@pytest.mark.parametrize(
    "words", [["check", "forward"], pytest.param(["check-grad", "py"], marks=pytest.mark.slow)]
)
def test_checking_does_not_import_the_builder(words):
    """On a machine without a GPU, torch's may print a line that has nothing to do with it."""
    done = run_module(*words, PYTHONPROFILEIMPORTTIME="1")
    assert done.returncode == 0
    assert " torch.utils\n" in done.stderr
    assert "torch.utils.cpp_extension" not in done.stderr


INTERRUPTED = """
from lltm_jit.cli import main
from lltm_jit.cli.export import flags

def run(args):
    print("half a table")
    raise KeyboardInterrupt

flags.run = run
main(["flags"])
"""


@pytest.mark.parametrize("read", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_ctrl_c_shows_what_there_is_if_somebody_reads_it(read, monkeypatch):
    """Nobody does where Ctrl-C ended the other end of the pipe, too."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED], stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    with open(reading) as stdout:
        if read:
            assert stdout.read() == "half a table\n"
    assert process.communicate()[1] == ""
    assert process.returncode == -signal.SIGINT
