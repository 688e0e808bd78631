"""How kernels of whole sequences stand beside what is launched before and after them."""

import shutil
import subprocess

import pytest

from lltm_jit import native


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("kernel", ["forward", "backward"])
def test_what_follows_a_sequence_is_not_started_early(kernel, tmp_path):
    """Blocks of the next sequence would share the SMs that this one leaves free."""
    constants = {
        "CELL_HEADER": '"rnn/cells/lstm.h"',
        "CELL": "lltm_jit::LstmCell",
        "ELEMENT": "Half",
        "SHAPE": "2, 1, 2, 4, 1, 0, 0, 2, 0, 0",
        **dict.fromkeys(("CONTROLS", "PADDED", "SEVERAL", "SAVES", "ALL_STATES"), "0"),
    }
    header, code = tmp_path / "constants.h", tmp_path / "code.ptx"
    header.write_text("".join(f"#define {name} {value}\n" for name, value in constants.items()))
    kernels = native.kernels_directory()
    source = kernels / f"rnn/sequence/variants/{kernel}.cu"
    options = ["-ptx", "-arch=sm_90a", "--expt-relaxed-constexpr", f"-I{kernels}"]
    subprocess.run(["nvcc", *options, "-include", header, "-o", code, source], check=True)
    text = code.read_text()
    assert "griddepcontrol.wait" in text  # for what is before it
    assert "griddepcontrol.launch_dependents" not in text
