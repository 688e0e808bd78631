"""Known causes of failed builds, and of failed trials of ``doctor``, with the fix for each."""

from __future__ import annotations

import re
import sys
import sysconfig
from pathlib import Path

# A pattern, and below it the cure; both may go on in the next line. The first pattern found in an
# error gives the cure; {0} is its first group. Lines of errors may be very long, so no pattern may
# search the rest of a line from each of its places. (Narrow headers of torch do not check the C++
# standard, so an old standard shows up as a missing name.)
_TABLE = r"""
Killed signal terminated|ended by SIGKILL|signal 9|: Killed$|unable to execute command: Killed
|virtual memory exhausted|annot allocate memory|out of memory
  most likely memory ran out: set MAX_JOBS to fewer jobs at a time{jobs}
Resource temporarily unavailable|annot fork$|an't start new thread
  the system allows no more processes: set MAX_JOBS to fewer jobs at a time{jobs}, or raise the
  limit (`ulimit -u`, or the container's limit of pids)
No space left on device
  a disk is full: free space on it, or set TORCH_EXTENSIONS_DIR and TMPDIR to another one
unsupported GNU version! gcc versions later than (\d+)
  this nvcc supports g++ up to {0}: install g++-{0} and set CC=gcc-{0} CXX=g++-{0}
unsupported clang version!
  this nvcc does not support this clang: set CC and CXX to a g++ or clang that it supports
Failed to preprocess host compiler properties
  nvcc cannot run its host compiler: install g++, or set CC to one that exists
generic_type: type .* is already registered
  pybind11 knows this class from an earlier build: declare it with pybind11::module_local(), or
  restart Python
Unsupported gpu architecture '(\w+)'
  this nvcc does not know {0}: set TORCH_CUDA_ARCH_LIST to architectures that `nvcc
  --list-gpu-arch` lists, or correct your -gencode
\b((?:cublas|cudnn|cufft|curand|cusolver|cusparse|nvrtc|nvToolsExt)\w*\.h)\b
.*(?:No such file|not found)
  the CUDA toolkit lacks this library: install it, or give a directory with {0} in
  extra_include_paths, such as {nvidia}
\b(?:cuda_runtime\w*|cuda|cuda_fp16|cuda_bf16)\.h\b.*(?:No such file|not found)
  the headers of the CUDA toolkit were not found: set CUDA_HOME to its root, the directory with
  include/cuda_runtime.h
Python\.h.*(?:No such file|not found)
  the headers of this Python are missing: install them (Debian and Ubuntu: `apt-get install
  {python}`)
\bTHC/\w+\.\w+.*(?:No such file|not found)
  torch has removed its THC headers: include <ATen/cuda/CUDAContext.h> and
  <c10/cuda/CUDAException.h>; THCudaCheck is C10_CUDA_CHECK there, and THCCeilDiv is at::ceil_div of
  <ATen/ceil_div.h>
\bAT_CHECK\b
  torch has removed AT_CHECK: write TORCH_CHECK instead
DeprecatedTypeProperties.* to .*ScalarType
  torch's macros take the dtype: write x.scalar_type() instead of x.type()
cannot find -l(\S+?):? ?(?:No such|$)
  install the library {0}, or give its directory in extra_ldflags: -L/its/directory
unrecognized command.line option .-std=|C\+\+\d+ or later compatible compiler is required
|You need C\+\+\d+ to compile PyTorch
|\b(?:is_\w+_v|enable_if_t)\W+(?:is not a member of|in namespace) .std\b
|namespace "std" has no member "is_\w+_v"|only available from C\+\+\d\d onwards
  the code needs a newer C++ standard: remove -std from your flags, so that torch's build selects
  one, or give a newer one; or install a newer compiler
unrecognized command.line option|^unknown argument: |^Unknown option '|^unrecognized option
  remove this flag, or correct it
^<command-line>:
  a flag defines this macro, and the shell removes the quotes of a string: write
  -DNAME='"text"'
in namespace .(?:torch|at|c10)\W.*does not name a type|is not a member of .(?:torch|at|c10)\W
|in namespace .(?:torch|at|c10)\W(?:$|;)|namespace .(?:torch|at|c10). has no member
|^.(?:torch|at|c10). (?:has not been declared|was not declared|does not name)
|undeclared identifier .(?:torch|at|c10)\b
  include the header that declares it, such as <torch/extension.h>, or in a .cu file
  <torch/types.h>; or correct its name
__cudaRegisterLinkedBinary_|Unresolved extern function|Undefined reference to
  this build does not link device code of several .cu files (nvcc -rdc=true -dlink): define the
  function `inline` in a header that each .cu file includes, and compile without -rdc=true
^(?:operand types are: .*|no suitable .*)\b(?:__half2?|__nv_bfloat162?)\b
  torch switches the operators of these types off: convert explicitly, as with __half2float, or give
  extra_cuda_cflags -U__CUDA_NO_HALF_OPERATORS__ -U__CUDA_NO_HALF_CONVERSIONS__
  -U__CUDA_NO_HALF2_OPERATORS__ -U__CUDA_NO_BFLOAT16_CONVERSIONS__
undefined symbol: ([^\s)]+)
  no source or library given defines {0}: add the source or the -l flag that does; if it belongs to
  torch, torch was replaced without a new version number
module export function \(PyInit_(\w+)\)
  the sources define no Python module {0}: write PYBIND11_MODULE(TORCH_EXTENSION_NAME, m), which
  takes the name given to load, or give load_inline the functions to bind in functions=[...]; a
  library without a module needs is_python_module=False
failed to map segment from shared object
  its file system may be mounted noexec: set TORCH_EXTENSIONS_DIR to a directory on another one
cannot open shared object file
  a library that it was linked with is not found when it is loaded: add its directory to
  LD_LIBRARY_PATH, or link with -Wl,-rpath,/its/directory
undefined reference to
  it is declared and used, but no given source or library defines it
^bindings: .*(?:was not declared|undeclared identifier)
  it is one of the functions to bind: declare it in the C++ source, also where CUDA defines it, or
  correct its name
^bindings: .*redefinition of
  functions=[...] writes a PYBIND11_MODULE of its own: leave out either this or yours
multiple definition of
  define it in one source only, or mark it `inline` or `static`
uses too much shared data
  ask for more than 48 KB as dynamic shared memory, with cudaFuncSetAttribute(...,
  cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)
(?:^|\s)(\S+): (?:command )?not found
  install {0}, or set CXX to the C++ compiler to use
'([^'\n]+)', needed by
  the source {0} is gone: restore it, or build without it
internal compiler error|compiler was ended by SIGSEGV|: Segmentation fault
  the compiler itself crashed: try another version of it, or fewer jobs with MAX_JOBS
No such file or directory|file not found
  add the directory that holds it to the include paths, or correct the name
"""
CAUSES = [
    (re.compile(pattern.replace("\n", ""), re.MULTILINE), " ".join(cure.split()))
    for pattern, cure in re.findall(r"((?:^\S.*\n)+)((?:^  .*\n)+)", _TABLE, re.MULTILINE)
]


def cure_of(error: str, jobs: int = 0) -> str:
    """The fix for the first known cause found in an error; empty if unknown."""
    for pattern, cure in CAUSES:
        if match := pattern.search(error):
            group = (match[1] or "") if pattern.groups else ""
            nvidia = "site-packages/nvidia/cu13/include"
            if "{nvidia}" in cure:
                found = Path(sysconfig.get_path("purelib")).glob(f"nvidia/*/include/{group}")
                nvidia = next((str(path.parent) for path in found), nvidia)
            python = f"python{sys.version_info.major}.{sys.version_info.minor}-dev"
            now = f" (now {jobs})" if jobs else ""
            return cure.format(group, jobs=now, python=python, nvidia=nvidia)
    return ""
