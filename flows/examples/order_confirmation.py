"""What a model answers in the flow of sample history that confirms orders: right, or wrong in one of a few ways.

Of ten runs in a row two forget the closing line, one the customer's name, one the date, and one gets stuck, so that
runs on the simulated model come out like the sample history.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from flows.engine.simulated_model.script import draw_fraction

CLOSING = "Kind regards, Alder Foods"
KINDS = (
    *("plain", "unclosed", "plain", "nameless", "dateless"),
    *("unclosed", "plain", "stuck", "plain", "plain"),
)
"""What becomes of ten runs in a row."""

_NUMBER = re.compile(r"\b[A-Z]+-\d+\b")
_WANTED = re.compile(r"\b([1-9]\d{0,5}) +([^.,;\n]{1,60}?)(?: +until\b|[.,;\n]|$)")
_DAY = re.compile(r"\b\d{4}-\d\d-\d\d\b")

Answer = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Gives the output for the input of a step."""


def build_order(kind: str, *, number: str, article: str, pieces: int, delivery: str) -> dict[str, Any]:
    """What is read in an order."""
    return {
        "number": number,
        "items": [{"article": article, "pieces": 0 if kind == "stuck" else pieces}],
        "delivery": delivery,
    }


def build_confirmation(kind: str, *, customer: str, order: Mapping[str, Any], is_first: bool) -> dict[str, Any]:
    """What is written to the customer; only the first try is wrong."""
    (item,) = order["items"]
    name = "customer" if is_first and kind in ("nameless", "careless") else customer
    closing = "Alder Foods" if is_first and kind in ("unclosed", "careless") else CLOSING
    when = "as soon as possible" if kind == "dateless" else f"on {order['delivery']}"
    body = f"Dear {name}, thank you for your order. Your {item['pieces']} {item['article']} arrive {when}. {closing}"
    return {"subject": f"Your order {order['number']}", "body": body}


def choose_kind(run: str) -> str:
    """What becomes of a run, by the number at the end of what names it to providers."""
    number = run.rpartition("-")[2]
    return KINDS[int(number) % len(KINDS) if number.isdecimal() else int(len(KINDS) * draw_fraction("kind", run))]


def read_orders(run: str) -> list[Answer]:
    """What reading an order brings in each attempt of a run."""
    kind = choose_kind(run)

    def read(input: Mapping[str, Any]) -> dict[str, Any]:
        order = str(input["order"])
        number, wanted, day = _NUMBER.search(order), _WANTED.search(order), _DAY.search(order)
        return build_order(
            kind,
            number=number[0] if number else order[:20],
            article=wanted[2] if wanted else "lunch platters",
            pieces=int(wanted[1]) if wanted else 1,
            delivery=day[0] if day else "2026-12-03",
        )

    return [read]


def write_confirmations(run: str) -> list[Answer]:
    """What writing a confirmation brings in each attempt of a run."""
    kind = choose_kind(run)

    def write(input: Mapping[str, Any], *, is_first: bool) -> dict[str, Any]:
        return build_confirmation(kind, customer=input["customer"], order=input["order"], is_first=is_first)

    return [lambda input: write(input, is_first=True), lambda input: write(input, is_first=False)]
