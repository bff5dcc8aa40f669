"""What a run may be given besides its input: labels, priority, budgets, time limit, metadata, webhook.

``parse_…`` take what people type, ``check_…`` take values; all raise ``ValueError`` with a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from flows.engine.errors import Problem
from flows.engine.json_values import clean_value, describe_type, dump_json
from flows.engine.spec import COST_PLACES, MAX_COST_BUDGET, MAX_TIME_LIMIT, MAX_TOKEN_BUDGET, MIN_COST_BUDGET
from runs.models import Priority
from runs.webhooks.addresses import find_target_problem

_GROUPED = re.compile(r"[0-9]{1,3}([, \N{NO-BREAK SPACE}\N{NARROW NO-BREAK SPACE}][0-9]{3})+")
"""A number in groups of three, as pages and sentences show it: it may be pasted."""

_OF_BULK_ACTION = re.compile(r"bulk-[0-9]+")
"""The label by which the runs are found that a bulk action started."""

MAX_LABELS = 10
MAX_LABEL_LENGTH = 50
"""Characters."""
MAX_METADATA_BYTES = 16_384
"""Bytes, as compact JSON."""

PRIORITIES = {priority.name.lower(): priority for priority in Priority}


def parse_options(texts: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str]]:
    """What was typed, by option: the values as ``submit_run`` takes them, and a sentence for each that is not valid."""
    values: dict[str, Any] = {}
    problems: dict[str, str] = {}
    for name, text in texts.items():
        try:
            values[name] = _PARSERS[name](text)
        except ValueError as error:
            problems[name] = str(error)
    return values, problems


def _parse_priority(text: str) -> Priority:
    if not text:
        return Priority.NORMAL
    if text not in PRIORITIES:
        raise ValueError(f"“{text[:40]}” is not a priority; it can be {', '.join(PRIORITIES)}.")
    return PRIORITIES[text]


def _parse_token_budget(text: str) -> int | None:
    return _parse_whole(text, "token budget", MAX_TOKEN_BUDGET, "20000")


def _parse_time_limit(text: str) -> int | None:
    return _parse_whole(text, "time limit", MAX_TIME_LIMIT, "600", unit=" of seconds")


def _parse_whole(text: str, what: str, most: int, example: str, *, unit: str = "") -> int | None:
    digits = text.strip()
    if not digits:
        return None
    if _GROUPED.fullmatch(digits):
        digits = re.sub(r"[^0-9]", "", digits)
    if not re.fullmatch(r"[0-9]{1,16}", digits) or not 1 <= int(digits) <= most:
        kind = f"a whole number{unit} up to {most:,}"
        raise ValueError(f"“{text[:40]}” is not a {what}; write {kind}, like {example}.")
    return int(digits)


def _parse_cost_budget(text: str) -> Decimal | None:
    """In USD."""
    if not text.strip():
        return None
    amount = text.strip().removeprefix("$").strip()
    pattern = rf"[0-9]{{1,12}}(\.[0-9]{{1,{COST_PLACES}}})?"
    if not re.fullmatch(pattern, amount) or not MIN_COST_BUDGET <= Decimal(amount) <= MAX_COST_BUDGET:
        raise ValueError(
            f"“{text[:40]}” is not a cost budget; write USD from {MIN_COST_BUDGET} to {MAX_COST_BUDGET:,}, like 0.50."
        )
    return Decimal(amount)


def _parse_labels(text: str) -> tuple[str, ...]:
    """Labels with commas between them, in their order, each once."""
    labels = tuple(dict.fromkeys(" ".join(part.split()) for part in text.split(",") if part.strip()))
    validate_labels(labels)
    return labels


_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "labels": _parse_labels,
    "priority": _parse_priority,
    "token_budget": _parse_token_budget,
    "cost_budget": _parse_cost_budget,
    "time_limit": _parse_time_limit,
}


def validate_labels(labels: Sequence[str]) -> None:
    """Labels are few and short, of characters that can be seen."""
    for problem in find_label_problems(labels):
        raise ValueError(problem.message)


def list_lasting_labels(labels: Sequence[str]) -> list[str]:
    """The labels that a re-run inherits: all but the label of the bulk action that started the run.

    Only runs of that bulk action have its label, and it doesn't count towards the labels that a run may be given.
    """
    return [label for label in labels if not _OF_BULK_ACTION.fullmatch(label)]


def find_label_problems(labels: Sequence[str]) -> list[Problem]:
    """What is wrong with given labels; paths are JSON pointers into their list.

    A repeated one counts once.
    """
    if (count := len(set(labels))) > MAX_LABELS:
        return [Problem("", f"A run has at most {MAX_LABELS} labels; you gave {count}.")]
    problems = []
    for index, label in enumerate(labels):
        if sentence := _find_label_problem(label):
            problems.append(Problem(f"/{index}", sentence))
    return problems


def _find_label_problem(label: str) -> str:
    shown = ascii(label[:40])[1:-1] if not label.isprintable() else label[:40]
    if not label.strip():
        return "A label must not be empty."
    if not label.isprintable():
        return f"The label “{shown}” has invisible characters. Use letters and digits."
    if len(label) > MAX_LABEL_LENGTH:
        return f"The label “{shown}…” is longer than {MAX_LABEL_LENGTH} characters."
    if "," in label:
        return f"The label “{shown}” contains a comma; commas separate labels."
    if _OF_BULK_ACTION.fullmatch(label):
        return f"The label “{shown}” is reserved for bulk actions. Choose another."
    return ""


def validate_metadata(metadata: Any) -> None:
    """Metadata are a small JSON object that can be stored as it is."""
    if not isinstance(metadata, dict):
        raise ValueError(f"Metadata must be a JSON object, got {describe_type(metadata)}.")
    # The size comes first: to clean and search ten megabytes takes seconds.
    if (size := measure_metadata(metadata)) > MAX_METADATA_BYTES:
        raise ValueError(f"Metadata may have {MAX_METADATA_BYTES:,} bytes as JSON; this has {size:,}.")
    cleaned = clean_value(metadata)
    if cleaned.value is not metadata:
        raise ValueError(cleaned.notes[0] if cleaned.notes else "Metadata must hold JSON values only.")


def measure_metadata(metadata: Mapping[str, Any]) -> int:
    """The size of metadata in bytes, as compact JSON; 0 if it is not JSON."""
    try:
        return len(dump_json(metadata).encode(errors="surrogatepass"))
    except (TypeError, ValueError, RecursionError):
        return 0


def validate_webhook_url(url: str) -> None:
    """An address is one that a webhook could be sent to; where its name leads is asked when something is sent."""
    if problem := find_target_problem(url):
        raise ValueError(problem)
