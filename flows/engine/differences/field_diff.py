"""The fields of a flow, a step or an audit that differ, in words and line by line."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property
from typing import Any

from flows.engine.differences.field_words import CODE_FIELDS, LONG_FIELDS, SCHEMA_FIELDS, describe_value, needs_lines
from flows.engine.differences.schema_diff import compare_schemas
from flows.engine.differences.text_diff import LineKind, TextDifference, compare_texts, show_text
from flows.engine.spec import AuditSpec, FlowSpec, StepSpec

MOST_CHARACTERS = 300_000
"""Of so much text, old and new, one comparison shows the lines; further fields are only told to have changed."""

_MOST_UNFOLDED = 400
_MOST_UNFOLDED_LINES = 6

MOST_SENTENCES = 30
"""What is said of one schema; its lines say the rest."""


class ChangeKind(StrEnum):
    """What became of a step or an audit."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class Subject(StrEnum):
    """What a change is about."""

    FLOW = "flow"
    STEP = "step"
    AUDIT = "audit"


Spec = FlowSpec | StepSpec | AuditSpec

_PARTS = ("steps", "audits")


@dataclass(frozen=True)
class FieldChange:
    """One field that differs; of something added or removed, one field that says something.

    ``old`` and ``new`` are JSON values, None where nothing is set. ``notes`` are sentences about the difference.
    """

    field: str
    old: Any
    new: Any
    kind: ChangeKind = ChangeKind.CHANGED
    subject: Subject = Subject.FLOW
    is_left_out: bool = False
    """Whether there is no room for its lines: too much differs."""
    own_notes: tuple[str, ...] = ()
    words: tuple[str, str] | None = None

    @property
    def has_lines(self) -> bool:
        """Whether it is shown as lines, since a few words could not hold both values."""
        return self.field in LONG_FIELDS and any(needs_lines(value) for value in (self.old, self.new))

    @cached_property
    def old_words(self) -> str:
        """The old value in words; “none” where nothing is set."""
        return self.words[0] if self.words else describe_value(self.field, self.old, is_step=self._is_step)

    @cached_property
    def new_words(self) -> str:
        """The new value in words."""
        return self.words[1] if self.words else describe_value(self.field, self.new, is_step=self._is_step)

    @property
    def only_words(self) -> str:
        """The value of something that was added or removed, in words."""
        return self.old_words if self.kind is ChangeKind.REMOVED else self.new_words

    @property
    def is_folded(self) -> bool:
        """Whether the lines of something added or removed need not be in view."""
        text = _write_text(self.new if self.old is None else self.old)
        return self.is_schema or len(text) > _MOST_UNFOLDED or text.count("\n") >= _MOST_UNFOLDED_LINES

    @property
    def is_code(self) -> bool:
        """Whether its values are set as code."""
        return self.field in CODE_FIELDS

    @property
    def is_schema(self) -> bool:
        """Whether the field holds a JSON Schema: its lines stand behind its sentences."""
        return self.field in SCHEMA_FIELDS

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What is to be said of the difference besides the values."""
        if self.kind is not ChangeKind.CHANGED:
            return self.own_notes
        if self.is_schema and isinstance(self.old, Mapping) and isinstance(self.new, Mapping):
            said = compare_schemas(self.old, self.new)
            more = len(said) - MOST_SENTENCES
            return (*said[:MOST_SENTENCES], *([f"and {more} more differences, see the lines"] if more > 0 else []))
        if self.has_lines and str(self.old or "").split() == str(self.new or "").split():
            return (*self.own_notes, "only white space differs")
        return self.own_notes

    @cached_property
    def difference(self) -> TextDifference:
        """Both values line by line."""
        old, new = _write_text(self.old), _write_text(self.new)
        if self.kind is ChangeKind.CHANGED:
            return compare_texts(old, new)
        return show_text(old if self.kind is ChangeKind.REMOVED else new, LineKind(self.kind.value))

    @property
    def _is_step(self) -> bool:
        return self.subject is Subject.STEP


class FieldComparison:
    """Compares fields, as long as there is room for their lines."""

    def __init__(self) -> None:
        self._left = MOST_CHARACTERS

    def compare(self, old: Spec, new: Spec, subject: Subject) -> Iterator[FieldChange]:
        """The fields that differ, besides steps and audits."""
        names = {name for name in type(old).model_fields if name not in _PARTS and not _is_same(name, old, new)}
        before, after = (spec.model_dump(mode="json", include=names) if names else {} for spec in (old, new))
        for name, value in before.items():
            change = FieldChange(name, value, after[name], ChangeKind.CHANGED, subject)
            yield self._make_room(change, _measure(value) + _measure(after[name]))

    def list_set(self, spec: StepSpec | AuditSpec, kind: ChangeKind, subject: Subject) -> Iterator[FieldChange]:
        """The fields of what came or went that say something, besides its name."""
        for name, value in spec.model_dump(mode="json", exclude_defaults=True, exclude={"name", "audits"}).items():
            old, new = (value, None) if kind is ChangeKind.REMOVED else (None, value)
            yield self._make_room(FieldChange(name, old, new, kind, subject), _measure(value))

    def _make_room(self, change: FieldChange, size: int) -> FieldChange:
        if not change.has_lines:
            return change
        self._left -= size
        return change if self._left >= 0 else replace(change, is_left_out=True)


def _is_same(name: str, old: Spec, new: Spec) -> bool:
    left, right = getattr(old, name), getattr(new, name)
    if left is right or name not in SCHEMA_FIELDS:
        return bool(left == right)
    # As JSON, where 1, 1.0 and true differ, and so does the order of keys.
    return json.dumps(left, default=str) == json.dumps(right, default=str)


def _measure(value: Any) -> int:
    """How many characters a value has."""
    return len(value) if isinstance(value, str) else len(json.dumps(value))


def _write_text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, indent=2, ensure_ascii=False)
