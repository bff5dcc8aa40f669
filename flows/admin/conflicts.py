"""Two editors who save one flow: the second is told who saved what, and may save all the same."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import AbstractBaseUser
from django.contrib.contenttypes.models import ContentType

from flows.admin.version_rows import UNREADABLE, read_spec
from flows.engine.differences import Change, ChangeKind, Subject, compare_specs
from flows.engine.spec import FlowSpec
from flows.forms import OPERATIONAL_FIELDS
from flows.models import Flow, FlowVersion

if TYPE_CHECKING:
    from flows.admin.draft import FlowDraft
    from flows.admin.edited_flow import EditedFlowForm


@dataclass(frozen=True, slots=True)
class LimitChange:
    """A field of the flow that is no part of its definition: what is stored, and what the page says, in words."""

    label: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.label} {self.old} → {self.new}"


@dataclass(frozen=True, slots=True)
class Conflict:
    """Somebody saved the flow after a page of it was opened; saving the page would undo what they did."""

    revision: int
    """Of the flow now: a page that names it may overwrite."""
    by: AbstractBaseUser | None
    at: datetime | None
    latest: FlowVersion | None
    """The latest version; None if there is none any more."""
    new_versions: int
    """How many versions were made since the page was opened."""
    theirs: list[Change] | None
    """What they changed in the definition; None if the version that the page was made of is gone."""
    mine: list[Change] | None
    """What the page would change in the definition; None if it has mistakes."""
    limits: list[LimitChange]
    """What the page would change beside the definition."""

    @property
    def next_number(self) -> int | None:
        """Of the version that saving all the same makes; None if it makes none."""
        return self.latest.number + 1 if self.latest is not None and self.mine else None

    @property
    def button(self) -> str:
        """The words of the button that saves the page nevertheless."""
        return f"Save mine as version {self.next_number} anyway" if self.next_number else "Save mine anyway"


def find_conflict(form: EditedFlowForm, draft: FlowDraft) -> Conflict | None:
    """What saving the page would undo of a flow that was saved meanwhile; None if both come to the same."""
    flow = form.instance
    versions = flow.versions.select_related("created_by")
    latest = versions.first()
    mine = None if any(draft.list_errors()) else draft.spec
    limits = list_limit_changes(form)
    if mine is not None and latest is not None and mine.digest == latest.digest and not limits:
        return None
    base_number = form.cleaned_data.get("base_version") or 0
    base = versions.filter(number=base_number).first()
    newer = versions.filter(number__gt=base_number).count()
    by, at = (latest.created_by, latest.created_at) if latest is not None and newer else _find_last_save(flow)
    return Conflict(
        revision=flow.revision,
        by=by,
        at=at,
        latest=latest,
        new_versions=newer,
        theirs=_compare(base, latest) if base is not None and latest is not None else None,
        mine=_compare(latest, mine) if latest is not None and mine is not None else None,
        limits=limits,
    )


def _compare(old: FlowVersion, new: FlowVersion | FlowSpec) -> list[Change]:
    """What differs; a note alone where a version can't be read by this installation."""
    before, after = read_spec(old), new if isinstance(new, FlowSpec) else read_spec(new)
    if before is not None and after is not None:
        return compare_specs(before, after)
    unreadable = old if isinstance(new, FlowSpec) or before is None else new
    return [Change(Subject.FLOW, ChangeKind.CHANGED, notes=(UNREADABLE.format(unreadable.number),))]


def list_limit_changes(form: EditedFlowForm) -> list[LimitChange]:
    """What the page changes of the fields that are no part of the definition."""
    changes = []
    for name in OPERATIONAL_FIELDS:
        if name in form.changed_data and name in form.cleaned_data:
            field = form.fields[name]
            old, new = (_describe(field, value) for value in (form.initial.get(name), form.cleaned_data[name]))
            changes.append(LimitChange(str(field.label), old, new))
    return changes


def _describe(field: Any, value: Any) -> str:
    if value in (None, ""):
        return "none"
    if isinstance(value, int):
        return f"{value:,}"
    return str(dict(getattr(field, "choices", ())).get(value) or field.prepare_value(value))


def _find_last_save(flow: Flow) -> tuple[AbstractBaseUser | None, datetime | None]:
    """Who changed the flow last, and when, where no version says it."""
    kind = ContentType.objects.get_for_model(Flow)
    entries = LogEntry.objects.filter(
        content_type=kind, object_id=str(flow.pk), change_message__regex="^(Saved|Changed) "
    )
    entry = entries.select_related("user").order_by("-action_time").first()
    return (entry.user, entry.action_time) if entry is not None else (None, None)
