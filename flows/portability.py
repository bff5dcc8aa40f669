"""Flows in and out: a file, a document or an earlier version becomes a flow's next version; versions are exported."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ValidationError
from django.db import models, transaction
from django.dispatch import Signal

from flows.engine.errors import Problem, SpecError
from flows.engine.json_values import dump_json, parse_pointer
from flows.engine.plugins import registry
from flows.engine.spec import AuditSpec, FlowSpec, StepSpec
from flows.engine.spec_check import freeze_schemas
from flows.flow_file import parse_flow
from flows.models import AuditRule, Flow, FlowVersion, StepDefinition
from flows.providers import check_flow
from flows.publishing import build_type_schema, publish_flow, raise_revision

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser

NOTE_LENGTH: int = FlowVersion._meta.get_field("note").max_length or 0
"""Characters that the note of a version may have."""

flows_exported = Signal()
"""Sent with ``versions``, those that were written into files for somebody."""


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """What loading a flow would do here."""

    spec: FlowSpec
    """What is published then: with a title, and with the schemas of registered types."""
    flow: Flow | None
    """The flow of that name; None if there is none yet."""
    latest: FlowVersion | None
    """Its latest version."""

    @property
    def is_unchanged(self) -> bool:
        """Whether the latest version is the same already."""
        return self.latest is not None and self.latest.digest == self.spec.digest

    @property
    def number(self) -> int:
        """Of the version that is the flow's latest afterwards."""
        if self.latest is None:
            return 1
        return self.latest.number if self.is_unchanged else self.latest.number + 1


def announce_export(versions: Sequence[FlowVersion]) -> None:
    """Send ``flows_exported`` with these versions, whose flows must be loaded; nothing if there are none."""
    if versions:
        flows_exported.send(sender=FlowVersion, versions=versions)


def parse_flow_file(source: str | bytes) -> FlowSpec:
    """The flow in a file, if it could be loaded here. Raises ``FlowFileError`` with all that is wrong, line by line."""
    return parse_flow(source, check=find_problems)


def find_problems(spec: FlowSpec) -> list[Problem]:
    """What keeps a flow from being loaded here, by JSON pointers into its document."""
    return [*check_flow(freeze_schemas(spec, registry)), *_find_misfits(spec)]


def plan_load(spec: FlowSpec) -> LoadPlan:
    """What loading a flow that has no problems would do. Nothing is stored."""
    flow = Flow.objects.select_related("live_version").filter(name=spec.name).first()
    titled = spec.model_copy(update={"title": spec.title or spec.name})
    latest = flow.versions.select_related("created_by").first() if flow is not None else None
    return LoadPlan(freeze_schemas(titled, registry), flow, latest)


def load_flow(*, document: Mapping[str, Any], by: AbstractBaseUser | None = None, note: str = "") -> FlowVersion:
    """Make the flow that a ``FlowSpec`` document names look like the document, and publish it.

    Gives the latest version if the document brings nothing new. As with every publication, only the first version of
    a flow goes live by itself. Editors who have the flow open are told when they save, if anything changed. Raises
    ``SpecError`` with all problems if the flow can't run as the document defines it; nothing is stored then.
    """
    spec = FlowSpec.from_document(dict(document))
    if problems := find_problems(spec):
        raise SpecError(problems)
    with transaction.atomic():
        flow, _ = Flow.objects.select_for_update().get_or_create(name=spec.name)
        has_changed = _save(flow, _read_columns(spec))
        has_changed |= _store_parts(flow.steps.all(), spec.steps, flow=flow)
        previous = flow.versions.first()
        version = publish_flow(flow=flow, by=by, note=note)
        if has_changed and version == previous:
            raise_revision(flow=version.flow)
        return version


def make_note(version: FlowVersion, own: str = "") -> str:
    """The note of the version that restores ``version``, followed by the editor's ``own``."""
    return f"Restores version {version.number}. {own}".strip()


def read_restored(flow: Flow, version: FlowVersion) -> FlowSpec:
    """What restoring ``version`` makes of ``flow``: the version's definition under the name that the flow has now.

    Raises ``SpecError`` if this release can't read the stored definition.
    """
    return FlowSpec.from_document({**version.spec, "name": flow.name})


def restore_version(*, version: FlowVersion, by: AbstractBaseUser | None = None, note: str = "") -> FlowVersion:
    """Put the definition of ``version`` back into its flow's draft, and publish it.

    The flow keeps its name, its operational settings, its live version, and whether it is archived. Gives the
    latest version if that has this definition already. Raises ``SpecError`` with all problems if the flow can't run
    like this any more; nothing is stored then.
    """
    with transaction.atomic():
        flow = Flow.objects.select_for_update().get(pk=version.flow_id)
        document = read_restored(flow, version).to_document()
        return load_flow(document=document, by=by, note=make_note(version, note))


def describe_place(spec: FlowSpec | None, path: str) -> str:
    """Where a JSON pointer into the document of ``spec`` leads, in words: “Step 2 “Reconcile”, output_type”.

    Without a spec, it is the pointer itself.
    """
    if spec is None:
        return path or "Flow"
    match parse_pointer(path):
        case ["steps", index, "audits", position, *rest]:
            step = spec.steps[int(index)]
            words = [f"Step {int(index) + 1} “{step.name}”", f"audit “{step.audits[int(position)].name}”"]
        case ["steps", index, *rest]:
            words = [f"Step {int(index) + 1} “{spec.steps[int(index)].name}”"]
        case rest:
            words = ["Flow"]
    return ", ".join([*words, *(["/".join(rest)] if rest else [])])


def _store_parts(
    stored: models.QuerySet[Any], specs: Sequence[StepSpec | AuditSpec], **parent: StepDefinition | Flow
) -> bool:
    """Make the steps of a flow, or the audits of a step, those of ``specs``; gives whether anything was different."""
    # Rows are rewritten in place, so that editors who have the flow open can still save it.
    rows = list(stored)
    for row in rows[len(specs) :]:
        row.delete()
    has_changed = len(rows) > len(specs)
    for position, (row, spec) in enumerate(zip_longest(rows[: len(specs)], specs)):
        part = row or stored.model(**parent)
        has_changed |= _save(part, {**_read_columns(spec), "position": position})
        if isinstance(spec, StepSpec):
            has_changed |= _store_parts(part.audits.all(), spec.audits, step=part)
    return has_changed


def _save(row: models.Model, columns: Mapping[str, Any]) -> bool:
    """Store a row with these columns, unless it has them already; gives whether it was stored."""
    if row.pk is not None and all(_is_same(getattr(row, name), value) for name, value in columns.items()):
        return False
    for name, value in columns.items():
        setattr(row, name, value)
    row.save()
    return True


def _is_same(stored: Any, value: Any) -> bool:
    # In a schema, the order of keys and the type of a number are content.
    if isinstance(stored, dict) and isinstance(value, dict):
        return dump_json(stored) == dump_json(value)
    return bool(stored == value)


_ROWS: dict[type[FlowSpec | StepSpec | AuditSpec], type[models.Model]] = {
    FlowSpec: Flow,
    StepSpec: StepDefinition,
    AuditSpec: AuditRule,
}


def _read_columns(spec: FlowSpec | StepSpec | AuditSpec) -> dict[str, Any]:
    """What a row holds of its spec; a field that is not set gets the column's own word for that."""
    empty = _ROWS[type(spec)]()
    values = spec.model_dump(mode="json", exclude={"steps", "audits"})
    columns = {name: getattr(empty, name) if value is None else value for name, value in values.items()}
    if isinstance(spec, FlowSpec):
        columns["title"] = spec.title or spec.name
        columns["cost_budget"] = spec.cost_budget  # money is no float here
    if isinstance(spec, StepSpec) and spec.output_schema and _is_same(build_type_schema(spec), spec.output_schema):
        columns["output_schema"] = None  # publishing makes this very schema
    return columns


def _find_misfits(spec: FlowSpec) -> Iterator[Problem]:
    """What a spec allows and a row can't hold, such as a title that is too long."""
    parts: dict[str, FlowSpec | StepSpec | AuditSpec] = {"": spec}
    for index, step in enumerate(spec.steps):
        parts[f"/steps/{index}"] = step
        parts |= {f"/steps/{index}/audits/{position}": audit for position, audit in enumerate(step.audits)}
    for place, part in parts.items():
        columns = _read_columns(part)
        row = _ROWS[type(part)](**columns)
        try:
            row.clean_fields(exclude={field.name for field in row._meta.fields} - columns.keys())
        except ValidationError as error:
            for name, messages in error.message_dict.items():
                yield from (Problem(f"{place}/{name}", message) for message in messages)
