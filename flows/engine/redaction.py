"""Redaction: what a flow says must not be kept is taken out of attempts before they join the history.

A rule is a JSON pointer (``/customer/email``; ``*`` stands for any name or position) into the input and into every
output, or the name of a pattern of texts (``email``). What stands at a pointer of the input is taken out of all that
the run says elsewhere too, texts and numbers: a model repeats what it was told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from flows.engine.errors import Problem
from flows.engine.history import Attempt, History, initial_attempt
from flows.engine.issues import LONGEST_CODE, Issue
from flows.engine.json_value import format_pointer, parse_pointer
from flows.engine.model_request import replace_texts
from flows.engine.planner import Finish
from flows.engine.prompt import dump_visible
from flows.engine.redaction_patterns import PATTERNS, TextPattern
from flows.engine.redaction_values import NO_VALUES, Leaf, ValueSearch, write_number

MARK = "[redacted]"
"""What stands in the place of a value; what a pattern found has the pattern's name in it."""

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
    search: ValueSearch = NO_VALUES
    """Finds what the run's input has at the paths."""

    @classmethod
    def of(cls, rules: Collection[str], input: Any) -> Redactor:
        """The redactor of a run with this input, by rules that ``find_rule_problems`` has nothing against."""
        if not rules:
            return _NOTHING
        paths = tuple(parse_pointer(rule) for rule in rules if rule.startswith("/"))
        named = [(name, pattern) for name, patterns in PATTERNS.items() if name in rules for pattern in patterns]
        patterns = tuple((f"[redacted: {name}]", pattern) for name, pattern in named)
        return cls(paths, patterns, ValueSearch(_find_values(input, paths)))

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.paths or self.patterns)

    def redact_value(self, value: Any) -> Any:
        """A JSON value with nothing in it that the rules find. Objects keep their names, lists their length."""
        return value if self.is_idle else self._redact(value, self.paths)

    def redact_request(self, request: dict[str, Any] | None, input: Any) -> dict[str, Any] | None:
        """The request that was made of the step input ``input``: its messages. The rest is the flow's own."""
        if self.is_idle or request is None:
            return request
        plain, redacted = dump_visible(input), self._redact(input, self.paths)

        def clean(text: str) -> str:
            # The user's message is the input as JSON: in there pointers find also what is too short to be looked for.
            return dump_visible(redacted) if text == plain else self._scrub(text)

        return replace_texts(request, clean)

    def redact_attempt(self, attempt: Attempt) -> Attempt:
        """The attempt as it joins the history: output and issues, and what was sent."""
        if self.is_idle:
            return attempt
        found = {*_find_values(attempt.output, self.paths), *_find_values(attempt.raw_output, self.paths)}
        own = replace(self, search=self.search.extend(found))
        error = attempt.error
        return attempt.model_copy(
            update={
                "input": own._redact(attempt.input, self.paths),
                "output": own._redact(attempt.output, self.paths),
                "raw_output": own._redact(attempt.raw_output, self.paths),
                "request": own.redact_request(attempt.request, attempt.input),
                "issues": tuple(own._redact_issue(issue) for issue in attempt.issues),
                "error": error and error.model_copy(update={"message": own._scrub(error.message)}),
                "failure_reason": attempt.failure_reason and own._scrub(attempt.failure_reason),
            }
        )

    def redact_finish(self, finish: Finish) -> Finish:
        """The end of the run, whose sentence may quote what an expression made."""
        return finish if self.is_idle else replace(finish, sentence=self._scrub(finish.sentence))

    def redact_history(self, history: History) -> History:
        """The history with its input redacted too, once nothing works on it any more."""
        if self.is_idle:
            return history
        first = initial_attempt(self.redact_value(history.initial_input))
        return History.model_construct(run_id=history.run_id, steps=((first,), *history.steps[1:]))

    def _redact_issue(self, issue: Issue) -> Issue:
        # A rule may have made the code of what it found.
        texts = self._redact(issue.model_dump(mode="json", exclude={"code", "severity"}), ())
        code = self._scrub(issue.code)[:LONGEST_CODE]
        return issue.model_copy(update={**texts, "code": code, "suggestions": tuple(texts["suggestions"])})

    def _redact(self, value: Any, paths: Collection[_Path]) -> Any:
        if () in paths:
            return _blank(value)
        if isinstance(value, str):
            return self._scrub(value)
        if isinstance(value, dict):
            # Two names that a pattern makes the same stay two.
            names = _tell_apart([self._scrub(name) for name in value])
            return {
                name: self._redact(part, _descend(paths, key))
                for name, (key, part) in zip(names, value.items(), strict=True)
            }
        if isinstance(value, list):
            return [self._redact(part, _descend(paths, str(index))) for index, part in enumerate(value)]
        return value if isinstance(value, bool) or value is None else self._redact_number(value)

    def _redact_number(self, number: int | float) -> int | float | str:
        if self.search.has_number(number):
            return MARK
        # A fraction has as many digits as a card, and a tenth of them the check digit that is right.
        text = write_number(number)
        if text.isdigit():
            for mark, pattern in self.patterns:
                if pattern.replace(text, mark) != text:
                    return mark
        return number

    def _scrub(self, text: str) -> str:
        """The text without values and without what patterns find."""
        text = self.search.replace(text, MARK)
        for mark, pattern in self.patterns:
            text = pattern.replace(text, mark)
        return text


_NOTHING = Redactor()


def _find_values(value: Any, paths: Collection[_Path]) -> Iterator[Leaf]:
    """The texts and numbers at the paths."""
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


def _list_leaves(value: Any) -> Iterator[Leaf]:
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _list_leaves(part)
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield value


def _list_texts(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _list_texts(part, (*path, key))


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
