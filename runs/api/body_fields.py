"""Fields of bodies that take a JSON value as what it is: no text for a number, no number for a text."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, ClassVar

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from flows.engine.json_values import describe_type
from flows.engine.spec import COST_PLACES, MAX_COST_BUDGET, MIN_COST_BUDGET
from runs.run_options import (
    check_webhook_url,
)
from runs.webhooks.addresses import MAX_ADDRESS_BYTES

_SENTENCES: dict[str, Any] = {
    "required": "This is missing.",
    "null": "This must not be null.",
    "blank": "This must not be empty.",
}
_HALF = re.compile("[\ud800-\udfff]")
# An address as RFC 3986 has it, of what webhooks may be sent to. The port is looked at besides.
_PART = r"([A-Za-z0-9._~:/?@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*"
_HOST = r"([A-Za-z0-9_][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])"
_ADDRESS = rf"https?://{_HOST}(:[1-9][0-9]{{0,4}})?([/?]{_PART})?(#{_PART})?"
_NOT_OF_ADDRESSES = re.compile(r"[^!#$%&'()*+,./0-9:;=?@A-Z\[\]_a-z~-]|%(?![0-9A-Fa-f]{2})")
_AMOUNT = re.compile(rf"[0-9]{{1,7}}(\.[0-9]{{1,{COST_PLACES}}})?")


class TextField(serializers.CharField):
    """Text, as it is."""

    default_error_messages = {
        **_SENTENCES,
        "max_length": "This may have {max_length:,} characters.",
        "surrogate_characters_not_allowed": "This holds half of a character (U+{code_point:X}).",
        "null_characters_not_allowed": "This holds NUL, which can’t be stored.",
    }

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"trim_whitespace": False, **kwargs})

    def to_internal_value(self, data: Any) -> str:
        """The text. Raises ``ValidationError`` for everything else."""
        if not isinstance(data, str):
            raise serializers.ValidationError(f"This must be text, got {describe_type(data)}.")
        # Else the framework’s own validators would say it.
        if "\x00" in data:
            self.fail("null_characters_not_allowed")
        if half := _HALF.search(data):
            self.fail("surrogate_characters_not_allowed", code_point=ord(half[0]))
        return super().to_internal_value(data)


@extend_schema_field({"type": "boolean"})
class FlagField(serializers.Field[bool, Any, Any, Any]):
    """True or false; no text and no number for it."""

    default_error_messages = _SENTENCES

    def to_internal_value(self, data: Any) -> bool:
        """The value. Raises ``ValidationError`` for everything else."""
        if not isinstance(data, bool):
            raise serializers.ValidationError(f"This must be true or false, got {format_value(data)}.")
        return data

    def to_representation(self, value: Any) -> Any:
        """The same."""
        return value


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


# One of one: what may be null besides is added to the choices.
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


@extend_schema_field(
    {
        "type": "string",
        "format": "uri",
        "pattern": f"^{_ADDRESS}$",
        "maxLength": MAX_ADDRESS_BYTES,
        "examples": ["https://example.com/hooks/toolflow"],
    }
)
class WebhookField(TextField):
    """The address that is told when the run has ended."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"max_length": MAX_ADDRESS_BYTES, **kwargs})

    def to_internal_value(self, data: Any) -> str:
        """The address. Raises ``ValidationError`` for what is none."""
        url = super().to_internal_value(data)
        if found := _NOT_OF_ADDRESSES.search(url):
            raise serializers.ValidationError(
                f"“{ascii(found[0])[1:-1]}” can’t stand in an address as it is; write it as %XX, or the host as xn--…."
            )
        try:
            check_webhook_url(url)
        except ValueError as error:
            raise serializers.ValidationError(str(error)) from None
        if not re.fullmatch(_ADDRESS, url) or not _has_real_host(url):
            raise serializers.ValidationError("This is no address, such as https://example.com/hooks/toolflow.")
        return url


def _has_real_host(url: str) -> bool:
    """Whether what stands in brackets is an address of IPv6, of which the pattern knows the letters only."""
    found = re.match(r"https?://\[([^]]*)]", url)
    if found is None:
        return True
    try:
        ipaddress.IPv6Address(found[1])
    except ValueError:
        return False
    return True


def format_value(data: Any) -> str:
    """A value of a body as a sentence about it shows it: short, and without characters that nobody sees."""
    if isinstance(data, bool) or not isinstance(data, int | float | str):
        return describe_type(data)
    if isinstance(data, str):
        return f"“{data[:40]}”" if data.isprintable() else f"“{ascii(data[:40])[1:-1]}”"
    return str(data) if abs(data) < 10**40 else "a very large number"
