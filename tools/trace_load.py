"""Traces what `lltm_jit.load` of one small file runs through, to compare versions of the engine.

It counts calls of this package's Python functions, in all threads of the calling process but in no
process that it starts. The body of a module is a call too, and so is a comprehension before
Python 3.12. A return is a call into a file that the path had left for another one. Waiting for
compilers takes calls as well, so that those of a build differ by a few percent from run to run.
The seconds include the tracing. `--files` also prints the files in the order of their first calls.
"""

import os
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from types import FrameType

SOURCE = """#include <Python.h>
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "tiny", nullptr, -1, nullptr};
PyMODINIT_FUNC PyInit_tiny() { return PyModule_Create(&definition); }
"""
ROWS = ("cold", "new process, warm", "same process", "reload, edited")
COLUMNS = ("calls", "functions", "files", "returns", "s")
Trace = tuple[tuple[float, ...], Counter[str]]  # the values of the columns; the calls of each file


def trace(action: Callable[[], object], package: str) -> Trace:
    calls: list[tuple[str, str]] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(package + os.sep):
            calls.append((code.co_filename, getattr(code, "co_qualname", code.co_name)))

    began = time.perf_counter()
    threading.setprofile(note)
    sys.setprofile(note)
    action()
    sys.setprofile(None)
    seconds = round(time.perf_counter() - began, 3)
    path = [os.path.relpath(file, package) for file, _ in calls]
    files = Counter(path)
    changes = sum(one != other for one, other in pairwise(path))
    return (len(calls), len({*calls}), len(files), changes + 1 - len(files), seconds), files


def load(source: str, edit: str = "") -> Trace:
    import lltm_jit

    package = os.path.dirname(lltm_jit.__file__)
    if edit:
        Path(source).write_text(SOURCE + edit)
        return trace(lambda: lltm_jit.reload(sys.modules["tiny"]), package)
    return trace(lambda: lltm_jit.load("tiny", source), package)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ |= {"TORCH_EXTENSIONS_DIR": f"{folder}/cache", "LLTM_JIT_AT_IMPORT": "0"}
        source = f"{folder}/tiny.cpp"
        Path(source).write_text(SOURCE)
        one, other = (ProcessPoolExecutor(1, get_context("spawn")) for _ in range(2))
        steps = (one, ""), (other, ""), (other, ""), (one, "// edited\n")
        traces = [process.submit(load, source, edit).result() for process, edit in steps]
    print(f"{'':18}" + "".join(f"{column:>10}" for column in COLUMNS))
    for row, (values, _) in zip(ROWS, traces, strict=True):
        print(f"{row:18}" + "".join(f"{value:>10,}" for value in values))
    for row, (_, files) in zip(ROWS, traces, strict=True) if "--files" in sys.argv else ():
        print(f"\n{row}: " + ", ".join(f"{file} {calls}" for file, calls in files.items()))


if __name__ == "__main__":
    main()
