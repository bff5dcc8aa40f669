"""What calls cost, and what happens where nobody knows."""

from __future__ import annotations

from decimal import Decimal

import pytest

from flows.engine.pricing import price_usage
from flows.engine.usage import NO_USAGE, UNREPORTED_USAGE, TokenUsage, sum_usage


def make_usage(prompt: int = 0, completion: int = 0, cached: int = 0) -> TokenUsage:
    return TokenUsage(prompt=prompt, completion=completion, total=prompt + completion, cached=cached)


@pytest.mark.parametrize("model", ["gpt-4o-mini", "gpt-4o-mini-2024-07-18"])
def test_a_call_costs_its_tokens_times_the_listed_prices(model: str) -> None:
    # 0.15 and 0.60 dollars for a million tokens.
    usage = price_usage(model, make_usage(1_000_000, 1_000_000))
    assert usage.cost == Decimal("0.75")
    assert usage.unpriced == 0


def test_cached_tokens_cost_less() -> None:
    # 0.075 dollars for a million that were cached.
    assert price_usage("gpt-4o-mini", make_usage(1_000_000, cached=1_000_000)).cost == Decimal("0.075")


def test_a_long_prompt_is_priced_in_its_tier() -> None:
    small = price_usage("gpt-5.5", make_usage(200_000)).cost
    large = price_usage("gpt-5.5", make_usage(400_000)).cost
    assert small is not None
    assert large == 4 * small


@pytest.mark.parametrize("model", ["gpt-9", "", "whisper-1", "text-embedding-3-small", "x" * 10_000])
def test_a_model_without_a_listed_price_is_unpriced_and_never_free(model: str) -> None:
    for tokens in (make_usage(1_000, 10), make_usage(0, 10)):
        usage = price_usage(model, tokens)
        assert usage.cost is None
        assert usage.unpriced == 1


def test_a_unit_without_a_listed_price_makes_the_call_unpriced() -> None:
    assert price_usage("whisper-1", make_usage(prompt=1_000)).unpriced == 1
    assert price_usage("text-embedding-3-small", make_usage(prompt=1_000_000)).cost == Decimal("0.02")


def test_an_unknown_provider_is_unpriced() -> None:
    assert price_usage("gpt-4o-mini", make_usage(1_000), provider="no-such-provider").unpriced == 1


def test_another_provider_s_prices_are_found_by_its_id() -> None:
    assert price_usage("gpt-4o-mini", make_usage(1_000_000), provider="azure").cost == Decimal("0.15")


@pytest.mark.parametrize("usage", [NO_USAGE, UNREPORTED_USAGE])
def test_a_usage_without_tokens_has_no_cost(usage: TokenUsage) -> None:
    assert price_usage("gpt-4o-mini", usage) == usage


def test_the_cost_of_a_run_is_a_lower_bound_where_a_part_is_unpriced() -> None:
    total = sum_usage(price_usage(model, make_usage(1_000_000)) for model in ("gpt-4o-mini", "gpt-9"))
    assert (total.cost, total.unpriced) == (Decimal("0.15"), 1)
