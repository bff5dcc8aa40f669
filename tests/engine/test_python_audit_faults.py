"""Whatever a Python audit raises or gives: an issue, and never a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from pydantic import BaseModel

from flows.engine.history import Issue
from tests.engine.audit_parts import assert_broken, run_python, the_issue


class _SilentError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("can't say")


class TestPythonAuditsThatRaise:
    @pytest.mark.parametrize(
        ("error", "words"),
        [
            (ZeroDivisionError("division by zero"), "“python:check” raised ZeroDivisionError: division by zero"),
            (KeyError("amount"), "raised KeyError: 'amount'"),
            (AssertionError(), "raised AssertionError"),
            (StopIteration(), "raised StopIteration"),
            (SystemExit(2), "raised SystemExit: 2"),
            (RecursionError("deep"), "raised RecursionError: deep"),
            (ExceptionGroup("several", [ValueError("one")]), "raised ExceptionGroup: several"),
            (RuntimeError("NUL \0 and \ud800"), "raised RuntimeError: NUL \ufffd and \ufffd"),
            (_SilentError(), "raised _SilentError"),
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
        if kind != "sync" and isinstance(error, StopIteration):
            words = "raised RuntimeError"  # Python itself turns it into one
        async with asyncio.timeout(10):
            assert_broken(await run_python(functions[kind]), words)

    async def test_a_very_long_error_is_cut(self) -> None:
        def check(output: Any) -> None:
            raise ValueError("x" * 1_000_000)

        assert len(the_issue(await run_python(check)).description) < 2_000

    async def test_an_iterable_that_breaks_while_it_is_read_is_no_crash(self) -> None:
        class Broken:
            def __iter__(self) -> Iterator[str]:
                raise LookupError("gone")

        assert_broken(await run_python(lambda output: Broken()), "raised LookupError: gone")

    async def test_an_object_whose_own_code_breaks_is_an_issue_and_no_crash(self) -> None:
        class Broken(dict[str, str]):
            def items(self) -> Any:
                raise RuntimeError("broken mapping")

            def keys(self) -> Any:
                raise RuntimeError("broken mapping")

            def __iter__(self) -> Iterator[str]:
                raise RuntimeError("broken mapping")

        class Shapeless(BaseModel):
            def model_dump(self, **options: Any) -> Any:
                return 5

        assert_broken(await run_python(lambda output: [Broken(a="b")]), "RuntimeError")
        assert_broken(await run_python(lambda output: Shapeless()), "AttributeError")

    async def test_a_variable_that_is_not_on_offer_is_an_error_too(self) -> None:
        assert_broken(await run_python(lambda previous: True), "missing 1 required positional argument: 'previous'")

    async def test_cancelling_a_run_is_no_issue(self) -> None:
        entered = asyncio.Event()

        async def check(output: Any) -> None:
            entered.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(run_python(check))
        await asyncio.wait_for(entered.wait(), timeout=10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


class TestWhatCannotBeStored:
    async def test_nul_surrogates_and_nan_are_cleaned_in_every_field(self) -> None:
        finding = {
            "description": "a\0b",
            "path": "/x\ud800",
            "suggestions": ["c\0"],
            "context": {"ratio": float("nan"), "k\0": "v\ud800"},
            "added": [float("inf"), "\0"],
        }
        issue = the_issue(await run_python(lambda output: finding))
        assert issue.model_dump(include={"description", "path", "suggestions", "context", "added"}) == {
            "description": "a\ufffdb",
            "path": "/x\ufffd",
            "suggestions": ("c\ufffd",),
            "context": {"ratio": None, "k\ufffd": "v\ufffd"},
            "added": [None, "\ufffd"],
        }

    async def test_values_with_a_json_form_get_it(self) -> None:
        issue = the_issue(await run_python(lambda output: {"due": date(2026, 11, 21), "sum": Decimal("1.50"), 7: {1}}))
        assert issue.added_fields == {"due": "2026-11-21", "sum": "1.50", "7": [1]}
        assert Issue.model_validate_json(issue.model_dump_json()) == issue

    async def test_a_circle_is_an_audit_error(self) -> None:
        circle: list[Any] = []
        circle.append(circle)
        assert_broken(await run_python(lambda output: {"circle": circle}), "nested deeper than 100 levels")

    @pytest.mark.parametrize(
        "finding",
        [object(), {"thing": object()}, {("a", "b"): 1}, [lambda: None]],
        ids=["object", "object in a map", "key", "function"],
    )
    async def test_what_has_no_json_form_is_an_audit_error(self, finding: Any) -> None:
        assert_broken(await run_python(lambda output: finding), "")

    async def test_a_huge_code_is_an_audit_error_that_says_so(self) -> None:
        assert_broken(await run_python(lambda output: {"code": "x" * 100_000}), "issue whose “code” is wrong")

    async def test_an_audit_keeps_what_it_gave_and_changes_it_without_harm(self) -> None:
        seen: list[str] = []

        def check(output: Any) -> Any:
            seen.append("first")
            return {"description": "Odd.", "seen": seen}

        issue = the_issue(await run_python(check))
        seen.append("second")
        assert issue.added_fields == {"seen": ["first"]}
