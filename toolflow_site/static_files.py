"""Static files, which are part of the code and small: each is answered as a whole."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from whitenoise.middleware import WhiteNoiseMiddleware


class StaticFiles(WhiteNoiseMiddleware):  # type: ignore[misc]  # the package ships no types
    """WhiteNoise, but for how it hands files over: as synchronous iterators, which Django under ASGI warns of.

    So that warning is left to tell of files that nobody should read as a whole.
    """

    @staticmethod
    def serve(static_file: Any, request: HttpRequest) -> HttpResponse:
        """Answer with a file, a part of it, or that the client has it already."""
        answer = static_file.get_response(request.method, request.META)
        content = b""
        if answer.file is not None:
            with answer.file as file:
                content = file.read()
        response = HttpResponse(content, status=int(answer.status))
        # WhiteNoise knows it, where there is any.
        del response["Content-Type"]
        for name, value in answer.headers:
            response[name] = value
        return response
