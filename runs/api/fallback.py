"""Addresses under which there is nothing."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.base import ApiView


class NothingView(ApiView):
    """Answers every method with a 404 problem; strangers are asked to sign in first, as everywhere."""

    schema = None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticate only: what is not there has no parameters."""
        self.perform_authentication(request)
        self.check_permissions(request)

    def http_method_not_allowed(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Response:
        """There is nothing that other methods would be for."""
        raise Http404


show_nothing = NothingView.as_view()
