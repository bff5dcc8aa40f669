"""What the tokens of a call cost, from the price list that comes with the package ``genai-prices``."""

from __future__ import annotations

from decimal import Decimal

from genai_prices import Usage, calc_price

from flows.engine.usage import TokenUsage


def price_usage(model: str, usage: TokenUsage, *, provider: str = "openai") -> TokenUsage:
    """``usage`` with its ``cost`` in USD, or with ``unpriced`` 1 where tokens were used at an unknown price.

    ``model`` is the name that the provider answered with, ``provider`` its id in the price list. Cached prompt tokens
    cost what the list says for them, reasoning tokens are part of the completion. A usage without tokens comes back
    as it is. Nothing is sent anywhere: the list is installed with the package and as old as it is.
    """
    if not (usage.prompt or usage.completion):
        return usage
    cost = _find_cost(model, usage, provider)
    return usage.model_copy(update={"cost": cost, "unpriced": int(cost is None)})


def _find_cost(model: str, usage: TokenUsage, provider: str) -> Decimal | None:
    tokens = Usage(
        input_tokens=usage.prompt,
        cache_read_tokens=min(usage.cached, usage.prompt),
        output_tokens=usage.completion,
    )
    try:
        price = calc_price(tokens, model, provider_id=provider)
    except (LookupError, ValueError):
        # Not listed, or listed with prices that these counts don't suffice for.
        return None
    prices = price.model_price
    # A unit without a price counts as free there; here it is unknown.
    if (usage.prompt and prices.input_mtok is None) or (usage.completion and prices.output_mtok is None):
        return None
    return price.total_price


def leave_unpriced(model: str, usage: TokenUsage) -> TokenUsage:
    """``usage`` as used at an unknown price: for servers whose prices no list knows."""
    return usage.model_copy(update={"unpriced": 1}) if usage.prompt or usage.completion else usage


def leave_free(model: str, usage: TokenUsage) -> TokenUsage:
    """``usage`` as it is: for the simulated model, where nothing is billed and nothing has a price."""
    return usage
