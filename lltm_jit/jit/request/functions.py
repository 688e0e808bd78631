"""The functions of C++ sources: which to bind, and the names and defaults of their arguments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from .texts import LITERALS, without_comments

_DIRECTIVE = r"(?m)^[ \t]*#(?:\\\n|[^\n])*"
_FUNCTION = re.compile(
    r'(?:extern\s+"C"\s+)?(?P<type>[\w:<>,&*\s]*?[\s&*>])(?P<name>\w+)\s*\((?P<parameters>.*)\)'
    r"\s*(?:noexcept)?\s*(?P<result>->[\w:<>,&*\s]+)?",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(r"\[\[.*?\]\]|__attribute__\s*\(\(.*?\)\)", re.DOTALL)
# Neither a type, nor a variable, nor a macro alone.
_LIKE_A_FUNCTION = re.compile(
    r"(?!(?:struct|class|union|enum|using|typedef)\b|\w+\s*\([^()]*\)\s*$)[^=]*?[\s&*>)](?P<name>[A-Za-z_]\w*)"
    r"\s*\([^()]*\)[^()]*",
    re.DOTALL,
)
_NAMESPACE = re.compile(r'extern\s+"C"|(?:inline\s+)?namespace(?:\s+(?P<name>[\w:]+))?')
_OWN = r"\b(?:static|template|operator|main|__global__|__device__)\b"
_TEXT = r"\bconst\s+char\s*\*|\bchar\s+const\s*\*"
# C++ sees only the declarations in a cell of CUDA: no inline function, and none of these types.
_CUDA_OWN = r"\b(?:inline|constexpr|__\w+|cu[A-Z]\w*|cuda\w+|curand\w+|cublas\w+|dim3|half2?)\b"
_TYPES = r"\b(?:struct|class|union|enum(?:\s+class)?|using|typedef\b[^;]*?)\s+(\w+)\s*[{:;=]"
# A parameter with its default; a type alone is one of several words, or ends in & or * or >.
_PARAMETER = re.compile(
    r"\s*(?P<type>(?:[\w:]+\s+)*?[\w:]+(?:<[\w:<>,&*\s]*>)?(?:\s+const\b)?[\s&*]*)"
    r"(?:(?<=[\s&*>])(?P<name>[A-Za-z_]\w*))?\s*(?:=\s*(?P<default>.*?)\s*)?",
    re.DOTALL,
)
_LAST_WORDS = r"const|(?:un)?signed|short|long|int|char|float|double|bool"
_WHOLE = r"\b(?:u?int\w*|short|long|char|size_t|bool)\b"
# Defaults that mean the same wherever they stand; bytes in a string may be no UTF-8.
_LITERAL = re.compile(
    r"[-+]?(?:0[xX][\da-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)[uUlLfF]*|true|false"
    r'|"(?:\\[^x0-7]|[^"\\\n])*"|std::nullopt'
)


def functions_of(source: str, kind: str = "cpp") -> tuple[dict[str, str], dict[str, str]]:
    """The functions of a cell: declarations of those to bind, and why the others are not bound."""
    text = _plain(source)
    types = re.findall(_TYPES, text)
    bound: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for head, scopes in _heads(text, "{"):
        function = _FUNCTION.fullmatch(head)
        if function is None:
            if (unknown := _LIKE_A_FUNCTION.fullmatch(head)) and not re.search(_OWN, head):
                left_out[unknown["name"]] = "not recognized"
            continue
        if re.search(_OWN, f"{function['type']} {function['name']}"):
            continue
        name = _qualified(scopes, function["name"])
        declaration = f"{head};"
        for scope in reversed(scopes):
            declaration = f"{scope} {{ {declaration} }}"
        used = " ".join(function.group("type", "parameters")) + (function["result"] or "")
        if bound.get(name, declaration) != declaration or name in left_out:
            bound.pop(name, None)
            left_out[name] = "overloaded"
        elif "*" in re.sub(_TEXT, "", used):
            left_out[name] = "has a pointer"
        elif kind == "cuda" and re.search(_CUDA_OWN, used):
            left_out[name] = "not visible to C++"
        elif kind == "cuda" and set(types) & set(re.findall(r"\w+", used)):
            left_out[name] = "uses a type that the cell defines"
        else:
            bound[name] = declaration
    return bound, left_out


def arguments_of(sources: Iterable[str]) -> dict[str, list[tuple[str, str]]]:
    """The names and the defaults of the arguments of functions that sources declare or define.

    A name or a default is empty if there is none, and a default is too if only C++ knows what it
    means. Functions that are overloaded, or not understood, are left out.
    """
    found: dict[str, list[tuple[str, str]]] = {}
    overloaded = set()
    for source in sources:
        for head, scopes in _heads(_plain(source, "#"), "{;"):
            if (function := _FUNCTION.fullmatch(head)) is None:
                continue
            name, arguments = _qualified(scopes, function["name"]), _split(function["parameters"])
            if arguments is None or len(found.get(name, arguments)) != len(arguments):
                overloaded.add(name)
                continue
            # The declaration may have what the definition has not.
            seen = found.get(name, arguments)
            found[name] = [
                (one[0] or two[0], one[1] or two[1])
                for one, two in zip(arguments, seen, strict=True)
            ]
    return {name: arguments for name, arguments in found.items() if name not in overloaded}


def _split(parameters: str) -> list[tuple[str, str]] | None:
    """The names and defaults in a list of parameters; none if it is not understood."""
    if parameters.strip() in ("", "void"):
        return []
    pieces, start, depth = [], 0, 0
    blank = _blank(parameters)
    if "#" in blank:  # which parameters there are depends on a directive
        return None
    for mark in re.finditer(r"[<({\[>)}\],]", blank):
        if mark[0] != ",":
            depth += 1 if mark[0] in "<({[" else -1
        elif depth == 0:
            pieces.append(parameters[start : mark.start()])
            start = mark.end()
    arguments = []
    for piece in [*pieces, parameters[start:]]:
        match = _PARAMETER.fullmatch(piece)
        if match is None or depth or re.search(r"\b(?:py|pybind11)::\w*args\b", match["type"]):
            return None
        name, default = match["name"] or "", match["default"] or ""
        shifted = re.search(r"[<>]", default) and "," in default
        if shifted or re.fullmatch(r"\s*[A-Z_\d]{2,}\s*", piece):  # or a macro of several
            return None
        if re.fullmatch(_LAST_WORDS, name):  # of a type
            name = ""
        if re.fullmatch(r"(?:c10|at|torch)::nullopt", default) or (
            default == "{}" and re.search(r"\boptional\s*<", match["type"])
        ):
            default = "std::nullopt"
        # Python would not take a number with a point for a whole one.
        rounds = re.fullmatch(r"[-+]?(?!0[xX])[\d.]*[.eE].*", default)
        same = _LITERAL.fullmatch(default) and not (rounds and re.search(_WHOLE, match["type"]))
        arguments.append((name, default if same else ""))
    return arguments


def _plain(source: str, directive: str = "") -> str:
    """C++ without comments, what is disabled, and directives, which a mark may stand for."""
    return re.sub(_DIRECTIVE, directive, _without_if_0(without_comments(source)))


def _blank(text: str) -> str:
    """The text with spaces in place of strings, characters and numbers."""
    return re.sub(LITERALS, lambda match: " " * len(match[0]), text, flags=re.DOTALL)


def _qualified(scopes: tuple[str, ...], name: str) -> str:
    names = [found for scope in scopes if (found := _NAMESPACE.fullmatch(scope)["name"])]  # type: ignore[index]
    return "::".join([*names, name])


def _heads(text: str, ends: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The text before each of these marks at namespace scope, and the namespaces, all named."""
    scopes: list[str] = []  # what stands before each open brace
    start = parentheses = 0
    for mark in re.finditer(r"[(){};]", _blank(text)):
        if mark[0] in "()":
            parentheses += 1 if mark[0] == "(" else -1
        elif parentheses == 0:
            head = re.sub(_ATTRIBUTE, "", text[start : mark.start()]).strip("# \t\r\n")
            named = all(_NAMESPACE.fullmatch(scope) for scope in scopes)
            if mark[0] in ends and named and "namespace" not in scopes:
                yield head, tuple(scopes)
            if mark[0] == "{":
                scopes.append(head)
            elif mark[0] == "}" and scopes:
                scopes.pop()
            start = mark.end()


def _without_if_0(text: str) -> str:
    """C++ without what is between ``#if 0`` and its ``#else``, ``#elif`` or ``#endif``."""
    kept, depth = [], 0
    for line in text.splitlines(keepends=True):
        directive = re.match(r"\s*#\s*(if|else|elif|endif)", line)
        word = directive[1] if directive else ""
        if depth == 0:
            kept.append(line)
            depth = int(re.match(r"\s*#\s*if\s+0\s*$", line) is not None)
        elif word == "if":  # and ifdef, ifndef
            depth += 1
        elif word == "endif" or (word and depth == 1):
            depth -= 1
    return "".join(kept)
