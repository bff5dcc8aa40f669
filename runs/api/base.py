"""What all endpoints share: an operation is declared once, its query and body are parsed, its answer is written.

    class Flows(ApiView):
        @operation("GET flows/<slug:name>", "Read a flow", READ_FLOWS, tag="Flows")
        def get_flow(self, request: Request, name: str, query: FlowQuery) -> Flow:
            '''With the definition of its live version.'''

``build_urls`` finds the addresses. The docstring of the method is the description in the reference. ``query``, ``body``
and the answer are models; a method gives an ``Annotated[Response, Flow]`` with a model where headers matter.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC
from functools import wraps
from http import HTTPStatus
from typing import IO, Any, TypeVar, get_origin, get_type_hints

from django.core.handlers.asgi import ASGIRequest
from django.http import Http404, HttpRequest, QueryDict
from django.http.response import HttpResponseBase
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.cache import patch_cache_control
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema
from pydantic import ValidationError
from pydantic.alias_generators import to_camel
from rest_framework.authentication import SessionAuthentication
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from rest_framework.viewsets import ViewSetMixin

from flows.engine.errors import Problem
from flows.engine.json_values import describe_type
from runs.api.access import READ_METHODS, ApiTokenAuthentication, RequestQuota, Requirement, ScopePermission
from runs.api.conditions import make_tag, not_modified
from runs.api.media_types import HeaderNegotiation, JsonParser, JsonRenderer
from runs.api.problems import ApiProblem, InvalidBody, InvalidQuery, handle_exception, list_problems
from runs.documents.base import Body, Model, Page, Query
from runs.paging import MAX_NUMBER

_Query = TypeVar("_Query", bound=Query)
_Body = TypeVar("_Body", bound=Body)

# ---------------------------------------------------------------------------------------------------------------------
# Headers of several operations


def header(name: str, kind: Any, description: str, *statuses: int) -> OpenApiParameter:
    """A header of requests, or of answers with one of ``statuses``."""
    return OpenApiParameter(name, kind, OpenApiParameter.HEADER, description=description, response=list(statuses))


ETAG = header("ETag", str, "Stands for exactly this answer.", 200)
IDEMPOTENCY_KEY = header(
    "Idempotency-Key",
    {"type": "string", "minLength": 1, "maxLength": 255},
    "A text of your own, such as a UUID. A repeated request with the same key and body gets the answer of the first "
    "one for 24 hours; the same key with another body is refused with 409.",
)
REPLAYED = header(
    "Idempotency-Replayed",
    {"type": "string", "enum": ["true"]},
    "The answer is that to an earlier request with the same key.",
    200,
    201,
    202,
)
IF_MATCH = header(
    "If-Match",
    str,
    "The `ETag` of the last read; if the resource has changed since, the request is refused (412). For a "
    "flow, the digest of its latest version in double quotes is accepted, too.",
)
LOCATION = header("Location", OpenApiTypes.URI, "The address of what was created.", 201)
RETRY_AFTER = header("Retry-After", int, "Seconds after which it may be read again.", 202)
RETRY_WHILE_UNFINISHED = header(
    "Retry-After", int, "Seconds after which it may be read again; only while it is unfinished.", 200, 202
)
DELETED = {204: OpenApiResponse(None, "It is gone.")}
"""The answers of what deletes."""


def example(name: str, body: Mapping[str, Any]) -> OpenApiExample:
    """A body for the reference."""
    return OpenApiExample(name, value=body, request_only=True)


# ---------------------------------------------------------------------------------------------------------------------
# Operations


def operation(
    place: str,
    summary: str,
    requires: Requirement | None,
    *,
    tag: str,
    body: Mapping[str, Any] | None = None,
    answers: Mapping[Any, Any] | None = None,
    problems: Sequence[int] = (),
    parameters: Sequence[OpenApiParameter] = (),
    more_queries: Sequence[type[Model]] = (),
    has_etag: bool = False,
    **described: Any,
) -> Callable[[Any], Any]:
    """Declare a method of an ``ApiView`` as the operation of its name in the OpenAPI document.

    ``place`` is the HTTP method and the address below ``/api/v1``. The arguments ``query`` and ``body`` get the models
    of their types; a ``body`` that is described here by media type the method parses itself. ``requires`` is None for
    what every signed-in user may do. ``answers`` are models by status, or an ``OpenApiResponse`` with a sentence;
    without them the method gives a model. ``problems`` are statuses of problems besides those that every operation has;
    with parts of the address a 404, for ``If-Match`` a 412, and for ``idempotent`` methods a 409 needs no naming.
    ``parameters`` are headers and parts of the address, ``more_queries`` parameters that the method parses itself.
    ``described`` goes to ``extend_schema``.
    """

    def declare(method: Any) -> Any:
        types = get_type_hints(method, include_extras=True)
        # Of ``Annotated[Response, Flow]`` the model is what is described.
        model = getattr(types["return"], "__metadata__", [types["return"]])[0]
        query, parsed_body = types.get("query"), types.get("body")
        queries = [*([query] if query else ()), *more_queries]
        declared = [*parameters, *([ETAG] if has_etag else ())]
        found = set(problems)
        if getattr(method, "is_idempotent", False):
            declared += [IDEMPOTENCY_KEY, REPLAYED]
            found.add(409)
        if types.keys() - {"request", "query", "body", "return"}:
            found.add(404)
        if IF_MATCH in declared:
            found.add(412)
        known = {name: is_list for one in queries for name, is_list in list_parameters(one)}

        @wraps(method)
        def handle(view: Endpoint, request: Request, **parts: Any) -> HttpResponseBase:
            _check_query(request.query_params, known)
            arguments = dict(parts)
            if query is not None:
                arguments["query"] = parse_query(query, request.query_params)
            if parsed_body is not None:
                arguments["body"] = parse_body(parsed_body, request)
            answer = method(view, request, **arguments)
            view.has_etag = has_etag
            if isinstance(answer, HttpResponseBase):
                return answer
            return Response(answer, headers=_build_links(answer) if isinstance(answer, Page) else None)

        vars(handle).update(requirement=requires, place=place)
        return extend_schema(
            operation_id=to_camel(method.__name__),
            summary=summary,
            tags=[tag],
            parameters=[*queries, *declared],
            request=body or parsed_body,
            responses={**(answers or {200: model}), **dict.fromkeys(found)},
            **described,
        )(handle)

    return declare


def _build_links(page: Page[Any]) -> dict[str, str]:
    """The header with the addresses of the pages beside this one."""
    links = [f'<{url}>; rel="{name}"' for name, url in (("next", page.next), ("prev", page.previous)) if url]
    return {"Link": ", ".join(links)} if links else {}


def _check_query(given: QueryDict, known: Mapping[str, bool]) -> None:
    """Raise ``InvalidQuery`` for parameters that aren't known, and for those given twice that are not lists."""
    problems = []
    for name, values in given.lists():
        if name not in known:
            listed = ", ".join(known) or "none"
            problems.append(Problem(name, f"“{name[:40]}” is not a parameter of this operation; known: {listed}."))
        elif len(values) > 1 and not known[name]:
            problems.append(Problem(name, f"“{name}” occurs {len(values)} times in the query. Send it once."))
    if problems:
        raise InvalidQuery(problems)


def list_parameters(query: type[Model]) -> Iterator[tuple[str, bool]]:
    """The name of each parameter, and whether it is a list."""
    for name, field in query.model_fields.items():
        # “from” can't be the name of a field.
        yield field.alias or name, get_origin(field.annotation) is list


def parse_query(query: type[_Query], given: QueryDict) -> _Query:
    """The parameters that ``query`` declares, of an address that was checked. Raises ``InvalidQuery``."""
    values: dict[str, Any] = {}
    for name, is_list in list_parameters(query):
        if name in given:
            texts = given.getlist(name)
            values[name] = ",".join(texts).split(",") if is_list else texts[-1]
    try:
        return query.model_validate(values)
    except ValidationError as error:
        raise InvalidQuery([Problem(one.path.split("/")[1], one.message) for one in list_problems(error)]) from None


def parse_body(body: type[_Body], request: Request) -> _Body:
    """What the body of a request says. Raises ``InvalidBody`` with all that is wrong."""
    if not isinstance(request.data, dict):
        raise InvalidBody([Problem("", f"The body must be a JSON object, got {describe_type(request.data)}.")])
    try:
        return body.model_validate(request.data)
    except ValidationError as error:
        raise InvalidBody(list_problems(error)) from None


# ---------------------------------------------------------------------------------------------------------------------
# Endpoints


class Endpoint(APIView):
    """What answers at an address. Times are in UTC, whatever the installation's zone is."""

    authentication_classes = (ApiTokenAuthentication, SessionAuthentication)
    permission_classes = (ScopePermission,)
    throttle_classes = (RequestQuota,)
    parser_classes: tuple[type[BaseParser], ...] = (JsonParser,)
    renderer_classes: tuple[type[BaseRenderer], ...] = (JsonRenderer,)
    content_negotiation_class = HeaderNegotiation
    metadata_class = None
    # All but OPTIONS: what there is, the schema says.
    http_method_names = ("get", "post", "put", "patch", "delete", "head")

    quota_headers: Mapping[str, str] = {}
    has_etag = False

    def get_exception_handler(self) -> Any:
        """Problem documents, whatever went wrong."""
        return handle_exception

    def find_requirement(self, method: str) -> Requirement | None:
        """What a method requires, None for what every signed-in user may do; methods that there aren't get a 405."""
        return getattr(getattr(self, method.lower(), None), "requirement", None)

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Answer the request."""
        with timezone.override(UTC):
            response = super().dispatch(request, *args, **kwargs)
            if isinstance(response, Response):
                response.render()
        for name, value in self.quota_headers.items():
            response[name] = value
        if self.has_etag and isinstance(response, Response) and response.status_code == HTTPStatus.OK:
            response["ETag"] = make_tag(response.content)
        response = not_modified(request, response)
        # History is for those who may see it now: nothing stays in caches on the way.
        patch_cache_control(response, private=True, no_store=True)
        return response

    def perform_authentication(self, request: Request) -> None:
        """Identify the caller, and count the request, also one that is refused. Raises ``Throttled``."""
        try:
            super().perform_authentication(request)
        finally:
            self.check_throttles(request)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Refuse callers without the permission, and what can't be read. Raises ``Http404`` for impossible numbers."""
        self.format_kwarg = None
        self.perform_authentication(request)
        request.accepted_renderer, request.accepted_media_type = self.perform_content_negotiation(request)
        self.check_permissions(request)
        if any(isinstance(part, int) and part > MAX_NUMBER for part in kwargs.values()):
            raise Http404
        if request.method not in READ_METHODS and hasattr(self, str(request.method).lower()):
            prepare_body(request._request)


class ApiView(ViewSetMixin, Endpoint):
    """Endpoints whose methods ``operation`` declares."""


def prepare_body(request: HttpRequest) -> None:
    """Let a body be read that comes in chunks, without a length: it would count as empty.

    Raises ``ApiProblem``: 411 where the server doesn't hand such bodies on, 415 for one that is compressed.
    """
    coding = request.headers.get("Content-Encoding", "").strip().lower()
    if coding not in ("", "identity"):
        raise ApiProblem(
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            "unsupported-media-type",
            f"The body is encoded as “{coding[:40]}”; send it without Content-Encoding.",
            headers={"Accept-Encoding": "identity"},
        )
    if request.META.get("CONTENT_LENGTH"):
        return
    if isinstance(request, ASGIRequest):
        # It was received as a whole before.
        body: IO[bytes] = request._stream
        request.META["CONTENT_LENGTH"] = str(body.seek(0, os.SEEK_END))
        body.seek(0)
    elif "Transfer-Encoding" in request.headers:
        sentence = "This server reads no body in chunks; send it with Content-Length."
        raise ApiProblem(HTTPStatus.LENGTH_REQUIRED, "length-required", sentence)


def build_urls(*views: type[ApiView]) -> list[URLPattern]:
    """The addresses of the operations of ``views``; each has the name of the first method there."""
    urls = []
    for view in views:
        places: dict[str, dict[str, Any]] = {}
        for name, method in vars(view).items():
            if place := getattr(method, "place", None):
                verb, _, address = place.partition(" ")
                places.setdefault(address, {})[verb.lower()] = name
        urls += [path(place, view.as_view(names), name=next(iter(names.values()))) for place, names in places.items()]
    return urls


class NothingView(Endpoint):
    """Answers every method with a 404 problem; anonymous callers are asked to sign in first, as everywhere."""

    schema = None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticate only: what is not there has no parameters."""
        self.perform_authentication(request)
        self.check_permissions(request)

    def http_method_not_allowed(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Response:
        """There is nothing that other methods would be for."""
        raise Http404


show_nothing = NothingView.as_view()
