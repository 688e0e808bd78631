"""The package on a Windows that is made of fake programs: vswhere, cmd, cl, where and ninja."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from small_files import script, write

import lltm_jit
from lltm_jit.cli import COMMANDS

ROOT = Path(lltm_jit.__file__).parents[1]
ELSEWHERE = "needs Linux or WSL2; on Windows, only load, load_inline and `lltm-jit doctor` work"

# Python starts with this. pathlib keeps the paths of this machine, as all tools here have them.
SITE = """
import importlib, os, pathlib, shutil, subprocess, sys, tempfile

for first in os.environ.get("IMPORTED_FIRST", "").split():
    importlib.import_module(first)
tempfile.gettempdir()  # which keeps what it finds
for missing in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[missing] = None
del os.register_at_fork, os.fork, os.getuid, os.sched_getaffinity
pathlib.Path.__new__.__globals__["WindowsPath"] = pathlib.PosixPath
encode = os.environ.encodekey
os.environ.encodekey = lambda name: encode(name.upper())
os.name = "nt"
"""

# Functions that return what they are called with, instead of torch's.
TORCH = """
import os

CUDA_HOME = os.environ.get("CUDA_HOME")

def load(name, *arguments, **named):
    if name == "broken":
        raise RuntimeError("Error building extension 'broken': C2065")
    if name == "unloadable":
        raise ImportError("DLL load failed while importing unloadable")
    return ["load", [name, *arguments], named]

def load_inline(*arguments, **named):
    return ["load_inline", list(arguments), named]
"""

# Understands `set`, `echo` and `exit /b` in a script, and prints in UTF-16, as /u asks for.
CMD = r"""
import os, re, sys

*options, script, redirection, then, last = sys.argv[1:]
assert (options, redirection, then, last) == (["/d", "/u", "/c"], "1>&2", "&&", "set")
with open("ran", "a") as file:
    file.write("once\n")
variables = {name.upper(): (name, value) for name, value in os.environ.items()}
for line in open(script.replace("\\", "/"), encoding="utf-8", newline="\r\n"):
    verb, _, rest = line.removesuffix("\r\n").partition(" ")
    if verb == "set":
        name, _, value = rest.partition("=")
        value = re.sub("%(.*?)%", lambda known: variables[known[1].upper()][1], value)
        variables[name.upper()] = (name, value)
        if not value:
            del variables[name.upper()]
    elif verb == "echo":
        sys.stderr.buffer.write(f"{rest}\r\n".encode("utf-16-le"))
    elif verb == "exit":
        sys.exit(int(rest.removeprefix("/b ")))
for name, value in variables.values():
    sys.stdout.buffer.write(f"{name}={value}\r\n".encode("utf-16-le"))
"""

SET_THERE = {
    "VSCMD_ARG_TGT_ARCH": "x64",
    "INCLUDE": r"C:\Program Files (x86)\Windows Kits\10\include;C:\R&D\Größe",
    "LIB": r"C:\Program Files\Microsoft Visual Studio\lib",
    "EQUATION": "a=b==c",
    "UNICODE": "Żółć 語 \U0001f600 \u2028 \x85 \x0b one line",
}


class Windows:
    """Its programs are below paths with spaces, and with characters that mean something to cmd."""

    def __init__(self, root: Path) -> None:
        self.root = root
        programs = root / "Program Files (x86)" / "Microsoft Visual Studio"
        self.vswhere = programs / "Installer" / "vswhere.exe"
        self.studio = programs / "2022 & more" / "Größe (^1)"
        self.vcvars = self.studio / "VC" / "Auxiliary" / "Build" / "vcvars64.bat"
        self.cl = self.studio / "VC" / "Tools" / "bin" / "cl.exe"
        self.system = root / "System 32"
        self.asked = root / "asked"
        script(self.vswhere, f'echo "$*" >> "{self.asked}"; echo "{self.studio}\r"')
        script(self.cl, 'test -n "$INCLUDE" && test -f trial.cpp')
        script(self.system / "where", f'test "$1" = cl && echo "{self.cl}\r"')
        script(self.system / "ninja", 'printf "%s %s" "$PATH" "$INCLUDE" > ran')
        write(root / "cmd.py", CMD)
        script(self.system / "cmd.exe", f'exec "{sys.executable}" -I "{root}/cmd.py" "$@"')
        self.batch(f"set Path={self.cl.parent}:%PATH%", "echo Environment initialized for: 'x64'")
        write(root / "site" / "sitecustomize.py", SITE)
        write(root / "fakes" / "torch" / "__init__.py", "class version:\n    cuda = None\n")
        write(root / "fakes" / "torch" / "utils" / "cpp_extension.py", TORCH)
        self.environment = {
            "COMSPEC": str(self.system / "cmd.exe"),
            "PATH": str(self.system),
            "PROGRAMFILES(X86)": str(root / "Program Files (x86)"),
            "PYTHONPATH": os.pathsep.join(map(str, (root / "site", root / "fakes", ROOT))),
            "PYTHONUTF8": "1",
            "TMPDIR": str(root),
        }
        # What a developer's prompt has set.
        self.prompt = {"VSCMD_ARG_TGT_ARCH": "x64", "PATH": f"{self.cl.parent}:{self.system}"}

    def batch(self, *lines: str) -> None:
        """The lines of vcvars64.bat, after those that set variables."""
        sets = [f"set {name}={value}" for name, value in SET_THERE.items()]
        write(self.vcvars, "".join(f"{line}\r\n" for line in (*sets, *lines)))

    def python(self, *words: str, **environment: str) -> subprocess.CompletedProcess:
        env = {**self.environment, **environment}
        how = {"cwd": self.root, "env": env, "capture_output": True, "encoding": "utf-8"}
        return subprocess.run([sys.executable, *words], **how)

    def told(self, code: str, **environment: str):
        """What the expression at the end of a program is, and the environment then."""
        *lines, last = f"import json, os, pathlib, sys, lltm_jit\n{code}".splitlines()
        said = f"json.dump([{last}, dict(os.environ)], sys.stdout)"
        done = self.python("-c", "\n".join([*lines, said]), **environment)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def doctor(self, **environment: str) -> subprocess.CompletedProcess:
        return self.python("-m", "lltm_jit", "doctor", **environment)


@pytest.fixture
def windows(tmp_path):
    return Windows(tmp_path)


@pytest.mark.parametrize(
    ("call", "called"),
    [
        (
            "load('m', ['a b.cpp', pathlib.Path('c')], ['/O2'], verbose=True)",
            ["load", ["m", ["a b.cpp", "c"], ["/O2"]], {"verbose": True}],
        ),
        ("load('m', pathlib.Path('a.cpp'))", ["load", ["m", ["a.cpp"]], {}]),
        ("load('m', sources='a.cpp')", ["load", ["m", ["a.cpp"]], {}]),
        (
            "load_inline('m', 'int f();', functions=['f'])",
            ["load_inline", ["m", "int f();"], {"functions": ["f"]}],
        ),
    ],
)
def test_torch_gets_the_arguments_and_the_environment_of_vcvars(windows, call, called):
    """And what was set before, such as a key of several lines."""
    key = {"KEY": "-----BEGIN\r\nKEY\n-----END"}
    given, there = windows.told(f"lltm_jit.{call}", **key)
    assert given == called
    assert {name: there[name] for name in (*SET_THERE, *key)} == SET_THERE | key
    assert there["PATH"] == f"{windows.cl.parent}:{windows.system}"
    assert there["DISTUTILS_USE_SDK"] == "1"


def test_vswhere_is_asked_for_the_newest_with_a_compiler_and_vcvars_runs_once(windows):
    windows.told("lltm_jit.load('m', 'a.cpp')\nlltm_jit.load('m', 'b.cpp')")
    words = windows.asked.read_text().split()
    assert words[:4] == ["-latest", "-products", "*", "-utf8"]
    assert "Microsoft.VisualStudio.Component.VC.Tools.x86.x64" in words
    assert (windows.vcvars.parent / "ran").read_text() == "once\n"


def test_a_developer_prompt_is_used_as_it_is(windows):
    windows.vswhere.unlink()
    before = windows.told("0", **windows.prompt)[1]
    _, there = windows.told("lltm_jit.load('m', 'a.cpp')", **windows.prompt)
    assert there == {**before, "DISTUTILS_USE_SDK": "1"}


@pytest.mark.parametrize("left", ["VSCMD_ARG_TGT_ARCH", "PATH"])
def test_half_of_a_developer_prompt_is_none(windows, left):
    _, there = windows.told("lltm_jit.load('m', 'a.cpp')", **{left: windows.prompt[left]})
    assert {name: there[name] for name in SET_THERE} == SET_THERE


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            lambda its: its.vswhere.unlink(),
            "no Visual Studio: there is no {vswhere}\n  -> install Visual Studio",
        ),
        (
            lambda its: script(its.vswhere, "exit 0"),
            "no Visual Studio with a C++ compiler, says {vswhere}\n  -> install",
        ),
        (lambda its: its.vcvars.unlink(), "there is no {vcvars}\n  -> install"),
        (
            lambda its: its.batch("echo hello", "echo [ERROR:vcvars.bat] Größe: long", "exit /b 1"),
            "{vcvars} leads to no cl.exe: [ERROR:vcvars.bat] Größe: long\n",
        ),
        (lambda its: its.batch("echo done"), "{vcvars} leads to no cl.exe: done\n"),
        (
            lambda its: (its.system / "ninja").unlink(),
            "there is no ninja\n  -> run `python -m pip install ninja`",
        ),
        (
            lambda its: its.environment.update(its.prompt, VSCMD_ARG_TGT_ARCH="x86"),
            "this prompt is for x86\n  -> use an ordinary or an x64 prompt",
        ),
    ],
    ids=["no vswhere", "nothing found", "no vcvars", "vcvars fails", "no cl", "no ninja", "x86"],
)
def test_what_is_missing_is_said_by_load_and_doctor(windows, damage, said):
    damage(windows)
    said = said.format(vswhere=windows.vswhere, vcvars=windows.vcvars)
    done = windows.python("-c", "import lltm_jit; lltm_jit.load('m', 'a.cpp')")
    assert f"LltmJitError: {said}" in done.stderr
    done = windows.doctor()
    assert done.returncode == 1
    assert f"problem  {said}" in done.stdout
    assert done.stdout.endswith("\n\nnot ready to build\n")


def test_ninja_is_found_where_pip_puts_it(windows):
    (windows.root / "Scripts").mkdir()
    (windows.system / "ninja").rename(windows.root / "Scripts" / "ninja")
    code = f"sys.prefix = {str(windows.root)!r}\nlltm_jit.load('m', 'a.cpp')"
    assert windows.told(code)[1]["PATH"].endswith(f":{windows.root / 'Scripts'}")


def test_doctor_tries_the_compiler_and_looks_for_cuda(windows):
    done = windows.doctor()
    assert done.returncode == 0
    assert f"ok       C++: {windows.cl}, ninja: {windows.system / 'ninja'}\n" in done.stdout
    assert "warning  no CUDA: torch's is None, the toolkit's folder None\n" in done.stdout

    write(windows.root / "fakes/torch/__init__.py", "class version:\n    cuda = '12.8'\n")
    home = windows.root / "CUDA v12.8"
    write(home / "bin" / "nvcc.exe", "")
    assert "warning  no CUDA: torch's is 12.8" in windows.doctor(CUDA_HOME=str(home)).stdout
    script(home / "bin" / "nvcc.exe", "exit 0")
    assert "ok       CUDA: torch's is 12.8" in windows.doctor(CUDA_HOME=str(home)).stdout

    script(windows.cl, "echo trial.cpp; echo 'fatal error C1083: no vector'; exit 2")
    done = windows.doctor()
    assert done.returncode == 1
    assert f"problem  {windows.cl} fails: fatal error C1083: no vector\n" in done.stdout


@pytest.mark.parametrize("kind", ["BuildError", "LltmJitError", "ImportError", "RuntimeError"])
def test_failures_of_torch_are_caught_by_the_names_of_the_engines_errors(windows, kind):
    code = f"""from lltm_jit import *
said = {{}}
for name in ("broken", "unloadable"):
    try:
        load(name, "a.cpp")
    except {kind} as error:
        said[name] = str(error)
said"""
    said = windows.told(code)[0]
    assert said["broken"] == "Error building extension 'broken': C2065"
    assert said["unloadable"] == "DLL load failed while importing unloadable"


def test_a_folder_as_source_is_refused(windows):
    done = windows.python("-c", "import lltm_jit; lltm_jit.load('m', ['a.cpp', 'site'])")
    assert f"LltmJitError: a folder as source (site) {ELSEWHERE}\n" in done.stderr


def test_every_other_public_name_says_where_it_works(windows):
    works = {"load", "load_inline", "BuildError", "CacheError", "LltmJitError", "ToolchainError"}
    names = sorted({*lltm_jit.__all__} - works - {"load_ipython_extension"})
    code = f"""said = {{}}
for name in {names}:
    said[name] = [hasattr(lltm_jit, name)]
    for way in (f"lltm_jit.{{name}}", f"from lltm_jit import {{name}}"):
        try:
            exec(way)
        except (AttributeError, ImportError) as error:
            said[name] += [type(error).__name__, str(error)]
[said, lltm_jit.__all__, lltm_jit.__version__]"""
    (said, public, version), _ = windows.told(code)
    for name in names:
        line = f"lltm_jit.{name} {ELSEWHERE}"
        assert said[name] == [False, "AttributeError", line, "LltmJitError", line]
    assert set(public) == works
    assert version == lltm_jit.__version__


def test_every_other_module_and_the_magics_say_where_they_work(windows):
    files = [file.relative_to(ROOT) for file in (ROOT / "lltm_jit").rglob("*.py")]
    names = [".".join(file.with_suffix("").parts).removesuffix(".__init__") for file in files]
    code = f"""import importlib
said = {{}}
for name in {names}:
    try:
        importlib.import_module(name)
    except ImportError as error:
        said[name] = str(error)
try:
    lltm_jit.load_ipython_extension(None)
except ImportError as error:
    said["magics"] = str(error)
said"""
    said, _ = windows.told(code)
    modules = {"_start", "_version", "_windows", "__main__"}
    refused = {*names} - {"lltm_jit", *(f"lltm_jit.{name}" for name in modules)}
    assert said.keys() == {*refused, "magics"}
    assert {text.partition(" ")[2] for text in said.values()} == {ELSEWHERE}


def test_every_other_command_says_where_it_works(windows):
    commands = [[], ["--version"], *([name] for name in COMMANDS if name != "doctor")]
    code = f"""from lltm_jit.__main__ import run
said = []
for sys.argv[1:] in {commands}:
    assert run() == 1
said"""
    done = windows.python("-c", f"import sys\n{code}")
    lines = [f"error: {' '.join(['lltm-jit', *words])} {ELSEWHERE}" for words in commands]
    assert done.stderr.splitlines() == lines


def test_torchs_own_function_is_satisfied(windows):
    """Its branches for Windows run as far as ninja, also after a vcvars that names no target."""
    windows.batch(f"set Path={windows.cl.parent}:%PATH%", "set VSCMD_ARG_TGT_ARCH=")
    build = windows.root / "build here"
    build.mkdir()
    write(windows.root / "my sources" / "a.cpp", "int main() {}\n")
    code = """from torch.utils import cpp_extension
cpp_extension.IS_WINDOWS = True
kind = {"is_python_module": False, "is_standalone": True}
place = {"build_directory": pathlib.Path("build here")}
lltm_jit.load("mine", pathlib.Path("my sources", "a.cpp"), **kind, **place)"""
    paths = os.pathsep.join(map(str, (windows.root / "site", ROOT)))
    first = "torch torch.utils.cpp_extension"
    program, _ = windows.told(code, PYTHONPATH=paths, IMPORTED_FIRST=first)
    assert program.endswith("mine")
    path = f"{windows.cl.parent}:{windows.system}"
    assert (build / "ran").read_text() == f"{path} {SET_THERE['INCLUDE']}"
    rules = (build / "build.ninja").read_text()
    assert "command = cl /showIncludes" in rules
    assert f'command = "{windows.cl.parent}/link.exe" $in' in rules
