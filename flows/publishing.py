"""From the rows that editors change to the immutable versions that run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
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
    """Make the next version of a flow from its rows; the latest one comes back if nothing changed.

    The first version of a flow goes live by itself. A new version raises the flow's revision: pages of the editor
    that were opened before then know. Raises ``SpecError`` with all problems if the flow can't run as it is defined;
    nothing is stored then.
    """
    steps = flow.steps.prefetch_related("audits")
    spec = build_spec(flow, [(step, list(step.audits.all())) for step in steps])
    with transaction.atomic():
        # Two editors who publish at the same moment take turns here.
        locked = Flow.objects.select_for_update().get(pk=flow.pk)
        latest = locked.versions.order_by("-number").first()
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
    """Count one more save of a flow, and say that it was saved now.

    For those who hold its row locked. Publishing a version does it; what changes without one has to call this.
    """
    flow.revision += 1
    flow.save(update_fields=["revision", "updated_at"])


def build_spec(flow: Flow, steps: Sequence[tuple[StepDefinition, Sequence[AuditRule]]]) -> FlowSpec:
    """The frozen, checked spec of a flow and its steps, stored or not, in the order given.

    Raises ``SpecError`` with all problems; their paths are those of the ``FlowSpec`` document.
    """
    spec = read_spec(flow, steps)
    if problems := check_flow(spec):
        raise SpecError(problems)
    return spec


def read_spec(flow: Flow, steps: Sequence[tuple[StepDefinition, Sequence[AuditRule]]]) -> FlowSpec:
    """What ``build_spec`` gives, without the check whether the flow makes sense as a whole.

    Raises ``SpecError`` where fields can't even be read.
    """
    document = {
        **_read_fields(flow, FlowSpec, skip={"steps"}),
        "steps": [
            {
                **_read_fields(step, StepSpec, skip={"audits"}),
                "audits": [_read_fields(audit, AuditSpec, skip=set()) for audit in audits],
            }
            for step, audits in steps
        ],
    }
    return freeze_schemas(FlowSpec.from_document(document), registry)


def find_contradictions(spec: FlowSpec) -> Iterator[Problem]:
    """Schemas that are not those of the output type beside them: an output could hardly fit both.

    For editors only: a document that was made by an earlier version keeps the schema that was frozen into it.
    """
    for index, step in enumerate(spec.steps):
        known = registry.output_types.get(step.output_type or "")
        if known is None or step.output_schema is None:
            continue
        with suppress(SpecError):
            if schema_of_type(known.model) != step.output_schema:
                yield Problem(
                    f"/steps/{index}/output_schema",
                    f"The schema is not that of the type “{step.output_type}”. "
                    "Leave it empty: it is made from the type.",
                )


def _read_fields(row: models.Model, kind: Any, *, skip: Iterable[str]) -> dict[str, Any]:
    """The fields that a row shares with its spec; empty ones are left to the spec's defaults."""
    values = {name: getattr(row, name) for name in kind.model_fields if name not in skip}
    return {name: value for name, value in values.items() if value is not None and value != ""}
