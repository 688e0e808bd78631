import json
import queue
import shutil
import subprocess
import sys
import threading

import pytest
from small_checkout import copy_with_basic, copy_with_small_families, environment

from lltm_jit import native
from lltm_jit.cli import doctor, main
from lltm_jit.jit.store import cache


@pytest.fixture(scope="session")
def shared_root(tmp_path_factory):
    """One cache for all builds of the copies, apart from the user's own."""
    return tmp_path_factory.mktemp("extensions")


@pytest.fixture(scope="session")
def root_with_basic(tmp_path_factory):
    """Such a cache with the package's build of `basic`: only what differs from it compiles."""
    built = native.load("basic").info.directory
    root = tmp_path_factory.mktemp("extensions_with_basic")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_EXTENSIONS_DIR", str(root))
        shutil.copytree(built, cache.builds_directory() / built.name)
    return root


@pytest.fixture
def checkout(tmp_path, root_with_basic, monkeypatch):
    """A copy of the project with one family."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(root_with_basic))
    copy_with_basic(tmp_path / "checkout")
    return tmp_path / "checkout"


@pytest.fixture
def small_checkout(tmp_path, shared_root, monkeypatch):
    """A copy of the project whose families compile in a second."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(shared_root))
    copy_with_small_families(tmp_path / "checkout")
    return tmp_path / "checkout"


@pytest.fixture
def watching():
    """Starts `watch` on the project in a directory; gives a way to wait for what is printed.

    The test passes only if each `watch` ends well when it is told to.
    """
    pytest.importorskip("watchfiles")
    processes = []

    def start(directory, *words):
        process = subprocess.Popen(
            [sys.executable, "-m", "lltm_jit", "watch", *words],
            env=environment(directory),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        processes.append(process)
        lines = queue.Queue()
        threading.Thread(target=lambda: [lines.put(line) for line in process.stdout]).start()

        def wait_for(text):
            seen = []
            while True:
                try:
                    seen.append(lines.get(timeout=300))
                except queue.Empty:
                    pytest.fail(f"no {text!r} in {seen}")
                if text in seen[-1]:
                    return

        return wait_for

    yield start
    for process in processes:
        process.terminate()
    assert [process.wait(timeout=30) for process in processes] == [0] * len(processes)


@pytest.fixture
def empty_root(tmp_path, monkeypatch):
    """A cache without builds; what it will hold is built by the test."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "root"))
    return tmp_path / "root"


@pytest.fixture
def only(monkeypatch):
    """Run one check alone."""

    def choose(name):
        check = doctor.checks()[name]
        monkeypatch.setattr("lltm_jit.cli.doctor.checks", lambda: {name: check})

    return choose


@pytest.fixture
def findings(capsys):
    """What `doctor` finds, and its exit code."""

    def ask():
        code = main(["doctor", "--json"])
        return code, json.loads(capsys.readouterr().out)

    return ask


@pytest.fixture
def finding(only, findings):
    """What one check of `doctor` finds."""

    def ask(name):
        only(name)
        code, found = findings()
        assert code == (found[name]["status"] == "problem")
        return found[name]

    return ask
