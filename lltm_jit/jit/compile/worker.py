"""The process that compiles: started by file path, with the standard library, and torch if needed.

It reads one line of JSON from standard input, and keeps reading. When that input ends, the process
that requested the build is gone, and everything started here is ended. A precompiled header is made
for later builds, and is finished.
"""

import glob
import importlib
import importlib.machinery
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import types
from contextlib import suppress
from typing import Any

WHOLE = "whole.ninja"  # for later builds, whatever the first could take over
# Beside a precompiled header: g++ takes that once in a source, and reads this where the source
# includes it again, or where the precompiled one does not suit.
BESIDE = "#pragma GCC system_header\n#include_next <torch/extension.h>\n"


def main() -> int:
    """Do what the request describes; 0 when it is done.

    Without a build file torch writes it. With one, ninja makes the library.
    """
    channel = _own_input()
    with open(channel, "rb", buffering=0, closefd=False) as stdin:
        request = json.loads(stdin.readline())
    if "header" in request:
        return _make_header_alone(request)
    # The first entry is this file's own directory, whose modules must not be found by torch.
    sys.path[:] = request["sys_path"]
    signal.signal(
        signal.SIGTERM, lambda number, frame: None
    )  # a function: ninja inherits the default
    threading.Thread(target=_end_with_parent, args=(channel,), daemon=True).start()
    if request["build_file"]:
        command = [request["ninja"], "-f", request["build_file"], "-v"]
        jobs = ["-j", os.environ["MAX_JOBS"]] if "MAX_JOBS" in os.environ else []
        return subprocess.call([*command, *jobs], cwd=request["directory"])
    return _write_with_torch(request)


def _own_input() -> int:
    """Standard input under another number: a compiler that read it would wait for ever."""
    channel = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return channel


class _Part(types.ModuleType):
    """A package that has only the modules inside it, and what is put into it."""

    def __init__(self, name: str, folder: str, **inside: object) -> None:
        super().__init__(name)
        self.__path__ = [folder]
        self.__dict__.update(inside)
        sys.modules[name] = self

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        raise _NeedsMoreError(f"{self.__name__}.{name}")  # also for who asks whether it is there


class _NeedsMoreError(RuntimeError):
    pass


def _alone() -> types.ModuleType:
    """torch's ``cpp_extension`` without the rest of torch, which takes longer than many compilers.

    Raises:
        _NeedsMoreError: it asks for more of torch, also later.
    """
    spec = importlib.machinery.PathFinder.find_spec("torch", sys.path)
    if sys.platform == "win32" or spec is None or spec.origin is None:
        raise _NeedsMoreError
    folder = os.path.dirname(spec.origin)
    torch: Any = _Part("torch", folder)
    version = importlib.import_module("torch.version")
    if version.hip or getattr(version, "xpu", None):
        raise _NeedsMoreError
    compiled = {"_is_compiled": lambda: bool(version.cuda), "is_available": lambda: False}
    torch.cuda = _Part("torch.cuda", "", **compiled)  # a worker sees no GPU anyway
    torch.xpu = _Part("torch.xpu", "", _is_compiled=lambda: False)
    torch.ops = types.SimpleNamespace()
    torch.utils = _Part("torch.utils", os.path.join(folder, "utils"))
    return importlib.import_module("torch.utils.cpp_extension")


def _write_with_torch(request: dict) -> int:
    import logging

    logging.basicConfig(format="%(message)s", stream=sys.stdout)
    # torch tells its steps at levels that nobody sees unless asked.
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.DEBUG)
    if "all_of_torch" not in request:
        try:
            _write(request, _alone())
            return 0
        except (RuntimeError, ImportError, AttributeError, TypeError, ValueError, OSError):
            return _in_another_process({**request, "all_of_torch": True})
    try:
        _write(request, importlib.import_module("torch.utils.cpp_extension"))
    except (RuntimeError, OSError, ValueError) as error:
        cause = f" ({error.__cause__})" if error.__cause__ else ""
        print(f"{type(error).__name__}: {error}{cause}", flush=True)
        return 1
    return 0


def _in_another_process(request: dict) -> int:
    """Begin anew: what is here of torch cannot be initialised a second time."""
    command = [sys.executable, "-I", "-X", "utf8", __file__]
    sys.stdout.flush()
    with subprocess.Popen(command, stdin=subprocess.PIPE) as worker:
        assert worker.stdin is not None
        worker.stdin.write(json.dumps(request).encode() + b"\n")
        worker.stdin.flush()  # and not closed: the other would end
        status = worker.wait()
    if status < 0:
        print(f"the process that imports torch was ended by signal {-status}", flush=True)
    return abs(status)


def _write(request: dict, cpp_extension: Any) -> None:
    """Let torch's module write a build file."""
    # Only who asked loads what is built: it may need what that process has loaded, or preloaded.
    cpp_extension.torch.ops.load_library = lambda path: None
    if sys.platform != "win32":  # where torch starts ninja in an environment of its making
        cpp_extension._run_ninja_build = lambda *rest, **named: None
    # Where torch would give two sources one name, or one with a blank in it.
    write = cpp_extension._write_ninja_file

    def write_build_file(*rest: object, **named: str) -> None:
        write(*rest, **{**named, "objects": request["objects"]})
        adapt(named["path"], request["reused"])

    cpp_extension._write_ninja_file = write_build_file
    os.environ.pop("TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES", None)
    # torch quotes CXX as one word, also where it is several.
    cxx = os.environ.get("CXX")
    cpp_extension._shell_join = lambda words: " ".join(
        word if word == cxx else shlex.quote(word) for word in words
    )
    # A builder that was killed leaves torch's lock file, and torch would wait for it for ever.
    lock = os.path.join(request["directory"], "lock")
    if os.path.exists(lock):
        os.remove(lock)
    cpp_extension.load(
        name=request["name"],
        sources=request["sources"],
        extra_cflags=request["cflags"],
        extra_cuda_cflags=request["cuda_cflags"],
        extra_ldflags=request["ldflags"],
        extra_include_paths=request["include_paths"],
        build_directory=request["directory"],
        with_cuda=request["with_cuda"],
        verbose=True,
        is_python_module=False,
        is_standalone=request["standalone"],
    )


def _make_header_alone(request: dict) -> int:
    """Make a precompiled header in a child that nobody waits for."""
    if os.fork():
        return 0
    os.setsid()
    signal.signal(signal.SIGTERM, _exit_once)
    os.nice(request["nice"])
    try:
        return make_header(request)
    except (OSError, SystemExit):
        return 1  # a full disk, or told to end: what was started is ended, and nothing is left
    finally:
        shutil.rmtree(request["directory"], ignore_errors=True)


def _exit_once(number: int, frame: object) -> None:
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    sys.exit(1)


def make_header(request: dict) -> int:
    """Compile ``torch/extension.h`` in a directory, and move it into place.

    If the compiler fails, that is recorded there: it would fail again.
    """
    directory, began = request["directory"], time.time()
    folder = os.path.join(directory, "torch")
    stub, depfile = os.path.join(directory, "stub.h"), os.path.join(directory, "stub.d")
    os.mkdir(folder)
    with open(stub, "w") as file:
        file.write("#include <torch/extension.h>\n")
    target = os.path.join(folder, "extension.h.gch")
    options = ["-MD", "-MF", depfile, "-x", "c++-header", stub, "-o", target]
    done = subprocess.run(
        [*request["command"], *options], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    files: list = []
    if done.returncode == 0:
        with open(depfile, errors="surrogateescape") as file:
            words = re.findall(r"(?:\\.|[^\s\\])+", file.read().replace("\\\n", " "))
        files = [re.sub(r"\\(.)", r"\1", word) for word in words[1:]]
        files = [path for path in files if path != stub]
        os.remove(depfile)
        os.remove(stub)  # or a source could include it
        with open(os.path.join(folder, "extension.h"), "w") as file:
            file.write(BESIDE)
    else:
        shutil.rmtree(folder)
    record = {
        "failed": done.stdout.decode(errors="replace")[-4000:] if done.returncode else "",
        "seconds": round(time.time() - began, 1),
        "asked": sorted({name for path in files for name in _asked_for(path)}),
        "files": {path: identity(path) for path in files},
    }
    with open(os.path.join(directory, "header.json"), "w") as file:
        json.dump(record, file)
    for path in (directory, folder):
        if os.path.exists(path):
            os.chmod(path, request["mode"])
    os.rename(directory, request["header"])
    return 0


def _asked_for(path: str) -> list:
    """What a header would include if it existed."""
    with open(path, errors="replace") as file:
        return re.findall(r"__has_include(?:_next)?\s*\(\s*[<\"]([^>\"\n]+)", file.read())


def identity(path: str) -> list:
    """What identifies a file without reading it; it changes with an edit and with a replacement."""
    try:
        status = os.stat(path)
    except OSError:
        return []
    return [status.st_ino, status.st_size, status.st_mtime_ns]


def adapt(path: str, reused: list) -> None:
    """Write torch's build file as the engine needs it, and the complete one next to it."""
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        text = file.read()
    for name, skipped in ((WHOLE, []), (os.path.basename(path), reused)):
        place = os.path.join(os.path.dirname(path), name)
        with open(place, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(adapted(text, skipped))


def adapted(text: str, reused: list) -> str:
    """A build file whose compilers report every header, in files that are kept.

    It leaves out the objects that exist already, because times do not decide about them.
    """
    text = text.replace(" -MMD -MF ", " -MD -MF ").replace("\n  deps = gcc\n", "\n")
    starts = tuple(f"build {name}: " for name in reused)
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not (starts and line.startswith(starts)))


def _end_with_parent(channel: int) -> None:
    while os.read(channel, 4096):
        pass
    end_session(os.getpid())
    os._exit(1)


def end_session(leader: int) -> None:
    """End what a worker started: ninja, and the compilers, each in a process group of its own."""
    if sys.platform == "win32":
        return
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGTERM)  # ninja, which ends its compilers
    began = time.monotonic()
    told: set[int] = set()
    while (others := session(leader)) and time.monotonic() < began + 3:
        late = time.monotonic() > began + 1  # compilers that are told remove their temporary files
        for pid in others if late else others - told:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL if late else signal.SIGTERM)
                os.kill(pid, signal.SIGCONT)  # what stands still hears nothing else
        told |= others
        time.sleep(0.02)


def session(leader: int) -> set[int]:
    """The processes of a session except its leader; none if the system cannot say."""
    found = set()
    for file in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(file, errors="replace") as stat:  # a name may be any bytes
                pid, _, rest = stat.read().partition(" ")
        except OSError:
            continue  # just ended
        state, _, _, session = rest.rpartition(")")[2].split()[:4]
        if int(session) == leader != int(pid) and state != "Z":
            found.add(int(pid))
    return found


if __name__ == "__main__":
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:  # who asked for the build is gone
        status = 1
    if status:
        end_session(os.getpid())  # somebody may have killed ninja alone
    os._exit(status)  # nothing here is worth the second that torch takes to unload
