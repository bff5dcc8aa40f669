"""Named patterns of what is personal or secret wherever it stands in a text.

Each is tried from the places where a match can begin and takes a bounded number of characters, so that a text of any
kind is looked through in linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address


@dataclass(frozen=True, slots=True)
class TextPattern:
    """What something looks like, and whether a text that looks so is it."""

    expression: re.Pattern[str]
    accepts: Callable[[str], bool] = bool

    def replace(self, text: str, mark: str) -> str:
        """The text with ``mark`` in place of each match."""
        return self.expression.sub(lambda match: self._mark(match.group(), mark), text)

    def _mark(self, found: str, mark: str) -> str:
        # A word that follows may look as if it belonged to it.
        kept = found
        while kept and not self.accepts(kept):
            kept = kept.rpartition(" ")[0]
        return mark + found[len(kept) :] if kept else found


def _has_luhn_sum(text: str) -> bool:
    """ISO/IEC 7812-1, annex B: the check digit of payment cards."""
    digits = [int(character) for character in reversed(text) if character.isdigit()]
    doubled = [digit * 2 - 9 if digit > 4 else digit * 2 for digit in digits[1::2]]
    return 13 <= len(digits) <= 19 and (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _has_iban_sum(text: str) -> bool:
    """ISO 13616: the account with its country and check digits at its end, read as a number, leaves 1 modulo 97."""
    plain = text.replace(" ", "")
    moved = plain[4:] + plain[:4]
    return 15 <= len(plain) <= 34 and int("".join(str(int(character, 36)) for character in moved)) % 97 == 1


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


PATTERNS: dict[str, TextPattern] = {
    "api_key": TextPattern(
        re.compile(
            r"(?<![A-Za-z0-9_-])(?:sk-|pk_|rk_|sk_|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|AKIA|AIza|tf_)"
            r"[A-Za-z0-9_-]{12,256}|(?<![A-Za-z0-9])[Bb]earer [A-Za-z0-9._~+/=-]{12,4096}",
            re.ASCII,
        )
    ),
    "credit_card": TextPattern(
        re.compile(r"(?<!\d)(?<!\d[ -])\d(?:[ -]?\d){12,18}(?![ -]?\d)", re.ASCII), _has_luhn_sum
    ),
    "email": TextPattern(
        re.compile(
            r"(?<![\w.%+-])[\w.%+-]{1,64}@(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}[^\W\d_]{2,24}(?![\w-])",
        )
    ),
    "iban": TextPattern(
        re.compile(r"(?<![A-Z0-9])[A-Z]{2}\d{2}(?: ?[A-Z0-9]{1,4}){3,8}(?![A-Z0-9])", re.ASCII), _has_iban_sum
    ),
    "ip_address": TextPattern(
        re.compile(
            r"(?<![\w.:])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7})(?![\w:])", re.ASCII
        ),
        _is_address,
    ),
    "phone": TextPattern(re.compile(r"(?<![\w+])(?:\+|00)[1-9](?:[ ./()-]{0,2}\d){6,14}(?!\d)", re.ASCII)),
}
"""By name. Phone numbers are those with a country code; others look like any number."""
