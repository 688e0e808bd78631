"""``new NAME``: a working operator to start from, made of the files of ``my_op`` under a new name.

``new NAME --standalone`` writes a small project of its own that uses ``lltm_jit.load``: the example
``scale_add`` under a new name; ``new NAME --cell`` a recurrent cell with its layer, ``peephole``.
All templates are tested, so that they cannot fall behind.
"""

from __future__ import annotations

import argparse
import json
import keyword
import re
import shlex
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote

from lltm_jit import native
from lltm_jit.jit import LltmJitError

from . import _extensions

STANDALONE_TEMPLATE, CELL_TEMPLATE = "scale_add", "peephole"
_FROM_HERE = "pip install ../.. "  # in the README of an example
TEMPLATE, TEMPLATE_FAMILY = "my_op", "basic"
TEMPLATE_BINDINGS = f"kernels/{TEMPLATE_FAMILY}/bindings.cpp"
# Those of C++ that are none in Python, and could be a name in snake_case.
CPP_KEYWORDS = (
    "alignas alignof and_eq asm auto bitand bitor bool case catch char char8_t char16_t char32_t "
    "co_await co_return co_yield compl concept const const_cast consteval constexpr constinit "
    "decltype default delete do double dynamic_cast enum explicit export extern false float friend "
    "goto inline int long mutable namespace new noexcept not_eq nullptr operator or_eq private "
    "protected public register reinterpret_cast requires short signed sizeof static static_assert "
    "static_cast struct switch template this thread_local throw true typedef typeid typename union "
    "unsigned using virtual void volatile wchar_t xor xor_eq"
)


EXAMPLES = """\
examples:
  {prog} new blend --standalone    a project of your own, in ./blend
  {prog} new minimal --cell        a recurrent cell and its layer, in ./minimal
  {prog} new blend --family rnn    an operator of this package, in its checkout"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name",
        metavar="NAME",
        help="its name, in snake_case",
    )
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--family",
        default=TEMPLATE_FAMILY,
        help="in a checkout: the family to add the operator to (default: %(default)s)",
    )
    place.add_argument(
        "--standalone", action="store_true", help="write a separate project, in ./NAME"
    )
    place.add_argument(
        "--cell",
        action="store_true",
        help="write a recurrent cell and its layer, in ./NAME",
    )


def run(args: argparse.Namespace) -> int:
    if args.standalone or args.cell:
        template = CELL_TEMPLATE if args.cell else STANDALONE_TEMPLATE
        written = create_standalone(Path.cwd(), args.name, template)
        print("written:", *written, sep="\n  ")
        print(f"It works as is; {args.name}/README.md describes its files.")
        print("To build it and run its tests, which need pytest:")
        print(f"  cd {args.name} && python -m pytest")
        return 0
    checkout = native.kernels_directory().parent
    if not (checkout / "pyproject.toml").exists():
        raise LltmJitError(
            f"{args.name} would be an operator of lltm_jit itself, but {checkout} is an "
            "installed copy\n  -> add --standalone or --cell for a project of your own"
        )
    written = create(checkout, args.name, _extensions.named_family(args.family))
    test = f"tests/ops/{args.family}/test_{args.name}.py"
    if checkout == Path.cwd().resolve():
        places, go = written, ""
    else:
        places, go = [str(checkout / path) for path in written], f"cd {checkout} && "
    print("written:", *places, sep="\n  ")
    print(f"It computes what {TEMPLATE} does, until you edit it. To build and test it:")
    print(f"  {go}python -m pytest {test}")
    print("When it is ready, export it in lltm_jit/functional.py, and run `make format`.")
    return 0


def create(checkout: Path, name: str, family: str = TEMPLATE_FAMILY) -> list[str]:
    """Write the operator's files, and its lines in the family's bindings.cpp; returns their names.

    Raises:
        LltmJitError: the name cannot be used, or this is not a checkout of the project.
    """
    check_name(name)
    for taken in checkout.glob(f"kernels/*/{name}"):
        raise LltmJitError(f"{taken.relative_to(checkout).as_posix()} already exists")
    targets = {path: renamed_operator(path, name, family) for path in template_files(checkout)}
    for target in targets.values():
        if (checkout / target).exists():
            raise LltmJitError(f"{target} already exists")
    bindings = f"kernels/{family}/bindings.cpp"
    lines = operator_lines((checkout / TEMPLATE_BINDINGS).read_text("utf-8"), name, family)
    bound = with_operator((checkout / bindings).read_text("utf-8"), *lines)
    for template, target in targets.items():
        text = renamed_operator((checkout / template).read_text("utf-8"), name, family)
        (checkout / target).parent.mkdir(parents=True, exist_ok=True)
        (checkout / target).write_text(not_exported(text, name, family), "utf-8")
    (checkout / bindings).write_text(bound, "utf-8")
    return [*targets.values(), bindings]


def template_files(checkout: Path) -> list[str]:
    """The names of the template's files.

    Raises:
        LltmJitError: this is not a checkout of the project.
    """
    kernels = checkout / "kernels" / TEMPLATE_FAMILY / TEMPLATE
    files = [
        *sorted(kernels.glob("*")),
        checkout / "lltm_jit" / "ops" / TEMPLATE_FAMILY / f"{TEMPLATE}.py",
        checkout / "tests" / "ops" / TEMPLATE_FAMILY / f"test_{TEMPLATE}.py",
    ]
    for path in (kernels, *files):
        if not path.exists():
            raise LltmJitError(f"{checkout} is not a checkout of the project: {path} is missing")
    return [path.relative_to(checkout).as_posix() for path in files]


def create_standalone(parent: Path, name: str, template: str = STANDALONE_TEMPLATE) -> list[str]:
    """Write a project `name` below `parent`; returns the names of its files.

    Raises:
        LltmJitError: the name cannot be used, or is taken.
    """
    check_name(name)
    if name in sys.stdlib_module_names or name in ("lltm_jit", "pytest", "torch"):
        raise LltmJitError(f"the project would hide the module {name!r} from its own tests")
    if (parent / name).exists():
        raise LltmJitError(f"{parent / name} already exists")
    folder = template_folder(template)
    written = []
    for source in sorted(folder.rglob("*")):
        if source.suffix not in (".py", ".toml", ".md", ".h", ".cpp", ".cu"):
            continue
        path = renamed(str(source.relative_to(folder)), name, template)
        target = parent / name / path
        target.parent.mkdir(parents=True, exist_ok=True)
        text = source.read_text("utf-8").replace(_FROM_HERE, f"pip install {origin()} ")
        target.write_text(renamed(text, name, template), "utf-8")
        written.append(f"{name}/{path}")
    return written


def origin() -> str:
    """What pip installs this package from: the checkout, or what this copy was installed from."""
    try:
        told = distribution("lltm_jit").read_text("direct_url.json")
    except PackageNotFoundError:
        told = None
    checkout = native.kernels_directory().parent
    if (checkout / "pyproject.toml").exists():
        return shlex.quote(str(checkout))
    if told is None:  # it comes from a package index
        return "lltm_jit"
    source = json.loads(told)
    kind = source.get("vcs_info", {}).get("vcs")
    url = source["url"].removeprefix("file://")
    return shlex.quote(unquote(url) if url != source["url"] else f"{kind}+{url}" if kind else url)


def template_folder(template: str) -> Path:
    """An example's folder: inside an installed package, or among the examples of a checkout."""
    package = Path(native.__file__).parent
    installed = package / "templates" / template
    return installed if installed.is_dir() else package.parent / "examples" / template


def check_name(name: str) -> None:
    """Refuse a name that is none in C++ or Python, or that is taken in the extension module."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        raise LltmJitError(f"expected a name in snake_case, such as scale_add, but got {name!r}")
    if keyword.iskeyword(name) or name in CPP_KEYWORDS.split():
        raise LltmJitError(f"the name {name!r} is a keyword of Python or C++")
    if name in ("bindings", "core", "register_ops", "release_ops"):
        raise LltmJitError(f"the name {name!r} is used by the package itself")


def camel_case(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def renamed(text: str, name: str, template: str) -> str:
    """The text with the template's name replaced, in both its spellings."""
    return text.replace(template, name).replace(camel_case(template), camel_case(name))


def renamed_operator(text: str, name: str, family: str) -> str:
    """The text, or the path, of one of the operator's files, for the new operator."""
    for place in ("{}/my_op", "{}/test_my_op", "{}.my_op", '"{}"'):
        text = text.replace(place.format(TEMPLATE_FAMILY), place.format(family))
    return renamed(text, name, TEMPLATE)


def not_exported(text: str, name: str, family: str) -> str:
    """The text of a test, with what it imports: the new operator is not yet in the package."""
    names = f"import {camel_case(name)}, {name}\n"
    return text.replace(f"from lltm_jit {names}", f"from lltm_jit.ops.{family}.{name} {names}")


def operator_lines(bindings: str, name: str, family: str) -> tuple[str, str]:
    """The lines of a family's bindings.cpp for an operator: its include, and its registration.

    Raises:
        LltmJitError: the template's bindings.cpp has no such lines.
    """
    lines = [line for line in bindings.splitlines() if re.search(rf"\b{TEMPLATE}\b", line)]
    if [line.startswith("#include") for line in lines] != [True, False]:
        raise LltmJitError(
            f"expected {TEMPLATE_BINDINGS} to have an include and a line of {TEMPLATE}, but got "
            f"{len(lines)} lines: {lines}"
        )
    include, registration = (renamed_operator(line, name, family) for line in lines)
    return include, registration


def with_operator(bindings: str, include: str, registration: str) -> str:
    """bindings.cpp with the two lines of one more operator.

    Raises:
        LltmJitError: it has them already.
    """
    head, mark, body = bindings.partition("LLTM_JIT_MODULE(")
    if include in head:
        raise LltmJitError(f"bindings.cpp already has the line {include}")
    includes = [line for line in head.splitlines() if line.startswith("#include")]
    block = "\n".join(includes)
    head = head.replace(block, "\n".join(sorted([*includes, include])))
    end = body.rindex("}")
    return f"{head}{mark}{body[:end]}{registration}\n{body[end:]}"
