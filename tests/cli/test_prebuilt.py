"""What a wheel has: a compiled library with LLTM_JIT_PREBUILD=1, and the types of the public names.

mypy and pyright see these as a program does (basedpyright is pyright on PyPI).
"""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from small_checkout import CHECKOUT, copy_with_small_families, run_in

from lltm_jit.jit.machine import gpus
from lltm_jit.jit.store import cache

TEMPLATES = ("scale_add", "unit_rows", "soft_clip", "peephole")
PROGRAM = (
    "import lltm_jit\n"
    "print(lltm_jit.native.tiny.value())\n"
    "print(lltm_jit.build_info().families['tiny'].reason)\n"
    "print(lltm_jit.reload().changed)\n"
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory, shared_root):
    """A wheel of a small copy of the project, with the libraries of its two families."""
    checkout = tmp_path_factory.mktemp("prebuilt") / "checkout"
    copy_with_small_families(checkout)
    for name in ("setup.py", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, checkout / name)
    for template in TEMPLATES:
        shutil.copytree(CHECKOUT / "examples" / template, checkout / "examples" / template)
    root = {"LLTM_JIT_PREBUILD": "1", "TORCH_EXTENSIONS_DIR": str(shared_root)}
    run_in(checkout, "setup.py", "--quiet", "bdist_wheel", **root)
    (file,) = (checkout / "dist").glob("*.whl")
    return file


@pytest.fixture
def installed(wheel, tmp_path):
    """The wheel's content, and a function that runs a program on it without any compiler."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")

    def run(*words, code=0):
        place = str(tmp_path)
        variables = {"PATH": place, "HOME": place, "CXX": "no-compiler"}
        variables["TORCH_EXTENSIONS_DIR"] = f"{place}/root"
        return run_in(tmp_path / "site", *(words or ("-c", PROGRAM)), code=code, **variables)

    return tmp_path / "site" / "lltm_jit", run


def test_an_editable_install_is_found_beside_a_checkout_of_its_name(tmp_path):
    """Not the checkout's folder, which would be a namespace without names."""
    checkout = tmp_path / "lltm_jit"
    (checkout / "lltm_jit").mkdir(parents=True)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "lltm_jit/_version.py"):
        shutil.copy(CHECKOUT / name, checkout / name)
    (checkout / "lltm_jit" / "__init__.py").touch()
    for folder in ("kernels", *(f"examples/{name}" for name in TEMPLATES)):
        (checkout / folder).mkdir(parents=True)
    run_in(CHECKOUT, "setup.py", "--quiet", "editable_wheel", cwd=checkout)
    (file,) = (checkout / "dist").glob("*.whl")
    zipfile.ZipFile(file).extractall(tmp_path / "site")
    program = "import site; site.addsitedir('site'); import lltm_jit; print(lltm_jit.__file__)"
    done = run_in(tmp_path, "-S", "-c", program, PYTHONPATH="")
    assert done.stdout == f"{checkout}/lltm_jit/__init__.py\n"


def test_what_is_in_a_wheel(wheel):
    assert not wheel.name.endswith("-any.whl")
    with zipfile.ZipFile(wheel) as file:
        names = file.namelist()
        assert {"lltm_jit/py.typed", "lltm_jit/cli/lltm/benchmark.py"} <= {*names}
        assert "lltm_jit/jit/compile/standard/type_traits" in names  # which NVRTC reads
        assert "lltm_jit/kernels/core/launch/block.cuh" in names
        assert not [name for name in names if name.startswith("benchmarks")]
        (scripts,) = (name for name in names if name.endswith("/entry_points.txt"))
        assert b"lltm-jit = lltm_jit.__main__:run\n" in file.read(scripts)


def test_import_without_a_compiler(installed):
    _, run = installed
    done = run()
    lines = ["42", "compiled when the package was built", "()"]
    assert (done.stdout.splitlines(), done.stderr) == (lines, "")


@pytest.mark.slow
def test_commands_know_what_is_packaged(installed):
    package, run = installed
    assert run("-m", "lltm_jit", "benchmark", "py", "-r", "1").stderr == ""
    library = package / cache.WHEEL_FOLDER / "tiny.so"
    said = run("-m", "lltm_jit", "cache", "why").stdout
    assert said.startswith(f"tiny: an import loads {library}, made ")
    assert said.endswith(": compiled when the package was built\n")
    doctor = json.loads(run("-m", "lltm_jit", "doctor", "--json", code=1).stdout)
    assert doctor["build of tiny"]["text"] == f"ready in {library.parent}"
    library.with_suffix(".json").unlink()
    assert "tiny: an import would build " in run("-m", "lltm_jit", "cache", "why").stdout
    for command in ("timings", "flags"):  # which are about a build in the cache
        said = run("-m", "lltm_jit", command, code=1).stderr
        assert said.startswith("error: CXX is set to 'no-compiler', which is not found; ")


@pytest.mark.slow
def test_each_packaged_library_needs_its_own_files_alone(installed):
    package, run = installed
    program = "from lltm_jit import native; print(native.other.value())"
    done = run("-c", program)
    assert (done.stdout, done.stderr) == ("42\n", "")

    def append_to(name):
        with (package / "kernels" / name).open("a") as file:
            file.write("// edited\n")

    append_to("core/products/mma.cuh")  # nothing that is included
    append_to("other/bindings.cpp")
    (package / cache.WHEEL_FOLDER / "other.so").unlink()
    assert run().stderr == ""
    assert "library of other is not used: " in run("-c", program, code=1).stderr
    append_to("core/twice.cpp")
    assert "tiny is not used: kernels/core/twice.cpp changed" in run(code=1).stderr


def test_code_for_a_gpu():
    runs = {"8.0": ["8.0", "8.6"], "8.6": ["8.6"], "8.0+PTX": ["8.0", "8.6", "9.0", "9.1", "10.0"]}
    runs |= {"9.0a": ["9.0"], "12.0f+PTX": []}
    for asked, expected in runs.items():
        there = ("8.0", "8.6", "9.0", "9.1", "10.0")
        assert [gpu for gpu in there if gpus.runs_any([asked], gpus.number(gpu))] == expected


TYPED = Path(__file__).parent / "typed" / "a_users_program.py"


@pytest.mark.slow
def test_types_by_mypy_strict():
    words = ["--strict", "--config-file=", "--follow-imports=silent", f"--cache-dir={os.devnull}"]
    run_in(CHECKOUT, "-m", "mypy", *words, TYPED, MYPYPATH=str(CHECKOUT))


@pytest.mark.slow
def test_types_by_pyright_strict(tmp_path):
    places = os.pathsep.join([os.path.dirname(sys.executable), os.environ["PATH"]])
    checker = shutil.which("basedpyright", path=places)
    assert checker, "basedpyright is not installed: `python -m pip install basedpyright`"
    shutil.copy(TYPED, tmp_path)
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(CHECKOUT)]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    words = [checker, "--project", tmp_path, "--pythonpath", sys.executable, "--outputjson"]
    found = json.loads(subprocess.run(words, capture_output=True, text=True).stdout)
    assert found["generalDiagnostics"] == []
    assert found["summary"]["filesAnalyzed"] == 1
