"""Compiles a source with narrow headers, and where that fails, with torch's full ones.

It is started by file path, with the standard library alone: the folder of the narrow headers, and
the compiler's command. Ninja sees one command, so that nothing else waits. What had to be compiled
with the full headers is told in a file beside the object.
"""

import os
import re
import shlex
import subprocess
import sys

FULL = ".full"  # the end of that file's name
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


def main(folder: str, command: list[str]) -> int:
    at = command.index("-isystem")
    narrow = [*command[:at], "-isystem", folder, *command[at:]]
    done = subprocess.run(narrow, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    said = done.stdout.decode("utf-8", "replace")
    if done.returncode <= 0 or done.returncode > 128 or _is_final(said, command):
        sys.stdout.buffer.write(done.stdout)
        return done.returncode
    status = subprocess.call(command)
    if status == 0:
        error = _ERROR.search(said)
        with open(command[command.index("-o") + 1] + FULL, "w", encoding="utf-8") as file:
            file.write(error[1] if error else said)
    return status


def _is_final(said: str, command: list[str]) -> bool:
    """Whether the full headers would not cure the errors in a compiler's output."""
    names = set()
    for error in _ERROR.findall(said):
        if undeclared := _UNDECLARED.match(error):
            names.add(undeclared[undeclared.lastindex or 0])
        elif not _SYNTAX.match(error):
            return False
    return not names or names.isdisjoint(_names_of_full_headers(command))


def _names_of_full_headers(command: list[str]) -> set[str]:
    """All words of what the full headers bring, also those of macros."""
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


def told(target: str) -> str:
    """The error because of which an object was compiled with the full headers; empty if none."""
    try:
        with open(target + FULL, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""


if __name__ == "__main__":
    status = main(sys.argv[1], sys.argv[2:])
    sys.stdout.flush()
    os._exit(status if status >= 0 else 128 - status)
