"""What changed: between two sequences, two texts, or two definitions of a flow.

``compare_specs`` pairs the steps and audits of two definitions and says of each what was added, removed, moved or set
differently. There is no change exactly if the two have the same digest.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum
from functools import cached_property
from typing import Any

from flows.engine.spec import AuditSpec, FlowSpec, StepSpec

CONTEXT = 3
"""Unchanged lines that stay in view before and after a change."""
MAX_LINES = 600
"""Changed lines that one text shows; the rest is counted."""
MAX_WORDS_LENGTH = 60
"""Characters of a value that is shown within a line."""
MAX_SUMMARY_LENGTH = 100
"""Characters of a summary that names what changed; a longer one counts."""

_MAX_COMPARED = 10_000
"""Items, old and new, that ``difflib`` compares (2 s at worst); of longer sequences only the ends are compared."""
_MAX_MARKED = 4_000
"""Words of two lines that are compared with each other."""
_MIN_IN_COMMON = 0.3
"""Lines that have less in common are shown without marks: nearly all of them would be marked."""
_MAX_NAMED = 2
"""Changes that a summary names."""

_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
# What a browser would not show, or would take for something else.
_VISIBLE: dict[int, str] = {
    **{code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"},
    **{code: f"⟨U+{code:04X}⟩" for code in (0x7F, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200B, 0xFEFF)},
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),
}


# ---------------------------------------------------------------------------------------------------------------
# Sequences


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of the old sequence and the part of the new one in its place; the same, or wholly different."""

    old: slice
    new: slice
    is_same: bool


def compare_sequences(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[Stretch]:
    """Both sequences cut into stretches, in order and without gaps; same and different ones alternate."""
    start = _count_equal(old, new)
    end = _count_equal(old[start:][::-1], new[start:][::-1])
    left, right = old[start : len(old) - end], new[start : len(new) - end]
    blocks = [(0, 0, start)]
    if len(left) + len(right) <= _MAX_COMPARED:
        matches = SequenceMatcher(None, left, right).get_matching_blocks()
        blocks += [(start + match.a, start + match.b, match.size) for match in matches]
    blocks.append((len(old) - end, len(new) - end, end))
    stretches: list[Stretch] = []
    from_old = from_new = 0
    for i, j, size in blocks:
        if i > from_old or j > from_new:
            stretches.append(Stretch(slice(from_old, i), slice(from_new, j), is_same=False))
        if size:
            stretches.append(Stretch(slice(i, i + size), slice(j, j + size), is_same=True))
        from_old, from_new = i + size, j + size
    return stretches


def _count_equal(old: Sequence[Hashable], new: Sequence[Hashable]) -> int:
    """How many items both begin with."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((index for index, (left, right) in pairs if left != right), min(len(old), len(new)))


def find_increasing(values: Sequence[int]) -> list[int]:
    """The positions of a longest strictly increasing part of ``values``."""
    lowest: list[int] = []  # the least last value of a part with one, two, … values
    ends: list[int] = []
    before = [-1] * len(values)
    for position, value in enumerate(values):
        length = bisect_left(lowest, value)
        before[position] = ends[length - 1] if length else -1
        lowest[length : length + 1] = [value]
        ends[length : length + 1] = [position]
    found: list[int] = []
    position = ends[-1] if ends else -1
    while position >= 0:
        found.append(position)
        position = before[position]
    return found[::-1]


# ---------------------------------------------------------------------------------------------------------------
# Texts


class LineKind(StrEnum):
    """What became of a line."""

    SAME = "same"
    REMOVED = "removed"
    ADDED = "added"


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a line; marked where it differs from the line in its place."""

    text: str
    is_marked: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the old text, of the new one, or of both."""

    kind: LineKind
    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        """The whole line."""
        return "".join(piece.text for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Block:
    """Lines that stand together. Folded ones are unchanged and need not be in view."""

    lines: tuple[Line, ...]
    is_folded: bool = False


@dataclass(frozen=True, slots=True)
class TextDifference:
    """All blocks of two texts, and how many changed lines are left out since there are too many."""

    blocks: tuple[Block, ...]
    left_out: int = 0


def compare_texts(old: str, new: str) -> TextDifference:
    """The difference of two texts, line by line. Characters without a shape of their own are written as symbols."""
    before, after = old.split("\n") if old else [], new.split("\n") if new else []
    stretches = compare_sequences(before, after)
    blocks: list[Block] = []
    shown = changed = 0
    for position, stretch in enumerate(stretches):
        left, right = before[stretch.old], after[stretch.new]
        if stretch.is_same:
            blocks += _fold(left, is_first=position == 0, is_last=position == len(stretches) - 1)
            continue
        changed += len(left) + len(right)
        room = MAX_LINES - shown
        lines = tuple(_pair_lines(left[:room], right[:room]))[:room]
        shown += len(lines)
        blocks += [Block(lines)] if lines else []
    return TextDifference(tuple(blocks), left_out=changed - shown)


def reveal(text: str) -> str:
    """The text with its invisible characters written as symbols; spaces, tabs and line breaks stay."""
    return text.translate(_VISIBLE)


def _fold(lines: Sequence[str], *, is_first: bool, is_last: bool) -> Iterator[Block]:
    same = tuple(Line(LineKind.SAME, (Piece(reveal(line)),)) for line in lines)
    start, end = (0 if is_first else CONTEXT), len(same) - (0 if is_last else CONTEXT)
    if end - start < 2:  # a fold of one line takes as much room as the line
        yield Block(same)
        return
    for part, is_folded in ((same[:start], False), (same[start:end], True), (same[end:], False)):
        if part:
            yield Block(part, is_folded)


def _pair_lines(old: Sequence[str], new: Sequence[str]) -> Iterator[Line]:
    """Lines that took each other's place: first the old ones, then the new ones."""
    pairs = [_mark_words(before, after) for before, after in zip(old, new, strict=False)]
    for kind, lines, side in ((LineKind.REMOVED, old, 0), (LineKind.ADDED, new, 1)):
        for position, line in enumerate(lines):
            yield Line(kind, pairs[position][side] if position < len(pairs) else (Piece(reveal(line)),))


def _mark_words(old: str, new: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    before, after = _WORDS.findall(old), _WORDS.findall(new)
    stretches = compare_sequences(before, after) if len(before) + len(after) <= _MAX_MARKED else []
    same = sum(len("".join(before[one.old]).strip()) for one in stretches if one.is_same)
    if same < _MIN_IN_COMMON * max(len(old.strip()), len(new.strip())):
        stretches = []
    if not stretches:
        return (Piece(reveal(old)),), (Piece(reveal(new)),)
    return (
        tuple(Piece(reveal("".join(before[one.old])), not one.is_same) for one in stretches if before[one.old]),
        tuple(Piece(reveal("".join(after[one.new])), not one.is_same) for one in stretches if after[one.new]),
    )


# ---------------------------------------------------------------------------------------------------------------
# Definitions of flows


class ChangeKind(StrEnum):
    """What became of a step, an audit or a field."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


class Subject(StrEnum):
    """What a change is about."""

    FLOW = "flow"
    STEP = "step"
    AUDIT = "audit"


@dataclass(frozen=True)
class FieldChange:
    """One field that differs; of something added or removed, one field that is set.

    ``old`` and ``new`` are JSON values, None where nothing is set.
    """

    field: str
    old: Any
    new: Any
    kind: ChangeKind = ChangeKind.CHANGED

    @property
    def has_lines(self) -> bool:
        """Whether it is shown as lines, since a few words could not hold both values."""
        return _needs_lines(self.old) or _needs_lines(self.new)

    @property
    def old_words(self) -> str:
        """The old value in words; “none” where nothing is set."""
        return _describe_value(self.old)

    @property
    def new_words(self) -> str:
        """The new value in words."""
        return _describe_value(self.new)

    @property
    def only_words(self) -> str:
        """The value of something that was added or removed, in words."""
        return self.old_words if self.kind is ChangeKind.REMOVED else self.new_words

    @property
    def notes(self) -> tuple[str, ...]:
        """What the values don't show."""
        is_text = isinstance(self.old, str) and isinstance(self.new, str)
        return ("only white space differs",) if is_text and self.old.split() == self.new.split() else ()

    @cached_property
    def difference(self) -> TextDifference:
        """Both values line by line, JSON laid out."""
        return compare_texts(_render_text(self.old), _render_text(self.new))


@dataclass(frozen=True)
class Change:
    """What became of the flow as a whole, of one step, or of one audit.

    ``place`` counts from 1: in the new spec, or in the old one for what was removed; 0 for the flow. ``notes`` hold
    what is no field, such as a move. Changes of a step's audits are in ``audits``.
    """

    subject: Subject
    kind: ChangeKind
    name: str = ""
    place: int = 0
    notes: tuple[str, ...] = ()
    fields: tuple[FieldChange, ...] = ()
    audits: tuple[Change, ...] = ()

    @property
    def title(self) -> str:
        """What it is about: “Step 2 “Reconcile””."""
        match self.subject:
            case Subject.FLOW:
                return "Flow"
            case Subject.STEP:
                return f"Step {self.place} “{self.name}”"
        return f"Audit “{self.name}”"


def compare_specs(old: FlowSpec, new: FlowSpec) -> list[Change]:
    """All that differs: the flow's own fields, then steps in their new order, removed ones where they stood."""
    fields = _compare_fields(old, new)
    own = [Change(Subject.FLOW, ChangeKind.CHANGED, new.name, fields=fields)] if fields else []
    return [*own, *_compare_parts(Subject.STEP, old.steps, new.steps, pair_steps(old.steps, new.steps))]


def pair_steps(old: Sequence[StepSpec], new: Sequence[StepSpec]) -> dict[int, int]:
    """The steps that are the same: by name, else by tool name, else by position.

    From the position in the old list to that in the new one, both counted from 0.
    """
    return _pair(old, new, ("name", "tool_name"))


def _pair(old: Sequence[Any], new: Sequence[Any], keys: Sequence[str]) -> dict[int, int]:
    pairs: dict[int, int] = {}
    for key in (*keys, ""):
        taken = set(pairs.values())
        waiting: dict[Hashable, list[int]] = defaultdict(list)
        for index, item in enumerate(new):
            if index not in taken:
                waiting[getattr(item, key) if key else index].append(index)
        for index, item in enumerate(old):
            value = getattr(item, key) if key else index
            if index not in pairs and value is not None and waiting[value]:
                pairs[index] = waiting[value].pop(0)
    return pairs


def _compare_parts(
    subject: Subject, old: Sequence[Any], new: Sequence[Any], pairs: dict[int, int]
) -> tuple[Change, ...]:
    """The changes of steps or audits."""
    left = sorted(pairs)
    staying = {left[position] for position in find_increasing([pairs[index] for index in left])}
    origins = {after: before for before, after in pairs.items()}
    placed: list[tuple[tuple[int, int], Change]] = []
    for index, part in enumerate(new):
        before = origins.get(index)
        if before is None:
            placed.append(((index, 0), _list_whole(subject, ChangeKind.ADDED, part, index)))
            continue
        move = () if before in staying else (f"moved from place {before + 1} to {index + 1}",)
        fields = _compare_fields(old[before], part)
        audits = _compare_audits(old[before], part) if subject is Subject.STEP else ()
        if move or fields or audits:
            change = Change(subject, ChangeKind.CHANGED, part.name, index + 1, move, fields, audits)
            placed.append(((index, 0), change))
    for index, part in enumerate(old):
        if index not in pairs:
            behind = next((pairs[place] for place in range(index, -1, -1) if place in pairs), -1)
            placed.append(((behind, 1 + index), _list_whole(subject, ChangeKind.REMOVED, part, index)))
    return tuple(change for _, change in sorted(placed, key=lambda one: one[0]))


def _compare_audits(old: StepSpec, new: StepSpec) -> tuple[Change, ...]:
    pairs = _pair(old.audits, new.audits, ("name", "rule"))
    return _compare_parts(Subject.AUDIT, old.audits, new.audits, pairs)


def _list_whole(subject: Subject, kind: ChangeKind, part: StepSpec | AuditSpec, index: int) -> Change:
    """All that is set in a step or an audit that was added or removed."""
    is_gone = kind is ChangeKind.REMOVED
    values = part.model_dump(mode="json", exclude_defaults=True, exclude={"name", "audits"})
    fields = tuple(
        FieldChange(name, value if is_gone else None, None if is_gone else value, kind)
        for name, value in values.items()
    )
    audits = enumerate(part.audits if isinstance(part, StepSpec) else ())
    own = tuple(_list_whole(Subject.AUDIT, kind, audit, place) for place, audit in audits)
    return Change(subject, kind, part.name, index + 1, (), fields, own)


def _compare_fields(
    old: FlowSpec | StepSpec | AuditSpec, new: FlowSpec | StepSpec | AuditSpec
) -> tuple[FieldChange, ...]:
    before, after = (spec.model_dump(mode="json", exclude={"steps", "audits"}) for spec in (old, new))
    # As JSON, where 1, 1.0 and true differ, and so does the order of a schema's properties.
    differing = (name for name in before if json.dumps(before[name]) != json.dumps(after[name]))
    return tuple(FieldChange(name, before[name], after[name]) for name in differing)


def _needs_lines(value: Any) -> bool:
    if isinstance(value, str):
        return len(value) > MAX_WORDS_LENGTH or "\n" in value
    return isinstance(value, dict) or (isinstance(value, list) and len(_describe_value(value)) > MAX_WORDS_LENGTH)


def _render_text(value: Any) -> str:
    if isinstance(value, list):
        return "\n".join(map(str, value))
    if isinstance(value, dict):
        return json.dumps(value, indent=2, ensure_ascii=False)
    return "" if value is None else str(value)


def _describe_value(value: Any) -> str:
    match value:
        case None | "" | []:
            return "none"
        case bool():
            return "on" if value else "off"
        case str():
            return reveal(value)
        case list():
            return ", ".join(map(str, value))
        case int():
            return f"{value:,}"
    return str(value)


def summarise_changes(changes: Sequence[Change]) -> str:
    """One or two changes by name (“Extract”: max_retries 3 → 1), more of them counted; “No difference” for none."""
    items = [item for change in changes for item in _list_items(change)]
    if not items:
        return "No difference"
    named = ", ".join(words for _, _, words in items)
    if len(items) <= _MAX_NAMED and len(named) <= MAX_SUMMARY_LENGTH:
        return named[0].upper() + named[1:]
    counts = Counter((noun, kind.value) for noun, kind, _ in items)
    parts = [f"{count} {noun}{'' if count == 1 else 's'} {kind}" for (noun, kind), count in sorted(counts.items())]
    return ", ".join(parts)


def _list_items(change: Change) -> Iterator[tuple[str, ChangeKind, str]]:
    """Each change as what it is about, what became of it, and both in words."""
    noun = change.subject.value
    fields = [_describe_field(field) for field in change.fields]
    if change.subject is Subject.FLOW:
        yield from (("setting", change.kind, words) for words in fields)
        return
    if change.kind is not ChangeKind.CHANGED:
        # Its audits came or went with it.
        yield noun, change.kind, f"{noun} “{change.name}” {change.kind.value}"
        return
    if facts := [*change.notes, *fields]:
        words = f"“{change.name}”: {facts[0]}" if len(facts) == 1 else f"{noun} “{change.name}” changed"
        yield noun, change.kind, words
    for audit in change.audits:
        yield from _list_items(audit)


def _describe_field(field: FieldChange) -> str:
    return f"{field.field} changed" if field.has_lines else f"{field.field} {field.old_words} → {field.new_words}"
