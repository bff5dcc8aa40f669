"""All changes in one short line, for lists: “2 steps changed, 1 moved; 1 audit added”."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flows.engine.differences.field_diff import ChangeKind, FieldChange, Subject
from flows.engine.differences.spec_diff import Change

MOST_CHARACTERS = 100
"""A line that names what changed is no longer than this; else it counts."""

_MOST_NAMED = 2
_NOUNS = ("setting", "step", "audit")
_VERBS = ("changed", "added", "removed", "moved", "renamed")


@dataclass(frozen=True, slots=True)
class _Item:
    noun: str
    verb: str
    words: str


def summarise_changes(changes: Sequence[Change]) -> str:
    """One or two changes by name (“Extract”: max_retries 3 → 1), more of them counted; “No difference” for none."""
    items = [item for change in changes for item in _list_items(change)]
    if not items:
        return "No difference"
    named = ", ".join(item.words for item in items)
    if len(items) <= _MOST_NAMED and len(named) <= MOST_CHARACTERS:
        return named[0].upper() + named[1:]
    counted = [_count(noun, [item.verb for item in items if item.noun == noun]) for noun in _NOUNS]
    return "; ".join(words for words in counted if words)


def _count(noun: str, verbs: Sequence[str]) -> str:
    counts = Counter(verbs)
    words = [f"{counts[verb]} {verb}" for verb in _VERBS if counts[verb]]
    if not words:
        return ""
    number, _, verb = words[0].partition(" ")
    return ", ".join([f"{number} {noun}{'' if number == '1' else 's'} {verb}", *words[1:]])


def _list_items(change: Change) -> Iterator[_Item]:
    if change.subject is Subject.FLOW:
        for field in change.fields:
            yield _Item("setting", "changed", _tell_field(field))
        return
    noun = change.subject.value
    if change.kind is not ChangeKind.CHANGED:
        # Its audits came or went with it.
        yield _Item(noun, change.kind.value, f"{noun} “{change.name}” {change.kind.value}")
        return
    if change.notes or change.fields:
        yield _Item(noun, *_tell_one(change))
    for audit in change.audits:
        yield from _list_items(audit)


def _tell_one(change: Change) -> tuple[str, str]:
    fields = [field.field for field in change.fields]
    if not fields:
        is_move = any(note.startswith("moved") for note in change.notes)
        verb = "moved" if is_move else "changed"
        return verb, f"{change.subject.value} “{change.name}” {verb}"
    if fields == ["name"] and not change.notes:
        return "renamed", f"{change.subject.value} {change.fields[0].old_words} renamed to “{change.name}”"
    if len(fields) == 1 and not change.notes:
        return "changed", f"“{change.name}”: {_tell_field(change.fields[0])}"
    return "changed", f"{change.subject.value} “{change.name}” changed"


def _tell_field(field: FieldChange) -> str:
    if field.is_schema or field.has_lines:
        return f"{field.field} changed"
    return f"{field.field} {field.old_words} → {field.new_words}"
