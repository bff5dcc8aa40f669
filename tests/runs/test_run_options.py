"""What people type for labels, priority, budgets and time limit."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

from runs.models import Priority
from runs.run_options import (
    check_labels,
    parse_cost_budget,
    parse_labels,
    parse_priority,
    parse_time_limit,
    parse_token_budget,
)


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (parse_priority, "", Priority.NORMAL),
        (parse_priority, "high", Priority.HIGH),
        (parse_token_budget, "", None),
        (parse_token_budget, " 20000 ", 20_000),
        (parse_token_budget, "1000000000000000", 10**15),
        (parse_token_budget, "20,000", 20_000),
        (parse_token_budget, "1\N{NARROW NO-BREAK SPACE}234\N{NARROW NO-BREAK SPACE}567", 1_234_567),
        (parse_cost_budget, "", None),
        (parse_cost_budget, "0.50", Decimal("0.50")),
        (parse_cost_budget, "$ 12", Decimal(12)),
        (parse_cost_budget, "0.0001", Decimal("0.0001")),
        (parse_time_limit, "600", 600),
        (parse_labels, " ", ()),
        (parse_labels, "nightly", ("nightly",)),
        (parse_labels, " b,a , b\t c,, a", ("b", "a", "b c")),
        (parse_labels, "ü" * 50, ("ü" * 50,)),
        (parse_labels, ",".join("0123456789"), tuple("0123456789")),
    ],
)
def test_what_can_be_read(read: Callable[[str], Any], text: str, value: Any) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text", "sentence"),
    [
        (parse_priority, "urgent", "“urgent” is not a priority; it can be high, normal, low."),
        *(
            (
                parse_token_budget,
                text,
                f"“{text}” is not a token budget; write a whole number up to 1,000,000,000,000,000, like 20000.",
            )
            for text in ("0", "-5", "20,00", "1e5", "many", "1000000000000001", "٣")
        ),
        *(
            (
                parse_cost_budget,
                text,
                f"“{text}” is not a cost budget; write USD from 0.0001 to 1,000,000, like 0.50.",
            )
            for text in ("0", "0,50", "-1", "NaN", "0.00001", "1000000.01", "0.123456789")
        ),
        (
            parse_time_limit,
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


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (",".join("0123456789a"), "A run has at most 10 labels; these are 11."),
        ("x" * 51, f"The label “{'x' * 40}…” is longer than 50 characters."),
        ("fine, bulk-7", "The label “bulk-7” is one that bulk actions give, to find what they started; write another."),
        ("a\x00b", r"The label “a\x00b” has characters that can’t be seen; write it with letters and digits."),
        ("a\u202eb", r"The label “a\u202eb” has characters that can’t be seen; write it with letters and digits."),
        ("a\ud83d", r"The label “a\ud83d” has characters that can’t be seen; write it with letters and digits."),
    ],
)
def test_labels_that_can_not_be_shown_beside_others_are_refused(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match="label") as refusal:
        parse_labels(text)
    assert str(refusal.value) == sentence


def test_labels_that_come_one_by_one_are_checked_alike() -> None:
    check_labels(["nightly", "customer 42"])
    for labels in (["a, b"], [" "], [""], ["x" * 51], list("0123456789a")):
        with pytest.raises(ValueError, match="label"):
            check_labels(labels)
