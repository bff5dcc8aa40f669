"""Redaction: what a flow says must not be kept is taken out of attempts before they join the history.

A rule is a JSON pointer (``/customer/email``; ``*`` stands for any name or position) into the input and into every
output, or the name of a pattern of texts (``email``). What stands at a pointer of the input is taken out of all texts
of the run too: a model repeats what it was told.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from flows.engine.errors import Problem
from flows.engine.history import Attempt, History, initial_attempt
from flows.engine.issues import Issue
from flows.engine.json_value import format_pointer, parse_pointer
from flows.engine.planner import Finish
from flows.engine.prompt import dump_visible
from flows.engine.redaction_patterns import PATTERNS, TextPattern

MARK = "[redacted]"
"""What stands in the place of a value; what a pattern found has the pattern's name in it."""

LEAST_LENGTH = 4
"""Characters that a value at a pointer needs to be taken out of other texts: shorter ones stand in any text."""

ANY = "*"

_Path = tuple[str, ...]


def find_rule_problems(rules: Iterable[str]) -> Iterator[Problem]:
    """What is wrong with the rules of a flow, by JSON pointers into their list."""
    for index, rule in enumerate(rules):
        if not rule.startswith("/") and rule not in PATTERNS:
            yield Problem(
                f"/{index}",
                f"“{rule[:60]}” is neither a JSON pointer, such as “/customer/email”, nor a pattern: "
                f"{', '.join(PATTERNS)}.",
            )


def find_marks(rules: Collection[str], value: Any) -> list[Problem]:
    """Where a value shows that it is the redacted form of another one, by JSON pointers; nothing without rules."""
    return (
        [
            Problem(format_pointer(path), f"“{text[:60]}” was redacted here; write again what stood in its place.")
            for path, text in _list_texts(value, ())
            if MARK in text or "[redacted: " in text
        ]
        if rules
        else []
    )


def redact_input(rules: Collection[str], input: dict[str, Any]) -> dict[str, Any]:
    """The input of a run as it is kept and shown; the same object if the rules find nothing in it."""
    redacted: dict[str, Any] = Redactor.of(rules, input).redact_value(input)
    return input if redacted == input else redacted


@dataclass(frozen=True, slots=True)
class Redactor:
    """Redacts what belongs to one run."""

    paths: tuple[_Path, ...] = ()
    patterns: tuple[tuple[str, TextPattern], ...] = ()
    """With the mark of what they find."""
    values: frozenset[str | int | float] = frozenset()
    """What the run's input has at the paths."""

    @classmethod
    def of(cls, rules: Collection[str], input: Any) -> Redactor:
        """The redactor of a run with this input, by rules that ``find_rule_problems`` has nothing against."""
        if not rules:
            return _NOTHING
        paths = tuple(parse_pointer(rule) for rule in rules if rule.startswith("/"))
        patterns = tuple((f"[redacted: {name}]", PATTERNS[name]) for name in sorted(rules) if name in PATTERNS)
        return cls(paths, patterns, frozenset(_find_values(input, paths)))

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.paths or self.patterns)

    def redact_value(self, value: Any) -> Any:
        """A JSON value with nothing in it that the rules find. Objects keep their names, lists their length."""
        return value if self.is_idle else self._redact(value, self.paths, self._make_scrub())

    def redact_request(self, request: dict[str, Any] | None, input: Any) -> dict[str, Any] | None:
        """The request that was made of the step input ``input``: its messages. The rest is the flow's own."""
        if self.is_idle or request is None:
            return request
        scrub = self._make_scrub()
        plain, redacted = dump_visible(input), self._redact(input, self.paths, scrub)

        def clean(message: dict[str, Any]) -> dict[str, Any]:
            # The user's message is the input as JSON: in there pointers find also what is too short to be looked for.
            text = message["content"]
            return {**message, "content": dump_visible(redacted) if text == plain else scrub(text)}

        return {**request, "messages": [clean(message) for message in request["messages"]]}

    def redact_attempt(self, attempt: Attempt) -> Attempt:
        """The attempt as it joins the history: output and issues, and what was sent."""
        if self.is_idle:
            return attempt
        found = {*_find_values(attempt.output, self.paths), *_find_values(attempt.raw_output, self.paths)}
        own = replace(self, values=self.values | found)
        scrub = own._make_scrub()
        error = attempt.error
        return attempt.model_copy(
            update={
                "input": own._redact(attempt.input, self.paths, scrub),
                "output": own._redact(attempt.output, self.paths, scrub),
                "raw_output": own._redact(attempt.raw_output, self.paths, scrub),
                "request": own.redact_request(attempt.request, attempt.input),
                "issues": tuple(own._redact_issue(issue, scrub) for issue in attempt.issues),
                "error": error and error.model_copy(update={"message": scrub(error.message)}),
                "failure_reason": attempt.failure_reason and scrub(attempt.failure_reason),
            }
        )

    def redact_finish(self, finish: Finish) -> Finish:
        """The end of the run, whose sentence may quote what an expression made."""
        return finish if self.is_idle else replace(finish, sentence=self._make_scrub()(finish.sentence))

    def redact_history(self, history: History) -> History:
        """The history with its input redacted too, once nothing works on it any more."""
        if self.is_idle:
            return history
        first = initial_attempt(self.redact_value(history.initial_input))
        return History.model_construct(run_id=history.run_id, steps=((first,), *history.steps[1:]))

    def _redact_issue(self, issue: Issue, scrub: Callable[[str], str]) -> Issue:
        texts = self._redact(issue.model_dump(mode="json", exclude={"code", "severity", "audit"}), (), scrub)
        return issue.model_copy(update={**texts, "suggestions": tuple(texts["suggestions"])})

    def _redact(self, value: Any, paths: Collection[_Path], scrub: Callable[[str], str]) -> Any:
        if () in paths:
            return _blank(value)
        if isinstance(value, dict):
            # Two names that a pattern makes the same stay two.
            names = _tell_apart([scrub(name) for name in value])
            return {
                name: self._redact(part, _descend(paths, key), scrub)
                for name, (key, part) in zip(names, value.items(), strict=True)
            }
        if isinstance(value, list):
            return [self._redact(part, _descend(paths, str(index)), scrub) for index, part in enumerate(value)]
        if isinstance(value, str):
            return scrub(value)
        is_found = not isinstance(value, bool) and value is not None and value in self.values
        return MARK if is_found else value

    def _make_scrub(self) -> Callable[[str], str]:
        """What takes values and patterns out of a text."""
        forms = _list_forms(self.values)
        numbers = [str(value) for value in self.values if not isinstance(value, str)]
        number = re.compile(rf"(?<![\w.])(?:{'|'.join(map(re.escape, numbers))})(?![\w.])") if numbers else None
        patterns = self.patterns

        def scrub(text: str) -> str:
            for form in forms:
                if form in text:
                    text = text.replace(form, MARK)
            if number is not None:
                text = number.sub(MARK, text)
            for mark, pattern in patterns:
                text = pattern.replace(text, mark)
            return text

        return scrub


_NOTHING = Redactor()


def _find_values(value: Any, paths: Collection[_Path]) -> Iterator[str | int | float]:
    """What stands at the paths, if it is long enough to be told from any other text."""
    if () in paths:
        yield from _list_leaves(value)
    elif isinstance(value, dict):
        for key, part in value.items():
            if below := _descend(paths, key):
                yield from _find_values(part, below)
    elif isinstance(value, list):
        for index, part in enumerate(value):
            if below := _descend(paths, str(index)):
                yield from _find_values(part, below)


def _list_leaves(value: Any) -> Iterator[str | int | float]:
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _list_leaves(part)
    elif (
        isinstance(value, str | int | float) and len(str(value).strip()) >= LEAST_LENGTH and not isinstance(value, bool)
    ):
        yield value


def _list_texts(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _list_texts(part, (*path, key))


def _list_forms(values: Iterable[str | int | float]) -> list[str]:
    """The texts among the values, also as they stand within JSON, the longest first."""
    texts = [value.strip() for value in values if isinstance(value, str)]
    forms = {
        form for text in texts for form in (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])
    }
    return sorted(forms, key=lambda form: (-len(form), form))


def _descend(paths: Collection[_Path], key: str) -> tuple[_Path, ...]:
    return tuple(path[1:] for path in paths if path and path[0] in (key, ANY))


def _blank(value: Any) -> Any:
    """A value of the same shape with nothing in it."""
    if isinstance(value, dict):
        return {key: _blank(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_blank(part) for part in value]
    return value if value is None or value == "" else MARK


def _tell_apart(names: list[str]) -> list[str]:
    taken: set[str] = set()
    for index, name in enumerate(names):
        count = 2
        while names[index] in taken:
            names[index] = f"{name} {count}"
            count += 1
        taken.add(names[index])
    return names
