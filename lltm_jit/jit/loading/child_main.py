"""The child of an import, started by file path: see child.py.

It reads what to build from standard input, and then orders: 1 pauses its compilers, 0 resumes them.
When the input ends, the importing process has ended, and the builds are cancelled. It imports
nothing of torch, which would take longer than it takes to compile a small file.
"""

import os
import pickle
import sys
import threading
import types
from contextlib import suppress
from typing import IO, Any


def main() -> None:
    """Build what is requested. After a failure, the first use raises the error, or builds again."""
    orders = os.fdopen(os.dup(0), "rb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # a compiler that read the orders would take them away
    os.close(nothing)
    sys.path[:], packages = pickle.load(orders)
    for name, folder in packages.items():  # without what is in their __init__.py
        sys.modules[name] = package = types.ModuleType(name)
        package.__path__ = [folder]
        package.__file__ = os.path.join(folder, "__init__.py")

    from lltm_jit.jit.compile import process
    from lltm_jit.jit.loading import engine
    from lltm_jit.jit.store import lock
    from lltm_jit.jit.user import cancel
    from lltm_jit.jit.user.errors import LltmJitError

    locks, wanted = pickle.load(orders)
    gone = threading.Event()

    def listen(orders: IO[bytes]) -> None:
        while order := orders.read(1):
            process.stand_back.set() if order == b"1" else process.stand_back.clear()
        gone.set()

    def build(key: str, spec: Any, toolchain: Any) -> None:
        try:
            with suppress(LltmJitError, cancel.Cancelled), cancel.cancelled_by(gone):
                engine.build(spec, toolchain)
        finally:
            lock.give_up(key)

    threading.Thread(target=listen, args=(orders,), daemon=True).start()
    for key, descriptor in locks.items():
        lock.take_over(key, descriptor)
    builds = [threading.Thread(target=build, args=extension) for extension in wanted]
    for thread in builds:
        thread.start()
    for thread in builds:
        thread.join()


if __name__ == "__main__":
    # The parent waits for the process that it started, so that this one is nobody's to wait for.
    if os.fork() == 0:
        main()
    os._exit(0)
