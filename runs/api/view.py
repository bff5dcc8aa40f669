"""What all endpoints of the API share."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC
from typing import Any, ClassVar

from django.http import HttpRequest, QueryDict
from django.http.response import HttpResponseBase
from django.utils import timezone
from django.utils.cache import patch_cache_control
from rest_framework.authentication import SessionAuthentication
from rest_framework.request import Request
from rest_framework.response import Response

from flows.engine.errors import Problem
from runs.api.access import HasNeed, Need
from runs.api.authentication import ApiTokenAuthentication
from runs.api.conditions import leave_out_known
from runs.api.problems import InvalidQuery, handle_exception
from runs.api.reading import JSONBodyParser, prepare_body
from runs.api.rendering import DocumentRenderer, HeaderNegotiation
from runs.api.throttling import READ_METHODS, ThrottledView


class ApiView(ThrottledView):
    """An endpoint: ``needs`` says by method what a request needs, ``parameters`` what its query may hold.

    Times are in UTC, whatever the zone of the installation is.
    """

    needs: ClassVar[Mapping[str, Need]] = {}
    parameters: ClassVar[Mapping[str, Collection[str]]] = {}
    """Names of query parameters by method; others are an error."""
    repeatable: ClassVar[Collection[str]] = ()
    """Those of them that may be given several times. Of others only one value could count, and nobody knows which."""

    authentication_classes = (ApiTokenAuthentication, SessionAuthentication)
    permission_classes = (HasNeed,)
    parser_classes = (JSONBodyParser,)
    renderer_classes = (DocumentRenderer,)
    content_negotiation_class = HeaderNegotiation
    metadata_class = None
    # All but OPTIONS: what there is, the schema says.
    http_method_names = ("get", "post", "put", "patch", "delete", "head")

    def get_exception_handler(self) -> Any:
        """Problem documents, whatever went wrong."""
        return handle_exception

    def dispatch(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        """Answer the request, with times in UTC."""
        with timezone.override(UTC):
            response = super().dispatch(request, *args, **kwargs)
            if isinstance(response, Response):
                response.render()
        response = leave_out_known(request, response)
        # History is for those who may see it now: nothing stays in caches on the way.
        patch_cache_control(response, private=True, no_store=True)
        return response

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Let nobody through who may not, and no parameter that means nothing here."""
        super().initial(request, *args, **kwargs)
        if not hasattr(self, str(request.method).lower()):
            # 405 follows: what an address can't do has no parameters.
            return
        known = self.parameters.get("GET" if request.method == "HEAD" else str(request.method), ())
        if problems := list(self._find_query_problems(request.query_params, known)):
            raise InvalidQuery(problems)
        if request.method not in READ_METHODS:
            prepare_body(request._request)

    def _find_query_problems(self, query: QueryDict, known: Collection[str]) -> Iterator[Problem]:
        for name, values in query.lists():
            if name not in known:
                listed = ", ".join(known) or "none"
                yield Problem(name, f"There is no parameter “{name[:40]}” here; known: {listed}.")
            elif len(values) > 1 and name not in self.repeatable:
                yield Problem(name, f"“{name}” stands in the query {len(values)} times; give it once.")
