"""Text can be read in both themes."""

from __future__ import annotations

import re

import pytest
from django.conf import settings

TOKENS = settings.BASE_DIR / "static/toolflow/css/tokens.css"

GROUNDS = ("ground", "surface", "inset")
TONES = ("passed", "failed", "errored", "critical", "high", "medium", "low", "accent")


def read_colours(theme: int) -> dict[str, str]:
    """Colours by token, of the light theme (0) or the dark one (1)."""
    pairs = re.findall(r"--tf-([\w-]+): light-dark\((#\w{6}), (#\w{6})\)", TOKENS.read_text(encoding="utf-8"))
    return {name: colours[theme] for name, *colours in pairs}


def luminance(colour: str) -> float:
    channels = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    darker, lighter = sorted((luminance(one), luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_every_text_has_a_contrast_of_at_least_four_and_a_half_on_every_ground(theme: int) -> None:
    colours = read_colours(theme)
    pairs = [(text, ground) for text in ("text", "text-quiet", *TONES) for ground in GROUNDS]
    # Marked lines hold plain and quiet text, chips the text of their own tone.
    pairs += [(text, f"{tone}-soft") for tone in TONES for text in (tone, "text", "text-quiet")]
    pairs += [("on-accent", "accent"), ("on-accent", "accent-strong")]
    weak = {pair: round(contrast(colours[pair[0]], colours[pair[1]]), 2) for pair in pairs}
    assert {pair: ratio for pair, ratio in weak.items() if ratio < 4.5} == {}


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_borders_of_fields_and_parts_of_charts_can_be_told_from_their_ground(theme: int) -> None:
    colours = read_colours(theme)
    parts = ("border-strong", "chart-fresh", "chart-out", *TONES)
    weak = {part: round(contrast(colours[part], colours["surface"]), 2) for part in parts}
    assert {part: ratio for part, ratio in weak.items() if ratio < 3} == {}
