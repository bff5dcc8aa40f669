"""Endpoints whose methods aren't declared by ``runs.api.base.operation`` yet."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from rest_framework.request import Request

from runs.api import base
from runs.api.access import Requirement


class ApiView(base.ApiView):
    """An endpoint: ``needs`` says by method what a request needs, ``parameters`` what its query may hold."""

    needs: ClassVar[Mapping[str, Requirement]] = {}
    parameters: ClassVar[Mapping[str, Collection[str]]] = {}
    """Names of query parameters by method; others are an error."""
    repeatable: ClassVar[Collection[str]] = ()
    """Those of them that may be given several times."""

    def find_requirement(self, method: str) -> Requirement | None:
        """What a method requires."""
        return super().find_requirement(method) or self.needs.get("GET" if method == "HEAD" else method)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Let nobody through who may not, and no parameter that means nothing here."""
        super().initial(request, *args, **kwargs)
        handler = getattr(self, str(request.method).lower(), None)
        if handler is not None and not hasattr(handler, "requirement"):
            names = self.parameters.get("GET" if request.method == "HEAD" else str(request.method), ())
            base.check_query(request.query_params, {name: name in self.repeatable for name in names})
