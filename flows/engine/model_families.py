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


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """How requests to a family of models differ."""

    name: str
    chat_tools: ForcedTools
    efforts: tuple[ReasoningEffort, ...]
    """Empty where the field is unknown."""
    default_effort: str
    """What an unset effort means; empty where that is not known."""
    temperature: TemperatureRule
    max_tokens_field: str
    """The name of the token limit on chat completions."""
    source: str
    takes_parallel_tool_calls: bool = True

    def takes_temperature(self, effort: ReasoningEffort | None) -> bool:
        """Whether a request with this effort may hold a temperature."""
        if self.temperature is TemperatureRule.WITHOUT_REASONING:
            return (effort or self.default_effort) == ReasoningEffort.NONE
        return self.temperature is not TemperatureRule.NEVER


@dataclass(frozen=True, slots=True)
class _Row:
    """Generations, first and last, of the names ``gpt-<major>[.<minor>]``, with an ending where one is named."""

    first: tuple[int, int]
    last: tuple[int, int]
    family: ModelFamily
    endings: tuple[str, ...] = ()


_E = ReasoningEffort
_NONE_TO_HIGH = (_E.NONE, _E.LOW, _E.MEDIUM, _E.HIGH)
_NONE_TO_XHIGH = (*_NONE_TO_HIGH, _E.XHIGH)
_OLD_LIMIT, _NEW_LIMIT = "max_tokens", "max_completion_tokens"
_MODEL_MAP = "LiteLLM's model map"
_REASONS = "reasons"
"""The default effort is not “none”; which one it is has no source."""

_GPT_4 = ModelFamily(
    "GPT-4", ForcedTools.ALWAYS, (), "", TemperatureRule.ALWAYS, _OLD_LIMIT, "OpenAI's reference of chat completions"
)
_O_SERIES = ModelFamily(
    "o-series",
    ForcedTools.ALWAYS,
    (_E.LOW, _E.MEDIUM, _E.HIGH),
    _E.MEDIUM,
    TemperatureRule.NEVER,
    _NEW_LIMIT,
    _MODEL_MAP,
    takes_parallel_tool_calls=False,
)
_GPT_5 = ModelFamily(
    "GPT-5",
    ForcedTools.ALWAYS,
    (_E.MINIMAL, _E.LOW, _E.MEDIUM, _E.HIGH),
    _E.MEDIUM,
    TemperatureRule.NEVER,
    _NEW_LIMIT,
    _MODEL_MAP,
)
_GPT_5_CHAT = ModelFamily(
    "GPT-5 chat", ForcedTools.ALWAYS, (), "", TemperatureRule.ALWAYS, _NEW_LIMIT, _MODEL_MAP
)  # fmt: skip
_GPT_5_1 = ModelFamily(
    "GPT-5.1",
    ForcedTools.ALWAYS,
    _NONE_TO_HIGH,
    _E.NONE,
    TemperatureRule.WITHOUT_REASONING,
    _NEW_LIMIT,
    _MODEL_MAP,
)
_GPT_5_2 = ModelFamily(
    "GPT-5.2 to 5.4",
    ForcedTools.WITHOUT_EFFORT,
    _NONE_TO_XHIGH,
    _E.NONE,
    TemperatureRule.WITHOUT_REASONING,
    _NEW_LIMIT,
    f"{_MODEL_MAP}; pipecat-ai/pipecat#4043",
)
_GPT_5_6 = ModelFamily(
    "GPT-5.5 and 5.6",
    ForcedTools.WITH_EFFORT_NONE,
    _NONE_TO_XHIGH,
    _REASONS,
    TemperatureRule.WITHOUT_REASONING,
    _NEW_LIMIT,
    "BerriAI/litellm#34569; livekit/agents#7169; LibreChat#14231; for 5.5, where reports differ, "
    "Science-Discovery/Aether#1026",
)
_GPT_6 = ModelFamily(
    "GPT-6",
    ForcedTools.WITH_EFFORT_NONE,
    (*_NONE_TO_XHIGH, _E.MAX),
    _REASONS,
    TemperatureRule.NEVER,
    _NEW_LIMIT,
    "onyx#15008; bolna#1019",
)
_GPT_6_ASTRA = ModelFamily(
    "GPT-6 Astra and GPT-6.1",
    ForcedTools.NEVER,
    (_E.LOW, _E.MEDIUM, _E.HIGH, _E.XHIGH, _E.MAX),
    _REASONS,
    TemperatureRule.NEVER,
    _NEW_LIMIT,
    "Prompture v1.15.1; Codeep v3.6.0; home-generative-agent v3.46.0-beta.1",
)

_ROWS = (
    _Row((3, 0), (4, 99), _GPT_4),
    _Row((35, 0), (35, 0), _GPT_4),  # what Azure calls 3.5
    _Row((5, 0), (5, 99), _GPT_5_CHAT, endings=("chat",)),
    _Row((5, 0), (5, 0), _GPT_5),
    _Row((5, 1), (5, 1), _GPT_5_1),
    _Row((5, 2), (5, 4), _GPT_5_2),
    _Row((5, 5), (5, 6), _GPT_5_6),
    _Row((6, 0), (6, 0), _GPT_6_ASTRA, endings=("astra",)),
    _Row((6, 0), (6, 0), _GPT_6, endings=("sol", "luna")),
    _Row((6, 1), (6, 1), _GPT_6_ASTRA),
)

NEWER_FAMILY = ModelFamily(
    "newer",
    ForcedTools.NEVER,
    tuple(_E),
    "",
    TemperatureRule.IF_SET,
    _NEW_LIMIT,
    "an assumption: what every model of OpenAI takes that came out since GPT-5",
)
"""Models of OpenAI's that the table does not know."""

COMPATIBLE_FAMILY = ModelFamily(
    "compatible",
    ForcedTools.ALWAYS,
    tuple(_E),
    "",
    TemperatureRule.ALWAYS,
    _OLD_LIMIT,
    "an assumption: what servers take that speak OpenAI's API",
)
"""Models that the table does not know, at other servers."""

_GPT_NAME = re.compile(r"(?:chat)?gpt-(\d{1,2})(?:\.(\d{1,2}))?o?(?:-(.*))?")
_O_NAME = re.compile(r"o[1-9](?:-(.*))?")
_CODEX_NAME = re.compile(r"codex-.*")


def find_family(
    model: str, *, newer: ModelFamily = NEWER_FAMILY, unknown: ModelFamily = COMPATIBLE_FAMILY
) -> ModelFamily:
    """The family of a model by its name without a provider.

    Where the table has none it is ``newer`` for a name like those of OpenAI's models, and ``unknown`` for others.

    The last segment of the name counts, so that a router's ``openai/gpt-5-mini`` is known; a fine-tuned
    ``ft:o4-mini:…`` belongs to the family of its base.
    """
    name = model.rsplit("/", 1)[-1].lower().removeprefix("ft:").partition(":")[0]
    if _CODEX_NAME.fullmatch(name):
        return _only_on_responses(_O_SERIES, "codex")
    if found := _O_NAME.fullmatch(name):
        return _specialise(_O_SERIES, _split_ending(found[1]))
    if found := _GPT_NAME.fullmatch(name):
        generation, words = (int(found[1]), int(found[2] or 0)), _split_ending(found[3])
        for row in _ROWS:
            if row.first <= generation <= row.last and (not row.endings or words & set(row.endings)):
                return _specialise(row.family, words)
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
