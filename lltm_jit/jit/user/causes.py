"""Known causes of failed builds, and of failed trials of ``doctor``, with the fix for each."""

from __future__ import annotations

import re
import sys

_PYTHON_HEADERS = f"python{sys.version_info.major}.{sys.version_info.minor}-dev"

# A pattern, and below it the cure; both may go on in the next line. The first pattern found in the
# error, else in the log, gives the cure; {1} is its first group. Lines of errors may be very long:
# no pattern may try the rest of a line from each of its places. (The narrow headers of torch do not
# check the C++ standard: they stumble over what it lacks.)
_TABLE = r"""
Killed signal terminated|was killed|due to signal 9|unable to execute command: Killed
|virtual memory exhausted|annot allocate memory|out of memory
  the system killed the compiler, most likely because memory ran out; set MAX_JOBS to fewer jobs at
  a time{jobs}
No space left on device
  a disk is full: free space on it, or set TORCH_EXTENSIONS_DIR and TMPDIR to another one
unsupported GNU version! gcc versions later than (\d+)
  this nvcc supports g++ up to {1}: install g++-{1} and set CC=gcc-{1} CXX=g++-{1}
unsupported clang version!
  this nvcc does not support this clang: set CC and CXX to a g++ or clang that it supports
Failed to preprocess host compiler properties
  nvcc cannot run its host compiler: install g++, or set CC to one that exists
generic_type: type .* is already registered
  pybind11 knows this class from an earlier build: declare it with pybind11::module_local(), or
  restart Python
Unsupported gpu architecture '(\w+)'
  this nvcc does not know {1}: set TORCH_CUDA_ARCH_LIST to architectures that `nvcc --list-gpu-arch`
  lists
Unknown CUDA arch \(([^)]*)\)
  set TORCH_CUDA_ARCH_LIST to architectures such as '8.0;9.0a' instead of '{1}'
\b(cuda_runtime\w*|cuda|cublas\w*|cuda_fp16|cuda_bf16|cusparse|cusolver\w*|nvToolsExt)\.h\b
.*(?:No such file|not found)
  the headers of the CUDA toolkit were not found: set CUDA_HOME to its root, the directory with
  include/cuda_runtime.h
Python\.h.*(?:No such file|not found)
  the headers of this Python are missing: install them (Debian and Ubuntu: `apt-get install
  {python}`)
cannot find -lcudart
  the CUDA runtime to link with was not found: set CUDA_HOME to the toolkit's root, the directory
  with lib64/libcudart.so
cannot find -l(\S+?):? ?(?:No such|$)
  install the library {1}, or give its directory in extra_ldflags: -L/its/directory
C\+\+\d+ or later compatible compiler is required|You need C\+\+\d+ to compile PyTorch
|unrecognized command.line option .-std=c\+\+(?:20|17|2a)
|\bis_\w+_v\W+(?:is not a member of|in namespace) .std\b|namespace "std" has no member "is_\w+_v"
|only available from C\+\+(?:14|17|20) onwards
  the code needs a newer C++ standard, which torch's build selects: remove -std from your flags, or
  install a newer compiler
unrecognized command.line option|^unknown argument: |^Unknown option '
  remove this flag, or correct it
in namespace .(?:torch|at|c10)\W.*does not name a type|is not a member of .(?:torch|at|c10)\W
|in namespace .(?:torch|at|c10)\W(?:$|;)|namespace .(?:torch|at|c10). has no member
|^.(?:torch|at|c10). (?:has not been declared|was not declared|does not name)
|undeclared identifier .(?:torch|at|c10)\b
  include the header that declares it, such as <torch/extension.h>, or in a .cu file
  <torch/types.h>; or correct its name
undefined symbol: ([^\s)]+)
  no source or library given defines {1}: add the source or the -l flag that does; if it belongs to
  torch, torch was replaced without a new version number
module export function \(PyInit_(\w+)\)
  the sources define no Python module {1}: write PYBIND11_MODULE(TORCH_EXTENSION_NAME, m), which
  takes the name given to load; a library without a module needs is_python_module=False
failed to map segment from shared object
  its file system may be mounted noexec: set TORCH_EXTENSIONS_DIR to a directory on another one
cannot open shared object file
  a library that it was linked with is not found when it is loaded: add its directory to
  LD_LIBRARY_PATH, or link with -Wl,-rpath,/its/directory
undefined reference to .main'
  an executable needs a function main(): add the source that defines it
undefined reference to|Unresolved extern function|Undefined reference to
  it is declared and used, but no given source or library defines it
^bindings: .*(?:was not declared|undeclared identifier)
  it is one of the functions to bind: declare it in the C++ source, also where CUDA defines it, or
  correct its name
multiple definition of
  define it in one source only, or mark it `inline` or `static`
uses too much shared data
  ask for more than 48 KB as dynamic shared memory, with cudaFuncSetAttribute(...,
  cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)
(?:^|\s)(\S+): (?:command )?not found
  install {1}, or set CXX to the C++ compiler to use
UnicodeEncodeError: .* surrogates not allowed
  a path or a flag is not UTF-8: change it, or start Python with LC_ALL=C.UTF-8 set
'([^'\n]+)', needed by
  the source {1} is gone: restore it, or build without it
Ninja is required|ninja was not found
  run `python -m pip install ninja`
internal compiler error|compiler was ended by a segmentation fault
  the compiler itself crashed: try another version of it, or fewer jobs with MAX_JOBS
\b(core/(?:cpu|cuda|host|math)/\w+\.(?:h|cuh))\W{1,3}(?:No such file|file not found)
  headers of lltm_jit are in folders by topic, such as core/elementwise/cpu.h and
  core/launch/launch.cuh: look below lltm_jit.include_path() for what was {1}
No such file or directory|file not found
  add the directory that holds it to the include paths, or correct the name
"""
_CAUSES = [
    (pattern.replace("\n", ""), " ".join(cure.split()).replace("{python}", _PYTHON_HEADERS))
    for pattern, cure in re.findall(r"((?:^\S.*\n)+)((?:^  .*\n)+)", _TABLE, re.MULTILINE)
]


def cure_of(error: str, log: str = "", jobs: int = 0) -> str:
    """The fix for the first known cause found in an error, else in its log; empty if unknown."""
    for text in (error, log):
        for pattern, cure in _CAUSES:
            if match := re.search(pattern, text):
                groups = {"{1}": match[1]} if match.re.groups and match[1] else {}
                groups["{jobs}"] = f" (now {jobs})" if jobs else ""
                for mark, value in groups.items():
                    cure = cure.replace(mark, value)
                return cure
    return ""
