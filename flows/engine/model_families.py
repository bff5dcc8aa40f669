"""What families of models take in a request: one table of facts, each with its source."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum


class ReasoningEffort(StrEnum):
    """How much a model reasons before it answers; each family of models takes some of these."""

    NONE = "none"
    MINIMAL = "minimal"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    XHIGH = "xhigh"
    MAX = "max"


class ForcedTools(StrEnum):
    """When a family takes a forced function tool on chat completions. All take it on Responses."""

    ALWAYS = "always"
    WITHOUT_EFFORT = "without an effort in the request"
    WITH_EFFORT_NONE = "with the effort “none” in the request"
    NEVER = "never"


class TemperatureRule(StrEnum):
    """When a family takes a temperature."""

    ALWAYS = "always"
    IF_SET = "if a flow or step sets one"
    """Unknown: one from the settings of the installation is left out."""
    WITHOUT_REASONING = "while it does not reason"
    NEVER = "never"


_OLD_LIMIT, _NEW_LIMIT = "max_tokens", "max_completion_tokens"
_MODEL_MAP = "LiteLLM's model map"
_REASONS = "reasons"
"""The default effort is not “none”; which one it is has no source."""


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """How requests to a family of models differ."""

    name: str
    source: str = _MODEL_MAP
    chat_tools: ForcedTools = ForcedTools.ALWAYS
    efforts: tuple[ReasoningEffort, ...] = ()
    """Empty where the field is unknown."""
    default_effort: str = ""
    """What an unset effort means; empty where that is not known."""
    temperature: TemperatureRule = TemperatureRule.ALWAYS
    max_tokens_field: str = _NEW_LIMIT
    """The name of the token limit on chat completions."""
    takes_parallel_tool_calls: bool = True

    def takes_temperature(self, effort: ReasoningEffort | None) -> bool:
        """Whether a request with this effort may hold a temperature."""
        if self.temperature is TemperatureRule.WITHOUT_REASONING:
            return (effort or self.default_effort) == ReasoningEffort.NONE
        return self.temperature is not TemperatureRule.NEVER


_E = ReasoningEffort
_NONE_TO_HIGH = (_E.NONE, _E.LOW, _E.MEDIUM, _E.HIGH)
_NONE_TO_XHIGH = (*_NONE_TO_HIGH, _E.XHIGH)

_GPT_4 = ModelFamily("GPT-4", "OpenAI's reference of chat completions", max_tokens_field=_OLD_LIMIT)
_O_SERIES = ModelFamily(
    "o-series",
    efforts=(_E.LOW, _E.MEDIUM, _E.HIGH),
    default_effort=_E.MEDIUM,
    temperature=TemperatureRule.NEVER,
    takes_parallel_tool_calls=False,
)
_GPT_5 = ModelFamily(
    "GPT-5",
    efforts=(_E.MINIMAL, _E.LOW, _E.MEDIUM, _E.HIGH),
    default_effort=_E.MEDIUM,
    temperature=TemperatureRule.NEVER,
)
_GPT_5_CHAT = ModelFamily("GPT-5 chat")
_GPT_5_1 = ModelFamily(
    "GPT-5.1",
    efforts=_NONE_TO_HIGH,
    default_effort=_E.NONE,
    temperature=TemperatureRule.WITHOUT_REASONING,
)
_GPT_5_2 = replace(
    _GPT_5_1,
    name="GPT-5.2 to 5.4",
    source=f"{_MODEL_MAP}; pipecat-ai/pipecat#4043",
    chat_tools=ForcedTools.WITHOUT_EFFORT,
    efforts=_NONE_TO_XHIGH,
)
_GPT_5_6 = replace(
    _GPT_5_2,
    name="GPT-5.5 and 5.6",
    source="BerriAI/litellm#34569; livekit/agents#7169; LibreChat#14231; for 5.5, where reports differ, "
    "Science-Discovery/Aether#1026",
    chat_tools=ForcedTools.WITH_EFFORT_NONE,
    default_effort=_REASONS,
)
_GPT_6 = replace(
    _GPT_5_6,
    name="GPT-6",
    source="onyx#15008; bolna#1019",
    efforts=(*_NONE_TO_XHIGH, _E.MAX),
    temperature=TemperatureRule.NEVER,
)
_GPT_6_ASTRA = replace(
    _GPT_6,
    name="GPT-6 Astra and GPT-6.1",
    source="Prompture v1.15.1; Codeep v3.6.0; home-generative-agent v3.46.0-beta.1",
    chat_tools=ForcedTools.NEVER,
    efforts=(_E.LOW, _E.MEDIUM, _E.HIGH, _E.XHIGH, _E.MAX),
)
NEWER_FAMILY = ModelFamily(
    "newer",
    "an assumption: what every model of OpenAI takes that came out since GPT-5",
    ForcedTools.NEVER,
    tuple(_E),
    temperature=TemperatureRule.IF_SET,
)
"""Models of OpenAI's that the table does not know."""
COMPATIBLE_FAMILY = ModelFamily(
    "compatible",
    "an assumption: what servers take that speak OpenAI's API",
    efforts=tuple(_E),
    max_tokens_field=_OLD_LIMIT,
)
"""Models that the table does not know, at other servers."""

_ROWS: tuple[tuple[tuple[int, int], tuple[int, int], set[str], ModelFamily], ...] = (
    ((3, 0), (4, 99), set(), _GPT_4),
    ((35, 0), (35, 0), set(), _GPT_4),  # what Azure calls 3.5
    ((5, 0), (5, 99), {"chat"}, _GPT_5_CHAT),
    ((5, 0), (5, 0), set(), _GPT_5),
    ((5, 1), (5, 1), set(), _GPT_5_1),
    ((5, 2), (5, 4), set(), _GPT_5_2),
    ((5, 5), (5, 6), set(), _GPT_5_6),
    ((6, 0), (6, 0), {"astra"}, _GPT_6_ASTRA),
    ((6, 0), (6, 0), {"sol", "luna"}, _GPT_6),
    ((6, 1), (6, 1), set(), _GPT_6_ASTRA),
)
"""Generations, first and last, of the names ``gpt-<major>[.<minor>]``, with one of the endings where some are named."""

_GPT_NAME = re.compile(r"(?:chat)?gpt-(\d{1,2})(?:\.(\d{1,2}))?o?(?:-(.*))?")
_O_NAME = re.compile(r"o[1-9](?:-(.*))?")
_CODEX_NAME = re.compile(r"codex-.*")


def find_family(
    model: str, *, newer: ModelFamily = NEWER_FAMILY, unknown: ModelFamily = COMPATIBLE_FAMILY
) -> ModelFamily:
    """The family of a model by its name without a provider; ``newer`` for another name like those of OpenAI's models.

    The last segment counts, as in a router's ``openai/gpt-5-mini``; a fine-tuned ``ft:o4-mini:…`` is like its base.
    """
    name = model.rsplit("/", 1)[-1].lower().removeprefix("ft:").partition(":")[0]
    if _CODEX_NAME.fullmatch(name):
        return _only_on_responses(_O_SERIES, "codex")
    if found := _O_NAME.fullmatch(name):
        return _specialise(_O_SERIES, _split_ending(found[1]))
    if found := _GPT_NAME.fullmatch(name):
        generation, words = (int(found[1]), int(found[2] or 0)), _split_ending(found[3])
        for first, last, endings, family in _ROWS:
            if first <= generation <= last and (not endings or words & endings):
                return _specialise(family, words)
        return _specialise(newer, words)
    return unknown


def _split_ending(ending: str | None) -> set[str]:
    return set((ending or "").split("-"))


def _specialise(family: ModelFamily, words: set[str]) -> ModelFamily:
    for word in ("pro", "codex"):
        if word in words:
            return _only_on_responses(family, word)
    return family


def _only_on_responses(family: ModelFamily, word: str) -> ModelFamily:
    """The variants that chat completions don't offer at all; source: LiteLLM's model map."""
    return replace(
        family,
        name=f"{family.name} {word}",
        chat_tools=ForcedTools.NEVER,
        efforts=tuple(effort for effort in family.efforts if word != "pro" or effort is not _E.NONE),
        default_effort=_REASONS,
        temperature=TemperatureRule.NEVER,
        source=_MODEL_MAP,
    )
