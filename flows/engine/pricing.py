"""What the tokens of a call cost, from the price list that comes with the package ``genai-prices``."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from functools import lru_cache
from typing import Any

from genai_prices import Usage, calc_price
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import ModelInfo, ModelPrice, TieredPrices, TimeOfDateConstraint

from flows.engine.providers import OPENAI_BASE_URL, Provider
from flows.engine.usage import TokenUsage

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
    return usage.model_copy(update={"cost": cost, "unpriced": int(cost is None)})


def has_price(model: str, *, provider: Provider = _OPENAI) -> bool:
    """Whether the price list knows what prompts and completions of a model cost."""
    return _find_cost(model, TokenUsage(prompt=1, completion=1, total=2), provider, None) is not None


def _find_cost(model: str, usage: TokenUsage, provider: Provider, service_tier: str | None) -> Decimal | None:
    # A script that tries its flow on the simulated model sees what it would cost at OpenAI.
    base_url = OPENAI_BASE_URL if provider.is_simulated else provider.base_url
    tier = None if service_tier in _STANDARD_TIERS else service_tier
    table = _read_prices(model, base_url, tier, datetime.now(UTC).date())
    if table is None:
        return _ask_for_cost(model, usage, base_url, tier)
    rates = table.rates[bisect_left(table.starts, usage.prompt)]
    if (usage.prompt and rates.prompt is None) or (usage.completion and rates.completion is None):
        return None
    cached = min(usage.cached, usage.prompt)
    return (
        rates.call
        + (rates.prompt or 0) * (usage.prompt - cached)
        + (rates.cached or 0) * cached
        + (rates.completion or 0) * usage.completion
    )


@dataclass(frozen=True, slots=True)
class _Rates:
    """USD for one call and for one token of each kind; None where that is not known."""

    call: Decimal = Decimal(0)
    prompt: Decimal | None = None
    cached: Decimal | None = None
    completion: Decimal | None = None


@dataclass(frozen=True, slots=True)
class _PriceTable:
    """What the tokens of a model cost: ``rates[i]`` for prompts longer than ``i`` of the ``starts``, which ascend."""

    starts: tuple[int, ...]
    rates: tuple[_Rates, ...]


_UNKNOWN = _PriceTable((), (_Rates(),))


@lru_cache(maxsize=1024)
def _read_prices(model: str, base_url: str, tier: str | None, day: date) -> _PriceTable | None:
    """The prices of a model on a day (UTC), read once: to ask the list takes as long as the rest of an attempt.

    None where they depend on the time of the day as well, or on more than the counts of tokens.
    """
    try:
        found = get_snapshot().find_provider_model(model, None, None, base_url)[1]
    except LookupError:
        return _UNKNOWN
    noon, context = datetime.combine(day, time(12), UTC), _make_context(tier)
    if tier is not None and not _knows_tier(found, context, noon):
        return _UNKNOWN
    if isinstance(found.prices, list) and any(isinstance(p.constraint, TimeOfDateConstraint) for p in found.prices):
        return None
    prices = vars(found.get_prices(noon, context))
    tiers = [tier for price in prices.values() if isinstance(price, TieredPrices) for tier in price.tiers]
    starts = tuple(sorted({tier.start for tier in tiers}))
    try:
        rates = [_read_rates(prices, prompt) for prompt in (0, *(start + 1 for start in starts))]
    except ValueError:
        return None
    return _PriceTable(starts, tuple(rates))


def _make_context(tier: str | None) -> dict[str, str]:
    return {} if tier is None else {"service_tier": tier}


def _knows_tier(found: ModelInfo, context: dict[str, str], moment: datetime) -> bool:
    """Whether the list has own prices for a tier: those of the standard tier don't hold there."""
    return any(
        variant.when == context and (variant.constraint is None or variant.constraint.active(moment))
        for variant in found.price_variants or ()
    )


def _read_rates(prices: dict[str, Any], prompt: int) -> _Rates:
    """What single tokens cost in a call whose prompt has ``prompt`` tokens."""
    flat = ModelPrice(**{name: _choose_tier(price, prompt) for name, price in prices.items()})
    million = 1_000_000

    def charge(**counts: int) -> Decimal:
        return flat.calc_price(Usage(**counts))["total_price"]

    call = charge()
    no_prompt, no_completion = flat.input_mtok is None, flat.output_mtok is None
    return _Rates(
        call,
        None if no_prompt else (charge(input_tokens=million) - call) / million,
        None if no_prompt else (charge(input_tokens=million, cache_read_tokens=million) - call) / million,
        None if no_completion else (charge(output_tokens=million) - call) / million,
    )


def _choose_tier(price: Any, prompt: int) -> Any:
    if not isinstance(price, TieredPrices):
        return price
    return next((tier.price for tier in reversed(price.tiers) if prompt > tier.start), price.base)


def _ask_for_cost(model: str, usage: TokenUsage, base_url: str, tier: str | None) -> Decimal | None:
    tokens = Usage(
        input_tokens=usage.prompt,
        cache_read_tokens=min(usage.cached, usage.prompt),
        output_tokens=usage.completion,
    )
    try:
        price = calc_price(tokens, model, provider_api_url=base_url, price_context=_make_context(tier))
    except (LookupError, ValueError):
        # Not listed, or listed with prices that these counts don't suffice for.
        return None
    prices = price.model_price
    # A unit without a price counts as free there; here it is unknown.
    if (usage.prompt and prices.input_mtok is None) or (usage.completion and prices.output_mtok is None):
        return None
    return price.total_price


def leave_unpriced(model: str, usage: TokenUsage, **_: object) -> TokenUsage:
    """``usage`` as used at an unknown price."""
    return usage.model_copy(update={"unpriced": 1}) if usage.prompt or usage.completion else usage


def leave_free(model: str, usage: TokenUsage, **_: object) -> TokenUsage:
    """``usage`` as it is: for the simulated model, where nothing is billed and nothing has a price."""
    return usage
