"""Redaction: what a flow says must not be kept is taken out of attempts before they join the history.

A rule is a JSON pointer (``/customer/email``; ``*`` stands for any name or position) into the input and into every
output, or the name of a pattern of texts (``email``). What stands at a pointer of the input is taken out of all that
the run says elsewhere too, texts and numbers: a model repeats what it was told.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from ipaddress import ip_address
from typing import Any
from unicodedata import normalize

from stdnum import luhn, numdb
from stdnum.iso7064 import mod_97_10

from flows.engine.errors import Problem
from flows.engine.history import MAX_CODE_LENGTH, Attempt, History, Issue, initial_attempt
from flows.engine.json_values import format_pointer, parse_pointer
from flows.engine.model_api import replace_texts
from flows.engine.planner import Finish
from flows.engine.prompt import dump_visible

MARK = "[redacted]"
"""Stands in the place of a value; what a pattern found has the pattern's name in it."""

ANY = "*"

MIN_LENGTH = 4
"""Characters that a value needs to be looked for elsewhere: shorter ones stand in any text. A sign doesn't count."""

MIN_IBAN_LENGTH = 15

_Path = tuple[str, ...]
_Leaf = str | int | float


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
    return [
        Problem(format_pointer(path), f"“{text[:60]}” was redacted here; write again what stood in its place.")
        for path, text in (_list_texts(value, ()) if rules else ())
        if MARK in text or "[redacted: " in text
    ]


def redact_input(rules: Collection[str], input: dict[str, Any]) -> dict[str, Any]:
    """The input of a run as it is kept and shown; the same object if the rules find nothing in it."""
    redacted: dict[str, Any] = Redactor.of(rules, input).redact_value(input)
    return input if redacted == input else redacted


# ---------------------------------------------------------------------------------------------------------------
# Named patterns. Each is tried from the places where a match can begin and takes a bounded number of characters, so
# that a text of any kind is searched in linear time.

_GAP = r"[ \u00A0\u2007\u2009\u202F\u2010-\u2015\u2212-]"
"""Stands between groups of digits: a space or a hyphen, also one that is narrow, long or allows no line break."""
_GAPS = re.compile(_GAP)


@dataclass(frozen=True, slots=True)
class TextPattern:
    """What something looks like, and whether a text that looks so is it.

    An expression that looks ahead and takes nothing, with one group, is also tried from the places within a match:
    what it finds there becomes one with what it overlaps.
    """

    expression: re.Pattern[str]
    accepts: Callable[[str], bool] = bool

    def replace(self, text: str, mark: str) -> str:
        """The text with ``mark`` in place of each match."""
        parts: list[str] = []
        end = 0
        for match in self.expression.finditer(text):
            group = self.expression.groups
            length = self._measure(match[group])
            start = match.start(group)
            if length and start >= end:
                parts += (text[end:start], mark)
            end = max(end, start + length) if length else end
        return "".join((*parts, text[end:])) if parts else text

    def _measure(self, found: str) -> int:
        """The characters of the longest beginning that is accepted: what follows may look as if it belonged to it."""
        if self.accepts(found):
            return len(found)
        ends = [gap.start() for gap in _GAPS.finditer(found)]
        return next((end for end in reversed(ends) if self.accepts(found[:end])), 0)


def _is_card(text: str) -> bool:
    digits = _GAPS.sub("", text)
    return 13 <= len(digits) <= 19 and luhn.checksum(digits) == 0


@lru_cache(maxsize=1_000)
def _find_iban_length(country: str) -> int | None:
    """The characters of an account in a country, None where the registry has none."""
    facts = numdb.get("iban").info(f"{country}00")[0][1]
    return 4 + sum(map(int, re.findall(r"(\d+)!", facts["bban"]))) if facts else None


def _is_iban(text: str) -> bool:
    plain = _GAPS.sub("", text).upper()
    length = _find_iban_length(plain[:2])
    # By chance one of 97 words has the right sum: where no country says how long an account is, only capitals pass.
    if len(plain) != length if length else len(plain) < MIN_IBAN_LENGTH or not text.isupper():
        return False
    return mod_97_10.is_valid(plain[4:] + plain[:4])


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    # Two colons are an address that belongs to no machine.
    return text != "::"


_FOUR_BYTES = r"\d{1,3}(?:\.\d{1,3}){3}(?![A-Za-z0-9]|\.\d)"
"""An address of version 4. With a fifth number it is something else: a version of software, a section."""
_GROUPED_CARD = rf"(?:2[1-7]|[3-9]\d)\d{{2,17}}+(?:{_GAP}\d{{4,15}}+){{0,3}}(?:{_GAP}\d{{1,15}}+)?"
"""Groups of four digits and more, but for the last. No card begins like a year: lists of those are left alone."""
_DATE = rf"(?:\d\d?{_GAP}\d\d?{_GAP})?(?:19|20)\d\d{_GAP}"
_KEY_PREFIXES = "sk-|pk_|rk_|sk_|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|AKIA|AIza|tf_"


def _compile(expression: str, accepts: Callable[[str], bool] = bool, flags: int = re.ASCII) -> TextPattern:
    return TextPattern(re.compile(expression, flags), accepts)


PATTERNS: dict[str, tuple[TextPattern, ...]] = {
    "api_key": (
        _compile(
            rf"(?<![A-Za-z0-9_-])(?:{_KEY_PREFIXES})[A-Za-z0-9_-]{{12,256}}"
            r"|(?<![A-Za-z0-9])[Bb]earer [A-Za-z0-9._~+/=-]{12,4096}"
        ),
    ),
    "iban": (
        _compile(
            rf"(?<![A-Z0-9])(?=([A-Z]{{2}}\d{{2}}(?:{_GAP}?[A-Z0-9]){{11,30}})(?![A-Z0-9]))",
            _is_iban,
            re.ASCII | re.IGNORECASE,
        ),
    ),
    "credit_card": (
        # Among other digits: a date, a security code, another card.
        _compile(rf"(?<!\d)(?=({_GROUPED_CARD})(?!\d))", _is_card),
        # Alone, however its digits are grouped.
        _compile(rf"(?<!\d)(?<!\d{_GAP})(?!{_DATE})\d(?:{_GAP}?\d){{12,18}}(?!{_GAP}?\d)", _is_card),
    ),
    "email": (
        _compile(
            r"(?<![\w.%+-])[\w.%+-]{1,64}@(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}[^\W\d_]{2,24}(?![^\W_])", flags=0
        ),
    ),
    "ip_address": (
        _compile(
            # One of version 4 may stand at the end. A lone colon there is the sentence's.
            rf"(?<![A-Za-z0-9.:])(?:(?:[0-9A-Fa-f]{{0,4}}:){{2,7}}{_FOUR_BYTES}"
            r"|[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?<![^:]:)"
            r"(?![A-Za-z0-9]|\.\d|::|:[0-9A-Fa-f]{1,4}(?![A-Za-z0-9])))",
            _is_address,
        ),
        _compile(rf"(?<![A-Za-z0-9.]){_FOUR_BYTES}", _is_address),
    ),
    "phone": (_compile(rf"(?<![A-Za-z0-9+])(?:\+|00)[1-9](?:(?:{_GAP}|[./()]){{0,2}}\d){{6,14}}(?!\d)"),),
}
"""By name, in the order in which they are tried: part of an account's digits may pass for a card. Phone numbers are
those with a country code; others look like any number."""


# ---------------------------------------------------------------------------------------------------------------
# Exact values: in texts, in JSON within texts, as numbers

_SPACE = r"(?:\s|\\+(?:[nrtf]|u000b|u001[c-f]|u0085|u202[89]))+"
"""White space, also as JSON writes it."""
_SPACES = re.compile(_SPACE)
_MAX_NESTING = 2
"""How often a text may lie within JSON that lies within JSON: an output that is JSON, in the text of a request."""
_NUMERAL = re.compile(r"[+-]?(\d{1,40}(?:\.\d{1,40})?)", re.ASCII)


class ValueSearch:
    """Finds the values that it was made with, but for those that are too short.

    Texts are found within others, and as words of their own in any case and with any white space between their words;
    numbers where no digit adjoins them.
    """

    def __init__(self, values: Iterable[_Leaf] = ()) -> None:
        self._values = frozenset(values)
        self._forms = _list_forms({value.strip() for value in self._values if isinstance(value, str)})
        self._folded = dict.fromkeys(map(_fold, self._forms))
        numbers = {form for value in self._values for form in _list_number_forms(value)}
        # The longest first: the digits of a fraction may be another value.
        self._numbers = dict.fromkeys(sorted(numbers, key=lambda form: (-len(form), form)))

    def extend(self, values: Iterable[_Leaf]) -> ValueSearch:
        """A search that finds these values too."""
        both = self._values.union(values)
        return self if len(both) == len(self._values) else ValueSearch(both)

    def replace(self, text: str, mark: str) -> str:
        """The text with ``mark`` in place of each value."""
        for form in self._forms:
            text = text.replace(form, mark)
        # Looked for as plain texts first: most are nowhere, and patterns take long.
        folded = _fold(text) if self._folded else ""
        for form in self._folded:
            if form in folded:
                text = _compile_words(form).sub(mark, text)
        for form in self._numbers:
            if form in text:
                text = _compile_number(form).sub(mark, text)
        return text

    def has_number(self, number: int | float) -> bool:
        """Whether a number is one of the values, or what one of them says: 1234 is found for 1234.0 and “1234”."""
        return bool(self._numbers) and _format_number(number) in self._numbers


def _fold(text: str) -> str:
    return _SPACES.sub(" ", text).lower()


@lru_cache(maxsize=1_000)
def _compile_words(folded: str) -> re.Pattern[str]:
    parts = _SPACE.join(map(re.escape, folded.split(" ")))
    return re.compile(rf"(?<!\w){parts}(?!\w)", re.IGNORECASE)


@lru_cache(maxsize=1_000)
def _compile_number(form: str) -> re.Pattern[str]:
    # Money is written with zeros after its fraction.
    zeros = "0*" if "." in form and "e" not in form else ""
    return re.compile(rf"(?<!\d){re.escape(form)}{zeros}(?!\d)", re.ASCII)


def _list_forms(texts: Iterable[str]) -> list[str]:
    """Texts that are long enough, as they are and as they stand within JSON, the longest first."""
    long = {text for text in texts if len(normalize("NFC", text)) >= MIN_LENGTH}
    # Letters with marks are written in one character or in several.
    layer = long | {normalize(form, text) for text in long for form in ("NFC", "NFD")}
    forms = set(layer)
    for _ in range(_MAX_NESTING):
        layer = {json.dumps(text, ensure_ascii=escapes)[1:-1] for text in layer for escapes in (True, False)} - forms
        forms |= layer
    return sorted(forms, key=lambda form: (-len(form), form))


def _list_number_forms(value: _Leaf) -> set[str]:
    """How a value looks as a number, if it is one that is long enough: also as JSON writes it, 1e+22 for instance."""
    if isinstance(value, str):
        numeral = _NUMERAL.fullmatch(value.strip())
        if numeral is None:
            return set()
        value = float(numeral[1]) if "." in numeral[1] else int(numeral[1])
    plain = _format_number(value)
    return {plain, str(abs(value))} if len(plain) >= MIN_LENGTH else set()


def _format_number(number: int | float) -> str:
    """A number without its sign, and without a fraction that is none: 1234 for -1234.0."""
    size = abs(number)
    return str(size if isinstance(size, int) or not size.is_integer() else int(size))


# ---------------------------------------------------------------------------------------------------------------
# One run


@dataclass(frozen=True, slots=True)
class Redactor:
    """Redacts what belongs to one run."""

    paths: tuple[_Path, ...] = ()
    patterns: tuple[tuple[str, TextPattern], ...] = ()
    """With the mark of what they find."""
    search: ValueSearch = field(default_factory=ValueSearch)
    """Finds what the run's input has at the paths."""

    @classmethod
    def of(cls, rules: Collection[str], input: Any) -> Redactor:
        """The redactor of a run with this input, by rules that ``find_rule_problems`` has nothing against."""
        if not rules:
            return _IDLE
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
        return History(history.run_id, ((first,), *history.steps[1:]))

    def _redact_issue(self, issue: Issue) -> Issue:
        # A rule may have made the code of what it found.
        texts = self._redact(issue.model_dump(mode="json", exclude={"code", "severity"}), ())
        code = self._scrub(issue.code)[:MAX_CODE_LENGTH]
        return issue.model_copy(update={**texts, "code": code, "suggestions": tuple(texts["suggestions"])})

    def _redact(self, value: Any, paths: Collection[_Path]) -> Any:
        if isinstance(value, dict):
            redacted: dict[str, Any] = {}
            for key, part in value.items():
                scrubbed = name = self._scrub(key)
                count = 1
                while name in redacted:  # two names that a pattern makes the same stay two
                    count += 1
                    name = f"{scrubbed} {count}"
                redacted[name] = self._redact(part, _descend(paths, key))
            return redacted
        if isinstance(value, list):
            return [self._redact(part, _descend(paths, str(index))) for index, part in enumerate(value)]
        if value is None or value == "":
            return value
        if () in paths:
            return MARK
        if isinstance(value, str):
            return self._scrub(value)
        return value if isinstance(value, bool) else self._redact_number(value)

    def _redact_number(self, number: int | float) -> int | float | str:
        if self.search.has_number(number):
            return MARK
        # A fraction has as many digits as a card, and a tenth of them the check digit that is right.
        text = _format_number(number)
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


_IDLE = Redactor()


def _descend(paths: Collection[_Path], key: str) -> tuple[_Path, ...]:
    """The rest of the paths below ``key``; what a path leads to is redacted with all that it holds."""
    return tuple(path[1:] for path in paths if not path or path[0] in (key, ANY))


def _find_values(value: Any, paths: Collection[_Path]) -> Iterator[_Leaf]:
    """The texts and numbers at the paths."""
    if not paths:
        return
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _find_values(part, _descend(paths, str(key)))
    elif () in paths and isinstance(value, str | int | float) and not isinstance(value, bool):
        yield value


def _list_texts(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _list_texts(part, (*path, key))
