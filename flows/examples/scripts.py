"""What the simulated model answers in the example flows, so that they are worth watching without a key.

The first try of one step in each flow goes wrong in a way that real models do; the next try, which is shown what was
wrong, passes. Replies that quote the input read it from the request.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flows.engine.model_api import find_tool
from flows.engine.simulated_model import Script, invent_value
from flows.engine.simulated_model.script import Replies, ReplyFunction
from flows.examples.order_confirmation import read_orders, write_confirmations

_SEEDS = {
    "colours": [
        {"name": "Deep fjord", "hex": "#1F4E5F", "reason": "Still water: the calm that the brand promises."},
        {"name": "Spruce", "hex": "#2F6F62", "reason": "The woods along the shore keep it natural."},
        {"name": "Copper kettle", "hex": "#C8763A", "reason": "Warm like the roasting drum, and made by hand."},
    ]
}

_ROLES = {
    "primary": "#1F4E5F",
    "secondary": "#2F6F62",
    "accent": "#C8763A",
    "neutral": "#6B7280",
    "background": "#F7F5F0",
    "text": "#1E2A2F",
}
_CARELESS_ROLES = {**_ROLES, "accent": "#C8763", "text": "#8C9AA3"}
"""A digit is missing, and the text is too pale to be read."""

_SUITE = {
    "primary": "#1F4E5F",
    "on_primary": "#FFFFFF",
    "primary_container": "#CFE3EA",
    "on_primary_container": "#0B2831",
    "secondary": "#2F6F62",
    "on_secondary": "#FFFFFF",
    "secondary_container": "#CDE8DF",
    "on_secondary_container": "#0C2E27",
    "accent": "#C8763A",
    "on_accent": "#231003",
    "accent_container": "#F8DDC9",
    "on_accent_container": "#3D1D07",
    "background": "#F7F5F0",
    "on_background": "#1E2A2F",
    "surface": "#FFFFFF",
    "on_surface": "#1E2A2F",
    "surface_raised": "#ECE8DF",
    "on_surface_raised": "#27343A",
    "success": "#2E7D4F",
    "on_success": "#FFFFFF",
    "warning": "#E0A526",
    "on_warning": "#2B1D00",
    "error": "#B3362B",
    "on_error": "#FFFFFF",
    "info": "#2C68A8",
    "on_info": "#FFFFFF",
    "border": "#D5CFC3",
    "border_strong": "#8D867A",
    "focus_ring": "#2C68A8",
    "link": "#1B5A85",
}

_SIGNS = (
    ("billing", ("refund", "charged", "invoice", "paid", "money back", "pay ")),
    ("account", ("password", "log in", "sign in", "locked out", "my account")),
    ("bug", ("error", "crash", "broken", "does not work", "doesn't work", "fails")),
    ("feature_request", ("would be great", "please add", "feature", "wish")),
)
_REFUND_SIGNS = ("refund", "money back", "pay the", "charged twice")


def _classify(ticket: Mapping[str, str]) -> dict[str, Any]:
    text = f"{ticket['subject']} {ticket['message']}".lower()
    wants_refund = any(sign in text for sign in _REFUND_SIGNS)
    category = next((category for category, signs in _SIGNS if any(sign in text for sign in signs)), "how_to")
    return {
        "category": "billing" if wants_refund else category,
        "urgency": "high" if wants_refund or category in ("account", "bug") else "normal",
        "sentiment": "annoyed" if wants_refund or "again" in text else "calm",
        "wants_refund": wants_refund,
        "summary": f"The customer writes about: {ticket['subject']}"[:139] + ".",
    }


def _promise_too_much(ticket: Mapping[str, str]) -> dict[str, Any]:
    text = (
        "Dear customer,\n\nthank you for your message, and please excuse the trouble. We will refund the amount "
        f"within {ticket['answer_within_hours']} hours, and our {ticket['team']} team makes sure that it does not "
        "happen again. If anything else is unclear, simply answer this mail.\n\nKind regards\nYour support team"
    )
    return {"subject": f"Re: {ticket['subject']}", "body": text}


def _answer_carefully(ticket: Mapping[str, str]) -> dict[str, Any]:
    text = (
        f"Dear {ticket['customer']},\n\nthank you for your message, and please excuse the trouble. I have "
        f"handed your ticket to our {ticket['team']} team, together with everything that you wrote. A "
        f"colleague will check it and write to you within {ticket['answer_within_hours']} hours. You need "
        "not do anything until then.\n\nKind regards\nYour support team"
    )
    return {"subject": f"Re: {ticket['subject']}", "body": text}


_LINES = [
    {"description": "Copy paper A4, 80 g, box", "quantity": 40, "unit_price": 37.0, "amount": 1480.0},
    {"description": "Freight, Hamburg to Kassel", "quantity": 1, "unit_price": 85.0, "amount": 85.0},
    {"description": "Deposit for pallets", "quantity": 3, "unit_price": 12.0, "amount": 36.0},
]
_INVOICE = {
    "supplier": "Nordwind Papier GmbH",
    "invoice_number": "2026-00417",
    "invoice_date": "2026-11-02",
    "due_date": "2026-12-02",
    "currency": "EUR",
    "lines": _LINES,
    "net": 1601.0,
    "vat_rate": 19,
    "vat": 304.19,
    "gross": 1905.19,
}
_INCOMPLETE_INVOICE = {**_INVOICE, "lines": _LINES[:2]}
"""The deposit is below the table, where it is easily missed."""


_Answer = Mapping[str, Any] | Callable[[Mapping[str, Any]], dict[str, Any]]


def example_script() -> Script:
    """The replies for the tools of all example flows and of sample history; other tools get something invented."""
    answers: dict[str, list[_Answer]] = {
        "pick_seed_colours": [_SEEDS],
        "assign_colour_roles": [_CARELESS_ROLES, _ROLES],
        "build_colour_suite": [_SUITE],
        "classify_ticket": [_classify],
        "draft_answer": [_promise_too_much, _answer_carefully],
        "extract_invoice": [_INCOMPLETE_INVOICE, _INVOICE],
    }
    replies: dict[str, Replies] = {tool: _make_replies(sequence) for tool, sequence in answers.items()}
    replies["read_order"] = lambda run: _make_replies(read_orders(run))
    replies["write_confirmation"] = lambda run: _make_replies(write_confirmations(run))
    return Script(replies)


def _make_replies(answers: Sequence[_Answer]) -> list[ReplyFunction]:
    return [_make_reply(answer) for answer in answers]


def _make_reply(answer: _Answer) -> ReplyFunction:
    """The reply that gives ``answer``, as long as the flow still asks for what is in it.

    An editor who gave the tool other properties gets something invented that has them.
    """

    def reply(body: dict[str, Any], input: Any) -> Mapping[str, Any]:
        known = input if isinstance(input, dict) else {}
        arguments = answer(defaultdict(str, known)) if callable(answer) else answer
        schema = find_tool(body)["parameters"]
        if schema.get("properties", {}).keys() == arguments.keys():
            return arguments
        invented: Mapping[str, Any] = invent_value(schema, seed=json.dumps(body))
        return invented

    return reply
