"""How numbers and times read on pages and in messages: counts, money, shares, lengths of time and moments."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal

NOTHING = "—"
"""Shown where a number is unknown or doesn't apply."""

GROUP = "\N{NARROW NO-BREAK SPACE}"
_PER_CENT = f"{GROUP}%"
_SMALLEST_COST = Decimal("0.0001")


def format_count(count: int) -> str:
    """A whole number in groups of three: ``29 895``."""
    return f"{count:,}".replace(",", GROUP)


def format_cost(cost: Decimal | None, unpriced: int = 0) -> str:
    """US dollars: ``$0.0724``, ``$4.10``; ``≥`` before a sum that misses ``unpriced`` attempts; ``—`` if unknown."""
    if cost is None:
        return NOTHING
    if 0 < cost < _SMALLEST_COST:
        text = f"${_SMALLEST_COST}"
        return f"≥ {text}" if unpriced else f"< {text}"
    places = Decimal("0.01") if cost == 0 or cost >= 1 else _SMALLEST_COST
    text = f"${cost.quantize(places, rounding=ROUND_HALF_UP):,}".replace(",", GROUP)
    return f"≥ {text}" if unpriced else text


def format_budget(amount: Decimal) -> str:
    """An amount of US dollars as it was entered, with its digits: ``$0.50``, ``$0.0015``, ``$12``."""
    text = f"{amount:,f}".replace(",", GROUP)
    whole, _, places = text.partition(".")
    places = places.rstrip("0")
    return f"${whole}.{places.ljust(2, '0')}" if places else f"${whole}"


def format_duration(seconds: float | None) -> str:
    """A length of time: ``240 ms``, ``6.4 s``, ``1 min 08 s``, ``2 h 05 min``, ``3 d 04 h``; ``—`` if unknown."""
    if seconds is None:
        return NOTHING
    seconds = max(seconds, 0.0)
    if seconds < 0.9995:
        return f"{round(seconds * 1000)} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3_600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = whole // 60
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    return f"{minutes // (24 * 60)} d {minutes // 60 % 24:02d} h"


def format_age(length: timedelta | None) -> str:
    """How long ago something was, coarsely: ``under 10 s``, ``40 s``, ``3 min``, ``5 h``, ``2 d``; ``—`` if unknown."""
    if length is None:
        return NOTHING
    seconds = int(length.total_seconds())
    for unit, name in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds // unit} {name}"
    return f"{seconds // 10 * 10} s" if seconds >= 10 else "under 10 s"


def format_plural(count: int, noun: str) -> str:
    """A count and its noun: ``1 attempt``, ``2 attempts``."""
    return f"{format_count(count)} {noun}" if count == 1 else f"{format_count(count)} {noun}s"


def format_elapsed(seconds: float) -> str:
    """Whole seconds, then as other durations: ``12 s``, ``1 min 08 s``. ``live_updates.js`` counts on in this form."""
    seconds = max(seconds, 0.0)
    return f"{int(seconds)} s" if seconds < 60 else format_duration(int(seconds))


def format_share(share: float | None) -> str:
    """A share in whole per cent: ``71 %``. Nearly all are not all, and a few are not none; ``—`` if unknown."""
    if share is None:
        return NOTHING
    percent = round(100 * share)
    if percent == 100 and share < 1:
        return f"over 99{_PER_CENT}"
    if percent == 0 and share > 0:
        return f"under 1{_PER_CENT}"
    return f"{percent}{_PER_CENT}"


def format_mean(mean: float | None) -> str:
    """A mean of counts with its significant digits: ``1.32``, ``12.4``, ``1 240``; ``—`` if unknown."""
    if mean is None:
        return NOTHING
    if mean >= 100:
        return format_count(round(mean))
    return f"{mean:.1f}" if mean >= 10 else f"{mean:.2f}"


def format_number(value: float) -> str:
    """A number as SVG wants it: at most two decimals, no trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def format_large(count: int | None) -> str:
    """A count that may be long: in groups of three below 100,000, as ``812.4k`` or ``2.4M`` above; ``—`` if unknown."""
    if count is None:
        return NOTHING
    if count < 100_000:
        return format_count(count)
    # 999,950 and more would round to "1000.0k".
    return f"{count / 1_000:.1f}k" if count < 999_950 else f"{count / 1_000_000:.1f}M"


def format_moment(local: datetime) -> str:
    """A time with its zone: ``21 Nov 2026, 02:14:09 UTC``; zones without a name as ``UTC+5:45``."""
    name = local.tzname() or "UTC"
    if name.startswith(("+", "-")):
        hours, minutes = name[1:3].lstrip("0") or "0", name[3:5]
        sign = "+" if name[0] == "+" else "\N{MINUS SIGN}"
        name = f"UTC{sign}{hours}{f':{minutes}' if minutes.strip('0') else ''}"
    return f"{local.day} {local:%b %Y, %H:%M:%S} {name}"
