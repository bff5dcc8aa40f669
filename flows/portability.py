"""From a document to the rows that editors change, and from there to a published version."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from django.core.exceptions import ValidationError
from django.db import models, transaction

from flows.engine.errors import Problem, SpecError
from flows.engine.plugins import registry
from flows.engine.spec import AuditSpec, FlowSpec, StepSpec
from flows.engine.spec_check import check_spec, freeze_schemas
from flows.models import AuditRule, Flow, FlowVersion, StepDefinition
from flows.publishing import publish_flow

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser

_Row = TypeVar("_Row", bound=models.Model)


def load_flow(*, document: Mapping[str, Any], by: AbstractBaseUser | None = None, note: str = "") -> FlowVersion:
    """Make the flow that a ``FlowSpec`` document names look like the document, and publish it.

    Gives the latest version if the document brings nothing new. As with every publication, only the first version of
    a flow goes live by itself. Raises ``SpecError`` with all problems if the flow can't run as the document defines
    it; nothing is stored then.
    """
    spec = FlowSpec.from_document(dict(document))
    if problems := [*check_spec(freeze_schemas(spec, registry), registry), *_find_misfits(spec)]:
        raise SpecError(problems)
    with transaction.atomic():
        flow, _ = Flow.objects.select_for_update().get_or_create(name=spec.name)
        _save(flow, _read_columns(spec))
        _store_steps(flow, spec.steps)
        return publish_flow(flow=flow, by=by, note=note)


def _store_steps(flow: Flow, specs: Sequence[StepSpec]) -> None:
    # Rows are rewritten in place: whoever has the flow open in the admin meanwhile can still save it.
    steps = _match_rows(flow.steps.all(), len(specs), partial(StepDefinition, flow=flow))
    for position, (step, spec) in enumerate(zip(steps, specs, strict=True)):
        _save(step, {**_read_columns(spec), "position": position})
        audits = _match_rows(step.audits.all(), len(spec.audits), partial(AuditRule, step=step))
        for place, (audit, audit_spec) in enumerate(zip(audits, spec.audits, strict=True)):
            _save(audit, {**_read_columns(audit_spec), "position": place})


def _match_rows(stored: models.QuerySet[_Row], count: int, create: Callable[[], _Row]) -> list[_Row]:
    """``count`` rows: the stored ones in their order, then new ones. Stored ones beyond that are deleted."""
    rows = list(stored)
    for row in rows[count:]:
        row.delete()
    return rows[:count] + [create() for _ in range(count - len(rows))]


def _save(row: models.Model, columns: Mapping[str, Any]) -> None:
    for name, value in columns.items():
        setattr(row, name, value)
    row.save()


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
    return columns


def _find_misfits(spec: FlowSpec) -> Iterator[Problem]:
    """What a spec allows and a row can't hold, such as a title that is too long."""
    yield from _check_row("", spec)
    for index, step in enumerate(spec.steps):
        yield from _check_row(f"/steps/{index}", step)
        for position, audit in enumerate(step.audits):
            yield from _check_row(f"/steps/{index}/audits/{position}", audit)


def _check_row(place: str, spec: FlowSpec | StepSpec | AuditSpec) -> Iterator[Problem]:
    columns = _read_columns(spec)
    row = _ROWS[type(spec)](**columns)
    try:
        row.clean_fields(exclude={field.name for field in row._meta.fields} - columns.keys())
    except ValidationError as error:
        for name, messages in error.message_dict.items():
            for message in messages:
                yield Problem(f"{place}/{name}", message)
