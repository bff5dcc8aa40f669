"""Flows in and out: the document in a body, and rows as the models that are answered."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import IO, Any

from django.db.models import F, OuterRef, QuerySet, Subquery
from django.shortcuts import get_object_or_404
from django.utils.http import quote_etag
from rest_framework.parsers import BaseParser
from rest_framework.request import Request

from flows.engine.errors import Problem, SpecError
from flows.engine.json_values import describe_type
from flows.engine.spec import FlowSpec
from flows.engine.spec_check import read_document
from flows.flow_file import MAX_FILE_BYTES, FlowFileError
from flows.models import Flow as FlowRow
from flows.models import FlowVersion as VersionRow
from flows.portability import parse_flow_file
from flows.publishing import find_problems
from runs.api.base import make_tag
from runs.api.media_types import JsonParser, read_text
from runs.api.problems import ApiProblem, Conflict, InvalidBody
from runs.api.schemas.flows import FlowDocument, WholeFlow, WholeVersion

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
    if isinstance(source, dict) and source:
        return parse_flow_document(source)
    if not isinstance(source, str):
        given = describe_type(source) if source else "nothing"
        raise InvalidBody([Problem("", f"The body is the document of a flow, an object; got {given}.")])
    try:
        return parse_flow_file(source)
    except FlowFileError as error:
        problems = error.problems
    raise InvalidBody(
        [Problem(one.path, f"{one.place}: {one.message}" if one.place else one.message) for one in problems]
    )


def parse_flow_document(document: Mapping[str, Any], pointer: str = "") -> FlowSpec:
    """The flow in a JSON object, which ``pointer`` leads to in the body. Raises as ``parse_flow_body``."""
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
