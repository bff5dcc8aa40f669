"""The plug-ins of the example flows: audits, a function and an output type, registered by name.

Settings load this module by default (``TOOLFLOW_PLUGINS``); ``docs/plugins.md`` explains how to write your own.
"""

from __future__ import annotations

import colorsys
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from functools import lru_cache
from itertools import combinations
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from flows.engine.plugins import audit, function, output_type

Finding = dict[str, Any]
"""An issue as a map: what is left out (code, severity) comes from the audit's own settings."""

# ---------------------------------------------------------------------------------------------------------------
# Colour theme: its audits take microseconds, less than the hop to a thread that ``def`` would bring

HEX = re.compile(r"^#[0-9A-F]{6}$")
TEXT_CONTRAST = 4.5
SHAPE_CONTRAST = 3.0
"""What WCAG 2.2, level AA, asks of text (1.4.3) and of everything else that must be seen (1.4.11)."""

SEEN_TOGETHER = (
    ("text", "background", TEXT_CONTRAST),
    ("link", "background", TEXT_CONTRAST),
    ("primary", "background", SHAPE_CONTRAST),
    ("accent", "background", SHAPE_CONTRAST),
    ("focus_ring", "background", SHAPE_CONTRAST),
)
"""Colour, its background, the least contrast. Besides these, ``on_x`` is text on ``x``."""

Hex = Annotated[str, Field(pattern=HEX.pattern)]


@output_type("colour_suite")
class ColourSuite(BaseModel):
    """All colours of a theme. ``on_x`` is the colour of text and icons on ``x``."""

    model_config = ConfigDict(extra="forbid")

    primary: Hex
    on_primary: Hex
    primary_container: Hex
    on_primary_container: Hex
    secondary: Hex
    on_secondary: Hex
    secondary_container: Hex
    on_secondary_container: Hex
    accent: Hex
    on_accent: Hex
    accent_container: Hex
    on_accent_container: Hex
    background: Hex
    on_background: Hex
    surface: Hex
    on_surface: Hex
    surface_raised: Hex
    on_surface_raised: Hex
    success: Hex
    on_success: Hex
    warning: Hex
    on_warning: Hex
    error: Hex
    on_error: Hex
    info: Hex
    on_info: Hex
    border: Hex
    border_strong: Hex
    focus_ring: Hex
    link: Hex


@audit("wcag_contrast")
async def audit_contrast(output: Mapping[str, Any] | BaseModel) -> list[Finding]:
    """Colours that can't be distinguished from their background. Each finding carries the ``ratio``."""
    colours = output.model_dump() if isinstance(output, BaseModel) else output
    luminances = {name: measure_luminance(colour) for name, colour in colours.items() if is_hex(colour)}
    findings = []
    for front, back, least in find_pairs(luminances):
        ratio = measure_contrast(luminances[front], luminances[back])
        if ratio < least:
            findings.append(
                {
                    "path": f"/{front}",
                    "description": (
                        f"{front} {colours[front]} on {back} {colours[back]} has a contrast of {ratio:.2f}:1; "
                        f"at least {least}:1 is needed."
                    ),
                    "suggestions": suggest_contrast(front, colours[front], luminances[back], least),
                    "context": {"colour": colours[front], "background": colours[back], "least": least},
                    "ratio": round(ratio, 2),
                }
            )
    return findings


@audit("keeps_design_system")
async def audit_design_system(output: ColourSuite, steps: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Colours that step 2 decided and that came out otherwise here."""
    decided = steps[2]["output"]
    found = output.model_dump(include=set(decided))
    return [
        {
            "path": f"/{name}",
            "description": f"{name} is {colour}, but the design system has {decided[name]}.",
            "suggestions": [f"Set {name} to {decided[name]}."],
        }
        for name, colour in found.items()
        if colour != decided[name]
    ]


def find_pairs(names: Mapping[str, Any]) -> Iterator[tuple[str, str, float]]:
    """Which of the colours are seen on which, with the contrast that each pair needs."""
    for name in names:
        if name.startswith("on_") and name[3:] in names:
            yield name, name[3:], TEXT_CONTRAST
    for front, back, least in SEEN_TOGETHER:
        if front in names and back in names:
            yield front, back, least


def is_hex(value: Any) -> bool:
    return isinstance(value, str) and HEX.match(value) is not None


@lru_cache(maxsize=4096)
def measure_luminance(colour: str) -> float:
    """The relative luminance of a hex colour as WCAG defines it: 0 for black, 1 for white."""
    red, green, blue = bytes.fromhex(colour[1:])
    return 0.2126 * _LINEAR[red] + 0.7152 * _LINEAR[green] + 0.0722 * _LINEAR[blue]


def measure_contrast(one: float, other: float) -> float:
    """The contrast of two luminances: 1 for the same, 21 for black on white."""
    return (max(one, other) + 0.05) / (min(one, other) + 0.05)


def suggest_contrast(name: str, colour: str, back: float, least: float) -> list[str]:
    """The nearest darker or lighter shade of ``colour`` that is seen well enough on luminance ``back``."""
    channels = bytes.fromhex(colour[1:])
    darker = measure_contrast(back, 0) > measure_contrast(back, 1)
    for percent in range(5, 101, 5):
        mixed = [round(value + ((0 if darker else 255) - value) * percent / 100) for value in channels]
        shade = "#{:02X}{:02X}{:02X}".format(*mixed)
        if measure_contrast(measure_luminance(shade), back) >= least:
            return [f"Make {name} {'darker' if darker else 'lighter'}, for example {shade}."]
    return []


_LINEAR = [
    value / 255 / 12.92 if value / 255 <= 0.04045 else ((value / 255 + 0.055) / 1.055) ** 2.4 for value in range(256)
]

CLOSE_HUES = ((15, "high"), (30, "medium"), (45, "low"))
"""Degrees below which two hues are close, and how bad that is."""


@audit("hue_diversity")
async def audit_hue_diversity(output: Mapping[str, Any]) -> list[Finding]:
    """Pairs of ``colours`` that look alike; the closer their hues, the more severe."""
    hues = {index: measure_hue(seed["hex"]) for index, seed in enumerate(output["colours"]) if is_hex(seed["hex"])}
    findings = []
    for one, other in combinations(hues, 2):
        degrees = abs(hues[one] - hues[other])
        degrees = min(degrees, 360 - degrees)
        severity = next((severity for limit, severity in CLOSE_HUES if degrees < limit), None)
        if severity is not None:
            names = [output["colours"][index]["name"] for index in (one, other)]
            findings.append(
                {
                    "severity": severity,
                    "path": f"/colours/{other}/hex",
                    "description": f"“{names[0]}” and “{names[1]}” are only {degrees:.0f}° apart in hue.",
                    "suggestions": [f"Move “{names[1]}” at least 45° away from “{names[0]}”."],
                    "degrees": round(degrees),
                }
            )
    return findings


def measure_hue(colour: str) -> float:
    """The hue of a hex colour in degrees, from 0 (red) up to 360."""
    red, green, blue = (channel / 255 for channel in bytes.fromhex(colour[1:]))
    return colorsys.rgb_to_hsv(red, green, blue)[0] * 360


# ---------------------------------------------------------------------------------------------------------------
# Invoice extraction


@audit("invoice_sums")
def audit_invoice_sums(output: Mapping[str, Any]) -> list[Finding]:
    """Lines whose amount is not quantity times price, and lines that don't add up to the net amount."""
    findings: list[Finding] = []
    for index, line in enumerate(output["lines"]):
        product = round_cents(line["quantity"] * line["unit_price"])
        if product != round_cents(line["amount"]):
            findings.append(
                {
                    "path": f"/lines/{index}/amount",
                    "description": (
                        f"Line {index + 1} says {round_cents(line['amount'])}, "
                        f"but {line['quantity']:g} × {round_cents(line['unit_price'])} is {product}."
                    ),
                }
            )
    total = add_amounts(output["lines"])
    net = round_cents(output["net"])
    if total != net:
        missing = net - total
        findings.append(
            {
                "path": "/lines",
                "description": (
                    f"The {len(output['lines'])} lines add up to {total}, but the net amount is {net}: "
                    f"{abs(missing)} {'are missing' if missing > 0 else 'too much'}."
                ),
                "suggestions": [f"Check for a line of {missing} that was left out, such as freight or a deposit."]
                if missing > 0
                else ["Check for a duplicate line, or for a subtotal that was read as a line."],
                "context": {"lines": float(total), "net": float(net)},
                "difference": float(missing),
            }
        )
    return findings


@function("prepare_booking")
def prepare_booking(previous: Mapping[str, Any]) -> dict[str, Any]:
    """The bookkeeping entries of an extracted invoice, and how many days are left to pay it."""
    net, vat, gross = (float(round_cents(previous[name])) for name in ("net", "vat", "gross"))
    invoiced, due = (date.fromisoformat(previous[name]) for name in ("invoice_date", "due_date"))
    return {
        "text": f"{previous['supplier']}, invoice {previous['invoice_number']}",
        "currency": previous["currency"],
        "entries": [
            {"account": "Purchases", "debit": net, "credit": 0.0},
            {"account": "Input VAT", "debit": vat, "credit": 0.0},
            {"account": "Trade payables", "debit": 0.0, "credit": gross},
        ],
        "payment_days": (due - invoiced).days,
    }


def add_amounts(lines: Sequence[Mapping[str, Any]]) -> Decimal:
    """What the lines of an invoice cost together."""
    return sum((round_cents(line["amount"]) for line in lines), Decimal(0))


def round_cents(amount: float) -> Decimal:
    """An amount of money to the cent: floats are fine in JSON and wrong in sums."""
    return Decimal(str(amount)).quantize(Decimal("0.01"), rounding=ROUND_HALF_UP)
