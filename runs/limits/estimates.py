"""How many tokens a call will use, guessed before it is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flows.engine.json_value import dump_json
from flows.engine.model_request import find_max_tokens
from flows.engine.usage import TokenUsage

CHARACTERS_PER_TOKEN = 4
FIRST_COMPLETION = 500
"""Tokens of a completion, as long as nothing is known of a model's."""
WEIGHT = 0.1
"""How much the latest call counts in a running mean."""


class Estimates:
    """Running means of what the calls of each model used."""

    def __init__(self) -> None:
        self._completions: dict[str, float] = {}
        self._totals: dict[str, float] = {}

    def estimate(self, request: Mapping[str, Any]) -> int:
        """Tokens that the call of ``request`` will use in all: its text, and a completion as they have been."""
        completion = self._completions.get(request["model"])
        most = find_max_tokens(request)
        if completion is None:
            completion = most or FIRST_COMPLETION
        elif most:
            completion = min(completion, most)
        return len(dump_json(request)) // CHARACTERS_PER_TOKEN + round(completion)

    def mean(self, model: str) -> int:
        """Tokens of a call of ``model`` whose request is not known yet; at least 1."""
        return max(1, round(self._totals.get(model, FIRST_COMPLETION)))

    def learn(self, model: str, usage: TokenUsage) -> None:
        """Take in what a call used."""
        for means, count in ((self._completions, usage.completion), (self._totals, usage.total)):
            known = means.get(model, count)
            means[model] = known + WEIGHT * (count - known)
