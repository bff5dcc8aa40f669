"""Bodies that start runs or change them, lists of runs and of their parts, and what a run used."""

from __future__ import annotations

import ipaddress
import re
from decimal import Decimal
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from flows.engine.spec import COST_PLACES, MAX_COST_BUDGET, MAX_TIME_LIMIT, MAX_TOKEN_BUDGET, MIN_COST_BUDGET
from runs.documents.base import WHOLE, Body, FreeObject, Positive, Text, refuse_unstorable
from runs.documents.run import PriorityName
from runs.run_options import MAX_LABEL_LENGTH, MAX_LABELS, validate_webhook_url
from runs.webhooks.addresses import MAX_ADDRESS_BYTES

# ---------------------------------------------------------------------------------------------------------------------
# Fields

_AMOUNT = rf"[0-9]{{1,7}}(\.[0-9]{{1,{COST_PLACES}}})?"


def _parse_amount(value: Any) -> Any:
    text = value if isinstance(value, str) else ""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= MAX_COST_BUDGET:
        # As many digits as the number was written with.
        text = f"{Decimal(repr(value)):f}"
    if not re.fullmatch(_AMOUNT, text, re.ASCII) or not MIN_COST_BUDGET <= Decimal(text) <= MAX_COST_BUDGET:
        raise ValueError(f"This must be USD from {MIN_COST_BUDGET} to {MAX_COST_BUDGET:,}, like “0.50”.")
    return Decimal(text)


Budget = Annotated[
    Decimal,
    BeforeValidator(_parse_amount),
    WithJsonSchema(
        {
            "oneOf": [
                {"type": "string", "pattern": f"^{_AMOUNT}$"},
                {"type": "number", "minimum": float(MIN_COST_BUDGET), "maximum": float(MAX_COST_BUDGET)},
            ],
            "examples": ["0.50"],
        }
    ),
]
"""USD, as a decimal text or a number."""

# An address as RFC 3986 has it, of what webhooks may be sent to. The port is checked with the rest.
_PART = r"([A-Za-z0-9._~:/?@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*"
_HOST = r"([A-Za-z0-9_][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])"
_ADDRESS = rf"https?://{_HOST}(:[1-9][0-9]{{0,4}})?([/?]{_PART})?(#{_PART})?"


def _check_address(url: str) -> str:
    validate_webhook_url(url)
    if not re.fullmatch(_ADDRESS, url, re.ASCII):
        raise ValueError("This is not a valid URL such as https://example.com/hooks. Write other characters as %XX.")
    if found := re.match(r"https?://\[([^]]*)]", url):
        # Raises a ``ValueError`` of its own.
        ipaddress.IPv6Address(found[1])
    return url


WebhookUrl = Annotated[
    Text,
    AfterValidator(_check_address),
    WithJsonSchema(
        {
            "type": "string",
            "format": "uri",
            "pattern": f"^{_ADDRESS}$",
            "maxLength": MAX_ADDRESS_BYTES,
            "examples": ["https://example.com/hooks/toolflow"],
        }
    ),
]


def _normalise_spaces(label: str) -> str:
    # Several spaces look like one, and a user who filters by a label writes one.
    return re.sub(" +", " ", label).strip(" ")


Label = Annotated[
    str,
    AfterValidator(_normalise_spaces),
    # What a label may be is checked where runs are started.
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_LABEL_LENGTH}),
]
Labels = Annotated[list[Label], Field(max_length=MAX_LABELS)]

MAX_RUNS = 1_000
"""Runs that one request may start."""
FlowName = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(refuse_unstorable)]


def _parse_version(value: Any) -> Any:
    if value in ("same", "live"):
        return value
    if not isinstance(value, int | float) or isinstance(value, bool) or value != int(value) or value < 1:
        raise ValueError("This must be “same”, “live” or the number of a version.")
    return int(value)


_Version = Annotated[
    Any,
    BeforeValidator(_parse_version),
    WithJsonSchema({"oneOf": [{"type": "string", "enum": ["same", "live"]}, {"type": "integer", "minimum": 1}]}),
]


# ---------------------------------------------------------------------------------------------------------------------
# Bodies


class RunTerms(Body):
    """What a run may be given besides its input. What is left out or null is as the flow’s version says."""

    priority: PriorityName | None = Field(
        None, description="Which queued runs start first; `normal` if it is left out."
    )
    token_budget: Annotated[int, Field(ge=1, le=MAX_TOKEN_BUDGET), WHOLE] | None = Field(
        None, description="Tokens that all attempts may use together."
    )
    cost_budget: Budget | None = Field(None, description="USD that all attempts may cost together.")
    time_limit: Annotated[int, Field(ge=1, le=MAX_TIME_LIMIT), WHOLE] | None = Field(
        None, description="Seconds that the run may take from its start."
    )
    webhook_url: WebhookUrl | None = Field(
        None,
        description=(
            "An http or https URL that is notified when the run ends. Messages are signed with the secret of "
            "the installation; ask an administrator for it."
        ),
    )


_INPUT = "What the run works on: an object that fits the input schema of the flow’s version."
_LABELS = "Short texts to find the run by, at most 10. Labels such as `bulk-7` are reserved for bulk actions."
_METADATA = "Your own data, at most 16 KB of JSON. ToolFlow stores and returns it unchanged."


class NewRun(RunTerms):
    """A run to be started."""

    flow: FlowName = Field(description="The name of the flow.")
    input: FreeObject = Field(description=_INPUT)
    version: Positive | None = Field(None, description="The number of a version; the live one if left out.")
    labels: Labels | None = Field(None, description=_LABELS)
    metadata: FreeObject | None = Field(None, description=_METADATA)


class OneOfMany(Body):
    """One of many runs to be started."""

    input: FreeObject = Field(description=_INPUT)
    labels: Labels | None = Field(None, description="Labels in addition to those of all runs; at most 10 in total.")
    metadata: FreeObject | None = Field(None, description=_METADATA)


class NewRuns(RunTerms):
    """Many runs of one version to be started, all or none."""

    flow: FlowName = Field(description="The name of the flow.")
    version: Positive | None = Field(None, description="The number of a version; the live one if left out.")
    labels: Labels | None = Field(None, description="Labels that all of them have.")
    runs: Annotated[list[OneOfMany], Field(min_length=1, max_length=MAX_RUNS)] = Field(
        description="The runs, each with its input and its own options."
    )


class Rerun(RunTerms):
    """What a re-run has other than the run. What is left out stays as it was; null takes it away."""

    version: _Version = Field(
        "same", description="`same` for the version that the run had, `live` for the live one, or a number."
    )
    input: FreeObject = Field(default_factory=dict, description="Another input.")
    labels: Labels | None = Field(None, description=_LABELS)
    metadata: FreeObject | None = Field(None, description=_METADATA)


class RunChange(Body):
    """What a run is changed to. What is left out stays as it is; null takes it away."""

    labels: Labels | None = Field(
        None, description="The new labels, at most 10. Labels of bulk actions are always kept."
    )
    metadata: FreeObject | None = Field(None, description=_METADATA)
