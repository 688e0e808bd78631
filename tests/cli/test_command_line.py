"""What stands around the commands: help, version, misspelt words, completion, the script."""

import argparse
import os
import shutil
import signal
import subprocess
import sys

import pytest
from small_checkout import CHECKOUT, run_in
from small_files import write

import lltm_jit
from lltm_jit.cli import COMMANDS, Parser, help_of, log, main, module_of

SCRIPT = "import sys\nfrom lltm_jit.__main__ import run\nsys.exit(run())\n"
RUNS = "from lltm_jit import native\nprint('loaded:', *native.builds())\n"


def said_at_exit(capsys, *words):
    """The exit code, and what is printed on both streams."""
    with pytest.raises(SystemExit) as stop:
        main(words)
    return stop.value.code, *capsys.readouterr()


def actions_of(parser):
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from actions_of(each)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_explains_every_option_and_has_examples(command, capsys):
    code, out, _ = said_at_exit(capsys, command, "-h")
    assert code == 0
    assert f"\n\n{command}: {help_of(command)[0]}." in out
    assert f"\nexamples:\n  python -m lltm_jit {command} " in out
    parser = argparse.ArgumentParser()
    module_of(command).add_arguments(parser)
    assert [action.dest for action in actions_of(parser) if not action.help] == (
        ["action"] if command == "cache" else []
    )


def test_help_has_all_commands(capsys):
    assert said_at_exit(capsys, "--version") == (0, f"lltm_jit {lltm_jit.__version__}\n", "")
    code, out, _ = said_at_exit(capsys, "-h")
    assert code == 0
    for name in COMMANDS:
        assert f"\n  {name:<18}{help_of(name)[0]}\n" in out
    assert max(map(len, out.splitlines())) <= 100
    assert main([]) == 2
    assert capsys.readouterr().err == out


def test_the_parser_of_a_subcommand_takes_what_python_gives_it():
    """From 3.14 on that is more than its name: `color`, here another one that all versions know."""
    actions = Parser("mine").add_subparsers()
    assert actions.add_parser("list", allow_abbrev=False).allow_abbrev is False


def test_other_names(capsys):
    for alias in ("grad_check", "grad-check", "check_grad", "compile_commands"):
        code, out, _ = said_at_exit(capsys, alias, "-h")
        assert code == 0
        assert f"\n\n{'compile-commands' if 'compile' in alias else 'check-grad'}: " in out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["benchmrak"], "error: no command 'benchmrak'; did you mean benchmark?"),
        (["build", "--frce"], "error: there is no option --frce; did you mean --force?"),
        (["cache", "list", "7"], "error: unexpected argument '7'"),
        (["cache"], "error: the following arguments are required: {list,why,prune,clear}"),
        (["check", "forward", "-b", "0"], "expected a whole number above 0, but got '0'"),
        (["check", "forward", "-b", "x"], "expected a whole number above 0, but got 'x'"),
        (["benchmark", "sequence"], "invalid choice: 'sequence' (choose from "),
    ],
)
def test_a_wrong_word_is_refused_with_a_way_on(words, error, capsys):
    code, out, err = said_at_exit(capsys, *words)
    assert (code, out) == (2, "")
    assert error in err
    name = "" if words == ["benchmrak"] else f" {words[0]}"
    assert f"-> `python -m lltm_jit{name} -h`" in err


def test_the_script_is_a_command_too(tmp_path):
    """An import in a program starts builds; one in a command does not."""
    (tmp_path / "lltm-jit").write_text(SCRIPT)
    where = {"TORCH_EXTENSIONS_DIR": str(tmp_path / "builds")}
    done = run_in(CHECKOUT, tmp_path / "lltm-jit", "info", "--jsn", code=2, **where)
    assert done.stderr.startswith("usage: lltm-jit info [-h] ")
    assert "did you mean --json?\n  -> `lltm-jit info -h`" in done.stderr
    assert not (tmp_path / "builds").exists()


COMPLETE = """
source "$1"
COMP_WORDS=("${@:2}")
COMP_CWORD=$(($# - 2))
$(complete -p lltm-jit | sed 's/.*-F \\([^ ]*\\).*/\\1/')
echo "${COMPREPLY[*]}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_words(tmp_path, told):
    (tmp_path / "script").write_text(told("--completion", "bash"))

    def completed(*words):
        command = ["bash", "-c", COMPLETE, "bash", tmp_path / "script", "lltm-jit", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    assert completed("b") == ["build", "benchmark"]
    assert completed("benchmark", "c") == ["cpp", "cuda"]
    assert completed("new", "blend", "--st") == ["--standalone"]
    assert completed("cache", "p") == ["prune"]


def test_completion_without_what_writes_it(told, monkeypatch):
    monkeypatch.setattr("lltm_jit.cli.find_spec", lambda path: None)
    said = "error: --completion needs shtab\n  -> `python -m pip install shtab`\n"
    assert told("--completion", "zsh", code=1) == said


def test_a_program_of_a_users_own_is_no_command(tmp_path, builds):
    """Also one of the name of ours, with the word that starts a command."""
    write(tmp_path / "benchmarks" / "__init__.py", "import lltm_jit\n")
    write(tmp_path / "benchmarks" / "__main__.py", RUNS)
    done = run_in(CHECKOUT, "-m", "benchmarks", "lltm_jit", cwd=tmp_path)
    assert done.stdout == "loaded: rnn\n", done.stderr


@pytest.mark.parametrize("read", [True, False])
def test_ctrl_c_shows_what_there_is_if_somebody_reads_it(read, monkeypatch):
    """Nobody does where Ctrl-C ended the other end of the pipe, too."""

    def run(args):
        print("half a table")
        raise KeyboardInterrupt

    monkeypatch.setattr(log, "run", run)
    reading, writing = os.pipe()
    if not read:
        os.close(reading)
    if not (child := os.fork()):
        try:
            sys.stdout = os.fdopen(writing, "w")
            main(["log"])
        finally:
            os._exit(1)
    os.close(writing)
    if read:
        with open(reading) as stdout:
            assert stdout.read() == "half a table\n"
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGINT


@pytest.mark.slow
def test_a_path_that_the_terminal_cannot_show_is_shown_all_the_same(tmp_path):
    variables = {"TORCH_EXTENSIONS_DIR": str(tmp_path / "größe"), "PYTHONIOENCODING": "ascii"}
    done = run_in(CHECKOUT, "-m", "lltm_jit", "cache", "list", **variables)
    assert done.stderr == ""
    assert "gr\\xf6\\xdfe" in done.stdout
