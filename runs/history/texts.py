"""Texts of any length as pages show them: an audit or an expression may quote a whole output in what it says."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal

MAX_TEXT_LENGTH = 2_000
"""Characters that a page shows of one text."""
MAX_SENTENCE_LENGTH = 600
"""The same of the sentence that a run ended with: the reason in it is below, with its attempt."""
SHORT_TEXT = 300
"""The same of texts that are in a list, and of paths."""
MAX_CONTEXT_LENGTH = 8_000
"""Characters that a page shows of the context of an issue, and of the fields that its audit added."""
MAX_SUGGESTIONS = 20
"""What a page shows of the suggestions of an issue."""

_COLOUR = re.compile('"?(#[0-9a-fA-F]{6})"?')
_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff]"
)
"""Characters that change how text around them looks (direction marks, escapes) or that can't be sent at all."""


class ShownText(str):
    """Text of a model or a user as it is shown: it may read in another direction than what is around it."""

    __slots__ = ()

    @property
    def direction(self) -> str:
        """``ltr`` or ``rtl`` to isolate it with; empty for ASCII, which needs none."""
        return "" if self.isascii() else find_direction(self)

    @property
    def colour(self) -> str:
        """The colour that it is, such as ``#12694a``, with or without quotes; empty for all else."""
        found = _COLOUR.fullmatch(self)
        return found[1] if found else ""


@dataclass(frozen=True, slots=True)
class CutText:
    """The beginning of a text, with invisible characters shown by their code, and how much of it does not follow."""

    text: str
    left_out: int = 0
    """Characters."""

    def __bool__(self) -> bool:
        return bool(self.text)

    def __str__(self) -> str:
        return f"{self.text}…" if self.left_out else self.text


def cut_text(text: str, most: int = MAX_TEXT_LENGTH) -> CutText:
    """``text``, or its first ``most`` characters. It is cut before it is escaped, so that no escape is cut in two."""
    return CutText(show_invisible(text[:most]), max(len(text) - most, 0))


def find_direction(text: str) -> Literal["ltr", "rtl"]:
    """The direction in which a text reads: that of most of its letters, in its first ``MAX_TEXT_LENGTH`` characters.

    The first letter alone, by which browsers decide, turns an English sentence around that begins with an Arabic word.
    """
    if text.isascii():
        return "ltr"
    classes = [unicodedata.bidirectional(character) for character in text[:MAX_TEXT_LENGTH]]
    return "rtl" if classes.count("R") + classes.count("AL") > classes.count("L") else "ltr"


def show_invisible(text: str) -> str:
    """``text`` with characters that would change how the text around them looks written as ``\\u202e``.

    In JSON text that is the same value. Line breaks and tabs stay.
    """
    return _INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
