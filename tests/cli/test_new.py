"""`python -m lltm_jit new NAME`: the operator that it writes passes its tests."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lltm_jit.cli.new import FILES, check_name, create, with_operator
from lltm_jit.jit import LltmJitError

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path):
    """A copy of the project with the template as its only operator: fewer files to compile."""
    ignored = shutil.ignore_patterns("__pycache__", "lltm", "sigmoid")
    shutil.copytree(CHECKOUT / "kernels", tmp_path / "kernels", ignore=ignored)
    shutil.copytree(CHECKOUT / "lltm_jit", tmp_path / "lltm_jit")
    shutil.copytree(CHECKOUT / "tests" / "ops", tmp_path / "tests" / "ops")
    bindings = tmp_path / "kernels" / "bindings.cpp"
    lines = bindings.read_text().splitlines(keepends=True)
    others = [line for line in lines if line.strip().startswith(("OP(lltm)", "OP(sigmoid)"))]
    text = "".join(line for line in lines if line not in others)
    bindings.write_text(text.replace("OP(my_op)                      \\\n", "OP(my_op)\n"))
    return tmp_path


def test_the_new_operator_passes_its_tests(checkout):
    written = create(checkout, "scale_add")
    assert written == [path.format(op="scale_add") for path in FILES] + ["kernels/bindings.cpp"]
    for path in written:
        assert "my_op" not in (checkout / path).read_text().replace("OP(my_op)", "")
    options = ["-q", "-x", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "tests/ops/test_scale_add.py"],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_a_line_is_added_to_the_bindings():
    before = (
        "#define LLTM_JIT_FOR_EACH_OP(OP) \\\n  OP(lltm)                       \\\n  OP(my_op)\n\n"
    )
    after = (
        "#define LLTM_JIT_FOR_EACH_OP(OP) \\\n"
        "  OP(lltm)                       \\\n"
        "  OP(middle)                     \\\n"
        "  OP(my_op)\n\n"
    )
    assert with_operator(before, "middle") == after
    with pytest.raises(LltmJitError, match="has the operator middle already"):
        with_operator(after, "middle")


@pytest.mark.parametrize("name", ["Scale", "scale-add", "2d", "", "class", "core", "a/b", "_a"])
def test_a_bad_name_is_refused(name):
    with pytest.raises(LltmJitError, match=r"expected a name in snake_case|used by the package"):
        check_name(name)


def test_nothing_is_overwritten(checkout):
    with pytest.raises(LltmJitError, match=r"kernels/my_op/my_op\.h exists already"):
        create(checkout, "my_op")


def test_outside_a_checkout(tmp_path):
    with pytest.raises(LltmJitError, match="is not a checkout of the project"):
        create(tmp_path, "scale_add")
