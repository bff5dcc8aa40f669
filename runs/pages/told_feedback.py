"""What a model was told of earlier attempts when it was asked, and what the severity filter kept from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flows.engine.spec import FlowSpec
from runs import models


@dataclass(frozen=True, slots=True)
class ToldFeedback:
    """What one call told of the attempts before it."""

    severity_filter: str
    hidden: int
    """Issues that the filter kept from the model."""
    is_blind: bool
    """The attempt retries a failed one of which the model was told nothing."""


def find_told_feedback(
    spec: FlowSpec, step: int, rows: Sequence[models.Attempt], issues: Mapping[int, Sequence[models.Issue]]
) -> dict[int, ToldFeedback]:
    """What the calls of one step told, by the attempt's number; ``issues`` are those of all ``rows`` by their keys."""
    return {}
