"""Patterns find what they name as people and models write it, leave ordinary texts alone, and take no time that grows
faster than a text."""

from __future__ import annotations

import pytest

from flows.engine.redaction import PATTERNS, Redactor

CARD, OTHER_CARD, IBAN = "4111 1111 1111 1111", "4242 4242 4242 4242", "DE89 3704 0044 0532 0130 00"
GAPS = "\u00a0\u2007\u2009\u202f\u2010\u2011\u2012\u2013\u2014\u2015\u2212-"
"""Spaces and hyphens that models write between digits."""


def redact(name: str, text: str) -> str:
    """The text with ``#`` in place of what the pattern finds."""
    redacted: str = Redactor.of([name], {}).redact_value(text)
    return redacted.replace(f"[redacted: {name}]", "#")


@pytest.mark.parametrize(
    ("name", "text", "kept"),
    [
        ("email", "_alice@example.com_", "#_"),
        ("email", "alice@example.com_2", "#_2"),
        ("email", "alice@example.com-2, **alice@example.com**", "#-2, **#**"),
        ("ip_address", "10.0.0.1:8080", "#:8080"),
        ("ip_address", "ip:10.0.0.1, _10.0.0.1_, 10.0.0.0/8.", "ip:#, _#_, #/8."),
        ("ip_address", "::ffff:10.1.2.3", "#"),
        ("ip_address", "[64:ff9b::10.1.2.3]:80", "[#]:80"),
        ("ip_address", "12:30:45:10.1.2.3", "12:30:45:#"),
        ("ip_address", "2001:db8::1: no route, 2001:db8::1:error", "#: no route, #:error"),
        ("ip_address", "from fe80::1%eth0 to 2001:db8::.", "from #%eth0 to #."),
        ("credit_card", f"{CARD} 2026", "# 2026"),
        ("credit_card", f"{CARD} 12 27 123", "# 12 27 123"),
        ("credit_card", f"{CARD} {OTHER_CARD}", "# #"),
        ("credit_card", f"{CARD.replace(' ', '')} {OTHER_CARD.replace(' ', '-')} {CARD}", "# # #"),
        ("credit_card", f"1 {CARD}, 2024 {OTHER_CARD}", "1 #, 2024 #"),
        # Also where the digits of two pass for a third.
        ("credit_card", f"5555-5555-5555-4444 {CARD}", "# #"),
        ("credit_card", "3782 822463 10005 1234", "# 1234"),
        ("credit_card", "41 11 11 11 11 11 11 11", "#"),
        ("iban", "de89370400440532013000", "#"),
        ("iban", "Gb82 west 1234 5698 7654 32 it is", "# it is"),
        ("iban", f"{IBAN} GB82 WEST 1234 5698 7654 32", "# #"),
        ("iban", f"AB12 {IBAN} 12 MORE", "AB12 # 12 MORE"),
        ("iban", "DE89 37040044 0532013000", "#"),
        (
            "iban",
            "DE89 3704 0044 0532 0130 01, GB82WEST1234569876543",
            "DE89 3704 0044 0532 0130 01, GB82WEST1234569876543",
        ),
        ("credit_card", "4111 1111 1111 1112, 41111111111111111111111", "4111 1111 1111 1112, 41111111111111111111111"),
        ("email", "anna.bach+x@mail.example.co.uk, jürgen@müller.de, anna@home", "#, #, anna@home"),
        ("ip_address", "192.168.1.17, 2001:db8::8a2e:370:7334, 999.168.1.17", "#, #, 999.168.1.17"),
        ("phone", "+49 (0)30 123456-7 or 0049 30 1234567, not 30 1234567", "# or #, not 30 1234567"),
        (
            "api_key",
            "sk-abcdefghijklmnop1234 Bearer abc.def-ghijkl== sk-abc Bearer of news",
            "# # sk-abc Bearer of news",
        ),
        # Of a country that is not known.
        ("iban", "ZZ73123456789012345678 now", "ZZ73123456789012345678 now"),
        ("phone", "_+49 30 123456_", "_#_"),
    ],
)
def test_everyday_spellings_are_found(name: str, text: str, kept: str) -> None:
    assert redact(name, text) == kept


def test_an_account_is_one_also_where_part_of_it_passes_for_a_card() -> None:
    for rules in (["credit_card", "iban"], list(PATTERNS)):
        redacted = Redactor.of(rules, {}).redact_value("DE08 3704 0044 0004 0130 00")
        assert redacted == "[redacted: iban]"


def test_a_card_that_is_a_number_is_one_and_the_digits_of_a_fraction_are_none() -> None:
    value = [4111111111111111, 4111111111111111.0, 4111111111111112, 0.4111111111111111, True, None]
    mark = "[redacted: credit_card]"
    assert Redactor.of(list(PATTERNS), {}).redact_value(value) == [mark, mark, *value[2:]]


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize(
    ("name", "text"), [("credit_card", CARD), ("iban", IBAN), ("phone", "+1 555 123 4567"), ("phone", "0049 30 123456")]
)
def test_digits_are_found_with_any_space_or_hyphen_between_them(name: str, text: str, gap: str) -> None:
    assert redact(name, f"It is {text.replace(' ', gap)}.") == "It is #."


@pytest.mark.parametrize(
    "text",
    [
        "At 10:30, 10:30:15 or 10:30–11:00, std::vector and a :: b",
        "Version 1.2.3, v1.2.3.4, 1.2.3.4.5 and 10.0.19045.3570.1",
        "Orders 4111 1111 1111 1112, 4111-1111-1111-1112 2026 and 20261121-000417",
        "2026-11-21 2026-11-22 2026-11-23 2026-11-24 2026-11-25 2026-11-26",
        "2026-11-21–2026-11-22, 21-11-2026 22-11-2026, 2026-11-21T10:30:15.123456+01:00",
        "2023 2024 2025 2026, 2010-2011 2012-2013",
        "2015 2016 2017 2018 2019 2020 2021 2022 2023 2024 2025 2026 2027 2028",
        "1\u202f234\u202f567 and 12\u00a0345\u00a0678.90",
        "py29 is the new version, see de36 for details of this, no45 items are left",
        "ab12cd34-ab12-4d34-ab12-ab12cd34ef56 be12ad34-ee20-4122-ba20-de89ad34ef56",
        "me@home, @example.com, a@b",
        "1 + 555 123 4567, 2 +3",
    ],
)
def test_ordinary_texts_stay_as_they_are(text: str) -> None:
    assert Redactor.of(list(PATTERNS), {}).redact_value(text) == text


@pytest.mark.parametrize(
    "part",
    ["4111 1111 1111 1112 ", "4 ", "42", "be12 ", "ab12 a b c ", "a@", f"a@{'b' * 63}.", ":", "1.1.1.1.", "+1 .1 .1"],
)
def test_much_of_anything_is_looked_through(part: str) -> None:
    """With a pattern that goes back over what it has read, this takes hours."""
    text = part * (250_000 // len(part)) + "; bob@example.com"
    assert Redactor.of(list(PATTERNS), {}).redact_value(text).endswith("; [redacted: email]")
