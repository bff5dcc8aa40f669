"""Text as words: the same for what is stored and for what somebody types, on every database.

The databases' own parsers disagree on what a word is, so none of them is asked: they are handed words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

LONGEST_WORD = 64
"""Characters of a word that are kept: what is longer is seldom a word, and all of it may be in the text."""

# Chinese and Japanese put no spaces between words: each character is one, and neighbours are found as a phrase.
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")


def split_words(text: str) -> list[str]:
    """The words of a text in their order: letters and digits, without case and accents; all else stands between."""
    return [word[:LONGEST_WORD] for word in _WORD.findall(fold_text(text))]


def fold_text(text: str) -> str:
    """The text without what search passes over: case, accents, ligatures and other ways to write the same."""
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return "".join(character for character in plain if not unicodedata.combining(character))


@dataclass(frozen=True, slots=True)
class PlacedWord:
    """A word, and from where to where it stands in its text."""

    word: str
    begin: int
    end: int


def find_words(text: str) -> Iterator[PlacedWord]:
    """The words of a text with their places. Text that is not composed (NFC) may give others than ``split_words``."""
    for match in _WORD.finditer(text):
        yield PlacedWord(fold_text(match[0])[:LONGEST_WORD], match.start(), match.end())
