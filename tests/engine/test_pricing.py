"""What calls cost, and what happens where nobody knows."""

from __future__ import annotations

from decimal import Decimal

import pytest
from genai_prices import Usage, calc_price
from genai_prices.data_snapshot import get_snapshot
from hypothesis import given
from hypothesis import strategies as st

from flows.engine.history import TokenUsage
from flows.engine.pricing import has_price, price_usage
from flows.engine.providers import Provider


def make_usage(prompt: int = 0, completion: int = 0, cached: int = 0) -> TokenUsage:
    return TokenUsage(prompt=prompt, completion=completion, total=prompt + completion, cached=cached)


MODELS = [model.id for provider in get_snapshot().providers if provider.id == "openai" for model in provider.models]


def ask_list(model: str, usage: TokenUsage) -> Decimal | None:
    """What the price list itself says; None where it lacks the price of a unit that was used."""
    tokens = Usage(input_tokens=usage.prompt, cache_read_tokens=usage.cached, output_tokens=usage.completion)
    try:
        price = calc_price(tokens, model, provider_id="openai")
    except (LookupError, ValueError):
        return None
    lacks_prompt = usage.prompt and price.model_price.input_mtok is None
    lacks_completion = usage.completion and price.model_price.output_mtok is None
    return None if lacks_prompt or lacks_completion else price.total_price


@given(data=st.data())
def test_every_listed_model_costs_exactly_what_the_list_says(data: st.DataObject) -> None:
    model = data.draw(st.sampled_from(MODELS))
    # Where some prices change with the length of the prompt.
    prompt = data.draw(st.integers(0, 1_000_000) | st.integers(271_990, 272_010))
    completion = data.draw(st.integers(0, 100_000))
    usage = make_usage(prompt, completion, data.draw(st.integers(0, prompt)))
    expected = ask_list(model, usage) if prompt or completion else None
    assert price_usage(model, usage).cost == expected


@pytest.mark.parametrize("model", ["gpt-9", "", "whisper-1", "x" * 10_000])
def test_a_model_without_a_listed_price_is_unpriced_and_never_free(model: str) -> None:
    usage = price_usage(model, make_usage(1_000, 10))
    assert (usage.cost, usage.unpriced, has_price(model), has_price("gpt-5-mini")) == (None, 1, False, True)


def test_prices_of_a_provider_are_found_by_its_address() -> None:
    found = {
        url: price_usage("gpt-4o-mini", make_usage(1_000_000), provider=Provider(base_url=url)).cost
        for url in ("https://here.openai.azure.com/openai/v1", "https://models.example.com/v1")
    }
    assert list(found.values()) == [Decimal("0.15"), None]


@pytest.mark.parametrize(
    ("model", "tier", "part"),
    [("gpt-5-mini", tier, 1) for tier in (None, "default", "auto", "on_demand")]
    + [("gpt-5-mini", "flex", 2), ("gpt-4.1", "flex", None), ("gpt-5-mini", "scale", None)],
)
def test_tiers_have_prices_of_their_own_or_none_that_are_known(model: str, tier: str | None, part: int | None) -> None:
    usage = make_usage(1_000_000, 1_000_000, 100_000)
    standard = price_usage(model, usage).cost
    assert standard is not None
    assert price_usage(model, usage, service_tier=tier).cost == (standard / part if part else None)
