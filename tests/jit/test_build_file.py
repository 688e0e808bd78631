"""The build file is the same whether torch's module that writes it has the rest of torch or not."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch
from torch.utils import cpp_extension

from lltm_jit.jit import worker

PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import worker
if sys.argv[2] == "all of torch":
    def refuse():
        raise worker._NeedsMoreError
    worker._alone = refuse
status = worker.main()
assert "torch._C" not in sys.modules  # all of torch is imported by a process of its own
sys.exit(status)
"""
KINDS = {
    "module": {"cflags": ["-O2", "-DX='a b'"], "ldflags": ["-lm"], "include_paths": ["/a b"]},
    "program": {"standalone": True},
    "cuda": {"with_cuda": True, "cuda_cflags": ["-O2"], "objects": ["x.o", "y.cuda.o"]},
}


def build_file(folder, kind: str, torchs: str) -> str:
    sources = [str(folder / name) for name in ("x.cpp", "y.cu")]
    request = {"name": "x", "sources": sources, "objects": ["x.o"], "reused": [], "build_file": ""}
    request |= {"directory": str(folder), "sys_path": sys.path, "standalone": False}
    request |= {name: [] for name in ("cflags", "cuda_cflags", "ldflags", "include_paths")}
    request |= {"with_cuda": False, **KINDS[kind]}
    request["sources"] = sources[: len(request["objects"])]
    for source in sources:
        open(source, "w").close()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, os.path.dirname(worker.__file__), torchs],
        env={**os.environ, "TORCH_CUDA_ARCH_LIST": "8.0;9.0", "CUDA_VISIBLE_DEVICES": ""},
        stdin=subprocess.PIPE,  # a worker ends when it is closed
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    process.stdin.write(json.dumps(request) + "\n")
    process.stdin.flush()
    said = process.stdout.read()
    process.stdin.close()
    assert process.wait() == 0, said
    path = folder / "build.ninja"
    text = path.read_text()
    path.unlink()
    return text


@pytest.mark.skipif(
    bool(torch.version.hip or getattr(torch.version, "xpu", None)), reason="goes with all of torch"
)
@pytest.mark.parametrize("kind", KINDS)
def test_the_same_build_file_without_the_rest_of_torch(tmp_path, kind):
    if kind == "cuda" and not (torch.version.cuda and cpp_extension.CUDA_HOME):
        pytest.skip("there is no CUDA")
    texts = [build_file(tmp_path, kind, torchs) for torchs in ("a module", "all of torch")]
    assert "build x.so: link" in texts[0] or kind == "program"
    assert texts[0] == texts[1]
