"""What stands in an expression and where: its tokens, names, functions and loops.

``cel`` says whether a text is an expression. What it doesn't say is where an unknown name stands, which names a macro
binds, and how deep loops are nested: the scanner does, for a text that ``cel`` takes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

LOOPS = frozenset({"all", "exists", "exists_one", "filter", "map"})
"""The macros that go through a list or the keys of a map and bind a name to each element."""

NAMESPACES = frozenset({"base64", "lists", "math", "optional", "sets", "strings"})
"""Names before a dot that are no variables but the first part of a function's name."""

TYPE_NAMES = frozenset({"bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"})
"""Names of types: ``type(x) == int``."""

_NO_NAMES = frozenset({"true", "false", "null", "in"})
_OPENING = {"(": ")", "[": "]", "{": "}"}

_TOKEN = re.compile(
    r"""(?P<space>(?:[ \t\n\r\f]|//[^\n]*)+)
    |(?P<raw>(?:[rR][bB]?|[bB][rR])(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n\r]*"|'[^'\n\r]*'))
    |(?P<text>[bB]?(?:\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}|"(?:[^"\\\n\r]|\\.)*"|'(?:[^'\\\n\r]|\\.)*'))
    |(?P<number>0[xX][0-9a-fA-F]+[uU]?|[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+(?:[eE][+-]?[0-9]+)?[uU]?)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<symbol>&&|\|\||==|!=|<=|>=|.)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Token:
    """A word of an expression; ``start`` is its offset in the text."""

    kind: str
    """name, text, raw, number or symbol."""
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(slots=True)
class Loop:
    """One macro that loops: ``receiver.macro(name, body)``."""

    macro: str
    name: str
    depth: int
    """1 for a loop that stands in no other loop's body."""
    offset: int
    """Where the macro's name begins."""
    receiver: tuple[int, int] | None
    """Offsets of what it goes through, where that is a plain path such as ``output.colors``."""
    own: int = 0
    """How often the body names the loop's element."""
    outer: int = 0
    """How often the body names the element of a loop around this one."""
    parts: int = 0
    """How often the body names a key or element of a variable: ``output.lines``, ``output[k]``."""
    whole: int = 0
    """How often the body names a variable as a whole, or what lies deeper in it."""
    tokens: int = 0
    """How many tokens the body has."""


@dataclass(slots=True)
class Call:
    """One call of a function; ``name`` is dotted for those of a namespace."""

    name: str
    offset: int
    """Where its name begins."""
    end: int
    """Where its closing bracket ends."""
    depth: int
    """In how many loops it stands."""
    is_method: bool
    arguments: tuple[Token, ...]
    """The tokens between its brackets."""
    path: tuple[int, int] | None
    """Offsets of the first thing that it is given, where that is a plain path such as ``output.title``."""


@dataclass(slots=True)
class Scan:
    """What stands in one expression."""

    tokens: list[Token]
    names: list[tuple[str, int, frozenset[str]]] = field(default_factory=list)
    """Names that are neither bound by a loop nor a constant: name, offset, and what is bound there."""
    loops: list[Loop] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    literal_keys: tuple[str, ...] = ()
    """What stands before a colon as plain text: the keys of maps that the expression makes."""


def split_tokens(text: str) -> list[Token]:
    """The tokens of any text, without white space and comments. What is no token is a symbol of one character."""
    return [
        Token(match.lastgroup or "", match.group(), match.start())
        for match in _TOKEN.finditer(text)
        if match.lastgroup != "space"
    ]


def find_unclosed(tokens: list[Token]) -> tuple[Token, str] | None:
    """The first bracket that is wrong: one that nothing closes, or one that closes nothing, and what was expected."""
    open_brackets: list[Token] = []
    for token in tokens:
        if token.kind != "symbol":
            continue
        if token.text in _OPENING:
            open_brackets.append(token)
        elif token.text in _OPENING.values():
            if not open_brackets:
                return token, ""
            if _OPENING[open_brackets[-1].text] != token.text:
                return token, _OPENING[open_brackets[-1].text]
            open_brackets.pop()
    return (open_brackets[-1], _OPENING[open_brackets[-1].text]) if open_brackets else None


def scan(text: str) -> Scan:
    """Find names, functions and loops in a text that ``cel`` takes as an expression."""
    return _Scanner(split_tokens(text)).run()


class _Scanner:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._closing = _match_brackets(tokens)
        self._scan = Scan(tokens)
        self._open_loops: list[tuple[Loop, int]] = []
        self._binders: set[int] = set()

    def run(self) -> Scan:
        for position, token in enumerate(self._tokens):
            while self._open_loops and self._open_loops[-1][1] <= position:
                self._open_loops.pop()
            for loop, _ in self._open_loops:
                loop.tokens += 1
            if token.kind == "name" and token.text not in _NO_NAMES and position not in self._binders:
                self._name(position, token)
        self._scan.literal_keys = tuple(
            token.text[1:-1]
            for position, token in enumerate(self._tokens)
            if token.kind == "text" and self._is(position + 1, ":")
        )
        return self._scan

    def _is(self, position: int, symbol: str) -> bool:
        return 0 <= position < len(self._tokens) and self._tokens[position].text == symbol

    def _name(self, position: int, token: Token) -> None:
        is_member = self._is(position - 1, ".") and self._ends_operand(position - 2)
        if self._is(position + 1, "("):
            self._call(position, token, is_member)
        elif not is_member:
            self._use(position, token)

    def _ends_operand(self, position: int) -> bool:
        if position < 0:
            return False
        token = self._tokens[position]
        return token.kind != "symbol" or token.text in ")]}"

    def _use(self, position: int, token: Token) -> None:
        bound = frozenset(loop.name for loop, _ in self._open_loops)
        if token.text in bound:
            for loop, _ in reversed(self._open_loops):
                if loop.name == token.text:
                    loop.own += 1
                    break
                loop.outer += 1
            return
        if token.text in NAMESPACES and self._is(position + 1, ".") and self._is(position + 3, "("):
            return
        is_part = self._count_members(position) == 1
        for loop, _ in self._open_loops:
            loop.parts += is_part
            loop.whole += not is_part
        self._scan.names.append((token.text, token.start, bound))

    def _count_members(self, position: int) -> int:
        """How many keys and indices follow a name directly."""
        count = 0
        position += 1
        while True:
            if self._is(position, ".") and not self._is(position + 2, "("):
                position += 2
            elif self._is(position, "["):
                position = self._closing.get(position, len(self._tokens)) + 1
            else:
                return count
            count += 1

    def _call(self, position: int, token: Token, is_member: bool) -> None:
        end = self._closing.get(position + 1, len(self._tokens))
        depth = len(self._open_loops)
        if token.text in LOOPS and is_member and self._is(position + 3, ",") and position + 3 < end:
            loop = Loop(
                token.text, self._tokens[position + 2].text, depth + 1, token.start, self._receiver(position - 1)
            )
            self._scan.loops.append(loop)
            self._binders.add(position + 2)
            self._open_loops.append((loop, end))
            return
        name = token.text
        if is_member and self._tokens[position - 2].text in NAMESPACES and not self._is(position - 3, "."):
            name = f"{self._tokens[position - 2].text}.{name}"
            is_member = False
        arguments = tuple(self._tokens[position + 2 : end])
        path = self._receiver(position - 1) if is_member else None
        if not is_member and arguments and end < len(self._tokens):
            path = self._receiver(end)
            if path is not None and path[0] != arguments[0].start:
                path = None
        last = self._tokens[min(end, len(self._tokens) - 1)]
        self._scan.calls.append(Call(name, token.start, last.end, depth, is_member, arguments, path))

    def _receiver(self, end: int) -> tuple[int, int] | None:
        """The span of the plain path that ends before a token: names joined by dots, and indices of one token."""
        position = end - 1
        while True:
            if self._is(position, "]") and self._is(position - 2, "["):
                position -= 3
            elif self._tokens[position].kind != "name":
                return None
            elif self._is(position - 1, ".") and self._ends_operand(position - 2):
                position -= 2
            else:
                return self._tokens[position].start, self._tokens[end].start


def _match_brackets(tokens: list[Token]) -> dict[int, int]:
    closing: dict[int, int] = {}
    open_positions: list[int] = []
    for position, token in enumerate(tokens):
        if token.kind == "symbol" and token.text in _OPENING:
            open_positions.append(position)
        elif token.kind == "symbol" and token.text in _OPENING.values() and open_positions:
            closing[open_positions.pop()] = position
    return closing
