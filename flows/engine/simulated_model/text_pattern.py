"""Text that matches a regular expression: a small generator for the patterns that schemas use.

It knows literals, classes, escapes, groups, alternatives and repetition. Look-around, back references and properties
of Unicode raise ``ValueError``.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from random import Random

_Generate = Callable[[Random], str]

_WORD = string.ascii_lowercase + string.ascii_uppercase + string.digits + "_"
_PRINTABLE = string.ascii_letters + string.digits + " !#$%&()*+,-./:;<=>?@[]^_{|}~"
_CLASSES = {"d": string.digits, "w": _WORD, "s": " "}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v"}
_OPEN_ENDED = 3
"""How many repetitions ``*``, ``+`` and ``{n,}`` add at most."""
_LONGEST = 10_000
"""Parts that a text is put together from at most: nested repetition multiplies."""
_DEEPEST = 30


def generate_match(pattern: str, random: Random) -> str:
    """A text that ``pattern`` matches. Raises ``ValueError`` where the pattern is beyond this generator."""
    parser = _Parser(pattern)
    generate = parser.read_alternatives(0)
    if parser.rest:
        raise ValueError(f"Unexpected “{parser.rest[0]}” in the pattern.")
    return generate(random)


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.position = 0
        self.left = _LONGEST

    @property
    def rest(self) -> str:
        return self.pattern[self.position :]

    def take(self, text: str) -> bool:
        if self.pattern.startswith(text, self.position):
            self.position += len(text)
            return True
        return False

    def next(self) -> str:
        if self.position >= len(self.pattern):
            raise ValueError("The pattern ends too early.")
        self.position += 1
        return self.pattern[self.position - 1]

    def read_alternatives(self, depth: int) -> _Generate:
        if depth > _DEEPEST:
            raise ValueError("The pattern is nested too deeply.")
        branches = [self.read_sequence(depth)]
        while self.take("|"):
            branches.append(self.read_sequence(depth))
        return lambda random: random.choice(branches)(random)

    def read_sequence(self, depth: int) -> _Generate:
        parts = []
        while self.position < len(self.pattern) and self.pattern[self.position] not in "|)":
            parts.append(self.read_repeated(depth))
        return lambda random: "".join(part(random) for part in parts)

    def read_repeated(self, depth: int) -> _Generate:
        atom = self.read_atom(depth)
        least, most = self.read_quantifier()

        def generate(random: Random) -> str:
            count = random.randint(least, most)
            self.left -= count
            if self.left < 0:
                raise ValueError("The pattern asks for a text that is too long.")
            return "".join(atom(random) for _ in range(count))

        return generate

    def read_quantifier(self) -> tuple[int, int]:
        if self.take("?"):
            bounds = (0, 1)
        elif self.take("*"):
            bounds = (0, _OPEN_ENDED)
        elif self.take("+"):
            bounds = (1, 1 + _OPEN_ENDED)
        elif self.take("{"):
            text, closed, _ = self.rest.partition("}")
            low, comma, high = text.partition(",")
            if not closed or not low.isdecimal() or (high and not high.isdecimal()):
                raise ValueError("A repetition in braces can't be read.")
            self.position += len(text) + 1
            least = int(low)
            bounds = (least, int(high) if high else least + (_OPEN_ENDED if comma else 0))
            if not least <= bounds[1] <= _LONGEST:
                raise ValueError("A repetition in braces is out of bounds.")
        else:
            return (1, 1)
        self.take("?")
        return bounds

    def read_atom(self, depth: int) -> _Generate:
        character = self.next()
        if character in "^$":
            return lambda random: ""
        if character == "(":
            return self.read_group(depth)
        if character in "*+?{":
            raise ValueError(f"Nothing to repeat before “{character}”.")
        if character == ".":
            return lambda random: random.choice(_WORD)
        if character == "[":
            choices = self.read_class()
        elif character == "\\":
            choices = self.read_escape()
        else:
            choices = character
        return lambda random: random.choice(choices)

    def read_group(self, depth: int) -> _Generate:
        if self.take("?") and not self.take(":"):
            self.take("P")
            name, closed, _ = self.rest.partition(">")
            if not closed or not name.startswith("<") or not name[1:].isidentifier():
                raise ValueError("Look-around is beyond this generator.")
            self.position += len(name) + 1
        generate = self.read_alternatives(depth + 1)
        if not self.take(")"):
            raise ValueError("A group is not closed.")
        return generate

    def read_escape(self) -> str:
        character = self.next()
        if character in _CLASSES:
            return _CLASSES[character]
        if character in "DWS":
            excluded = _CLASSES[character.lower()]
            return "".join(other for other in _PRINTABLE if other not in excluded)
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character.isalnum():
            raise ValueError(f"“\\{character}” is beyond this generator.")
        return character

    def read_class(self) -> str:
        negated = self.take("^")
        members = ""
        while not self.take("]"):
            character = self.next()
            start = self.read_escape() if character == "\\" else character
            if len(start) == 1 and self.rest[:1] == "-" and self.rest[1:2] not in ("]", ""):
                self.position += 1
                character = self.next()
                end = self.read_escape() if character == "\\" else character
                if len(end) != 1 or not 0 <= ord(end) - ord(start) < 1_000:
                    raise ValueError("A range in a class can't be read.")
                members += "".join(map(chr, range(ord(start), ord(end) + 1)))
            else:
                members += start
        if negated:
            members = "".join(other for other in _PRINTABLE if other not in members)
        if not members:
            raise ValueError("A class has no members.")
        return members
