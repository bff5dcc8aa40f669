"""The functions of expressions: what they give, and that they are listed."""

from __future__ import annotations

import pytest

from flows.engine.expression_functions import FUNCTIONS, IMPLEMENTATIONS, KEYS, LOOPS, REPLACED
from tests.engine.expression_parts import evaluate


class TestFunctions:
    def test_every_function_that_is_registered_is_listed(self) -> None:
        assert set(IMPLEMENTATIONS) - {KEYS, *REPLACED.values()} <= set(FUNCTIONS)
        assert set(FUNCTIONS) > LOOPS

    @pytest.mark.parametrize(
        ("name", "example"),
        [
            ("size", "size('a') == 1"),
            ("dyn", "dyn(1) == 1"),
            ("uint", "uint(1) == 1u"),
            ("double", "double(1) == 1.0"),
            ("string", "string(1) == '1'"),
            ("bool", "bool('true')"),
            ("contains", "'abc'.contains('b') && ['a'].contains('a')"),
            ("endsWith", "'abc'.endsWith('c')"),
            ("indexOf", "'abc'.indexOf('b') == 1"),
            ("lastIndexOf", "'abb'.lastIndexOf('b') == 2"),
            ("substring", "'abc'.substring(1) == 'bc'"),
            ("lowerAscii", "'Ab'.lowerAscii() == 'ab'"),
            ("trim", "' a '.trim() == 'a'"),
            ("reverse", "[1, 2].reverse() == [2, 1]"),
            ("min", "min([2, 1]) == 1"),
            ("flatten", "[[1], [2]].flatten() == [1, 2]"),
            ("slice", "[1, 2, 3].slice(1, 2) == [2]"),
            ("sort", "[2, 1].sort() == [1, 2]"),
            ("last", "[1, 2].last().value() == 2"),
            ("hasValue", "optional.of(1).hasValue()"),
            ("getFullYear", "timestamp('2030-02-01T03:04:05Z').getFullYear() == 2030"),
            ("getMonth", "timestamp('2030-02-01T03:04:05Z').getMonth() == 1"),
            ("getDate", "timestamp('2030-02-01T03:04:05Z').getDate() == 1"),
            ("getDayOfMonth", "timestamp('2030-02-01T03:04:05Z').getDayOfMonth() == 0"),
            ("getDayOfWeek", "timestamp('2030-02-01T03:04:05Z').getDayOfWeek() == 5"),
            ("getDayOfYear", "timestamp('2030-02-01T03:04:05Z').getDayOfYear() == 31"),
            ("getHours", "timestamp('2030-02-01T03:04:05Z').getHours() == 3"),
            ("getMinutes", "timestamp('2030-02-01T03:04:05Z').getMinutes() == 4"),
            ("getSeconds", "timestamp('2030-02-01T03:04:05Z').getSeconds() == 5"),
            ("getMilliseconds", "timestamp('2030-02-01T03:04:05.006Z').getMilliseconds() == 6"),
            ("exists_one", "[1, 2].exists_one(x, x == 1)"),
            ("strings.quote", "strings.quote('a') == '\"a\"'"),
            ("base64.decode", "base64.decode('YQ==') == b'a'"),
            ("sets.contains", "sets.contains([1, {'a': 2}], [{'a': 2.0}]) && !sets.contains([1], [true])"),
            ("sets.equivalent", "sets.equivalent([1, 2, 2], [2, 1]) && !sets.equivalent([1], [1, 2])"),
            ("sets.intersects", "sets.intersects([1, 2], [2]) && !sets.intersects([1], [2])"),
            ("math.least", "math.least(2, 1) == 1"),
            ("math.abs", "math.abs(-1) == 1"),
            ("math.sign", "math.sign(-3) == -1"),
            ("math.ceil", "math.ceil(1.2) == 2.0"),
            ("math.trunc", "math.trunc(-1.7) == -1.0"),
            ("math.sqrt", "math.sqrt(4.0) == 2.0"),
            ("math.isNaN", "math.isNaN(0.0 / 0.0)"),
            ("math.isInf", "math.isInf(1.0 / 0.0)"),
            ("math.isFinite", "math.isFinite(1.0)"),
            ("math.bitOr", "math.bitOr(1, 2) == 3"),
            ("math.bitAnd", "math.bitAnd(3, 2) == 2"),
            ("math.bitXor", "math.bitXor(3, 2) == 1"),
            ("math.bitNot", "math.bitNot(0) == -1"),
            ("math.bitShiftLeft", "math.bitShiftLeft(1, 2) == 4"),
            ("math.bitShiftRight", "math.bitShiftRight(4, 2) == 1"),
        ],
    )
    def test_a_function_that_is_listed_works(self, name: str, example: str) -> None:
        assert name in FUNCTIONS
        assert evaluate(example) is True


@pytest.mark.parametrize("text", ["Ωμέγα", "مرحبا بك", "👨‍👩‍👧!", "e\u0301a\u0308x", "\U00010400\U00010401b"])
@pytest.mark.parametrize(
    "expression",
    [
        "output.size() == input && size(output) == input && (output + output).size() == 2 * input",
        "[output, output].map(t, size(t + t)).sum() == 4 * input",
        "output.substring(0, output.size()) == output && output.substring(output.size()) == ''",
        "lists.range(output.size()).map(i, output.charAt(i)).join('') == output",
        "output.indexOf(output.substring(1)) == 1",
        "output.matches('^.{' + string(output.size()) + '}$')",
        "output.split(output.charAt(0)).join(output.charAt(0)) == output",
        "bytes(output).size() > output.size() && size(base64.decode(base64.encode(bytes(output)))) > output.size()",
        "size([output]) == 1 && [output] . size( ) == 1 && size({output: 1}) == 1 && {'a': output}.size() == 1",
    ],
)
def test_what_counts_characters_and_what_names_positions_mean_code_points(text: str, expression: str) -> None:
    assert evaluate(expression, output=text, input=len(text)) is True
