"""The message made of real compilers' output; ``golden/record.py`` recorded it."""

import os
import re
import shlex
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from golden import record

from lltm_jit.jit import BuildError
from lltm_jit.jit.compile import diagnostics
from lltm_jit.jit.request.spec import Spec

GOLDEN = Path(__file__).parents[1] / "golden"
LOGS = {str(path.relative_to(GOLDEN).with_suffix("")): path for path in GOLDEN.glob("*/*.log")}


def asked(name: str, *sources: str, **fields) -> SimpleNamespace:
    """A request, as far as messages look at one."""

    def is_own(file: str) -> bool:
        return file in sources or (os.path.isabs(file) and not file.startswith(("/usr/", "/opt/")))

    spec = Spec(name, sources, **fields)
    return SimpleNamespace(spec=spec, is_own=is_own, path_of=str, work=Path.cwd(), objects=())


def explained(log: str, status: int = 1) -> BuildError:
    """The error for a log, as if its sources were those of an extension."""
    request = asked("case", *record.SOURCES)
    return diagnostics.explain(log, request, Path("build.log"), status, jobs=8)


def message(log: str, status: int = 1) -> str:
    return f"{explained(log, status)}\n"


def expected() -> dict[str, str]:
    text = (GOLDEN / "messages.txt").read_text("utf-8")
    # The package to install is named after the Python that runs.
    text = text.replace("python3.11-dev", f"python{sys.version_info[0]}.{sys.version_info[1]}-dev")
    return dict(re.findall(r"^### ([\w/]+)\n(.*?\n)(?=###|\Z)", text, re.MULTILINE | re.DOTALL))


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """The sources of the logs, in the working directory."""
    record.write_sources(tmp_path)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("case", sorted(LOGS))
def test_message(case, sources, monkeypatch):
    """The parts of an error are those of its text. Colours, which CLICOLOR_FORCE may have the tools
    print, change nothing.
    """
    # A library that is installed here would be named by its place.
    monkeypatch.setattr("sysconfig.get_path", lambda name: f"/nowhere/{name}")
    log = LOGS[case].read_text("utf-8")
    assert message(log) == expected()[case]
    coloured = "".join(f"\x1b[01m\x1b[K{line}\x1b[m\x1b[K\n" for line in log.splitlines())
    assert message(coloured) == message(log)
    error = explained(log)
    place = ":".join(str(part) for part in (error.file, error.line, error.column) if part)
    told = f"error: {error.message}\n" + (f"  --> {place}\n" if place else "   = ")
    assert str(error).startswith(told)
    assert error.log == "build.log"


def test_every_message_has_its_log():
    assert sorted(expected()) == sorted(LOGS)


def test_a_file_is_named_as_seen_from_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec = asked("case", f"{tmp_path}/kernels/op.cpp")
    for file, shown in ((f"{tmp_path}/kernels/a.h", "kernels/a.h"), ("/home/me/b.h",) * 2):
        error = diagnostics.explain(f"{file}:7:1: error: x\n", spec, Path("build.log"), 1, jobs=8)
        assert str(error).splitlines()[1] == f"  --> {shown}:7:1"


def test_warnings_of_the_users_code_are_shown_each_once(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "op.cpp"
    source.write_text("int f() {}\n" * 7)
    spec = asked("op", str(source))
    of_gcc = [f"{source}:{n}:10: warning: no return [-Wreturn-type]" for n in range(1, 8)]
    of_nvcc = f'{source}(1): warning #177-D: variable "x" was declared but never referenced'
    log = "\n".join(["/usr/include/c++/vector:3:1: warning: theirs", of_nvcc, of_nvcc, *of_gcc])
    told = diagnostics.warnings(log, spec)
    assert told[0].splitlines()[:2] == [
        'warning: variable "x" was declared but never referenced',
        "  --> op.cpp:1",
    ]
    assert told[1].splitlines() == [
        "warning: no return [-Wreturn-type]",
        "  --> op.cpp:1:10",
        "  |",
        "1 | int f() {}",
        "  |          ^",
    ]
    assert told[5:] == ["and 3 more warnings: `python -m lltm_jit log op`"]


def test_names_of_functions_are_as_in_the_source():
    error = "x.so: undefined symbol: _ZN3foo3barERKN2at6TensorE"
    said = diagnostics.explain_import(error, "/_Z/x.so", asked("x"))
    assert said.splitlines() == [
        "error: the built library cannot be imported: x.so: undefined symbol: "
        "foo::bar(at::Tensor const&)",
        "   = no source or library given defines foo::bar(at::Tensor const&): add the source or "
        "the -l flag that does; if it belongs to torch, torch was replaced without a new version "
        "number",
        "   = /_Z/x.so",
    ]


@pytest.mark.parametrize(
    "error",
    [
        "'Tensor' in namespace 'torch' does not name a type",  # gcc
        "'zeros' is not a member of 'at'",
        "'torch' has not been declared",
        "'torch' was not declared in this scope",
        "no type named 'Tensor' in namespace 'torch'",  # clang
        "no member named 'zeros' in namespace 'at'; did you mean 'zero'?",
        "use of undeclared identifier 'torch'",
        'namespace "torch" has no member "Tensor"',  # nvcc
    ],
)
def test_what_torch_declares_gets_its_header(error):
    lines = message(f"empty.cpp:1:1: error: {error}\n").splitlines()
    assert any("include the header that declares it, such as <torch/ext" in line for line in lines)
    other = error.replace("torch", "torchlike").replace("'at'", "'std'")
    assert "<torch/extension.h>" not in message(f"empty.cpp:1:1: error: {other}\n")


def test_long_lines_are_read_in_no_time():
    began = time.process_time()  # which other programs have no part in
    assert message("x" * 100_000 + "\n" + "'" * 100_000 + "\n", 3).startswith(
        "error: the build fail"
    )
    assert time.process_time() - began < 5  # half a minute each, where the time grows as the square


def test_a_log_without_any_error():
    doctor = "   = run `python -m lltm_jit doctor` to test the compilers\n"
    for log, status, told in (
        ("", -9, "process was ended by SIGKILL\n   = most likely memory ran out"),
        ("", -15, f"process was ended by SIGTERM\n{doctor}"),
        ("", -11, f"process was ended by SIGSEGV\n{doctor}"),  # no compiler that crashed
        ("words\nlast words\n", 3, f"failed with status 3: last words\n{doctor}"),
        ("# jobs: 1\n", 3, "failed with status 3 and printed nothing\n"),
    ):
        assert message(log, status).startswith(f"error: the build {told}")
    assert message("nothing\n", 0).startswith("error: the compiler reported no error, but produced")


@pytest.mark.parametrize(
    ("code", "said", "told"),
    [
        ("[code=2] ", "cxx: no licence\nTry --help\n", " with status 2: cxx: no licence"),
        ("[code=2] ", "", " with status 2 and printed nothing"),
        ("", "cxx: no licence\n", ": cxx: no licence"),  # by a ninja before 1.13
    ],
)
def test_what_an_unknown_compiler_said_is_told(code, said, told):
    step = f"[1/2 0.1] cxx -c empty.cpp\nFAILED: {code}empty.o\ncxx -c empty.cpp\n{said}"
    end = "ninja: build stopped: subcommand failed.\nRuntimeError: Error building extension 'x'"
    lines = message(f"{step}{end}\n").splitlines()
    assert lines[0] == f"error: cxx failed{told}"
    assert lines[1] == "   = run `python -m lltm_jit doctor` to test the compilers"


@pytest.mark.parametrize(
    ("said", "cure"),
    [("Killed", "MAX_JOBS"), ("Segmentation fault", "the compiler itself crashed")],
)
def test_a_signal_is_known_by_what_the_shell_says_of_it(said, cure):
    """ninja has codes from 1.13 on."""
    step = f"[1/2 0.1] cxx -c a.cpp\nFAILED: a.o \ncxx -c a.cpp\n{said}\n"
    assert cure in message(step).splitlines()[1]


@pytest.mark.parametrize(
    ("code", "how"), [(137, "SIGKILL"), (139, "SIGSEGV"), (152, "SIGXCPU"), (190, "signal 62")]
)
def test_a_compiler_that_dies_without_a_word_gets_its_signal_named(code, how):
    command = "cxx -c empty.cpp -o empty.o"
    step = f"[1/2 0.1] {command}\nFAILED: [code={code}] empty.o\n{command}\n"
    lines = message(step).splitlines()
    assert lines[0] == f"error: the compiler was ended by {how}"
    assert lines[1] == "  --> empty.cpp"
    assert ("the compiler itself crashed" in lines[2]) == (code == 139)


def test_what_the_users_source_says_is_no_cause():
    """The compiler quotes it, with what would have a cure."""
    quoted = '    1 |   throw std::runtime_error("out of memory, no space left on device");\n'
    lines = message(f"empty.cpp:1:9: error: x\n{quoted}      |         ^~~\n").splitlines()
    assert [line for line in lines if line.startswith("   = ")] == lines[-1:]


@pytest.mark.parametrize("name", ["empty.cpp", "a b/empty.cpp"])
def test_an_error_of_a_tool_names_the_file_that_it_was_given(name):
    compiling = f"[1/2 0.1] c++ -c {shlex.quote(name)} -o empty.o\n"
    killed = "c++: fatal error: Killed signal terminated program cc1plus\n"
    assert f"  --> {name}\n" in message(compiling + killed)
    linking = "[2/2 0.2] c++ empty.o -shared -o case.so\n"
    lines = message(f"{compiling}{linking}/usr/bin/ld: cannot find -lnosuch\n").splitlines()
    assert lines[0] == "error: cannot find -lnosuch"
    assert not any("-->" in line for line in lines)
