"""What changed: between two sequences, two texts, or two definitions of a flow.

``compare_specs`` pairs the steps and audits of two definitions and says of each what was added, removed, moved or set
differently. There is no change exactly if the two have the same digest.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum
from typing import Any, NamedTuple

from flows.engine.spec import AuditSpec, FlowSpec, StepSpec

CONTEXT = 3
"""Unchanged lines that stay in view before and after a change."""
MAX_LINES = 600
"""Changed lines that one text shows; the rest is counted."""
MAX_WORDS_LENGTH = 60
"""Characters of a value that is shown within a line."""
MAX_SUMMARY_LENGTH = 100
"""Characters of a summary that names what changed, two changes at most; else it counts them."""

_MAX_COMPARED = 10_000
"""Items, old and new, between their common ends that ``difflib`` compares (2 s at worst); more differ wholly."""
_MAX_PAIRS = 200_000
"""Pairs of equal items that ``difflib`` compares one by one; with more pairs it ignores very frequent items."""
_MAX_MARKED = 4_000
"""Words of two lines that are compared with each other."""
_MIN_IN_COMMON = 0.3
"""Lines that have less in common are shown without marks: nearly all of them would be marked."""

_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
# What a browser would not show, or would take for something else.
_VISIBLE: dict[int, str] = {
    **{code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"},
    **{code: f"⟨U+{code:04X}⟩" for code in (0x7F, *range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200B, 0xFEFF)},
    **dict.fromkeys(range(0xD800, 0xE000), "\ufffd"),
}


# ---------------------------------------------------------------------------------------------------------------
# Sequences


class Stretch(NamedTuple):
    """A part of the old sequence and the part of the new one in its place; the same, or wholly different."""

    old: slice
    new: slice
    is_same: bool


def compare_sequences(old: list[Any], new: list[Any]) -> list[Stretch]:
    """Both lists, of hashable items, cut into stretches without gaps; same and different ones alternate."""
    shorter = min(len(old), len(new))
    start = next((place for place in range(shorter) if old[place] != new[place]), shorter)
    end = next((place for place in range(shorter - start) if old[-1 - place] != new[-1 - place]), shorter - start)
    before, after = old[start : len(old) - end], new[start : len(new) - end]
    stretches = [Stretch(slice(0, start), slice(0, start), is_same=True)] if start else []
    if len(before) + len(after) > _MAX_COMPARED:
        stretches.append(Stretch(slice(start, len(old) - end), slice(start, len(new) - end), is_same=False))
    else:
        counts = Counter(after)
        matcher = SequenceMatcher(None, before, after, autojunk=sum(counts[item] for item in before) > _MAX_PAIRS)
        for kind, a, b, c, d in matcher.get_opcodes():
            stretches.append(Stretch(slice(start + a, start + b), slice(start + c, start + d), kind == "equal"))
    if end:
        stretches.append(Stretch(slice(len(old) - end, len(old)), slice(len(new) - end, len(new)), is_same=True))
    return stretches


def find_increasing(values: Sequence[int]) -> list[int]:
    """The positions of a longest strictly increasing part of ``values``."""
    lowest: list[int] = []  # the least last value of a part with one, two, … values
    ends: list[int] = []  # its position
    before: list[int] = []  # for each position the one before it in such a part, or -1
    for position, value in enumerate(values):
        length = bisect_left(lowest, value)
        before.append(ends[length - 1] if length else -1)
        lowest[length : length + 1] = [value]
        ends[length : length + 1] = [position]
    part = ends[-1:]
    while part and before[part[-1]] >= 0:
        part.append(before[part[-1]])
    return part[::-1]


# ---------------------------------------------------------------------------------------------------------------
# Texts


class LineKind(StrEnum):
    """What became of a line."""

    SAME = "same"
    REMOVED = "removed"
    ADDED = "added"


class Piece(NamedTuple):
    """A part of a line; marked where it differs from the line in its place."""

    text: str
    is_marked: bool = False


class Line(NamedTuple):
    """One line of the old text, of the new one, or of both."""

    kind: LineKind
    pieces: list[Piece]

    @property
    def text(self) -> str:
        """The whole line."""
        return "".join(piece.text for piece in self.pieces)


class Block(NamedTuple):
    """Lines that are together. Folded ones are unchanged and need not be in view."""

    lines: list[Line]
    is_folded: bool = False


class TextDifference(NamedTuple):
    """All blocks of two texts, and how many changed lines are left out since there are too many."""

    blocks: list[Block]
    left_out: int


def compare_texts(old: str, new: str) -> TextDifference:
    """The difference of two texts, line by line. Characters without a shape of their own are written as symbols."""
    before, after = old.split("\n") if old else [], new.split("\n") if new else []
    stretches = compare_sequences(before, after)
    blocks: list[Block] = []
    remaining, left_out = MAX_LINES, 0
    for position, (left, right, is_same) in enumerate(stretches):
        if is_same:
            blocks += _fold(before[left], is_first=position == 0, is_last=position == len(stretches) - 1)
            continue
        lines = _pair_lines(before[left][:remaining], after[right][:remaining])[:remaining]
        left_out += len(before[left]) + len(after[right]) - len(lines)
        remaining -= len(lines)
        blocks += [Block(lines)] if lines else []
    return TextDifference(blocks, left_out)


def reveal(text: str) -> str:
    """The text with its invisible characters written as symbols; spaces, tabs and line breaks stay."""
    return text.translate(_VISIBLE)


def _fold(lines: list[str], *, is_first: bool, is_last: bool) -> list[Block]:
    same = [Line(LineKind.SAME, [Piece(reveal(line))]) for line in lines]
    start, end = (0 if is_first else CONTEXT), len(same) - (0 if is_last else CONTEXT)
    if end - start < 2:  # a fold of one line takes as much room as the line
        return [Block(same)]
    blocks = [Block(same[:start]), Block(same[start:end], is_folded=True), Block(same[end:])]
    return [block for block in blocks if block.lines]


def _pair_lines(old: list[str], new: list[str]) -> list[Line]:
    """Lines that took each other's place: first the old ones, then the new ones."""
    pairs = [_mark_words(before, after) for before, after in zip(old, new, strict=False)]
    before = [left for left, _ in pairs] + [[Piece(reveal(line))] for line in old[len(pairs) :]]
    after = [right for _, right in pairs] + [[Piece(reveal(line))] for line in new[len(pairs) :]]
    return [Line(LineKind.REMOVED, pieces) for pieces in before] + [Line(LineKind.ADDED, pieces) for pieces in after]


def _mark_words(old: str, new: str) -> tuple[list[Piece], list[Piece]]:
    before, after = _WORDS.findall(old), _WORDS.findall(new)
    stretches = compare_sequences(before, after) if len(before) + len(after) <= _MAX_MARKED else []
    same = sum(len("".join(before[one.old]).strip()) for one in stretches if one.is_same)
    if not stretches or same < _MIN_IN_COMMON * max(len(old.strip()), len(new.strip())):
        return [Piece(reveal(old))], [Piece(reveal(new))]
    return (
        [Piece(reveal("".join(before[one.old])), not one.is_same) for one in stretches if before[one.old]],
        [Piece(reveal("".join(after[one.new])), not one.is_same) for one in stretches if after[one.new]],
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


class FieldChange(NamedTuple):
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

    @property
    def difference(self) -> TextDifference:
        """Both values line by line, JSON laid out."""
        return compare_texts(_render_text(self.old), _render_text(self.new))


@dataclass(frozen=True)
class Change:
    """What became of the flow as a whole, of one step, or of one audit.

    ``place`` counts from 1: in the new spec, or in the old one for what was removed; 0 for the flow. ``notes`` hold
    what is not a field, such as a move. Changes of a step's audits are in ``audits``.
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
        if self.subject is Subject.FLOW:
            return "Flow"
        return f"Step {self.place} “{self.name}”" if self.subject is Subject.STEP else f"Audit “{self.name}”"


def compare_specs(old: FlowSpec, new: FlowSpec) -> list[Change]:
    """All that differs: the flow's own fields, then steps in their new order, removed ones where they were."""
    fields = _compare_fields(old, new)
    own = [Change(Subject.FLOW, ChangeKind.CHANGED, new.name, fields=fields)] if fields else []
    return [*own, *_compare_parts(Subject.STEP, old.steps, new.steps, pair_steps(old.steps, new.steps))]


def pair_steps(old: Sequence[StepSpec], new: Sequence[StepSpec]) -> dict[int, int]:
    """The steps that are the same: by name, else by tool name, else by position.

    From the position in the old list to that in the new one, both counted from 0.
    """
    return _pair(old, new, "name", "tool_name")


def _pair(old: Sequence[Any], new: Sequence[Any], *keys: str) -> dict[int, int]:
    pairs: dict[int, int] = {}
    for key in (*keys, None):
        left = [index for index in range(len(new)) if index not in pairs.values()]
        for index, item in enumerate(old):
            value = getattr(item, key) if key else index
            if index in pairs or value is None:
                continue
            same = (place for place in left if (getattr(new[place], key) if key else place) == value)
            if (found := next(same, None)) is not None:
                pairs[index] = found
                left.remove(found)
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
        audits = _compare_audits(old[before].audits, part.audits) if subject is Subject.STEP else ()
        if move or fields or audits:
            change = Change(subject, ChangeKind.CHANGED, part.name, index + 1, move, fields, audits)
            placed.append(((index, 0), change))
    for index, part in enumerate(old):
        if index not in pairs:
            behind = next((pairs[place] for place in range(index, -1, -1) if place in pairs), -1)
            placed.append(((behind, 1 + index), _list_whole(subject, ChangeKind.REMOVED, part, index)))
    return tuple(change for _, change in sorted(placed, key=lambda one: one[0]))


def _compare_audits(old: Sequence[AuditSpec], new: Sequence[AuditSpec]) -> tuple[Change, ...]:
    return _compare_parts(Subject.AUDIT, old, new, _pair(old, new, "name", "rule"))


def _list_whole(subject: Subject, kind: ChangeKind, part: StepSpec | AuditSpec, index: int) -> Change:
    """All that is set in a step or an audit that was added or removed."""
    values = part.model_dump(mode="json", exclude_defaults=True, exclude={"name", "audits"})
    if kind is ChangeKind.REMOVED:
        fields = tuple(FieldChange(name, value, None, kind) for name, value in values.items())
    else:
        fields = tuple(FieldChange(name, None, value, kind) for name, value in values.items())
    audits = part.audits if isinstance(part, StepSpec) else ()
    own = tuple(_list_whole(Subject.AUDIT, kind, audit, place) for place, audit in enumerate(audits))
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
    named = ", ".join(words for _, words in items)
    if len(items) <= 2 and len(named) <= MAX_SUMMARY_LENGTH:
        return named[0].upper() + named[1:]
    counts = sorted(Counter(what for what, _ in items).items())
    return ", ".join(f"{count} {noun}{'' if count == 1 else 's'} {kind.value}" for (noun, kind), count in counts)


def _list_items(change: Change) -> Iterator[tuple[tuple[str, ChangeKind], str]]:
    """Each change as what it is about and what became of it, and both in words."""
    noun = change.subject.value
    fields = [
        f"{field.field} changed" if field.has_lines else f"{field.field} {field.old_words} → {field.new_words}"
        for field in change.fields
    ]
    if change.subject is Subject.FLOW:
        yield from ((("setting", change.kind), words) for words in fields)
        return
    if change.kind is not ChangeKind.CHANGED:
        # Its audits came or went with it.
        yield (noun, change.kind), f"{noun} “{change.name}” {change.kind.value}"
        return
    if facts := [*change.notes, *fields]:
        words = f"“{change.name}”: {facts[0]}" if len(facts) == 1 else f"{noun} “{change.name}” changed"
        yield (noun, change.kind), words
    for audit in change.audits:
        yield from _list_items(audit)
