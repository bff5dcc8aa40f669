"""Two editors who save one flow: the second sees who saved what, and may save anyway."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from flows.admin.version_rows import UNREADABLE
from flows.engine.differences import Change, ChangeKind, Subject, compare_specs
from flows.engine.spec import FlowSpec
from flows.models import FlowVersion

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser

    from flows.models import Flow


@dataclass(frozen=True, slots=True)
class Conflict:
    """Another user saved the flow after a page of it was opened; saving the page would undo their changes."""

    latest: FlowVersion
    """A page that names it may overwrite."""
    new_versions: int
    """How many versions were made since the page was opened."""
    theirs: list[Change] | None
    """What they changed; None if the version that the page was made of is gone."""
    mine: list[Change]
    """What the page would change."""

    @property
    def by(self) -> AbstractBaseUser | None:
        return self.latest.created_by

    @property
    def at(self) -> datetime:
        return self.latest.created_at

    @property
    def button(self) -> str:
        """The words of the button that saves the page nevertheless."""
        return f"Save mine as version {self.latest.flow.next_number(self.latest)} anyway"


def load_conflict(flow: Flow, spec: FlowSpec, base_number: int) -> Conflict | None:
    """What publishing ``spec`` would undo of versions since ``base_number``; None if there is nothing of the kind."""
    versions = flow.versions.select_related("created_by")
    latest = versions.first()
    if latest is None or latest.number == base_number or latest.digest == spec.digest:
        return None
    base = versions.filter(number=base_number).first()
    return Conflict(
        latest=latest,
        new_versions=versions.filter(number__gt=base_number).count(),
        theirs=_compare(base, latest) if base is not None else None,
        mine=_compare(latest, spec),
    )


def _compare(old: FlowVersion, new: FlowVersion | FlowSpec) -> list[Change]:
    """What differs; a note alone where a version can't be read by this installation."""
    before, after = old.readable_spec, new if isinstance(new, FlowSpec) else new.readable_spec
    if before is not None and after is not None:
        return compare_specs(before, after)
    unreadable = old if isinstance(new, FlowSpec) or before is None else new
    return [Change(Subject.FLOW, ChangeKind.CHANGED, notes=(UNREADABLE.format(unreadable.number),))]
