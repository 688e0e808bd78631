"""``archive``: make a static library of an extension's object files.

Each extension has a library of its own. Objects of core/ are in several libraries. A program may
link all of them, because the linker takes an object from the first library that has it.

examples:
  python -m lltm_jit archive basic                        liblltm_jit_basic.a, in this directory
  python -m lltm_jit archive kernels/mine -o libmine.a    an extension of yours
"""

import argparse
import subprocess
import time
from pathlib import Path

from lltm_jit.jit import LltmJitError, Spec
from lltm_jit.jit.compile import headers
from lltm_jit.jit.compile.objects import Store
from lltm_jit.jit.loading.engine import build, build_all
from lltm_jit.jit.request.request import previous
from lltm_jit.jit.store import cache, lock
from lltm_jit.jit.user.progress import Reporter, many

from .. import _extensions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _extensions.add_argument(parser)
    about = "the file to write, for a single extension (default: liblltm_jit_NAME.a)"
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help=about)


def run(args: argparse.Namespace) -> int:
    extensions = _extensions.chosen(args.names)
    if args.output and len(extensions) > 1:
        told = f"{len(extensions)}: {', '.join(extension.name for extension in extensions)}"
        raise LltmJitError(f"expected one extension with --output, but got {told}")
    build_all(extensions)
    for extension in extensions:
        output = args.output or Path(f"liblltm_jit_{extension.name}.a")
        output.write_bytes(b"")  # an error would name it
        output.unlink()  # ar would add to an existing file
        if not (count := _archive(extension, ["ar", "rcs", str(output.absolute())])):
            return 1  # ar has said why
        print(f"{output}: {many(count, 'object')}")
    return 0


def _archive(extension: Spec, command: list[str]) -> int:
    """Run a command on the objects of a built extension. Returns their number, or 0 on failure.

    The objects come from the store. An object that is no longer there is compiled again.
    """
    with _extensions.requested(extension) as request:
        commands = _extensions.build_file(request).commands()
        with lock.held(request.place, Reporter().say):
            cache.make_directory(request.work)
            last = previous(request)
            chosen = headers.of(request, last.full if last else ())
            store = Store(request, commands, chosen, time.time_ns())
            found = all(map(store.find, commands))
        if not found:
            build(extension, force=True)
        done = subprocess.run([*command, *commands], cwd=request.work)
        return 0 if done.returncode else len(commands)
