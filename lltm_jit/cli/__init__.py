"""The commands of ``python -m lltm_jit``: one module each, related ones in a folder.

A command's module has a docstring, which is its help, ``add_arguments(parser)``, and
``run(args) -> int``, the exit code. Only the requested command's module is imported, so a command
that needs no build starts none.
"""

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

# The folder of each command's module.
COMMANDS = dict.fromkeys(("doctor", "info", "build", "warm", "watch", "new", "log", "cache"), "")
COMMANDS |= {"timings": ""} | dict.fromkeys(("flags", "compile-commands", "archive"), "export.")
COMMANDS |= dict.fromkeys(("check", "check-grad", "benchmark"), "lltm.")
SCRIPT = "lltm-jit"
PROGRAM = SCRIPT if _start.as_script else "python -m lltm_jit"

_EXAMPLES = """\
examples:
  python -m lltm_jit build -h                  show a command's options, with examples
  python -m lltm_jit doctor                    do I have everything a build needs?
  python -m lltm_jit new blend --standalone    write a project with a kernel of your own
  python -m lltm_jit watch kernels/ -- pytest  rebuild and test on every save

`lltm-jit` is short for `python -m lltm_jit`. For Tab completion, `python -m pip install shtab`, and
  lltm-jit --completion bash > ~/.lltm-jit.bash    if ~/.bashrc has `source ~/.lltm-jit.bash`
  lltm-jit --completion tcsh > ~/.lltm-jit.tcsh    if ~/.tcshrc has `source ~/.lltm-jit.tcsh`
  lltm-jit --completion zsh > FOLDER/_lltm-jit     if FOLDER is one of $fpath"""


class Parser(argparse.ArgumentParser):
    """Keeps the line breaks of a help text, and names the help command in errors."""

    def __init__(self, prog: str, description: str = "", epilog: str = "", **others: Any) -> None:
        formatter = argparse.RawDescriptionHelpFormatter
        others["formatter_class"] = partial(formatter, max_help_position=30)
        # Python makes the parsers of subcommands, from 3.14 on with more arguments.
        super().__init__(prog, description=description, epilog=epilog, **others)

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(2, f"error: {message}\n  -> `{self.prog} -h` lists the options\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code, 0 for success."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = Parser(PROGRAM, epilog=_EXAMPLES)
    parser.usage = f"{PROGRAM} [-h] [--version] command ..."
    if not words or words[0] in ("-h", "--help"):  # all modules are imported
        lines = "\n".join(f"  {name:<18}{help_of(name)[0]}" for name in COMMANDS)
        parser.description = f"commands:\n{lines}"
    add, version = parser.add_argument, f"lltm_jit {__version__}"
    add("--version", action="version", version=version, help="show the version and exit")
    about = "print the Tab completion script for this shell"
    add("--completion", choices=("bash", "zsh", "tcsh"), help=about)
    add("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    if not words:
        parser.print_help(sys.stderr)
        return 2
    args = parser.parse_args(words)
    if args.completion:
        return ending_well(partial(_complete, args.completion))
    given, *rest = args.words or [""]
    name = given.replace("_", "-")
    name = "check-grad" if name == "grad-check" else name  # as the PyTorch tutorial calls it
    if name not in COMMANDS:
        parser.error(f"no command {given!r}{did_you_mean(name, COMMANDS)}")
    return ending_well(partial(_run, name, rest))


def ending_well(run: Callable[[], int]) -> int:
    """The exit code of a command; its errors are shown to the user without tracebacks."""
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
        # The flush at the program's end would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.filename is None:
            raise
        print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """The end of a message about an unknown word: the most similar known one."""
    near = difflib.get_close_matches(word, words, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _complete(shell: str) -> int:
    """Print the script that completes the words of ``lltm-jit``."""
    if find_spec("shtab") is None:
        raise LltmJitError("--completion needs shtab\n  -> `python -m pip install shtab`")
    import shtab

    whole = argparse.ArgumentParser(SCRIPT)
    whole.add_argument("--version", action="store_true")
    commands = whole.add_subparsers()
    for name in COMMANDS:
        module_of(name).add_arguments(commands.add_parser(name, help=help_of(name)[0]))
    print(shtab.complete(whole, shell))
    return 0


def module_of(name: str) -> ModuleType:
    return import_module(f"{__name__}.{COMMANDS[name]}{name.replace('-', '_')}")


def help_of(name: str) -> tuple[str, str]:
    """The summary of a command, and the rest of its help."""
    summary, _, rest = (module_of(name).__doc__ or "").replace("``", "`").partition("\n")
    return summary.partition(": ")[2].rstrip("."), rest.strip()


def _run(name: str, words: list[str]) -> int:
    module, (summary, rest) = module_of(name), help_of(name)
    more = rest.replace("python -m lltm_jit", PROGRAM)
    parser = Parser(f"{PROGRAM} {name}", f"{name}: {summary}.", more)
    module.add_arguments(parser)
    mark = words.index("--") if name == "watch" and "--" in words else len(words)
    program = argparse.Namespace(program=words[mark + 1 :])
    args, unknown = parser.parse_known_args(words[:mark], program)
    for word in unknown:
        if word.startswith("-"):
            options = re.findall(r"--?[\w-]+", parser.format_help())
            parser.error(f"there is no option {word}{did_you_mean(word, options)}")
        parser.error(f"unexpected argument {word!r}")
    status: int = module.run(args)
    return status
