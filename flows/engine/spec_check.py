"""Whether a flow can run as it is defined: every problem at once, each with its place and what would be right."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from flows.engine.audits import PYTHON_BESIDE_FOR_EACH
from flows.engine.errors import ExpressionError, Problem, SpecError
from flows.engine.expression_paths import find_field_warnings
from flows.engine.expressions import FIELD_VARIABLES, ITEM_VARIABLES, fail_at, parse_expression
from flows.engine.json_values import find_unstorable, parse_pointer
from flows.engine.message_template import (
    MAX_PLACEHOLDERS,
    find_placeholder_fault,
    list_placeholders,
    parse_template,
)
from flows.engine.model_calls import check_model_calls, resolve_spec
from flows.engine.plugins import PREFIX, Registry
from flows.engine.pricing import has_price
from flows.engine.providers import Providers, UnsupportedCallError
from flows.engine.redaction import find_rule_problems
from flows.engine.schemas import check_input_schema
from flows.engine.spec import MAX_AUDITS, MAX_AUDITS_OF_FLOW, AuditSpec, FlowSpec, ModelSettings, StepSpec
from flows.engine.strict_schema import check_strict
from flows.engine.typed_output import schema_of_type

STEP_EXPRESSIONS = (
    "compute",
    "input_expression",
    "input_sanitizer",
    "output_sanitizer",
    "pass_expression",
    "failure_reason_expression",
)
AUDIT_EXPRESSIONS = ("for_each", "rule", "message", "suggestions", "path")

MAX_PATH_WARNINGS = 10
"""Paths of a flow that lead nowhere and are shown one by one."""


def prepare_spec(
    spec: FlowSpec, *, registry: Registry, defaults: ModelSettings, providers: Providers | None = None
) -> FlowSpec:
    """The spec that can be executed: checked, its schemas frozen, its model settings resolved.

    Raises ``SpecError`` with all problems.
    """
    frozen = freeze_schemas(spec, registry)
    if problems := check_spec(frozen, registry, defaults=defaults, providers=providers):
        raise SpecError(problems)
    return resolve_spec(frozen, defaults, providers)


def freeze_schemas(spec: FlowSpec, registry: Registry) -> FlowSpec:
    """The spec with the JSON Schema of every registered output type written into its step, where none is yet.

    Names that are not registered stay as they are; ``check_spec`` reports them.
    """

    def freeze(step: StepSpec) -> StepSpec:
        known = registry.find_type(step.output_type)
        if known is None or step.output_schema is not None:
            return step
        try:
            return step.model_copy(update={"output_schema": schema_of_type(known.model)})
        except SpecError:
            return step

    return spec.model_copy(update={"steps": tuple(freeze(step) for step in spec.steps)})


def check_spec(
    spec: FlowSpec,
    registry: Registry,
    *,
    defaults: ModelSettings | None = None,
    providers: Providers | None = None,
) -> list[Problem]:
    """Everything that keeps a flow from running as it is defined, with JSON pointers into its document.

    ``defaults`` are the model settings where neither step nor flow names any. Without ``providers`` it is not checked
    whether the models can be asked where they are.
    """
    problems = list(_check_audit_counts(spec))
    # To check each of thousands of audits takes minutes.
    steps = [step.model_copy(update={"audits": ()}) if problems else step for step in spec.steps]
    if spec.input_schema is not None:
        problems += _place("/input_schema", check_input_schema(spec.input_schema))
    problems += _place("/redact", find_rule_problems(spec.redact))
    # Schemas have a check of their own, and are the only part that may hold what has no JSON form.
    texts = spec.model_dump(mode="json", exclude={"input_schema": True, "steps": {"__all__": {"output_schema"}}})
    problems += find_unstorable(texts)
    problems += _check_unique(steps, "/steps", "name", "Two steps are called “{}”. Give each its own name.")
    problems += _check_unique(steps, "/steps", "tool_name", "Two steps have the tool name “{}”. Change one.")
    for index, step in enumerate(steps, start=1):
        problems += _place(f"/steps/{index - 1}", _check_step(index, step, registry))
    return problems + check_model_calls(spec, defaults, providers)


def _place(pointer: str, problems: Iterable[Problem]) -> Iterator[Problem]:
    """The problems of the part at ``pointer``."""
    return (Problem(f"{pointer}{problem.path}", problem.message) for problem in problems)


def _check_audit_counts(spec: FlowSpec) -> Iterator[Problem]:
    counts = [len(step.audits) for step in spec.steps]
    for index, count in enumerate(counts):
        if count > MAX_AUDITS:
            message = f"A step has at most {MAX_AUDITS} audits; this one has {count}. Merge some."
            yield Problem(f"/steps/{index}/audits", message)
    if sum(counts) > MAX_AUDITS_OF_FLOW:
        message = f"A flow has at most {MAX_AUDITS_OF_FLOW} audits in all its steps; this one has {sum(counts):,}."
        yield Problem("/steps", f"{message} Merge some, or split the flow.")


def _check_unique(parts: Sequence[StepSpec | AuditSpec], place: str, field: str, message: str) -> Iterator[Problem]:
    """A problem for each of the ``parts`` at ``place`` that shares the value of a ``field`` with another one."""
    values = [getattr(part, field) for part in parts]
    for index, value in enumerate(values):
        if value and values.count(value) > 1:
            yield Problem(f"{place}/{index}/{field}", message.format(value))


def _check_step(index: int, step: StepSpec, registry: Registry) -> Iterator[Problem]:
    if not step.is_local and step.tool_name is None:
        yield Problem("/tool_name", "A step that calls the model needs a tool name, such as “extract_invoice”.")
    if not step.is_local and step.output_type is None and step.output_schema is None:
        yield Problem(
            "/output_schema",
            "A step that calls the model needs an output schema or a registered output type "
            "(or a compute expression, if it is meant to be local).",
        )
    yield from _check_output(step, registry)
    yield from _check_settling(step)
    if not step.is_local:
        yield from _check_placeholders(index, step.system_message)
    yield from _check_include_results(index, step)
    for field in STEP_EXPRESSIONS:
        yield from _check_expression(field, getattr(step, field), registry)
    for position, audit in enumerate(step.audits):
        yield from _place(f"/audits/{position}", _check_audit(audit, registry))
    yield from _check_unique(step.audits, "/audits", "name", "Two audits of this step are called “{}”. Rename one.")


def _check_settling(step: StepSpec) -> Iterator[Problem]:
    if step.is_local:
        for field in ("stall_after", "last_model", "on_exhausted"):
            if getattr(step, field) != StepSpec.model_fields[field].default:
                yield Problem(
                    f"/{field}", "A local step gives the same each time: this is for steps that call a model."
                )
    elif step.last_model is not None and not step.max_retries:
        yield Problem("/last_model", "The last model is asked for a retry, and this step has none. Allow one.")


def _check_placeholders(index: int, text: str) -> Iterator[Problem]:
    """What can never be filled in, whatever the outputs are, in the system message of step ``index``."""
    found = list(list_placeholders(text))
    if len(found) > MAX_PLACEHOLDERS:
        message = f"A system message has at most {MAX_PLACEHOLDERS} placeholders; this one has {len(found):,}."
        yield Problem("/system_message", f"{message} Put the data into the input_expression.")
        return
    faults = [(offset, fault) for path, offset in found if (fault := find_placeholder_fault(path))]
    # Without schemas only that leads nowhere what no schema can change.
    warnings = find_field_warnings("system_message", text, step=index, schemas={})
    faults += [(warning.offset, warning.message) for warning in warnings]
    for offset, fault in sorted(faults):
        try:
            fail_at(text, offset, fault.removesuffix("."))
        except ExpressionError as error:
            yield Problem("/system_message", str(error))


def _check_audit(audit: AuditSpec, registry: Registry) -> Iterator[Problem]:
    items = frozenset[str]() if audit.for_each is None else ITEM_VARIABLES
    for field in AUDIT_EXPRESSIONS:
        text = getattr(audit, field)
        if field == "rule" and items and text.startswith(PREFIX):
            yield Problem("/rule", PYTHON_BESIDE_FOR_EACH)
        else:
            yield from _check_expression(field, text, registry, frozenset() if field == "for_each" else items)
    if audit.message_template is None:
        return
    if audit.message is not None:
        message = "An audit has a message template or a message, not both. Remove one of them."
        yield Problem("/message_template", message)
    try:
        parse_template(audit.message_template, FIELD_VARIABLES["message"] | items)
    except ExpressionError as error:
        yield Problem("/message_template", str(error))


def _check_output(step: StepSpec, registry: Registry) -> Iterator[Problem]:
    if step.output_schema is not None:
        yield from _place("/output_schema", check_strict(step.output_schema))
    if step.output_type is None:
        return
    known = registry.find_type(step.output_type)
    if known is None:
        names = ", ".join(sorted(registry.output_types)) or "none"
        yield Problem("/output_type", f"No output type is registered as “{step.output_type}”. Registered: {names}.")
    elif step.output_schema is None:
        try:
            schema_of_type(known.model)
        except SpecError as error:
            for problem in error.problems:
                yield Problem("/output_type", f"The type “{step.output_type}”, {problem.path}: {problem.message}")


def _check_include_results(index: int, step: StepSpec) -> Iterator[Problem]:
    for position, included in enumerate(step.include_results):
        if not 0 <= included < index:
            allowed = "0 (the input)" if index == 1 else f"0 (the input) to {index - 1}"
            yield Problem(
                f"/include_results/{position}",
                f"Step {index} can't include the results of step {included}: only steps before it, {allowed}.",
            )
        elif included in step.include_results[:position]:
            yield Problem(f"/include_results/{position}", f"Step {included} is included twice. Name it once.")


def check_expression(field: str, text: str, registry: Registry, more_variables: frozenset[str] = frozenset()) -> None:
    """Check what is in one ``field`` of a flow: CEL text or ``python:name``.

    It may use the variables of the field and ``more_variables``. Raises ``ExpressionError``, with line and column where
    the fault has one place.
    """
    variables = FIELD_VARIABLES[field] | more_variables
    if not text.startswith(PREFIX):
        parse_expression(text, variables=variables)
        return
    function = registry.find_function(text, field)
    if unknown := function.unknown_parameters(variables):
        available = ", ".join(sorted(variables))
        raise ExpressionError(
            f"“{text}” takes the parameter “{unknown[0]}”, which is not available here. Available: {available}."
        )


def _check_expression(
    field: str, text: str | None, registry: Registry, more_variables: frozenset[str] = frozenset()
) -> Iterator[Problem]:
    if text is None:
        return
    try:
        check_expression(field, text, registry, more_variables)
    except ExpressionError as error:
        yield Problem(f"/{field}", str(error))


def find_warnings(
    spec: FlowSpec, *, default_model: str | None = None, providers: Providers | None = None
) -> list[Problem]:
    """What is allowed and yet most likely not meant; to be shown as warnings when a flow is saved.

    ``default_model`` is called by steps whose flow names no model either.
    """
    found = []
    if spec.cost_budget is not None:
        found += [Problem("/cost_budget", warning) for warning in find_price_warnings(spec, default_model, providers)]
    for index, step in enumerate(spec.steps):
        if 0 in step.include_results:
            message = (
                f"Step {index + 1} “{step.name}” includes the results of step 0. The input never has "
                "issues, so the model is shown nothing. Use the input_expression to pass data of the input."
            )
            found.append(Problem(f"/steps/{index}/include_results", message))
    paths = list(_find_path_warnings(spec))
    found += paths[:MAX_PATH_WARNINGS]
    if (more := len(paths) - MAX_PATH_WARNINGS) > 0:
        message = (
            f"{more} more paths in expressions of this flow don't exist; each field reports its own when you open it."
        )
        found.append(Problem("/steps", message))
    return found


def _find_path_warnings(spec: FlowSpec) -> Iterator[Problem]:
    schemas = {0: spec.input_schema, **{index: step.output_schema for index, step in enumerate(spec.steps, start=1)}}
    for index, step in enumerate(spec.steps, start=1):
        pointer, place = f"/steps/{index - 1}", f"Step {index} “{step.name}”"
        names = STEP_EXPRESSIONS if step.is_local else ("system_message", *STEP_EXPRESSIONS)
        no_items: dict[str, str] = {}
        fields = [(pointer, place, no_items, name, getattr(step, name)) for name in names]
        for position, audit in enumerate(step.audits):
            items = {"rule": audit.rule, "for_each": audit.for_each or ""}
            within = (f"{pointer}/audits/{position}", f"{place}, audit “{audit.name}”", items)
            fields += [(*within, name, getattr(audit, name)) for name in (*AUDIT_EXPRESSIONS, "message_template")]
        for path, owner, items, name, text in fields:
            # What can't be read is a problem, which ``check_spec`` reports.
            with suppress(ExpressionError):
                for warning in find_field_warnings(name, text, step=index, schemas=schemas, **items) if text else []:
                    yield Problem(f"{path}/{name}", f"{owner}, {name.replace('_', ' ')}: {warning.message}")


def find_price_warnings(
    spec: FlowSpec, default_model: str | None = None, providers: Providers | None = None
) -> list[str]:
    """A sentence where a budget in money would not count all calls of a flow, since a model has no known price."""
    models = {step.model or spec.model or default_model for step in spec.steps if not step.is_local}
    models |= {step.last_model for step in spec.steps}
    unpriced = sorted(
        model for model in models if model is not None and not _has_price(model, providers or Providers())
    )
    if not unpriced:
        return []
    names = ", ".join(f"“{model}”" for model in unpriced)
    return [f"The price of {names} is not known: such calls count as 0 in a budget in USD. Set a budget in tokens."]


def _has_price(model: str, providers: Providers) -> bool:
    try:
        provider, name = providers.split(model)
    except UnsupportedCallError:
        return False
    return has_price(name, provider=provider)


# ---------------------------------------------------------------------------------------------------------------
# Documents that may not be read as a flow


def read_document(
    document: Any, check: Callable[[FlowSpec], Iterable[Problem]]
) -> tuple[FlowSpec | None, list[Problem]]:
    """The flow in a document, and all its problems at once: those of fields, and what ``check`` finds in the others.

    A field that can't be read counts as not filled in, and nothing else is said of it. There is no flow where nothing
    is left to check: the document is not an object, or has no steps.
    """
    try:
        spec = FlowSpec.from_document(document)
    except SpecError as error:
        problems = list(error.problems)
    else:
        return spec, list(check(spec))
    try:
        spec = FlowSpec.from_document(_leave_out(document, problems))
    except SpecError:
        return None, problems
    reported = tuple(f"{problem.path}/" for problem in problems)
    return spec, [*problems, *(one for one in check(spec) if not f"{one.path}/".startswith(reported))]


def _leave_out(document: Any, problems: Sequence[Problem]) -> Any:
    """The document without the fields that problems are about, and with placeholders for those that every part has.

    None where nothing would be left to check.
    """
    if any(problem.path in ("", "/steps") for problem in problems):
        return None
    repaired = copy.deepcopy(document)
    parts: list[Any]
    for problem in problems:
        match parse_pointer(problem.path):
            case ["steps", index, "audits", position, *rest]:
                parts, at, field = repaired["steps"][int(index)]["audits"], int(position), rest[0] if rest else ""
            case ["steps", index, *rest]:
                parts, at, field = repaired["steps"], int(index), rest[0] if rest else ""
            case [field, *_]:
                parts, at = [repaired], 0
        if not isinstance(parts[at], dict):
            parts[at] = {}
        if parts[at].pop(field, None) is not None and field == "compute":
            # Still a local step.
            parts[at][field] = "{}"
    repaired.setdefault("name", "unnamed")
    for number, step in enumerate(repaired["steps"], start=1):
        step.setdefault("name", f"Step {number}")
        for place, audit in enumerate(step.get("audits", ()), start=1):
            audit.setdefault("name", f"Audit {place}")
            audit.setdefault("rule", "true")
    return repaired
