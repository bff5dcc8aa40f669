"""Shows a pass rule with its values put in: “2 + 2 + 1 + 1 = 6, limit 4”.

``cel`` gives no tree of an expression. Its tokens are split here into conditions joined by ``&&`` and ``||``, and the
parts of each condition are evaluated over the same variables as the rule.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flows.engine.cel_evaluation import NEEDS_PROCESS, Scope, measure
from flows.engine.errors import ExpressionError
from flows.engine.expressions import FIELD_VARIABLES, Token, parse_expression, split_tokens
from flows.engine.json_values import shorten

MAX_VALUES = 6_000
"""Values of the variables (see ``measure``) up to which a rule is explained."""
MAX_CONDITIONS = 12
"""Conditions that are explained one by one; a rule of more is shown with its result alone."""
MAX_NUMBERS = 8
"""Numbers of a sum that are shown."""
_MAX_EVALUATIONS = 250
_CAUTION = 8
"""An evaluation must stay this many times below what runs evaluate in their process: a page shows many rules."""
_VALUE_LENGTH = 40

_VARIABLES = FIELD_VARIABLES["pass_expression"]
_PAIRS = {")": "(", "]": "[", "}": "{"}
_MIRRORED = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}
_NEGATED = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "==": "!=", "!=": "==", "in": "not in"}
_BOUNDS = {
    "<": "must be below {}",
    "<=": "limit {}",
    ">": "must be above {}",
    ">=": "at least {} needed",
    "==": "must be {}",
    "!=": "must not be {}",
    "in": "must be one of {}",
    "not in": "must be none of {}",
}
_LOOPS = {"all": ("all must", "not all may"), "exists": ("at least 1 needed", "none allowed")}
"""What is asked of the elements that match, and what is where it is negated."""
_OF_SEVERITY = re.compile(r"""\w+\s*\.\s*severity\s*==\s*['"](\w+)['"]""", re.ASCII)


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a rule, as it is written, with its values."""

    text: str
    values: str
    """“2 + 2 + 1 + 1 = 6, limit 4”; empty where they can't be shown."""
    holds: bool | None
    """None where it can't be evaluated by itself, as behind an ``&&`` that guards it."""


@dataclass(frozen=True, slots=True)
class RuleExplanation:
    """What a rule gives, condition by condition."""

    result: bool
    conditions: tuple[Condition, ...]
    joined_by: str = ""
    """``and`` or ``or``; empty for one condition."""


class PassRule:
    """A pass rule in CEL over the issues and the output of one attempt. Belongs to one thread."""

    def __init__(self, text: str, variables: Mapping[str, Any]) -> None:
        """``variables`` are ``issues`` and ``output``, or those of them that are known."""
        self.text = text
        self._variables = variables
        self._scope = Scope(variables)
        self._left = _MAX_EVALUATIONS
        self._sums: list[str] = []

    def explain(self) -> RuleExplanation | None:
        """The rule with its values put in; None where it can't be evaluated, or not within milliseconds."""
        self._sums = []
        try:
            result = self._evaluate(self.text)
        except ExpressionError:
            return None
        if not isinstance(result, bool):
            return None
        parts, joined_by = _split_conditions(_Span(self.text, split_tokens(self.text)).strip())
        return RuleExplanation(result, tuple(map(self._explain_condition, parts)), joined_by)

    def passes_with(self, issues: Sequence[Mapping[str, Any]]) -> bool | None:
        """Whether the output would pass with these issues; None where that can't be evaluated."""
        try:
            result = self._evaluate(self.text, issues)
        except ExpressionError:
            return None
        return result if isinstance(result, bool) else None

    def list_weights(self, issues: Sequence[Mapping[str, Any]]) -> list[float] | None:
        """What these issues add to the sum of the rule; None where it has not one sum that only issues go into.

        To be called after ``explain``.
        """
        if len(self._sums) != 1:
            return None
        try:
            numbers = self._evaluate(self._sums[0], issues)
        except ExpressionError:
            return None
        return numbers if _is_numbers(numbers) else None

    def _evaluate(self, text: str, issues: Sequence[Mapping[str, Any]] | None = None) -> Any:
        """The value of a part of the rule. Raises ``ExpressionError`` also where it would take long."""
        expression = parse_expression(text, variables=_VARIABLES)
        extra = {} if issues is None else {"issues": list(issues)}
        used = {name: value for name, value in {**self._variables, **extra}.items() if name in expression.variables}
        measures = [measure(value) for value in used.values()]
        size = sum(size for size, _ in measures)
        longest = max((longest for _, longest in measures), default=1)
        self._left -= 1
        if self._left < 0 or size > MAX_VALUES or not expression.work.is_quick(size * _CAUTION, longest):
            raise ExpressionError("It would take long.")
        value = self._scope.evaluate(expression, extra)
        if value is NEEDS_PROCESS:
            raise ExpressionError("It would take long.")
        return value

    def _explain_condition(self, span: _Span) -> Condition:
        holds, values = None, ""
        try:
            result = self._evaluate(span.text)
            holds = result if isinstance(result, bool) else None
            values = self._describe(span.strip())
        except ExpressionError:
            pass
        return Condition(span.text, values, holds)

    def _describe(self, span: _Span, *, is_negated: bool = False) -> str:
        """The values of one condition; of no common shape those of the variables in it."""
        if span.tokens and span.words[0] == "!" and not span.split(*_BOUNDS, "&&", "||", "?")[1]:
            return self._describe(span[1:].strip(), is_negated=not is_negated)
        sides, operators = span.split(*_BOUNDS, "&&", "||", "?")
        if len(operators) == 1 and operators[0] in _BOUNDS:
            return self._describe_relation(sides[0].strip(), operators[0], sides[1].strip(), is_negated)
        if not operators and (call := span.read_call()) and call[0] in _LOOPS:
            return self._describe_loop(*call, is_negated=is_negated)
        return self._describe_paths(span)

    def _describe_relation(self, left: _Span, operator: str, right: _Span, is_negated: bool) -> str:
        if left.is_literal and not right.is_literal and operator != "in":
            left, right, operator = right, left, _MIRRORED.get(operator, operator)
        bound = _BOUNDS[_NEGATED[operator] if is_negated else operator]
        return f"{self._describe_operand(left)}, {bound.format(_format_value(self._evaluate(right.text)))}"

    def _describe_operand(self, span: _Span) -> str:
        """A value and how it comes about: ``2 + 2 = 4``, ``3 issues``."""
        shown = _format_value(self._evaluate(span.text))
        parts, operators = span.split("+", "-", "*", "/", "%")
        if operators:
            words = [_format_value(self._evaluate(part.text)) for part in parts]
            rest = "".join(f" {operator} {word}" for operator, word in zip(operators, words[1:], strict=True))
            return f"{words[0]}{rest} = {shown}"
        call = span.read_call()
        if call is None or call[2].tokens:
            return shown
        if call[0] == "size" and call[1].words[:1] == ["issues"]:
            return _count(self._evaluate(span.text), _name_issues(call[1]))
        if call[0] == "sum" and _is_numbers(numbers := self._evaluate(call[1].text)):
            if parse_expression(call[1].text, variables=_VARIABLES).variables == {"issues"}:
                self._sums.append(call[1].text)
            return f"{format_sum(numbers)} = {shown}" if len(numbers) > 1 else shown
        return shown

    def _describe_loop(self, name: str, receiver: _Span, arguments: _Span, *, is_negated: bool) -> str:
        """``exists(…)`` and ``all(…)``: how many elements match."""
        (element, condition), _ = arguments.split(",")
        whole = self._evaluate(receiver.text)
        found = len(self._evaluate(f"({receiver.text}).filter({element.text}, {condition.text})"))
        is_issues = receiver.words[:1] == ["issues"]
        severity = _OF_SEVERITY.fullmatch(condition.text) if is_issues and name == "exists" else None
        if severity:
            return f"{_count(found, f'{severity[1]} issue')}, {_LOOPS[name][is_negated]}"
        verb = "matches" if 1 in (found, len(whole)) else "match"
        return f"{found} of {_count(len(whole), 'issue' if is_issues else 'item')} {verb}, {_LOOPS[name][is_negated]}"

    def _describe_paths(self, span: _Span) -> str:
        """The values that a condition reads: ``output.total = 12, 3 issues``."""
        words, shown = span.words, {}
        for position, word in enumerate(words):
            if word not in _VARIABLES or (position and words[position - 1] == "."):
                continue
            end = position + 1
            while words[end : end + 1] == ["."] and span.tokens[end + 1]["name"] and words[end + 2 : end + 3] != ["("]:
                end += 2
            path = span[position:end].text
            value = self._evaluate(path)
            shown[path] = _count(len(value), "issue") if path == "issues" else f"{path} = {_format_value(value)}"
        return ", ".join(list(shown.values())[:3])


def format_sum(numbers: Sequence[float]) -> str:
    """Numbers as a sum, ``2 + 2 + 1``; of many the first, and how many there are."""
    shown = " + ".join(map(_format_value, numbers[:MAX_NUMBERS])) or "0"
    return f"{shown} + … ({len(numbers):,} values)" if len(numbers) > MAX_NUMBERS else shown


def _format_value(value: Any) -> str:
    match value:
        case float():
            return f"{value:.12g}"
        case list() if len(value) > 5 or any(isinstance(item, list | dict) for item in value):
            return _count(len(value), "item")
        case dict():
            return _count(len(value), "key")
    return shorten(json.dumps(value, ensure_ascii=False), _VALUE_LENGTH)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _is_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, int | float) and not isinstance(one, bool) for one in value)


def _name_issues(receiver: _Span) -> str:
    """What ``issues`` or ``issues.filter(…)`` holds: ``issue``, ``high issue``, ``matching issue``."""
    call = receiver.read_call()
    if call is None:
        return "issue"
    severity = _OF_SEVERITY.fullmatch(call[2].split(",")[0][-1].text)
    return f"{severity[1]} issue" if severity and call[0] == "filter" else "matching issue"


def _split_conditions(span: _Span) -> tuple[Sequence[_Span], str]:
    """The conditions that ``||`` or else ``&&`` join, and the word for it; those in brackets stay together."""
    is_choice = bool(span.split("?")[1])
    for operator, word in (("||", "or"), ("&&", "and")):
        parts, found = span.split(operator)
        if found and not is_choice and len(parts) <= MAX_CONDITIONS:
            return parts, word
    return [span], ""


@dataclass(frozen=True, slots=True)
class _Span:
    """A part of an expression: its tokens, and the text that they are of."""

    whole: str
    tokens: Sequence[Token]

    @property
    def text(self) -> str:
        return self.whole[self.tokens[0].start() : self.tokens[-1].end()] if self.tokens else ""

    @property
    def words(self) -> list[str]:
        return [token[0] for token in self.tokens]

    @property
    def is_literal(self) -> bool:
        return all(token["number"] or token["text"] or token[0] in ("-", "true", "false") for token in self.tokens)

    def __getitem__(self, part: slice) -> _Span:
        return _Span(self.whole, self.tokens[part])

    def _list_depths(self) -> Iterator[tuple[int, str, int]]:
        """Position, word and depth of each token; a bracket has that of what is in it."""
        depth = 0
        for position, token in enumerate(self.tokens):
            depth += token["symbol"] is not None and token[0] in "([{"
            yield position, token[0], depth
            depth -= token["symbol"] is not None and token[0] in _PAIRS

    def split(self, *operators: str) -> tuple[list[_Span], list[str]]:
        """The parts between these operators, outside of brackets, and the operators."""
        parts, found, begin = [], [], 0
        for position, word, depth in self._list_depths():
            is_operator = not depth and word in operators and not self.tokens[position]["text"] and position > begin
            if is_operator and (self.tokens[position - 1]["symbol"] is None or self.words[position - 1] in _PAIRS):
                parts.append(self[begin:position])
                found.append(word)
                begin = position + 1
        return [*parts, self[begin:]], found

    def _find_opening(self) -> int:
        """The position of the bracket that the last token closes; -1 if it closes none."""
        depths = list(self._list_depths())
        if not depths or self.tokens[-1]["symbol"] is None or depths[-1][1] not in _PAIRS:
            return -1
        opening = _PAIRS[depths[-1][1]]
        return max(place for place, word, depth in depths if word == opening and depth == depths[-1][2])

    def strip(self) -> _Span:
        """Without brackets around all of it."""
        span = self
        while span.words[:1] == ["("] and span._find_opening() == 0:
            span = span[1:-1]
        return span

    def read_call(self) -> tuple[str, _Span, _Span] | None:
        """Name, receiver and arguments of ``receiver.name(arguments)``; of ``name(receiver)`` without arguments."""
        opening = self._find_opening()
        if opening < 1 or self.words[-1] != ")" or not self.tokens[opening - 1]["name"]:
            return None
        name, inside = self.words[opening - 1], self[opening + 1 : -1]
        if opening == 1:
            return name, inside, inside[:0]
        return (name, self[: opening - 2], inside) if self.words[opening - 2] == "." else None
