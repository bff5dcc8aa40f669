"""What changed between two texts, and between two definitions of a flow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.engine.differences import (
    Change,
    LineKind,
    compare_specs,
    compare_texts,
    summarise_changes,
)
from flows.engine.spec import AuditSpec, FlowSpec, StepSpec
from tests.engine.builders import INVOICE, make_flow, make_step

EXTRACT = make_step(1, name="Extract", tool_name="extract_invoice", system_message="You read invoices.")
CHECK = make_step(2, name="Check", tool_name="check_invoice", system_message="You look for mistakes of others.")
BOOK = make_step(3, name="Book", tool_name="book_invoice", system_message="You prepare what accountants do.")
ADDS_UP = AuditSpec(name="Adds up", rule="output.total == output.net + output.tax")
HAS_DATE = AuditSpec(name="Has a date", rule="output.date != ''")
POSITIVE = AuditSpec(name="Positive", rule="output.total > 0.0")


def change(step: StepSpec, **fields: Any) -> StepSpec:
    return step.model_copy(update=fields)


def audited(*audits: AuditSpec, step: StepSpec = EXTRACT) -> StepSpec:
    return change(step, audits=audits)


def list_all(changes: Iterable[Change]) -> Iterator[Change]:
    """The changes and those of their audits."""
    for one in changes:
        yield one
        yield from list_all(one.audits)


def describe(old: FlowSpec, new: FlowSpec) -> list[tuple[str, str, list[str]]]:
    """Each change: its title, what became of it, its notes and the names of its fields."""
    found = list_all(compare_specs(old, new))
    return [(one.title, one.kind.value, [*one.notes, *(field.field for field in one.fields)]) for one in found]


def changed(title: str, *facts: str) -> tuple[str, str, list[str]]:
    return title, "changed", [*facts]


class TestTexts:
    LINES = st.lists(st.sampled_from(["a", "b", "c d", "c e", ""]), max_size=12)

    @given(LINES, LINES)
    def test_both_texts_can_be_read_from_the_difference(self, old: list[str], new: list[str]) -> None:
        lines = [line for block in compare_texts("\n".join(old), "\n".join(new)).blocks for line in block.lines]
        assert "\n".join(line.text for line in lines if line.kind is not LineKind.ADDED) == "\n".join(old)
        assert "\n".join(line.text for line in lines if line.kind is not LineKind.REMOVED) == "\n".join(new)


class TestStepsAndAudits:
    SUM = StepSpec(name="Sum", compute="1")
    NEW = change(CHECK, name="New")
    PAIRED = {
        "added": ((EXTRACT,), (EXTRACT, SUM), [("Step 2 “Sum”", "added", ["compute"])]),
        "removed": ((EXTRACT, SUM, BOOK), (EXTRACT, BOOK), [("Step 2 “Sum”", "removed", ["compute"])]),
        "renamed": ((EXTRACT, CHECK), (EXTRACT, NEW), [changed("Step 2 “New”", "name")]),
        "moved": (
            (EXTRACT, CHECK, BOOK),
            (BOOK, EXTRACT, CHECK),
            [changed("Step 1 “Book”", "moved from place 3 to 1")],
        ),
        "by position": (
            (EXTRACT, CHECK),
            (EXTRACT, change(NEW, tool_name="new")),
            [changed("Step 2 “New”", "name", "tool_name")],
        ),
        "audits": (
            (audited(HAS_DATE, ADDS_UP, POSITIVE),),
            (audited(POSITIVE.model_copy(update={"rule": "item > 0.0", "for_each": "[1.0]"}), HAS_DATE),),
            [
                changed("Step 1 “Extract”"),
                changed("Audit “Positive”", "for_each", "rule"),
                changed("Audit “Has a date”", "moved from place 1 to 2"),
                ("Audit “Adds up”", "removed", ["rule"]),
            ],
        ),
    }

    @pytest.mark.parametrize(("old", "new", "found"), PAIRED.values(), ids=PAIRED)
    def test_parts_are_paired_by_name_then_key_then_position(self, old: Any, new: Any, found: Any) -> None:
        assert describe(make_flow(*old), make_flow(*new)) == found

    @pytest.mark.parametrize(
        ("new", "summary"),
        [
            (make_flow(change(EXTRACT, max_retries=1), CHECK), "“Extract”: max_retries 3 → 1"),
            (make_flow(EXTRACT, CHECK, title="Invoices"), "Title none → Invoices"),
            (make_flow(EXTRACT, change(CHECK, output_schema=INVOICE)), "“Check”: output_schema changed"),
            (make_flow(EXTRACT, CHECK, BOOK), "Step “Book” added"),
            (
                make_flow(audited(ADDS_UP, HAS_DATE), change(CHECK, max_retries=1, name="New"), BOOK),
                "2 audits added, 1 step added, 1 step changed",
            ),
        ],
    )
    def test_all_changes_fit_in_a_line(self, new: FlowSpec, summary: str) -> None:
        assert summarise_changes(compare_specs(make_flow(EXTRACT, CHECK), new)) == summary


json_values = st.sampled_from([{}, {"a": 1}, {"a": 1.0}, {"a": True}, {"a": {}, "b": {}}, {"b": {}, "a": {}}])
audit_specs = st.builds(AuditSpec, name=st.sampled_from("ab"), rule=st.sampled_from(["true", "false"]))
step_specs = st.builds(
    StepSpec,
    name=st.sampled_from("abc"),
    tool_name=st.none() | st.sampled_from(["one", "two"]),
    system_message=st.sampled_from(["", " ", "one\ntwo", "one\n2\n"]),
    output_schema=st.none() | json_values,
    include_results=st.lists(st.integers(0, 2), max_size=2).map(tuple),
    temperature=st.none() | st.sampled_from([0.0, 1.5]),
    audits=st.lists(audit_specs, max_size=3).map(tuple),
)
flow_specs = st.builds(
    FlowSpec,
    name=st.just("flow"),
    cost_budget=st.none() | st.sampled_from([1, 2.5]),
    input_schema=st.none() | json_values,
    steps=st.lists(step_specs, min_size=1, max_size=4).map(tuple),
)


@given(flow_specs, flow_specs)
def test_there_are_changes_exactly_if_the_digests_differ(old: FlowSpec, new: FlowSpec) -> None:
    changes = compare_specs(old, new)
    assert bool(changes) == (old.digest != new.digest)
    assert (summarise_changes(changes) == "No difference") == (old.digest == new.digest)
    for field in [field for one in list_all(changes) for field in one.fields]:
        assert field.difference.blocks if field.has_lines else field.old_words != field.new_words
