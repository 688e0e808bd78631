"""Build and run many programs that a machine may have written, as a grader of kernels does.

    python examples/judge_kernels.py            50 programs: CUDA, or C++ where nvcc is missing
    python examples/judge_kernels.py --torch    the same by torch's load_inline, too

Some do not compile, some take forever to compile, some hang and some crash. So each program is
built and run in a process of its own, with time limits. These processes are forked from one that
has imported torch, which saves the seconds of that import.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import signal
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection

os.environ["LLTM_JIT_AT_IMPORT"] = "0"  # the package's own operators are not wanted
os.environ |= {"LLTM_JIT_QUIET": "1", "MAX_JOBS": "1"}  # each processor builds a program

import torch
from torch.utils import cpp_extension
from tqdm import tqdm

import lltm_jit
from lltm_jit.jit import BuildError, detect

CPP = """
torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty_like(x);
  float *in = x.data_ptr<float>(), *out = y.data_ptr<float>();
  for (int i = 0; i < x.numel(); ++i) { %s }
  return y;
}
"""
CUDA = """
__global__ void kernel(const float* in, float* out, int size) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < size) { %s }
}

torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty_like(x);
  kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
"""
DECLARATION = "torch::Tensor run(torch::Tensor x);"
ENDLESS = """
template <int N, int M> struct Tree : Tree<N - 1, M>, Tree<N - 1, M + (1 << (N - 1))> {};
template <int M> struct Tree<0, M> {};
"""
FAULTS = [
    "out[i] = in[i] * scael;",  # does not compile
    "out[i] = sizeof(Tree<30, 0>);",  # takes for ever to compile
    "volatile bool go = true; while (go) out[i] = in[i];",  # hangs
    "*(volatile float*)nullptr = in[i];",  # crashes
]


def generate(count: int, template: str) -> list[str]:
    """Programs that multiply by their number; a sixth of them, and at least four, have faults."""
    faults = FAULTS * max(1, round(count / 6 / len(FAULTS)))
    right = [f"out[i] = in[i] * {number};" for number in range(len(faults), count)]
    return [ENDLESS + template % body for body in faults + right]


def judge(number: int, text: str, side: str, folder: str, limit: float, told: Connection) -> None:
    """Build and run a program, in a process of its own, and tell what is wrong after each step."""
    os.setsid()  # one signal ends this process and its children
    os.environ["TORCH_EXTENSIONS_DIR"] = folder
    on_gpu = "__global__" in text
    arguments = [f"program{number}", *([DECLARATION, text] if on_gpu else [text])]
    try:
        if side == "torch":
            module = cpp_extension.load_inline(*arguments, functions="run")
        else:
            module = lltm_jit.load_inline(*arguments, functions="run", timeout=limit)
        told.send("")
        if not on_gpu or torch.cuda.is_available():
            x = torch.arange(1000.0, device="cuda" if on_gpu else "cpu")
            torch.testing.assert_close(module.run(x), x * number)
        told.send("")
    except BuildError as error:
        place = "".join(f"{part}: " for part in (error.file, error.line) if part)
        told.send(f"{place}{error.message or error}".partition("\n")[0])
    except (RuntimeError, AssertionError) as error:  # torch's has all that the compilers print
        said = re.search(r"^.*\berror\b.*:.*$", str(error), re.MULTILINE | re.IGNORECASE)
        told.send(said[0] if said else str(error).partition("\n")[0])


def verdict(
    number: int, text: str, side: str, folder: str, limits: tuple[float, float]
) -> tuple[str, float]:
    """What is wrong with a program, even if it hangs or crashes, and the seconds of its build."""
    context = multiprocessing.get_context("forkserver")
    ours, its = context.Pipe()
    process = context.Process(target=judge, args=(number, text, side, folder, limits[0], its))
    began, failure, seconds = time.monotonic(), "", 0.0
    process.start()
    its.close()  # so that the pipe ends with the process
    try:
        for step, limit in zip(("build", "run"), limits, strict=True):
            if failure:
                break
            told = ours.poll(limit + 5 * (step == "build"))  # a build of ours ends by itself
            failure = ours.recv() if told else f"the {step} took longer than {limit:g} s"
            seconds = seconds or time.monotonic() - began
    except EOFError:
        process.join()
        code = process.exitcode or 0
        failure = f"ended by {signal.Signals(-code).name}" if code < 0 else f"exits with {code}"
    with suppress(ProcessLookupError):
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.join()
    return failure, seconds


def report(side: str, programs: list[str], limits: tuple[float, float]) -> None:
    """Judge programs in parallel, and print what is wrong with them, and the builds a minute."""
    workers, began = len(os.sched_getaffinity(0)), time.monotonic()
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        judged = partial(verdict, side=side, folder=folder, limits=limits)
        ended = pool.map(judged, range(len(programs)), programs)
        shown = tqdm(ended, desc=side, total=len(programs), unit="program", disable=None)
        failures, seconds = zip(*shown, strict=True)
    took = time.monotonic() - began
    print(f"\n{side}: {len(programs)} programs in {took:.0f} s, {workers} at a time")
    for number, failure in enumerate(failures):
        if failure:
            print(f"  program {number}: {failure}")
    built = [each for each in seconds if 0 < each < limits[0]]
    rate = 60 * workers * len(built) / sum(built) if built else 0
    print(f"{failures.count('')} are right; {rate:.1f} builds a minute, without those stopped")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", type=int, default=50)
    parser.add_argument("--torch", action="store_true", help="build by torch's load_inline, too")
    about = "seconds for a build and for a run (default: 120 10)"
    parser.add_argument("--limits", type=float, nargs=2, default=(120, 10), help=about)
    args = parser.parse_args()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "lltm_jit"])
    programs = generate(args.programs, CUDA if detect().cuda else CPP)
    for side in ("lltm_jit", "torch") if args.torch else ("lltm_jit",):
        report(side, programs, tuple(args.limits))


if __name__ == "__main__":
    main()
