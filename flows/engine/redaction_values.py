"""Looking for values that must not be kept, wherever else they stand: in texts, in JSON within texts, as numbers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import lru_cache
from unicodedata import normalize

Leaf = str | int | float

LEAST_LENGTH = 4
"""Characters that a value needs to be looked for elsewhere: shorter ones stand in any text. A sign doesn't count."""

_SPACE = r"(?:\s|\\+(?:[nrtf]|u000b|u001[c-f]|u0085|u202[89]))+"
"""White space, also as JSON writes it."""
_SPACES = re.compile(_SPACE)
_DEPTH = 2
"""How often a text may lie within JSON that lies within JSON: an output that is JSON, in the text of a request."""
_NUMERAL = re.compile(r"[+-]?(\d{1,40}(?:\.\d{1,40})?)", re.ASCII)
_DIGITS = re.compile(rf"\d{{{LEAST_LENGTH},}}", re.ASCII)


class ValueSearch:
    """Finds the values that it was made with.

    Texts are found within others, and as words of their own in any case and with any white space between their words;
    numbers where no digit adjoins them.
    """

    def __init__(self, values: Iterable[Leaf] = ()) -> None:
        """Values that are too short are left out."""
        self._values = frozenset(values)
        self._forms = _list_forms({value.strip() for value in self._values if isinstance(value, str)})
        self._folded = {_fold(form): None for form in self._forms}
        self._numbers = frozenset(form for value in self._values for form in _list_numbers(value))
        # Those of digits alone are looked up, however many there are; others are rare.
        others = [form for form in self._numbers if not form.isdigit()]
        self._has_whole = len(others) < len(self._numbers)
        self._others = re.compile(rf"(?<!\d)(?:{'|'.join(map(_spell_number, others))})(?!\d)") if others else None

    def extend(self, values: Iterable[Leaf]) -> ValueSearch:
        """A search that finds these values too."""
        both = self._values.union(values)
        return self if len(both) == len(self._values) else ValueSearch(both)

    def replace(self, text: str, mark: str) -> str:
        """The text with ``mark`` in place of each value."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, mark)
        if self._folded:
            # Looked for as plain texts first: most are nowhere, and patterns take long.
            folded = _fold(text)
            for form in self._folded:
                if form in folded:
                    text = _find_words(form).sub(mark, text)
        if self._others is not None:
            text = self._others.sub(mark, text)
        if self._has_whole:
            text = _DIGITS.sub(lambda found: mark if found.group() in self._numbers else found.group(), text)
        return text

    def has_number(self, number: int | float) -> bool:
        """Whether a number is one of the values, or what one of them says: 1234 is found for 1234.0 and “1234”."""
        return bool(self._numbers) and write_number(number) in self._numbers


def _fold(text: str) -> str:
    return _SPACES.sub(" ", text).lower()


@lru_cache(maxsize=1_000)
def _find_words(folded: str) -> re.Pattern[str]:
    parts = _SPACE.join(map(re.escape, folded.split(" ")))
    return re.compile(rf"(?<!\w){parts}(?!\w)", re.IGNORECASE)


def write_number(number: int | float) -> str:
    """A number without its sign, and without a fraction that is none: 1234 for -1234.0."""
    size = abs(number)
    return str(size if isinstance(size, int) or not size.is_integer() else int(size))


def _spell_number(form: str) -> str:
    """What finds a number that is not of digits alone; money is written with zeros after its fraction."""
    return re.escape(form) + ("" if "e" in form else "0*")


def _is_long(form: str) -> bool:
    return len(form) >= LEAST_LENGTH


def _list_numbers(value: Leaf) -> set[str]:
    """How a value looks as a number, if it is one that is long enough: also as JSON writes it, 1e+22 for instance."""
    number = _read_number(value) if isinstance(value, str) else value
    if number is None or not _is_long(write_number(number)):
        return set()
    return {write_number(number), str(abs(number))}


def _read_number(text: str) -> int | float | None:
    found = _NUMERAL.fullmatch(text.strip())
    if found is None:
        return None
    return float(found[1]) if "." in found[1] else int(found[1])


def _list_forms(texts: set[str]) -> list[str]:
    """Texts that are long enough, as they are and as they stand within JSON, the longest first.

    Letters with marks are written in one character or in several.
    """
    long = {text for text in texts if _is_long(normalize("NFC", text))}
    layer = long | {normalize(form, text) for text in long for form in ("NFC", "NFD")}
    forms = set(layer)
    for _ in range(_DEPTH):
        layer = {json.dumps(text, ensure_ascii=escapes)[1:-1] for text in layer for escapes in (True, False)} - forms
        forms |= layer
    return sorted(forms, key=lambda form: (-len(form), form))


NO_VALUES = ValueSearch()
"""Finds nothing."""
