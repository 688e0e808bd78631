"""What an import costs where all is built: the modules, the files and the calls of the system."""

import json
import os

from op_testing import run_program

from lltm_jit import native
from lltm_jit.jit import detect, inspect
from lltm_jit.jit.request.request import Request
from lltm_jit.jit.store import files

COUNT = """
import json, os, sys, threading
import torch

before, threads = set(sys.modules), threading.active_count()
opened, others, stats = [], [], []
CHANGES = ("os.remove", "os.rename", "os.mkdir", "os.chmod", "os.truncate")
PROCESSES = ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.exec", "os.system")

def hook(event, arguments):
    if event == "open" and not isinstance(arguments[0], int):
        opened.append((os.fspath(arguments[0]), arguments[2]))
    elif event in (*CHANGES, *PROCESSES, "os.utime") or event.startswith("socket."):
        others.append([event, str(arguments[0])])

def counted(function):
    return lambda *args, **named: stats.append(1) or function(*args, **named)

os.stat, os.lstat = counted(os.stat), counted(os.lstat)
sys.addaudithook(hook)
import lltm_jit
print(json.dumps({
    "modules": sorted(set(sys.modules) - before),
    "opened": opened,
    "others": others,
    "stats": len(stats),
    "threads": threading.active_count() - threads,
    "library": str(lltm_jit.native.rnn.__file__),
}))
"""

# Each costs a fraction of a millisecond: the more there are, the longer every program waits.
MODULES = """
lltm_jit: _library _placeholders _start native
lltm_jit.jit:
lltm_jit.jit.user: errors settings
lltm_jit.jit.store: cache files private
lltm_jit.jit.machine: toolchain
lltm_jit.jit.request: flags request spec
lltm_jit.jit.loading: background build engine
lltm_jit.ops: _elementwise basic
lltm_jit.ops.rnn: lltm sequence
"""


def count() -> dict:
    done = run_program(COUNT)
    assert done.stderr == ""
    return json.loads(done.stdout)


def names() -> set[str]:
    found = set()
    for line in MODULES.strip().split("\n"):
        package, modules = line.split(":")
        found |= {package, *(f"{package}.{module}" for module in modules.split())}
    return found | ({"lltm_jit.jit.machine.gpus"} if detect().cuda else set())


def test_a_cached_import_does_what_a_load_needs_and_no_more():
    """Nothing that only a build needs is imported, and no thread and no process is started."""
    build = native.load("rnn")
    assert inspect(native.spec("rnn"))  # from now on, the stamps of all files are known
    seen = count()
    assert seen["library"] == str(build.info.library)

    own = {name for name in seen["modules"] if name.startswith("lltm_jit")}
    assert {name for name in own if "._builds." not in name} == names()
    heavy = {"asyncio", "filelock", "tqdm", "ninja", "setuptools", "torch.utils.cpp_extension"}
    assert heavy.isdisjoint(seen["modules"])

    # Nothing is written but the time of the last use; there is no process, and no network.
    record = str(build.info.directory / "ok.json")
    assert (seen["others"], seen["threads"]) == ([["os.utime", record]], 0)
    writes = os.O_WRONLY | os.O_RDWR | os.O_CREAT
    opened = [path for path, flags in seen["opened"] if not path.endswith((".py", ".pyc"))]
    assert [path for path, flags in seen["opened"] if flags & writes] == []

    # Each source is read once. The library's content is not, which its stamp stands for.
    assert len(opened) == len(set(opened))
    kernels = {path for path in opened if path.startswith(str(native.kernels_directory()))}
    request = Request(native.spec("rnn"))
    assert kernels <= files.closure(request.sources, request.searched).keys()
    assert request.with_cuda or not any(path.endswith((".cu", ".cuh")) for path in kernels)
    assert str(build.info.library) not in opened
    # The record, the stamps, the boot that they are of, who is nobody here, what compilers said in
    # two files, and of these g++, nvcc and its host compiler.
    assert len(opened) - len(kernels) <= 9
    # Python looks for modules, and each folder on the way to a build is looked at; a pass over the
    # sources more is too many.
    once = len(build.record.inputs.files) + len(build.record.inputs.folders)
    assert seen["stats"] <= once + 200 + 5 * len(build.info.library.parts)
