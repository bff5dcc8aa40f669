"""What is wrong with an expression, in words of the people who write flows instead of those of its parser."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import NoReturn

from flows.engine.errors import ExpressionError
from flows.engine.expression_functions import FUNCTIONS, compile_pattern
from flows.engine.expression_scanner import LOOPS, NAMESPACES, TYPE_NAMES, Scan, Token, find_unclosed, split_tokens

MAX_NESTING = 95
"""Brackets and choices within each other; the parser takes no more."""

# What people write who come from another language, and how it is written here.
_WORDS = {
    "and": "write “&&” for “and”",
    "or": "write “||” for “or”",
    "not": "write “!” for “not”",
    "is": "write “==” to compare",
    "if": "a choice is written “condition ? a : b”",
    "else": "a choice is written “condition ? a : b”",
    "for": "to go through a list write list.map(x, …), list.filter(x, …), list.all(x, …) or list.exists(x, …)",
}
_SYMBOLS = {
    "=": "write “==” to compare",
    "&": "write “&&” for “and”",
    "|": "write “||” for “or”",
    **dict.fromkeys("“”‘’`", "use straight quotes, ' or \""),
    "#": "a comment begins with //",
    ";": "an expression is one value; there are no statements",
}
_OPTIONAL_SYNTAX = "optional keys are not supported; write has(x.key) ? x.key : other"
_OTHER_FUNCTIONS = {
    "len": "size(x)",
    "length": "size(x)",
    "count": "list.filter(x, condition).size()",
    "any": "list.exists(x, condition)",
    "some": "list.exists(x, condition)",
    "every": "list.all(x, condition)",
    "find": "list.filter(x, condition)",
    "includes": "list.contains(x)",
    "keys": "map.map(key, key)",
    "values": "map.map(key, map[key])",
    "lower": "text.lowerAscii()",
    "toLowerCase": "text.lowerAscii()",
    "upper": "text.upperAscii()",
    "toUpperCase": "text.upperAscii()",
    "strip": "text.trim()",
    "match": "text.matches(pattern)",
    "test": "text.matches(pattern)",
    "str": "string(x)",
    "float": "double(x)",
    "unique": "list.distinct()",
    "sorted": "list.sort()",
    "range": "lists.range(n)",
    **{name: f"math.{name}(x)" for name in ("abs", "round", "floor", "ceil", "sqrt", "sign", "trunc")},
}
_OTHER_NAMES = {"None": "null", "True": "true", "False": "false", "undefined": "null", "nil": "null"}

_PLACE = re.compile(r"ERROR: <input>:([0-9]+):([0-9]+): (.*)")
_QUOTED = re.compile(r"(?:mismatched|extraneous) input '(.*?)' expecting", re.DOTALL)

# What somebody forgot to put in quotes: words with the signs of sentences, or a JSON pointer; nothing that computes.
_SENTENCE = re.compile(r"\s*[\w'’-]+(?:[,.;:!?…]?\s+[\w'’-]+)+[.!?…]*\s*")
_ONE_WORD = re.compile(r"\s*\w+(?:-\w+)*[.!?…]*\s*")
_POINTER = re.compile(r"\s*/(?!/)[\w~/-]*\s*")
_TYPES = {"string": "text", "int": "an int", "double": "a double", "bool": "a bool", "null": "null", "map": "a map"}


def fail_at(text: str, offset: int, sentence: str) -> NoReturn:
    """Raise ``ExpressionError`` about the place at ``offset`` of ``text``; line and column count from 1."""
    line = text.count("\n", 0, offset) + 1
    column = offset - text.rfind("\n", 0, offset)
    end = "" if sentence.endswith("?") else "."
    raise ExpressionError(f"Line {line}, column {column}: {sentence}{end}", line=line, column=column)


# ---------------------------------------------------------------------------------------------------------------
# Syntax


def fail_syntax(text: str, message: str) -> NoReturn:
    """Raise ``ExpressionError`` for a text that ``cel`` doesn't take; ``message`` is what it says of it."""
    tokens = split_tokens(text)
    quotes = _ask_for_quotes(text) if _SENTENCE.fullmatch(text) or _POINTER.fullmatch(text) else ""
    if quotes and not any(token.text in _WORDS for token in tokens):
        fail_at(text, len(text) - len(text.lstrip()), f"this is no expression. {quotes}")
    _find_foreign_symbols(text, tokens)
    wrong = find_unclosed(tokens)
    if wrong is not None:
        bracket, expected = wrong
        if bracket.text in "([{":
            fail_at(text, bracket.start, f"the “{bracket.text}” that opens here is never closed")
        hint = f"; “{expected}” is expected" if expected else ""
        fail_at(text, bracket.start, f"this “{bracket.text}” closes no bracket{hint}")
    _refuse_depth(text, tokens)
    for token in tokens:
        if token.kind == "name" and token.text in _WORDS and text[: token.start].rstrip()[-1:] != ".":
            fail_at(text, token.start, _WORDS[token.text] + (quotes and f". {quotes}"))
    places = _PLACE.findall(message.removeprefix(f"Failed to parse expression '{text}': "))
    if not places:
        raise ExpressionError("The expression can't be read.")
    if "`_?_:_`" in message:
        offset = next((token.start for token in tokens if token.text == "?"), 0)
        fail_at(text, offset, "a choice needs two values: condition ? a : b")
    line, column, reason = next((place for place in places if "Incomplete" not in place[2]), places[0])
    offset = _find_offset(text, int(line), int(column))
    fail_at(text, offset, _translate_syntax(tokens, offset, reason))


def _refuse_depth(text: str, tokens: Sequence[Token]) -> None:
    depth = 0
    for token in tokens:
        # A choice nests what follows it, to the end.
        depth += (token.text in ("(", "[", "{", "?")) - (token.text in (")", "]", "}"))
        if depth > MAX_NESTING:
            fail_at(text, token.start, f"the expression is nested deeper than {MAX_NESTING} levels here")


def _ask_for_quotes(text: str) -> str:
    text = " ".join(text.split())
    shown = text if len(text) <= 60 else text[:59] + "…"
    quote = '"' if "'" in shown else "'"
    return f"If it is meant as text, put it in quotes: {quote}{shown}{quote}"


def _find_offset(text: str, line: int, column: int) -> int:
    lines = text.split("\n")
    return min(len(text), sum(len(before) + 1 for before in lines[: line - 1]) + column - 1)


def _find_foreign_symbols(text: str, tokens: list[Token]) -> None:
    for position, token in enumerate(tokens):
        following = tokens[position + 1] if position + 1 < len(tokens) else None
        joined = token.text + following.text if following and following.start == token.end else token.text
        if joined in (".?", "[?", "?.", "??"):
            fail_at(text, token.start, _OPTIONAL_SYNTAX)
        if token.kind != "symbol":
            continue
        if token.text in "'\"":
            fail_at(text, token.start, f"the text that begins here has no closing {token.text}, or a wrong \\ escape")
        if token.text in _SYMBOLS:
            fail_at(text, token.start, f"“{token.text}” can't stand here; {_SYMBOLS[token.text]}")
        if joined in ("**", "=>"):
            fail_at(text, token.start, f"there is no operator “{joined}”")


def _translate_syntax(tokens: list[Token], offset: int, message: str) -> str:
    token = next((token for token in tokens if token.start <= offset < token.end), None)
    if token is not None and token.kind in ("text", "raw"):
        return "this text has a wrong escape; write \\\\ for a backslash, or raw text: r'…'"
    if "literal" in message:
        return "the number is too large"
    if "reserved identifier" in message and token is not None:
        return f"“{token.text}” is a reserved word; it can't be used as a name"
    if "has() macro" in message:
        return "has(…) takes a key of something: has(output.title)"
    if "must be a simple name" in message:
        return "the first argument must be a name of your own: list.all(x, x > 0)"
    if "recursion" in message or "nest" in message or "depth" in message:
        return "the expression is nested too deeply"
    quoted = _QUOTED.search(message)
    if token is None or (quoted and quoted[1] == "<EOF>"):
        return "the expression ends too early"
    if "token recognition" in message:
        return f"“{token.text}” can't stand here"
    shown = token.text if len(token.text) <= 30 else token.text[:29] + "…"
    return f"“{shown}” can't stand here; is an operator, a comma or a bracket missing before it?"


# ---------------------------------------------------------------------------------------------------------------
# Names


def check_names(text: str, scan: Scan, variables: frozenset[str]) -> None:
    """Raise ``ExpressionError`` for the first name of a variable or function that is not known."""
    unknown: list[tuple[int, str]] = []
    for name, offset, bound in scan.names:
        if name not in variables and name not in TYPE_NAMES:
            hint = f". {_ask_for_quotes(text)}" if _ONE_WORD.fullmatch(text) else ""
            unknown.append((offset, _describe_unknown_name(name, variables, bound, hint)))
    for call in scan.calls:
        if call.name not in FUNCTIONS or call.name in LOOPS:
            unknown.append((call.offset, _describe_unknown_function(call.name)))
        elif call.name == "matches" and call.arguments and call.arguments[-1].kind in ("raw", "text"):
            unknown.extend(_check_pattern(call.arguments[-1]))
    if unknown:
        fail_at(text, *min(unknown))


def _describe_unknown_name(name: str, variables: frozenset[str], bound: frozenset[str], hint: str) -> str:
    if name in FUNCTIONS or name in NAMESPACES:
        return f"“{name}” is no variable; it belongs to a function and its brackets"
    available = [*sorted(variables), *sorted(bound)]
    suggestion = _suggest(_OTHER_NAMES.get(name) or _find_closest(name, available))
    return f"Unknown variable “{name}”. Available here: {', '.join(available)}{suggestion or hint}"


def _describe_unknown_function(name: str) -> str:
    if name in LOOPS:
        return f"“{name}” is used as {FUNCTIONS[name].usage}"
    return f"Unknown function “{name}”" + _suggest(
        _OTHER_FUNCTIONS.get(name.rpartition(".")[2]) or _find_closest(name, FUNCTIONS)
    )


def _check_pattern(token: Token) -> Iterable[tuple[int, str]]:
    pattern = token.text[2:-1] if token.kind == "raw" else token.text[1:-1]
    if (token.kind == "text" and "\\" in pattern) or pattern.startswith(("''", '""')):
        # With escapes or three quotes it is read when it is used.
        return
    try:
        compile_pattern(pattern)
    except ValueError as error:
        yield token.start, str(error)


def _find_closest(name: str, names: Iterable[str]) -> str | None:
    matches = difflib.get_close_matches(name, names, n=1)
    return matches[0] if matches else None


def _suggest(name: str | None) -> str:
    return f". Did you mean “{name}”?" if name else ""


# ---------------------------------------------------------------------------------------------------------------
# Evaluation


def _find_path(tokens: list[Token], key: str) -> str:
    """The first path in the expression that ends with ``.key``."""
    for position, token in enumerate(tokens):
        if token.text == key and position > 1 and tokens[position - 1].text == ".":
            start = position
            while start > 1 and tokens[start - 1].text == "." and tokens[start - 2].kind == "name":
                start -= 2
            if tokens[start].kind == "name" and start < position:
                return "".join(token.text for token in tokens[start : position + 1])
    return ""


_MIXED = "int and double don't mix (write double(x) or int(x)), text joins text only (write string(x))"


def describe_failure(error: BaseException, tokens: list[Token]) -> str:
    """One sentence for what ``cel`` raised while it evaluated the expression of these tokens."""
    message = str(error)
    if isinstance(error, KeyError):
        key = str(error.args[0]) if error.args else ""
        path = _find_path(tokens, key)
        hint = f"has({path})" if path else f"'{key[:60]}' in x"
        return f"There is no key “{key[:60]}”{f' for “{path}”' if path else ''}. Ask first with {hint}."
    if isinstance(error, IndexError):
        position = message.rpartition(": ")[2][:20]
        return f"There is no element {position} in the list. Ask size(list) first."
    if isinstance(error, ZeroDivisionError):
        return "A number is divided by zero. Ask first whether it is 0."
    if isinstance(error, OverflowError):
        return "A number is beyond the range of a 64-bit int, or a time beyond the year 9999."
    unsupported = re.search(r"Unsupported operation: (\S+) (\S+) (\S+?)\.", message)
    if unsupported:
        left, operator, right = unsupported.groups()
        return f"“{operator}” can't take {_TYPES.get(left, left)} and {_TYPES.get(right, right)}; {_MIXED}."
    function = re.search(r"Undefined variable or function: '(\w+)'|Function '(\w+)' error: (.{1,80}?)[.:\n]", message)
    if function:
        name = function[1] or function[2]
        known = FUNCTIONS.get(name)
        usage = f"“{known.usage}” gives {known.description}" if known else f"“{name}” can't take them"
        return f"“{name}” does not take these values here. {usage}."
    if isinstance(error, TypeError):
        return (
            "The types don't fit: an operator, a function or a key is used on a value of another type. "
            f"{_MIXED[0].upper()}{_MIXED[1:]}; "
            "null, text and numbers have no keys, and conditions must be true or false."
        )
    return f"The expression can't be evaluated: {message[:200].splitlines()[0] if message else type(error).__name__}."
