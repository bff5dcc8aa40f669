"""The definition of a flow as one JSON document: what a run is pinned to.

The classes here say what a field *is*; ``spec_check`` says whether a whole flow can run.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from decimal import Decimal
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StrictBool,
    StrictInt,
    ValidationError,
    WrapValidator,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from flows.engine.errors import PluginError, Problem, SpecError
from flows.engine.history import Issue, Severity
from flows.engine.json_values import describe_type, format_pointer
from flows.engine.model_families import ReasoningEffort
from flows.engine.plugins import PluginName, derive_name, name_function, name_type, number_name

TOOL_NAME_PATTERN = r"^[a-zA-Z0-9_-]{1,64}$"
"""What the chat completions API accepts as the name of a function."""

NAME_PATTERN = r"^[a-z0-9]+(-[a-z0-9]+)*$"
"""The name of a flow: lower case, URL-safe."""

MAX_TITLE_LENGTH = 200
MAX_STEPS = 50
MAX_AUDITS = 50
"""Audits of one step."""
MAX_AUDITS_OF_FLOW = 500
"""Audits of all steps together: the editor's page has to carry them."""
MAX_EXPRESSION_LENGTH = 4_000
MAX_SCHEMA_BYTES = 64 * 1024
MAX_REDACTION_RULES = 100

if TYPE_CHECKING:
    # What is read is always text; a caller may write the object itself.
    TypeName = str | Any
    Expression = str | Any
else:
    TypeName = Annotated[str, WrapValidator(name_type)]
    """The name of a registered pydantic type, or the class itself."""

    Expression = Annotated[str, Field(min_length=1, max_length=MAX_EXPRESSION_LENGTH), WrapValidator(name_function)]
    """CEL text, ``python:name`` for a registered function, or the function itself."""

RedactionRule = Annotated[str, Field(min_length=1, max_length=500)]
"""A JSON pointer in which ``*`` stands for any name or position, or the name of a pattern."""

MessageTemplate = Annotated[str, Field(min_length=1, max_length=MAX_EXPRESSION_LENGTH)]
"""Text with paths in braces: ``Clause {item.number} is missing.``"""


class ServiceTier(StrEnum):
    """How a provider serves a call: flex is cheaper and slower, priority the opposite."""

    AUTO = "auto"
    DEFAULT = "default"
    FLEX = "flex"
    PRIORITY = "priority"


class FailAt(StrEnum):
    """The least severity of an issue that fails an audit."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"
    CRITICAL = "critical"
    NEVER = "never"
    """The audit only warns."""


class OnExhausted(StrEnum):
    """What becomes of a step whose tries are used up, or that is stuck."""

    FAIL = "fail"
    ACCEPT_BEST = "accept_best"
    """Its best usable output counts, as if it had passed: the one with the fewest critical issues, then high, medium,
    low ones, then the latest."""


Temperature = Annotated[float, Field(ge=0, le=2, allow_inf_nan=False, strict=True)]
MaxTokens = Annotated[StrictInt, Field(ge=1)]

MAX_TOKEN_BUDGET = 10**15
MIN_COST_BUDGET = Decimal("0.0001")
MAX_COST_BUDGET = Decimal(1_000_000)
COST_PLACES = 8
"""Decimal places of amounts of money."""
MAX_TIME_LIMIT = 366 * 24 * 3600


def _refuse_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise PydanticCustomError("number_type", "Input should be a number")
    return value


TokenBudget = Annotated[StrictInt, Field(ge=1, le=MAX_TOKEN_BUDGET)]
CostBudget = Annotated[
    Decimal,
    Field(ge=MIN_COST_BUDGET, le=MAX_COST_BUDGET, decimal_places=COST_PLACES, allow_inf_nan=False),
    BeforeValidator(_refuse_bool),
    # At most 15 digits, which a JSON number carries exactly; trailing zeros of a database column are gone with it.
    PlainSerializer(float, return_type=float, when_used="json"),
]
"""USD."""
TimeLimit = Annotated[StrictInt, Field(ge=1, le=MAX_TIME_LIMIT)]
"""Seconds."""
RetryWindow = Annotated[StrictInt, Field(ge=0, le=MAX_TIME_LIMIT)]
"""Seconds; 0 repeats nothing."""
DEFAULT_RETRY_WINDOW = 900
"""Seconds."""


class _Document(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


_Part = TypeVar("_Part", bound=_Document)


class ModelSettings(_Document):
    """What a call falls back to where neither step nor flow says otherwise. Kept on each run."""

    model: str = Field(min_length=1)
    temperature: Temperature | None = None
    max_tokens: MaxTokens | None = None
    reasoning_effort: ReasoningEffort | None = None
    service_tier: ServiceTier | None = None


class AuditSpec(_Document):
    """One rule that every output of a step is held against."""

    name: str = Field(min_length=1, max_length=100)
    for_each: Expression | None = None
    """Gives a list: ``rule`` is then asked of each element as ``item``, and gives true or false."""
    rule: Expression
    """``true`` or an empty list passes, ``false`` raises one issue, a list one issue for each element."""
    severity: Severity = Severity.CRITICAL
    """The severity of the issues that the rule raises, unless an element or a Python audit says its own."""
    fail_at: FailAt | None = None
    """The audit passes when none of its issues reaches this severity: unset its own ``severity``, or ``never``."""
    message: Expression | None = None
    message_template: MessageTemplate | None = None
    """What is wrong, with paths in braces; instead of ``message``."""
    suggestions: Expression | None = None
    path: Expression | None = None
    """Gives the JSON pointer into the output that an issue is about. Without it, an issue of an element of
    ``for_each``, where that is a path into the output, is about that element."""

    @property
    def threshold(self) -> Severity | None:
        """The least severity that fails the audit; None where it only warns."""
        if self.fail_at is FailAt.NEVER:
            return None
        return Severity(self.fail_at) if self.fail_at else self.severity

    def is_passed_with(self, issues: Iterable[Issue]) -> bool:
        """Whether none of the ``issues`` it raised reaches its threshold."""
        threshold = self.threshold
        return threshold is None or not any(issue.severity >= threshold for issue in issues)


class StepSpec(_Document):
    """One step: a forced, strict tool call, or a local computation when ``compute`` is set."""

    name: str = Field(min_length=1, max_length=100)
    description: str = ""
    """What the step does; the model reads it as the description of the tool."""
    tool_name: str | None = Field(default=None, pattern=TOOL_NAME_PATTERN)
    system_message: str = ""
    """The prompt, in which ``{input.party}``, ``{steps[1].output.count}`` and ``{previous.total}`` are placeholders."""
    output_type: TypeName | None = None
    """A registered pydantic type, or the class itself, which also names the tool if ``tool_name`` is not given.
    ``output_schema`` then holds its JSON Schema, frozen when published."""
    output_schema: dict[str, Any] | None = None
    compute: Expression | None = None

    input_expression: Expression | None = None
    input_sanitizer: Expression | None = None
    output_sanitizer: Expression | None = None

    include_results: tuple[StrictInt, ...] = ()
    issue_severity_filter: Severity = Severity.HIGH

    model: str | None = Field(default=None, min_length=1)
    temperature: Temperature | None = None
    max_tokens: MaxTokens | None = None
    reasoning_effort: ReasoningEffort | None = None
    service_tier: ServiceTier | None = None

    max_retries: Annotated[StrictInt, Field(ge=0, le=100)] = 3
    stall_after: Annotated[StrictInt, Field(ge=2, le=100)] | None = None
    """The step is stuck, and over, once this many outputs in a row are equal or fail for the same issues."""
    last_model: str | None = Field(default=None, min_length=1)
    """Asked instead of ``model`` for the last try, or for one more when the step is stuck."""
    on_exhausted: OnExhausted = OnExhausted.FAIL
    retry_window: RetryWindow | None = None
    """How long calls that bring no answer are repeated, from the first of an unbroken row of them."""
    time_limit: TimeLimit | None = None
    """How long all attempts of the step may take together, from the start of the first one."""
    stop_on_failure: StrictBool = True
    pass_expression: Expression | None = None
    failure_reason_expression: Expression | None = None
    # Bounded by `check_spec`, so that versions from before the bound can still be read.
    audits: tuple[AuditSpec, ...] = Field(default=(), json_schema_extra={"maxItems": MAX_AUDITS})

    @model_validator(mode="before")
    @classmethod
    def _name_tool(cls, fields: Any) -> Any:
        if not isinstance(fields, dict) or fields.get("tool_name") or fields.get("compute"):
            return fields
        model = fields.get("output_type")
        if not isinstance(model, type):
            return fields
        name = derive_name(model)
        if not re.match(TOOL_NAME_PATTERN, name):
            raise PluginError(
                f"The tool can't be named after the class “{model.__name__}”: a tool name holds only ASCII letters, "
                "digits, “_” and “-”. Give the step a tool_name."
            )
        return {**fields, "tool_name": name}

    @property
    def is_local(self) -> bool:
        """Whether the step is computed here, without a model call."""
        return self.compute is not None

    @property
    def max_attempts(self) -> int:
        """The first try and all retries."""
        return self.max_retries + 1


class FlowSpec(_Document):
    """A whole flow. Immutable; ``digest`` identifies its content."""

    name: str = Field(pattern=NAME_PATTERN, max_length=100)
    title: str = Field(default="", max_length=MAX_TITLE_LENGTH)
    description: str = ""
    model: str | None = Field(default=None, min_length=1)
    temperature: Temperature | None = None
    max_tokens: MaxTokens | None = None
    reasoning_effort: ReasoningEffort | None = None
    service_tier: ServiceTier | None = None
    token_budget: TokenBudget | None = None
    """How many tokens all attempts of a run may use together. Asked before each call: the last one may exceed it."""
    cost_budget: CostBudget | None = None
    """What all attempts of a run may cost together; asked in the same way."""
    time_limit: TimeLimit | None = None
    """How long a run may take from its first start."""
    input_schema: dict[str, Any] | None = None
    redact: tuple[RedactionRule, ...] = Field(default=(), max_length=MAX_REDACTION_RULES)
    """What is taken out of all that is kept of a run: JSON pointers and names of patterns, as ``redaction`` says."""
    steps: tuple[StepSpec, ...] = Field(min_length=1, max_length=MAX_STEPS)

    @field_validator("steps")
    @classmethod
    def _number_names(cls, steps: tuple[StepSpec, ...]) -> tuple[StepSpec, ...]:
        # Documents and attempts hold the names alone.
        taken: dict[str, Any] = {}

        def number(part: _Part) -> _Part:
            names = {field: number_name(name, taken) for field, name in part if isinstance(name, PluginName)}
            return part.model_copy(update=names)

        # The step's own names come before those of its audits.
        return tuple(number(step).model_copy(update={"audits": tuple(map(number, step.audits))}) for step in steps)

    def step(self, index: int) -> StepSpec:
        """The step at position ``index``, counted from 1 (0 is the input and has no spec)."""
        if index < 1:
            raise IndexError(f"Step {index} has no definition; steps are counted from 1.")
        return self.steps[index - 1]

    def to_document(self) -> dict[str, Any]:
        """The flow as JSON types, without fields that hold their default."""
        return self.model_dump(mode="json", exclude_defaults=True)

    @classmethod
    def from_document(cls, document: Any) -> Self:
        """Read a document that ``to_document`` made.

        Raises ``SpecError`` that lists every field that is wrong; ``spec_check.check_spec`` says whether the flow can
        run.
        """
        return validate_document(cls, document)

    @property
    def digest(self) -> str:
        """SHA-256 of the document, in hexadecimal: the same for the same definition.

        The order of a schema's properties is part of it: a model writes them in that order.
        """
        text = json.dumps(self.to_document(), separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def with_limits(
        self,
        *,
        token_budget: int | None = None,
        cost_budget: Decimal | None = None,
        time_limit: int | None = None,
    ) -> FlowSpec:
        """This flow with the limits that one run has of its own; None keeps the flow's. They are not checked here."""
        own = {"token_budget": token_budget, "cost_budget": cost_budget, "time_limit": time_limit}
        update = {name: value for name, value in own.items() if value is not None}
        return self.model_copy(update=update) if update else self

    def with_retry_window(self, seconds: int) -> FlowSpec:
        """This flow with that retry window where a step sets none."""
        window = {"retry_window": seconds}
        steps = [step.model_copy(update=window) if step.retry_window is None else step for step in self.steps]
        return self.model_copy(update={"steps": tuple(steps)})


_Model = TypeVar("_Model", bound=BaseModel)


def validate_document(kind: type[_Model], document: Any) -> _Model:
    """Build a spec from JSON types. Raises ``SpecError`` that lists every field that is wrong."""
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        problems = [
            Problem(format_pointer(details["loc"]), _describe_error(dict(details)))
            for details in error.errors()
            # Entries that are wrong themselves are not missing entries.
            if not (details["type"] == "too_short" and details["input"])
        ]
        raise SpecError(problems) from error


def _describe_error(details: dict[str, Any]) -> str:
    name = next((part for part in reversed(details["loc"]) if isinstance(part, str)), "document")
    match details["type"]:
        case "model_type":
            return f"“{name}” must be an object, got {describe_type(details['input'])}."
        case "tuple_type":
            return f"“{name}” must be a list, got {describe_type(details['input'])}."
        case "extra_forbidden":
            return f"Unknown field “{name}”."
        case "missing":
            return f"“{name}” is missing."
        case "too_short" if name == "steps":
            return "A flow needs at least one step."
        case _:
            return f"“{name}”: {details['msg']}, got {str(details['input'])[:80]!r}."
