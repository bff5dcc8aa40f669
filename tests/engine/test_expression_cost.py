"""Expressions that would take too long or never end: how they are found, and what becomes of them."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource
import signal
import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from flows.engine import expression_process
from flows.engine.errors import ExpressionError, ExpressionTimeout
from flows.engine.expression_scanner import scan, split_tokens
from flows.engine.expressions import Scope
from tests.engine.expression_scope import OUTPUT, parse

EXPLOSIVE = "output.lines" + "".join(f".all({name}, output.lines" for name in "abcdefgh") + ".size() > 0" + ")" * 8


def lines(count: int) -> dict[str, Any]:
    return {"lines": [{"text": f"line {number}", "amount": 1.5} for number in range(count)]}


def report_explosion(queue: Any) -> None:
    """Evaluate in a process that may have no children of its own by ``multiprocessing``."""
    try:
        Scope({"output": lines(30)}, timeout=0.3).evaluate(parse(EXPLOSIVE))
    except ExpressionTimeout as error:
        queue.put(str(error))


class TestWhatWouldTakeTooLong:
    @pytest.mark.parametrize(
        "text",
        [
            EXPLOSIVE,
            "lists.range(9999).map(x, lists.range(9999).map(y, x))",
            "[0]" + ".map(x, [x, x])" * 40,
        ],
    )
    def test_it_is_stopped_and_told(self, text: str) -> None:
        with pytest.raises(ExpressionTimeout, match=r"The expression was stopped: it took longer than 0\.4 s"):
            Scope({"output": lines(30)}, timeout=0.4).evaluate(parse(text))

    def test_a_machine_that_starts_no_process_in_time_is_blamed_itself(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # No process is there in so short a time.
        monkeypatch.setattr(expression_process, "START_PATIENCE", 0.001)
        with pytest.raises(ExpressionTimeout, match=r"no process for it was there within 0\.001 s"):
            Scope({"output": lines(2_000)}, timeout=20).evaluate(parse("output.lines.filter(a, a.amount > 1.0).size()"))

    def test_a_process_with_thousands_of_connections_evaluates_as_ever(self) -> None:
        before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4_096), most))
        try:
            with ExitStack() as stack:
                for _ in range(1_100):
                    stack.enter_context(Path(os.devnull).open())
                scope = Scope({"output": {"list": list(range(50_000))}}, timeout=20)
                assert scope.evaluate(parse("output.list[7]")) == 7
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))

    def test_what_would_fill_the_memory_is_stopped_and_told(self) -> None:
        with pytest.raises(ExpressionError, match=r"was stopped: it takes too much memory"):
            Scope({}, timeout=10).evaluate(parse("['abc']" + ".map(x, x + x)" * 40 + ".map(x, x.size())"))

    def test_what_is_long_but_not_endless_gives_the_same_value_as_ever(self) -> None:
        scope = Scope({"output": lines(500)}, timeout=20)
        expression = parse("output.lines.filter(a, a.amount > 1.0).map(a, {'text': a.text, 'amount': a.amount})")
        result = scope.evaluate(expression)
        assert result == lines(500)["lines"]
        assert list(result[0]) == ["text", "amount"]

    def test_what_fails_there_is_told_as_ever(self) -> None:
        with pytest.raises(ExpressionError, match="There is no key “missing” for “a"):
            Scope({"output": lines(2_000)}, timeout=20).evaluate(parse("output.lines.map(a, a.missing)"))

    @pytest.mark.parametrize(
        ("output", "text", "value"),
        [
            ({"list": list(range(50_000))}, "output.list[7]", 7),
            ({"text": "x" * 5_000_000}, "output.text.size()", 5_000_000),
            ({}, "lists.range(2000).filter(n, true).size()", 2_000),
            ({"text": "x" * 100_000}, "[output.text]" + ".map(x, x + x)" * 5 + ".map(x, x.size())", [3_200_000]),
            ({"text": "x" * 100_000}, "lists.range(1000).exists(n, output.text.contains('y' + string(n)))", False),
        ],
    )
    def test_large_values_are_evaluated_elsewhere(
        self, output: Any, text: str, value: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        start = Mock(wraps=subprocess.Popen)
        monkeypatch.setattr(subprocess, "Popen", start)
        assert Scope({"output": output}, timeout=20).evaluate(parse(text)) == value
        assert start.call_count == 1

    def test_the_event_loop_goes_on_meanwhile(self) -> None:
        async def run() -> int:
            evaluation = asyncio.ensure_future(
                Scope({"output": lines(30)}, timeout=0.4).evaluate_async(parse(EXPLOSIVE))
            )
            turns = 0
            while not evaluation.done():
                await asyncio.sleep(0)
                turns += 1
            with pytest.raises(ExpressionTimeout):
                evaluation.result()
            return turns

        assert asyncio.run(run()) > 100

    def test_what_is_cheap_is_evaluated_at_once(self) -> None:
        async def run() -> Any:
            return await Scope({"output": OUTPUT}).evaluate_async(parse("output.count + 1"))

        assert asyncio.run(run()) == 3

    def test_it_is_stopped_in_a_daemonic_process_too(self) -> None:
        context = multiprocessing.get_context("spawn")
        queue = context.Queue()
        process = context.Process(target=report_explosion, args=(queue,), daemon=True)
        process.start()
        assert "it took longer than 0.3 s" in queue.get(timeout=30)
        process.join(timeout=30)

    def test_no_process_is_left_behind(self) -> None:
        with pytest.raises(ExpressionTimeout):
            Scope({"output": lines(30)}, timeout=0.3).evaluate(parse(EXPLOSIVE))
        children = subprocess.run(
            ["ps", "--ppid", str(os.getpid()), "-o", "args="], capture_output=True, text=True, check=False
        )
        assert "expression_process" not in children.stdout

    async def test_the_process_of_a_run_that_is_cancelled_is_killed_at_once(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        started: asyncio.Future[subprocess.Popen[bytes]] = asyncio.get_running_loop().create_future()

        class Popen(subprocess.Popen[bytes]):
            def __init__(self, *args: Any, **options: Any) -> None:
                super().__init__(*args, **options)
                started.get_loop().call_soon_threadsafe(started.set_result, self)

        monkeypatch.setattr(subprocess, "Popen", Popen)
        scope = Scope({"output": lines(30)}, timeout=600)
        evaluation = asyncio.ensure_future(scope.evaluate_async(parse(EXPLOSIVE)))
        process = await asyncio.wait_for(started, timeout=60)
        evaluation.cancel()
        with pytest.raises(asyncio.CancelledError):
            await evaluation
        assert await asyncio.to_thread(process.wait, 60) == -signal.SIGKILL

    @pytest.mark.parametrize(
        "text",
        [
            "output.lines.map(l, l.amount).sum() > 0.0",
            "output.lines.filter(l, !l.text.matches('^line'))",
            "output.lines.all(a, output.lines.exists(b, a.text == b.text))",
            "output.lines.map(l, l.text).distinct().size() == output.lines.size()",
            "{'lines': output.lines, 'count': output.lines.size()}",
        ],
    )
    def test_ordinary_audits_of_thirty_elements_need_no_process(
        self, text: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(subprocess, "Popen", None)
        Scope({"output": lines(30)}).evaluate(parse(text))


class TestScanner:
    def test_text_and_comments_hold_no_names(self) -> None:
        kinds = [(token.kind, token.text) for token in split_tokens("'a\\'b' + r\"\\\" // c\n + 0x1F + .5e3")]
        assert kinds == [
            ("text", "'a\\'b'"),
            ("symbol", "+"),
            ("raw", 'r"\\"'),
            ("symbol", "+"),
            ("number", "0x1F"),
            ("symbol", "+"),
            ("number", ".5e3"),
        ]

    def test_loops_know_how_deep_they_stand_and_what_they_go_through(self) -> None:
        text = "output.lines[0].parts.filter(a, a.tags.exists(b, b == item)).map(c, c)"
        found = [(loop.macro, loop.name, loop.depth, loop.receiver) for loop in scan(text).loops]
        assert [(macro, name, depth) for macro, name, depth, _ in found] == [
            ("filter", "a", 1),
            ("exists", "b", 2),
            ("map", "c", 1),
        ]
        uses = [(loop.own, loop.outer, loop.parts, loop.whole) for loop in scan(text).loops]
        assert uses == [(1, 0, 0, 1), (1, 0, 0, 1), (1, 0, 0, 0)]
        receivers = [receiver and text[slice(*receiver)] for *_, receiver in found]
        assert receivers == ["output.lines[0].parts", "a.tags", None]
