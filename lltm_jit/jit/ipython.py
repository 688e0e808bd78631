"""The magics of ``%load_ext lltm_jit``: ``%lltm_reload``, ``%%cpp`` and ``%%cuda``."""

from __future__ import annotations

import inspect
import os
import re
import shlex
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn

from .loading.extension import absolute
from .loading.reload import Reload, reload_module
from .request.blocks import without_comments
from .request.spec import CELL
from .torch_inline import load_listings

if TYPE_CHECKING:
    from argparse import Namespace

    from IPython.core.interactiveshell import InteractiveShell
    from IPython.core.magic_arguments import MagicArgumentParser

_DESCRIPTION = """
Build the cell and put its module into the variable NAME.

Binds every function that the cell defines at namespace scope, or only the functions that you name.
Static functions, templates and the contents of anonymous namespaces are not bound. Functions with
pointers are bound only if you name them, overloaded functions never. Code inside `#if 0` is
ignored; other conditions are not evaluated. A cell with its own PYBIND11_MODULE is used as it is.
Errors count lines from the magic, which is line 1 of the cell.
"""
_STRING = r'R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|' + r"'(?:\\.|[^'\\\n])+'"
_DIRECTIVE = r"(?m)^[ \t]*#(?:\\\n|[^\n])*"
_FUNCTION = re.compile(
    r'(?:extern\s+"C"\s+)?(?P<type>[\w:<>,&*\s]*?[\s&*>])(?P<name>\w+)\s*\((?P<parameters>.*)\)'
    r"\s*(?:noexcept)?\s*(?P<result>->[\w:<>,&*\s]+)?",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(r"\[\[.*?\]\]|__attribute__\s*\(\(.*?\)\)", re.DOTALL)
# Neither a type, nor a variable, nor a macro alone.
_LIKE_A_FUNCTION = re.compile(
    r"(?!(?:struct|class|union|enum|using|typedef)\b|\w+\s*\([^()]*\)\s*$)[^=]*?[\s&*>)](?P<name>[A-Za-z_]\w*)"
    r"\s*\([^()]*\)[^()]*",
    re.DOTALL,
)
_NAMESPACE = re.compile(r'extern\s+"C"|(?:inline\s+)?namespace(?:\s+(?P<name>[\w:]+))?')
_OWN = r"\b(?:static|template|operator|main|__global__|__device__)\b"
_TEXT = r"\bconst\s+char\s*\*|\bchar\s+const\s*\*"
# C++ sees only the declarations in a cell of CUDA: no inline function, and none of these types.
_CUDA_OWN = r"\b(?:inline|constexpr|__\w+|cu[A-Z]\w*|cuda\w+|curand\w+|cublas\w+|dim3|half2?)\b"
_QUOTED = r'(?m)^[ \t]*#[ \t]*include[ \t]*"'  # what may lie beside the notebook
_TYPES = r"\b(?:struct|class|union|enum(?:\s+class)?|using|typedef\b[^;]*?)\s+(\w+)\s*[{:;=]"


def register(ipython: InteractiveShell, reload_package: Callable[[], Reload]) -> None:
    """Define the magics in a shell."""

    def lltm_reload(line: str) -> None:
        """%lltm_reload: compile edited kernels of the package, and use them from now on.

        %lltm_reload NAME: the same for the module in the variable NAME.
        """
        name = line.strip()
        if name in ("-h", "--help"):
            print(inspect.cleandoc(lltm_reload.__doc__ or ""))
            return
        module = ipython.user_ns.get(name) if name else None
        if name and not isinstance(module, ModuleType):
            _refuse(f"{name} is not a variable that holds a module")
        done = reload_module(module) if module else reload_package()
        print(f"{', '.join(done.changed) or 'nothing changed'} ({done.seconds:.2f} s)")

    def cell_magic(kind: str) -> Callable[..., None]:
        parser = _parser(kind)

        def magic(line: str, cell: str | None = None) -> None:
            args = parser.parse_intermixed_args(shlex.split(line))
            if args.help or cell is None:
                print(parser.format_help())
            else:
                number = f"Cell In[{ipython.execution_count}]"
                ipython.user_ns.update(_build_cell(kind, args, cell, number))

        magic.__doc__ = parser.format_help()
        return magic

    ipython.register_magic_function(lltm_reload, "line")
    for kind in ("cpp", "cuda"):
        ipython.register_magic_function(cell_magic(kind), "line_cell", kind)


def _parser(kind: str) -> MagicArgumentParser:
    from IPython.core.magic_arguments import MagicArgumentParser

    parser = MagicArgumentParser(f"%{kind}", description=_DESCRIPTION)
    add = parser.add_argument
    add("words", nargs="*", metavar="NAME", help="the variable; other words are functions to bind")
    add("--name", help="the module's name in messages and in the cache; default: the variable's")
    add("-O", choices=list("0123"), metavar="LEVEL", help="optimization (default: 1)")
    for flag, what in {"I": "an include path", "L": "a library path", "l": "a library"}.items():
        add(f"-{flag}", action="append", default=[], metavar=flag, help=f"add {what}")
    add("-D", action="append", default=[], metavar="D", help="define a macro: -DNAME or -DNAME=1")
    add("-v", "--verbose", action="store_true", help="show the compilers' commands and output")
    add("-h", "--help", action="store_true", help="show this, also as %(prog)s -h in one line")
    return parser


def functions_of(cell: str, kind: str = "cpp") -> tuple[dict[str, str], dict[str, str]]:
    """The functions of a cell: declarations of those to bind, and why the others are not bound."""
    text = re.sub(_DIRECTIVE, "", _without_if_0(without_comments(cell)))
    types = re.findall(_TYPES, text)
    bound: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for head, scopes in _definitions(text):
        function = _FUNCTION.fullmatch(head)
        if function is None:
            if (unknown := _LIKE_A_FUNCTION.fullmatch(head)) and not re.search(_OWN, head):
                left_out[unknown["name"]] = "not recognized"
            continue
        if re.search(_OWN, f"{function['type']} {function['name']}"):
            continue
        names = [name for scope in scopes if (name := _NAMESPACE.fullmatch(scope)["name"])]  # type: ignore[index]
        name = "::".join([*names, function["name"]])
        declaration = f"{head};"
        for scope in reversed(scopes):
            declaration = f"{scope} {{ {declaration} }}"
        used = " ".join(function.group("type", "parameters")) + (function["result"] or "")
        if bound.get(name, declaration) != declaration or name in left_out:
            bound.pop(name, None)
            left_out[name] = "overloaded"
        elif "*" in re.sub(_TEXT, "", used):
            left_out[name] = "has a pointer"
        elif kind == "cuda" and re.search(_CUDA_OWN, used):
            left_out[name] = "not visible to C++"
        elif kind == "cuda" and set(types) & set(re.findall(r"\w+", used)):
            left_out[name] = "uses a type that the cell defines"
        else:
            bound[name] = declaration
    return bound, left_out


def _definitions(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The text before each brace at namespace scope, and the enclosing namespaces, all named."""
    scopes: list[str] = []  # what stands before each open brace
    start = parentheses = 0
    blank = re.sub(_STRING, lambda match: " " * len(match[0]), text, flags=re.DOTALL)
    for mark in re.finditer(r"[(){};]", blank):
        if mark[0] in "()":
            parentheses += 1 if mark[0] == "(" else -1
        elif parentheses == 0:
            if mark[0] == "{":
                head = re.sub(_ATTRIBUTE, "", text[start : mark.start()]).strip()
                if (
                    all(_NAMESPACE.fullmatch(scope) for scope in scopes)
                    and "namespace" not in scopes
                ):
                    yield head, tuple(scopes)
                scopes.append(head)
            elif mark[0] == "}" and scopes:
                scopes.pop()
            start = mark.end()


def _without_if_0(text: str) -> str:
    """C++ without what is between ``#if 0`` and its ``#else``, ``#elif`` or ``#endif``."""
    kept, depth = [], 0
    for line in text.splitlines(keepends=True):
        directive = re.match(r"\s*#\s*(if|else|elif|endif)", line)
        word = directive[1] if directive else ""
        if depth == 0:
            kept.append(line)
            depth = int(re.match(r"\s*#\s*if\s+0\s*$", line) is not None)
        elif word == "if":  # and ifdef, ifndef
            depth += 1
        elif word == "endif" or (word and depth == 1):
            depth -= 1
    return "".join(kept)


def _build_cell(kind: str, args: Namespace, cell: str, number: str) -> dict[str, Any]:
    variable, *named = args.words or [args.name or ""]
    name = args.name or variable
    for word in (variable, name):
        if not word.isidentifier():
            _refuse(f"expected %%{kind} NAME [FUNCTION..], but got the name {word!r}")
    for function in named:
        if not re.search(rf"\b{re.escape(function)}\b", cell):
            _refuse(f"the cell has no function {function!r}")
    declared, left_out = functions_of(cell, kind)
    bound = None if "PYBIND11_MODULE" in cell else named or list(declared)
    if bound == [] and "TORCH_LIBRARY" not in cell:
        _refuse(f"the cell defines no function to bind{_told(left_out)}")
    if bound and not named and left_out:
        print(f"not bound{_told(left_out)}")
    listing = [(CELL, f"\n{cell}")]  # the magic itself stands on line 1
    declarations = "\n".join(declared[name] for name in bound or () if name in declared)
    flags = [shlex.quote(f"-D{macro}") for macro in args.D] + ([f"-O{args.O}"] if args.O else [])
    beside = [shlex.quote(f"-iquote{os.getcwd()}")] if re.search(_QUOTED, cell) else []
    libraries = [f"-L{path}" for path in absolute(args.L)]
    module = load_listings(
        name,
        cpp=listing if kind == "cpp" else [("declarations", declarations)],
        cuda=listing if kind == "cuda" else [],
        functions=bound,
        extra_cflags=[*flags, *beside],
        extra_cuda_cflags=[*flags, *(f"-Xcompiler={flag}" for flag in beside)],
        extra_ldflags=[*map(shlex.quote, libraries), *(f"-l{library}" for library in args.l)],
        extra_include_paths=args.I,
        verbose=args.verbose,
        cell=number,
    )
    return {variable: module}


def _told(left_out: dict[str, str]) -> str:
    return ": " * bool(left_out) + ", ".join(f"{name} ({why})" for name, why in left_out.items())


def _refuse(message: str) -> NoReturn:
    from IPython.core.error import UsageError  # shown without a traceback

    raise UsageError(message)
