"""`python -m lltm_jit new NAME`: the operator that it writes passes its tests."""

import pytest
from small_checkout import CHECKOUT, run_in

from lltm_jit.cli.new import FILES, check_name, create, create_standalone, with_operator
from lltm_jit.jit import LltmJitError


def test_the_new_operator_passes_its_tests(checkout):
    written = create(checkout, "scale_add")
    assert written == [path.format(op="scale_add") for path in FILES] + ["kernels/bindings.cpp"]
    for path in written:
        assert "my_op" not in (checkout / path).read_text().replace("OP(my_op)", "")
    options = ["-q", "-x", "-p", "no:cacheprovider"]
    done = run_in(checkout, "-m", "pytest", *options, "tests/ops/test_scale_add.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_the_standalone_project_passes_its_tests(tmp_path, shared_root, monkeypatch):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(shared_root))
    written = create_standalone(tmp_path, "blend")
    assert sorted(written) == [
        "blend/README.md",
        "blend/blend.py",
        "blend/kernels/blend.cpp",
        "blend/kernels/blend.h",
        "blend/kernels/blend_cuda.cu",
        "blend/test_blend.py",
    ]
    for path in written:
        assert "scale_add" not in (tmp_path / path).read_text().lower()
    done = run_in(CHECKOUT, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path / "blend")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    with pytest.raises(LltmJitError, match="blend exists already"):
        create_standalone(tmp_path, "blend")


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


@pytest.mark.parametrize(
    ("name", "why"),
    [
        *(
            (name, "expected a name in snake_case")
            for name in ("Scale", "a-b", "2d", "", "a/b", "_a")
        ),
        *((name, "keyword of Python or C\\+\\+") for name in ("class", "lambda", "double", "new")),
        *((name, "used by the package") for name in ("bindings", "core")),
    ],
)
def test_a_bad_name_is_refused(name, why):
    with pytest.raises(LltmJitError, match=why):
        check_name(name)


@pytest.mark.parametrize("name", ["copy", "select", "torch"])
def test_a_project_is_not_named_like_a_module_that_it_needs(tmp_path, name):
    with pytest.raises(LltmJitError, match=f"hide the module '{name}'"):
        create_standalone(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(checkout):
    with pytest.raises(LltmJitError, match=r"kernels/my_op/my_op\.h exists already"):
        create(checkout, "my_op")


def test_outside_a_checkout(tmp_path):
    with pytest.raises(LltmJitError, match="is not a checkout of the project"):
        create(tmp_path, "scale_add")
