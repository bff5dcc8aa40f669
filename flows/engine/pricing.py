"""What the tokens of a call cost, from the price list that comes with the package ``genai-prices``."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache

from genai_prices import Usage
from genai_prices.data_snapshot import get_snapshot
from genai_prices.types import ModelPrice, TieredPrices

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
    part of the completion. Nothing is sent anywhere: the list is installed with the package and as old as it is.
    """
    if not (usage.prompt or usage.completion):
        return usage
    return _set_cost(usage, _find_cost(model, usage, provider, service_tier))


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


@dataclass(frozen=True, slots=True)
class Rates:
    """What a model costs: USD for a million tokens; None where the price list has no such price."""

    prompt: Decimal | None
    completion: Decimal | None


def find_rates(model: str, *, provider: Provider = _OPENAI, service_tier: str | None = None) -> Rates | None:
    """The prices of a model on a tier, for prompts of usual length; None where the price list has none."""
    tier = None if service_tier in _STANDARD_TIERS else service_tier
    prices = _find_prices(model, _find_address(provider), tier, datetime.now(UTC).replace(second=0, microsecond=0))
    if prices is None:
        return None
    listed = (prices.input_mtok, prices.output_mtok)
    return Rates(*(price.base if isinstance(price, TieredPrices) else price for price in listed))


def list_priced_models(provider: Provider = _OPENAI) -> list[str]:
    """The names of all models that the price list has for a provider."""
    try:
        found = get_snapshot().find_provider(None, None, _find_address(provider))
    except LookupError:
        return []
    return [model.id for model in found.models]


def _find_address(provider: Provider) -> str:
    # A script that tries its flow on the simulated model sees what it would cost at OpenAI.
    return OPENAI_BASE_URL if provider.is_simulated else provider.base_url


def _find_cost(model: str, usage: TokenUsage, provider: Provider, service_tier: str | None) -> Decimal | None:
    tier = None if service_tier in _STANDARD_TIERS else service_tier
    # Some prices depend on the time of day.
    prices = _find_prices(model, _find_address(provider), tier, datetime.now(UTC).replace(second=0, microsecond=0))
    if prices is None:
        return None
    listed = (prices.input_mtok, prices.cache_read_mtok, prices.output_mtok)
    prompt, cached, completion = (price.base if isinstance(price, TieredPrices) else price for price in listed)
    if (usage.prompt and prompt is None) or (usage.completion and completion is None):
        return None
    starts = [tier.start for price in listed if isinstance(price, TieredPrices) for tier in price.tiers]
    if prices.requests_kcount is not None or usage.prompt > min(starts, default=usage.prompt):
        return _ask_price_list(prices, usage)
    # What the list computes as well, in a twentieth of the time.
    counts = (
        (prompt, usage.prompt - usage.cached),
        (prompt if cached is None else cached, usage.cached),
        (completion, usage.completion),
    )
    return sum((Decimal(price or 0) / 1_000_000 * count for price, count in counts), Decimal(0))


@lru_cache(maxsize=1024)
def _find_prices(model: str, base_url: str, tier: str | None, moment: datetime) -> ModelPrice | None:
    """The prices of a model; None where the list has none for it, or none for its tier."""
    try:
        found = get_snapshot().find_provider_model(model, None, None, base_url)[1]
    except LookupError:
        return None
    if tier is None:
        return found.get_prices(moment, {})
    context = {"service_tier": tier}
    variants = [variant for variant in found.price_variants or () if variant.when == context]
    # Prices of the standard tier don't hold in others.
    if not any(variant.constraint is None or variant.constraint.active(moment) for variant in variants):
        return None
    return found.get_prices(moment, context)


def _ask_price_list(prices: ModelPrice, usage: TokenUsage) -> Decimal | None:
    tokens = Usage(input_tokens=usage.prompt, cache_read_tokens=usage.cached, output_tokens=usage.completion)
    try:
        return prices.calc_price(tokens)["total_price"]
    except ValueError:
        # These counts don't suffice for its prices.
        return None


def leave_unpriced(model: str, usage: TokenUsage, **_: object) -> TokenUsage:
    """``usage`` as used at an unknown price."""
    return _set_cost(usage, None) if usage.prompt or usage.completion else usage


def leave_free(model: str, usage: TokenUsage, **_: object) -> TokenUsage:
    """``usage`` as it is: for the simulated model, where nothing is billed and nothing has a price."""
    return usage
