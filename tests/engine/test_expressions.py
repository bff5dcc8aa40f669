"""The expression language: what is refused on saving, what comes out, and what happens to what would never end."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flows.engine.errors import ExpressionError
from flows.engine.expression_functions import MAX_PRODUCED
from flows.engine.expression_scanner import scan, split_tokens
from flows.engine.expressions import FIELD_VARIABLES, MAX_LENGTH, Scope
from flows.engine.plugins import PREFIX
from tests.engine.expression_scope import OUTPUT, evaluate, parse


class TestParsing:
    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("", "The expression is empty."),
            ("  \n", "The expression is empty."),
            ("x" * (MAX_LENGTH + 1), "The expression has 4,001 characters; at most 4,000 are allowed."),
            ("output\0", "Line 1, column 7: an expression can't hold NUL"),
            ("'\ud800'", "Line 1, column 2: an expression can't hold NUL or half of a surrogate pair."),
            ("output.count +", "Line 1, column 15: the expression ends too early."),
            ("// only a comment", "Line 1, column 18: the expression ends too early."),
            ("(output.count", "Line 1, column 1: the “(” that opens here is never closed."),
            ("(" * 96 + "1" + ")" * 96, "Line 1, column 96: the expression is nested deeper than 95 levels here."),
            ("output.tags[0", "Line 1, column 12: the “[” that opens here is never closed."),
            ("output.count)", "Line 1, column 13: this “)” closes no bracket."),
            ("(output.tags]", "Line 1, column 13: this “]” closes no bracket; “)” is expected."),
            ("output.title == 'x", "Line 1, column 17: the text that begins here has no closing '"),
            ("output.title == “x”", "Line 1, column 17: ““” can't stand here; use straight quotes"),
            ("'\\q'", "Line 1, column 1: this text has a wrong escape"),
            ("output.count = 1", "Line 1, column 14: “=” can't stand here; write “==” to compare."),
            ("output.count === 1", "Line 1, column 16: “=” can't stand here; write “==” to compare."),
            ("output.count > 1 and true", "Line 1, column 18: write “&&” for “and”."),
            ("output.count > 1 or true", "Line 1, column 18: write “||” for “or”."),
            ("not output.empty", "Line 1, column 1: write “!” for “not”."),
            ("output.count & 1", "Line 1, column 14: “&” can't stand here; write “&&” for “and”."),
            ("if output.count then 1", "Line 1, column 1: a choice is written “condition ? a : b”."),
            ("output.count ? 1", "Line 1, column 14: a choice needs two values: condition ? a : b."),
            ("output.?count", "Line 1, column 7: optional keys are not supported; write has(x.key) ? x.key : other."),
            ("output.count ?? 1", "Line 1, column 14: optional keys are not supported"),
            ("output.lines.map(x => x)", "Line 1, column 20: “=” can't stand here"),
            ("output.tags # sorted", "Line 1, column 13: “#” can't stand here; a comment begins with //."),
            ("output.count $ 2", "Line 1, column 14: “$” can't stand here."),
            ("output.count 2", "Line 1, column 14: “2” can't stand here"),
            ("let", "Line 1, column 1: “let” is a reserved word"),
            ("99999999999999999999", "Line 1, column 1: the number is too large."),
            ("has(output)", "Line 1, column 5: has(…) takes a key of something: has(output.title)."),
            ("output.tags.all(1, true)", "Line 1, column 17: the first argument must be a name of your own"),
            ("output.count >\n  1 +", "Line 2, column 6: the expression ends too early."),
        ],
    )
    def test_a_text_that_is_no_expression_is_refused_with_its_place_and_what_would_be_right(
        self, text: str, says: str
    ) -> None:
        with pytest.raises(ExpressionError) as refusal:
            parse(text)
        assert str(refusal.value).startswith(says)
        assert (refusal.value.line is not None) == says.startswith("Line")

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            (
                "ouput.title",
                "Line 1, column 1: Unknown variable “ouput”. Available here: input, item, output, steps. Did you mean",
            ),
            (
                "output.count == None",
                "Line 1, column 17: Unknown variable “None”. Available here: input, item, output, ",
            ),
            ("output.title ==\n  foo", "Line 2, column 3: Unknown variable “foo”."),
            ("{'a': b}", "Line 1, column 7: Unknown variable “b”."),
            ("len(output.tags)", "Line 1, column 1: Unknown function “len”. Did you mean “size(x)”?"),
            (
                "output.title.lowerASCII()",
                "Line 1, column 14: Unknown function “lowerASCII”. Did you mean “lowerAscii”?",
            ),
            ("math.flor(1.5)", "Line 1, column 6: Unknown function “math.flor”. Did you mean “math.floor”?"),
            ("round(1.5)", "Line 1, column 1: Unknown function “round”. Did you mean “math.round(x)”?"),
            ("size", "Line 1, column 1: “size” is no variable; it belongs to a function and its brackets."),
            ("output.tags.map(t)", "Line 1, column 13: “map” is used as list.map(x, value)."),
            ("output.title.matches('[')", "Line 1, column 22: “[” is no regular expression that can be used here."),
            ("output.title.matches(r'(?=x)')", "Line 1, column 22: “(?=x)” is no regular expression"),
        ],
    )
    def test_an_unknown_name_is_refused_with_its_place_and_a_suggestion(self, text: str, says: str) -> None:
        with pytest.raises(ExpressionError) as refusal:
            parse(text)
        assert str(refusal.value).startswith(says)

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("Total", "Available here: input, item, output, steps. If it is meant as text, put it in quotes: 'Total'."),
            ("too-short", "If it is meant as text, put it in quotes: 'too-short'."),
            ("Please check the total.", "this is no expression. If it is meant as text, put it in quotes: 'Please"),
            ("Total is wrong", "write “==” to compare. If it is meant as text, put it in quotes: 'Total is wrong'."),
            ("It isn't the total!", 'put it in quotes: "It isn\'t the total!".'),
            ("Two\nlines", "put it in quotes: 'Two lines'."),
            ("word " * 300, "put it in quotes: 'word word word word word word word word word word word word…'."),
            ("/lines/0/amount", "this is no expression. If it is meant as text, put it in quotes: '/lines/0/amount'."),
        ],
    )
    def test_text_that_stands_without_quotes_is_told_that_it_needs_them(self, text: str, says: str) -> None:
        with pytest.raises(ExpressionError) as refusal:
            parse(text)
        assert says in str(refusal.value)

    @pytest.mark.parametrize("text", ["ouput", "outputs", "output.count 2", "output.title == foo", "// comment", "let"])
    def test_what_is_rather_a_slip_is_not_told_so(self, text: str) -> None:
        with pytest.raises(ExpressionError) as refusal:
            parse(text)
        assert "in quotes" not in str(refusal.value)

    @pytest.mark.parametrize(
        ("text", "unknown"),
        [
            ("output.tags.all(t, t != '') && t == ''", "t"),
            ("output.tags.all(t, u != '')", "u"),
            ("t.all(t, t != '')", "t"),
            ("output.lines.map(a, a.text).filter(b, a != b)", "a"),
            ("output.lines.map(a, output.tags.map(b, b)).filter(c, b != c)", "b"),
        ],
    )
    def test_the_name_of_an_element_is_known_in_its_loop_only(self, text: str, unknown: str) -> None:
        with pytest.raises(ExpressionError, match=f"Unknown variable “{unknown}”"):
            parse(text)

    @pytest.mark.parametrize(
        ("text", "reads"),
        [
            ("output.input", {"output"}),
            ("output.lines.map(a, output.tags.map(b, a.text + b))", {"output"}),
            ("output.tags.map(input, input)", {"output"}),
            ("{'input': output.title, output.title: 1}", {"output"}),
            ("'input' + output.title // item\n + 'x'", {"output"}),
            ("'''it's input''' + r'\\input' + \"\\\"input\"", set()),
            ("has(input.plan) && input['plan'] == 'x'", {"input"}),
            ("math.greatest(1, 2) in lists.range(3)", set()),
            ("type(output) == map", {"output"}),
            ("output . tags . map ( t , t )", {"output"}),
        ],
    )
    def test_it_is_known_which_variables_an_expression_reads(self, text: str, reads: set[str]) -> None:
        assert parse(text).variables == reads

    def test_an_expression_is_compiled_once(self) -> None:
        assert parse("output.count + 12345") is parse("output.count + 12345")

    def test_thousands_of_brackets_and_operators_are_refused_or_read_and_never_a_crash(self) -> None:
        for text in (
            "(" * 4_000,
            "[" * 2_000 + "]" * 2_000,
            "!" * 3_990 + "true",
            "1" + "+1" * 1_900,
            "output" + ".a" * 1_900,
        ):
            with suppress(ExpressionError):
                evaluate(text)

    def test_each_field_of_a_flow_has_its_variables(self) -> None:
        assert FIELD_VARIABLES["rule"] == {"output", "input", "steps"}
        assert FIELD_VARIABLES["message"] == FIELD_VARIABLES["path"] == {"output", "input", "steps", "item"}
        assert PREFIX not in {name for variables in FIELD_VARIABLES.values() for name in variables}


class TestValues:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("output.lines.map(l, l.amount).sum() == output.net", True),
            ("output.lines.filter(l, l.amount > 100.0)", [{"text": "Paper", "amount": 120.0}]),
            ("output.tags.distinct()", ["b", "a"]),
            ("[1, 1.0, true, 1].distinct()", [1, True]),
            ("[{'a': 1}, {'a': 1}, 'x'].distinct()", [{"a": 1}, "x"]),
            ("output.tags.join(', ')", "b, a, b"),
            ("output.title.replace('O', '0').upperAscii()", "0CTOBER"),
            ("output.title.split('')[0]", "O"),
            ("output.title.matches('^[A-Z][a-z]+$')", True),
            ("matches(output.title, 'x')", False),
            ("lists.range(3)", [0, 1, 2]),
            ("weight('low') + weight('medium') + weight('high') + weight('critical')", 15),
            ("has(output.missing) ? output.missing : 'none'", "none"),
            ("output.empty.first()", None),
            ("output.tags.first()", "b"),
            ("optional.none().orValue(3)", 3),
            ("timestamp('2030-01-31T12:00:00Z')", "2030-01-31T12:00:00Z"),
            ("duration('1h30m')", "5400s"),
            ("type(output.count)", "int"),
            ("1u", 1),
            ("{1: 'a', 2: 'b'}", {"1": "a", "2": "b"}),
            ("{true: 'a'}", {"true": "a"}),
            ("base64.encode(bytes('a'))", "YQ=="),
            ("output.note", None),
            ("math.round(output.net)", 132.0),
        ],
    )
    def test_the_result_is_a_json_value(self, text: str, value: Any) -> None:
        result = evaluate(text)
        assert result == value
        assert type(result) is type(value)

    def test_the_result_shares_nothing_with_the_variables(self) -> None:
        result = evaluate("output")
        result["lines"][0]["text"] = "changed"
        assert OUTPUT["lines"][0]["text"] == "Paper"

    def test_keys_come_out_in_the_order_of_the_variables_and_of_the_text(self) -> None:
        # The library loses the order: of 20 tries each would come out in another one.
        for _ in range(20):
            assert list(evaluate("output")) == list(OUTPUT)
            assert list(evaluate("{'z': 1, 'title': 2, 'a': output.lines[0]}")) == ["z", "title", "a"]
            assert list(evaluate("output.lines")[1]) == ["text", "amount"]
            assert list(evaluate("{'amount': output.net, 'text': output.title}")) == ["amount", "text"]

    def test_a_loop_through_a_map_meets_its_keys_in_order(self) -> None:
        steps = [{"output": {"z": 1, "m": 2, "a": 3}}]
        for _ in range(20):
            assert evaluate("output.colours.map(key, key)") == ["primary", "accent", "border"]
            assert evaluate("output.colours.filter(key, output.colours[key].startsWith('#'))") == ["primary", "border"]
            assert evaluate("output['colours'].map(key, output.colours[key])") == ["#1f4e5f", "copper", "#1f4e5f"]
            assert evaluate("steps.map(s, s.output.map(key, key))", steps=steps) == [["z", "m", "a"]]
            assert evaluate("steps[0].output.map(key, key)", steps=steps) == ["z", "m", "a"]

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ("output.missing", "There is no key “missing” for “output.missing”. Ask first with has(output.missing)."),
            ("output['missing']", "There is no key “missing”. Ask first with 'missing' in x."),
            ("output.tags[3]", "There is no element 3 in the list."),
            ("1 / 0", "A number is divided by zero."),
            ("9223372036854775807 + 1", "A number is beyond the range of a 64-bit int"),
            ("output.count + 1.5", "The types don't fit"),
            ("output.title + 1", "“+” can't take text and an int; int and double don't mix"),
            ("output.note.text", "The types don't fit"),
            ("output.title ? 1 : 2", "The types don't fit"),
            ("size(output.count)", "“size” does not take these values here. “size(x)” gives how many characters"),
            ("int(output.title)", "“int” does not take these values here."),
            ("output.title.charAt(99)", "“text.charAt(index)” can't be worked out: charAt: index 99 out of range"),
            ("weight('urgent')", "“weight(severity)” can't be worked out: “urgent” is no severity; low, medium, high"),
            ("[1, 'a'].join()", "“list.join(separator)” can't be worked out: join takes a list of texts"),
            ("max('a', 1)", "“max(list)” can't be worked out: the values are not what it takes"),
            (
                "output.title.matches('(' + output.title)",
                "“text.matches(pattern)” can't be worked out: “(October” is no",
            ),
            ("lists.range(20000)", "“lists.range(n)” can't be worked out: lists.range: 20000 is out of range"),
            ("0.0 / 0.0", "The result holds NaN or an infinite number"),
            ("b'abc'", "The result holds bytes, which JSON doesn't know"),
            ("item", "The variable “item” has no value here."),
        ],
    )
    def test_what_fails_is_told_in_words_of_the_one_who_wrote_it(
        self, text: str, says: str, capfd: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(ExpressionError) as failure:
            evaluate(text)
        assert str(failure.value).startswith(says)
        assert capfd.readouterr() == ("", ""), "the library prints what functions raise"

    def test_an_error_that_does_not_matter_is_absorbed(self) -> None:
        assert evaluate("output.missing == 1 || true") is True
        assert evaluate("output.missing == 1 && false") is False

    @pytest.mark.parametrize("value", [10**400, "\ud800", object(), {"a": {1: 2}}, {1: 2}])
    def test_a_variable_that_can_not_be_read_is_an_error_and_no_crash(self, value: Any) -> None:
        with pytest.raises(ExpressionError, match="The variable “output” holds"):
            evaluate("output == 1", output=value)

    def test_a_variable_of_a_hundred_thousand_levels_is_refused(self) -> None:
        deep: Any = 1
        for _ in range(100_000):
            deep = [deep]
        with pytest.raises(ExpressionError, match="nested too deeply"):
            evaluate("output", output=deep)

    def test_numbers_beyond_64_bits_are_seen_as_doubles(self) -> None:
        assert evaluate("output > 1.0e20", output=10**30) is True

    def test_functions_can_not_be_made_to_fill_the_memory(self) -> None:
        text = "output.title" + ".replace('', 'aaaaaaaaaa')" * 20
        with pytest.raises(ExpressionError, match=f"more than {MAX_PRODUCED:,} characters"):
            evaluate(text)


class CountingVariables(Mapping[str, Any]):
    """Variables that note how often each was asked for."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values
        self.asked: list[str] = []

    def __getitem__(self, name: str) -> Any:
        self.asked.append(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class TestScope:
    def test_only_variables_that_are_named_are_read(self) -> None:
        variables = CountingVariables({"output": OUTPUT, "input": {}, "steps": []})
        Scope(variables).evaluate(parse("output.count"))
        assert variables.asked == ["output"]

    def test_extra_variables_are_those_of_one_evaluation(self) -> None:
        scope = Scope({"output": OUTPUT})
        message = parse("item.text + ' of ' + output.title")
        assert scope.evaluate(message, item={"text": "Paper"}) == "Paper of October"
        assert scope.evaluate(message, item={"text": "Freight"}) == "Freight of October"
        with pytest.raises(ExpressionError, match="“item” has no value here"):
            scope.evaluate(message)

    def test_an_extra_variable_goes_before_one_of_the_same_name(self) -> None:
        scope = Scope({"output": OUTPUT})
        assert scope.evaluate(parse("output.title"), output={"title": "mine"}) == "mine"
        assert scope.evaluate(parse("output.title")) == "October"

    def test_scopes_work_beside_each_other_in_threads(self) -> None:
        results: list[Any] = []

        def work(number: int) -> None:
            scope = Scope({"output": {"n": number}})
            results.extend(scope.evaluate(parse("output.n")) == number for _ in range(200))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(results) == 800 and all(results)


SNIPPETS = st.sampled_from(
    [*"x)([]{}+-?:,.!=1 \n", "output", "input", ".map(x, ", ".all(x, ", "'a'", '"', "&&", "||", "==", "1.5", "null"]
) | st.sampled_from(["true", "size(", "matches(", "//", "lists.range(", "has(", "in", "é"])


class TestAnyText:
    @given(st.text(max_size=60) | st.lists(SNIPPETS, max_size=14).map("".join))
    @settings(max_examples=300, deadline=None)
    def test_no_text_raises_anything_but_an_expression_error(self, text: str) -> None:
        try:
            expression = parse(text)
            Scope({"output": OUTPUT, "input": {}, "steps": [], "item": None}).evaluate(expression)
        except ExpressionError as error:
            sentence = str(error)
        else:
            sentence = "."
        assert sentence.endswith((".", "?"))

    @given(st.text(max_size=60) | st.lists(SNIPPETS, max_size=14).map("".join))
    def test_any_text_can_be_scanned(self, text: str) -> None:
        scan(text)
        for token in split_tokens(text):
            assert text[token.start : token.end] == token.text


def test_the_engine_evaluates_without_django() -> None:
    code = (
        "import sys; sys.modules['django'] = None\n"
        "from flows.engine.expressions import Scope, parse_expression\n"
        "print(Scope({'output': 1}).evaluate(parse_expression('output + 1', variables=frozenset({'output'}))))"
    )
    finished = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert finished.stdout == "2\n"
