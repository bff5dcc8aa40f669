"""Flows and their versions as JSON documents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db.models import F, OuterRef, QuerySet, Subquery
from django.http import Http404

from flows.engine.differences import Change, FieldChange, Subject, compare_specs, summarise_changes
from flows.engine.errors import SpecError
from flows.engine.spec import FlowSpec
from flows.models import Flow, FlowVersion
from runs.api.problems import Conflict

Rows = QuerySet[Any, dict[str, Any]]
"""Rows of values."""

_OWN = ("name", "title", "description", "is_archived", "created_at", "updated_at")


def select_flows(*, has_input_schema: bool) -> Rows:
    """Flows as rows of values, each for ``describe_flow``: in one query, whatever they are filtered by."""
    latest = FlowVersion.objects.filter(flow=OuterRef("pk")).order_by("-number").values("number")[:1]
    flows: Any = Flow.objects.annotate(live=F("live_version__number"), latest=Subquery(latest))
    # The text of a schema lies within that of the definition: databases can't look inside.
    rows: Rows = flows.values(*_OWN, "live", "latest", *(["live_version__spec"] if has_input_schema else []))
    return rows


def describe_flow(row: Mapping[str, Any]) -> dict[str, Any]:
    """A flow without its definition; with the input schema of its live version if the row was asked for it."""
    document = {
        "name": row["name"],
        "title": row["title"],
        "description": row["description"] or None,
        "live_version": row["live"],
        "latest_version": row["latest"],
        "is_archived": row["is_archived"],
        "created_at": row["created_at"],
        "updated_at": row["updated_at"],
    }
    if "live_version__spec" in row:
        document["input_schema"] = (row["live_version__spec"] or {}).get("input_schema")
    return document


def read_flow(name: str) -> tuple[Flow, FlowVersion | None]:
    """A flow with its live version, and its latest version. Raises ``Http404``. Costs two queries."""
    flow = Flow.objects.select_related("live_version__created_by").filter(name=name).first()
    if flow is None:
        raise Http404
    return flow, flow.versions.select_related("created_by").first()


def describe_whole_flow(flow: Flow, latest: FlowVersion | None) -> dict[str, Any]:
    """A flow with the definitions of its live and of its latest version."""
    row = {name: getattr(flow, name) for name in _OWN}
    live = flow.live_version
    numbers = {"live": live and live.number, "latest": latest and latest.number}
    return {
        **describe_flow({**row, **numbers}),
        "live": live and describe_whole_version(live, flow),
        "latest": latest and describe_whole_version(latest, flow),
    }


def find_version(flow: Flow, number: int) -> FlowVersion:
    """A version of a flow with its author. Raises ``Http404``."""
    version = flow.versions.select_related("created_by").filter(number=number).first()
    if version is None:
        raise Http404
    return version


def select_versions(flow: Flow) -> Rows:
    """The versions of a flow as rows of values, each for ``describe_version``."""
    versions: Any = flow.versions
    rows: Rows = versions.values("pk", "number", "digest", "note", "created_at", "created_by__username")
    return rows


def describe_version(row: Mapping[str, Any], flow: Flow) -> dict[str, Any]:
    """A version without its definition."""
    return {
        "flow": flow.name,
        "number": row["number"],
        "is_live": row["pk"] == flow.live_version_id,
        "digest": row["digest"],
        "note": row["note"] or None,
        "created_by": row["created_by__username"],
        "created_at": row["created_at"],
    }


def describe_whole_version(version: FlowVersion, flow: Flow) -> dict[str, Any]:
    """A version with its definition, as it was stored."""
    row = {
        "pk": version.pk,
        "number": version.number,
        "digest": version.digest,
        "note": version.note,
        "created_at": version.created_at,
        "created_by__username": version.created_by and version.created_by.get_username(),
    }
    return {**describe_version(row, flow), "document": version.spec}


def read_definition(version: FlowVersion) -> FlowSpec:
    """The definition of a version. Raises ``Conflict`` if this installation can't read it."""
    try:
        return version.flow_spec
    except SpecError:
        sentence = f"The definition of version {version.number} can’t be read by this version of ToolFlow."
        raise Conflict("unreadable-version", sentence) from None


def describe_difference(old: FlowVersion, new: FlowVersion, flow: Flow) -> dict[str, Any]:
    """What changed from one version to another. Raises ``Conflict`` as ``read_definition``."""
    changes = compare_specs(read_definition(old), read_definition(new))
    return {
        "flow": flow.name,
        "from": old.number,
        "to": new.number,
        "summary": summarise_changes(changes),
        "changes": [_describe_change(change) for change in changes],
    }


def _describe_change(change: Change) -> dict[str, Any]:
    document = {
        "subject": change.subject.value,
        "kind": change.kind.value,
        "name": change.name,
        "place": change.place or None,
        "notes": list(change.notes),
        "fields": [_describe_field(field) for field in change.fields],
    }
    if change.subject is not Subject.AUDIT:
        document["audits"] = [_describe_change(audit) for audit in change.audits]
    return document


def _describe_field(field: FieldChange) -> dict[str, Any]:
    return {
        "field": field.field,
        "kind": field.kind.value,
        "old": field.old,
        "new": field.new,
        "notes": list(field.notes),
    }
