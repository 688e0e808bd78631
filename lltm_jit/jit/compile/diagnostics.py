"""Finds the first real error in the compilers' raw output, and shows the user's line and a fix.

Warnings of a build that succeeds are shown in the same way.
"""

from __future__ import annotations

import os
import re
import signal
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import torch

from ..machine.tools import output_of
from ..request.request import Request
from ..request.spec import BINDINGS, CELL
from ..user.causes import cure_of
from ..user.errors import BuildError
from ..user.progress import STEP, compiled_file, many, plain

_FLAGS = "<command-line>"  # where g++ places an error in a macro that a flag defines
# gcc and clang: file:line:column: error: text; nvcc: file(line): error: text.
_PLACED = re.compile(
    rf"(?:(?P<file>[^\s:][^:]*?)[:(](?P<line>\d+)(?::(?P<column>\d+)|\))?|{_FLAGS}): "
    r"(?:(?:(?:fatal |catastrophic )?error|(?P<warning>warning)|(?P<note>note))(?: #[\w-]+)?: "
    r"|(?=internal compiler error: ))(?P<text>.*)"
)
# Errors of tools that know no source line: linkers, drivers, the assembler, ninja, the shell. The
# pattern skips their last lines, which only sum up the earlier ones.
_OF_TOOL = re.compile(
    r"(?!.*(?:ld returned \d+ exit|linker command failed|aborted due to errors))"
    r"(?:(?:.*?: )?(?=undefined reference to |multiple definition of )"
    r"|(?:\S*/)?(?:ld|ld\.\w+|collect2): (?!.* in function )"
    r"|(?:nvcc|ptxas|nvlink|cicc|fatbinary)[^:]*?(?:error|fatal)\s*: |nvrtc: error: "
    r"|(?:\S*/)?[\w.+-]*(?:\+\+|gcc|cc|clang|cc1plus)(?:-[\d.]+)?: (?:fatal )?error: "
    r"|(?:cc1plus: )?(?=out of memory |virtual memory exhausted)"
    r"|\S+: Fatal error: |error: |ninja: (?:error|fatal): "
    r"|(?:\S*/)?(?:ba|da)?sh: (?:(?:line )?\d+: )?(?=.*(?:not found|denied|annot fork)$))"
    r"(?P<text>.*)"
)
# ninja repeats a failed command, then prints its output; from 1.13 on also its exit status.
_FAILED = re.compile(
    r"^FAILED: (?:\[code=(?P<code>\d+)\])?.*\n(?P<command>(?P<tool>\S*).*)\n"
    r"(?:(?!ninja: |\[\d)(?P<said>.+))?",
    re.MULTILINE,
)
# How gcc and clang, and nvcc, name the line that led to a template or a macro.
_WAYS = (
    r"(?P<file>[^\s:]+):(?P<line>\d+):(?P<column>\d+): "
    r"(?: +required from|note: in expansion of macro|note: .*requested here$)",
    r".*instantiation of .* at line (?P<line>\d+) of (?P<file>.+)",
)
_CARET = r"[ \t|~]*\^[ |~^]*"  # below the line that a compiler quotes
_WARNINGS, _REASONS = 5, 3  # the most that a message shows


class _Error(NamedTuple):
    """A compiler's error: its text, its place, and the reasons that the compiler adds."""

    text: str
    file: str = ""
    line: int = 0  # 0 if unknown, like the column
    column: int = 0
    rest: str | None = None  # the quoted line from the caret on
    inside: str = ""  # the place in a library, or the flag, that the user's line led to
    reasons: tuple[str, ...] = ()


def explain(log: str, request: Request, log_path: Path, status: int, jobs: int) -> BuildError:
    """The error of a failed build: its first error with the line, the reasons, the fix, the log."""
    errors, warned = _parse(log, request)
    first = errors[0] if errors else _last_words(log, status)
    text, excerpt, column = _demangled(first.text), *_excerpt(first, request)
    place = [f"{name}: " for name in (BINDINGS, _FLAGS) if name in (first.file, first.inside)]
    reasons = [*first.reasons, *_uses(r"undefined reference to `(.+)'", text, log)]
    cure = cure_of("\n".join(["".join(place) + text, *reasons]), jobs)
    if not (cure or errors):
        cure = "run `python -m lltm_jit doctor` to test the compilers"
    counted = {"more error": len(errors) - 1, "warning": len(warned)}
    counts = ", ".join(many(count, word) for word, count in counted.items() if count > 0)
    more = f" ({counts})" if counts else ""
    # Programs search messages for these words, which are torch's.
    end = f"Error building extension '{request.spec.name}'{more}; full log: {log_path}"
    inside = first.inside and f"inside {first.inside}"
    below = [f"   = {each}" for each in (inside, *reasons, cure, end) if each]
    return BuildError(
        "\n".join([f"error: {text}", *excerpt, *below]),
        file=request.spec.cell if first.file == CELL else first.file or None,
        line=first.line or None,
        column=column or None,
        message=text,
        log=str(log_path),
    )


def explain_import(error: str, library: str, request: Request) -> str:
    """The message when a finished library cannot be imported."""
    lines = [f"the built library cannot be imported: {error.partition(chr(10))[0]}"]
    if "undefined symbol" in error:
        objects = [str(request.work / name) for name in request.objects]
        link = ["ld", "-shared", "-z", "defs", "--no-demangle", "-o", os.devnull, *objects]
        lines += _uses(r"undefined symbol: (?!__cuda)(\w+)", error, output_of(link))
    told = _demangled("\n   = ".join(filter(None, [*lines, cure_of(error)])))
    return f"error: {told}\n   = {library}"


def warnings(log: str, request: Request) -> list[str]:
    """The first warnings about the user's own code, each with its line, and how many follow."""
    own = [warning for warning in _parse(log, request)[1] if request.is_own(warning.file)]
    shown = [[f"warning: {each.text}", *_excerpt(each, request)[0]] for each in own[:_WARNINGS]]
    told = ["\n".join(lines) for lines in shown]
    if own[_WARNINGS:]:
        more = many(len(own[_WARNINGS:]), "more warning")
        told.append(f"and {more}: `python -m lltm_jit log {request.spec.name}`")
    return told


def _parse(log: str, request: Request) -> tuple[list[_Error], list[_Error]]:
    """The errors in a build's output, in order, and the warnings, each once."""
    blocks = [[""]]  # each begins with a step, or with an error that has a place
    for line in plain(log).splitlines():
        match = _PLACED.match(line)
        if re.match(STEP, line) or (match and not match["note"]):
            blocks.append([])
        blocks[-1].append(line)
    errors: list[_Error] = []
    warned: dict[_Error, None] = {}  # nvcc repeats them
    compiled, before = "", list[str]()
    for first, *after in blocks:
        if step := re.match(STEP, first):
            compiled = compiled_file(step[3])  # empty for the link
        elif match := _PLACED.match(first):
            error = _placed(match, before, after, request)
            warned.setdefault(error) if match["warning"] else errors.append(error)
        for line in after:
            if not _PLACED.match(line) and (match := _OF_TOOL.match(line)):
                errors.append(_Error(match["text"], compiled))
        before = after
    return errors, [*warned]


def _placed(match: re.Match[str], before: list[str], after: list[str], request: Request) -> _Error:
    """An error that has a place; an error in a library is moved to the user's line that led there.

    gcc prints the way there before the error, clang and nvcc after it.
    """
    file, line = match["file"] or _FLAGS, int(match["line"] or 0)
    rest, reasons = _quoted(after, request)
    ways = (re.match(way, each) for each in (*reversed(before), *after) for way in _WAYS)
    way = next((way for way in ways if way and request.is_own(way["file"])), None)
    if way is None or request.is_own(file):
        return _Error(match["text"], file, line, int(match["column"] or 0), rest, "", reasons)
    place = (way["file"], int(way["line"]), int(way.groupdict().get("column", 0)))
    return _Error(match["text"], *place, None, f"{file}:{line}" if line else file, reasons)


def _quoted(after: list[str], request: Request) -> tuple[str | None, tuple[str, ...]]:
    """The quoted source line from the caret on, and the reasons that the compiler adds."""
    rest, reasons = None, []
    own = [*takewhile(lambda line: not _PLACED.match(line), after)]
    if caret := next((n for n, line in enumerate(own) if n and re.fullmatch(_CARET, line)), 0):
        rest = own[caret - 1][own[caret].index("^") :]
        # nvcc lists here the types that do not match.
        reasons = [line.strip() for line in own[: caret - 1] if line.startswith(" " * 12)]
    for line in after:
        note = None if re.match(_WAYS[0], line) or "built-in" in line else _PLACED.match(line)
        if note and request.is_own(note["file"] or ""):
            place = _place(note["file"], request, int(note["line"]))
            reasons.append(f"{place}: {note['text'].strip()}")
    return rest, tuple(reasons[:_REASONS])


def _last_words(log: str, status: int) -> _Error:
    """The error of a build whose output contains no known error."""
    if status < 0:
        return _Error(f"the build process was ended by {_signal(-status)}")
    if status == 0:
        return _Error("the compiler reported no error, but produced nothing that can be loaded")
    # The lines that begin with a hash are the engine's own.
    words = [line for line in plain(log).splitlines() if line.strip() and not line.startswith("# ")]
    tool, code, said, file = "the build", str(status), words[-1] if words else "", ""
    if failed := re.search(_FAILED, plain(log)):
        tool, code, said = failed["tool"], failed["code"], failed["said"]
        file = compiled_file(failed["command"])
        if code and 128 < int(code) <= 192:
            return _Error(f"the compiler was ended by {_signal(int(code) - 128)}", file)
    code = f" with status {code}" if code else ""
    return _Error(f"{tool} failed{code}{f': {said}' if said else ' and printed nothing'}", file)


def _signal(number: int) -> str:
    return next((each.name for each in signal.Signals if each == number), f"signal {number}")


def _excerpt(error: _Error, request: Request) -> tuple[list[str], int]:
    """The place of an error, the source line with a caret, and the column."""
    source, column = None, error.column
    if not error.line:
        return [f"  --> {_place(error.file, request)}"] if error.file else [], 0
    with suppress(OSError, IndexError, ValueError):
        text = dict(request.spec.listings).get(error.file)
        text = Path(error.file).read_text("utf-8", "replace") if text is None else text
        source = text.splitlines()[error.line - 1].rstrip()
        # A compiler may have replaced tabs and macros before the caret; the rest is the same.
        if error.rest is not None and source.endswith(error.rest.rstrip()):
            column = len(source) - len(error.rest.rstrip()) + 1
    margin = " " * len(str(error.line))
    lines = [f"  --> {_place(error.file, request, error.line, column)}"]
    if source is not None:
        lines += [f"{margin} |", f"{error.line} | {source}"]
        if column:
            indent = re.sub(r"[^\t]", " ", source[: column - 1])  # tabs line up the caret
            lines.append(f"{margin} | {indent}^")
    return lines, column


def _place(file: str, request: Request, line: int = 0, column: int = 0) -> str:
    """A place as notebooks, editors and terminals find it: relative to the working directory."""
    if file == CELL:
        return f"{request.spec.cell}, line {line}"
    with suppress(OSError, ValueError):  # the working directory is gone; the file is elsewhere
        file = str(Path(file).relative_to(Path.cwd()))
    return ":".join([file, *(str(number) for number in (line, column) if number)])


def _uses(pattern: str, error: str, linker: str) -> list[str]:
    """The function that needs the symbol in an error, as the linker names it."""
    if not (symbol := re.search(pattern, error)):
        return []
    # A reference in .data comes from a table of virtual functions, not from a function.
    needed = re.search(rf"\n(?!.*\(\.data).*reference to `{re.escape(symbol[1])}'", linker)
    functions = re.findall(r"in function `(.+)':", linker[: needed.start() + 1] if needed else "")
    return [f"it is used in {functions[-1]}"] if functions else []


def _demangled(text: str) -> str:
    """The text with C++ names in readable form."""
    return re.sub(r"\b_Z\w+", lambda match: torch._C._demangle(match[0]), text)
