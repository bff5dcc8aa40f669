"""Where in a run the words stand that were looked for, as a few words around them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from runs.search.documents import (
    OutputTexts,
    list_earlier_outputs,
    list_input_texts,
    list_issue_texts,
    list_last_outputs,
    list_scalars,
)
from runs.search.queries import SearchQuery, Term
from runs.search.words import find_words, fold_text

MOST_EXCERPTS = 2
"""Excerpts of one run."""
MOST_EARLIER = 200
"""Outputs that are read for a page, besides those of the last attempts: they may be large."""
LONGEST_TEXT = 20_000
"""Characters of one input, output or issue text that are looked through."""
BEFORE, AFTER = 40, 110
"""Characters that are shown before the first word and after it."""

_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of an excerpt, marked where it is what was looked for."""

    text: str
    is_marked: bool = False


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A few words of one text. A model may have written them."""

    place: str
    """Where the text stands: “Input”, “Step 2, attempt 1, issue”, “Step 2, attempt 1, output”."""
    pieces: tuple[Piece, ...]
    step: int = 0
    attempt: int = 1
    """The numbers of the step and the attempt. The input is the first attempt of step 0."""


def find_excerpts(run_ids: Collection[int], query: SearchQuery) -> dict[int, tuple[Excerpt, ...]]:
    """Where in these runs the words stand, by run number; for the runs of one page.

    The first text that holds a term is shown, in the order of input, issues and outputs from the last one back. A run
    may lack its excerpts: only the beginning of a text is looked through, and of many outputs only the latest.
    """
    searches = {run_id: _RunSearch(query) for run_id in run_ids}
    for run_id, text in list_input_texts(searches, longest=LONGEST_TEXT):
        searches[run_id].look_at("Input", list_scalars(text))
    for run_id, step, number, suggestions, *texts in list_issue_texts(_list_open(searches), longest=LONGEST_TEXT):
        searches[run_id].look_at("issue", [*texts, *list_scalars(suggestions)], step, number)
    for run_id, step, number, output, error in _list_outputs(searches):
        searches[run_id].look_at("output", list_scalars(output), step, number)
        searches[run_id].look_at("error", [error], step, number)
    return {run_id: tuple(search.excerpts) for run_id, search in searches.items()}


class _RunSearch:
    """The terms that are still to be shown of one run, and the excerpts found so far."""

    def __init__(self, query: SearchQuery) -> None:
        self.excerpts: list[Excerpt] = []
        self._terms = query.wanted
        self._open = set(query.wanted)

    @property
    def is_open(self) -> bool:
        return bool(self._open) and len(self.excerpts) < MOST_EXCERPTS

    def look_at(self, kind: str, texts: Collection[str] | Iterator[str], step: int = 0, attempt: int = 1) -> None:
        """Take an excerpt of each text that holds a term which no excerpt shows yet."""
        for text in texts:
            if not self.is_open:
                return
            folded = fold_text(text)
            if not any(term.words[0] in folded for term in self._open):
                continue
            text = _SPACE.sub(" ", unicodedata.normalize("NFC", text)).strip()
            found = {term: list(_locate(term, text)) for term in self._terms}
            shown = {term for term in self._open if found[term]}
            if shown:
                first = min(found[term][0][0] for term in shown)
                place = f"Step {step}, attempt {attempt}, {kind}" if step else kind
                pieces = _cut(text, first, [span for spans in found.values() for span in spans])
                self.excerpts.append(Excerpt(place, pieces, step, attempt))
                self._open -= shown


def _list_outputs(searches: dict[int, _RunSearch]) -> Iterator[OutputTexts]:
    """Outputs of the runs that are still open when they are read."""
    if run_ids := _list_open(searches):
        yield from list_last_outputs(run_ids, longest=LONGEST_TEXT)
    if run_ids := _list_open(searches):
        yield from list_earlier_outputs(run_ids, most=MOST_EARLIER, longest=LONGEST_TEXT)


def _list_open(searches: dict[int, _RunSearch]) -> list[int]:
    return [run_id for run_id, search in searches.items() if search.is_open]


def _locate(term: Term, text: str) -> Iterator[tuple[int, int]]:
    """From where to where the words of a term stand in a text."""
    words = list(find_words(text))
    count = len(term.words)
    for position in range(len(words) - count + 1):
        here = words[position : position + count]
        last = here[-1].word
        is_last = last.startswith(term.words[-1]) if term.is_beginning else last == term.words[-1]
        if is_last and all(word.word == wanted for word, wanted in zip(here, term.words[:-1], strict=False)):
            yield here[0].begin, here[-1].end


def _cut(text: str, first: int, spans: list[tuple[int, int]]) -> tuple[Piece, ...]:
    begin = _find_space_after(text, first - BEFORE) if first > BEFORE else 0
    end = _find_space_before(text, first + AFTER) if first + AFTER < len(text) else len(text)
    pieces = [Piece("…")] if begin else []
    for left, right in sorted(spans):
        left, right = max(left, begin), min(right, end)
        if left >= right:
            continue
        if left > begin:
            pieces.append(Piece(text[begin:left]))
        pieces.append(Piece(text[left:right], is_marked=True))
        begin = right
    if begin < end:
        pieces.append(Piece(text[begin:end]))
    if end < len(text):
        pieces.append(Piece("…"))
    return tuple(pieces)


def _find_space_after(text: str, place: int) -> int:
    """Behind the next space, if there is one close by: words are cut only where they are long."""
    space = text.find(" ", place, place + BEFORE // 2)
    return place if space < 0 else space + 1


def _find_space_before(text: str, place: int) -> int:
    space = text.rfind(" ", place - BEFORE // 2, place)
    return place if space < 0 else space
