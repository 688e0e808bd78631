"""From the compilers' raw text to the first real error, with the user's own line and a cure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from .spec import BuildSpec

# gcc and clang: file:line:column: error: text; nvcc: file(line): error: text, caret further down
_GCC = re.compile(
    r"^(?P<file>[^\s:][^:]*):(?P<line>\d+):(?:(?P<column>\d+):)? (?:fatal )?error: (?P<text>.*)$"
)
_NVCC = re.compile(
    r"^(?P<file>[^\s(][^(]*)\((?P<line>\d+)\): (?:catastrophic )?error(?: #[\w-]+)?: (?P<text>.*)$"
)
_LINKER = re.compile(
    r"^(?:.*?: )?(?P<text>(?:undefined reference to|cannot find -l|multiple definition of).*)$"
)
_TOOL = re.compile(
    r"^(?:.*/)?(?:nvcc|ptxas|cicc|ld|collect2|cc1plus|c\+\+|g\+\+|clang\+\+|clang|ninja)"
    r"\s*:? ?(?:fatal\s*:|fatal error:|error\s*:|error:) ?(?P<text>.*)$"
)
_TORCH = re.compile(r"^(?P<text>(?:RuntimeError|OSError|ValueError): .*)$")
_WARNING = re.compile(r": warning(?: #[\w-]+)?: ")


@dataclass(frozen=True)
class Diagnostic:
    """One error: where it is (unless it is nowhere), and what the compiler says."""

    text: str
    file: str = ""
    line: int = 0
    column: int = 0


def parse(log: str) -> list[Diagnostic]:
    """The errors of a build log in their order; errors of tools after those of sources."""
    lines = log.splitlines()
    in_sources, of_tools, of_torch = [], [], []
    for number, line in enumerate(lines):
        if match := _GCC.match(line):
            in_sources.append(
                Diagnostic(
                    match["text"], match["file"], int(match["line"]), int(match["column"] or 0)
                )
            )
        elif match := _NVCC.match(line):
            in_sources.append(
                Diagnostic(
                    match["text"],
                    match["file"],
                    int(match["line"]),
                    _caret(lines[number + 1 : number + 4]),
                )
            )
        elif match := _LINKER.match(line) or _TOOL.match(line):
            of_tools.append(Diagnostic(match["text"]))
        elif match := _TORCH.match(line):
            of_torch.append(Diagnostic(match["text"]))
    return in_sources + of_tools or of_torch


def _caret(following: list[str]) -> int:
    """The column of nvcc's caret line. nvcc indents the source line by two, and trims it."""
    for line in following:
        if line.strip() == "^":
            return line.index("^") - 1
    return 0


def explain(log: str, spec: BuildSpec, log_path: Path, status: int) -> str:
    """The message of a failed build: the first error with its line, and where the log is."""
    found = parse(log)
    if not found:
        last = [line for line in log.splitlines() if line.strip()][-3:]
        first = Diagnostic(
            "the build failed" + (f": {' | '.join(last)}" if last else f" with status {status}")
        )
    else:
        first = found[0]
    warnings = sum(_WARNING.search(line) is not None for line in log.splitlines())
    more = (
        f"{len(found) - 1} more error{'s' if len(found) != 2 else ''}, " if len(found) > 1 else ""
    )
    lines = [f"error: {first.text}", *_excerpt(first, spec)]
    lines.append(
        f"   = {more}{warnings} warning{'s' if warnings != 1 else ''}; full log: {log_path}"
    )
    return "\n".join(lines)


def _excerpt(diagnostic: Diagnostic, spec: BuildSpec) -> list[str]:
    """Where the error is, and the line of source with a caret."""
    if not diagnostic.file:
        return []
    column = f":{diagnostic.column}" if diagnostic.column else ""
    lines = [f"  --> {_shown_name(diagnostic.file, spec)}:{diagnostic.line}{column}"]
    source = _source_line(diagnostic, spec)
    if source is None:
        return lines
    margin = " " * len(str(diagnostic.line))
    lines += [f"{margin} |", f"{diagnostic.line} | {source}"]
    if diagnostic.column:
        indent = re.sub(r"[^\t]", " ", source[: diagnostic.column - 1])  # tabs stay: it lines up
        lines.append(f"{margin} | {indent}^")
    return lines


def _shown_name(file: str, spec: BuildSpec) -> str:
    path = Path(file)
    known = any(path == own for own in (*spec.sources, *spec.headers))
    return spec.label(path) if known else file


def _source_line(diagnostic: Diagnostic, spec: BuildSpec) -> str | None:
    text = dict(spec.listings).get(diagnostic.file)
    try:
        if text is None:
            text = Path(diagnostic.file).read_text("utf-8", errors="replace")
        return text.splitlines()[diagnostic.line - 1]
    except (OSError, IndexError):
        return None


def explain_import(error: str, library: str) -> str:
    """The message when a finished library cannot be imported."""
    if "undefined symbol" in error:
        symbol = error.rpartition("undefined symbol: ")[2]
        return (
            f"error: {symbol} is declared and used, but no source or library given defines it\n"
            f"   = {library}\n   = add the source or the -l flag that defines it"
        )
    return f"error: the built library cannot be imported: {error}"
