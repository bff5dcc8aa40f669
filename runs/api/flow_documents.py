"""Flows in and out: the document in a body, and rows as the models that are answered."""

from __future__ import annotations

import json
from datetime import datetime
from http import HTTPStatus
from typing import IO, Any

from django.db.models import F, OuterRef, QuerySet, Subquery
from django.shortcuts import get_object_or_404
from django.utils.http import quote_etag
from pydantic import ConfigDict, Field
from rest_framework.parsers import BaseParser
from rest_framework.request import Request

from flows.engine.errors import Problem, SpecError
from flows.engine.json_values import describe_type
from flows.engine.spec import FlowSpec
from flows.engine.spec_check import read_document
from flows.flow_file import MAX_FILE_BYTES, SCHEMA_PATH, FlowFileError
from flows.models import Flow as FlowRow
from flows.models import FlowVersion as VersionRow
from flows.portability import parse_flow_file
from flows.publishing import find_problems
from runs.api.conditions import make_tag
from runs.api.media_types import JsonParser, read_text
from runs.api.problems import ApiProblem, Conflict, InvalidBody
from runs.documents.base import Answer, Model, Omitted, TextOrNull


def _describe_document(schema: dict[str, Any]) -> None:
    """Make ``schema`` that of a flow file, with the schemas of steps and audits in it."""
    file: dict[str, Any] = json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))
    step, audit = (file["definitions"][name] for name in ("StepSpec", "AuditSpec"))
    step["properties"]["audits"]["items"] = audit
    file["properties"]["steps"]["items"] = step
    for field in (field for part in (file, step, audit) for field in part["properties"].values()):
        if "enum" in field:
            field.setdefault("type", ["string", "null"] if None in field["enum"] else "string")
    # An amount of money may be written as text, so that no digit is lost on the way.
    file["properties"]["cost_budget"]["type"].append("string")
    schema.clear()
    schema.update({key: value for key, value in file.items() if key not in ("$schema", "definitions")})


class FlowDocument(Model):
    """The document of a flow, whatever it holds; it is described by the schema that editors of flow files have."""

    model_config = ConfigDict(extra="allow", json_schema_extra=_describe_document)


class Flow(Answer):
    """A flow."""

    name: str = Field(description="Its name in addresses; never changes.")
    title: str = Field(description="Its name on pages.")
    description: TextOrNull = Field(description="What it does, for people who start it.")
    live_version: int | None = Field(validation_alias="live_number", description="The version that new runs use.")
    latest_version: int | None = Field(validation_alias="latest_number", description="Its newest version.")
    is_archived: bool = Field(description="Whether no new runs can be started.")
    created_at: datetime = Field(description="When it was first saved.")
    updated_at: datetime = Field(description="When it was last saved, archived, or got another live version.")


class FlowVersion(Answer):
    """A version of a flow. It never changes."""

    list_name = "Version"

    flow: str = Field(description="The name of the flow.")
    number: int = Field(description="Counted from 1.")
    is_live: bool = Field(description="Whether new runs use it.")
    digest: str = Field(description="SHA-256 of the definition: the same for the same definition.")
    note: TextOrNull = Field(description="The author’s note.")
    created_by: str | None = Field(validation_alias="created_by__username", description="The user who created it.")
    created_at: datetime = Field(description="When it was created.")


class WholeVersion(FlowVersion):
    """A version of a flow with its definition."""

    document: FlowDocument = Field(validation_alias="spec", description="The definition, as a flow file holds it.")


class WholeFlow(Flow):
    """A flow with its definitions."""

    live: WholeVersion | None = Field(description="The version that new runs use.")
    latest: WholeVersion | None = Field(description="The newest version.")


class StoredFlow(WholeFlow):
    """A flow that was sent."""

    made_version: int | None = Field(description="The version that this request made; null if nothing was new.")


class ListedFlow(Flow):
    """A flow in a list."""

    list_name = "Flow"

    input_schema: dict[str, Any] | Omitted | None = Field(
        None, description="JSON Schema of the live version’s input; only with `input_schema=true`."
    )


YAML = "application/yaml"
FLOW_BODY = {"application/json": FlowDocument, YAML: FlowDocument}
"""The document of a flow in a body, as JSON or as a flow file."""

# ---------------------------------------------------------------------------------------------------------------------
# Bodies


class FlowYamlParser(BaseParser):
    """Reads a body as text, for ``parse_flow_body``."""

    media_type = YAML

    def parse(self, stream: IO[bytes], media_type: str | None = None, parser_context: Any = None) -> Any:
        """The text. Raises as ``JsonParser.parse``."""
        return read_text(stream)


FLOW_PARSERS = (JsonParser, FlowYamlParser)
"""What views read the body with that call ``parse_flow_body``."""


def parse_flow_body(request: Request) -> FlowSpec:
    """The flow in a body. Raises ``InvalidBody`` with all that is wrong, ``ApiProblem`` (413) if it is too large."""
    if int(request.META.get("CONTENT_LENGTH") or 0) > MAX_FILE_BYTES:
        sentence = f"The document of a flow has at most {MAX_FILE_BYTES:,} bytes."
        raise ApiProblem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too-large", sentence)
    source: object = request.data
    if not isinstance(source, dict | str) or source == {}:
        given = describe_type(source) if source else "nothing"
        raise InvalidBody([Problem("", f"The body is the document of a flow, an object; got {given}.")])
    return parse_definition(source)


def parse_definition(source: FlowDocument | dict[str, Any] | str, pointer: str = "") -> FlowSpec:
    """The flow in a JSON object or in the text of a flow file, which ``pointer`` leads to in the body.

    Raises as ``parse_flow_body``.
    """
    if isinstance(source, str):
        try:
            return parse_flow_file(source)
        except FlowFileError as error:
            found = [(one.path, f"{one.place}: {one.message}" if one.place else one.message) for one in error.problems]
        # No pointer leads into a text within the body.
        raise InvalidBody([Problem(pointer or path, message) for path, message in found])
    document = (source.model_extra or {}) if isinstance(source, FlowDocument) else source
    spec, problems = read_document(dict(document), find_problems)
    if spec is None or problems:
        raise InvalidBody([Problem(pointer + problem.path, problem.message) for problem in problems])
    return spec


# ---------------------------------------------------------------------------------------------------------------------
# Answers


def select_flows(*further: str) -> QuerySet[Any, dict[str, Any]]:
    """Flows as rows of what makes a ``Flow``, and of ``further`` columns."""
    latest = VersionRow.objects.filter(flow=OuterRef("pk")).order_by("-number").values("number")[:1]
    flows: Any = FlowRow.objects.annotate(live_number=F("live_version__number"), latest_number=Subquery(latest))
    columns = ("name", "title", "description", "is_archived", "created_at", "updated_at")
    rows: QuerySet[Any, dict[str, Any]] = flows.values(*columns, "live_number", "latest_number", *further)
    return rows


def load_whole_flow(name: str) -> WholeFlow:
    """A flow with the definitions of its live and of its latest version. Raises ``Http404``. Two queries."""
    flow = get_object_or_404(FlowRow.objects.select_related("live_version__created_by"), name=name)
    live, latest = flow.live_version, flow.versions.select_related("created_by").first()
    return WholeFlow.model_validate(
        {
            **vars(flow),
            "live_number": live and live.number,
            "latest_number": latest and latest.number,
            "live": live and build_version(live, flow),
            "latest": latest and build_version(latest, flow),
        }
    )


def build_version(version: VersionRow, flow: FlowRow) -> WholeVersion:
    """A version with its definition, as it was stored."""
    author = version.created_by.get_username() if version.created_by else None
    is_live = version.pk == flow.live_version_id
    return WholeVersion.model_validate({**vars(version), "flow": flow.name, "is_live": is_live, "created_by": author})


def list_tags(flow: WholeFlow) -> list[str]:
    """The ETags of a flow: that of reading it, and the digest of its latest version."""
    tag = make_tag(flow.model_dump_json(exclude={"made_version"}, exclude_unset=True).encode())
    return [tag] if flow.latest is None else [tag, quote_etag(flow.latest.digest)]


def load_version(flow: FlowRow, number: int) -> VersionRow:
    """A version of a flow with its author. Raises ``Http404``."""
    return get_object_or_404(flow.versions.select_related("created_by"), number=number)


def read_definition(version: VersionRow) -> FlowSpec:
    """The definition of a version. Raises ``Conflict`` if this installation can't read it."""
    try:
        return version.flow_spec
    except SpecError:
        sentence = f"The definition of version {version.number} can’t be read by this version of ToolFlow."
        raise Conflict("unreadable-version", sentence) from None
