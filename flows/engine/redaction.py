"""Redaction: what a flow says must not be kept is taken out of attempts before they join the history.

A rule is a JSON pointer (``/customer/email``; ``*`` stands for any name or position) into the input and into every
output, or the name of a pattern of texts (``email``). What is at a pointer of the input is taken out of all that
the run says elsewhere too, texts and numbers: a model repeats what it was sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from ipaddress import ip_address
from typing import Any
from unicodedata import normalize

from stdnum import iban, luhn

from flows.engine.errors import Problem
from flows.engine.history import MARK, MAX_CODE_LENGTH, Attempt, History, Issue, initial_attempt
from flows.engine.json_values import dump_visible, format_pointer, parse_pointer
from flows.engine.model_api import replace_texts
from flows.engine.planner import Finish

MIN_LENGTH = 4
"""Characters that a value needs to be searched for elsewhere: shorter ones are in any text. A sign doesn't count."""

_Path = tuple[str, ...]
_Leaf = str | int | float


def find_rule_problems(rules: Collection[str]) -> Iterator[Problem]:
    """What is wrong with the rules of a flow, by JSON pointers into their list."""
    known = ", ".join(PATTERNS)
    for index, rule in enumerate(rules):
        if not rule.startswith("/") and rule not in PATTERNS:
            sentence = f"“{rule[:60]}” is neither a JSON pointer, such as “/customer/email”, nor a pattern: {known}."
            yield Problem(f"/{index}", sentence)


def find_marks(value: Any) -> list[Problem]:
    """Where a value shows that it is the redacted form of another one, by JSON pointers."""
    return [
        Problem(format_pointer(path), f"“{leaf[:60]}” was redacted here. Enter the original text again.")
        for path, leaf in _list_leaves(value)
        if isinstance(leaf, str) and (MARK in leaf or "[redacted: " in leaf)
    ]


def redact_input(rules: Collection[str], input: dict[str, Any]) -> dict[str, Any]:
    """The input of a run as it is kept and shown; the same object if the rules find nothing in it."""
    redacted: dict[str, Any] = Redactor.of(rules, input).redact_value(input)
    return input if redacted == input else redacted


def _list_leaves(value: Any, path: _Path = ()) -> Iterator[tuple[_Path, Any]]:
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from _list_leaves(part, (*path, str(key)))
    else:
        yield path, value


# ---------------------------------------------------------------------------------------------------------------
# Named patterns. A match takes a bounded number of characters, so that any text is searched in linear time.

_GAP = r"[ \u00A0\u2007\u2009\u202F\u2010-\u2015\u2212-]"
"""Between groups of digits: a space or a hyphen, also one that is narrow, long or allows no line break."""
_FOUR_BYTES = r"\d{1,3}(?:\.\d{1,3}){3}(?![A-Za-z0-9]|\.\d)"
"""An address of version 4. With a fifth number it is something else: a version of software, a section."""
_GROUPED_CARD = rf"(?:2[1-7]|[3-9]\d)\d{{2,17}}+(?:{_GAP}\d{{4,15}}+){{0,3}}(?:{_GAP}\d{{1,15}}+)?(?!\d)"
"""Groups of four digits and more, but for the last. No card begins like a year: lists of those are left alone."""
_DATE = rf"(?:\d\d?{_GAP}\d\d?{_GAP})?(?:19|20)\d\d{_GAP}"
_KEY_PREFIXES = "sk-|pk_|rk_|sk_|gh[pousr]_|github_pat_|glpat-|xox[abprs]-|AKIA|AIza|tf_"
_IPV6 = (
    rf"(?:[0-9A-Fa-f]{{0,4}}:){{2,7}}{_FOUR_BYTES}"
    # A lone colon at the end is the sentence's.
    r"|[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?<![^:]:)"
    r"(?![A-Za-z0-9]|\.\d|::|:[0-9A-Fa-f]{1,4}(?![A-Za-z0-9]))"
)


def _is_card(text: str) -> bool:
    digits = re.sub(_GAP, "", text)
    return 13 <= len(digits) <= 19 and luhn.checksum(digits) == 0


def _is_iban(text: str) -> bool:
    return bool(iban.is_valid(re.sub(_GAP, "", text), check_country=False))


def _is_address(text: str) -> bool:
    try:
        # Two colons are an address that belongs to no machine.
        return text != "::" and bool(ip_address(text))
    except ValueError:
        return False


_Pattern = tuple[str, Callable[[str], bool]]
PATTERNS: dict[str, tuple[_Pattern, ...]] = {
    "api_key": (
        (rf"(?<![A-Za-z0-9_-])(?:{_KEY_PREFIXES})[A-Za-z0-9_-]{{12,256}}", bool),
        (r"(?<![A-Za-z0-9])[Bb]earer [A-Za-z0-9._~+/=-]{12,4096}", bool),
    ),
    "iban": ((rf"(?<![A-Za-z0-9])[A-Za-z]{{2}}\d{{2}}(?:{_GAP}?[A-Za-z0-9]){{11,30}}(?![A-Za-z0-9])", _is_iban),),
    "credit_card": (
        # Among other digits: a date, a security code, another card.
        (rf"(?<!\d){_GROUPED_CARD}", _is_card),
        # Alone, however its digits are grouped.
        (rf"(?<!\d)(?<!\d{_GAP})(?!{_DATE})\d(?:{_GAP}?\d){{12,18}}(?!{_GAP}?\d)", _is_card),
    ),
    "email": (
        (r"(?u)(?<![\w.%+-])[\w.%+-]{1,64}@(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}[^\W\d_]{2,24}(?![^\W_])", bool),
    ),
    "ip_address": ((rf"(?<![A-Za-z0-9.:])(?:{_IPV6})", _is_address), (rf"(?<![A-Za-z0-9.]){_FOUR_BYTES}", _is_address)),
    "phone": ((rf"(?<![A-Za-z0-9+])(?:\+|00)[1-9](?:(?:{_GAP}|[./()]){{0,2}}\d){{6,14}}(?!\d)", bool),),
}
"""By name, in the order in which they are tried (part of an account's digits may pass for a card): expressions, and
whether a text that looks so is it. Phone numbers are those with a country code; others look like any number."""


def _replace_pattern(text: str, name: str) -> str:
    mark = f"[redacted: {name}]"
    for expression, accepts in PATTERNS[name]:
        pattern = re.compile(expression, 0 if name == "email" else re.ASCII)
        parts, end, match = [], 0, pattern.search(text)
        while match:
            at, length = match.start(), _measure_accepted(match[0], accepts)
            if length:
                parts += [text[end:at], mark]
                end = at + length
            match = pattern.search(text, at + (length or 1))
        text = "".join((*parts, text[end:]))
    return text


def _measure_accepted(found: str, accepts: Callable[[str], bool]) -> int:
    """The characters of the longest beginning that is accepted: what follows may look as if it belonged to it."""
    ends = [len(found), *(gap.start() for gap in reversed([*re.finditer(_GAP, found)]))]
    return next((end for end in ends if accepts(found[:end])), 0)


# ---------------------------------------------------------------------------------------------------------------
# Exact values: in texts, in JSON within texts, as numbers

_SPACE = r"(?:\s|\\+(?:[nrtf]|u000b|u001[c-f]|u0085|u202[89]))+"
"""White space, also as JSON writes it."""
_MAX_NESTING = 2
"""How often a text may lie within JSON that lies within JSON: an output that is JSON, in the text of a request."""
_NUMERAL = re.compile(r"[+-]?(\d{1,40}(?:\.\d{1,40})?)", re.ASCII)


def _fold(text: str) -> str:
    return re.sub(_SPACE, " ", text).lower()


def _list_text_forms(text: str) -> set[str]:
    """A text as it is and as it is within JSON, none if it is too short."""
    if len(normalize("NFC", text)) < MIN_LENGTH:
        return set()
    # Letters with marks are written in one character or in several.
    forms = {text, normalize("NFC", text), normalize("NFD", text)}
    if len(text.casefold()) != len(text):
        # A letter such as “ß” or “İ” becomes two in another case, which a search without case doesn't find.
        forms |= {text.casefold(), text.upper()}
    for _ in range(_MAX_NESTING):
        forms |= {json.dumps(form, ensure_ascii=escapes)[1:-1] for form in forms for escapes in (True, False)}
    return forms


def _list_number_forms(value: _Leaf) -> set[str]:
    """How a value looks as a number, if it is one that is long enough: also as JSON writes it, 1e+22 for instance."""
    if isinstance(value, str):
        numeral = _NUMERAL.fullmatch(value.strip())
        if numeral is None:
            return set()
        value = float(numeral[1]) if "." in numeral[1] else int(numeral[1])
    plain = _format_number(value)
    return {plain, str(abs(value))} if len(plain) >= MIN_LENGTH else set()


def _join_forms(forms: Iterable[set[str]]) -> list[str]:
    """The longest first: the digits of a fraction may be another value."""
    joined: set[str] = set().union(*forms)
    return sorted(joined, key=lambda form: (-len(form), form))


def _format_number(number: int | float) -> str:
    """A number without its sign, and without a fraction that is none: 1234 for -1234.0."""
    size = abs(number)
    return str(size if isinstance(size, int) or not size.is_integer() else int(size))


# ---------------------------------------------------------------------------------------------------------------
# One run


@dataclass(frozen=True)
class Redactor:
    """Redacts what belongs to one run: by its flow's rules, and the ``values`` at their pointers in its input.

    ``prompt`` is the system message of the step that is at work, as it is sent and as it is kept.
    """

    rules: tuple[str, ...] = ()
    values: frozenset[_Leaf] = frozenset()
    prompt: tuple[str, str] = ("", "")

    @classmethod
    def of(cls, rules: Collection[str], input: Any) -> Redactor:
        """The redactor of a run with this input, by rules that ``find_rule_problems`` has nothing against."""
        return cls(tuple(rules))._extend(input)

    def _extend(self, value: Any) -> Redactor:
        """This redactor, which also finds what is at the pointers of ``value``."""
        found = {
            leaf
            for path, leaf in (_list_leaves(value) if self._pointers else ())
            if isinstance(leaf, str | int | float) and not isinstance(leaf, bool) and self._is_at_pointer(path)
        }
        return self if found <= self.values else replace(self, values=self.values | found)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self.rules

    @cached_property
    def _pointers(self) -> list[_Path]:
        return [parse_pointer(rule) for rule in self.rules if rule.startswith("/")]

    @cached_property
    def _texts(self) -> list[str]:
        return _join_forms(_list_text_forms(value.strip()) for value in self.values if isinstance(value, str))

    @cached_property
    def _folded(self) -> list[str]:
        return list(dict.fromkeys(map(_fold, self._texts)))

    @cached_property
    def _numbers(self) -> list[str]:
        return _join_forms(map(_list_number_forms, self.values))

    def _is_at_pointer(self, path: _Path) -> bool:
        return any(
            len(pointer) <= len(path) and all(part in ("*", key) for part, key in zip(pointer, path, strict=False))
            for pointer in self._pointers
        )

    def redact_value(self, value: Any) -> Any:
        """A JSON value with nothing in it that the rules find. Objects keep their names, lists their length."""
        return self._redact(value, ()) if self.rules else value

    def redact_request(self, request: dict[str, Any] | None, input: Any) -> dict[str, Any] | None:
        """The request that was made of the step input ``input``: its messages. The rest is the flow's own."""
        if not self.rules or request is None:
            return request
        plain, redacted = dump_visible(input), dump_visible(self.redact_value(input))
        sent, kept = self.prompt

        def redact(text: str) -> str:
            # The user's message is the input as JSON: in there pointers find also what is too short to be searched for.
            # So they do in what placeholders put into the system message.
            if text == plain:
                return redacted
            return self._scrub(kept + text.removeprefix(sent) if sent and text.startswith(sent) else text)

        return replace_texts(request, redact)

    def redact_attempt(self, attempt: Attempt) -> Attempt:
        """The attempt as it joins the history: output and issues, and what was sent."""
        if not self.rules:
            return attempt
        own = self._extend(attempt.output)._extend(attempt.raw_output)
        error = attempt.error
        return attempt.model_copy(
            update={
                "input": own.redact_value(attempt.input),
                "output": own.redact_value(attempt.output),
                "raw_output": own.redact_value(attempt.raw_output),
                "request": own.redact_request(attempt.request, attempt.input),
                "issues": tuple(own._redact_issue(issue) for issue in attempt.issues),
                "error": error and error.model_copy(update={"message": own._scrub(error.message)}),
                "failure_reason": attempt.failure_reason and own._scrub(attempt.failure_reason),
            }
        )

    def redact_finish(self, finish: Finish) -> Finish:
        """The end of the run, whose sentence may quote what an expression made."""
        return replace(finish, sentence=self._scrub(finish.sentence))

    def redact_history(self, history: History) -> History:
        """The history with its input redacted too, once nothing works on it any more."""
        first = initial_attempt(self.redact_value(history.initial_input))
        return History(history.run_id, ((first,), *history.steps[1:])) if self.rules else history

    def _redact_issue(self, issue: Issue) -> Issue:
        # A rule may have made the code of what it found. No pointer leads into an issue.
        own = Redactor(tuple(rule for rule in self.rules if not rule.startswith("/")), self.values)
        texts = own._redact(issue.model_dump(mode="json", exclude={"code", "severity", "audit"}), ())
        code = self._scrub(issue.code)[:MAX_CODE_LENGTH]
        return issue.model_copy(update={**texts, "code": code, "suggestions": tuple(texts["suggestions"])})

    def _redact(self, value: Any, path: _Path) -> Any:
        if isinstance(value, dict):
            redacted: dict[str, Any] = {}
            for key, part in value.items():
                name = self._scrub(key)
                while name in redacted:  # two names that a pattern makes the same stay two
                    name = f"{name} {len(redacted) + 1}"
                redacted[name] = self._redact(part, (*path, key))
            return redacted
        if isinstance(value, list):
            return [self._redact(part, (*path, str(index))) for index, part in enumerate(value)]
        if value is None or value == "":
            return value
        if self._is_at_pointer(path):
            return MARK
        if isinstance(value, str):
            return self._scrub(value)
        return value if isinstance(value, bool) else self._redact_number(value)

    def _redact_number(self, number: int | float) -> int | float | str:
        text = _format_number(number)
        if text in self._numbers:
            return MARK
        # A fraction has as many digits as a card, and a tenth of them the check digit that is right.
        found = self._replace_patterns(text) if text.isdigit() else text
        return number if found == text else found

    def _scrub(self, text: str) -> str:
        """The text without values and without what patterns find."""
        for form in self._texts:
            text = text.replace(form, MARK)
        # Searched for as plain texts first: most are nowhere, and patterns take long.
        folded = _fold(text) if self._texts else ""
        for form in self._folded:
            if form in folded:
                words = _SPACE.join(map(re.escape, form.split(" ")))
                text = re.sub(rf"(?<!\w){words}(?!\w)", MARK, text, flags=re.IGNORECASE)
        for form in self._numbers:
            if form in text:
                # Money is written with zeros after its fraction.
                zeros = "0*" if "." in form and "e" not in form else ""
                text = re.sub(rf"(?<!\d){re.escape(form)}{zeros}(?!\d)", MARK, text, flags=re.ASCII)
        return self._replace_patterns(text)

    def _replace_patterns(self, text: str) -> str:
        for name in PATTERNS:
            if name in self.rules:
                text = _replace_pattern(text, name)
        return text
