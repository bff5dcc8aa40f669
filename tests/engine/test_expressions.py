"""The expression language: what is refused on saving, what comes out, and what is stopped in a process of its own."""

from __future__ import annotations

import asyncio
import signal
from asyncio.subprocess import Process
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flows.engine import expression_process
from flows.engine.cel_evaluation import NEEDS_PROCESS, Scope
from flows.engine.errors import ExpressionError
from flows.engine.expression_functions import FUNCTIONS, IMPLEMENTATIONS, KEYS, LOOPS, REPLACED
from flows.engine.expression_process import evaluate_in_process
from flows.engine.expressions import MAX_LENGTH, parse_expression

VARIABLES = frozenset({"output", "input", "steps", "item"})

OUTPUT: dict[str, Any] = {
    "title": "October",
    "count": 2,
    "net": 131.5,
    "note": None,
    "lines": [{"text": "Paper", "amount": 120.0}, {"text": "Freight", "amount": 11.5}],
    "colours": {"primary": "#1f4e5f", "accent": "copper", "border": "#1f4e5f"},
    "tags": ["b", "a", "b"],
    "empty": [],
}


def parse(text: str) -> Any:
    return parse_expression(text, variables=VARIABLES)


async def evaluate_expression(text: str, variables: dict[str, Any], **options: Any) -> Any:
    """The value, worked out here or in a process."""
    expression = parse(text)
    value = Scope(variables).evaluate(expression)
    return await evaluate_in_process(expression, variables, **options) if value is NEEDS_PROCESS else value


def evaluate(text: str, **variables: Any) -> Any:
    known = {"output": OUTPUT, "input": {"plan": "team"}, **variables}
    return asyncio.run(evaluate_expression(text, known))


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("  \n", None, "empty"),
        ("x" * (MAX_LENGTH + 1), None, "at most 4,000"),
        ("output\0", (1, 7), "NUL"),
        ("'\ud800'", None, ""),
        ("output.count >\n  1 +", (2, 6), ""),
        ("(" * 97 + "1" + ")" * 97, (1, 97), "nested too deeply"),
        ("output.title == “x”", (1, 17), "straight quotes"),
        ("output.count = 1", (1, 14), "write “==”"),
        ("output.tags.all(1, true)", (1, 17), "simple name"),
        ("ouput.title", (1, 1), "“output”?"),
        ("output.title ==\n  foo", (2, 3), "“foo”"),
        ("math.flor(1.5)", (1, 6), "“math.floor”?"),
        ("matches(output.title, r'(?=x)')", (1, 23), "regular expression"),
        ("output.tags.all(t, t != '') && t == ''", (1, 32), "“t”"),
        ("output.tags.map(input, true)", (1, 17), "a variable already"),
    ],
)
def test_what_is_no_expression_is_refused_with_its_place_and_a_hint(
    text: str, place: tuple[int, int] | None, words: str
) -> None:
    with pytest.raises(ExpressionError) as refusal:
        parse(text)
    assert words in str(refusal.value)
    assert (refusal.value.line, refusal.value.column) == (place or (None, None))


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("output.lines.map(l, l.amount).sum() == output.net", True),
        ("output.lines.filter(l, l.amount > 100.0)", [{"text": "Paper", "amount": 120.0}]),
        ("[1, 1.0, true, 1].distinct()", [1, True]),
        ("output.tags.join(', ')", "b, a, b"),
        ("output.title.matches('^[A-Z][a-z]+$')", True),
        ("weight('low') + weight('medium') + weight('high') + weight('critical')", 15),
        ("has(output.missing) ? output.missing : 'none'", "none"),
        ("output.empty.first()", None),
        ("timestamp('2030-01-31T12:00:00Z')", "2030-01-31T12:00:00Z"),
        ("duration('1h30m')", "5400s"),
        ("duration('31449601s')", "31449601s"),
        ("duration('1500ms')", "1.5s"),
        ("{1: 'a', 2: 'b'}", {"1": "a", "2": "b"}),
        ("math.round(output.net)", 132.0),
        ("output.count < 2.5", True),
    ],
)
def test_the_result_is_a_json_value(text: str, value: Any) -> None:
    result = evaluate(text)
    assert (result, type(result)) == (value, type(value))


def test_keys_come_out_in_the_order_of_the_text_and_of_the_variables() -> None:
    steps = [{"output": {"z": 1, "m": 2, "a": 3}}]
    # The library loses the order: of 20 tries each would come out in another one.
    for _ in range(20):
        assert list(evaluate("output")) == list(OUTPUT)
        assert list(evaluate("{'z': 1, 'title': 2, 'a': output.lines[0]}")) == ["z", "title", "a"]
        assert list(evaluate("{'amount': output.net, 'text': output.title}")) == ["amount", "text"]
        assert evaluate("output['colours'].map(key, output.colours[key])") == ["#1f4e5f", "copper", "#1f4e5f"]
        assert evaluate("steps.map(s, s.output.filter(key, true))", steps=steps) == [["z", "m", "a"]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("output.missing", "no key 'missing'"),
        ("output.tags[3]", "Ask size(list) first."),
        ("1 / 0", "division by zero"),
        ("output.count + 1.5", "Write int(x), double(x)"),
        ("output.title ? 1 : 2", "conditions must be true or false"),
        ("weight('urgent')", "urgent"),
        ("output.title.matches('(' + output.title)", "“(October” is no"),
        ("output.title" + ".replace('', 'aaaaaaaaaa')" * 20, "more than 1,000,000 characters"),
        ("0.0 / 0.0", "NaN"),
        ("item", "“item” has no value here"),
    ],
)
def test_what_fails_says_why_and_prints_nothing(text: str, words: str, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ExpressionError) as failure:
        evaluate(text)
    assert words in str(failure.value)
    assert capfd.readouterr() == ("", ""), "the library prints what functions raise"


@pytest.mark.parametrize("value", [10**400, "\ud800", object()])
def test_a_variable_that_can_not_be_read_is_an_error_and_no_crash(value: Any) -> None:
    with pytest.raises(ExpressionError, match="The variable “output” holds"):
        evaluate("output == 1", output=value)


SNIPPETS = st.sampled_from(
    [
        *("x", ")", "(", "]", "[", "{", "}", "+", "-", "?", ":", ",", ".", "!", "=", "1", "\n", "'a'", '"', "é", "//"),
        *("output", "input", "true", "null", "1.5", "&&", "||", "==", "in", "math.", ".size()", "has("),
        *(".map(x, ", ".all(x, ", "size(", "matches(", "lists.range("),
    ]
)


@given(st.text(max_size=60) | st.lists(SNIPPETS, max_size=14).map("".join))
@example("(" * 4_000)
@example("(" * 94 + "output.title.map(x, x)" + ")" * 94)
@example("!" * 3_990 + "true")
def test_no_text_raises_anything_but_an_expression_error(text: str) -> None:
    variables: dict[str, Any] = {"output": OUTPUT, "input": {}, "steps": [], "item": None}
    with suppress(ExpressionError):
        asyncio.run(evaluate_expression(text, variables))


EXAMPLES = """
size('a') == 1; dyn(1) == 1; uint(1) == 1u; double(1) == 1.0; string(1) == '1'; bool('true'); 'abc'.contains('b')
'abc'.endsWith('c'); 'abc'.indexOf('b') == 1; 'abb'.lastIndexOf('b') == 2; 'abc'.substring(1) == 'bc'
'Ab'.lowerAscii() == 'ab'; ' a '.trim() == 'a'; [1, 2].reverse() == [2, 1]; min([2, 1]) == 1; math.least(2, 1) == 1
[[1], [2]].flatten() == [1, 2]; [1, 2, 3].slice(1, 2) == [2]; [2, 1].sort() == [1, 2]; [1, 2].last().value() == 2
optional.of(1).hasValue(); [1, 2].exists_one(x, x == 1); strings.quote('a') == '"a"'; base64.decode('YQ==') == b'a'
timestamp('2030-02-01T03:04:05Z').getFullYear() == 2030; timestamp('2030-02-01T03:04:05Z').getMonth() == 1
timestamp('2030-02-01T03:04:05Z').getDayOfWeek() == 5; timestamp('2030-02-01T03:04:05.006Z').getMilliseconds() == 6
sets.contains([1, {'a': 2}], [{'a': 2.0}]) && !sets.contains([1], [true]); sets.intersects([1, 2], [2])
sets.equivalent([1, 2, 2], [2, 1]) && !sets.equivalent([1], [1, 2]); math.abs(-1) == 1; math.sign(-3) == -1
math.ceil(1.2) == 2.0; math.trunc(-1.7) == -1.0; math.sqrt(4.0) == 2.0; math.isNaN(0.0 / 0.0); math.bitNot(0) == -1
math.isInf(1.0 / 0.0); math.isFinite(1.0); math.bitOr(1, 2) == 3; math.bitShiftLeft(1, 2) == 4
"""
"""One of each kind of function; each is true."""


class TestFunctions:
    def test_every_function_that_is_registered_is_listed(self) -> None:
        assert set(IMPLEMENTATIONS) - {KEYS, *REPLACED.values()} <= set(FUNCTIONS)
        assert set(FUNCTIONS) > LOOPS

    @pytest.mark.parametrize("text", [one.strip() for one in EXAMPLES.strip().replace("\n", ";").split(";")])
    def test_a_function_that_is_listed_works(self, text: str) -> None:
        assert evaluate(text) is True

    @pytest.mark.parametrize("text", ["Ωμέγα", "👨‍👩‍👧!", "e\u0301a\u0308x", "\U00010400\U00010401b"])
    @pytest.mark.parametrize(
        "expression",
        [
            "output.size() == input && size(output) == input && (output + output).size() == 2 * input",
            "[output, output].map(t, size(t + t)).sum() == 4 * input",
            "output.substring(0, output.size()) == output && output.substring(output.size()) == ''",
            "lists.range(output.size()).map(i, output.charAt(i)).join('') == output",
            "output.indexOf(output.substring(1)) == 1",
            "output.matches('^.{' + string(output.size()) + '}$')",
            "bytes(output).size() > output.size()",
            "size([output]) == 1 && size({output: 1}) == 1 && {'a': output}.size() == 1",
        ],
    )
    def test_what_counts_characters_and_what_names_positions_mean_code_points(self, text: str, expression: str) -> None:
        assert evaluate(expression, output=text, input=len(text)) is True


EXPLOSIVE = "output.lines" + "".join(f".all({name}, output.lines" for name in "abcdefgh") + ".size() > 0" + ")" * 8


def lines(count: int) -> dict[str, Any]:
    return {"lines": [{"text": f"line {number}", "amount": 1.5} for number in range(count)]}


class TestProcesses:
    """Expressions that would hold up the event loop or fill the memory run in a process that is stopped."""

    @pytest.mark.parametrize(
        ("text", "output", "is_slow"),
        [
            ("output.lines.map(l, l.amount).sum() > 0.0", lines(30), False),
            ("output.lines.all(a, output.lines.exists(b, a.text == b.text))", lines(30), False),
            ("output.lines.map(l, l.text.split(' ')).flatten().distinct().size()", lines(30), False),
            (EXPLOSIVE, lines(30), True),
            ("output.text.size()", {"text": "x" * 1_500_000}, True),
            ("output.list[7]", {"list": list(range(50_000))}, True),
            ("output.lines.filter(l, true).size()", lines(2_000), True),
            ("lists.range(9999).map(x, lists.range(9999).map(y, x))", {}, True),
            ("output.text.split('').filter(a, a == 'x')", {"text": "x" * 5_000}, True),
            ("(output.l" + " + output.l" * 300 + ").map(a, a)", {"l": list(range(30))}, True),
            ("[0]" + ".map(x, [x, x])" * 40, {}, True),
        ],
    )
    def test_only_what_would_hold_up_the_event_loop_needs_one(self, text: str, output: Any, is_slow: bool) -> None:
        assert (Scope({"output": output}).evaluate(parse(text)) is NEEDS_PROCESS) == is_slow

    async def test_what_would_fill_the_memory_is_stopped(self) -> None:
        with pytest.raises(ExpressionError, match="too much memory"):
            await evaluate_expression("['abc']" + ".map(x, x + x)" * 40 + ".map(x, x.size())", {}, timeout=10)

    async def test_one_gives_the_same_value_in_the_same_order_and_says_what_fails(self) -> None:
        text = "output.lines.filter(a, a.amount > 1.0).map(a, {'text': a.text, 'amount': a.amount})"
        result = await evaluate_expression(text, {"output": lines(500)}, timeout=20)
        assert (result, list(result[0])) == (lines(500)["lines"], ["text", "amount"])
        with pytest.raises(ExpressionError, match="no key 'missing'"):
            await evaluate_expression("output.lines.map(a, a.missing)", {"output": lines(2_000)}, timeout=20)

    async def test_that_of_a_run_that_is_cancelled_is_killed_and_makes_room(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        started: asyncio.Queue[Process] = asyncio.Queue()
        create = asyncio.create_subprocess_exec

        async def note(*args: Any, **options: Any) -> Process:
            process = await create(*args, **options)
            started.put_nowait(process)
            return process

        monkeypatch.setattr(asyncio, "create_subprocess_exec", note)
        for _ in range(expression_process.MAX_PROCESSES + 1):
            evaluation = asyncio.ensure_future(evaluate_expression(EXPLOSIVE, {"output": lines(30)}, timeout=600))
            process = await asyncio.wait_for(started.get(), timeout=60)
            evaluation.cancel()
            with pytest.raises(asyncio.CancelledError):
                await evaluation
            assert process.returncode == -signal.SIGKILL
