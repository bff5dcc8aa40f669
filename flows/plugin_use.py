"""Which flows use which plug-ins, and which of the names that they use are not registered."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.db.models import OuterRef, Q, QuerySet, Subquery, TextField
from django.db.models.functions import Cast

from flows.engine.plugins import PREFIX, Registry
from flows.engine.plugins import registry as installed
from flows.engine.spec import FlowSpec
from flows.engine.spec_check import AUDIT_EXPRESSIONS, STEP_EXPRESSIONS
from flows.models import Flow, FlowQuerySet, FlowVersion

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
    source: Flow | FlowVersion | FlowSpec | Mapping[str, Any], registry: Registry = installed
) -> list[PluginUse]:
    """The fields of a flow that name a plug-in which is not registered.

    Of a ``Flow`` they are those of its latest version; that takes a query.
    """
    if isinstance(source, Flow):
        source = source.versions.first() or {}
    uses = list_uses(source.spec if isinstance(source, FlowVersion) else source)
    return [use for use in uses if use.is_missing(registry)]


def fetch_flow_uses() -> list[FlowUse]:
    """What all flows use now, by their titles. Two queries, and a third if there is anything; however many flows."""
    states: dict[tuple[int, PluginUse], set[str]] = {}
    newest = FlowVersion.objects.filter(flow=OuterRef("pk")).values("pk")[:1]
    latest = Flow.objects.annotate(latest=Subquery(newest)).values("latest")
    live = Flow.objects.filter(live_version__isnull=False).values("live_version")
    for state, versions in (("live", live), ("latest", latest)):
        for version in _find_naming(versions):
            for use in list_uses(version.spec):
                states.setdefault((version.flow_id, use), set()).add(state)
    flows = (
        Flow.objects.select_related("live_version")
        .only("name", "title", "is_archived", "live_version__flow_id", "live_version__number")
        .in_bulk({flow_id for flow_id, _ in states})
    )
    uses = [
        FlowUse(flows[flow_id], use, is_live="live" in found, is_latest="latest" in found)
        for (flow_id, use), found in states.items()
        if flow_id in flows  # one may be deleted while we look
    ]
    return sorted(uses, key=lambda one: (one.flow.title, one.flow.pk, one.use.step, one.use.audit or 0))


def find_naming_versions(flows: FlowQuerySet) -> QuerySet[FlowVersion]:
    """The live versions of ``flows`` that may name a plug-in, with their flows."""
    return _find_naming(flows.filter(live_version__isnull=False).values("live_version"))


def _find_naming(keys: QuerySet[Any, Any]) -> QuerySet[FlowVersion]:
    # The text of most documents says already that they name none, and large ones need not come here.
    names_one = Q(text__contains=PREFIX) | Q(text__contains='"output_type"')
    versions = FlowVersion.objects.filter(pk__in=keys).annotate(text=Cast("spec", TextField()))
    return versions.filter(names_one).defer("note").select_related("flow")


def _list_parts(document: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    parts = document.get(key)
    # A part that is none keeps its place: what comes after is counted with it.
    return [part if isinstance(part, Mapping) else {} for part in parts] if isinstance(parts, list) else []


def _read_name(text: Any) -> str | None:
    return text.removeprefix(PREFIX) if isinstance(text, str) and text.startswith(PREFIX) else None
