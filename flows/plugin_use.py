"""Which flows use which plug-ins, and which of the names that they use are not registered."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import OuterRef, Subquery

from flows.engine.plugins import PREFIX, Registry
from flows.engine.plugins import registry as installed
from flows.engine.spec import FlowSpec
from flows.engine.spec_check import AUDIT_EXPRESSIONS, STEP_EXPRESSIONS
from flows.models import Flow, FlowVersion

OUTPUT_TYPE, AUDIT, FUNCTION = "output type", "audit", "function"
KINDS = (OUTPUT_TYPE, AUDIT, FUNCTION)


@dataclass(frozen=True, slots=True)
class PluginUse:
    """One field of a flow that names a plug-in."""

    kind: str
    """One of ``KINDS``."""
    name: str
    step: int
    """Its number, counted from 1."""
    step_name: str
    field: str
    """Such as ``compute``; of an audit such as ``rule``."""
    audit: int | None = None
    """The number of the audit that the field belongs to, counted from 1."""
    audit_name: str = ""

    @property
    def place(self) -> str:
        """Where that is, in words."""
        audit = f", audit “{self.audit_name}”" if self.audit is not None else ""
        return f"step {self.step} “{self.step_name}”{audit}, {self.field.replace('_', ' ')}"

    @property
    def anchor(self) -> str:
        """The JSON pointer of the field, by which the editor of the flow finds it."""
        audit = f"/audits/{self.audit - 1}" if self.audit is not None else ""
        return f"/steps/{self.step - 1}{audit}/{self.field}"

    @property
    def what(self) -> str:
        """The plug-in in words: the audit “contrast”."""
        return f"the {self.kind} “{self.name}”"

    def is_missing(self, registry: Registry = installed) -> bool:
        """Whether the name is not registered."""
        known: dict[str, Collection[str]] = {OUTPUT_TYPE: registry.output_types, AUDIT: registry.audits}
        return self.name not in known.get(self.kind, registry.functions)


@dataclass(frozen=True, slots=True)
class FlowUse:
    """A use by a stored flow: by its live version, by its latest one, or by both."""

    flow: Flow
    use: PluginUse
    is_live: bool
    is_latest: bool


def list_uses(document: FlowSpec | Mapping[str, Any]) -> Iterator[PluginUse]:
    """Every field of a flow that names a plug-in. The document may be of any age: what can't be read names nothing."""
    values = document.to_document() if isinstance(document, FlowSpec) else document
    for number, step in enumerate(_list_parts(values, "steps"), start=1):
        name = str(step.get("name", ""))
        output_type = step.get("output_type")
        if isinstance(output_type, str) and output_type:
            yield PluginUse(OUTPUT_TYPE, output_type, number, name, "output_type")
        for field in STEP_EXPRESSIONS:
            if plugin := _read_name(step.get(field)):
                yield PluginUse(FUNCTION, plugin, number, name, field)
        for position, audit in enumerate(_list_parts(step, "audits"), start=1):
            for field in AUDIT_EXPRESSIONS:
                if plugin := _read_name(audit.get(field)):
                    kind = AUDIT if field == "rule" else FUNCTION
                    yield PluginUse(kind, plugin, number, name, field, position, str(audit.get("name", "")))


def find_missing_names(
    source: FlowVersion | FlowSpec | Mapping[str, Any], registry: Registry = installed
) -> list[PluginUse]:
    """The fields of a definition that name a plug-in which is not registered."""
    uses = list_uses(source.spec if isinstance(source, FlowVersion) else source)
    return [use for use in uses if use.is_missing(registry)]


def fetch_flow_uses() -> list[FlowUse]:
    """What all flows use now, by their titles. One query."""
    latest = FlowVersion.objects.filter(flow=OuterRef("pk")).values("spec")[:1]
    uses: list[FlowUse] = []
    flow: Any
    for flow in Flow.objects.select_related("live_version").annotate(latest_spec=Subquery(latest)):
        live = list(list_uses(flow.live_version.spec)) if flow.live_version else []
        last = list(list_uses(flow.latest_spec or {}))
        uses += [FlowUse(flow, use, use in live, use in last) for use in dict.fromkeys([*live, *last])]
    return sorted(uses, key=lambda one: (one.flow.title, one.flow.pk, one.use.step, one.use.audit or 0))


def _list_parts(document: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    parts = document.get(key)
    # A part that is none keeps its place: what comes after is counted with it.
    return [part if isinstance(part, Mapping) else {} for part in parts] if isinstance(parts, list) else []


def _read_name(text: Any) -> str | None:
    return text.removeprefix(PREFIX) if isinstance(text, str) and text.startswith(PREFIX) else None
