"""What answers are written as: JSON, unless the header ``Accept`` names something else that an endpoint has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import PydanticSerializationError, to_json
from rest_framework.negotiation import DefaultContentNegotiation
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.utils.encoders import JSONEncoder

from runs.api.problems import MEDIA_TYPE as PROBLEM

_encode = JSONEncoder().default
_ANYTHING = "*/*"


class HeaderNegotiation(DefaultContentNegotiation):
    """What the header ``Accept`` asks for; an empty one, as some clients send it, asks for nothing in particular.

    Nor does one that names problem documents: every endpoint gives them, and generated clients name nothing else where
    no other JSON is documented.
    """

    def get_accept_list(self, request: Request) -> list[str]:
        """The media types that are asked for."""
        named: list[str] = super().get_accept_list(request)
        return [_ANYTHING if _is_problem(one) else one for one in named if one] or [_ANYTHING]


def _is_problem(media_type: str) -> bool:
    return media_type.partition(";")[0].strip().lower() == PROBLEM


class DocumentRenderer(JSONRenderer):
    """Writes documents as JSON, in a third of the time that Python's encoder takes for a list of runs."""

    def render(
        self, data: Any, accepted_media_type: str | None = None, renderer_context: Mapping[str, Any] | None = None
    ) -> bytes:
        """The bytes of a document; None is no bytes at all."""
        # Who asks for “indent=2” gets it.
        if data is not None and ";" not in (accepted_media_type or ""):
            try:
                return to_json(data, inf_nan_mode="null", fallback=_encode)
            except PydanticSerializationError:
                # Half a surrogate pair, or more levels than it goes down.
                pass
        rendered: bytes = super().render(data, accepted_media_type, renderer_context)
        return rendered
