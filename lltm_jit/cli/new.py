"""``new NAME``: a working operator to start from, made of the files of ``my_op`` under a new name.

The template is an operator that is tested itself, so that it cannot fall behind the rest.
"""

from __future__ import annotations

import argparse
import keyword
import re
from pathlib import Path

from lltm_jit import native
from lltm_jit.jit import LltmJitError

TEMPLATE = "my_op"
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


def run(args: argparse.Namespace) -> int:
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
        text = renamed((checkout / template).read_text("utf-8"), name)
        (checkout / target).parent.mkdir(exist_ok=True)
        (checkout / target).write_text(text, "utf-8")
    bindings.write_text(bound, "utf-8")
    return [*templates.values(), "kernels/bindings.cpp"]


def check_name(name: str) -> None:
    """Refuse a name that is none in C++ or Python, or that is taken in the extension module."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) or keyword.iskeyword(name):
        raise LltmJitError(f"expected a name in snake_case, such as scale_add, but got {name!r}")
    if name in ("core", "register_ops", "release_ops"):
        raise LltmJitError(f"the name {name!r} is used by the package itself")


def renamed(text: str, name: str) -> str:
    """The text of a file of the template with the new name in its three spellings."""
    camel_case = "".join(part.capitalize() for part in name.split("_"))
    text = text.replace(TEMPLATE, name).replace("MyOp", camel_case)
    # The template is exported by the package, the new operator is not yet.
    exported = f"from lltm_jit import {camel_case}, {name}\n"
    module = f"from lltm_jit.ops.{name} import "
    if exported in text:
        text = text.replace(exported, "").replace(module, f"{module}{camel_case}, {name}, ")
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
