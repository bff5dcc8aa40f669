"""What runs can be found by: the words of their inputs, outputs and issues.

Texts are read cut, and scanned as JSON text without being parsed: a run of any size costs a bounded amount of work.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator

from django.db.models import Case, F, Max, QuerySet, TextField, Value, When, Window
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast, Coalesce, RowNumber, Substr

from runs.models import Attempt, Issue, Run
from runs.search.words import split_words

GAP = "·"
"""Stands between texts, where no phrase goes across; no word has this character."""

MOST_WORDS = 15_000
"""Words of one run that are kept, with the gaps between its texts. PostgreSQL counts places up to 16,383."""
MOST_BYTES = 500_000
"""Their size. PostgreSQL takes up to a megabyte, with their places."""
MOST_PLACES = 250
"""How often a run holds a word at most; what is more is a gap. PostgreSQL keeps 256 places of a word."""
LONGEST_TEXT = 200_000
"""Characters that are read of one input, output or issue text. In JSON those beyond ASCII are written as six."""

OutputTexts = tuple[int, int, int, str | None, str]
"""Of an attempt: the numbers of its run and its step, its own, its output as JSON text (or what came back instead of
one), and the error that it met."""

_CHUNK = 50
"""Rows that are read at a time: outputs may be large."""

# A string may lack its end where the text was cut.
_SCALAR = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)(?:"|\\?$)|(-?\d[\d.eE+-]*)', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,4}|.?)", re.DOTALL)


class Document:
    """The words of one run, text by text. Texts that are there already add nothing."""

    def __init__(self) -> None:
        self._words: list[str] = []
        self._seen: set[tuple[str, ...]] = set()
        self._places: Counter[str] = Counter()
        self._size = 0
        self._share = 1.0

    @property
    def is_full(self) -> bool:
        """Whether it takes no more words."""
        return len(self._words) >= self._share * MOST_WORDS or self._size >= self._share * MOST_BYTES

    def fill_up_to(self, share: float) -> None:
        """Take words until so much of it is full, from 0 to 1: what comes later has the rest for itself."""
        self._share = share

    def list_words(self) -> list[str]:
        """All words in their order, with a gap after each text."""
        return self._words[:MOST_WORDS]

    def add_json(self, text: str | None) -> None:
        """Add the texts and numbers of a JSON value, given as JSON text that may be cut."""
        for scalar in list_scalars(text):
            if self.is_full:
                return
            self.add_text(scalar)

    def add_text(self, text: str) -> None:
        """Add one text."""
        if self.is_full:
            return
        words = split_words(text)
        key = tuple(words)
        if key in self._seen:
            return
        self._seen.add(key)
        for word in words[: int(self._share * MOST_WORDS) - len(self._words)]:
            self._places[word] += 1
            self._words.append(word if self._places[word] <= MOST_PLACES else GAP)
            self._size += len(word) if word.isascii() else len(word.encode())
        if words:
            self._words.append(GAP)


def list_scalars(text: str | None) -> Iterator[str]:
    """The strings (keys too) and numbers in a JSON text, which may be cut anywhere."""
    for match in _SCALAR.finditer(text or ""):
        string, number = match.groups()
        yield number if string is None else _unescape(string)


def _unescape(string: str) -> str:
    if "\\" not in string:
        return string
    # Where the text was cut, the last escape may be half of one.
    for text in (string, string.rpartition("\\")[0]):
        with contextlib.suppress(ValueError):
            return str(json.loads(f'"{text}"', strict=False))
    return _ESCAPE.sub(" ", string)


def build_documents(run_ids: Collection[int]) -> dict[int, Document]:
    """The documents of these runs by their numbers: issues, then inputs, then outputs, the last attempt first.

    Each of the three has a third, and what those before it left of theirs: a long input hides no issue.
    """
    documents = {run_id: Document() for run_id in run_ids}
    for document in documents.values():
        document.fill_up_to(1 / 3)
    for run_id, _, _, suggestions, *texts in list_issue_texts(documents):
        for text in texts:
            documents[run_id].add_text(text)
        documents[run_id].add_json(suggestions)
    for document in documents.values():
        document.fill_up_to(2 / 3)
    for run_id, text in list_input_texts(documents):
        documents[run_id].add_json(text)
    for document in documents.values():
        document.fill_up_to(1)
    for run_id, _, _, output, error in list_output_texts(documents):
        documents[run_id].add_json(output)
        documents[run_id].add_text(error)
    return documents


def list_input_texts(run_ids: Collection[int], *, longest: int = LONGEST_TEXT) -> Iterator[tuple[int, str]]:
    """Of each run: its number, and its input as JSON text."""
    runs = Run.objects.filter(pk__in=run_ids)
    yield from runs.values_list("pk", _cut_text("input", longest)).iterator(_CHUNK)


def list_issue_texts(
    run_ids: Collection[int], *, longest: int = LONGEST_TEXT
) -> Iterator[tuple[int, int, int, str, str, str, str]]:
    """Of each issue, those of the last attempt first: the numbers of its run, step and attempt, its suggestions as JSON
    text, its description, audit and code."""
    issues = Issue.objects.filter(attempt__step__run_id__in=run_ids).order_by("-attempt_id", "position")
    texts = (_cut_text(name, longest) for name in ("suggestions", "description", "audit", "code"))
    places = ("attempt__step__run_id", "attempt__step__index", "attempt__number")
    yield from issues.values_list(*places, *texts).iterator(_CHUNK)


def list_output_texts(run_ids: Collection[int]) -> Iterator[OutputTexts]:
    """What ``OutputTexts`` says of each attempt that ended, the last one first."""
    yield from _read_outputs(_list_ended(run_ids), LONGEST_TEXT)


def list_last_outputs(run_ids: Collection[int], *, longest: int) -> Iterator[OutputTexts]:
    """The same, but only of the last attempt of each run."""
    last = _list_ended(run_ids).values("step__run_id").annotate(last=Max("pk")).values("last")
    yield from _read_outputs(Attempt.objects.filter(pk__in=last), longest)


def list_earlier_outputs(run_ids: Collection[int], *, most: int, longest: int) -> Iterator[OutputTexts]:
    """The same of up to ``most`` attempts before the last one of each run: equally many of each, if it has them."""
    place = Window(RowNumber(), partition_by="step__run_id", order_by="-pk")
    earlier = _list_ended(run_ids).annotate(place=place).filter(place__gt=1).order_by("place", "-pk")
    yield from _read_outputs(Attempt.objects.filter(pk__in=earlier.values("pk")[:most]), longest)


def _list_ended(run_ids: Collection[int]) -> QuerySet[Attempt]:
    return Attempt.objects.filter(step__run_id__in=run_ids).exclude(outcome="").order_by()


def _read_outputs(attempts: QuerySet[Attempt], longest: int) -> Iterator[OutputTexts]:
    raw, usable = _cut_text("raw_output", longest), _cut_text("output", longest)
    output = Case(When(output__isnull=True, then=raw), default=usable)
    error = Coalesce(KeyTextTransform("message", "error"), Value(""), output_field=TextField())
    places = ("step__run_id", "step__index", "number")
    texts = attempts.order_by("-pk").values_list(*places, output, Substr(error, 1, longest))
    yield from texts.iterator(_CHUNK)


def _cut_text(field: str, longest: int) -> Substr:
    """The beginning of a column as the text that it is stored as."""
    return Substr(Cast(F(field), TextField()), 1, longest)
