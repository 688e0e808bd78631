"""The functions that a cell of a notebook defines: which to bind, and why not the others."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .texts import LITERALS, without_comments

_DIRECTIVE = r"(?m)^[ \t]*#(?:\\\n|[^\n])*"
_FUNCTION = re.compile(
    r'(?:extern\s+"C"\s+)?(?P<type>[\w:<>,&*\s]*?[\s&*>])(?P<name>\w+)\s*\((?P<parameters>.*)\)'
    r"\s*(?P<noexcept>noexcept)?\s*(?P<result>->[\w:<>,&*\s]+)?",
    re.DOTALL,
)
_ATTRIBUTE = re.compile(r"\[\[.*?\]\]|__attribute__\s*\(\(.*?\)\)", re.DOTALL)
_NAMESPACE = re.compile(r'extern\s+"C"|(?:inline\s+)?namespace(?:\s+[\w:]+)?')
_OWN = r"\b(?:static|template|operator|main|__global__|__device__)\b"
_TEXT = r"\bconst\s+char\s*\*|\bchar\s+const\s*\*"
# C++ sees only the declarations in a cell of CUDA: no inline function, and none of these types.
_CUDA_OWN = r"\b(?:inline|constexpr|__\w+|cu[A-Z]\w*|cuda\w+|curand\w+|cublas\w+|dim3|half2?)\b"
_TYPES = r"\b(?:struct|class|union|enum(?:\s+class)?|using|typedef\b[^;]*?)\s+(\w+)\s*[{:;=]"


def functions_of(source: str, kind: str = "cpp") -> tuple[dict[str, str], dict[str, str]]:
    """The functions of a cell: declarations of those to bind, and why the others are not bound."""
    text = re.sub(_DIRECTIVE, "", without_comments(source))
    types = re.findall(_TYPES, text)
    bound: dict[str, str] = {}
    left_out: dict[str, str] = {}
    for head, scopes in _heads(text):
        function = _FUNCTION.fullmatch(head)
        if not function or re.search(_OWN, f"{function['type']} {function['name']}"):
            continue
        namespaces = re.findall(r"namespace\s+([\w:]+)", " ".join(scopes))
        name = "::".join([*namespaces, function["name"]])
        declaration = f"{head};"
        for scope in reversed(scopes):
            declaration = f"{scope} {{ {declaration} }}"
        used = " ".join(function.group("type", "parameters")) + (function["result"] or "")
        if bound.get(name, declaration) != declaration or name in left_out:
            bound.pop(name, None)
            left_out[name] = "overloaded"
        elif function["noexcept"]:  # which torch's wrapper does not take
            left_out[name] = "is noexcept"
        elif "*" in re.sub(_TEXT, "", used):
            left_out[name] = "has a pointer"
        elif kind == "cuda" and re.search(_CUDA_OWN, used):
            left_out[name] = "not visible to C++"
        elif kind == "cuda" and set(types) & set(re.findall(r"\w+", used)):
            left_out[name] = "uses a type that the cell defines"
        else:
            bound[name] = declaration
    return bound, left_out


def _heads(text: str) -> Iterator[tuple[str, list[str]]]:
    """What stands before each brace that opens at namespace scope, and the named namespaces."""
    scopes: list[str] = []  # what stands before each open brace
    start = parentheses = 0
    # A brace in a string opens nothing.
    blank = re.sub(LITERALS, lambda match: " " * len(match[0]), text, flags=re.DOTALL)
    for mark in re.finditer(r"[(){};]", blank):
        if mark[0] in "()":
            parentheses += 1 if mark[0] == "(" else -1
        elif parentheses == 0:
            head = re.sub(_ATTRIBUTE, "", text[start : mark.start()]).strip()
            if mark[0] == "{":
                if all(map(_NAMESPACE.fullmatch, scopes)) and "namespace" not in scopes:
                    yield head, [*scopes]
                scopes.append(head)
            elif mark[0] == "}" and scopes:
                scopes.pop()
            start = mark.end()
