"""Where in a run the words of a search occur, as a few words around them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial

from flows.engine.differences import Piece
from runs.search.index import fetch_inputs, fetch_issues, fetch_outputs
from runs.search.words import SearchQuery, Term, find_words, fold_text

MAX_EXCERPTS = 2
"""Excerpts of one run."""
MAX_OUTPUTS = 500
"""Outputs that are read for a page: they may be large."""
MAX_LENGTH = 20_000
"""Characters of one input, output or issue text that are searched."""
BEFORE, AFTER = 40, 110
"""Characters that are shown before the beginning of the first word and after it."""

Span = tuple[int, int]

_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A few words of one text. A model may have written them."""

    place: str
    """Where the text is: “Input”, “Step 2, attempt 1, issue”, “Step 2, attempt 1, output”."""
    pieces: tuple[Piece, ...]
    step: int
    attempt: int
    """The numbers of the step and the attempt. The input is the first attempt of step 0."""


def find_excerpts(run_ids: Collection[int], query: SearchQuery) -> dict[int, tuple[Excerpt, ...]]:
    """Where in the runs of one page the words occur, by run number.

    The first text that holds a term is shown, in the order of inputs, issues and outputs from the newest back. A run
    may lack excerpts: only the beginning of a text is searched, and of very many outputs only the newest.
    """
    excerpts: dict[int, list[Excerpt]] = {run_id: [] for run_id in run_ids}
    missing = {run_id: set(query.wanted) for run_id in run_ids}
    for fetch in (fetch_inputs, fetch_issues, partial(fetch_outputs, limit=MAX_OUTPUTS)):
        incomplete = [run_id for run_id, terms in missing.items() if terms]
        if not incomplete:
            break
        for text in fetch(incomplete, max_length=MAX_LENGTH):
            place = f"Step {text.step}, attempt {text.attempt}, {text.kind}" if text.step else text.kind
            for string in text.strings:
                if not missing[text.run_id]:
                    break
                pieces, shown = _find_terms(string, query.wanted, missing[text.run_id])
                if shown:
                    excerpts[text.run_id].append(Excerpt(place, pieces, text.step, text.attempt))
                    missing[text.run_id] -= shown
                if len(excerpts[text.run_id]) == MAX_EXCERPTS:
                    missing[text.run_id].clear()
    return {run_id: tuple(found) for run_id, found in excerpts.items()}


def _find_terms(text: str, terms: Collection[Term], missing: Collection[Term]) -> tuple[tuple[Piece, ...], set[Term]]:
    """The excerpt around the first of the ``missing`` terms in a text, and which of those the text holds."""
    folded = fold_text(text)
    if not any(term.words[0] in folded for term in missing):
        return (), set()
    text = _SPACE.sub(" ", text).strip()
    words = list(find_words(text))
    spans = {term: _find_spans(term, words) for term in terms}
    shown = {term for term in missing if spans[term]}
    if not shown:
        return (), set()
    first = min(spans[term][0][0] for term in shown)
    return _mark(text, first, sorted(span for found in spans.values() for span in found)), shown


def _find_spans(term: Term, words: Sequence[tuple[str, int, int]]) -> list[Span]:
    """From where to where the words of a term are."""
    *inner, last = term.words
    spans = []
    for position, (word, _, end) in enumerate(words[len(inner) :]):
        is_last = word.startswith(last) if term.is_prefix else word == last
        if is_last and [one for one, _, _ in words[position : position + len(inner)]] == inner:
            spans.append((words[position][1], end))
    return spans


def _mark(text: str, first: int, spans: Sequence[Span]) -> tuple[Piece, ...]:
    """The text around ``first``, cut between words where there is a space close by, with the spans marked."""
    begin = max(first - BEFORE, 0)
    if begin:
        begin = text.find(" ", begin, first - BEFORE // 2) + 1 or begin
    end = min(first + AFTER, len(text))
    if end < len(text):
        end = max(text.rfind(" ", end - BEFORE // 2, end), 0) or end
    pieces = [Piece("…")] if begin else []
    for left, right in spans:
        left, right = max(left, begin), min(right, end)
        if left < right:
            pieces += [Piece(text[begin:left]), Piece(text[left:right], is_marked=True)]
            begin = right
    pieces.append(Piece(text[begin:end] + ("…" if end < len(text) else "")))
    return tuple(piece for piece in pieces if piece.text)
