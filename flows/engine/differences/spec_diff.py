"""What changed from one definition of a flow to another, as an editor would tell it.

``compare_specs`` finds the steps and audits that are the same in both, whatever they are called, and says of each what
was added, removed, moved, renamed or set differently. Nothing that differs is left out: there is no change exactly if
the two have the same digest. Line-by-line differences are made when they are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from flows.engine.differences.field_diff import ChangeKind, FieldChange, FieldComparison, Subject
from flows.engine.differences.spec_pairing import AuditPairing, Pairs, find_moved, pair_steps
from flows.engine.spec import FlowSpec, StepSpec


@dataclass(frozen=True)
class Change:
    """What became of the flow as a whole, of one step, or of one audit.

    ``place`` counts from 1: in the new spec, or in the old one for what was removed; 0 for the flow. ``notes`` tell of
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
    """All that differs: the flow's own fields first, then steps in their new order, removed ones where they stood.

    An empty list if, and only if, the two have the same digest.
    """
    return _Comparison(old, new).list_changes()


class _Comparison:
    def __init__(self, old: FlowSpec, new: FlowSpec) -> None:
        self.old, self.new = old, new
        self.fields = FieldComparison()
        self.steps = pair_steps(old.steps, new.steps)
        self.came_from = {after: before for before, after in self.steps.items()}
        self.moved_steps = find_moved(self.steps)
        self.audits = AuditPairing(old, new, self.steps)

    def list_changes(self) -> list[Change]:
        changes: list[Change] = []
        if fields := tuple(self.fields.compare(self.old, self.new, Subject.FLOW)):
            changes.append(Change(Subject.FLOW, ChangeKind.CHANGED, self.new.name, fields=fields))
        steps = [((after, 0), self._compare_step(after)) for after in range(len(self.new.steps))]
        steps += [((self._find_place(before), 1 + before), self._tell_removed(before)) for before in self._gone()]
        changes += [change for _, change in sorted(steps, key=lambda one: one[0]) if change is not None]
        return changes

    def _gone(self) -> Iterator[int]:
        return (before for before in range(len(self.old.steps)) if before not in self.steps)

    def _find_place(self, before: int) -> int:
        """The new place of the step that stood before a removed one; -1 if there is none."""
        return next((self.steps[place] for place in range(before, -1, -1) if place in self.steps), -1)

    def _compare_step(self, after: int) -> Change | None:
        step, before = self.new.steps[after], self.came_from.get(after)
        if before is None:
            audits = tuple(self._list_new_audits(after))
            fields = tuple(self.fields.list_set(step, ChangeKind.ADDED, Subject.STEP))
            return Change(Subject.STEP, ChangeKind.ADDED, step.name, after + 1, (), fields, audits)
        previous = self.old.steps[before]
        notes = [f"moved from place {before + 1} to {after + 1}"] if before in self.moved_steps else []
        fields = tuple(self._tell_included(field) for field in self.fields.compare(previous, step, Subject.STEP))
        if not any(field.field == "include_results" for field in fields):
            notes += self._find_other_meaning(previous, step)
        audits = tuple(self._compare_audits(before, after))
        if not (notes or fields or audits):
            return None
        return Change(Subject.STEP, ChangeKind.CHANGED, step.name, after + 1, tuple(notes), fields, audits)

    def _tell_removed(self, before: int) -> Change:
        step = self.old.steps[before]
        audits = tuple(
            Change(Subject.AUDIT, ChangeKind.REMOVED, audit.name, place + 1)
            for place, audit in enumerate(step.audits)
            if (before, place) not in self.audits.moved
        )
        fields = tuple(self.fields.list_set(step, ChangeKind.REMOVED, Subject.STEP))
        return Change(Subject.STEP, ChangeKind.REMOVED, step.name, before + 1, (), fields, audits)

    def _compare_audits(self, before: int, after: int) -> Iterator[Change]:
        left, right = self.old.steps[before].audits, self.new.steps[after].audits
        pairs = self.audits.within[before]
        moved = find_moved(pairs)
        for place, audit in enumerate(left):
            if place not in pairs and (before, place) not in self.audits.moved:
                fields = tuple(self.fields.list_set(audit, ChangeKind.REMOVED, Subject.AUDIT))
                yield Change(Subject.AUDIT, ChangeKind.REMOVED, audit.name, place + 1, (), fields)
            elif place in pairs:
                notes = (f"moved from place {place + 1} to {pairs[place] + 1}",) if place in moved else ()
                other = right[pairs[place]]
                fields = tuple(self.fields.compare(audit, other, Subject.AUDIT))
                if fields or notes:
                    yield Change(Subject.AUDIT, ChangeKind.CHANGED, other.name, pairs[place] + 1, notes, fields)
        yield from self._list_new_audits(after, pairs)

    def _list_new_audits(self, after: int, pairs: Pairs | None = None) -> Iterator[Change]:
        known = set((pairs or {}).values())
        origins = {target: origin for origin, target in self.audits.moved.items()}
        for place, audit in enumerate(self.new.steps[after].audits):
            if place in known:
                continue
            if (origin := origins.get((after, place))) is not None:
                step = self.old.steps[origin[0]]
                fields = tuple(self.fields.compare(step.audits[origin[1]], audit, Subject.AUDIT))
                note = f"moved here from step “{step.name}”"
                yield Change(Subject.AUDIT, ChangeKind.CHANGED, audit.name, place + 1, (note,), fields)
            else:
                fields = tuple(self.fields.list_set(audit, ChangeKind.ADDED, Subject.AUDIT))
                yield Change(Subject.AUDIT, ChangeKind.ADDED, audit.name, place + 1, (), fields)

    def _tell_included(self, field: FieldChange) -> FieldChange:
        """``include_results`` with the names of the steps that it means."""
        if field.field != "include_results":
            return field
        words = (_name_steps(self.old, field.old), _name_steps(self.new, field.new))
        means = [self.steps.get(index - 1) for index in field.old or ()]
        is_same = means == [index - 1 for index in field.new or ()]
        notes = ("the same steps, at their new places",) if is_same else ()
        return replace(field, own_notes=notes, words=words)

    def _find_other_meaning(self, previous: StepSpec, step: StepSpec) -> list[str]:
        """Numbers in ``include_results`` that stayed while the steps that they mean did not."""
        return [
            f"`include_results` still lists {index}, which is now {_name_steps(self.new, [index])}, "
            f"and was {_name_steps(self.old, [index])}"
            for index in step.include_results
            if 0 < index <= len(self.old.steps) and self.steps.get(index - 1) != index - 1
        ]


def _name_steps(spec: FlowSpec, indices: Any) -> str:
    if not indices:
        return "none"
    return ", ".join(
        f"{index} “{spec.steps[index - 1].name}”" if 0 < index <= len(spec.steps) else str(index) for index in indices
    )
