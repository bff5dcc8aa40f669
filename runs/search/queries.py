"""What somebody types into a search field, read as words to look for.

    tea leaves        runs with both words
    "tea leaves"      both words, one after the other, in one text
    INV-2026-0042     the same: what stands together is found together
    order*            words that begin so
    -draft            runs without that word

Nothing that is typed is an error in the language of a database: only letters and digits reach one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from runs.search.words import split_words

LONGEST_QUERY = 500
MOST_WORDS = 30
SHORTEST_BEGINNING = 2
"""Characters before ``*``: a single one stands for a great part of all words."""

_QUOTES = '"“”„«»'
_TERM = re.compile(
    rf"(?P<minus>-?)(?:[{_QUOTES}](?P<phrase>[^{_QUOTES}]*)[{_QUOTES}]?|(?P<plain>[^\s{_QUOTES}*]+))(?P<star>\*?)"
)


@dataclass(frozen=True, slots=True)
class Term:
    """Words that stand one after the other in one text."""

    words: tuple[str, ...]
    is_beginning: bool = False
    """The last word may go on."""


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """What to look for, as ``read_query`` understood it: runs that hold all ``wanted`` and none of ``unwanted``."""

    text: str
    """As it was typed."""
    wanted: tuple[Term, ...]
    unwanted: tuple[Term, ...] = ()


def read_query(text: str) -> SearchQuery:
    """What somebody typed into a search field. Raises ``ValueError`` with a sentence if nothing can be looked for."""
    text = text.strip()
    if len(text) > LONGEST_QUERY:
        raise ValueError(f"A search takes up to {LONGEST_QUERY} characters; this one has {len(text)}.")
    wanted: list[Term] = []
    unwanted: list[Term] = []
    for match in _TERM.finditer(text):
        part = match["plain"] if match["phrase"] is None else match["phrase"]
        words = tuple(split_words(part))
        if not words:
            continue
        # “INV-*” asks for whatever follows “INV”: there is no word yet that could begin so.
        is_starred = bool(match["star"]) or part.endswith("*")
        is_beginning = is_starred and part.rstrip("*")[-1:].isalnum()
        if is_beginning and len(words[-1]) < SHORTEST_BEGINNING:
            raise ValueError(f"“{words[-1]}*” is too short: at least {SHORTEST_BEGINNING} characters stand before “*”.")
        (unwanted if match["minus"] else wanted).append(Term(words, is_beginning))
    if sum(len(term.words) for term in wanted + unwanted) > MOST_WORDS:
        raise ValueError(f"A search takes up to {MOST_WORDS} words.")
    if not wanted:
        raise ValueError(_explain_nothing(text, unwanted))
    return SearchQuery(text, tuple(dict.fromkeys(wanted)), tuple(dict.fromkeys(unwanted)))


def _explain_nothing(text: str, unwanted: list[Term]) -> str:
    if unwanted:
        return "Only words to leave out are given; add a word to look for."
    if not text:
        return "Type a word to look for."
    return f"“{text[:40]}” has no word to look for: words are made of letters and digits."
