import json
import subprocess
import sys

import pytest
from small_checkout import copy_with_basic, copy_with_small_families, environment
from small_files import write

import lltm_jit
from lltm_jit import native
from lltm_jit.cli import doctor, main
from lltm_jit.jit import Spec


@pytest.fixture
def told(capsys):
    """What a command prints."""

    def run(*words, code=0):
        assert main(list(map(str, words))) == code, capsys.readouterr().err
        said = capsys.readouterr()
        return said.out + said.err * bool(code)

    return run


@pytest.fixture
def builds():
    """The builds of the families that commands mean by default, which are loaded."""
    for family in native.OWN:
        native.load(family)
    return lltm_jit.build_info().families


@pytest.fixture
def tiny(tmp_path):
    """An extension that compiles in a tenth of a second: no Python module, no torch header."""

    def spec(text="int answer() { return 42; }\n", **changes):
        source = write(tmp_path / "tiny" / "tiny.cpp", text)
        return Spec("tiny", (str(source),), python_module=False)._replace(**changes)

    return spec


@pytest.fixture(scope="session")
def shared_root(tmp_path_factory):
    """One cache for all builds of small families, apart from the user's own."""
    return tmp_path_factory.mktemp("extensions")


@pytest.fixture
def empty_root(tmp_path, monkeypatch):
    """A cache without builds; what it will hold is built by the test."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "root"))
    return tmp_path / "root"


@pytest.fixture
def checkout(tmp_path):
    """A copy of the project with the family `basic` alone, of which the package's build is."""
    native.load("basic")
    return copy_with_basic(tmp_path / "checkout")


@pytest.fixture
def small_checkout(tmp_path, shared_root, monkeypatch):
    """A copy of the project whose families compile in a second."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(shared_root))
    return copy_with_small_families(tmp_path / "checkout")


@pytest.fixture
def watching():
    """Starts `watch` on the project in a directory; gives a way to wait for what is printed.

    The test passes only if each `watch` ends well when it is told to.
    """
    processes = []

    def start(directory, *words):
        command = [sys.executable, "-m", "lltm_jit", "watch", *words]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        process = subprocess.Popen(command, env=environment(directory), **pipes)
        processes.append(process)

        def wait_for(text):
            seen = [""]
            while text not in seen[-1]:
                seen.append(process.stdout.readline())
                assert seen[-1], f"no {text!r} in {seen}"

        return wait_for

    yield start
    for process in processes:
        process.terminate()
    assert [process.wait(timeout=30) for process in processes] == [0] * len(processes)


@pytest.fixture
def findings(capsys, monkeypatch):
    """What `doctor` finds, of all checks or of those named; its exit code fits."""
    checks = doctor.checks()

    def ask(*names):
        chosen = {name: checks[name] for name in names or checks}
        monkeypatch.setattr("lltm_jit.cli.doctor.checks", lambda: chosen)
        code = main(["doctor", "--json"])
        found = json.loads(capsys.readouterr().out)
        assert code == ("problem" in [finding["status"] for finding in found.values()])
        return found

    return ask


@pytest.fixture
def finding(findings):
    """What one check of `doctor` finds."""
    return lambda name: findings(name)[name]
