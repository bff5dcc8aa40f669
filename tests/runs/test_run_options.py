"""What people type for priority, budgets and time limit."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from runs.models import Priority
from runs.run_options import read_cost_budget, read_priority, read_time_limit, read_token_budget


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (read_priority, "", Priority.NORMAL),
        (read_priority, "high", Priority.HIGH),
        (read_token_budget, "", None),
        (read_token_budget, " 20000 ", 20_000),
        (read_token_budget, "1000000000000000", 10**15),
        (read_token_budget, "20,000", 20_000),
        (read_token_budget, "1\N{NARROW NO-BREAK SPACE}234\N{NARROW NO-BREAK SPACE}567", 1_234_567),
        (read_cost_budget, "", None),
        (read_cost_budget, "0.50", Decimal("0.50")),
        (read_cost_budget, "$ 12", Decimal(12)),
        (read_cost_budget, "0.0001", Decimal("0.0001")),
        (read_time_limit, "600", 600),
    ],
)
def test_what_can_be_read(read: Callable[[str], Any], text: str, value: Any) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text", "sentence"),
    [
        (read_priority, "urgent", "“urgent” is not a priority; it can be high, normal, low."),
        *(
            (
                read_token_budget,
                text,
                f"“{text}” is not a token budget; write a whole number up to 1,000,000,000,000,000, like 20000.",
            )
            for text in ("0", "-5", "20,00", "1e5", "many", "1000000000000001", "٣")
        ),
        *(
            (
                read_cost_budget,
                text,
                f"“{text}” is not a cost budget; write USD from 0.0001 to 1,000,000, like 0.50.",
            )
            for text in ("0", "0,50", "-1", "NaN", "0.00001", "1000000.01", "0.123456789")
        ),
        (
            read_time_limit,
            "10 min",
            "“10 min” is not a time limit; write a whole number of seconds up to 31,622,400, like 600.",
        ),
    ],
)
def test_what_can_not_be_read_gets_a_sentence_with_an_example(
    read: Callable[[str], Any], text: str, sentence: str
) -> None:
    with pytest.raises(ValueError, match="is not a") as refusal:
        read(text)
    assert str(refusal.value) == sentence
