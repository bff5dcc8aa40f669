"""The expression language: what is refused on saving, what comes out, and in which order."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flows.engine.cel_evaluation import Scope
from flows.engine.errors import ExpressionError
from flows.engine.expressions import MAX_LENGTH
from tests.engine.expression_parts import OUTPUT, evaluate, evaluate_expression, parse


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("  \n", None, "empty"),
        ("x" * (MAX_LENGTH + 1), None, "at most 4,000"),
        ("output\0", (1, 7), "NUL"),
        ("'\ud800'", None, ""),
        ("output.count >\n  1 +", (2, 6), ""),
        ("output.count)", (1, 13), "')'"),
        ("(" * 97 + "1" + ")" * 97, (1, 97), "nested too deeply"),
        ("output.title == 'x", (1, 17), "closing quote"),
        ("output.title == “x”", (1, 17), "straight quotes"),
        ("output.count = 1", (1, 14), "write “==”"),
        ("output.tags.all(1, true)", (1, 17), "simple name"),
        ("output.tags.map(t)", (1, 13), "list.map(x, value)"),
        ("ouput.title", (1, 1), "“output”?"),
        ("output.title ==\n  foo", (2, 3), "“foo”"),
        ("output.count == None", (1, 17), "“null”?"),
        ("len(output.tags)", (1, 1), "“size(x)”?"),
        ("math.flor(1.5)", (1, 6), "“math.floor”?"),
        ("output.title.matches('[')", (1, 22), "no regular expression"),
        ("matches(output.title, r'(?=x)')", (1, 23), "no regular expression"),
        ("output.title.matches('\\\\d(')", (1, 22), "no regular expression"),
        ("output.tags.all(t, t != '') && t == ''", (1, 32), "“t”"),
        ("t.all(t, t != '')", (1, 1), "“t”"),
        ("output.lines.map(a, a.text).filter(b, a != b)", (1, 39), "“a”"),
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
    ("text", "reads"),
    [
        ("output.lines.map(a, output.tags.map(b, a.text + b))", {"output"}),
        ("{'input': output.title, output.title: 1}", {"output"}),
        ("'input' + output.input // item\n + 'x'", {"output"}),
        ("'''it's input''' + r'\\input' + \"\\\"input\"", set()),
        ("has(input.plan) && input['plan'] == 'x'", {"input"}),
        ("math.greatest(1, 2) in lists.range(3) && type(output) == map", {"output"}),
    ],
)
def test_it_is_known_which_variables_an_expression_reads(text: str, reads: set[str]) -> None:
    assert parse(text).variables == reads


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("output.lines.map(l, l.amount).sum() == output.net", True),
        ("output.lines.filter(l, l.amount > 100.0)", [{"text": "Paper", "amount": 120.0}]),
        ("[1, 1.0, true, 1].distinct()", [1, True]),
        ("[{'a': 1}, {'a': 1.0}, 'x'].distinct()", [{"a": 1}, "x"]),
        ("output.tags.join(', ')", "b, a, b"),
        ("output.title.matches('^[A-Z][a-z]+$')", True),
        ("matches(output.title, 'x')", False),
        ("weight('low') + weight('medium') + weight('high') + weight('critical')", 15),
        ("has(output.missing) ? output.missing : 'none'", "none"),
        ("output.empty.first()", None),
        ("output.tags.first()", "b"),
        ("timestamp('2030-01-31T12:00:00Z')", "2030-01-31T12:00:00Z"),
        ("duration('1h30m')", "5400s"),
        ("{1: 'a', 2: 'b'}", {"1": "a", "2": "b"}),
        ("{true: 'a'}", {"true": "a"}),
        ("output.note", None),
        ("math.round(output.net)", 132.0),
        ("output.count < 2.5", True),
    ],
)
def test_the_result_is_a_json_value(text: str, value: Any) -> None:
    result = evaluate(text)
    assert result == value
    assert type(result) is type(value)


def test_numbers_beyond_64_bits_are_seen_as_doubles() -> None:
    assert evaluate("output > 1.0e20", output=10**30) is True


def test_keys_come_out_in_the_order_of_the_text_and_of_the_variables() -> None:
    steps = [{"output": {"z": 1, "m": 2, "a": 3}}]
    # The library loses the order: of 20 tries each would come out in another one.
    for _ in range(20):
        assert list(evaluate("output")) == list(OUTPUT)
        assert list(evaluate("{'z': 1, 'title': 2, 'a': output.lines[0]}")) == ["z", "title", "a"]
        assert list(evaluate("output.lines")[1]) == ["text", "amount"]
        assert list(evaluate("{'amount': output.net, 'text': output.title}")) == ["amount", "text"]
        assert evaluate("output.colours.map(key, key)") == ["primary", "accent", "border"]
        assert evaluate("output['colours'].map(key, output.colours[key])") == ["#1f4e5f", "copper", "#1f4e5f"]
        assert evaluate("steps.map(s, s.output.filter(key, true))", steps=steps) == [["z", "m", "a"]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("output.missing", "no key 'missing'"),
        ("output.tags[3]", "Ask size(list) first."),
        ("1 / 0", "division by zero"),
        ("output.count + 1.5", "Write int(x), double(x)"),
        ("output.note.text", "null has no keys"),
        ("output.title ? 1 : 2", "conditions must be true or false"),
        ("int(output.title)", "“int” does not take these values"),
        ("size(output.count)", "“size(x)”"),
        ("weight('urgent')", "urgent"),
        ("[1, 'a'].join()", "write list.map(x, string(x))"),
        ("output.title.matches('(' + output.title)", "“(October” is no"),
        ("lists.range(20000)", "out of range"),
        ("output.title" + ".replace('', 'aaaaaaaaaa')" * 20, "more than 1,000,000 characters"),
        ("0.0 / 0.0", "NaN"),
        ("b'abc'", "bytes"),
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


def test_extra_variables_are_those_of_one_evaluation() -> None:
    scope = Scope({"output": OUTPUT})
    message = parse("item.text + ' of ' + output.title")
    for text in ("Paper", "Freight"):
        assert scope.evaluate(message, {"item": {"text": text}}) == f"{text} of October"
    assert scope.evaluate(parse("output.title"), {"output": {"title": "mine"}}) == "mine"
    assert scope.evaluate(parse("output.title")) == "October"
    with pytest.raises(ExpressionError, match="“item” has no value here"):
        scope.evaluate(message)


def test_evaluations_work_beside_each_other() -> None:
    results: list[Any] = []

    def work(number: int) -> None:
        output = {"n": [number] * 3}
        results.extend(evaluate("output.n.distinct()[0]", output=output) == number for _ in range(50))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 200 and all(results)


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
@settings(max_examples=200, deadline=None)
def test_no_text_raises_anything_but_an_expression_error(text: str) -> None:
    variables: dict[str, Any] = {"output": OUTPUT, "input": {}, "steps": [], "item": None}
    with suppress(ExpressionError):
        asyncio.run(evaluate_expression(parse(text), variables))


def test_the_engine_evaluates_without_django() -> None:
    code = (
        "import sys; sys.modules['django'] = None\n"
        "from flows.engine.cel_evaluation import Scope\n"
        "from flows.engine.expressions import parse_expression\n"
        "expression = parse_expression('output + 1', variables=frozenset({'output'}))\n"
        "print(Scope({'output': 1}).evaluate(expression))"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout == "2\n"
