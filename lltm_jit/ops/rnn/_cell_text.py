"""Messages about a recurrent cell's header: the wrong line, and what to write instead."""

from __future__ import annotations

import re
from pathlib import Path

from lltm_jit.jit import BuildError
from lltm_jit.jit.user.progress import many

# The types of T that an error may name, and the cures for operations that these types lack.
_NESTED = r"(?:[^<>]|<(?:[^<>]|<[^<>]*>)*>)*"
_NUMBERS = rf"(?:const )?(?:\w+::)*(?:TensorValue|Dual<{_NESTED}>|Vectorized<\w+>)(?: ?&)?"
_CURES = (
    (
        r"operator(?:[<>]|[!=<>]=)\W|to .?bool|convert(?:ed)? .*to .*bool",
        "T may be a vector or a tensor, with an answer for each of its numbers: write "
        "where_greater(x, y, a, b) for x > y ? a : b, instead of a comparison",
    ),
    (r"operator[-+*/]=|overloaded .[-+*/]=", "write a = a + b instead of a += b"),
    (
        r"operator[-+*/]\W|invalid operands to binary",
        "write constants as T(0.5), because T may be a vector or a tensor",
    ),
    (
        r"no match\w* .*function|was not declared|undeclared identifier|is not a member of",
        "a cell may call the functions that rnn/sequence/cell.h lists, without std::",
    ),
)


class CellText:
    """Messages about a cell in a header. They name the header as it was given."""

    def __init__(self, header: Path, given: str, cell: str) -> None:
        self._header, self._given, self._cell = header, given, cell

    def line(self, word: str) -> str:
        """The place where a word first stands in the header: ``path:line``."""
        lines = self._read().splitlines()
        found = (n for n, line in enumerate(lines, 1) if re.search(rf"\b{word}\b", line))
        return f"{self._given}:{next(found, 1)}"

    def placed(self, error: str) -> str:
        """A compiler's error in the words of a cell's author, with what to write instead.

        An error about a missing member is placed at the line of the cell, or of its step.
        """
        name = self._cell.rpartition("::")[2]
        for words, place in (
            ("expected the cell to have", name),
            ("expected static void step", "step"),
        ):
            if words in error:
                what = error[error.index(words) :].partition("\n")[0]
                return f"error: {self.line(place)}: {self._cell}: {what}"
        if re.search(rf"\W{name}\W+(?:was not|has not been) declared", error):
            return f"error: {self._given} has no type {self._cell}"
        error = re.sub(_NUMBERS, "T", error)
        cure = next((cure for pattern, cure in _CURES if re.search(pattern, error)), "")
        return error.replace("\n   = ", f"\n   = {cure}\n   = ", 1) if cure else error

    def refuse_faults(self, found: int, gates: int, states: int, parameters: int) -> None:
        """Refuse a step that uses an array out of range, or does not write a state.

        Args:
            found: the bits of recurrent_cell_faults() in C++.
        """
        counts = {"x": gates, "h": gates, "p": parameters, "old": states, "now": states}
        text = self._read()
        for bit, (name, count) in enumerate(counts.items()):
            if found >> bit & 1:
                used = re.finditer(rf"\b{name}\s*\[\s*(\d+)", text)
                wrong = next((match for match in used if int(match[1]) >= count), None)
                place, what = self.line("step"), f"{name} out of range"
                if wrong:
                    place = f"{self._given}:{text.count(chr(10), 0, wrong.start()) + 1}"
                    what = f"{name}[{wrong[1]}]"
                has = f"{name} has {many(count, 'number')}"
                raise BuildError(f"error: {place}: {self._cell}: step uses {what}, but {has}")
        for state in range(states):
            if found >> (len(counts) + state) & 1:
                raise BuildError(
                    f"error: {self.line('step')}: {self._cell}: step does not write now[{state}] "
                    "before it ends, or reads it before that"
                )

    def _read(self) -> str:
        return self._header.read_text("utf-8", "replace")
