"""What an import of the package does, with torch itself and the fake compiler."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from engine_bench import alive, compiler_pid, slow, wait_for

USE = """
try:
    lltm_jit.native.rnn
except lltm_jit.LltmJitError as error:
    print(error)
else:
    print("used")
"""


def test_an_import_starts_no_thread_and_its_build_ends_with_the_process(bench, package):
    bench.write("rnn/bindings.cpp", f"//! wait {package.gate}\n")
    program = (
        "import sys, threading, lltm_jit\nprint(threading.active_count(), flush=True)\ninput()"
    )
    with package.started("-c", program) as process:
        assert process.stdout.readline() == "1\n"
        pid = compiler_pid(package.gate)
        assert process.communicate("\n", timeout=50) == ("", None)
    wait_for(lambda: not alive(pid))


def test_the_first_use_waits_for_the_build_of_the_import(bench, package):
    program = f"import os, time, lltm_jit\nwhile not os.path.exists({str(package.gate)!r}):\n"
    bench.write("rnn/bindings.cpp", f"//! wait {package.gate}\nrnn\n")
    with package.started("-c", f"{program}    time.sleep(0.02)\n{USE}") as process:
        compiler_pid(package.gate)
        assert process.stdout.readline().startswith("lltm_jit: waiting for process ")
        Path(f"{package.gate}.go").touch()
        assert process.communicate(timeout=50)[0].endswith("used\n")
    assert bench.counts == ["compile bindings.cpp", "link"]


@pytest.mark.parametrize("background", ["1", slow("0")])
def test_without_a_compiler_an_import_works_and_the_first_use_tells(bench, package, background):
    variables = {"CXX": "", "PATH": str(bench.directory), "LLTM_JIT_BACKGROUND": background}
    program = f"try:\n    import lltm_jit\nexcept RuntimeError as e:\n    print(e); quit()\n{USE}"
    assert package.run(program, **variables).startswith("no C++ compiler was found")


SANDBOX = """
import os
real = os.open, os.listdir, os.readlink, open
def refused(function):
    def call(path, *args, **named):
        if isinstance(path, str) and path.startswith("/proc"):
            raise FileNotFoundError(2, "No such file or directory", path)
        return function(path, *args, **named)
    return call
import builtins, io
os.open, os.listdir, os.readlink = map(refused, real[:3])
builtins.open = io.open = refused(open)
"""


@pytest.mark.parametrize("start", ["import os; os.rmdir(os.getcwd())", SANDBOX])
def test_a_program_in_a_removed_directory_or_without_proc(bench, package, start):
    (bench.directory / "gone").mkdir()
    program = f"import torch, os; os.chdir({str(bench.directory / 'gone')!r})\n{start}\n"
    program += f"import lltm_jit\n{USE}\nlltm_jit.load('_C', {str(bench.sources / 'two')!r})\n"
    assert "used\n" in package.run(program)
    assert {"compile bindings.cpp", "compile two.cpp"} <= {*bench.counts}
    assert os.path.exists(bench.directory / "gone") == (start == SANDBOX)
