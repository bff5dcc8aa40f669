"""A flow whose history has known truths: what a change of it would have changed follows from these figures.

Of each 50 runs in a row (``CYCLE``)

- 22 ``plain`` ones pass each step at once;
- 12 ``unclosed`` ones fail at first by the audit “Closing line” alone. The retry changes that line and nothing else:
  without the audit each of them would have been accepted at once, so that it only costs a retry;
- 6 ``nameless`` ones fail at first by “Names the customer”, and 2 ``careless`` ones by that and “Closing line”;
- 4 ``stuck`` ones fail: all four tries of the first step bring the same output, refused by “Pieces of each article”;
- 4 ``dateless`` ones pass at once with a remark of “Mentions the delivery date”, which only warns.

The audit “Number is in the order” never fires, and no step passes after its second attempt. Each call takes 1,000
tokens and costs $0.004.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

from flows.engine.history import TokenUsage
from flows.engine.spec import FlowSpec
from flows.examples.order_confirmation import build_confirmation, build_order
from flows.flow_file import parse_document
from runs.seeding.simulation import Course, Simulation

CYCLE = {"plain": 22, "unclosed": 12, "nameless": 6, "careless": 2, "stuck": 4, "dateless": 4}
"""How many runs of each kind one cycle has."""
COST = Decimal("0.004")
TOKENS = 1_000
MODEL = "gpt-5-mini"
ORDERS = (("Mara Lindqvist", "lunch platters", 6), ("Tomás Rivera", "fruit baskets", 24), ("Yuki Tanaka", "rolls", 200))
VARIANTS = len(ORDERS)


def load_planted_document() -> dict[str, Any]:
    """The ``FlowSpec`` document of the flow."""
    return parse_document(Path(__file__).with_name("planted.yaml").read_bytes())


async def play_planted_courses(spec: FlowSpec) -> list[Course]:
    """The courses of one cycle, in the order in which runs take them."""
    simulation = Simulation(spec, price=price_planted)
    played = {kind: [await play_planted(simulation, kind, one) for one in range(VARIANTS)] for kind in CYCLE}
    courses = [played[kind][number % VARIANTS] for kind, count in CYCLE.items() for number in range(count)]
    Random(1).shuffle(courses)  # noqa: S311  # repeatable, not secret
    return courses


async def play_planted(simulation: Simulation, kind: str, variant: int) -> Course:
    """The course of runs of that kind, with a customer and an order of that variant."""
    customer, article, pieces = ORDERS[variant]
    number, delivery = f"AF-{1042 + variant}", f"2026-12-{3 + variant:02d}"
    order = f"Hello, please send {pieces} {article} until {delivery}. Our number is {number}, reference {{reference}}."

    def reply(tool: str, attempt: int) -> Mapping[str, Any]:
        found = build_order(kind, number=number, article=article, pieces=pieces, delivery=delivery)
        if tool == "read_order":
            return found
        return build_confirmation(kind, customer=customer, order=found, is_first=attempt == 1)

    input = {"customer": customer, "order": order}
    return await simulation.play(input, reply, model=MODEL, seed=f"planted/{kind}/{variant}")


def price_planted(model: str, usage: TokenUsage, **_: object) -> TokenUsage:
    """What each call takes and costs."""
    return TokenUsage(prompt=TOKENS - 200, completion=200, total=TOKENS, cost=COST)
