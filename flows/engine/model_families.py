"""What families of models want their requests to look like. One table; nothing else knows model names."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """How requests to a family of models differ.

    ``pattern`` is matched against the last segment of the model's name, so that a router's
    ``openai/gpt-5-mini`` is known as well; a fine-tuned ``ft:o4-mini:…`` belongs to the family of its base.
    """

    pattern: re.Pattern[str]
    takes_temperature: bool
    max_tokens_field: str
    takes_parallel_tool_calls: bool = True


_OTHER = ModelFamily(re.compile(""), takes_temperature=True, max_tokens_field="max_tokens")

MODEL_FAMILIES = (
    # The chat variants of GPT-5 don't reason and take a temperature.
    ModelFamily(re.compile(r"gpt-5.*-chat"), takes_temperature=True, max_tokens_field="max_completion_tokens"),
    # Reasoning models answer 400 to a temperature, and to max_tokens.
    ModelFamily(re.compile(r"gpt-5\b"), takes_temperature=False, max_tokens_field="max_completion_tokens"),
    # The o-series answers 400 to parallel_tool_calls as well, whatever its value.
    ModelFamily(
        re.compile(r"o[1-9]\b"),
        takes_temperature=False,
        max_tokens_field="max_completion_tokens",
        takes_parallel_tool_calls=False,
    ),
)


def find_family(model: str) -> ModelFamily:
    """The family that a model belongs to; the first match in the table, else the plain one."""
    name = model.rsplit("/", 1)[-1].lower().removeprefix("ft:")
    for family in MODEL_FAMILIES:
        if family.pattern.match(name):
            return family
    return _OTHER
