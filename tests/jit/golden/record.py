"""Record what real compilers and tools print when they fail: one log a case, through ninja.

    python tests/jit/golden/record.py [CASE..]

Needs g++, clang++, nvcc and ninja on PATH, and torch. The logs are kept in the repository; the
tests compare the message made of each with the one in ``messages.txt``.
"""

import importlib.util
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
# As torch's build has it.
NO_HALF = " ".join(
    f"-D__CUDA_NO_{what}__"
    for what in ("HALF_OPERATORS", "HALF_CONVERSIONS", "BFLOAT16_CONVERSIONS", "HALF2_OPERATORS")
)
CASES = {
    "gcc/undeclared": "g++ -std=c++17 -c undeclared.cpp -o o.o",
    "gcc/template": "g++ -std=c++17 -c template.cpp -o o.o",
    "gcc/no_header": "g++ -c no_header.cpp -o o.o",
    "gcc/no_cuda_header": "g++ -c cuda_header.cpp -o o.o",
    "gcc/no_python_header": "g++ -c python_header.cpp -o o.o",
    "gcc/old_standard": "g++ -std=c++14 -c standard.cpp -o o.o",
    "gcc/narrow_14": "g++ -std=c++14 -isystem torch_include -c narrow.cpp -o o.o",
    "gcc/narrow_11": "g++ -std=c++11 -isystem torch_include -c narrow.cpp -o o.o",
    "gcc/unknown_flag": "g++ -fnonsense-flag -c defines.cpp -o o.o",
    "gcc/notes": "g++ -c notes.cpp -o o.o",
    "gcc/abstract": "g++ -c abstract.cpp -o o.o",
    "gcc/macro": "g++ -DTITLE=draft -c macro.cpp -o o.o",
    "gcc/two_modules": "g++ -DTORCH_EXTENSION_NAME=case -isystem torch_include "
    "-isystem python_include -c two_modules.cpp -o o.o",
    "gcc/no_thc": "g++ -c thc.cpp -o o.o",
    "gcc/at_check": "g++ -c at_check.cpp -o o.o",
    "gcc/type_of_tensor": "g++ -std=c++20 -isystem torch_include -c type_of_tensor.cpp -o o.o",
    "gcc/no_library_header": "g++ -c library_header.cpp -o o.o",
    "stopped/gcc_no_memory": "prlimit --as=60000000 g++ -c notes.cpp -o o.o",
    "stopped/gcc_no_process": "setpriv --reuid=65534 --clear-groups prlimit --nproc=1 "
    "g++ -c defines.cpp -o /dev/null",
    "stopped/gcc_killed": "./killer cc1plus g++ -c endless.cpp -o o.o",
    "stopped/gcc_crashed": "./killer -SEGV cc1plus g++ -c endless.cpp -o o.o",
    "stopped/gcc_no_space": "g++ -c defines.cpp -o /dev/full",
    "clang/undeclared": "clang++ -std=c++17 -c undeclared.cpp -o o.o",
    "clang/template": "clang++ -std=c++17 -c template.cpp -o o.o",
    "clang/no_header": "clang++ -c no_header.cpp -o o.o",
    "clang/no_python_header": "clang++ -c python_header.cpp -o o.o",
    "clang/narrow_14": "clang++ -std=c++14 -isystem torch_include -c narrow.cpp -o o.o",
    "clang/unknown_flag": "clang++ -fnonsense-flag -c defines.cpp -o o.o",
    "ld/undefined": "g++ -shared -fPIC -Wl,-z,defs uses.cpp -o o.so",
    "ld/twice": "g++ -shared -fPIC defines.cpp defines_too.cpp -o o.so",
    "ld/no_cudart": "g++ -shared -fPIC defines.cpp -L/no/cuda/lib64 -lcudart -o o.so",
    "ld/no_library": "g++ -shared -fPIC defines.cpp -lnosuch -o o.so",
    "nvcc/undeclared": "nvcc -arch=sm_90 -c undeclared.cu -o o.o",
    "nvcc/warnings": "nvcc -arch=sm_90 -c warnings.cu -o o.o",
    "nvcc/no_header": "nvcc -arch=sm_90 -c no_header.cu -o o.o",
    "nvcc/old_standard": "nvcc -std=c++14 -arch=sm_90 -c standard.cu -o o.o",
    "nvcc/architecture": "nvcc -gencode=arch=compute_35,code=sm_35 -c empty.cu -o o.o",
    "nvcc/unknown_flag": "nvcc --nonsense -c empty.cu -o o.o",
    "nvcc/host_too_new": "nvcc -ccbin ./newer_gcc -c empty.cu -o o.o",
    "nvcc/no_host": "nvcc -ccbin /nonexistent/g++ -c empty.cu -o o.o",
    "nvcc/clang_too_new": "nvcc -ccbin ./newer_clang -c empty.cu -o o.o",
    "nvcc/notes": "nvcc -arch=sm_90 -c notes.cu -o o.o",
    "nvcc/half": f"nvcc {NO_HALF} -arch=sm_90 -c half.cu -o o.o",
    "nvcc/half_to_float": f"nvcc {NO_HALF} -arch=sm_90 -c half_to_float.cu -o o.o",
    "stopped/nvcc_killed": "./killer cicc nvcc -arch=sm_90 -c slow.cu -o o.o",
    "ptxas/shared": "nvcc -arch=sm_90 -c shared.cu -o o.o",
    "ptxas/instruction": "nvcc -arch=sm_90 -c instruction.cu -o o.o",
    "ptxas/extern": "nvcc -arch=sm_90 -c extern.cu -o o.o",
    "stopped/no_compiler": "no-such-compiler -c empty.cpp -o o.o",
    "stopped/ninja_source_gone": "g++ -c gone.cpp -o o.o",
    "gcc/in_header": "g++ -std=c++17 -c copies.cpp -o o.o",
    "clang/in_header": "clang++ -std=c++17 -c copies.cpp -o o.o",
    "nvcc/in_header": "nvcc -arch=sm_90 -c copies.cu -o o.o",
}
COPIES = """#include <memory>
#include <vector>
void copies(const std::vector<std::unique_ptr<int>>& values) {
  auto copy = values;
}
"""
NOTES = """#include <vector>
template <typename T> T scale(const std::vector<T>& values, T by, int n) {
  return values[n] * by;
}
double f(double x) {
	return scale(std::vector<double>{x}, 2.0);
}
"""
SOURCES = {
    "undeclared.cpp": "int f(int hidden_size) {\n\tconst int n = hidden_sise * 2;\n"
    "  return missing(n)\n}\n",
    "template.cpp": "#include <string>\n#include <vector>\n"
    "template <typename T> T twice(T x) { return x.nonsense(); }\n"
    'int f() { std::vector<int> v; v.push_back(std::string("x")); return twice(3); }\n',
    "no_header.cpp": '#include "no_such_header.h"\n',
    "cuda_header.cpp": "#include <cuda_runtime.h>\n",
    "python_header.cpp": "#include <Python.h>\n",
    "standard.cpp": "#if __cplusplus < 202002L\n"
    "#error C++20 or later compatible compiler is required to use PyTorch.\n#endif\n",
    "narrow.cpp": "#include <torch/headeronly/util/bit_cast.h>\n",
    "standard.cu": '#include <type_traits>\nstatic_assert(std::is_same_v<int, int>, "");\n',
    "defines.cpp": "int f() { return 1; }\n",
    "defines_too.cpp": "int f() { return 2; }\n",
    "uses.cpp": "int elsewhere();\nint f() { return elsewhere(); }\n",
    "empty.cpp": "",
    "notes.cpp": NOTES,
    "notes.cu": NOTES,
    "abstract.cpp": "#include <memory>\nstruct A { virtual int go() = 0; };\n"
    "struct B : A { int go(int n) { return n; } };\n"
    "auto f() { return std::make_unique<B>(); }\n",
    "macro.cpp": "const char* title() {\n  return TITLE;\n}\n",
    "two_modules.cpp": '#include <pybind11/pybind11.h>\n#line 1 "cpp_sources[0]"\n'
    "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}\n"
    '#line 1 "bindings"\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}\n',
    "thc.cpp": "#include <THC/THC.h>\n",
    "at_check.cpp": "void f(int n) {\n  AT_CHECK(n == 2);\n}\n",
    "type_of_tensor.cpp": "#include <ATen/core/Tensor.h>\n#include <ATen/Dispatch.h>\n"
    'void f(at::Tensor x) {\n  AT_DISPATCH_FLOATING_TYPES(x.type(), "f", [&] {});\n}\n',
    "library_header.cpp": "#include <cusparse.h>\n",
    "half.cu": "#include <cuda_fp16.h>\n__global__ void k(__half* x) { x[0] = x[1] + x[2]; }\n",
    "half_to_float.cu": "#include <cuda_bf16.h>\n"
    "__global__ void k(__nv_bfloat16* x, float* y) {\n  y[0] = x[0];\n}\n",
    "copies.cpp": COPIES,
    "copies.cu": COPIES,
    "endless.cpp": '#include "pipe.h"\n',  # a named pipe that nobody writes to
    "undeclared.cu": "__global__ void k(float* x, int hidden_size) {\n"
    "  const int n = hidden_sise * 2;\n\tx[0] = undefined_call(n);\n}\n",
    "warnings.cu": "__global__ void k(float* x) { int unused; x[0] = 1; }\nint f() { return y; }\n",
    "no_header.cu": '#include "nope.cuh"\n',
    "empty.cu": "",
    "shared.cu": "__global__ void k(float* x) {\n  __shared__ float s[20000];\n"
    "  s[threadIdx.x] = x[0];\n  __syncthreads();\n  x[0] = s[threadIdx.x ^ 1];\n}\n",
    "instruction.cu": "__global__ void k(float* x) {\n"
    '  asm volatile("nonsense.f32 %0;" : "=f"(x[0]));\n}\n',
    "extern.cu": "extern __device__ float elsewhere(float);\n"
    "__global__ void k(float* x) { x[0] = elsewhere(x[0]); }\n",
}
# Runs a command and sends a signal to the first process of that name below it.
KILLER = """#!/bin/sh
signal=-KILL
case $1 in -*) signal=$1; shift ;; esac
name=$1; shift
below_us() {
  up=$1
  while [ "${up:-1}" -gt 1 ] && [ "$up" != $$ ]; do up=$(ps -o ppid= -p "$up" | tr -d ' '); done
  [ "$up" = $$ ]
}
"$@" & child=$!
while kill -0 $child 2>/dev/null; do
  for found in $(pgrep -x "$name"); do
    below_us "$found" && sleep 0.2 && kill "$signal" "$found" && wait $child && exit
  done
done
wait $child
"""
NEWER_CLANG = '#!/bin/sh\nexec g++ "$@" -D__clang__=1 -D__clang_major__=99 -D__clang_minor__=0\n'
NEWER_GCC = '#!/bin/sh\nexec g++ "$@" -U__GNUC__ -D__GNUC__=99\n'


def record(case, work):
    source = "gone.cpp" if case == "stopped/ninja_source_gone" else ""
    text = f"rule r\n  command = {CASES[case]}\nbuild o: r {source}\n"
    (work / "build.ninja").write_text(text)
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "NINJA_STATUS": "[%f/%t %e] "}
    done = subprocess.run(
        ["ninja", "-v"], cwd=work, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    (HERE / f"{case}.log").write_bytes(done.stdout)


def write_sources(folder):
    for name, text in SOURCES.items():
        (folder / name).write_text(text)


def main(cases):
    with TemporaryDirectory() as folder:
        work = Path(folder)
        work.chmod(0o755)  # a case is another user
        write_sources(work)
        tools = {"killer": KILLER, "newer_gcc": NEWER_GCC, "newer_clang": NEWER_CLANG}
        for name, text in tools.items():
            (work / name).write_text(text)
            (work / name).chmod(0o755)
        # Keeps nvcc's compiler busy long enough to be killed.
        lines = "".join(f"x[{n}] = sinf(x[{n + 1}]);\n" for n in range(20000))
        (work / "slow.cu").write_text(f"__global__ void k(float* x) {{\n{lines}}}\n")
        os.mkfifo(work / "pipe.h")
        # By a name that is the same on every machine.
        torch = Path(importlib.util.find_spec("torch").origin).parent
        (work / "torch_include").symlink_to(torch / "include")
        (work / "python_include").symlink_to(sysconfig.get_path("include"))
        for case in cases or CASES:
            record(case, work)


if __name__ == "__main__":
    main(sys.argv[1:])
