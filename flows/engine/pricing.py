"""What the tokens of a call cost, from the price list that comes with the package ``genai-prices``."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from typing import NamedTuple

from genai_prices import Usage
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import ModelInfo, ModelPrice, TieredPrices

from flows.engine.history import TokenUsage
from flows.engine.providers import OPENAI_BASE_URL, Provider

_OPENAI = Provider()
_STANDARD_TIERS = (None, "", "auto", "default", "standard", "on_demand")
"""The service tier without prices of its own, in the words of several providers."""


def price_usage(
    model: str, usage: TokenUsage, *, provider: Provider = _OPENAI, service_tier: str | None = None
) -> TokenUsage:
    """``usage`` with its ``cost`` in USD, or with ``unpriced`` 1 where tokens were used at an unknown price.

    ``model`` is the name that the provider answered with, ``service_tier`` the tier that served the call. The price
    list knows providers by their address. Cached prompt tokens cost what the list says for them, reasoning tokens are
    part of the completion. A usage without tokens comes back as it is. Nothing is sent anywhere: the list is installed
    with the package and as old as it is.
    """
    if not (usage.prompt or usage.completion):
        return usage
    cost = _find_cost(model, usage, provider, service_tier)
    return _set_cost(usage, cost)


def _set_cost(usage: TokenUsage, cost: Decimal | None) -> TokenUsage:
    return TokenUsage(
        prompt=usage.prompt,
        completion=usage.completion,
        total=usage.total,
        cached=usage.cached,
        reasoning=usage.reasoning,
        reported=usage.reported,
        cost=cost,
        unpriced=int(cost is None),
    )


def has_price(model: str, *, provider: Provider = _OPENAI) -> bool:
    """Whether the price list knows what prompts and completions of a model cost."""
    return _find_cost(model, TokenUsage(prompt=1, completion=1, total=2), provider, None) is not None


def _find_cost(model: str, usage: TokenUsage, provider: Provider, service_tier: str | None) -> Decimal | None:
    # A script that tries its flow on the simulated model sees what it would cost at OpenAI.
    base_url = OPENAI_BASE_URL if provider.is_simulated else provider.base_url
    tier = None if service_tier in _STANDARD_TIERS else service_tier
    # Some prices depend on the time of day.
    prices = _find_prices(model, base_url, tier, datetime.now(UTC).replace(second=0, microsecond=0))
    if prices is None or (usage.prompt and prices.prompt is None) or (usage.completion and prices.completion is None):
        return None
    if usage.prompt > prices.limit:
        return _ask_price_list(prices.listed, usage)
    return (
        Decimal(0)
        + (prices.prompt or 0) * (usage.prompt - usage.cached)
        + (prices.cached or 0) * usage.cached
        + (prices.completion or 0) * usage.completion
    )


class _Prices(NamedTuple):
    """USD for one token of each kind, None where that is not known, in calls with up to ``limit`` prompt tokens."""

    prompt: Decimal | None
    cached: Decimal | None
    completion: Decimal | None
    limit: float
    listed: ModelPrice


@lru_cache(maxsize=1024)
def _find_prices(model: str, base_url: str, tier: str | None, moment: datetime) -> _Prices | None:
    """The prices of a model, kept since the list takes as long to ask as the rest of an attempt; None if not listed."""
    try:
        found = get_snapshot().find_provider_model(model, None, None, base_url)[1]
    except LookupError:
        return None
    context = {} if tier is None else {"service_tier": tier}
    if tier is not None and not _has_tier(found, context, moment):
        return None
    listed = found.get_prices(moment, context)
    prices = (listed.input_mtok, listed.cache_read_mtok, listed.output_mtok)
    base = [price.base if isinstance(price, TieredPrices) else price for price in prices]
    starts = [tier.start for price in prices if isinstance(price, TieredPrices) for tier in price.tiers]
    prompt, cached, completion = (price and price / 1_000_000 for price in base)
    # What also costs something for each call is left to the list.
    limit = min(starts, default=math.inf) if listed.requests_kcount is None else -1
    return _Prices(prompt, prompt if cached is None else cached, completion, limit, listed)


def _has_tier(found: ModelInfo, context: dict[str, str], moment: datetime) -> bool:
    """Whether the list has own prices for a tier: those of the standard tier don't hold there."""
    return any(
        variant.when == context and (variant.constraint is None or variant.constraint.active(moment))
        for variant in found.price_variants or ()
    )


def _ask_price_list(listed: ModelPrice, usage: TokenUsage) -> Decimal | None:
    tokens = Usage(input_tokens=usage.prompt, cache_read_tokens=usage.cached, output_tokens=usage.completion)
    try:
        return listed.calc_price(tokens)["total_price"]
    except ValueError:
        # These counts don't suffice for its prices.
        return None


def leave_unpriced(model: str, usage: TokenUsage, **_: object) -> TokenUsage:
    """``usage`` as used at an unknown price."""
    return _set_cost(usage, None) if usage.prompt or usage.completion else usage


def leave_free(model: str, usage: TokenUsage, **_: object) -> TokenUsage:
    """``usage`` as it is: for the simulated model, where nothing is billed and nothing has a price."""
    return usage
