"""From the document of a flow to the immutable versions that run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from django.db import IntegrityError, transaction

from flows.engine.errors import Problem, SpecError
from flows.engine.plugins import registry
from flows.engine.spec import FlowSpec, StepSpec
from flows.engine.spec_check import freeze_schemas
from flows.engine.typed_output import schema_of_type
from flows.models import Flow, FlowVersion
from flows.providers import check_flow

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser

NOTE_LENGTH: int = FlowVersion._meta.get_field("note").max_length or 0
"""Characters that the note of a version may have."""


def complete_spec(spec: FlowSpec) -> FlowSpec:
    """The spec as it is published: with a title, and with the schemas of registered types."""
    return freeze_schemas(spec.model_copy(update={"title": spec.title or spec.name}), registry)


def find_problems(spec: FlowSpec) -> list[Problem]:
    """What keeps a flow from being published here, by JSON pointers into its document."""
    return check_flow(complete_spec(spec))


def publish_flow(
    *,
    spec: FlowSpec,
    flow: Flow | None = None,
    is_new: bool = False,
    by: AbstractBaseUser | None = None,
    note: str = "",
) -> FlowVersion:
    """Create the next version of a flow, or give the latest one if that is the same.

    Without a ``flow`` it is the one of the spec's name, or a new one, which ``is_new`` says that it must be; with it
    the spec may give it another name. The first version goes live by itself. Raises ``SpecError`` with all problems if
    the flow can't run as it is defined, or if its new name is taken; nothing is stored then.
    """
    spec = complete_spec(spec)
    if problems := check_flow(spec):
        raise SpecError(problems)
    try:
        return _store(spec, flow, is_new, by, note)
    except IntegrityError:
        # The column of names has the last word, also about two who choose one at the same moment.
        taken = Problem("/name", "A flow with this name already exists. Choose another name.")
        raise SpecError([taken]) from None


def _store(spec: FlowSpec, flow: Flow | None, is_new: bool, by: AbstractBaseUser | None, note: str) -> FlowVersion:
    """Raises ``IntegrityError`` if another flow has the name."""
    columns = {"name": spec.name, "title": spec.title, "description": spec.description}
    with transaction.atomic():
        # Two editors who publish at the same moment wait for each other here.
        flows = Flow.objects.select_for_update()
        if flow is not None:
            locked = flows.get(pk=flow.pk)
        elif is_new:
            locked = Flow.objects.create(**columns)
        else:
            locked, _ = flows.get_or_create(name=spec.name, defaults=columns)
        latest = locked.versions.first()
        if latest is not None and latest.digest == spec.digest:
            return latest
        version = FlowVersion.objects.create(
            flow=locked,
            number=locked.next_number(latest),
            spec=spec.to_document(),
            digest=spec.digest,
            note=note,
            created_by_id=by.pk if by else None,
        )
        for name, value in columns.items():
            setattr(locked, name, value)
        locked.save(update_fields=[*columns, "updated_at"])
        if locked.live_version_id is None:
            locked.make_live(version)
    return version


def read_restored(flow: Flow, version: FlowVersion) -> FlowSpec:
    """What restoring ``version`` makes of ``flow``: the version's definition under the name that the flow has now.

    Raises ``SpecError`` if this release can't read the stored definition.
    """
    return FlowSpec.from_document({**version.spec, "name": flow.name})


def make_note(version: FlowVersion, own: str = "") -> str:
    """The note of the version that restores ``version``, followed by the editor's ``own``."""
    return f"Restores version {version.number}. {own}".strip()


def restore_version(*, version: FlowVersion, by: AbstractBaseUser | None = None, note: str = "") -> FlowVersion:
    """Publish the definition of ``version`` as the flow's latest one.

    The flow keeps its name, its operational settings, its live version, and whether it is archived. Gives the
    latest version if that has this definition already. Raises ``SpecError`` with all problems if the flow can't run
    like this any more; nothing is stored then.
    """
    with transaction.atomic():
        # It may be renamed meanwhile.
        flow = Flow.objects.select_for_update().get(pk=version.flow_id)
        return publish_flow(spec=read_restored(flow, version), flow=flow, by=by, note=make_note(version, note))


# ---------------------------------------------------------------------------------------------------------------
# Schemas that are made from registered types


def thaw_schemas(document: dict[str, Any]) -> dict[str, Any]:
    """A version's document as editors change it: schemas that are made from a registered type are left out."""

    def thaw(step: dict[str, Any]) -> dict[str, Any]:
        is_made = registry.output_types.get(step.get("output_type") or "") is not None
        return {name: value for name, value in step.items() if not (is_made and name == "output_schema")}

    return {**document, "steps": [thaw(step) for step in document.get("steps", ())]}


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
