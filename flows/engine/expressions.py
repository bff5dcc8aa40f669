"""The expression language of flows: CEL, the Common Expression Language, by the package ``cel``.

``parse_expression`` checks an expression when its flow is saved; ``cel_evaluation`` evaluates it. A text that begins
with ``python:`` names a registered function and is no expression: callers tell the two apart before they come here.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple, NoReturn

import cel

from flows.engine.errors import ExpressionError
from flows.engine.expression_functions import (
    FUNCTIONS,
    IMPLEMENTATIONS,
    KEYS,
    LOOPS,
    MATCHES,
    NAMESPACES,
    SIZE,
    compile_pattern,
)
from flows.engine.json_values import find_line

MAX_LENGTH = 4_000

_STEP = frozenset({"input", "steps", "previous"})
_AUDIT = frozenset({"output", "input", "steps"})
FIELD_VARIABLES: Mapping[str, frozenset[str]] = {
    "input_expression": _STEP,
    "input_sanitizer": frozenset({"value"}),
    "output_sanitizer": frozenset({"value"}),
    "rule": _AUDIT,
    "message": _AUDIT | {"item"},
    "suggestions": _AUDIT | {"item"},
    "path": _AUDIT | {"item"},
    "pass_expression": frozenset({"issues", "output"}),
    "failure_reason_expression": frozenset({"issues"}),
    "compute": _STEP,
}
"""The variables that an expression in each field of a flow may use."""

_TYPE_NAMES = frozenset({"bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"})
_CONSTANTS = frozenset({"true", "false", "null", "in"})
_LIST_FUNCTIONS = frozenset(
    {"distinct", "flatten", "join", "lists.range", "max", "min", "reverse", "slice", "sort", "split", "sum"}
    | {name for name in FUNCTIONS if name.startswith("sets.")}
)
"""Functions that are handed whole lists, which go to Python and back: four times as slow as to copy them."""

_HINTS = {
    "and": "“&&”",
    "or": "“||”",
    "not": "“!”",
    "=": "“==”",
    "if": "“condition ? a : b”",
    "for": "list.map(x, …), list.filter(x, …), list.all(x, …) or list.exists(x, …)",
    **dict.fromkeys("“”‘’`", "straight quotes, ' or \""),
    **dict.fromkeys("'\"", "a closing quote, and \\\\ for a backslash"),
    "None": "null",
    "True": "true",
    "False": "false",
    "len": "size(x)",
}
"""What people write who come from another language, and what it is here."""

NAME = r"[A-Za-z_]\w*"
_RAW_TEXT = r"""(?:[rR][bB]?|[bB][rR])(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n\r]*"|'[^'\n\r]*')"""
_TEXT = r"""[bB]?(?:\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}|"(?:[^"\\\n\r]|\\.)*"|'(?:[^'\\\n\r]|\\.)*')"""
SKIPPED = rf"{_RAW_TEXT}|{_TEXT}|//[^\n]*"
"""Texts and comments: nothing in them is a name."""
_TOKEN = re.compile(
    rf"""(?P<space>(?:[ \t\n\r\f]|//[^\n]*)+)|(?P<raw>{_RAW_TEXT})|(?P<text>{_TEXT})
    |(?P<number>0[xX][0-9a-fA-F]+[uU]?|[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+(?:[eE][+-]?[0-9]+)?[uU]?)
    |(?P<name>{NAME})|(?P<symbol>&&|\|\||==|!=|<=|>=|.)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_PATH = rf"\b{NAME}(?:\s*\.\s*{NAME}|\s*\[\s*(?:\w+|{_RAW_TEXT}|{_TEXT})\s*\])*"
_REWRITTEN = re.compile(
    rf"""{SKIPPED}
    |(?P<receiver>{_PATH})(?=\s*\.\s*(?:map|filter)\s*\()
    |\bsize\s*\(\s*(?P<argument>{_PATH})\s*\)|(?P<sized>{_PATH})\s*\.\s*size\s*\(\s*\)
    |(?P<call>\b(?:matches|size))(?=\s*\()
    |\.\s*(?!(?:matches|size)\s*\(){NAME}""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_UNREADABLE = re.compile("[\0\ud800-\udfff]")
_PLACE = re.compile(r"ERROR: <input>:([0-9]+):([0-9]+): (?:Syntax error: )?(.*)")


class Token(NamedTuple):
    """A word of an expression; ``kind`` is name, text, raw, number or symbol, ``start`` its offset."""

    kind: str
    text: str
    start: int


@dataclass(frozen=True)
class CompiledExpression:
    """An expression that can be parsed, and whose names are known."""

    text: str
    variables: frozenset[str]
    """The variables that it reads."""
    functions: tuple[str, ...]
    """Those of the registered functions that it may call."""
    literal_keys: tuple[str, ...]
    """The keys of the maps that it makes itself."""
    cost: Cost = field(repr=False, compare=False)
    program: cel.Program = field(repr=False, compare=False)


@dataclass
class Cost:
    """How the time of an evaluation grows with its variables: ``cel`` copies a value wherever it is named."""

    copies: list[int] = field(default_factory=lambda: [0])
    """How often half of the variables is copied, by the number of loops around."""
    growth: int = 1
    """How many times larger than the variables a result of ``map`` can be."""
    longest: int = 1
    """A bound on the elements of a list in the text."""
    joins: int = 1
    """How many lists may be joined by ``+``."""

    def is_within(self, size: int, longest: int, *, max_rounds: int, max_copied: int) -> bool:
        """Whether loops go round at most ``max_rounds`` times and copy at most ``max_copied`` characters.

        ``size`` is that of all variables in characters, ``longest`` the number of elements in their longest list.
        """
        longest = max(longest, self.longest) * self.joins
        copied, rounds = 0, 1
        for count in self.copies:
            if rounds > max_rounds:
                return False
            copied += count * rounds
            rounds *= longest
        return copied * size * self.growth <= 2 * max_copied


@lru_cache(maxsize=2048)
def parse_expression(text: str, *, variables: frozenset[str]) -> CompiledExpression:
    """Check an expression that may read ``variables``, and compile it.

    Raises ``ExpressionError``, with line and column where one place is wrong: for text that is no expression, is empty
    or longer than ``MAX_LENGTH`` characters, and for unknown variables and functions.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"The expression has {len(text):,} characters; at most {MAX_LENGTH:,} are allowed.")
    if not text.strip():
        raise ExpressionError("The expression is empty.")
    if unreadable := _UNREADABLE.search(text):
        fail_at(text, unreadable.start(), "an expression can't hold NUL or half of a surrogate pair")
    tokens = split_tokens(text)
    try:
        cel.compile(text)
    except ValueError as error:
        _fail_syntax(text, tokens, str(error))
    scan = _Scan(text, tokens, variables)
    rewritten = _REWRITTEN.sub(_rewrite, text)
    try:
        program = cel.compile(rewritten)
    except ValueError:
        # What is put in has a bracket more, and ``cel`` takes 96 levels.
        raise ExpressionError("The expression is nested too deeply.") from None
    return CompiledExpression(
        text,
        frozenset(scan.used),
        # A name that only stands in a text does no harm.
        tuple(name for name in IMPLEMENTATIONS if name.rpartition(".")[2] in rewritten),
        tuple(
            token.text[1:-1] for token, following in pairwise(tokens) if token.kind == "text" and following.text == ":"
        ),
        scan.cost,
        program,
    )


def split_tokens(text: str) -> list[Token]:
    """The tokens of any text, without white space and comments. What is no token is a symbol of one character."""
    return [
        Token(match.lastgroup or "", match.group(), match.start())
        for match in _TOKEN.finditer(text)
        if match.lastgroup != "space"
    ]


def list_functions() -> list[tuple[str, str]]:
    """All functions and macros for documents and editors: how each is used, and what it gives."""
    return [(function.usage, function.description) for function in FUNCTIONS.values()]


def fail_at(text: str, offset: int, sentence: str) -> NoReturn:
    """Raise ``ExpressionError`` about the place at ``offset`` of ``text``; line and column count from 1."""
    line, column = find_line(text, offset)
    end = "" if sentence.endswith("?") else "."
    raise ExpressionError(f"Line {line}, column {column}: {sentence}{end}", line=line, column=column)


def _rewrite(match: re.Match[str]) -> str:
    """Our own functions in place of those that ``cel`` does not let us replace: see ``MATCHES``, ``SIZE`` and ``KEYS``.

    A list must not go through a function of ours, which copies it: what is a plain path is asked for its type.
    """
    if path := match["receiver"]:
        return f"(type({path}) == map ? {KEYS}({path}) : {path})"
    if path := match["argument"] or match["sized"]:
        return f"(type({path}) == string ? {SIZE}({path}) : size({path}))"
    return {"matches": MATCHES, "size": SIZE, None: match[0]}[match["call"]]


# ---------------------------------------------------------------------------------------------------------------
# Names


@dataclass(slots=True)
class _Bracket:
    """An open bracket: what stands before it, and the name that it binds if it is that of a loop."""

    function: str
    bound: str = ""
    uses: int = 0


class _Scan:
    """Goes through the tokens of an expression once: which variables it reads, and what its loops cost.

    Raises ``ExpressionError`` for the first name that is not known or not allowed.
    """

    def __init__(self, text: str, tokens: Sequence[Token], variables: frozenset[str]) -> None:
        self._text = text
        self._tokens = tokens
        self._variables = variables
        self._open: list[_Bracket] = []
        self._opening = _Bracket("")
        self.used: set[str] = set()
        self.cost = Cost(longest=sum(token.text == "," for token in tokens) + 1)
        for position, token in enumerate(tokens):
            if token.kind == "name":
                self._read_name(position, token)
            elif token.kind == "symbol":
                self._read_symbol(position, token)

    def _text_at(self, position: int) -> str:
        return self._tokens[position].text if 0 <= position < len(self._tokens) else ""

    def _is_text(self, position: int) -> bool:
        return position < len(self._tokens) and self._tokens[position].kind in ("text", "raw")

    def _copy(self, count: int, depth: int) -> None:
        copies = self.cost.copies
        copies += [0] * (depth + 1 - len(copies))
        copies[depth] += count

    def _depth(self) -> int:
        return sum(bool(bracket.bound) for bracket in self._open)

    def _read_symbol(self, position: int, token: Token) -> None:
        if token.text in "([{":
            self._open.append(self._opening)
            self._opening = _Bracket("")
        elif token.text in ")]}":
            closed = self._open.pop()
            if closed.function == "map":
                self.cost.growth *= max(1, closed.uses)
            elif closed.function == "matches" and self._is_text(position - 1):
                self._check_pattern(position - 1)
        elif token.text == "+" and not self._is_text(position - 1) and not self._is_text(position + 1):
            self.cost.joins += 1

    def _check_pattern(self, position: int) -> None:
        token = self._tokens[position]
        pattern = token.text[2:-1] if token.kind == "raw" else token.text[1:-1]
        is_plain = token.kind == "raw" or "\\" not in pattern
        if self._text_at(position - 1) in ("(", ",") and is_plain and not pattern.startswith(("''", '""')):
            try:
                compile_pattern(pattern)
            except ValueError as error:
                fail_at(self._text, token.start, str(error))

    def _read_name(self, position: int, token: Token) -> None:
        is_member = self._text_at(position - 1) == "."
        if self._text_at(position + 1) == "(":
            self._read_call(position, token, is_member)
        elif not is_member and token.text not in _CONSTANTS and not self._is_part(position):
            self._read_variable(token)

    def _is_part(self, position: int) -> bool:
        """Whether a name is the one that the loop around it binds, or the first part of a function's name."""
        if self._open and self._open[-1].bound and self._text_at(position - 2) in LOOPS:
            return True
        return self._text_at(position) in NAMESPACES and self._text_at(position + 3) == "("

    def _read_variable(self, token: Token) -> None:
        bound = [bracket for bracket in self._open if bracket.bound]
        for bracket in reversed(bound):
            if bracket.bound == token.text:
                bracket.uses += 1
                return
        if token.text in self._variables:
            self.used.add(token.text)
            self._copy(2, len(bound))
        elif token.text not in _TYPE_NAMES:
            names = [*sorted(self._variables), *(bracket.bound for bracket in bound)]
            known = f"Available here: {', '.join(names)}{_suggest(token.text, names)}"
            fail_at(self._text, token.start, f"Unknown variable “{token.text}”. {known}")

    def _read_call(self, position: int, token: Token, is_member: bool) -> None:
        name = token.text
        if name in LOOPS:
            self._open_loop(position, token, is_member)
            return
        if is_member and self._text_at(position - 2) in NAMESPACES and self._text_at(position - 3) != ".":
            name = f"{self._text_at(position - 2)}.{name}"
        if name not in FUNCTIONS:
            fail_at(self._text, token.start, f"Unknown function “{name}”{_suggest(name, FUNCTIONS)}")
        if name in _LIST_FUNCTIONS:
            self._copy(8, self._depth())
        self._opening = _Bracket(name)

    def _open_loop(self, position: int, token: Token, is_member: bool) -> None:
        bound = self._text_at(position + 2)
        if not is_member or self._text_at(position + 3) != ",":
            fail_at(self._text, token.start, f"“{token.text}” is used as {FUNCTIONS[token.text].usage}")
        if bound in self._variables:
            place = self._tokens[position + 2].start
            fail_at(self._text, place, f"“{bound}” is a variable already; give the element another name")
        # What ``map`` and ``filter`` have found so far is copied for each element that they add.
        self._copy(int(token.text in ("map", "filter")), self._depth() + 1)
        self._opening = _Bracket(token.text, bound)


def _suggest(name: str, names: Iterable[str]) -> str:
    closest = difflib.get_close_matches(name, names, n=1)
    hint = _HINTS.get(name) or (closest[0] if closest else "")
    return f". Did you mean “{hint}”?" if hint else ""


# ---------------------------------------------------------------------------------------------------------------
# Syntax


def _fail_syntax(text: str, tokens: Sequence[Token], message: str) -> NoReturn:
    """Raise ``ExpressionError`` for a text that ``cel`` refuses with ``message``."""
    for token in tokens:
        if token.text in _HINTS and text[: token.start].rstrip()[-1:] != ".":
            fail_at(text, token.start, f"“{token.text}” can't stand here; write {_HINTS[token.text]}")
    place = _PLACE.search(message.removeprefix(f"Failed to parse expression '{text}': "))
    if place is None:
        raise ExpressionError("The expression can't be read.")
    fail_at(text, _find_offset(text, int(place[1]), int(place[2])), _describe_syntax(place[3]))


def _find_offset(text: str, line: int, column: int) -> int:
    lines = text.split("\n")
    return min(len(text), sum(len(before) + 1 for before in lines[: line - 1]) + column - 1)


def _describe_syntax(reason: str) -> str:
    if "Recursion" in reason:
        return "the expression is nested too deeply"
    if "<EOF>' expecting" in reason:
        return "the expression ends too early"
    reason = reason.partition(" expecting ")[0]
    return re.sub("^(mismatched input|extraneous input|token recognition error at:)", "unexpected", reason)
