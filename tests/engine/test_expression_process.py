"""Expressions that would hold up the event loop or fill the memory: they run in a process that is stopped."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from asyncio.subprocess import Process
from typing import Any

import pytest

from flows.engine import expression_process
from flows.engine.cel_evaluation import NEEDS_PROCESS, Scope
from flows.engine.errors import ExpressionError, ExpressionTimeout
from tests.engine.expression_parts import evaluate_expression, parse

EXPLOSIVE = "output.lines" + "".join(f".all({name}, output.lines" for name in "abcdefgh") + ".size() > 0" + ")" * 8


def lines(count: int) -> dict[str, Any]:
    return {"lines": [{"text": f"line {number}", "amount": 1.5} for number in range(count)]}


def is_slow(text: str, output: Any) -> bool:
    """Whether an expression is not evaluated in this process."""
    return Scope({"output": output}).evaluate(parse(text)) is NEEDS_PROCESS


@pytest.mark.parametrize(
    "text",
    [
        "output.lines.map(l, l.amount).sum() > 0.0",
        "output.lines.filter(l, !l.text.matches('^line'))",
        "output.lines.all(a, output.lines.exists(b, a.text == b.text))",
        "lists.range(output.lines.size()).filter(i, output.lines[i].amount < 20.0)",
        "output.lines.map(l, l.text.split(' ')).flatten().distinct().size()",
        "output.lines.map(l, {'text': l.text + ': ' + string(l.amount), 'amount': l.amount})",
    ],
)
def test_ordinary_audits_of_thirty_elements_need_no_process(text: str) -> None:
    assert not is_slow(text, lines(30))


@pytest.mark.parametrize(
    ("text", "output"),
    [
        (EXPLOSIVE, lines(30)),
        ("output.text.size()", {"text": "x" * 1_500_000}),
        ("output.list[7]", {"list": list(range(50_000))}),
        ("output.lines.filter(l, true).size()", lines(2_000)),
        ("output.lines.map(l, output.lines)", lines(300)),
        ("lists.range(9999).map(x, lists.range(9999).map(y, x))", {}),
        ("output.text.split('').filter(a, a == 'x')", {"text": "x" * 5_000}),
        ("(output.l" + " + output.l" * 300 + ").map(a, a)", {"l": list(range(30))}),
        ("lists.range(1000).exists(n, output.text.contains('y' + string(n)))", {"text": "x" * 100_000}),
        ("[0]" + ".map(x, [x, x])" * 40, {}),
        ("[1, 2, 3]" + "".join(f".all({name}, [1, 2, 3]" for name in "abcdefghijkl") + ".size() > 0" + ")" * 12, {}),
    ],
)
def test_what_would_hold_up_the_event_loop_is_not_evaluated_in_its_process(text: str, output: Any) -> None:
    assert is_slow(text, output)


async def test_what_computes_for_too_long_is_stopped_and_the_event_loop_goes_on_meanwhile() -> None:
    evaluation = asyncio.ensure_future(evaluate_expression(parse(EXPLOSIVE), {"output": lines(30)}, timeout=0.4))
    turns = 0
    while not evaluation.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 100
    with pytest.raises(ExpressionTimeout, match=r"took longer than 0\.4 s"):
        evaluation.result()


async def test_what_would_fill_the_memory_is_stopped() -> None:
    with pytest.raises(ExpressionError, match="too much memory"):
        await evaluate_expression(parse("['abc']" + ".map(x, x + x)" * 40 + ".map(x, x.size())"), {}, timeout=10)


async def test_a_process_gives_the_same_value_in_the_same_order() -> None:
    expression = parse("output.lines.filter(a, a.amount > 1.0).map(a, {'text': a.text, 'amount': a.amount})")
    result = await evaluate_expression(expression, {"output": lines(500)}, timeout=20)
    assert result == lines(500)["lines"]
    assert list(result[0]) == ["text", "amount"]


async def test_what_fails_in_a_process_says_why() -> None:
    with pytest.raises(ExpressionError, match="no key 'missing'"):
        await evaluate_expression(parse("output.lines.map(a, a.missing)"), {"output": lines(2_000)}, timeout=20)


async def test_the_process_of_a_run_that_is_cancelled_is_killed_and_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    started: asyncio.Queue[Process] = asyncio.Queue()
    create = asyncio.create_subprocess_exec

    async def note(*args: Any, **options: Any) -> Process:
        process = await create(*args, **options)
        started.put_nowait(process)
        return process

    monkeypatch.setattr(asyncio, "create_subprocess_exec", note)
    for _ in range(expression_process.MAX_PROCESSES + 1):
        evaluation = asyncio.ensure_future(evaluate_expression(parse(EXPLOSIVE), {"output": lines(30)}, timeout=600))
        process = await asyncio.wait_for(started.get(), timeout=60)
        evaluation.cancel()
        with pytest.raises(asyncio.CancelledError):
            await evaluation
        assert process.returncode == -signal.SIGKILL


def report_explosion(queue: Any) -> None:
    """Evaluate in a process that may have no children of its own by ``multiprocessing``."""
    try:
        asyncio.run(evaluate_expression(parse(EXPLOSIVE), {"output": lines(30)}, timeout=0.3))
    except ExpressionTimeout as error:
        queue.put(str(error))


def test_it_is_stopped_in_a_daemonic_process_too() -> None:
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=report_explosion, args=(queue,), daemon=True)
    process.start()
    assert "took longer than 0.3 s" in queue.get(timeout=60)
    process.join(timeout=30)
