"""Compiles one source: with narrow headers first, and with both halves of nvcc's work in parallel.

Ninja starts this file by its path, with the standard library alone. Its arguments are the folder of
the narrow headers or nothing, whether nvcc's halves run in parallel, and the compiler's command.
Ninja sees one command, so that nothing else waits. If the narrow headers fail, the full headers are
used, and the error goes to a file with the object's name beside the narrow headers. By itself, nvcc
compiles a source for the host and for each GPU one after the other, and reads all headers each
time; ``nvcc --dryrun`` prints its steps.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import zlib
from typing import NamedTuple

_ERROR = re.compile(r"(?m)^.*?\b(?:fatal )?error\b(?: #[\w-]+)?: (.*)$")
# Errors that no header cures, and names that a header might declare.
_SYNTAX = re.compile(
    r"expected (?:a |an )?(?:[\"‘'][^\w\"’']+[\"’']|expression|identifier|declaration$)"
    r"|.*: No such file|cannot open source file|'.*' file not found"
    r"|expected .* at end of input|missing terminating|unterminated|stray "
    r"|.*aborting due to|.*\d+ errors? detected"
)
_UNDECLARED = re.compile(
    r"[‘'](\w+)[’'] (?:was not declared in this scope|does not name a type)"
    r"|identifier \"(\w+)\" is undefined|use of undeclared identifier '(\w+)'"
)


def main(folder: str, halves: bool, command: list[str]) -> int:
    if not folder:
        status, said = _compile(command, halves)
        sys.stdout.buffer.write(said)
        return status
    at = command.index("-isystem")
    status, said = _compile([*command[:at], "-isystem", folder, *command[at:]], halves)
    text = said.decode("utf-8", "replace")
    if status == 0 or status > 128 or _is_final(text, command):
        sys.stdout.buffer.write(said)
        return status
    status, said = _compile(command, halves)
    sys.stdout.buffer.write(said)
    if status == 0:
        error = _ERROR.search(text)
        target = command[command.index("-o") + 1]
        with open(os.path.join(folder, target), "w", encoding="utf-8") as file:
            file.write(error[1] if error else text)
    return status


def _compile(command: list[str], halves: bool) -> tuple[int, bytes]:
    """A command's exit status, as a shell numbers it, and its output."""
    if halves:
        with tempfile.TemporaryDirectory(prefix="lltm_jit-") as folder:
            if steps := _steps(command, folder):
                return steps.run()
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode if done.returncode >= 0 else 128 - done.returncode, done.stdout


class _Steps(NamedTuple):
    """nvcc's steps as shell commands: those of each half, and the last one, which needs both."""

    folder: str
    environment: dict[str, str]
    host: list[str]
    gpu: list[str]
    last: str
    report: str  # the file that tells which headers were read

    def run(self) -> tuple[int, bytes]:
        """The status and the output, which ends with the first error, as nvcc's does."""
        halves = host, gpu = self._start("host", self.host), self._start("gpu", self.gpu)
        try:
            status, parts = host.wait(), ["host"]
            if status == 0:
                status, parts = gpu.wait(), ["host", "gpu"]
            if status == 0:
                status, parts = self._start("last", [self.last]).wait(), ["host", "gpu", "last"]
        finally:
            for each in halves:
                if each.poll() is None:
                    os.killpg(each.pid, signal.SIGTERM)
                    each.wait()
        if status == 0:
            self._report()
        said = b"".join(map(self._read, parts))
        return status if status >= 0 else 128 - status, said

    def _start(self, name: str, steps: list[str]) -> subprocess.Popen[bytes]:
        with open(os.path.join(self.folder, name), "wb") as output:
            return subprocess.Popen(
                " && ".join(steps),
                shell=True,
                env=self.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=os.setpgrp,
            )

    def _read(self, name: str) -> bytes:
        with open(os.path.join(self.folder, name), "rb") as file:
            return file.read()

    def _report(self) -> None:
        """Write one rule with the files that both halves have read."""
        names = sorted(name for name in os.listdir(self.folder) if name.endswith(".d"))
        first, *more = (self._read(name).strip() for name in names)
        rest = [b" \\\n" + text.partition(b":")[2] for text in more]
        with open(self.report, "wb") as file:
            file.write(b"".join([first, *rest, b"\n"]))


def _steps(command: list[str], folder: str) -> _Steps | None:
    """nvcc's steps for a command, with a folder for its temporary files; None if this nvcc takes
    other steps than the known ones.
    """
    if re.search(r'["$`\\]', "".join(command)):  # nvcc may print these without quotes
        return None
    environment = {**os.environ, "TMPDIR": folder}
    done = subprocess.run([*command, "--dryrun"], env=environment, stderr=subprocess.PIPE)
    told = done.stderr.decode("utf-8", "surrogateescape")
    lines = [line[3:].rstrip() for line in told.splitlines() if line.startswith("#$ ")]
    settings = [line.partition("=") for line in lines if re.match(r"\w+=", line)]
    environment.update({name: value for name, _, value in settings})
    steps = [line for line in lines if not re.match(r"\w+=|rm |-- Filter", line)]
    host = [each for each in steps if each.endswith('.cpp4.ii"') or each.startswith("cudafe++ ")]
    gpu = [each for each in steps[:-1] if each not in host]
    known = r'(?:"\$CICC_PATH/cicc"|ptxas|fatbinary) |.* -E -x c\+\+ .*\.cpp1\.ii"$'
    if done.returncode or len(host) != 2 or not all(re.match(known, each) for each in gpu):
        return None
    # The host half chooses the module's id, and the GPU half waits for it: choose the id here.
    named = re.search(r'--gen_module_id_file (--module_id_file_name "(.+?)")', host[1])
    if not named or not all(named[1] in each for each in gpu if "/cicc" in each):
        return None
    host[1] = host[1].replace("--gen_module_id_file ", "")
    source, target, report = (command[command.index(flag) + 1] for flag in ("-c", "-o", "-MF"))
    name = re.sub(r"\W", "_", os.path.basename(source))
    with open(named[2], "w", encoding="utf-8") as file:
        path, flags = (zlib.crc32(text.encode()) for text in (os.path.abspath(source), host[1]))
        file.write(f"_{path:08x}_{len(name)}_{name}_{flags:08x}")
    for half in (host, gpu):
        for number, step in enumerate(half):
            if " -E " in step:
                read = os.path.join(folder, f"{'gpu' if half is gpu else 'host'}{number}.d")
                words = shlex.join(["-E", "-MD", "-MF", read, "-MT", target])
                half[number] = step.replace(" -E ", f" {words} ", 1)
    return _Steps(folder, environment, host, gpu, steps[-1], report)


def _is_final(said: str, command: list[str]) -> bool:
    """Whether the errors in a compiler's output would remain with the full headers."""
    names = set()
    for error in _ERROR.findall(said):
        if undeclared := _UNDECLARED.match(error):
            names.add(undeclared[undeclared.lastindex or 0])
        elif not _SYNTAX.match(error):
            return False
    return not names or names.isdisjoint(_names_of_full_headers(command))


def _names_of_full_headers(command: list[str]) -> set[str]:
    """All words in the text of the full headers, including those of macros."""
    words = iter(command)
    options = []
    for word in words:
        if word in ("-isystem", "-I", "-D"):
            options += [word, next(words)]
        elif word.startswith(("-I", "-D", "-std=")):
            options.append(word)
    text = "#include <torch/extension.h>\n"
    compiler = shlex.split(os.environ.get("CXX") or "c++")
    asked = [*compiler, "-E", "-dD", "-x", "c++", *options, "-"]
    done = subprocess.run(
        asked, input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    return set(re.findall(r"\w+", done.stdout.decode("utf-8", "replace")))


if __name__ == "__main__":
    # Remove the temporary files when the build is ended, as nvcc does.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    status = main(sys.argv[1], sys.argv[2] == "halves", sys.argv[3:])
    sys.stdout.flush()
    os._exit(status)
