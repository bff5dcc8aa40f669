"""Flows in and out: what loading a flow from a file would do, and messages about exports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.dispatch import Signal

from flows.engine.json_values import parse_pointer, resolve_pointer
from flows.engine.spec import FlowSpec
from flows.flow_file import parse_flow
from flows.models import Flow, FlowVersion
from flows.publishing import complete_spec, find_problems

flows_exported = Signal()
"""Sent with ``versions``, those that were written into files for download."""


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
        """The number of the flow's latest version afterwards."""
        if self.flow is None:
            return 1
        if self.latest is not None and self.is_unchanged:
            return self.latest.number
        return self.flow.next_number(self.latest)


def announce_export(versions: Sequence[FlowVersion]) -> None:
    """Send ``flows_exported`` with these versions, whose flows must be loaded; nothing if there are none."""
    if versions:
        flows_exported.send(sender=FlowVersion, versions=versions)


def parse_flow_file(source: str | bytes) -> FlowSpec:
    """The flow in a file, if it could be loaded here. Raises ``FlowFileError`` with all that is wrong, line by line."""
    return parse_flow(source, check=find_problems)


def plan_load(spec: FlowSpec) -> LoadPlan:
    """What loading a flow that has no problems would do. Nothing is stored."""
    flow = Flow.objects.select_related("live_version").filter(name=spec.name).first()
    latest = flow.versions.select_related("created_by").first() if flow is not None else None
    return LoadPlan(complete_spec(spec), flow, latest)


def describe_place(document: Any, path: str) -> str:
    """Where a JSON pointer into the document of a flow leads, in words: “Step 2 “Reconcile”, output type”."""
    match parse_pointer(path):
        case ["steps", index, "audits", position, *rest]:
            audit = f"audit {_name_part(document, position, '/steps', index, 'audits')}"
            words = [f"Step {_name_part(document, index, '/steps')}", audit]
        case ["steps", index, *rest]:
            words = [f"Step {_name_part(document, index, '/steps')}"]
        case rest:
            words = ["Flow"]
    return ", ".join([*words, *(["/".join(rest).replace("_", " ")] if rest else [])])


def _name_part(document: Any, index: str, *way: str) -> str:
    """The number of a step or an audit with its name, as far as it has one."""
    try:
        name = resolve_pointer(document, f"{'/'.join(way)}/{index}/name")
    except LookupError:
        name = ""
    return f"{int(index) + 1}{f' “{name[:60]}”' if isinstance(name, str) and name else ''}"
