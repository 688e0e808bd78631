"""``new NAME``: a working operator to start from, made of the files of ``my_op`` under a new name.

``new NAME --standalone`` writes a small project of its own that uses ``lltm_jit.load``: the example
``scale_add`` under a new name. Both templates are tested, so that they cannot fall behind.
"""

from __future__ import annotations

import argparse
import keyword
import re
import sys
from pathlib import Path

from lltm_jit import native
from lltm_jit.jit import LltmJitError

STANDALONE_TEMPLATE = "scale_add"
TEMPLATE = "my_op"
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
FILES = (
    "kernels/{op}/{op}.h",
    "kernels/{op}/{op}.cpp",
    "kernels/{op}/{op}_cpu.cpp",
    "kernels/{op}/{op}_cuda.cu",
    "lltm_jit/ops/{op}.py",
    "tests/ops/test_{op}.py",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="the operator's name, in snake_case")
    parser.add_argument(
        "--standalone", action="store_true", help="write a project of its own in the folder NAME"
    )


def run(args: argparse.Namespace) -> int:
    if args.standalone:
        for path in create_standalone(Path.cwd(), args.name):
            print(f"  {path}")
        print(f"Now: cd {args.name} && python -m pytest")
        return 0
    written = create(native.kernels_directory().parent, args.name)
    print("written:")
    for path in written:
        print(f"  {path}")
    print(
        f"It computes what {TEMPLATE} does. Now:\n"
        f"  python -m pytest tests/ops/test_{args.name}.py    builds and tests it\n"
        f"  make format                                       after a name longer than {TEMPLATE}\n"
        f"and export it in lltm_jit/functional.py when it is ready."
    )
    return 0


def create(checkout: Path, name: str) -> list[str]:
    """Write the operator's files, and its line in bindings.cpp; returns their names.

    Raises:
        LltmJitError: the name cannot be used, or this is not a checkout of the project.
    """
    check_name(name)
    templates = {path.format(op=TEMPLATE): path.format(op=name) for path in FILES}
    for template, target in templates.items():
        if not (checkout / template).is_file():
            raise LltmJitError(
                f"{checkout} is not a checkout of the project: {template} is missing"
            )
        if (checkout / target).exists():
            raise LltmJitError(f"{target} exists already")
    bindings = checkout / "kernels" / "bindings.cpp"
    bound = with_operator(bindings.read_text("utf-8"), name)
    for template, target in templates.items():
        text = renamed_operator((checkout / template).read_text("utf-8"), name)
        (checkout / target).parent.mkdir(exist_ok=True)
        (checkout / target).write_text(text, "utf-8")
    bindings.write_text(bound, "utf-8")
    return [*templates.values(), "kernels/bindings.cpp"]


def create_standalone(parent: Path, name: str) -> list[str]:
    """Write a project `name` below `parent`; returns the names of its files.

    Raises:
        LltmJitError: the name cannot be used, or is taken.
    """
    check_name(name)
    if name in sys.stdlib_module_names or name in ("lltm_jit", "pytest", "torch"):
        raise LltmJitError(f"the project would hide the module {name!r} from its own tests")
    if (parent / name).exists():
        raise LltmJitError(f"{parent / name} exists already")
    template = standalone_template()
    written = []
    for source in sorted(template.rglob("*")):
        if source.suffix not in (".py", ".md", ".h", ".cpp", ".cu"):
            continue
        path = renamed(str(source.relative_to(template)), name, STANDALONE_TEMPLATE)
        target = parent / name / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(renamed(source.read_text("utf-8"), name, STANDALONE_TEMPLATE), "utf-8")
        written.append(f"{name}/{path}")
    return written


def standalone_template() -> Path:
    """The example's folder: inside an installed package, or among the examples of a checkout."""
    package = Path(native.__file__).parent
    installed = package / "template"
    return installed if installed.is_dir() else package.parent / "examples" / STANDALONE_TEMPLATE


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


def renamed_operator(text: str, name: str) -> str:
    """The text of one of the operator's files, for the new operator."""
    text = renamed(text, name, TEMPLATE)
    # The template is exported by the package, the new operator is not yet.
    exported = f"from lltm_jit import {camel_case(name)}, {name}\n"
    module = f"from lltm_jit.ops.{name} import "
    if exported in text:
        text = text.replace(exported, "").replace(module, f"{module}{camel_case(name)}, {name}, ")
    return text


def with_operator(bindings: str, name: str) -> str:
    """bindings.cpp with one more line in its list of operators.

    Raises:
        LltmJitError: the list is not there, or has the operator.
    """
    macro = re.search(r"#define LLTM_JIT_FOR_EACH_OP\(OP\)((?:\s*\\\n\s*OP\(\w+\))+)", bindings)
    if macro is None:
        raise LltmJitError("kernels/bindings.cpp has no list LLTM_JIT_FOR_EACH_OP")
    names = re.findall(r"OP\((\w+)\)", macro[1])
    if name in names:
        raise LltmJitError(f"kernels/bindings.cpp has the operator {name} already")
    lines = ["#define LLTM_JIT_FOR_EACH_OP(OP)", *(f"  OP({op})" for op in sorted([*names, name]))]
    width = max(map(len, lines))
    return bindings.replace(macro[0], " \\\n".join([line.ljust(width) for line in lines]).rstrip())
