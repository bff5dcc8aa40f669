"""From the rows that editors change to the immutable versions that run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from django.db import models, transaction

from flows.engine.errors import Problem, SpecError
from flows.engine.plugins import registry
from flows.engine.spec import AuditSpec, FlowSpec, StepSpec
from flows.engine.spec_check import freeze_schemas
from flows.engine.typed_output import schema_of_type
from flows.models import AuditRule, Flow, FlowVersion, StepDefinition
from flows.providers import check_flow

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser


def publish_flow(*, flow: Flow, by: AbstractBaseUser | None = None, note: str = "") -> FlowVersion:
    """Create the next version of a flow from its rows, or give the latest one if nothing changed.

    The first version goes live by itself. A new version raises the flow's revision, by which open pages of the editor
    notice it. Raises ``SpecError`` with all problems if the flow can't run as it is defined; nothing is stored then.
    """
    spec = load_draft(flow)
    if problems := check_flow(spec):
        raise SpecError(problems)
    with transaction.atomic():
        # Two editors who publish at the same moment wait for each other here.
        locked = Flow.objects.select_for_update().get(pk=flow.pk)
        latest = locked.versions.first()
        if latest is not None and latest.digest == spec.digest:
            return latest
        version = FlowVersion.objects.create(
            flow=locked,
            number=latest.number + 1 if latest else 1,
            spec=spec.to_document(),
            digest=spec.digest,
            note=note,
            created_by_id=by.pk if by else None,
        )
        raise_revision(flow=locked)
        flow.revision = locked.revision
        if locked.live_version_id is None:
            locked.make_live(version)
            flow.live_version = version
    return version


def raise_revision(*, flow: Flow) -> None:
    """Count one more save of a flow whose row is locked. Publishing does it; what changes without has to call it."""
    flow.revision += 1
    flow.save(update_fields=["revision", "updated_at"])


def load_draft(flow: Flow) -> FlowSpec:
    """What ``read_spec`` gives for the stored rows of a flow. Two queries."""
    steps = flow.steps.prefetch_related("audits")
    return read_spec(flow, [(step, list(step.audits.all())) for step in steps])


def read_spec(flow: Flow, steps: Sequence[tuple[StepDefinition, Sequence[AuditRule]]]) -> FlowSpec:
    """The frozen spec of a flow and its steps, stored or not, in the order given; whether it can run is not checked.

    Raises ``SpecError`` where fields can't be read; paths are those of the ``FlowSpec`` document.
    """
    document = {
        **_read_fields(flow, FlowSpec, "steps"),
        "steps": [
            {**_read_fields(step, StepSpec, "audits"), "audits": [_read_fields(audit, AuditSpec) for audit in audits]}
            for step, audits in steps
        ],
    }
    return freeze_schemas(FlowSpec.from_document(document), registry)


def find_contradictions(spec: FlowSpec) -> Iterator[Problem]:
    """Schemas that are not those of the output type beside them: an output could hardly fit both.

    For editors only: a document that was made by an earlier version keeps the schema that was frozen into it.
    """
    for index, step in enumerate(spec.steps):
        schema = build_type_schema(step)
        if schema is not None and step.output_schema is not None and schema != step.output_schema:
            yield Problem(
                f"/steps/{index}/output_schema",
                f"The schema is not that of the type “{step.output_type}”. Leave it empty: it is made from the type.",
            )


def build_type_schema(step: StepSpec) -> dict[str, Any] | None:
    """The schema that the output type of a step makes; None without a registered type, or if it makes none."""
    known = registry.output_types.get(step.output_type or "")
    try:
        return schema_of_type(known.model) if known else None
    except SpecError:
        return None


def _read_fields(row: models.Model, kind: Any, *skipped: str) -> dict[str, Any]:
    """The fields that a row shares with its spec; empty ones are left to the spec's defaults."""
    values = {name: getattr(row, name) for name in kind.model_fields if name not in skipped}
    return {name: value for name, value in values.items() if value is not None and value != ""}
