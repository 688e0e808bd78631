"""The process in which torch compiles: started by file path, with torch and the standard library.

It reads one line of JSON from standard input and then goes on reading. When that input ends, the
process that asked for the build is gone, and everything started here is ended.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time


def main() -> int:
    """Build what the request describes; 0 when the library stands in the directory."""
    with open(0, "rb", buffering=0, closefd=False) as stdin:
        request = json.loads(stdin.readline())
    # The first entry is this file's own directory, whose modules must not be found by torch.
    sys.path[:] = request["sys_path"]
    signal.signal(
        signal.SIGTERM, lambda number, frame: None
    )  # a function: ninja inherits the default
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if request["ninja"]:
        return subprocess.call(request["ninja"], cwd=request["directory"])
    return _build_with_torch(request)


def _build_with_torch(request: dict) -> int:
    import logging

    logging.basicConfig(format="%(message)s", stream=sys.stdout)
    import torch
    from torch.utils import cpp_extension

    # Only who asked loads what is built: it may need what that process has loaded, or preloaded.
    torch.ops.load_library = lambda path: None
    # torch tells its steps at levels that nobody sees unless asked.
    logging.getLogger(cpp_extension.__name__).setLevel(logging.DEBUG)
    # A builder that was killed leaves torch's lock file, and torch would wait for it for ever.
    lock = os.path.join(request["directory"], "lock")
    if os.path.exists(lock):
        os.remove(lock)
    try:
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
    except (RuntimeError, OSError, ValueError) as error:
        cause = f" ({error.__cause__})" if error.__cause__ else ""
        print(f"{type(error).__name__}: {error}{cause}", flush=True)
        return 1
    return 0


def _end_with_parent() -> None:
    while os.read(0, 4096):
        pass
    if sys.platform != "win32":
        # ninja runs each compiler in a process group of its own, and ends them when it is told to.
        for pause in (0.3, 0.7):
            os.killpg(0, signal.SIGTERM)
            time.sleep(pause)
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # nothing here is worth the second that torch takes to unload
