"""The magics of ``%load_ext lltm_jit``: ``%lltm_reload``, ``%%cpp`` and ``%%cuda``."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

from .loading.reload import Reload, reload_module
from .request.spec import CELL, absolute
from .request.texts import LITERALS, without_comments
from .torch_api import load_listings

if TYPE_CHECKING:
    from argparse import Namespace

    from IPython.core.interactiveshell import InteractiveShell
    from IPython.core.magic_arguments import MagicArgumentParser

_DESCRIPTION = """
Build the cell and put its module into the variable NAME.

Binds every function that the cell defines at namespace scope, or only the functions that you name.
Static functions, templates and the contents of anonymous namespaces are not bound. Functions with
pointers are bound only if you name them; overloaded and noexcept functions are never bound. The
preprocessor's conditions are not evaluated. A cell with a PYBIND11_MODULE is used as it is. A CUDA
cell with nothing but kernels gives them, as lltm_jit.kernel does; name a template's instances.
Errors count lines from the magic, which is line 1 of the cell.
"""
_QUOTED = r'(?m)^[ \t]*#[ \t]*include[ \t]*"'  # a file that may be beside the notebook
_DIRECTIVE = r"(?m)^[ \t]*#(?:\\\n|[^\n])*"
_FUNCTION = re.compile(
    r'(?:extern\s+"C"\s+)?(?P<type>[\w:<>,&*\s]*?[\s&*>])(?P<name>\w+)\s*\((?P<parameters>.*)\)'
    r"\s*(?P<noexcept>noexcept)?\s*(?P<result>->[\w:<>,&*\s]+)?",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(r"\[\[.*?\]\]|__attribute__\s*\(\(.*?\)\)", re.DOTALL)
_NAMESPACE = re.compile(r'extern\s+"C"|(?:inline\s+)?namespace(?:\s+[\w:]+)?')
_OWN = r"\b(?:static|template|operator|main|__global__|__device__)\b"
_TEXT = r"\bconst\s+char\s*\*|\bchar\s+const\s*\*"
# C++ sees only the declarations of a CUDA cell: it cannot use inline functions and these types.
_CUDA_OWN = r"\b(?:inline|constexpr|__\w+|cu[A-Z]\w*|cuda\w+|curand\w+|cublas\w+|dim3|half2?)\b"
_TYPES = r"\b(?:struct|class|union|enum(?:\s+class)?|using|typedef\b[^;]*?)\s+(\w+)\s*[{:;=]"


def register(ipython: InteractiveShell, reload_package: Callable[[], Reload]) -> None:
    """Define the magics in a shell."""

    def lltm_reload(line: str) -> None:
        """%lltm_reload: compile edited kernels of the package, and use them from now on.

        %lltm_reload NAME: the same for the module or kernel in the variable NAME.
        """
        name = line.strip()
        module = ipython.user_ns.get(name) if name else None
        if name and not (isinstance(module, ModuleType) or hasattr(module, "use")):
            _refuse(f"{name} is not a variable that holds a module or a kernel")
        done = reload_module(module) if module else reload_package()
        print(f"{', '.join(done.changed) or 'nothing changed'} ({done.seconds:.2f} s)")

    def cell_magic(kind: str) -> Callable[..., None]:
        parser = _parser(kind)

        def magic(line: str, cell: str | None = None) -> None:
            try:
                args = parser.parse_intermixed_args(shlex.split(line))
            except ValueError as error:  # a quote that is not closed
                _refuse(f"%%{kind} {line}: {error}")
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


def _build_cell(kind: str, args: Namespace, cell: str, number: str) -> dict[str, Any]:
    variable, *named = args.words or [args.name or ""]
    name = args.name or variable
    for word in (variable, name):
        if not word.isidentifier():
            _refuse(f"expected %%{kind} NAME [FUNCTION..], but got the name {word!r}")
    declared, left_out = functions_of(cell, kind)
    own_glue = re.search("PYBIND11_MODULE|TORCH_LIBRARY", cell)
    if kind == "cuda" and "__global__" in cell and not (declared or own_glue):
        return {variable: _kernels(name, named, args, cell, number)}
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


def _kernels(
    name: str, named: list[str], args: Namespace, cell: str, number: str
) -> SimpleNamespace:
    """The kernels of a cell that has no function around them, by their names."""
    from . import kernel
    from .parameters import kernels_in

    found = kernels_in(cell)
    left_out = {n: f"a template: name it as {n}<...>" for n, template in found.items() if template}
    names = named or [name for name, template in found.items() if not template]
    if not names:
        _refuse(f"the cell has no kernel to compile{_told(left_out)}")
    if left_out and not named:
        print(f"not compiled{_told(left_out)}")
    beside = [os.getcwd()] if re.search(_QUOTED, cell) else []
    options = [f"-D{macro}" for macro in args.D]
    made = kernel.spec_of(name, names, None, [*args.I, *beside], options)
    made = kernel.with_text(made, CELL, f"\n{cell}")._replace(cell=number)
    kernels = kernel.kernels_of(made, args.verbose)
    short = [each.partition("<")[0].rpartition("::")[2] for each in names]
    once = {s: k for s, k in zip(short, kernels, strict=True) if short.count(s) == 1}
    return SimpleNamespace(**once, **{k.name: k for k in kernels if k.name not in once})


def _told(left_out: dict[str, str]) -> str:
    return ": " * bool(left_out) + ", ".join(f"{name} ({why})" for name, why in left_out.items())


def _refuse(message: str) -> NoReturn:
    from IPython.core.error import UsageError  # shown without a traceback

    raise UsageError(message)


def functions_of(source: str, kind: str = "cpp") -> tuple[dict[str, str], dict[str, str]]:
    """The functions of a cell: declarations of those to bind, and why the others are not bound."""
    text = re.sub(_DIRECTIVE, "", without_comments(source))
    types = re.findall(_TYPES, text)
    bound: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for head, scopes in _heads(text):
        function = _FUNCTION.fullmatch(head)
        if not function or re.search(_OWN, f"{function['type']} {function['name']}"):
            continue
        namespaces = re.findall(r"namespace\s+([\w:]+)", " ".join(scopes))
        name = "::".join([*namespaces, function["name"]])
        declaration = f"{head};"
        for scope in reversed(scopes):
            declaration = f"{scope} {{ {declaration} }}"
        used = " ".join(function.group("type", "parameters")) + (function["result"] or "")
        if bound.get(name, declaration) != declaration or name in left_out:
            bound.pop(name, None)
            left_out[name] = "overloaded"
        elif function["noexcept"]:  # torch's wrapper does not take these
            left_out[name] = "is noexcept"
        elif "*" in re.sub(_TEXT, "", used):
            left_out[name] = "has a pointer"
        elif kind == "cuda" and re.search(_CUDA_OWN, used):
            left_out[name] = "not visible to C++"
        elif kind == "cuda" and set(types) & set(re.findall(r"\w+", used)):
            left_out[name] = "uses a type that the cell defines"
        else:
            bound[name] = declaration
    return bound, left_out


def _heads(text: str) -> Iterator[tuple[str, list[str]]]:
    """The text before each brace that opens at namespace scope, and its named namespaces."""
    scopes: list[str] = []  # the text before each open brace
    start = parentheses = 0
    # A brace in a string opens nothing.
    blank = re.sub(LITERALS, lambda match: " " * len(match[0]), text, flags=re.DOTALL)
    for mark in re.finditer(r"[(){};]", blank):
        if mark[0] in "()":
            parentheses += 1 if mark[0] == "(" else -1
        elif parentheses == 0:
            head = re.sub(_ATTRIBUTE, "", text[start : mark.start()]).strip()
            if mark[0] == "{":
                if all(map(_NAMESPACE.fullmatch, scopes)) and "namespace" not in scopes:
                    yield head, [*scopes]
                scopes.append(head)
            elif mark[0] == "}" and scopes:
                scopes.pop()
            start = mark.end()
