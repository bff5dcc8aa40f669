"""Fields of bodies that take a JSON value as what it is: no text for a number, no number for a text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from flows.engine.json_values import describe_type
from flows.engine.spec import COST_PLACES, MAX_COST_BUDGET, MIN_COST_BUDGET

_SENTENCES: dict[str, Any] = {
    "required": "This is missing.",
    "null": "This must not be null.",
    "blank": "This must not be empty.",
}
_AMOUNT = re.compile(rf"[0-9]{{1,7}}(\.[0-9]{{1,{COST_PLACES}}})?")


class WholeNumberField(serializers.IntegerField):
    """A whole number."""

    default_error_messages = {
        **_SENTENCES,
        "max_value": "This may be {max_value:,} at most.",
        "min_value": "This must be {min_value:,} at least.",
    }

    def to_internal_value(self, data: Any) -> int:
        """The number; 2.0 is whole, too. Raises ``ValidationError`` for everything else."""
        if isinstance(data, bool) or not isinstance(data, int | float) or data != int(data):
            raise serializers.ValidationError(f"This must be a whole number, got {format_value(data)}.")
        return int(data)


@extend_schema_field(
    {
        "oneOf": [
            {"type": "string", "pattern": rf"^[0-9]{{1,7}}(\.[0-9]{{1,{COST_PLACES}}})?$"},
            {"type": "number", "minimum": float(MIN_COST_BUDGET), "maximum": float(MAX_COST_BUDGET)},
        ],
        "examples": ["0.50"],
    }
)
class AmountField(serializers.Field[Decimal, Any, Any, Any]):
    """USD, as a decimal text or a number."""

    default_error_messages = _SENTENCES

    def to_internal_value(self, data: Any) -> Decimal:
        """The amount. Raises ``ValidationError`` for what is none that a run may cost."""
        text = data if isinstance(data, str) else ""
        if isinstance(data, int | float) and not isinstance(data, bool):
            # As many digits as the number was written with.
            text = f"{Decimal(repr(data)):f}" if abs(data) <= MAX_COST_BUDGET else ""
        if not _AMOUNT.fullmatch(text) or not MIN_COST_BUDGET <= Decimal(text) <= MAX_COST_BUDGET:
            span = f"from {MIN_COST_BUDGET} to {MAX_COST_BUDGET:,}"
            raise serializers.ValidationError(f"This must be USD {span}, like “0.50”, got {format_value(data)}.")
        return Decimal(text)

    def to_representation(self, value: Any) -> Any:
        """What answers hold: the same text."""
        return value


class WordField(serializers.Field[str, Any, Any, Any]):
    """One of some words."""

    default_error_messages = _SENTENCES
    words: ClassVar[Sequence[str]] = ()

    def to_internal_value(self, data: Any) -> str:
        """The word. Raises ``ValidationError`` for everything else."""
        if not isinstance(data, str) or data not in self.words:
            raise serializers.ValidationError(f"This must be one of {', '.join(self.words)}, got {format_value(data)}.")
        return data

    def to_representation(self, value: Any) -> Any:
        """The same."""
        return value


def format_value(data: Any) -> str:
    """A value of a body as a sentence about it shows it: short, and without invisible characters."""
    if isinstance(data, bool) or not isinstance(data, int | float | str):
        return describe_type(data)
    if isinstance(data, str):
        return f"“{data[:40]}”" if data.isprintable() else f"“{ascii(data[:40])[1:-1]}”"
    return str(data) if abs(data) < 10**40 else "a very large number"
