"""The way back: an earlier definition of a flow becomes its next version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import transaction

from flows.engine.json_values import parse_pointer
from flows.engine.spec import FlowSpec
from flows.models import Flow, FlowVersion
from flows.portability import load_flow

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser


def make_note(version: FlowVersion, own: str = "") -> str:
    """The note of the version that restores ``version``, with what somebody has to add."""
    return f"Restores version {version.number}. {own}".strip()


def read_restored(flow: Flow, version: FlowVersion) -> FlowSpec:
    """What restoring ``version`` makes of ``flow``: the version's definition under the name that the flow has now.

    Raises ``SpecError`` if this installation can't read the stored definition.
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


def name_place(spec: FlowSpec | None, path: str) -> str:
    """Where a JSON pointer into the document of ``spec`` leads, in words: “Step 2 “Reconcile”, output_type”.

    A document that could not be read has no names to tell; then it is the pointer itself.
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
