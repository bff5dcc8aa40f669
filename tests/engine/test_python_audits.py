"""Audits in Python: registered functions and the method ``audit`` of a registered type; whatever they do, no crash."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import date
from decimal import Decimal
from itertools import count
from types import MappingProxyType
from typing import Any

import pytest
from pydantic import BaseModel

from flows.engine.history import Issue, Severity
from tests.engine.audit_parts import (
    OUTPUT,
    AuditResult,
    assert_broken,
    run_python,
    run_rule,
    run_typed,
    the_issue,
)


class Finding(BaseModel):
    description: str
    line: int


async def give_later(output: Any) -> str:
    return "Later."


def hand_back(output: Any) -> Any:
    return give_later(output)


async def generate_later(output: Any) -> AsyncIterator[str]:
    yield "One."
    await asyncio.sleep(0)
    yield "Two."


class TestPythonAudits:
    @pytest.mark.parametrize("finding", [None, True, [], (), [None], [True, None], "generator"])
    async def test_nothing_found_passes(self, finding: Any) -> None:
        def check(output: Any) -> Any:
            return iter(()) if finding == "generator" else finding

        assert await run_python(check) == AuditResult((), passed=True)

    @pytest.mark.parametrize(
        ("give", "found"),
        [
            (lambda output: False, ["The audit “Cheap lines” did not pass."]),
            (lambda output: "", [""]),
            (lambda output: MappingProxyType({"description": "Odd."}), ["Odd."]),
            (lambda output: Finding(description="Odd.", line=2), ["Odd."]),
            (lambda output: ("One.", "Two."), ["One.", "Two."]),
            (lambda output: deque(["One.", "Two."]), ["One.", "Two."]),
            (lambda output: iter(["One.", "Two."]), ["One.", "Two."]),
            (lambda output: {"One.": 1, "Two.": 2}.keys(), ["One.", "Two."]),
            (generate_later, ["One.", "Two."]),
            (hand_back, ["Later."]),
            (
                lambda output: ["Text.", {"description": "Map."}, None, Finding(description="Odd.", line=2), 7, True],
                ["Text.", "Map.", "Odd.", "The audit “Cheap lines” found 7."],
            ),
        ],
    )
    async def test_whatever_it_gives_is_one_issue_for_each_finding(self, give: Any, found: list[str]) -> None:
        assert [issue.description for issue in (await run_python(give)).issues] == found

    async def test_a_dictionary_is_an_issue_with_these_fields(self) -> None:
        issue = the_issue(await run_python(lambda output: {"path": "/title", "severity": "low", "words": 1}))
        assert (issue.path, issue.severity, issue.added_fields) == ("/title", Severity.LOW, {"words": 1})

    async def test_an_issue_is_that_issue_under_the_name_of_the_audit(self) -> None:
        own = Issue.model_validate(
            {"code": "vat", "severity": "low", "description": "No VAT.", "rate": 19, "near": None}
        )
        issue = the_issue(await run_python(lambda output: own))
        assert issue == own.model_copy(update={"audit": "Cheap lines"})
        assert issue.added_fields == {"rate": 19, "near": None}

    async def test_a_plain_function_leaves_the_event_loop_alone(self) -> None:
        loop_went_on = threading.Event()

        def check(output: Any) -> bool:
            return loop_went_on.wait(timeout=10)

        asyncio.get_running_loop().call_soon(loop_went_on.set)
        assert (await run_python(check)).passed

    async def test_settings_of_the_flow_count_for_python_audits_too(self) -> None:
        result = await run_python(
            lambda output: [{"line": 2, "description": "own"}],
            severity="medium",
            fail_at="medium",
            message="'Line ' + string(item.line)",
            path="'/lines/' + string(item.line)",
        )
        issue = the_issue(result)
        assert (issue.description, issue.path, issue.severity) == ("Line 2", "/lines/2", Severity.MEDIUM)
        assert not result.passed

    async def test_one_bad_finding_leaves_the_others_and_one_error(self) -> None:
        result = await run_python(lambda output: [{"severity": "HIGH"}, {"severity": "urgent"}, "Odd."])
        assert [(issue.code, issue.severity.value) for issue in result.issues] == [
            ("cheap_lines", "high"),
            ("cheap_lines", "critical"),
            ("audit_error", "critical"),
        ]
        assert "“severity” is wrong" in result.issues[-1].description

    @pytest.mark.parametrize("is_async", [False, True])
    async def test_what_a_generator_gave_before_it_raised_is_kept(self, is_async: bool) -> None:
        def check(output: Any) -> Iterator[str]:
            yield "One."
            raise LookupError("gone")

        async def check_later(output: Any) -> AsyncIterator[str]:
            yield "One."
            raise LookupError("gone")

        result = await run_python(check_later if is_async else check)
        assert [issue.code for issue in result.issues] == ["cheap_lines", "audit_error"]
        assert result.issues[0].description == "One."
        assert "raised LookupError: gone" in result.issues[1].description


class Line(BaseModel):
    text: str
    amount: float


class Invoice(BaseModel):
    title: str
    lines: list[Line]


class TestTypedOutput:
    INVOICE = Invoice.model_validate(OUTPUT)

    async def test_parts_of_it_that_are_raised_become_fields_of_issues_as_with_cel(self) -> None:
        def check(output: Invoice) -> Any:
            return (line for line in output.lines if line.amount < 5)

        in_python = await run_python(check, typed=self.INVOICE)
        in_cel = await run_rule("output.lines.filter(line, line.amount < 5.0)")
        assert in_python == in_cel
        assert the_issue(in_python).added_fields == {"text": "Tape", "amount": 3.0}


class TestAuditOfAType:
    async def run(self, audit: Callable[[Any], Any]) -> AuditResult:
        members = {"__annotations__": {"title": str}, "__module__": __name__, "audit": audit}
        return await run_typed(type("Checked", (BaseModel,), members)(title="October"), "invoice")

    async def test_its_issues_stand_under_the_name_of_the_type_and_it_fails_at_critical_only(self) -> None:
        findings = [{"severity": "low", "description": "Odd."}, {"severity": "urgent"}, None]
        result = await self.run(lambda self: [f"{self.title} is no year.", *findings])
        assert [(issue.audit, issue.code, issue.severity.value) for issue in result.issues] == [
            ("invoice", "invoice", "critical"),
            ("invoice", "invoice", "low"),
            ("invoice", "audit_error", "critical"),
        ]
        assert not result.passed
        assert (await self.run(lambda self: {"severity": "high"})).passed


class TestFaults:
    @pytest.mark.parametrize(
        ("error", "words"),
        [
            (KeyError("amount"), "“python:check” raised KeyError: 'amount'"),
            (AssertionError(), "raised AssertionError"),
            (StopIteration(), "raised "),
            (SystemExit(2), "raised SystemExit: 2"),
            (ExceptionGroup("several", [ValueError("one")]), "raised ExceptionGroup: several"),
            (RuntimeError("NUL \0 and \ud800" + "x" * 1_000_000), "raised RuntimeError: NUL \ufffd and \ufffd"),
        ],
        ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
    )
    @pytest.mark.parametrize("kind", ["sync", "generator", "async"])
    async def test_whatever_it_raises_is_a_critical_issue_and_no_crash(
        self, kind: str, error: BaseException, words: str
    ) -> None:
        def check(output: Any) -> Any:
            raise error

        def check_lazily(output: Any) -> Any:
            yield from ()
            raise error

        async def check_later(output: Any) -> Any:
            raise error

        functions: dict[str, Callable[..., Any]] = {"sync": check, "generator": check_lazily, "async": check_later}
        result = await run_python(functions[kind])
        assert_broken(result, words)
        assert len(the_issue(result).description) < 2_000

    @pytest.mark.parametrize("finding", [object(), {"thing": object()}, {("a", "b"): 1}, {"code": "x" * 100_000}])
    async def test_what_can_be_no_issue_is_an_audit_error(self, finding: Any) -> None:
        assert_broken(await run_python(lambda output: finding), "")

    async def test_a_circle_and_an_endless_generator_are_audit_errors(self) -> None:
        circle: list[Any] = []
        circle.append(circle)
        assert_broken(await run_python(lambda output: {"circle": circle}), "")
        assert_broken(await run_python(lambda output: count()), "more than 1,000,000 elements")

    async def test_what_cannot_be_stored_is_cleaned_in_every_field(self) -> None:
        finding = {
            "description": "a\0b",
            "path": "/x\ud800",
            "suggestions": ["c\0"],
            "context": {"ratio": float("nan"), "k\0": "v\ud800"},
            "due": date(2026, 11, 21),
            "sum": Decimal("1.50"),
        }
        issue = the_issue(await run_python(lambda output: finding))
        assert issue.model_dump(include=set(finding)) == {
            "description": "a\ufffdb",
            "path": "/x\ufffd",
            "suggestions": ("c\ufffd",),
            "context": {"ratio": None, "k\ufffd": "v\ufffd"},
            "due": "2026-11-21",
            "sum": "1.50",
        }
        assert Issue.model_validate_json(issue.model_dump_json()) == issue

    async def test_an_audit_keeps_what_it_gave_and_changes_it_without_harm(self) -> None:
        seen = ["first"]
        issue = the_issue(await run_python(lambda output: {"description": "Odd.", "seen": seen}))
        seen.append("second")
        assert issue.added_fields == {"seen": ["first"]}
