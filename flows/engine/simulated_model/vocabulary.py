"""Believable values by the name of a property: ``due_date`` gets a date, ``vendor_name`` a company."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, timedelta
from random import Random

_FIRST_NAMES = ("Ada", "Amara", "Ben", "Chloe", "Daniel", "Elif", "Farid", "Greta", "Hugo", "Ines", "Jonas", "Keiko")
_LAST_NAMES = ("Alvarez", "Brandt", "Costa", "Dubois", "Eriksen", "Fischer", "Garcia", "Haddad", "Ito", "Jansen")
_COMPANIES = ("Northwind Paper", "Alder & Finch", "Blue Harbour Foods", "Kestrel Logistics", "Lumen Optics")
_CITIES = ("Berlin", "Bordeaux", "Dublin", "Ghent", "Lisbon", "Oslo", "Porto", "Toronto", "Turin", "Zurich")
_COUNTRIES = ("Belgium", "Canada", "France", "Germany", "Ireland", "Italy", "Norway", "Portugal", "Switzerland")
_STREETS = ("Mill Lane", "Harbour Street", "Station Road", "Garden Way", "Market Square", "River Walk")
_CURRENCIES = ("EUR", "USD", "GBP", "CHF", "CAD")
_LANGUAGES = ("English", "French", "German", "Italian", "Portuguese", "Spanish")
_LABELS = ("account", "billing", "delivery", "feedback", "onboarding", "quality", "refund", "security", "upgrade")
_ITEMS = ("Desk lamp", "Office chair", "Notebook, ruled", "Printer paper", "Standing desk", "USB-C cable", "Whiteboard")
_TITLES = ("A clear start", "First findings", "Morning harbour", "Notes on the draft", "Quiet autumn", "The next step")
_SENTENCES = (
    "The main points are in order and nothing is left open.",
    "Two details need another look before this goes out.",
    "The request is understood and can be answered at once.",
    "All figures were compared with the source and agree.",
    "The change is small, well described and easy to undo.",
    "The customer expects an answer within one working day.",
)
_WORDS = ("amber", "birch", "cedar", "dune", "ember", "fjord", "grove", "harbour", "iris", "juniper", "meadow")
_FIRST_DAY = date(2026, 1, 1)


def make_hex_color(random: Random) -> str:
    """``#rrggbb``."""
    return f"#{random.randrange(1 << 24):06x}"


def make_date(random: Random) -> str:
    """An ISO date within 2026."""
    return (_FIRST_DAY + timedelta(days=random.randrange(365))).isoformat()


def make_time(random: Random) -> str:
    """``hh:mm:ss`` with the zone, as the JSON Schema format ``time`` wants it."""
    return f"{random.randrange(8, 18):02d}:{random.randrange(60):02d}:00Z"


def make_date_time(random: Random) -> str:
    """An RFC 3339 date and time."""
    return f"{make_date(random)}T{make_time(random)}"


def make_email(random: Random) -> str:
    """An address in a domain that can't exist."""
    return f"{random.choice(_FIRST_NAMES)}.{random.choice(_LAST_NAMES)}@example.com".lower()


def make_url(random: Random) -> str:
    """An address in a domain that can't exist."""
    return f"https://example.com/{random.choice(_WORDS)}/{random.randrange(100, 1_000)}"


def make_identifier(random: Random) -> str:
    """Letters and digits, as on an invoice or a ticket."""
    return f"{random.choice('ABCDEFGHKLMNPRSTVWX')}{random.choice('ABCDEFGHKLMNPRSTVWX')}-{random.randrange(10**5):05d}"


def make_words(random: Random) -> str:
    """Two plain words, where a name says nothing."""
    return " ".join(random.sample(_WORDS, 2))


def _pick(*choices: str) -> Callable[[Random], str]:
    return lambda random: random.choice(choices)


def _make_person(random: Random) -> str:
    return f"{random.choice(_FIRST_NAMES)} {random.choice(_LAST_NAMES)}"


def _make_address(random: Random) -> str:
    return f"{random.choice(_STREETS)} {random.randrange(1, 200)}, {random.choice(_CITIES)}"


def _make_phone(random: Random) -> str:
    return f"+1 555 {random.randrange(100, 1_000)} {random.randrange(10**4):04d}"


# The first entry that shares a word with the name wins, so that the special stands before the general.
_TEXTS: tuple[tuple[frozenset[str], Callable[[Random], str]], ...] = tuple(
    (frozenset(words.split()), make)
    for words, make in (
        ("hex color colour colors colours background foreground accent", make_hex_color),
        ("email mail", make_email),
        ("url link website homepage uri", make_url),
        ("phone telephone mobile", _make_phone),
        ("date day due deadline birthday", make_date),
        ("timestamp datetime", make_date_time),
        ("time", make_time),
        ("currency", _pick(*_CURRENCIES)),
        ("country", _pick(*_COUNTRIES)),
        ("city town", _pick(*_CITIES)),
        ("address street", _make_address),
        ("language locale", _pick(*_LANGUAGES)),
        ("company vendor supplier organisation organization seller issuer brand", _pick(*_COMPANIES)),
        ("product item article", _pick(*_ITEMS)),
        ("title subject headline heading", _pick(*_TITLES)),
        (
            "summary description reason explanation rationale text body message comment note notes answer content",
            _pick(*_SENTENCES),
        ),
        ("id number no reference ref code sku key", make_identifier),
        ("category type kind topic tag tags label labels keyword keywords team queue", _pick(*_LABELS)),
        ("person author customer client contact owner assignee user sender recipient name fullname", _make_person),
    )
)

_WHOLE_NUMBERS: tuple[tuple[frozenset[str], tuple[int, int]], ...] = (
    (frozenset({"quantity", "count", "units", "pieces", "qty"}), (1, 9)),
    (frozenset({"year"}), (2020, 2026)),
    (frozenset({"age"}), (18, 80)),
    (frozenset({"stars", "rating", "priority"}), (1, 5)),
)
_NUMBERS: tuple[tuple[frozenset[str], tuple[float, float]], ...] = (
    (frozenset({"confidence", "probability", "ratio", "weight", "opacity", "alpha", "share"}), (0.0, 1.0)),
    (frozenset({"price", "amount", "total", "subtotal", "tax", "cost", "fee", "sum", "net", "gross"}), (5.0, 500.0)),
)


def split_name(name: str) -> tuple[str, ...]:
    """The words of a property name, in lower case: ``dueDate`` and ``due_date`` give ``due``, ``date``."""
    return tuple(re.findall(r"[a-z]+|[0-9]+", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()))


def find_text_maker(name: str) -> Callable[[Random], str] | None:
    """What makes a believable text for a property of this name, None where the name says nothing."""
    words = frozenset(split_name(name))
    return next((make for known, make in _TEXTS if words & known), None)


def find_whole_bounds(name: str) -> tuple[int, int]:
    """Believable bounds of an integer of this name."""
    words = frozenset(split_name(name))
    return next((bounds for known, bounds in _WHOLE_NUMBERS if words & known), (1, 100))


def find_bounds(name: str) -> tuple[float, float]:
    """Believable bounds of a number of this name."""
    words = frozenset(split_name(name))
    return next((bounds for known, bounds in _NUMBERS if words & known), (0.0, 100.0))
