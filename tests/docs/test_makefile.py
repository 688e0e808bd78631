"""What the Makefile does besides calling commands: two at the same time, and where things go."""

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from small_files import script

ROOT = Path(__file__).parents[2]
# In place of Python: what is called as a module writes its process id, and does what a file says.
PYTHON = """
echo $$ >"$0.$2.new"; mv "$0.$2.new" "$0.$2"
. "$0.does.$2"
"""


@pytest.fixture
def start(tmp_path):
    """Starts the rule that compiles beside pip, with what each of them does."""
    python = script(tmp_path / "bin" / "python", PYTHON)
    (tmp_path / ".installed").touch()

    def make(
        pip: str, build: str, target: str = f"{tmp_path}/.test", environment: dict | None = None
    ) -> subprocess.Popen:
        Path(f"{python}.does.pip").write_text(pip)
        Path(f"{python}.does.lltm_jit").write_text(build)
        words = ["make", "--silent", f"VENV={tmp_path}", target]
        quiet = {"stderr": subprocess.DEVNULL, "start_new_session": True}
        return subprocess.Popen(words, cwd=ROOT, env=environment, **quiet)

    return make


def test_tests_keep_nothing_in_the_users_home(start, tmp_path):
    """And what they need is built before them, where it is seen, also if `make lint` asks first."""
    kept = ("TORCH_EXTENSIONS_DIR", "MPLCONFIGDIR", "IPYTHONDIR")
    said = tmp_path / "said"
    words = " ".join(f'"${name}"' for name in kept)
    Path(f"{tmp_path}/bin/python.does.pytest").write_text(f'printf "%s\\n" {words} >>{said}')
    environment = {name: value for name, value in os.environ.items() if name not in kept}
    for target in (f"{tmp_path}/.test", "test"):
        build = f'echo "$TORCH_EXTENSIONS_DIR" >>{said}'
        with start("exit 0", build, target, environment) as make:
            make.wait()
    places = [f"{tmp_path}/{name}" for name in ("builds", "matplotlib", "ipython")]
    assert said.read_text().split() == [places[0], places[0], *places]


@pytest.mark.parametrize(("pip", "build"), [(0, 0), (0, 1), (1, 0)])
def test_both_must_end_well(start, tmp_path, pip, build):
    with start(f"exit {pip}", f"exit {build}") as make:
        make.wait()
    assert (make.returncode != 0) == bool(pip or build)
    assert (tmp_path / ".test").exists() == (make.returncode == 0)


def test_ctrl_c_ends_both(start, tmp_path):
    with start("exec sleep 60", "exec sleep 60") as make:
        files = [tmp_path / "bin" / f"python.{name}" for name in ("pip", "lltm_jit")]
        while not all(file.exists() for file in files):
            assert make.poll() is None
            time.sleep(0.01)
        try:
            os.killpg(make.pid, signal.SIGINT)
            make.wait()
            assert make.returncode != 0
            for file in files:
                with pytest.raises(ProcessLookupError):
                    os.kill(int(file.read_text()), 0)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(make.pid, signal.SIGKILL)
    assert not (tmp_path / ".test").exists()
