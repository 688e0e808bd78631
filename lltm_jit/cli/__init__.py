"""The commands of ``python -m lltm_jit``: one module each, related ones in a folder.

A command's module has ``EXAMPLES``, ``add_arguments(parser)`` and ``run(args) -> int``, the exit
code. Only the module of the command that was asked for is imported: a command that needs no build
starts none.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NoReturn

from lltm_jit import __version__, _start
from lltm_jit.jit.user.errors import LltmJitError

COMMANDS = {
    "doctor": "check whether this machine can build, and say what to fix",
    "info": "show versions, and where and why each extension was built",
    "build": "compile extensions, also for a debugger or a profiler",
    "warm": "compile ahead of time what a recurrent layer needs on a GPU",
    "watch": "rebuild on every save, and run a command after each build",
    "new": "write a working operator, recurrent cell or project",
    "log": "show what the compilers printed in the last build",
    "cache": "list builds, explain why one is needed, remove old ones",
    "timings": "show how long each file took to compile",
    "flags": "print compilers and flags as Makefile variables",
    "compile-commands": "write compile_commands.json, for clangd",
    "archive": "make a static library of an extension's object files",
    "check": "compare the LLTM cell's implementations with plain PyTorch",
    "check-grad": "compare gradients with finite differences, in float64",
    "benchmark": "time the LLTM cell, as the PyTorch tutorial does",
}
# Earlier names, and those of the PyTorch tutorial's scripts.
ALIASES = {
    "grad_check": "check-grad",
    "grad-check": "check-grad",
    "check_grad": "check-grad",
    "compile_commands": "compile-commands",
}
# The folders of commands whose modules are not in this one.
FOLDERS = {
    **dict.fromkeys(("archive", "compile-commands", "flags"), "export."),
    **dict.fromkeys(("benchmark", "check", "check-grad"), "lltm."),
}
SHELLS = ("bash", "zsh", "tcsh")
SCRIPT = "lltm-jit"
PROGRAM = SCRIPT if _start.as_script else "python -m lltm_jit"

_EXAMPLES = """\
examples:
  {prog} build -h                  show a command's options, with examples
  {prog} doctor                    do I have everything a build needs?
  {prog} new blend --standalone    write a project with a kernel of your own
  {prog} watch kernels/ -- pytest  rebuild and test on every save

`lltm-jit` is short for `python -m lltm_jit`. To enable Tab completion for it, run
  python -m pip install shtab
and one of these, then open a new shell:
  lltm-jit --completion bash > ~/.lltm-jit.bash    if ~/.bashrc has `source ~/.lltm-jit.bash`
  lltm-jit --completion tcsh > ~/.lltm-jit.tcsh    if ~/.tcshrc has `source ~/.lltm-jit.tcsh`
  lltm-jit --completion zsh > FOLDER/_lltm-jit     if FOLDER is one of $fpath"""


class Parser(argparse.ArgumentParser):
    """Shows help with its lines as they are written, and tells where to find it."""

    def __init__(self, prog: str, description: str = "", epilog: str = "", **others: Any) -> None:
        others["epilog"] = epilog.format(prog=PROGRAM)
        others["formatter_class"] = partial(
            argparse.RawDescriptionHelpFormatter, max_help_position=30
        )
        # Python makes those of subcommands, from 3.14 on with more arguments.
        super().__init__(prog, description=description, **others)

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(2, f"error: {message}\n  -> `{self.prog} -h` lists the options\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code, 0 for success."""
    words, program = list(sys.argv[1:] if arguments is None else arguments), []
    shells = [i + 1 for i, word in enumerate(words) if word == "--completion"]
    places = (i for i, word in enumerate(words) if not (word.startswith("-") or i in shells))
    place = next(places, len(words))
    parser = _parser()
    parser.parse_args(words[:place])  # which exits after --help or --version
    if place == len(words):
        parser.print_help(sys.stderr)
        return 2
    name = ALIASES.get(words[place], words[place])
    if name not in COMMANDS:
        parser.error(f"no command {name!r}{did_you_mean(name, [*COMMANDS, *ALIASES])}")
    words = words[place + 1 :]
    if name == "watch" and "--" in words:
        mark = words.index("--")
        words, program = words[:mark], words[mark + 1 :]
    return ending_well(partial(_run, name, words, program))


def ending_well(run: Callable[[], int]) -> int:
    """The exit code of a command whose errors are for its user, and no tracebacks."""
    try:
        return run()
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
    except EOFError:  # Ctrl-D in place of an answer
        print()
        return 1
    except BrokenPipeError:  # `... | head` closed the pipe; nobody reads what is left
        # Nor what is flushed at the end, which would fail once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.filename is None:
            raise
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """The end of a message about a word that is none of these."""
    near = difflib.get_close_matches(word, words, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _parser() -> Parser:
    """The parser of the words before a command."""
    lines = "\n".join(f"  {name:<18}{summary}" for name, summary in COMMANDS.items())
    parser = Parser(PROGRAM, f"commands:\n{lines}", _EXAMPLES)
    parser.usage = f"{PROGRAM} [-h] [--version] command ..."
    parser.add_argument(
        "--version",
        action="version",
        version=f"lltm_jit {__version__}",
        help="show the version and exit",
    )
    parser.add_argument(
        "--completion",
        action=Completion,
        choices=SHELLS,
        help="print the Tab completion script for this shell",
    )
    return parser


class Completion(argparse.Action):
    """Prints the script that completes the words of ``lltm-jit``."""

    def __call__(
        self, parser: argparse.ArgumentParser, _: object, shell: object, *__: object
    ) -> None:
        if find_spec("shtab") is None:
            cure = "`python -m pip install shtab`"
            parser.exit(1, f"error: --completion needs shtab\n  -> {cure}\n")
        import shtab

        whole = argparse.ArgumentParser(SCRIPT)
        whole.add_argument("--version", action="store_true")
        commands = whole.add_subparsers()
        for name, summary in COMMANDS.items():
            module_of(name).add_arguments(commands.add_parser(name, help=summary))
        print(shtab.complete(whole, str(shell)))
        parser.exit()


def module_of(name: str) -> ModuleType:
    return import_module(f"{__name__}.{FOLDERS.get(name, '')}{name.replace('-', '_')}")


def _run(name: str, words: list[str], program: list[str]) -> int:
    module = module_of(name)
    if name == "benchmark":
        module.refuse_moved(words)
    parser = Parser(f"{PROGRAM} {name}", f"{name}: {COMMANDS[name]}.", module.EXAMPLES)
    module.add_arguments(parser)
    args, unknown = parser.parse_known_args(words, argparse.Namespace(program=program))
    for word in unknown:
        if word.startswith("-"):
            options = re.findall(r"--?[\w-]+", parser.format_help())
            parser.error(f"there is no option {word}{did_you_mean(word, options)}")
        parser.error(f"unexpected argument {word!r}")
    status: int = module.run(args)
    return status
