"""Reading bodies: JSON that says exactly what it means, and nothing that the endpoint doesn't know."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from rest_framework import serializers
from rest_framework.request import Request

from flows.engine.errors import Problem
from flows.engine.json_values import describe_type
from runs.api.problems import MAX_ERRORS, InvalidBody


class StrictSerializer(serializers.Serializer[Any]):
    """Fields of a body. What is not among them is an error: a misspelt name must never be passed over."""

    def to_internal_value(self, data: Any) -> Any:
        """The values, by their names. Raises ``ValidationError`` with all that is wrong, unknown names first."""
        wrong = self._find_unknown(data) if isinstance(data, Mapping) else {}
        try:
            values = super().to_internal_value(data)
        except serializers.ValidationError as error:
            raise serializers.ValidationError({**wrong, **_by_name(error.detail)}) from None
        if wrong:
            raise serializers.ValidationError(wrong)
        return values

    def _find_unknown(self, data: Mapping[str, Any]) -> dict[str, Any]:
        known = [name for name, field in self.fields.items() if not field.read_only]
        unknown = islice((name for name in data if name not in known), MAX_ERRORS)
        listed = f"; known are {', '.join(known)}" if known else ""
        return {name: [f"There is no field of this name{listed}."] for name in unknown}


def _by_name(detail: Any) -> dict[str, Any]:
    assert isinstance(detail, dict)
    return detail


def read_body(kind: type[StrictSerializer], request: Request) -> dict[str, Any]:
    """What a body says, by name. Raises ``InvalidBody`` for no object, ``ValidationError`` with all that is wrong."""
    if not isinstance(request.data, Mapping):
        raise InvalidBody([Problem("", f"The body must be a JSON object, got {describe_type(request.data)}.")])
    serializer = kind(data=request.data)
    serializer.is_valid(raise_exception=True)
    found: dict[str, Any] = serializer.validated_data
    return found
