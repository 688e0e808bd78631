"""From the compilers' raw output to the first real error, with the user's own line and a fix.

Warnings of a build that succeeds are shown in the same way.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ..request.request import Request as BuildSpec
from ..request.spec import BINDINGS, CELL
from ..user.causes import cure_of
from ..user.errors import BuildError
from ..user.progress import STEP, compiled_file, many

# gcc and clang: file:line:column: error: text; nvcc: file(line): error: text, caret further down.
_GCC = re.compile(
    r"^(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:(?P<column>\d+):)? "
    r"(?:(?:fatal )?error|internal compiler error|(?P<warning>warning)): (?P<text>.*)$"
)
_NVCC = re.compile(
    r"^(?P<file>[^\s(][^(]*)\((?P<line>\d+)\): "
    r"(?:(?:catastrophic )?error|(?P<warning>warning))(?: #[\w-]+)?: (?P<text>.*)$"
)
# The tools that know no line of source: drivers, assemblers, linkers, ninja, the shell.
_TOOLS = (
    re.compile(r"^(?:.*?: )?(?P<text>(?:undefined reference to|multiple definition of) .*)$"),
    re.compile(r"^(?:\S*/)?(?:ld|ld\.\w+|collect2): (?P<text>.*)$"),
    re.compile(r"^(?:nvcc|ptxas|nvlink|cicc|fatbinary)[^:]*?(?:error|fatal)\s*: (?P<text>.*)$"),
    re.compile(
        r"^(?:\S*/)?[\w.+-]*(?:\+\+|gcc|cc|clang|cc1plus)(?:-[\d.]+)?: "
        r"(?:fatal )?error: (?P<text>.*)$"
    ),
    re.compile(r"^\S+: Fatal error: (?P<text>.*)$"),  # the assembler
    re.compile(r"^error: (?P<text>.*)$"),  # clang's front end on its own
    re.compile(r"^ninja: (?:error|fatal): (?P<text>.*)$"),
    re.compile(r"^(?:\S*/)?(?:ba|da)?sh: (?:line )?\d+: (?P<text>.*(?:not found|denied))$"),
)
_TORCH = re.compile(r"^(?P<text>(?:RuntimeError|OSError|ValueError): .*)$")
_FAILED = re.compile(r"^FAILED: \[code=(?P<code>\d+)\]")
# ninja repeats a command that failed, and below it tells what that printed; the code from 1.13 on.
_STEP_FAILED = re.compile(
    r"^FAILED: (?:\[code=(?P<code>\d+)\])?.*\n(?P<tool>\S*).*\n(?:(?!ninja: |\[\d)(?P<said>.+))?",
    re.MULTILINE,
)
# How the compilers say which line led into a template: gcc, clang, nvcc.
_CONTEXT = (
    re.compile(r"^(?P<file>[^\s:]+):(?P<line>\d+):(?P<column>\d+): +required from"),
    re.compile(r"^(?P<file>[^\s:]+):(?P<line>\d+):(?P<column>\d+): note: .*requested here$"),
    re.compile(r"instantiation of .* at line (?P<line>\d+) of (?P<file>.+)$"),
)
# Lines that only sum up what was said before.
_SUMMARY = re.compile(
    r"ld returned \d+ exit status|linker command failed|aborted due to errors|in function `"
    r"|Error building extension"
)
_SHOWN = 5  # warnings of a build that succeeds
_ENDS = {"SIGKILL": "killed", "SIGSEGV": "ended by a segmentation fault", "SIGABRT": "aborted"}


@dataclass(frozen=True)
class Diagnostic:
    """One error: what the compiler says, and where.

    ``line`` and ``column`` are 0 if unknown; a negative column counts tabs as eight columns, as on
    a screen. ``inside`` is the place in a library's header that the user's line led to.
    """

    text: str
    file: str = ""
    line: int = 0
    column: int = 0
    inside: str = ""


def parse(log: str, spec: BuildSpec) -> tuple[list[Diagnostic], list[Diagnostic]]:
    """The errors in a build's output, in order, and the warnings, each once."""
    lines = log.splitlines()
    found, warned, of_torch, ended = [], {}, [], []
    compiled = ""
    for number, line in enumerate(lines):
        if step := re.match(STEP, line):
            compiled = compiled_file(step[3])  # none where it is the link
        elif match := _GCC.match(line) or _NVCC.match(line):
            if match.re is _GCC:
                column = _character(lines, number, int(match["column"] or 0))
            else:
                column = _nvcc_caret(lines[number + 1 : number + 4])
            error = Diagnostic(match["text"], match["file"], int(match["line"]), column)
            error = _at_users_line(error, lines, number, spec)
            if match["warning"]:
                warned[error] = True  # nvcc repeats it for each architecture
            else:
                found.append(error)
        elif _SUMMARY.search(line):
            continue
        elif match := next(filter(None, (tool.match(line) for tool in _TOOLS)), None):
            found.append(Diagnostic(match["text"], compiled))
        elif match := _TORCH.match(line):
            of_torch.append(Diagnostic(match["text"]))
        elif (match := _FAILED.match(line)) and (how := _end_by(int(match["code"]) - 128)):
            ended.append(Diagnostic(f"the compiler was {how}", compiled))
    return found or ended or of_torch, [*warned]


def _end_by(number: int) -> str:
    """How a signal ended a process; empty if there is no such signal."""
    try:
        name = signal.Signals(number).name
    except ValueError:
        return ""
    return _ENDS.get(name, f"ended by {name}")


def _at_users_line(error: Diagnostic, lines: list[str], number: int, spec: BuildSpec) -> Diagnostic:
    """Move an error inside a library's header to the user's line that caused it.

    gcc prints the way there before the error, clang and nvcc after it.
    """
    if _is_own(error.file, spec):
        return error
    before = range(number - 1, max(-1, number - 30), -1)
    after = range(number + 1, min(len(lines), number + 60))
    for order in (before, after):
        for index in order:
            if _GCC.match(lines[index]) or _NVCC.match(lines[index]):
                break  # another error begins
            place = next(filter(None, (form.search(lines[index]) for form in _CONTEXT)), None)
            if place and _is_own(place["file"], spec):
                column = int(place.groupdict().get("column", 0))
                inside = f"{error.file}:{error.line}"
                line = int(place["line"])
                return replace(error, file=place["file"], line=line, column=column, inside=inside)
    return error


def _is_own(file: str, spec: BuildSpec) -> bool:
    return file in dict(spec.spec.listings) or spec.is_own(file)


def _character(lines: list[str], number: int, column: int) -> int:
    """The column; negative if a tab counts up to the next multiple of eight, as in gcc.

    gcc is recognised by the margin before the line that it quotes.
    """
    following = lines[number + 1] if number + 1 < len(lines) else ""
    return -column if re.match(r"^ *\d+ \| ", following) else column


def _nvcc_caret(following: list[str]) -> int:
    """The column of nvcc's caret, which is below the source line indented by two."""
    for line in following:
        if line.strip() == "^":
            return line.index("^") - 1
    return 0


def explain(log: str, spec: BuildSpec, log_path: Path, status: int, jobs: int) -> BuildError:
    """The message of a failed build: the first error with its line, the fix, the log's path."""
    found, warned = parse(log, spec)
    first = found[0] if found else Diagnostic(_last_words(log, status))
    error = f"{first.file}: {first.text}" if first.file == BINDINGS else first.text
    lines = [f"error: {first.text}", *_excerpt(first, spec)]
    if first.inside:
        lines.append(f"   = inside {first.inside}")
    cure = cure_of(error, log, jobs)
    if cure or not found:
        lines.append(f"   = {cure or 'run `python -m lltm_jit doctor` to test the compilers'}")
    counts = [many(len(found) - 1, "more error")] if len(found) > 1 else []
    counts += [many(len(warned), "warning")] if warned else []
    more = f" ({', '.join(counts)})" if counts else ""
    # This line has torch's words, which programs look for.
    lines.append(f"   = Error building extension '{spec.spec.name}'{more}; full log: {log_path}")
    return BuildError(_demangled("\n".join(lines)))


def warnings(log: str, spec: BuildSpec) -> list[str]:
    """The first warnings about the user's own code, each with its line, and how many follow."""
    _, warned = parse(log, spec)
    own = [warning for warning in warned if _is_own(warning.file, spec)]
    told = ["\n".join([f"warning: {each.text}", *_excerpt(each, spec)]) for each in own[:_SHOWN]]
    if own[_SHOWN:]:
        more = many(len(own[_SHOWN:]), "more warning")
        told.append(f"and {more}: `python -m lltm_jit log {spec.spec.name}`")
    return told


def blamed(log: str, spec: BuildSpec) -> list[str]:
    """The user's files that the errors name."""
    named = set(re.findall(r"(?m)(?:^|\s)(/[^\s:()][^:()\n]*)[:(]\d+", log))
    named -= {*map(spec.path_of, dict(spec.spec.texts))}
    return [path for path in named if spec.is_own(path) and os.path.isfile(path)]


def _last_words(log: str, status: int) -> str:
    if status < 0:
        return f"the build process was {_end_by(-status) or f'ended by signal {-status}'}"
    if status == 0:
        return "the compiler reported no error, but produced nothing that can be loaded"
    if failed := _STEP_FAILED.search(log):
        said = f": {failed['said']}" if failed["said"] else " and printed nothing"
        code = f" with status {failed['code']}" if failed["code"] else ""
        return f"{failed['tool']} failed{code}{said}"
    # The lines that begin with a hash are the engine's own.
    words = [line for line in log.splitlines() if line.strip() and not line.startswith("# ")]
    last_words = f": {words[-1]}" if words else " and printed nothing"
    return f"the build failed with status {status}{last_words}"


def _excerpt(diagnostic: Diagnostic, spec: BuildSpec) -> list[str]:
    """Where the error is, and the source line with a caret."""
    if not diagnostic.file:
        return []
    name = _shown_name(diagnostic.file)
    if not diagnostic.line:
        return [f"  --> {name}"]
    if diagnostic.file == CELL:  # in the words by which notebooks link to a cell
        place = f"{spec.spec.cell}, line {diagnostic.line}"
    else:
        place = f"{name}:{diagnostic.line}"
    source = _source_line(diagnostic, spec)
    if source is None:
        return [f"  --> {place}"]
    column = diagnostic.column
    if column < 0:
        column = _from_display(source, -column)
    if column and diagnostic.file != CELL:
        place += f":{column}"
    margin = " " * len(str(diagnostic.line))
    lines = [f"  --> {place}", f"{margin} |", f"{diagnostic.line} | {source}"]
    if column:
        indent = re.sub(r"[^\t]", " ", source[: column - 1])  # tabs stay, so that it lines up
        lines.append(f"{margin} | {indent}^")
    return lines


def _from_display(source: str, display: int) -> int:
    """The column in characters, from a column on a screen with tabs of eight."""
    width = 0
    for index, character in enumerate(source):
        if width >= display - 1:
            return index + 1
        width = (width // 8 + 1) * 8 if character == "\t" else width + 1
    return len(source) + 1


def _shown_name(file: str) -> str:
    """The name of a file as editors and terminals find it: relative to the working directory."""
    with suppress(OSError, ValueError):  # the working directory is gone; the file is elsewhere
        return str(Path(file).relative_to(Path.cwd()))
    return file


def _source_line(diagnostic: Diagnostic, spec: BuildSpec) -> str | None:
    text = dict(spec.spec.listings).get(diagnostic.file)
    try:
        if text is None:
            text = Path(diagnostic.file).read_text("utf-8", errors="replace")
        return text.splitlines()[diagnostic.line - 1]
    except (OSError, IndexError):
        return None


def explain_import(error: str, library: str) -> str:
    """The message when a finished library cannot be imported."""
    first = error.splitlines()[0] if error else "no reason given"
    lines = [f"error: the built library cannot be imported: {first}"]
    if cure := cure_of(error):
        lines.append(f"   = {cure}")
    return _demangled("\n".join([*lines, f"   = {library}"]))


def _demangled(text: str) -> str:
    """The text with C++ names in readable form."""
    return re.sub(r"\b_Z\w+", lambda match: _demangle(match[0]), text)


def _demangle(name: str) -> str:
    try:
        runtime = ctypes.CDLL("libstdc++.so.6")  # which torch has loaded
    except OSError:
        return name
    runtime.__cxa_demangle.restype = ctypes.c_void_p
    found = ctypes.c_void_p(runtime.__cxa_demangle(name.encode(), None, None, None))
    text = ctypes.string_at(found).decode() if found else name
    runtime.free(found)
    return text
