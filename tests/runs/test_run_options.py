"""What users type for labels, priority, budgets and time limit."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from runs.models import Priority
from runs.run_options import check_labels, parse_options


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        ("priority", "", Priority.NORMAL),
        ("priority", "high", Priority.HIGH),
        ("token_budget", "", None),
        ("token_budget", " 20,000 ", 20_000),
        ("token_budget", "1000000000000000", 10**15),
        ("token_budget", "1\N{NARROW NO-BREAK SPACE}234\N{NARROW NO-BREAK SPACE}567", 1_234_567),
        ("cost_budget", "0.50", Decimal("0.50")),
        ("cost_budget", "$ 12", Decimal(12)),
        ("cost_budget", "0.0001", Decimal("0.0001")),
        ("time_limit", "600", 600),
        ("labels", " ", ()),
        ("labels", " b,a , b\t c,, a", ("b", "a", "b c")),
        ("labels", "ü" * 50, ("ü" * 50,)),
        ("labels", ",".join("0123456789"), tuple("0123456789")),
    ],
)
def test_what_can_be_parsed(option: str, text: str, value: Any) -> None:
    assert parse_options({option: text}) == ({option: value}, {})


@pytest.mark.parametrize(
    ("option", "texts", "example"),
    [
        ("priority", ["urgent"], "it can be high, normal, low"),
        ("token_budget", ["0", "-5", "20,00", "1e5", "many", "1000000000000001", "٣"], "like 20000"),
        ("cost_budget", ["0", "0,50", "-1", "NaN", "0.00001", "1000000.01", "0.123456789"], "like 0.50"),
        ("time_limit", ["10 min"], "like 600"),
        ("labels", [",".join("0123456789a"), "x" * 51, "fine, bulk-7", "a\x00b", "a\u202eb", "a\ud83d"], "abel"),
    ],
)
def test_what_can_not_be_parsed_gets_a_sentence_with_an_example(option: str, texts: list[str], example: str) -> None:
    for text in texts:
        values, problems = parse_options({option: text})
        assert values == {} and example in problems[option] and problems[option].isprintable()


def test_labels_that_come_one_by_one_are_checked_alike() -> None:
    check_labels(["nightly", "customer 42"])
    for labels in (["a, b"], [" "], [""], ["x" * 51], list("0123456789a")):
        with pytest.raises(ValueError, match="label"):
            check_labels(labels)
