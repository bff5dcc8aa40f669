"""What a word without quotes means: the types of JSON, by the core schema of YAML 1.2."""

from __future__ import annotations

import re
import sys
from typing import Any

import yaml

JsonScalar = str | int | float | bool | None

_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OTHER_BASE = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_NUMBER = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]")
_NO_JSON_NUMBER = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_LARGEST = int(sys.float_info.max)

# Programs that follow YAML 1.1 read these as true and false, some of them the single letters too.
_LETTERS = frozenset("yYnN")
_EARLIER_TYPES: Any = yaml.resolver.Resolver()
_TEXT_TAG = "tag:yaml.org,2002:str"


def resolve_plain(text: str) -> JsonScalar:
    """The value of a scalar without quotes; text that looks like nothing else is itself.

    Raises ``ValueError``, one sentence, for what JSON doesn't know or other programs read differently.
    """
    if text in _WORDS:
        return _WORDS[text]
    if _NO_JSON_NUMBER.fullmatch(text):
        raise ValueError(f"{text} is no number of JSON. Write a finite number, or put it in quotes if it is text.")
    if not (_NUMBER.fullmatch(text) or _OTHER_BASE.fullmatch(text)):
        return text
    if _LEADING_ZERO.match(text):
        raise ValueError(
            f"Some programs read {_shorten(text)} as octal. Leave out the zeros in front, or put it in quotes "
            "if it is text."
        )
    value = _read_number(text)
    if value is None or not -_LARGEST <= value <= _LARGEST:
        raise ValueError(f"The number {_shorten(text)} is too large; ±{_LARGEST:.1e} is the limit.")
    return value


def _read_number(text: str) -> int | float | None:
    try:
        if _OTHER_BASE.fullmatch(text):
            return int(text, 0)
        return int(text) if _INTEGER.fullmatch(text) else float(text)
    except ValueError:
        # Python reads no integer of more than 4,300 digits.
        return None


def is_text_everywhere(text: str) -> bool:
    """Whether this text without quotes is text for every reader, whichever YAML it was written for."""
    if text in _LETTERS:
        return False
    try:
        if resolve_plain(text) is not text:
            return False
    except ValueError:
        return False
    tag: str = _EARLIER_TYPES.resolve(yaml.ScalarNode, text, (True, False))
    return tag == _TEXT_TAG


def format_number(value: int | float) -> str:
    """A number that is the same for readers of YAML 1.1, YAML 1.2 and JSON: ``1.0e-05``, since 1.1 wants the dot."""
    text = repr(value)
    mantissa, exponent, power = text.partition("e")
    if exponent and "." not in mantissa:
        return f"{mantissa}.0e{power}"
    return text


def _shorten(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"
