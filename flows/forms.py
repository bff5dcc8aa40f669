"""The forms of the flow editor: what is asked, how it is put, and how each answer is read."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from django import forms
from django.core.exceptions import ValidationError

from flows.editor_form import EditorForm, GrowingTextarea, make_code_area, make_text_area
from flows.engine.json_values import JsonError, clean_value, describe_type, dump_json, parse_object
from flows.engine.redaction import PATTERNS
from flows.engine.spec import DEFAULT_RETRY_WINDOW, MAX_SCHEMA_BYTES, ModelSettings
from flows.engine.spec_check import AUDIT_EXPRESSIONS, STEP_EXPRESSIONS
from flows.models import AuditRule, Flow, StepDefinition, validate_name

if TYPE_CHECKING:
    _FlowForm = forms.ModelForm[Flow]
    _StepForm = forms.ModelForm[StepDefinition]
    _AuditForm = forms.ModelForm[AuditRule]
else:  # Django's classes are generic for type checkers only.
    _FlowForm = _StepForm = _AuditForm = forms.ModelForm


_JSON_SENTENCES = {
    "Expecting property name": "a key in double quotes is expected, and after the last entry no comma.",
    "Expecting ',' delimiter": "a comma is missing.",
    "Expecting ':' delimiter": "a colon is missing after the key.",
    "Expecting value": "a value is missing or is not JSON.",
    "Unterminated string": "the text that begins here has no closing double quote.",
    "Invalid control character": "a line break or control character inside text must be escaped (\\n, \\t).",
    "Extra data": "the JSON object has ended, but more text follows.",
}
"""By words of the decoder of the standard library: what a person needs to read who writes JSON by hand."""


class JsonObjectField(forms.Field):
    """A JSON object typed as text. Empty gives None; what was typed is shown again as it was, also when it is wrong."""

    widget = forms.Textarea

    def to_python(self, value: Any) -> dict[str, Any] | None:
        """The object; a ``ValidationError`` says what is wrong, with line and column where they are known."""
        if value is None or isinstance(value, dict):
            return value
        text = str(value)
        if not text.strip():
            return None
        if len(text.encode(errors="replace")) > 4 * MAX_SCHEMA_BYTES:
            raise ValidationError(f"The text is larger than {4 * MAX_SCHEMA_BYTES // 1024} KB. Make it smaller.")
        try:
            parsed = parse_object(text)
        except JsonError as error:
            sentence = next((text for sign, text in _JSON_SENTENCES.items() if sign in error.message), error.message)
            exact = JsonError(sentence, error.line, error.column)
            # Django fills in the params by “%”.
            raise ValidationError(
                str(exact).replace("%", "%%"), params={"line": error.line, "column": error.column}
            ) from None
        if notes := clean_value(parsed).notes:
            raise ValidationError([f"{note} Take them out." for note in notes])
        return parsed

    def prepare_value(self, value: Any) -> Any:
        """The text to show."""
        return dump_json(value, indent=2) if isinstance(value, dict) else value

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Whether another object was typed. The order of keys counts, spaces don't."""
        try:
            return bool(self.prepare_value(self.to_python(data)) != self.prepare_value(initial))
        except ValidationError:
            return True


class StepNumbersField(forms.Field):
    """Numbers of steps, typed as ``0, 1`` or as a JSON list. Gives a list of integers."""

    def to_python(self, value: Any) -> list[int]:
        """The numbers; a ``ValidationError`` names the first part that is none."""
        text = "" if value is None else str(value).strip()
        if text.startswith("["):
            return self._read_list(text)
        numbers = []
        for part in filter(None, re.split(r"[\s,]+", text)):
            if not re.fullmatch(r"-?[0-9]{1,6}", part):
                raise ValidationError(f"“{part[:40]}” is not a step number. {self._expected}")
            numbers.append(int(part))
        return numbers

    _expected = "Write whole numbers with commas between them, such as 0, 1."

    def _read_list(self, text: str) -> list[int]:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            raise ValidationError(f"The list is not closed or not JSON. {self._expected}") from None
        for item in value:
            # To Python, True is an integer.
            if type(item) is not int or abs(item) > 999_999:
                raise ValidationError(
                    f"{json.dumps(item)[:40]} is {describe_type(item)}, not a step number. {self._expected}"
                )
        return list(value)

    def prepare_value(self, value: Any) -> Any:
        """The text to show."""
        return ", ".join(map(str, value)) if isinstance(value, list) else value

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Whether other numbers were typed."""
        try:
            return self.to_python(data) != (initial or [])
        except ValidationError:
            return True


class RedactionRulesField(forms.Field):
    """Rules of redaction, one in a line. Gives a list of texts."""

    widget = forms.Textarea

    def to_python(self, value: Any) -> list[str]:
        """The rules; whether they make sense is for the check of the flow to say."""
        lines = ("" if value is None else str(value)).splitlines()
        return [line.strip() for line in lines if line.strip()]

    def prepare_value(self, value: Any) -> Any:
        """The text to show."""
        return "\n".join(map(str, value)) if isinstance(value, list) else value

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Whether other rules were typed."""
        return self.to_python(data) != (initial or [])


class MultilineField(forms.CharField):
    """Text in several lines, kept as it was typed, with the line end at its end: files often have one.

    Browsers end lines with CR LF; what is stored and counted has LF alone. Nothing but spaces is nothing.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**kwargs, "strip": False})

    def to_python(self, value: Any) -> Any:
        """The text."""
        text = (super().to_python(value) or "").replace("\r\n", "\n")
        return text if text.strip() else ""


class CostField(forms.DecimalField):
    """An amount of USD; shown with cents, and with more places only where it has them."""

    def prepare_value(self, value: Any) -> Any:
        """The text to show."""
        if not isinstance(value, Decimal):
            return value
        whole, _, places = f"{value:f}".partition(".")
        return f"{whole}.{places.rstrip('0').ljust(2, '0')}"


OPERATIONAL_FIELDS = (
    "max_runs_in_flight",
    "total_token_budget",
    "total_cost_budget",
    "budget_period",
    "keep_days",
    "keep_outputs_days",
)
"""Fields of a flow that are no part of its definition: changing them makes no version."""

_MONEY = forms.NumberInput(attrs={"step": "any"})


class FlowForm(EditorForm, _FlowForm):
    """The flow itself, without its steps."""

    name = forms.CharField(
        max_length=100,
        error_messages={"unique": "A flow with this name already exists. Choose another name."},
        validators=[validate_name],
        help_text="Used in URLs and commands: lower-case letters, digits and hyphens. Generated from the title.",
    )
    input_schema = JsonObjectField(
        required=False,
        widget=make_code_area(8),
        help_text="JSON Schema of the input of a run. The start page builds its form from it. Empty: any JSON object.",
    )
    redact = RedactionRulesField(
        required=False,
        # No code: nothing is looked up or checked while it is typed.
        widget=GrowingTextarea(rows=3, attrs={"autocapitalize": "off", "spellcheck": "false"}),
        label="What is redacted",
        help_text="What is redacted from everything stored of a run, one rule per line: a JSON pointer into the input "
        f"and the outputs, such as /customer/email, or one of {', '.join(PATTERNS)}.",
    )

    class Meta:
        model = Flow
        fields = (
            "title", "name", "description", "input_schema", *ModelSettings.model_fields, "token_budget",
            "cost_budget", "time_limit", "redact", *OPERATIONAL_FIELDS,
        )  # fmt: skip
        labels = {
            "token_budget": "Budget of a run (tokens)",
            "cost_budget": "Budget of a run (USD)",
            "time_limit": "Time limit of a run (seconds)",
            "max_runs_in_flight": "Runs in flight",
            "total_token_budget": "Budget of all runs (tokens)",
            "total_cost_budget": "Budget of all runs (USD)",
            "budget_period": "Budget of all runs, for each",
            "keep_days": "Keep runs (days)",
            "keep_outputs_days": "Keep outputs (days)",
        }
        help_texts = {
            "title": "The name shown on pages.",
            "description": "What the flow is for. Shown to people who start runs, never to the model.",
            "model": "A model or provider:model, for steps that name none. Empty: the model of this installation.",
            "temperature": "0 to 2, for steps that name none. Empty: the model's own default.",
            "max_tokens": "Maximum tokens of one answer, for steps that name none.",
            "reasoning_effort": "For steps that name none. Empty: the model's own default.",
            "service_tier": "Flex is cheaper and slower, priority the opposite. Empty: the provider's default.",
            "token_budget": "Once its attempts have used this many tokens, a run makes no more calls and ends errored.",
            "cost_budget": "The same for the cost of its attempts. Calls without a known price count as 0.",
            "time_limit": "From its first start. A call in progress is then aborted, and the run ends errored.",
            "max_runs_in_flight": "Maximum number of concurrent runs; others wait in the queue. Empty: no limit.",
            "total_token_budget": (
                "Once all runs of the flow have used this many tokens, no more calls are made until the next period."
            ),
            "total_cost_budget": "The same for the cost of all runs of the flow.",
            "budget_period": "Days and months are in UTC.",
            "keep_days": (
                "Days from the end of a run until it is deleted; statistics are kept. 0: never. Empty: the "
                "default of this installation."
            ),
            "keep_outputs_days": (
                "Days until inputs, outputs, requests and issue texts are deleted; figures are kept. 0: with "
                "the run. Empty: the default of this installation."
            ),
        }
        widgets = {
            "description": make_text_area(2),
            "cost_budget": _MONEY,
            "total_cost_budget": _MONEY,
        }
        field_classes = {"description": MultilineField, "cost_budget": CostField, "total_cost_budget": CostField}

    def clean(self) -> dict[str, Any] | None:
        """Outputs go with their runs, if not before."""
        cleaned = super().clean()
        runs = self.cleaned_data.get("keep_days")
        outputs = self.cleaned_data.get("keep_outputs_days")
        if runs and outputs is not None and outputs > runs:
            sentence = f"Outputs can’t be kept longer than their runs: enter at most {runs:,} days, or leave it empty."
            self.add_error("keep_outputs_days", sentence)
        return cleaned


class StepForm(EditorForm, _StepForm):
    """One step."""

    help_prefix = "step-help-"

    output_schema = JsonObjectField(
        required=False,
        widget=make_code_area(10),
        help_text="JSON Schema of the tool's arguments, in the strict subset: every property required, "
        "“additionalProperties” false.",
    )
    include_results = StepNumbersField(
        required=False,
        label="Include results of steps",
        help_text="Numbers of earlier steps whose attempts and issues the model is shown, such as 1, 2. They follow "
        "when steps are moved.",
    )

    class Meta:
        model = StepDefinition
        fields = (
            "position", "name", "tool_name", "system_message", "description", "input_expression", "include_results",
            "issue_severity_filter", *ModelSettings.model_fields, "input_sanitizer", "output_schema",
            "output_type", "output_sanitizer", "pass_expression", "max_retries", "stop_on_failure",
            "retry_window", "time_limit", "failure_reason_expression", "compute",
        )  # fmt: skip
        labels = {
            "description": "Description of the tool",
            "issue_severity_filter": "Show issues from",
            "max_retries": "Retries",
            "retry_window": "Repeat failed calls for (seconds)",
            "time_limit": "Time limit (seconds)",
            "compute": "Compute the output",
        }
        help_texts = {
            "name": "The name shown on pages.",
            "tool_name": "The name of the tool that the model calls, such as extract_invoice. Generated from the name.",
            "system_message": "Instructions for the model. ToolFlow adds earlier attempts and their issues.",
            "description": "What the tool does; the model reads it with the tool.",
            "input_expression": (
                "CEL over input, steps and previous; returns the object that the model works on. Empty: the "
                "output of the previous step."
            ),
            "issue_severity_filter": "Issues of this severity and above are included in the prompt.",
            "model": "A model or provider:model. Empty: the model of the flow.",
            "temperature": "0 to 2. Empty: that of the flow.",
            "max_tokens": "Maximum tokens of one answer. Empty: that of the flow.",
            "reasoning_effort": "How much the model reasons first. Empty: that of the flow.",
            "service_tier": "Empty: that of the flow.",
            "input_sanitizer": "CEL over value; returns the input that is used.",
            "output_type": "A registered Python type instead of a schema.",
            "output_sanitizer": "CEL over value; returns the output that is validated, audited and passed on.",
            "pass_expression": "CEL over issues and output; true passes. Replaces “Fail at” of the audits.",
            "max_retries": "How many times the step is retried, with the issues of earlier attempts in the prompt.",
            "retry_window": (
                "How long a call without an answer is repeated, for example in an outage. This uses no "
                f"retries. Empty: {DEFAULT_RETRY_WINDOW}."
            ),
            "time_limit": "For all attempts of the step together. After that, the run ends errored. Empty: no limit.",
            "stop_on_failure": "Otherwise the run continues, but still ends as failed.",
            "failure_reason_expression": "CEL over issues; returns the sentence that says why an attempt failed.",
            "compute": "CEL over input, steps and previous; returns the output. The step then calls no model.",
        }
        widgets = {
            "position": forms.HiddenInput,
            "system_message": make_text_area(3),
            "description": make_text_area(1),
            **{name: make_code_area(2) for name in STEP_EXPRESSIONS},
        }
        field_classes = dict.fromkeys(("system_message", "description", *STEP_EXPRESSIONS), MultilineField)


class AuditForm(EditorForm, _AuditForm):
    """One audit of a step."""

    help_prefix = "audit-help-"

    class Meta:
        model = AuditRule
        fields = (
            "position",
            "name",
            "for_each",
            "rule",
            "severity",
            "fail_at",
            "message_template",
            "message",
            "suggestions",
            "path",
        )
        help_texts = {
            "for_each": (
                "CEL over output, input and steps, or python:name; returns a list. The rule is then asked of each item "
                "and returns true or false."
            ),
            "rule": (
                "CEL over output, input and steps, or python:name. True passes; a list raises an issue for "
                "each element."
            ),
            "severity": "Of the issues that it raises.",
            "fail_at": "Issues of this severity or above fail the attempt. Never: the audit only warns.",
            "message_template": "What is wrong, with values in braces: Clause {item.number} is missing. "
            "item is the element of the list.",
            "message": "Instead of the template: CEL text that says what is wrong.",
            "suggestions": "CEL text that says how to fix it.",
            "path": "CEL text: JSON pointer into the output, such as '/total'.",
        }
        widgets = {
            "position": forms.HiddenInput,
            "name": forms.TextInput,
            "message_template": make_text_area(1),
            **{name: make_code_area(1) for name in AUDIT_EXPRESSIONS},
        }
        field_classes = dict.fromkeys(("message_template", *AUDIT_EXPRESSIONS), MultilineField)
