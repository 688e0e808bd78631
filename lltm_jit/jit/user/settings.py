"""Every setting of the engine, each an environment variable, in one table.

A value comes from the environment, where an empty value selects the default, else from
``MAX_JOBS.env`` next to ``MAX_JOBS.env.example`` in a checkout of the project, else from the
default. The current directory is never searched for the file: a build must not depend on where
Python was started.
"""

import os
import shlex
from functools import cache
from pathlib import Path
from typing import NamedTuple

from .errors import ToolchainError


class Setting(NamedTuple):
    """One environment variable.

    The kind of its value is "text", "path", "flag", "count", or "limit": a count, or 0 for none.
    """

    name: str
    kind: str
    default: str
    help: str


# A setting's name, kind, and default if it has one; below it, its help.
_TABLE = """
MAX_JOBS limit
  compile jobs at a time, 0: no limit; default: as CPUs and memory allow
TORCH_CUDA_ARCH_LIST text
  GPU architectures, such as '8.0;9.0a'; default: this machine's, else '8.0;9.0+PTX'
TORCH_EXTENSIONS_DIR path
  where builds are kept; default: torch's user cache
CUDA_HOME path
  root of the CUDA toolkit; default: CUDA_PATH, or nvcc's on PATH, or /usr/local/cuda
CXX text c++
  the C++ compiler
LLTM_JIT_VERBOSE flag 0
  1: print every step and the compiler's own lines
LLTM_JIT_QUIET flag 0
  1: print nothing while building
LLTM_JIT_BACKGROUND flag 1
  0: an import waits for its build, instead of the first use
LLTM_JIT_AT_IMPORT flag 1
  0: an import neither loads nor builds the package's kernels; their first use does
LLTM_JIT_NARROW flag 1
  0: compile the user's sources with all of torch/extension.h, not with the parts that they need
LLTM_JIT_CACHE_GB count 20
  gigabytes that the cache may hold; the least recently used entries are removed first
LLTM_JIT_TRUST_ROOT flag 0
  1: load from directories that others may write to
LLTM_JIT_DEBUG flag 0
  1: compile C++, and the host code of CUDA, with -g -O0
CUDA_DEVICE_DEBUG flag 0
  1: compile CUDA with -g -G
LLTM_JIT_LINEINFO flag 0
  1: compile CUDA with -lineinfo, for profilers
LLTM_JIT_SANITIZE text
  sanitizers for C++, such as 'address,undefined'
LLTM_JIT_DISABLE_JIT flag 0
  1: never compile; use existing builds, or fail
LLTM_JIT_PREBUILD flag 0
  1: put compiled kernels into the wheel; read from the environment only
"""
_rows = iter(_TABLE.strip().splitlines())
SETTINGS = {
    name: Setting(name, kind, "".join(default), next(_rows).strip())
    for name, kind, *default in map(str.split, _rows)
}

_CHECKOUT = Path(__file__).resolve().parents[3]
_ALL = "MAX_JOBS.env.example lists all settings"


@cache
def _settings_file() -> dict[str, str]:
    path = _CHECKOUT / "MAX_JOBS.env"
    if not (path.is_file() and (_CHECKOUT / "MAX_JOBS.env.example").is_file()):
        return {}
    # Decoded as os.environ is, without the byte order mark that some editors write.
    content = path.read_text("utf-8-sig", "surrogateescape")
    try:
        words = shlex.split(content, comments=True)
    except ValueError as error:  # a quote that is not closed
        raise ToolchainError(f"{path}: {error}") from error
    values = {}
    for word in words:
        name, equals, value = word.partition("=")
        if word == "export":
            continue
        if not equals:
            raise ToolchainError(f"{path}: expected NAME=VALUE, but got {word!r}")
        if name not in SETTINGS:
            raise ToolchainError(f"{path}: {name} is not a setting; {_ALL}")
        if value and SETTINGS[name].kind == "path":  # no shell has replaced a `~` in it
            value = str(_CHECKOUT / os.path.expanduser(value))
        values[name] = value
    return values


def unknown() -> list[str]:
    """What is wrong with each variable whose name looks like a setting's, but is not one."""
    from difflib import get_close_matches  # most programs do not need it

    names = sorted(name for name in os.environ if name.startswith("LLTM_JIT_"))
    wrong = {name: get_close_matches(name, SETTINGS, 1, 0.8) for name in names}
    return [
        f"{name} is not a setting; {f'did you mean {near[0]}?' if near else _ALL}"
        for name, near in wrong.items()
        if name not in SETTINGS
    ]


def text(name: str) -> str:
    """The value of a setting, or its default. An empty variable selects the default."""
    given = os.environ.get(name, _settings_file().get(name))
    return given or SETTINGS[name].default


def given() -> dict[str, str]:
    """The settings that have another value than their default."""
    return {name: text(name) for name in SETTINGS if text(name) != SETTINGS[name].default}


def flag(name: str) -> bool:
    """The value of an on/off setting."""
    value = text(name).strip().lower()
    if value in ("true", "yes", "on"):
        return True
    if value in ("", "false", "no", "off"):
        return False
    if value.isdecimal():  # such as VERBOSE=2 of other tools
        return int(value) > 0
    raise ToolchainError(f"expected {name} to be 1 or 0, but got {value!r}")


def count(name: str) -> int | None:
    """The value of a setting that holds a positive integer; None if unset and without a default.

    A limit may be 0.
    """
    value = text(name).strip()
    if not value:
        return None
    also = " or 0" if SETTINGS[name].kind == "limit" else ""
    if not value.isdecimal() or (int(value) == 0 and not also):
        raise ToolchainError(f"expected {name} to be a positive integer{also}, but got {value!r}")
    return int(value)
