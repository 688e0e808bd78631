"""Windows: torch's functions with Visual Studio's compiler, because the engine needs Linux."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any, NoReturn

from lltm_jit._version import __version__

__all__ = ["BuildError", "CacheError", "LltmJitError", "ToolchainError", "load", "load_inline"]

_MODULES = ("__main__", "_start", "_version", "_windows")  # the others need the engine
_ELSEWHERE = "{} needs Linux or WSL2; on Windows, only load, load_inline and `lltm-jit doctor` work"
_QUERY = ["-latest", "-products", "*", "-utf8", "-property", "installationPath", "-requires"]
_COMPILERS = "Microsoft.VisualStudio.Component.VC.Tools.x86.x64"
_CURE = "\n  -> install Visual Studio, or its Build Tools, with `Desktop development with C++`"


class LltmJitError(RuntimeError, ImportError):
    """The only error class: torch raises the same for everything that the engine tells apart."""


BuildError = CacheError = ToolchainError = LltmJitError  # names for `except` clauses


def load(name: str, sources: Any, *arguments: Any, **named: Any) -> Any:
    """Call :func:`torch.utils.cpp_extension.load` with the compiler of Visual Studio."""
    paths = [sources] if isinstance(sources, (str, os.PathLike)) else sources
    files = [os.fspath(path) for path in paths]
    if folders := [*filter(os.path.isdir, files)]:
        raise LltmJitError(_ELSEWHERE.format(f"a folder as source ({folders[0]})"))
    return _by_torch("load", name, files, *arguments, **named)


def load_inline(*arguments: Any, **named: Any) -> Any:
    """Call :func:`torch.utils.cpp_extension.load_inline` with the compiler of Visual Studio."""
    return _by_torch("load_inline", *arguments, **named)


def _by_torch(function: str, *arguments: Any, **named: Any) -> Any:
    _activate()
    from torch.utils import cpp_extension  # it looks for CUDA in that environment

    try:
        return getattr(cpp_extension, function)(*arguments, **named)
    except (RuntimeError, ImportError) as error:
        raise LltmJitError(str(error)) from error


def _activate() -> None:
    """Set Visual Studio's environment for this process, unless a developer prompt has set one."""
    if "VSCMD_ARG_TGT_ARCH" not in os.environ or not shutil.which("cl.exe"):
        os.environ.update(_variables())
    # Without this variable, torch runs another script; with it, setuptools needs the next one.
    if (target := os.environ.setdefault("VSCMD_ARG_TGT_ARCH", "x64")) != "x64":
        raise LltmJitError(f"this prompt is for {target}\n  -> use an ordinary or an x64 prompt")
    os.environ["DISTUTILS_USE_SDK"] = "1"
    if not shutil.which("ninja"):  # pip puts it into Scripts, which PATH may lack
        os.environ["PATH"] += os.pathsep + os.path.join(sys.prefix, "Scripts")
    if not shutil.which("ninja"):
        raise LltmJitError("there is no ninja\n  -> run `python -m pip install ninja`")


def _variables() -> dict[str, str]:
    """The environment after vcvars64.bat of the newest Visual Studio that has a C++ compiler."""
    programs = os.environ.get("PROGRAMFILES(X86)", r"C:\Program Files (x86)")
    vswhere = Path(programs, "Microsoft Visual Studio", "Installer", "vswhere.exe")
    if not vswhere.is_file():
        raise LltmJitError(f"no Visual Studio: there is no {vswhere}{_CURE}")
    asked = subprocess.run([vswhere, *_QUERY, _COMPILERS], capture_output=True)
    if not (studio := asked.stdout.decode(errors="replace").strip()):
        raise LltmJitError(f"no Visual Studio with a C++ compiler, says {vswhere}{_CURE}")
    vcvars = Path(studio, "VC", "Auxiliary", "Build", "vcvars64.bat")
    if not vcvars.is_file():
        raise LltmJitError(f"there is no {vcvars}{_CURE}")
    # Started in its folder, it has no path that cmd could misread. /d: no AutoRun; /u: UTF-16.
    command = [os.environ["COMSPEC"], "/d", "/u", "/c", r".\vcvars64.bat", "1>&2", "&&", "set"]
    quiet = {**os.environ, "VSCMD_SKIP_SENDTELEMETRY": "1"}  # it would outlive the script
    done = subprocess.run(command, cwd=vcvars.parent, env=quiet, capture_output=True)
    lines = done.stdout.decode("utf-16-le", "surrogatepass").split("\r\n")
    pairs = [line.partition("=")[::2] for line in lines]
    # `set` prints a value of several lines as several variables, so we keep our own value then.
    found = {k.upper(): v for k, v in pairs if k and "\r\n" not in os.environ.get(k, "")}
    if done.returncode or not shutil.which("cl.exe", path=found.get("PATH", "")):
        said = done.stderr.decode("utf-16-le", "replace").strip().splitlines() or ["no message"]
        raise LltmJitError(f"{vcvars} leads to no cl.exe: {said[-1]}{_CURE}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command ``doctor``, and refuse the others; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words != ["doctor"]:
        print(f"error: {_ELSEWHERE.format(' '.join(['lltm-jit', *words]))}", file=sys.stderr)
        return 1
    try:
        print(f"ok       {_cxx()}\n{_cuda()}\n\nready to build")
    except (LltmJitError, OSError) as error:
        print(f"problem  {error}\n{_cuda()}\n\nnot ready to build")
        return 1
    return 0


def _cxx() -> str:
    _activate()
    cl = shutil.which("cl.exe") or "cl.exe"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        Path(folder, "trial.cpp").write_text("#include <vector>\nint main() {}\n")
        done = subprocess.run([cl, "/nologo", "trial.cpp"], cwd=folder, capture_output=True)
    said = (done.stdout + done.stderr).decode(errors="replace").splitlines()
    if done.returncode:
        error = next((line for line in said if "error" in line), "no message")
        raise LltmJitError(f"{cl} fails: {error}{_CURE}")
    return f"C++: {cl}, ninja: {shutil.which('ninja')}"


def _cuda() -> str:
    import torch
    from torch.utils.cpp_extension import CUDA_HOME

    found = f"CUDA: torch's is {torch.version.cuda}, the toolkit's folder {CUDA_HOME}"
    if torch.version.cuda and shutil.which("nvcc.exe", path=f"{CUDA_HOME}/bin"):
        return f"ok       {found}"
    return f"warning  no {found}\n  -> for .cu files, install torch with CUDA, and its toolkit"


class _Refuser(MetaPathFinder):
    """Refuses modules that need the engine, before they miss what only Linux has."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.startswith("lltm_jit.") and name.partition(".")[2] not in _MODULES:
            raise LltmJitError(_ELSEWHERE.format(name))


def stand_in(package: dict[str, Any]) -> None:
    """Give the package what works here, and let it refuse everything else."""

    def missing(name: str) -> NoReturn:  # `from lltm_jit import name` asks the finder next
        raise AttributeError(_ELSEWHERE.format(f"lltm_jit.{name}"))

    package |= {name: globals()[name] for name in __all__}
    package |= {"__all__": __all__, "__version__": __version__, "__getattr__": missing}
    sys.meta_path.insert(0, _Refuser())
