"""Words: what a text is made of, and what a search asks for; the same on every database.

    tea leaves        runs with both words
    "tea leaves"      both words, one after the other, in one text
    INV-2026-0042     the same: what is written together is found together
    order*            words that begin so
    -draft            runs without that word

Databases disagree on what a word is, so they are handed words and never parse a text. Only letters and digits reach
them: nothing that a user types is an error in their language.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

MAX_WORD_LENGTH = 64
"""Characters of a word that are kept: what is longer is seldom a word, and all of it may be in the text."""
MAX_QUERY_LENGTH = 500
MAX_QUERY_WORDS = 30
MIN_PREFIX_LENGTH = 2
"""Characters before ``*``: a single one stands for a great part of all words."""

# Scripts without spaces: Thai, Lao, Burmese, Khmer, Japanese and Chinese. Each character is a word, and neighbours are
# found as a phrase.
_UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff"
_UNSPACED_WORD = re.compile(f"[{_UNSPACED}]")
_WORD = re.compile(rf"[^\W_{_UNSPACED}]+|(?!_)\w")
_QUOTES = '"“”„«»'
_TERM = re.compile(
    rf"(?P<minus>-?)(?:[{_QUOTES}](?P<phrase>[^{_QUOTES}]*)[{_QUOTES}]?|(?P<plain>[^\s{_QUOTES}*]+))(?P<star>\*?)"
)


@dataclass(frozen=True, slots=True)
class Term:
    """Words that follow each other in one text; the last one may go on if it is a prefix."""

    words: tuple[str, ...]
    is_prefix: bool = False


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A search for runs that hold all ``wanted`` and none of ``unwanted`` terms. ``text`` is as it was typed."""

    text: str
    wanted: tuple[Term, ...]
    unwanted: tuple[Term, ...] = ()

    def matches(self, text: str) -> bool:
        """Whether one text holds all wanted and no unwanted terms."""
        words = f" {' '.join(split_words(text))} "

        def has(term: Term) -> bool:
            return f" {' '.join(term.words)}{'' if term.is_prefix else ' '}" in words

        return all(map(has, self.wanted)) and not any(map(has, self.unwanted))


def split_words(text: str) -> list[str]:
    """The words of a text in their order: letters and digits, without case and accents."""
    return [word[:MAX_WORD_LENGTH] for word in _WORD.findall(fold_text(text))]


def find_words(text: str) -> Iterator[tuple[str, int, int]]:
    """The words of a text, each with its start and end."""
    characters = [fold_text(character) for character in text]
    # A ligature folds to several characters, a combining mark to none.
    places = [place for place, folded in enumerate(characters) for _ in folded] + [len(text)]
    for match in _WORD.finditer("".join(characters)):
        # Marks on the last character belong to the word.
        end = max(places[match.end()], places[match.end() - 1] + 1)
        yield match[0][:MAX_WORD_LENGTH], places[match.start()], end


def fold_text(text: str) -> str:
    """The text without case, accents, ligatures and other ways to write the same."""
    if text.isascii():
        return text.lower()
    plain = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return "".join(character for character in plain if not unicodedata.combining(character))


def parse_search(text: str) -> SearchQuery:
    """The search that a user typed. Raises ``ValueError`` with a sentence if there is nothing to search for."""
    text = text.strip()
    if len(text) > MAX_QUERY_LENGTH:
        raise ValueError(f"A search takes up to {MAX_QUERY_LENGTH} characters; this one has {len(text)}.")
    wanted: list[Term] = []
    unwanted: list[Term] = []
    for match in _TERM.finditer(text):
        part = match["plain"] if match["phrase"] is None else match["phrase"]
        words = tuple(split_words(part))
        if not words:
            continue
        # “INV-*” asks for any word after “INV”: there is no word yet that could begin so.
        is_starred = bool(match["star"]) or part.endswith("*")
        # A character of a script without spaces is a whole word.
        is_prefix = is_starred and part.rstrip("*")[-1:].isalnum() and not _UNSPACED_WORD.fullmatch(words[-1])
        if is_prefix and len(words[-1]) < MIN_PREFIX_LENGTH:
            raise ValueError(
                f"“{words[-1]}*” is too short: at least {MIN_PREFIX_LENGTH} characters are needed before “*”."
            )
        (unwanted if match["minus"] else wanted).append(Term(words, is_prefix))
    if sum(len(term.words) for term in wanted + unwanted) > MAX_QUERY_WORDS:
        raise ValueError(f"A search takes up to {MAX_QUERY_WORDS} words.")
    if not wanted and unwanted:
        raise ValueError("The search has only excluded words. Add a word to find.")
    if not wanted:
        # Also where nothing was typed.
        raise ValueError(f"“{text[:40]}” has no word to find: words consist of letters and digits.")
    return SearchQuery(text, tuple(dict.fromkeys(wanted)), tuple(dict.fromkeys(unwanted)))
