"""The commands of ``python -m lltm_jit``: one module each.

A command's module has ``add_arguments(parser)`` and ``run(args) -> int``, the exit code. Only the
module of the command that was asked for is imported: one which needs no build causes none.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec

from lltm_jit.jit.errors import LltmJitError

COMMANDS = {
    "benchmark": "time forward and backward of the LLTM cell",
    "check": "compare the implementations of the LLTM cell with each other",
    "grad_check": "compare gradients with finite differences, in float64",
    "info": "show versions, and where, why and for what each extension was built",
    "build": "compile extensions, also for a debugger, a sanitizer or a profiler",
    "watch": "rebuild whenever a source is saved, and run a command after each build",
    "doctor": "check whether this machine can build, and say what to do if not",
    "new": "write the files of a new operator, which works at once",
    "log": "show the compilers' output of the last build, also of one that failed",
    "cache": "list builds, say why one is needed, remove old ones",
    "timings": "show how long each file took to compile",
    "flags": "print the compile line as Makefile variables",
    "compile-commands": "write compile_commands.json, for clangd",
    "archive": "write a static library of an extension's compiled objects",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code, 0 for success."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    parser = argparse.ArgumentParser(prog="python -m lltm_jit")
    commands = parser.add_subparsers(dest="command", metavar="command", required=True)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        if name == chosen:
            path = f"{__name__}.{name.replace('-', '_')}"
            if find_spec(path) is None:
                text = f"error: {name} is not installed with the package: run it in a checkout"
                print(text, file=sys.stderr)
                return 1
            module = import_module(path)
            module.add_arguments(command)
            command.set_defaults(run=module.run)
    words, program = arguments, []
    if chosen == "watch" and "--" in arguments:
        mark = arguments.index("--")
        words, program = arguments[:mark], arguments[mark + 1 :]
    args = parser.parse_args(words, argparse.Namespace(program=program))
    try:
        return args.run(args)
    except LltmJitError as error:
        text = str(error)
        print(text if text.startswith("error:") else f"error: {text}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:  # ended by the signal, as the shell expects, and without a traceback
        with suppress(BrokenPipeError):  # Ctrl-C ended the other end of the pipe, too
            sys.stdout.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.raise_signal(signal.SIGINT)
        raise
    except BrokenPipeError:  # `... | head` closed the pipe; nobody reads what is left
        sys.stderr.close()
        return 1
    except OSError as error:
        if error.filename is None:
            raise
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
