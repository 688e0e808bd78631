"""``new``: write a working operator, recurrent cell or project.

A new elementwise operator of this package is a copy of ``my_op`` or ``sigmoid``. A project of your
own, which uses ``lltm_jit.load``, is a copy of one of the examples. All have tests.

examples:
  python -m lltm_jit new blend --standalone    a project of your own, in ./blend
  python -m lltm_jit new minimal --cell        a recurrent cell and its layer, in ./minimal
  python -m lltm_jit new gate --kernel         an operator from a CUDA kernel alone, in ./gate
  python -m lltm_jit new softsign --unary      an operator of this package, in its checkout

Without an option it asks, or takes --binary if standard input is not a terminal. All operators take
half, bfloat16, float and double, and have derivatives.
"""

import argparse
import ast
import json
import keyword
import re
import shlex
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path

from lltm_jit import native
from lltm_jit.jit import LltmJitError

_IGNORED = "__pycache__/\n.pytest_cache/\n*.egg-info/\nbuild/\ndist/\n*.so\n"
_COPIED = (".py", ".toml", ".md", ".h", ".cpp", ".cu")
_PROSE = (".toml", ".md")
# Each option's template and description.
KINDS = {
    "binary": ("my_op", "an elementwise operator of two tensors, in this package's checkout"),
    "unary": ("sigmoid", "the same, of one tensor"),
    "standalone": ("scale_add", "a project in ./NAME: elementwise, with a number as a parameter"),
    "reduction": ("unit_rows", "a project in ./NAME: with a sum along the last dimension"),
    "kernel": ("soft_clip", "a project in ./NAME: a CUDA kernel that needs no C++ and no nvcc"),
    "cell": ("peephole", "a project in ./NAME: a recurrent cell and its layer"),
}
# The files of an elementwise operator: its maths, its line in the list, its description, and the
# limits of its tests.
MATHS, OPERATORS = "kernels/basic/{}.h", "kernels/basic/operators.h"
DESCRIPTIONS, LIMITS = "lltm_jit/ops/basic.py", "tests/ops/basic/test_elementwise.py"
# Keywords of C++ alone that could be a name in snake_case.
CPP_KEYWORDS = (
    "alignas alignof and_eq asm auto bitand bitor bool case catch char char8_t char16_t char32_t "
    "co_await co_return co_yield compl concept const const_cast consteval constexpr constinit "
    "decltype default delete do double dynamic_cast enum explicit export extern false float friend "
    "goto inline int long mutable namespace new noexcept not_eq nullptr operator or_eq private "
    "protected public register reinterpret_cast requires short signed sizeof static static_assert "
    "static_cast struct switch template this thread_local throw true typedef typeid typename union "
    "unsigned using virtual void volatile wchar_t xor xor_eq"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="its name, in snake_case")
    kinds = parser.add_mutually_exclusive_group()
    for kind, (_, what) in KINDS.items():
        kinds.add_argument(f"--{kind}", dest="kind", action="store_const", const=kind, help=what)


def run(args: argparse.Namespace) -> int:
    check_name(args.name)
    kind = args.kind or _asked(args.name)
    if kind not in ("binary", "unary"):
        written = create_standalone(Path.cwd(), args.name, KINDS[kind][0])
        print("written:", *written, sep="\n  ")
        print(f"It works as is; {args.name}/README.md describes its files.")
        print(f"To build it and run its tests:\n  cd {args.name} && python -m pytest")
        return 0
    checkout = native.kernels_directory().parent
    if not (checkout / "pyproject.toml").exists():
        raise LltmJitError(
            f"{args.name} would be an operator of lltm_jit itself, but {checkout} is an "
            "installed copy\n  -> add --standalone, --reduction, --kernel or --cell for a project "
            "of its own"
        )
    texts, go = texts_of(checkout, args.name, KINDS[kind][0]), ""
    places = [*texts]
    if checkout != Path.cwd().resolve():
        places, go = [str(checkout / path) for path in texts], f"cd {checkout} && "
        print(f"{args.name} becomes an operator of lltm_jit, which is elsewhere. To be written:")
        print(*(f"  {place}" for place in places), sep="\n")
        if sys.stdin.isatty() and input("Write them? [y/N] ").strip().lower() not in ("y", "yes"):
            return 1
    for path, text in texts.items():
        (checkout / path).write_text(text, "utf-8")
    print("written:", *places, sep="\n  ")
    print(f"It computes what {KINDS[kind][0]} does, until you edit it. To build and test it:")
    print(f"  {go}python -m pytest tests/ops -k {args.name}\nWhen it is ready, run `make format`.")
    return 0


def _asked(name: str) -> str:
    """The kind to write, as the user at the terminal chooses."""
    if not sys.stdin.isatty():
        return "binary"
    kinds = dict(zip("123456", KINDS, strict=True))
    print(*(f"  {key}  {KINDS[kind][1]}" for key, kind in kinds.items()), sep="\n")
    while (answer := input(f"What is {name} to be, 1 to 6? ").strip()) not in kinds:
        pass
    return kinds[answer]


def texts_of(checkout: Path, name: str, like: str) -> dict[str, str]:
    """The texts to write for an operator, by the path of each file."""
    check_name(name)
    for taken in [*checkout.glob(f"kernels/*/{name}"), *checkout.glob(f"kernels/*/{name}.h")]:
        raise LltmJitError(f"{taken.relative_to(checkout).as_posix()} already exists")
    paths = (MATHS.format(like), OPERATORS, DESCRIPTIONS, LIMITS)
    refuse_used(name, like, [checkout / MATHS.format(like)])
    maths, operators, descriptions, limits = ((checkout / p).read_text("utf-8") for p in paths)
    if re.search(rf"\b({name}|{_camel_case(name)})\b", descriptions):
        raise LltmJitError(f"{DESCRIPTIONS} already has the name {name}")
    # The list gets a copy of the template's line.
    row = _renamed(re.search(rf"DO\({like}, .*?\)", operators)[0], name, like)  # type: ignore[index]
    include = '#include "basic/my_op.h"\n'
    operators = operators.replace(include, f'#include "basic/{name}.h"\n{include}')
    operators = re.sub(r"#define LLTM_JIT_OPERATORS.*\n", rf"\g<0>  {row} \\\n", operators)
    # The function and the class go to the end of the module and into `__all__`.
    lines, described = descriptions.splitlines(keepends=True), ""
    for node in ast.parse(descriptions).body:
        if getattr(node, "name", None) in (like, _camel_case(like)):
            first = min(each.lineno for each in [node, *getattr(node, "decorator_list", [])])
            described += "\n\n" + "".join(lines[first - 1 : node.end_lineno])
    exported = f'__all__ = ["{_camel_case(name)}", "{name}", '
    described = descriptions.replace("__all__ = [", exported, 1) + _renamed(described, name, like)
    limit = rf'(?m)^( +"){like}((?: gradient)?": .*\n)'
    return {
        MATHS.format(name): _renamed(maths, name, like),
        OPERATORS: operators,
        DESCRIPTIONS: described,
        LIMITS: re.sub(limit, rf"\g<0>\g<1>{name}\g<2>", limits),
    }


def create_standalone(parent: Path, name: str, template: str) -> list[str]:
    """Write a project `name` below `parent`; returns the names of its files."""
    check_name(name)
    taken = name in (*sys.stdlib_module_names, "pytest")
    if taken or getattr(find_spec(name), "origin", None):  # a folder has none
        raise LltmJitError(f"the project would hide the module {name!r} from its own tests")
    if (parent / name).exists():
        raise LltmJitError(f"{parent / name} already exists")
    # An example's folder: inside an installed package, or among the examples of a checkout.
    package, written = Path(native.__file__).parent, {".gitignore": _IGNORED}
    places = (package / "templates" / template, package.parent / "examples" / template)
    folder = next(filter(Path.is_dir, places))
    found = [path for path in folder.rglob("*") if path.suffix in _COPIED]
    # A run of the example's tests may have left files there.
    sources = sorted(path for path in found if ".pytest_cache" not in path.parts)
    refuse_used(name, template, [path for path in sources if path.suffix not in _PROSE])
    for source in sources:
        text = source.read_text("utf-8").replace("pip install ../.. ", f"pip install {origin()} ")
        path = _renamed(str(source.relative_to(folder)), name, template)
        written[path] = _renamed(text, name, template)
    for path, text in written.items():
        (parent / name / path).parent.mkdir(parents=True, exist_ok=True)
        (parent / name / path).write_text(text, "utf-8")
    return [f"{name}/{path}" for path in written]


def origin() -> str:
    """What pip installs this package from, in words for other machines: no path of this one."""
    try:
        source = json.loads(distribution("lltm_jit").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        source = {}
    url, kind = source.get("url", ""), source.get("vcs_info", {}).get("vcs")
    if (native.kernels_directory().parent / "pyproject.toml").exists() or url.startswith("file:"):
        return "path/to/lltm_jit"
    # Without a URL it comes from a package index.
    return shlex.quote(f"{kind}+{url}" if kind else url or "lltm_jit")


def check_name(name: str) -> None:
    """Refuse a name that C++ or Python cannot have, or that the extension module uses."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        raise LltmJitError(f"expected a name in snake_case, such as scale_add, but got {name!r}")
    if keyword.iskeyword(name) or name in CPP_KEYWORDS.split():
        raise LltmJitError(f"the name {name!r} is a keyword of Python or C++")
    if name in ("bindings", "core", "register_ops", "release_ops"):
        raise LltmJitError(f"the name {name!r} is used by the package itself")
    if name == "name":
        raise LltmJitError("the name 'name' is used by torch: torch.ops.X.name is the name of X")


def refuse_used(name: str, template: str, sources: Iterable[Path]) -> None:
    """Refuse a name that a template's code uses for something else, in either spelling."""
    for path in sources:
        # Ignore comments, strings, and the template's own name, which the new name replaces.
        text = _renamed(path.read_text("utf-8"), "_", template)
        code = re.sub(r'"""(?s:.*?)"""|//.*|#(?! *(?:include|define)\b).*|"[^"\n]*"', "", text)
        for word in (name, _camel_case(name)):
            if re.search(rf"\b{word}\b", code):
                raise LltmJitError(f"the name {name!r} is taken: {path.name} uses {word!r} itself")


def _camel_case(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _renamed(text: str, name: str, template: str) -> str:
    """The text with the template's name replaced, in both its spellings."""
    # Functions that the template calls may have its name: torch.sigmoid, and C++'s sigmoid.
    text = re.sub(rf"(?<!torch\.){template}(?!_derivative|\(in\b)", name, text)
    return text.replace(_camel_case(template), _camel_case(name))
