"""Specs of every kind that the classes allow, and changes as a person reads them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from hypothesis import strategies as st

from flows.engine.differences.spec_diff import Change, compare_specs
from flows.engine.differences.text_diff import TextDifference
from flows.engine.issues import Severity
from flows.engine.spec import AuditSpec, FlowSpec, StepSpec

words = st.sampled_from(["Extract", "Check", "Reconcile", "a b", "“”", "`x`"])
texts = st.text(max_size=12) | st.sampled_from(["one\ntwo\nthree", "one\n2\nthree\n", "x" * 70, "a  b", "a b\r\n", " "])
expressions = st.sampled_from(["true", "output.a == 1", "output.a == 2\n  && output.b", "python:audit"]) | st.text(
    min_size=1, max_size=12
)
severities = st.sampled_from(list(Severity))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, 1.0]) | st.sampled_from(["a", "b", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
KEYWORDS = ("type", "enum", "const", "description", "minimum", "additionalProperties", "format", "pattern", "x")


def _nest(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3)
    parts = {
        "properties": names | json_values,
        "$defs": names | json_values,
        "items": inner | json_values,
        "anyOf": st.lists(inner, max_size=3) | json_values,
        "required": st.lists(st.sampled_from("abc"), max_size=3) | json_values,
        **dict.fromkeys(KEYWORDS, json_values | st.sampled_from(["string", "object", "array", ["string", "null"]])),
    }
    pairs = st.lists(
        st.sampled_from(sorted(parts)).flatmap(lambda key: st.tuples(st.just(key), parts[key])), max_size=5
    )
    return pairs.map(dict)


schemas = _nest(st.recursive(_nest(json_values), _nest, max_leaves=4))
"""JSON Schemas, good ones and those that only look like one."""

audits = st.builds(
    AuditSpec,
    name=words,
    rule=expressions,
    severity=severities,
    fail_at=severities,
    message=st.none() | expressions,
    path=st.none() | expressions,
)
steps = st.builds(
    StepSpec,
    name=words,
    description=texts,
    tool_name=st.none() | st.sampled_from(["extract", "check"]),
    system_message=texts,
    output_schema=st.none() | schemas,
    compute=st.none() | expressions,
    include_results=st.lists(st.integers(-1, 4), max_size=3).map(tuple),
    model=st.none() | st.just("gpt-5"),
    temperature=st.none() | st.sampled_from([0.0, 1.0, 1.5]),
    max_retries=st.integers(0, 4),
    time_limit=st.none() | st.just(90),
    stop_on_failure=st.booleans(),
    audits=st.lists(audits, max_size=3).map(tuple),
)
flows = st.builds(
    FlowSpec,
    name=st.sampled_from(["first", "second"]),
    title=texts,
    cost_budget=st.none() | st.sampled_from([1, 2.5]),
    input_schema=st.none() | schemas,
    steps=st.lists(steps, min_size=1, max_size=4).map(tuple),
)


def list_all(changes: Iterable[Change]) -> Iterator[Change]:
    """The changes and those of their audits."""
    for change in changes:
        yield change
        yield from list_all(change.audits)


def tell(old: FlowSpec, new: FlowSpec) -> list[str]:
    """Each change in a line, with its notes and its fields in words."""
    return [_tell_change(change) for change in list_all(compare_specs(old, new))]


def _tell_change(change: Change) -> str:
    kind = "" if change.kind == "changed" else f" {change.kind}"
    parts = [*change.notes]
    for field in change.fields:
        if change.kind != "changed":
            value = "…" if field.has_lines else field.only_words
        else:
            value = "…" if field.has_lines else f"{field.old_words} → {field.new_words}"
        parts.append(" ".join([field.field, value, *(f"({note})" for note in field.notes)]))
    return f"{change.title}{kind}" + (f": {'; '.join(parts)}" if parts else "")


def draw(difference: TextDifference) -> list[str]:
    """Lines as the page draws them: “-” and “+” before them, marked words in brackets, folds counted."""
    drawn = []
    for block in difference.blocks:
        if block.is_folded:
            drawn.append(f"… {len(block.lines)} lines")
            continue
        for line in block.lines:
            text = "".join(f"[{piece.text}]" if piece.is_marked else piece.text for piece in line.pieces)
            drawn.append({"same": "  ", "removed": "- ", "added": "+ "}[line.kind] + text)
    return drawn
