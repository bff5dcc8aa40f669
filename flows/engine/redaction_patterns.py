"""Named patterns of what is personal or secret wherever it stands in a text.

Each is tried from the places where a match can begin and takes a bounded number of characters, so that a text of any
kind is looked through in linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address

_GAP = r"[ \u00A0\u2007\u2009\u202F\u2010-\u2015\u2212-]"
"""What stands between groups of digits: a space or a hyphen, also one that is narrow, long or allows no line break."""
_GAPS = re.compile(_GAP)


@dataclass(frozen=True, slots=True)
class TextPattern:
    """What something looks like, and whether a text that looks so is it.

    An expression that looks ahead at it and takes nothing, with one group around it, is tried from the places within a
    match too. What it finds there becomes one with what it overlaps.
    """

    expression: re.Pattern[str]
    accepts: Callable[[str], bool] = bool

    def replace(self, text: str, mark: str) -> str:
        """The text with ``mark`` in place of each match."""
        parts: list[str] = []
        end = 0
        for match in self.expression.finditer(text):
            group = self.expression.groups
            length = self._measure(match[group])
            start = match.start(group)
            if length and start >= end:
                parts += (text[end:start], mark)
            end = max(end, start + length) if length else end
        return "".join((*parts, text[end:])) if parts else text

    def _measure(self, found: str) -> int:
        """The characters of the longest beginning that is accepted: what follows may look as if it belonged to it."""
        if self.accepts(found):
            return len(found)
        ends = [gap.start() for gap in _GAPS.finditer(found)]
        return next((end for end in reversed(ends) if self.accepts(found[:end])), 0)


_DOUBLED = bytes.maketrans(b"0123456789", bytes([48 + digit for digit in (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)]))


def _has_luhn_sum(text: str) -> bool:
    """ISO/IEC 7812-1, annex B: the check digit of payment cards."""
    digits = _GAPS.sub("", text).encode()[::-1]
    # The value of each digit is that of its character less 48.
    total = sum(digits[::2]) + sum(digits[1::2].translate(_DOUBLED)) - 48 * len(digits)
    return 13 <= len(digits) <= 19 and total % 10 == 0


_IBAN_COUNTRIES = {
    15: "NO",
    16: "BE",
    18: "DK FI FK FO GL NL SD",
    19: "MK SI",
    20: "AT BA EE KZ LT LU MN XK",
    21: "CH HR LI LV",
    22: "BG BH CR DE GB GE IE ME RS VA",
    23: "AE GI IL IQ OM SO TL",
    24: "AD CZ ES MD PK RO SA SE SK TN VG",
    25: "AO CV GW LY MZ PT ST",
    26: "DZ IR IS TR",
    27: "BI CF CG CM DJ FR GA GQ GR IT KM MC MG MR SM TD",
    28: "AL AZ BF BJ BY CI CY DO GT HN HU LB MA ML NE NI PL SN SV TG",
    29: "BR EG PS QA UA",
    30: "JO KW MU YE",
    31: "MT SC",
    32: "LC",
    33: "RU",
}
"""The countries that have accounts of so many characters, also those that use them without being in the registry."""
_IBAN_LENGTHS = {country: length for length, countries in _IBAN_COUNTRIES.items() for country in countries.split()}
_SHORTEST_IBAN = min(_IBAN_COUNTRIES)
_LETTER_NUMBERS = {ord("A") + index: str(10 + index) for index in range(26)}


def _has_iban_sum(text: str) -> bool:
    """ISO 13616: the account with its country and check digits at its end, read as a number, leaves 1 modulo 97.

    By chance one of 97 words does. Its country says how long it is, so that few words in small letters pass for one;
    for other countries there are capitals.
    """
    length = _IBAN_LENGTHS.get(text[:2].upper())
    if len(text) < (length or _SHORTEST_IBAN) or not (length or text.isupper()):
        return False
    plain = _GAPS.sub("", text)
    has_length = len(plain) == length if length else len(plain) >= _SHORTEST_IBAN
    return has_length and int((plain[4:] + plain[:4]).upper().translate(_LETTER_NUMBERS)) % 97 == 1


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    # Two colons are an address, and nobody's.
    return text != "::"


_FOUR_BYTES = r"\d{1,3}(?:\.\d{1,3}){3}(?![A-Za-z0-9]|\.\d)"
"""An address of version 4. With a fifth number it is something else: a version of software, a section."""
_GROUPED_CARD = rf"(?:2[1-7]|[3-9]\d)\d{{2,17}}+(?:{_GAP}\d{{4,15}}+){{0,3}}(?:{_GAP}\d{{1,15}}+)?"
"""Groups of four digits and more, but for the last. No card begins like a year: lists of those are left alone."""
_DATE = rf"(?:\d\d?{_GAP}\d\d?{_GAP})?(?:19|20)\d\d{_GAP}"

PATTERNS: dict[str, tuple[TextPattern, ...]] = {
    "api_key": (
        TextPattern(
            re.compile(
                r"(?<![A-Za-z0-9_-])(?:sk-|pk_|rk_|sk_|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|AKIA|AIza|tf_)"
                r"[A-Za-z0-9_-]{12,256}|(?<![A-Za-z0-9])[Bb]earer [A-Za-z0-9._~+/=-]{12,4096}",
                re.ASCII,
            )
        ),
    ),
    "iban": (
        TextPattern(
            re.compile(
                rf"(?<![A-Z0-9])(?=([A-Z]{{2}}\d{{2}}(?:{_GAP}?[A-Z0-9]){{11,30}})(?![A-Z0-9]))",
                re.ASCII | re.IGNORECASE,
            ),
            _has_iban_sum,
        ),
    ),
    "credit_card": (
        # Among other digits: a date, a security code, another card.
        TextPattern(re.compile(rf"(?<!\d)(?=({_GROUPED_CARD})(?!\d))", re.ASCII), _has_luhn_sum),
        # Alone, however its digits are grouped.
        TextPattern(
            re.compile(rf"(?<!\d)(?<!\d{_GAP})(?!{_DATE})\d(?:{_GAP}?\d){{12,18}}(?!{_GAP}?\d)", re.ASCII),
            _has_luhn_sum,
        ),
    ),
    "email": (
        TextPattern(
            re.compile(
                r"(?<![\w.%+-])[\w.%+-]{1,64}@(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}[^\W\d_]{2,24}(?![^\W_])",
            )
        ),
    ),
    "ip_address": (
        TextPattern(
            re.compile(
                # One of version 4 may stand at the end. A lone colon there is the sentence's.
                rf"(?<![A-Za-z0-9.:])(?:(?:[0-9A-Fa-f]{{0,4}}:){{2,7}}{_FOUR_BYTES}"
                r"|[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?<![^:]:)"
                r"(?![A-Za-z0-9]|\.\d|::|:[0-9A-Fa-f]{1,4}(?![A-Za-z0-9])))",
                re.ASCII,
            ),
            _is_address,
        ),
        TextPattern(re.compile(rf"(?<![A-Za-z0-9.]){_FOUR_BYTES}", re.ASCII), _is_address),
    ),
    "phone": (
        TextPattern(
            re.compile(rf"(?<![A-Za-z0-9+])(?:\+|00)[1-9](?:(?:{_GAP}|[./()]){{0,2}}\d){{6,14}}(?!\d)", re.ASCII)
        ),
    ),
}
"""By name, one or more, in the order in which they are tried: part of an account's digits may pass for a card. Phone
numbers are those with a country code; others look like any number."""
