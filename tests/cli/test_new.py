"""`python -m lltm_jit new NAME`: the operator that it writes passes its tests."""

import re
import shutil
import subprocess
import sys
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from small_checkout import CHECKOUT, PYTEST, passes_its_tests, run_in

from lltm_jit import native
from lltm_jit.cli import main, new
from lltm_jit.cli.new import check_name, create_standalone, texts_of
from lltm_jit.jit import LltmJitError


def write(checkout, texts):
    for path, text in texts.items():
        (checkout / path).write_text(text)


@pytest.mark.slow
def test_new_operators_pass_their_tests(checkout):
    """One of two tensors and one of one, which are compiled together."""
    tests = "tests/ops/basic/test_elementwise.py"
    for name, like in (("scale_add", "my_op"), ("soft_sign", "sigmoid")):
        texts = texts_of(checkout, name, like)
        write(checkout, texts)
        maths = f"kernels/basic/{name}.h"
        assert [*texts] == [maths, "kernels/basic/operators.h", "lltm_jit/ops/basic.py", tests]
        assert "my_op" not in (checkout / maths).read_text().lower().replace("myop", "my_op")
    done = run_in(checkout, *PYTEST, tests, "-k", "scale_add or soft_sign")
    assert " passed" in done.stdout


FILES = {
    "scale_add": """.gitignore README.md blend/__init__.py blend/kernels/bindings.cpp
        blend/kernels/blend.cpp blend/kernels/blend.h blend/kernels/blend_cpu.cpp
        blend/kernels/blend_cuda.cu blend/kernels/blend_ops.h pyproject.toml setup.py
        test_blend.py""",
    "unit_rows": """.gitignore README.md blend.py kernels/blend.cpp kernels/blend.h
        kernels/blend_cpu.cpp kernels/blend_cuda.cu pyproject.toml test_blend.py""",
    "soft_clip": ".gitignore README.md blend.cu blend.py pyproject.toml test_blend.py",
    "peephole": ".gitignore README.md blend.h blend.py pyproject.toml test_blend.py",
}


@pytest.mark.parametrize("like", FILES)
def test_the_files_of_a_project(tmp_path, like):
    written = create_standalone(tmp_path, "blend", like)
    assert sorted(written) == [f"blend/{path}" for path in FILES[like].split()]
    for path in written:
        assert not re.search(like.replace("_", "_?"), (tmp_path / path).read_text().lower())
    if like == "peephole":
        assert "struct BlendCell {" in (tmp_path / "blend" / "blend.h").read_text()
    with pytest.raises(LltmJitError, match="blend already exists"):
        create_standalone(tmp_path, "blend", like)


def test_what_a_run_of_the_example_has_left_is_not_copied(tmp_path, monkeypatch):
    examples = shutil.copytree(CHECKOUT / "examples" / "soft_clip", tmp_path / "examples/soft_clip")
    (examples / ".pytest_cache").mkdir(exist_ok=True)
    (examples / ".pytest_cache" / "README.md").touch()
    package = SimpleNamespace(__file__=str(tmp_path / "lltm_jit" / "native.py"))
    package.kernels_directory = native.kernels_directory
    monkeypatch.setattr(new, "native", package)
    written = create_standalone(tmp_path, "blend", "soft_clip")
    assert sorted(written) == [f"blend/{path}" for path in FILES["soft_clip"].split()]


@pytest.mark.parametrize("name", ["aa", "blend", "pytest_rows", "torch_norm", "zeta_of_rows"])
@pytest.mark.parametrize("like", FILES)
def test_a_project_is_clean_under_its_own_linter(tmp_path, like, name):
    """Whatever place its name has in the alphabet; also without the project's settings."""
    pytest.importorskip("ruff")
    create_standalone(tmp_path, name, like)
    plain = ["check", "--isolated", "--select", "E4,E7,E9,F,I", name]
    for folder, arguments in (
        (tmp_path / name, ["check", "."]),
        (tmp_path / name, ["format", "--check", "."]),
        (tmp_path, plain),
    ):
        call = [sys.executable, "-m", "ruff", *arguments, "--no-cache"]
        done = subprocess.run(call, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("like", FILES)
def test_a_project_tests_gradients_in_every_dtype(like):
    (tests,) = (CHECKOUT / "examples" / like).glob("test_*.py")
    of_dtypes = r'@pytest.mark.parametrize\("dtype", .*\n(?:@.*\n)*def test_\w*gradients'
    assert re.search(of_dtypes, tests.read_text())


USED = {
    "scale_add": ["kernel", "formula", "autograd", "tensor", "tools", "module", "library", "scale"],
    "unit_rows": ["kernel", "factor", "guard", "row_sum", "eps", "plain"],
    "peephole": ["layer", "tensor", "step"],
}


@pytest.mark.parametrize("like", USED)
def test_a_name_that_the_project_has_for_something_else(tmp_path, like):
    for name in USED[like]:
        with pytest.raises(LltmJitError, match=rf"^the name '{name}' is taken: \S* uses '\w*'"):
            create_standalone(tmp_path, name, like)
    assert list(tmp_path.iterdir()) == []
    taken = r"'gradient' is taken: sigmoid\.h uses 'Gradient' itself"
    with pytest.raises(LltmJitError, match=taken):
        texts_of(CHECKOUT, "gradient", "sigmoid")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "like"), [("row_mean", "unit_rows"), ("gate", "soft_clip"), ("leaky_unit", "peephole")]
)
def test_a_new_project_passes_its_tests(tmp_path, name, like):
    """That of one operator is tested with its wheel, in test_own_sources.py."""
    create_standalone(tmp_path, name, like)
    assert passes_its_tests(tmp_path / name)


def test_a_readme_installs_what_the_package_came_from(tmp_path, monkeypatch, told):
    monkeypatch.chdir(tmp_path)
    for name, option in (("blend", "--standalone"), ("leaky", "--cell")):
        out = told("new", name, option)
        assert f"\n  {name}/README.md\n" in out
        assert out.endswith(f"\n  cd {name} && python -m pytest\n")
        text = (tmp_path / name / "README.md").read_text()
        assert "\npython -m pip install path/to/lltm_jit pytest\n" in text
        assert str(CHECKOUT) not in text


def test_what_an_installed_copy_came_from(monkeypatch, tmp_path):
    monkeypatch.setattr(native, "kernels_directory", lambda: tmp_path / "kernels")
    for told, source in (
        (None, "lltm_jit"),
        ('{"url": "file:///home/me/the%20checkout", "dir_info": {}}', "path/to/lltm_jit"),
        ('{"url": "file:///tmp/lltm_jit.whl", "archive_info": {}}', "path/to/lltm_jit"),
        ('{"url": "https://host/it", "vcs_info": {"vcs": "git"}}', "git+https://host/it"),
    ):
        found = SimpleNamespace(read_text=lambda _, told=told: told)
        monkeypatch.setattr(new, "distribution", lambda name, found=found: found)
        assert new.origin() == source


def test_an_operator_needs_a_checkout(told, monkeypatch, tmp_path):
    monkeypatch.setattr(native, "kernels_directory", lambda: tmp_path / "kernels")
    said = f"but {tmp_path} is an installed copy\n  -> add --standalone, --reduction, "
    assert said in told("new", "blend", code=1)


def test_whoever_is_at_a_terminal_is_asked(monkeypatch, told, tmp_path):
    answers, questions = ["", "7", "4"], []
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", lambda text: questions.append(text) or answers.pop(0))
    monkeypatch.chdir(tmp_path)
    out = told("new", "row_mean")
    assert questions == ["What is row_mean to be, 1 to 6? "] * 3
    assert "\n  4  a project in ./NAME: with a sum along the last dimension\n" in out
    assert (tmp_path / "row_mean" / "kernels" / "row_mean.h").exists()
    monkeypatch.setattr("builtins.input", Mock(side_effect=EOFError))
    assert main(["new", "row_max"]) == 1
    assert not (tmp_path / "row_max").exists()


@pytest.fixture
def few_files(tmp_path):
    """The files of a checkout that `new` reads."""
    shutil.copytree(CHECKOUT / "kernels/basic", tmp_path / "kernels/basic")
    (tmp_path / "lltm_jit/ops").mkdir(parents=True)
    shutil.copy(CHECKOUT / "lltm_jit/ops/basic.py", tmp_path / "lltm_jit/ops")
    (tmp_path / "tests/ops/basic").mkdir(parents=True)
    shutil.copy(CHECKOUT / new.LIMITS, tmp_path / new.LIMITS)
    (tmp_path / "pyproject.toml").touch()
    return tmp_path


def test_an_operator_of_a_checkout_elsewhere_is_told_of_by_whole_paths(
    told, monkeypatch, few_files
):
    monkeypatch.setattr(native, "kernels_directory", lambda: few_files / "kernels")
    lines = told("new", "blend").splitlines()
    first = lines.index("written:")
    assert lines[0].startswith("blend becomes an operator of lltm_jit, which is elsewhere.")
    assert lines[1:first] == lines[first + 1 : first + 5]
    assert f"  {few_files}/kernels/basic/blend.h" in lines
    assert f"  cd {few_files} && python -m pytest tests/ops -k blend" in lines
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", lambda question: "n")
    told("new", "mix", "--binary", code=1)
    assert not (few_files / "kernels" / "basic" / "mix.h").exists()
    monkeypatch.chdir(few_files)
    lines = told("new", "mix", "--binary").splitlines()
    assert {"  kernels/basic/mix.h", "  python -m pytest tests/ops -k mix"} <= {*lines}


def test_what_is_added_to_the_list_and_the_descriptions(few_files):
    before = {path: (few_files / path).read_text() for path in (new.OPERATORS, new.DESCRIPTIONS)}
    write(few_files, texts_of(few_files, "middle", "my_op"))

    def added(path):
        lines = (few_files / path).read_text().splitlines()
        return [line.strip(" \\") for line in lines if line not in before[path].splitlines()]

    assert added(new.OPERATORS) == ['#include "basic/middle.h"', "DO(middle, Middle, 2, 0)"]
    lines = added(new.DESCRIPTIONS)
    assert lines[0].startswith('__all__ = ["Middle", "middle", "MyOp", ')
    assert {"def middle(x: Tensor, y: Tensor) -> Tensor:", "class Middle(torch.nn.Module):"} <= {
        *lines
    }
    with pytest.raises(LltmJitError, match=r"kernels/basic/middle\.h already exists"):
        texts_of(few_files, "middle", "my_op")
    (few_files / "kernels/basic/middle.h").unlink()
    with pytest.raises(LltmJitError, match=r"basic\.py already has the name middle"):
        texts_of(few_files, "middle", "my_op")


def test_a_bad_name_is_refused(tmp_path):
    for names, why in (
        (("Scale", "a-b", "2d", "", "a/b", "_a"), "expected a name in snake_case"),
        (("class", "lambda", "double", "new"), r"keyword of Python or C\+\+"),
        (("bindings", "core"), "used by the package"),
        (("name",), "used by torch"),
    ):
        for name in names:
            with pytest.raises(LltmJitError, match=why):
                check_name(name)
    for name in ("copy", "select", "torch", "tqdm"):  # modules that a project needs
        with pytest.raises(LltmJitError, match=f"hide the module '{name}'"):
            create_standalone(tmp_path, name, "scale_add")
    assert list(tmp_path.iterdir()) == []


def test_an_operator_of_one_tensor(few_files, monkeypatch):
    """What it takes from the sigmoid are numbers and limits, and not the names of what it calls."""
    monkeypatch.setattr(native, "kernels_directory", lambda: few_files / "kernels")
    assert main(["new", "soft_sign", "--unary"]) == 0
    maths, operators, descriptions, limits = (
        (few_files / path.format("soft_sign")).read_text()
        for path in (new.MATHS, new.OPERATORS, new.DESCRIPTIONS, new.LIMITS)
    )
    assert "struct SoftSign {" in maths
    assert "out[0] = sigmoid(in[0]);" in maths
    assert "in[0] * sigmoid_derivative(in[1]);" in maths
    assert "  DO(soft_sign, SoftSign, 1, 1) \\\n" in operators
    assert operators.count("soft_sign") == 2
    assert '@elementwise("s")\ndef soft_sign(x: Tensor) -> Tensor:\n' in descriptions
    assert descriptions.count("\n    return torch.sigmoid(x)\n") == 2
    assert '    "soft_sign": (2, 3),\n' in limits
    assert '    "soft_sign gradient": torch.sigmoid,' in limits
