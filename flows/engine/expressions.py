"""The expression language of flows: CEL, the Common Expression Language, by the package ``cel``.

``parse_expression`` checks an expression when its flow is saved; ``cel_evaluation`` evaluates it. A text that begins
with ``python:`` names a registered function and is not an expression: callers separate the two before.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import NoReturn, TypeAlias

import cel

from flows.engine.errors import ExpressionError
from flows.engine.expression_functions import FUNCTIONS, KEYS, LOOPS, NAMESPACES, REPLACED, compile_pattern
from flows.engine.json_values import find_line

MAX_LENGTH = 4_000
MAX_INLINE_ROUNDS = 20_000
"""Rounds of the innermost loop of an expression that is evaluated in this process."""
MAX_INLINE_COPIED = 500_000
"""Values that the loops of such an expression may copy: 50 to 150 ms at most, and most take far less."""

_STEP = frozenset({"input", "steps", "previous"})
_AUDIT = frozenset({"output", "input", "steps"})
FIELD_VARIABLES: Mapping[str, frozenset[str]] = {
    "input_expression": _STEP,
    "input_sanitizer": frozenset({"value"}),
    "output_sanitizer": frozenset({"value"}),
    "for_each": _AUDIT,
    "rule": _AUDIT,
    "message": _AUDIT | {"item"},
    "suggestions": _AUDIT | {"item"},
    "path": _AUDIT | {"item"},
    "pass_expression": frozenset({"issues", "output"}),
    "failure_reason_expression": frozenset({"issues"}),
    "compute": _STEP,
}
"""The variables that an expression in each field of a flow may use."""
ITEM_VARIABLES = frozenset({"item", "index"})
"""What all fields of an audit with ``for_each`` may use, too: the element that its rule is asked of, and its place."""

_NO_VARIABLES = frozenset(
    {"bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"}
    | {"true", "false", "null", "in"}
)
_HINTS = {
    "and": "“&&”",
    "or": "“||”",
    "not": "“!”",
    "=": "“==”",
    "if": "“condition ? a : b”",
    "for": "list.map(x, …), list.filter(x, …), list.all(x, …) or list.exists(x, …)",
    **dict.fromkeys("“”‘’`", "straight quotes"),
    **dict.fromkeys("'\"", "a closing quote"),
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
    rf"""(?P<space>(?:[ \t\n\r\f]|//[^\n]*)+)|(?P<text>{_RAW_TEXT}|{_TEXT})
    |(?P<number>0[xX][0-9a-fA-F]+[uU]?|[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+(?:[eE][+-]?[0-9]+)?[uU]?)
    |(?P<name>{NAME})|(?P<symbol>&&|\|\||==|!=|<=|>=|.)""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_PATH = rf"\b{NAME}(?:\s*\.\s*{NAME}|\s*\[\s*(?:\w+|{_RAW_TEXT}|{_TEXT})\s*\])*"
_REWRITTEN = re.compile(
    rf"""{SKIPPED}
    |(?P<receiver>{_PATH})(?=\s*\.\s*(?:map|filter)\s*\()
    |(?P<dot>\.\s*)?\b(?P<call>{"|".join(REPLACED)})(?=\s*\()
    |\.\s*{NAME}""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_PLACE = re.compile(r"ERROR: <input>:([0-9]+):([0-9]+): (?:Syntax error: )?(.*?)(?: expecting .*)?(?:\n|\Z)")


Token: TypeAlias = re.Match[str]
"""A word of an expression; its last group is name, text, number or symbol."""


@dataclass
class Work:
    """What the time of an evaluation depends on, beside its variables: ``cel`` copies a value at each mention."""

    copies: list[int] = field(default_factory=list)
    """For each copy of the variables, how many loops go around it."""
    depth: int = 0
    """How deep loops are nested."""
    growth: int = 1
    """How many times larger than the variables a result of ``map`` can be."""
    listed: int = 1
    """A bound on the elements of a list in the text."""
    joins: int = 1
    """How many lists may be joined by ``+``."""

    def is_quick(self, size: int, longest: int, times: int = 1) -> bool:
        """Whether variables of ``size`` values, ``longest`` of them in one list, are quickly worked through.

        Of an expression that is evaluated several ``times``, ``size`` counts them all.
        """
        rounds = max(longest, self.listed) * self.joins
        copied = size * self.growth * sum(int(rounds**depth) for depth in self.copies)
        return times * int(rounds**self.depth) <= MAX_INLINE_ROUNDS and copied <= MAX_INLINE_COPIED


@dataclass(frozen=True)
class CompiledExpression:
    """An expression that can be parsed, and whose names are known."""

    text: str
    variables: frozenset[str]
    """The variables that it reads."""
    literal_keys: tuple[str, ...]
    """The keys of the maps that it makes itself."""
    work: Work
    program: cel.Program


@lru_cache(maxsize=2048)
def parse_expression(text: str, *, variables: frozenset[str]) -> CompiledExpression:
    """Check an expression that may read ``variables``, and compile it.

    Raises ``ExpressionError``, with line and column where one place is wrong: for text that isn't an expression, empty
    or longer than ``MAX_LENGTH`` characters, and for unknown variables and functions.
    """
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"The expression has {len(text):,} characters; at most {MAX_LENGTH:,} are allowed.")
    if not text.strip():
        raise ExpressionError("The expression is empty.")
    if "\0" in text:
        fail_at(text, text.index("\0"), "an expression can't hold NUL")
    tokens = split_tokens(text)
    try:
        cel.compile(text)
    except ValueError as error:
        _fail_syntax(text, tokens, str(error))
    scan = _Scan(text, tokens, variables)
    try:
        program = cel.compile(_REWRITTEN.sub(_rewrite, text))
    except ValueError:
        # What is put in has a bracket more, and ``cel`` takes 96 levels.
        raise ExpressionError("The expression is nested too deeply.") from None
    keys = tuple(token[0][1:-1] for token, following in pairwise(tokens) if token["text"] and following[0] == ":")
    return CompiledExpression(text, frozenset(scan.used), keys, scan.work, program)


def split_tokens(text: str) -> list[Token]:
    """The tokens of any text, without white space and comments. What is not a token is a symbol of one character."""
    return [match for match in _TOKEN.finditer(text) if match.lastgroup != "space"]


def fail_at(text: str, offset: int, sentence: str) -> NoReturn:
    """Raise ``ExpressionError`` about the place at ``offset`` of ``text``; line and column count from 1."""
    line, column = find_line(text, offset)
    end = "" if sentence.endswith("?") else "."
    raise ExpressionError(f"Line {line}, column {column}: {sentence}{end}", line=line, column=column)


def _rewrite(match: re.Match[str]) -> str:
    """Our own functions in place of those that ``cel`` does not let us replace: see ``REPLACED`` and ``KEYS``."""
    if path := match["receiver"]:
        # A list must not go through a function of ours, which copies it.
        return f"(type({path}) == map ? {KEYS}({path}) : {path})"
    if match["call"]:
        return f"{match['dot'] or ''}{REPLACED[match['call']]}"
    return match[0]


def _fail_syntax(text: str, tokens: Sequence[Token], message: str) -> NoReturn:
    """Raise ``ExpressionError`` for a text that ``cel`` refuses with ``message``."""
    for token in tokens:
        if token[0] in _HINTS and text[: token.start()].rstrip()[-1:] != ".":
            fail_at(text, token.start(), f"“{token[0]}” can't be used here; write {_HINTS[token[0]]}")
    place = _PLACE.search(message.removeprefix(f"Failed to parse expression '{text}': "))
    if place is None:
        raise ExpressionError("The expression can't be read.")
    line, column = int(place[1]), int(place[2])
    reason = place[3].replace("'<EOF>'", "the end")
    if "Recursion" in reason:
        reason = "the expression is nested too deeply"
    raise ExpressionError(f"Line {line}, column {column}: {reason}.", line=line, column=column)


def _suggest(name: str, names: Iterable[str]) -> str:
    closest = difflib.get_close_matches(name, names, n=1)
    hint = _HINTS.get(name) or (closest[0] if closest else "")
    return f". Did you mean “{hint}”?" if hint else ""


# ---------------------------------------------------------------------------------------------------------------
# Names


@dataclass
class _Bracket:
    """An open bracket: what is before it, and the name of the element if it is that of a loop."""

    function: str = ""
    element: str = ""
    uses: int = 0


class _Scan:
    """Goes through the tokens of an expression once: which variables it reads, and what its loops copy.

    Raises ``ExpressionError`` for the first name that is not known or not allowed.
    """

    def __init__(self, text: str, tokens: Sequence[Token], variables: frozenset[str]) -> None:
        self._text = text
        self._tokens = tokens
        self._words = [token[0] for token in tokens] + [""] * 4
        self._variables = variables
        self._open: list[_Bracket] = []
        self._opening = _Bracket()
        self.used: set[str] = set()
        self.work = Work(listed=self._words.count(",") + 1)
        for position, token in enumerate(tokens):
            if token["name"]:
                self._read_name(position, token[0])
            elif token["symbol"]:
                self._read_symbol(position, token[0])

    def _fail(self, position: int, sentence: str) -> NoReturn:
        fail_at(self._text, self._tokens[position].start(), sentence)

    def _is_text(self, position: int) -> bool:
        return 0 <= position < len(self._tokens) and bool(self._tokens[position]["text"])

    def _read_symbol(self, position: int, symbol: str) -> None:
        if symbol in "([{":
            self._open.append(self._opening)
            self._opening = _Bracket()
        elif symbol in ")]}":
            closed = self._open.pop()
            if closed.function == "map":
                self.work.growth *= max(1, closed.uses)
            elif closed.function == "matches" and self._is_text(position - 1):
                self._check_pattern(position - 1)
        elif symbol == "+" and not self._is_text(position - 1) and not self._is_text(position + 1):
            self.work.joins += 1

    def _check_pattern(self, position: int) -> None:
        if self._words[position - 1] in ("(", ","):
            try:
                compile_pattern(str(cel.evaluate(self._words[position])))
            except ValueError as error:
                self._fail(position, str(error))

    def _read_name(self, position: int, name: str) -> None:
        is_member = self._words[position - 1] == "."
        is_namespace = name in NAMESPACES and self._words[position + 3] == "("
        # The name that a loop binds is in front of the loop's first comma.
        is_bound = bool(self._open and self._open[-1].element) and self._words[position - 2] in LOOPS
        if name in LOOPS and self._words[position + 1] == "(":
            self._open_loop(position, name, is_member)
        elif self._words[position + 1] == "(":
            if is_member and self._words[position - 2] in NAMESPACES and self._words[position - 3] != ".":
                name = f"{self._words[position - 2]}.{name}"
            if name not in FUNCTIONS:
                self._fail(position, f"Unknown function “{name}”{_suggest(name, FUNCTIONS)}")
            self._opening = _Bracket(name)
        elif not (is_member or is_namespace or is_bound or name in _NO_VARIABLES):
            self._read_variable(position, name)

    def _read_variable(self, position: int, name: str) -> None:
        loops = [bracket for bracket in self._open if bracket.element]
        for bracket in reversed(loops):
            if bracket.element == name:
                bracket.uses += 1
                self.work.copies.append(len(loops) - 1)
                return
        if name not in self._variables:
            names = [*sorted(self._variables), *(bracket.element for bracket in loops)]
            known = f"Available here: {', '.join(names)}{_suggest(name, names)}"
            self._fail(position, f"Unknown variable “{name}”. {known}")
        self.used.add(name)
        # What goes into the result of a map is copied again for each element that follows.
        self.work.copies.append(len(loops) + any(bracket.function == "map" for bracket in loops))

    def _open_loop(self, position: int, name: str, is_member: bool) -> None:
        element = self._words[position + 2]
        if not is_member or self._words[position + 3] != ",":
            self._fail(position, f"“{name}” is used as {FUNCTIONS[name][0]}")
        if element in self._variables:
            self._fail(position + 2, f"“{element}” is a variable already; give the element another name")
        depth = sum(bool(bracket.element) for bracket in self._open) + 1
        self.work.depth = max(self.work.depth, depth)
        if name in ("map", "filter"):
            # What they have found so far is copied for each element that they add.
            self.work.copies.append(depth)
        self._opening = _Bracket(name, element)
