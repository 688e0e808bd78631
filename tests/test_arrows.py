"""Imports go one way: no module knows one above it, and none knows itself by a detour."""

import ast
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Each may import those before it; a module belongs to the longest of these names that it begins
# with. Imports inside functions and for types count like all others.
ORDER = (
    "lltm_jit._version",
    "lltm_jit._start",
    "lltm_jit.jit.user",
    "lltm_jit.jit.store",
    "lltm_jit.jit.machine",
    "lltm_jit.jit.request",
    "lltm_jit.jit.compile",
    "lltm_jit.jit.loading",
    "lltm_jit.jit",
    "lltm_jit._library",
    "lltm_jit._placeholders",
    "lltm_jit.native",
    "lltm_jit.ops",
    "lltm_jit.functional",
    "lltm_jit._package",
    "lltm_jit",
    "lltm_jit.cli",
    "lltm_jit.__main__",
    "benchmarks",
)


def modules() -> dict[str, Path]:
    files = [*ROOT.glob("lltm_jit/**/*.py"), *ROOT.glob("benchmarks/**/*.py")]
    names = [".".join(file.relative_to(ROOT).with_suffix("").parts) for file in files]
    return {name.removesuffix(".__init__"): file for name, file in zip(names, files, strict=True)}


def imported(name: str, file: Path, known: dict[str, Path]) -> Iterator[str]:
    """The modules that a module imports, of those that are known."""
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) + 1 - node.level]
            base = ".".join([*(above if node.level else []), *filter(None, [node.module])])
            for alias in node.names:
                inside = f"{base}.{alias.name}"
                yield from [inside] if inside in known else {base} & known.keys()


def level(name: str) -> int:
    fits = [each for each in ORDER if f"{name}.".startswith(f"{each}.")]
    return ORDER.index(max(fits, key=len))


@pytest.fixture(scope="module")
def arrows() -> dict[str, set[str]]:
    known = modules()
    return {name: set(imported(name, file, known)) - {name} for name, file in known.items()}


def test_no_module_imports_one_above_it(arrows):
    climbs = [
        f"{name} imports {other}"
        for name, others in arrows.items()
        for other in others
        if level(other) > level(name)
    ]
    assert climbs == []


def test_no_modules_import_each_other(arrows):
    TopologicalSorter(arrows).prepare()  # names the circle


@pytest.mark.parametrize("folder", ["lltm_jit", "benchmarks", "tools", "tests", "kernels"])
def test_a_room_has_twelve_files_at_most(folder):
    data = (".pyc", ".log")
    files = [file for file in (ROOT / folder).glob("**/*.*") if file.suffix not in data]
    crowded = Counter(str(file.parent) for file in files if file.is_file())
    assert {room: count for room, count in crowded.items() if count > 12} == {}


def test_no_name_in_kernels_repeats_its_folders():
    """upfirdn2d/strip.cuh, not upfirdn2d/upfirdn2d_strip.cuh; basic/ has one template for all."""
    files = [file for file in (ROOT / "kernels").glob("**/*.*") if "basic" not in file.parts]
    assert [str(file) for file in files if file.stem.startswith(f"{file.parent.name}_")] == []
