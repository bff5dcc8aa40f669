"""The difference of two JSON Schemas as sentences: what a property may now hold, and what it was before."""

from __future__ import annotations

import json
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from typing import Any

from flows.engine.differences.schema_words import describe_schema, quote_value

_SHAPE = ("type", "enum", "const", "$ref", "format", "pattern")
"""Keywords that a description of the schema tells of."""

_TEXTS = {"description": "description", "title": "title"}
_PARTS = {"items": "[]", "contains": "[]", "not": " (not)", "if": " (if)", "then": " (then)", "else": " (else)"}
_CHOICES = ("anyOf", "oneOf", "allOf", "prefixItems")
_DEFINITIONS = ("$defs", "definitions")


def compare_schemas(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """One sentence for each thing that differs, also in the order of keys; none if the two are the same document."""
    return list(dict.fromkeys(_compare(old, new, "")))


def _is_same(old: Any, new: Any) -> bool:
    # As JSON, so that 1, 1.0 and true differ, and so does the order of keys.
    return old is new or json.dumps(old, default=str) == json.dumps(new, default=str)


def _compare(old: Any, new: Any, path: str) -> Iterator[str]:
    if _is_same(old, new):
        return
    if not isinstance(old, Mapping) or not isinstance(new, Mapping):
        yield f"{_name(path)} is now {quote_value(new)} (was {quote_value(old)})"
        return
    told = yield from _compare_shape(old, new, path)
    for key in dict.fromkeys([*old, *new]):
        if key not in told and not (key in old and key in new and _is_same(old[key], new[key])):
            yield from _compare_keyword(key, old, new, path)
    shared = [key for key in old if key in new]
    if shared != [key for key in new if key in old]:
        yield f"order of keywords of {_name(path)} changed"


def _compare_shape(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Generator[str, None, Collection[str]]:
    """Says what may be there now, where a few words can; gives the keywords that need no sentence any more."""
    before, after = describe_schema(old), describe_schema(new)
    if before == after or ("properties" in old and "properties" in new) or ("items" in old and "items" in new):
        return ()
    yield f"{_name(path)} is now {after} (was {before})"
    keys = {key for key in _SHAPE if key in old or key in new}
    # Choices and contents that only one side has are in the words.
    keys |= {key for key in (*_CHOICES, "items", "properties") if (key in old) != (key in new)}
    if ("properties" in old) != ("properties" in new):
        keys |= {"required", "additionalProperties"}
    return keys


def _compare_keyword(key: str, old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[str]:
    before, after = old.get(key), new.get(key)
    both = key in old and key in new
    if key == "properties" and both and isinstance(before, Mapping) and isinstance(after, Mapping):
        yield from _compare_properties(old, new, path)
    elif key == "required":
        yield from _compare_required(old, new, path)
    elif key in _DEFINITIONS and isinstance(before or {}, Mapping) and isinstance(after or {}, Mapping):
        yield from _compare_definitions(key, before or {}, after or {}, path)
    elif key in _PARTS and both:
        yield from _compare(before, after, path + _PARTS[key])
    elif key in _CHOICES and both and isinstance(before, Sequence) and isinstance(after, Sequence):
        yield from _compare_choices(key, before, after, path)
    elif key in _TEXTS and isinstance(before, str | None) and isinstance(after, str | None):
        yield _tell_text(_TEXTS[key], before, after, path)
    elif key == "additionalProperties" and {type(before), type(after)} <= {bool, type(None)}:
        allowed = "refuses" if after is False else "allows"
        yield f"{_name(path)} now {allowed} properties that are not listed"
    elif key == "enum" and both:
        yield f"values of {_name(path)} are now {quote_value(after)} (were {quote_value(before)})"
    else:
        words = [quote_value(side[key]) if key in side else "none" for side in (old, new)]
        yield f"`{key}` of {_name(path)}: {words[0]} → {words[1]}"


def _compare_properties(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[str]:
    before, after = old["properties"], new["properties"]
    names = _find_renamed(before, after)
    for name in before:
        if name in names:
            yield f"property {_name(_join(path, name))} is now called `{names[name]}`"
        elif name not in after:
            yield f"property {_name(_join(path, name))} removed ({describe_schema(before[name])})"
    required = new.get("required")
    for name in after:
        if name in before:
            yield from _compare(before[name], after[name], _join(path, name))
        elif name not in names.values():
            is_optional = not (isinstance(required, list) and name in required)
            words = describe_schema(after[name]) + (", may be missing" if is_optional else "")
            yield f"property {_name(_join(path, name))} added ({words})"
    left = [names.get(name, name) for name in before if name in after or name in names]
    if left != [name for name in after if name in left]:
        yield f"order of properties{_of(path)} changed: {quote_value(list(after))}"


def _find_renamed(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, str]:
    """The one property that went and the one that came, if they look the same."""
    gone, come = [name for name in old if name not in new], [name for name in new if name not in old]
    if len(gone) == len(come) == 1 and _is_same(old[gone[0]], new[come[0]]):
        return {gone[0]: come[0]}
    return {}


def _compare_required(old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[str]:
    before, after = old.get("required", []), new.get("required", [])
    sides = [side.get("properties", {}) for side in (old, new)]
    if not all(isinstance(side, Mapping) for side in sides) or not (_is_names(before) and _is_names(after)):
        yield f"`required` of {_name(path)}: {quote_value(before)} → {quote_value(after)}"
        return
    kept = set(sides[0]) & set(sides[1])
    is_told = False
    for name in dict.fromkeys([*before, *after]):
        is_stray = name not in sides[0] and name not in sides[1]
        if (name in kept or is_stray) and (name in before) != (name in after):
            is_told = True
            yield f"{_name(_join(path, name))} {'must now be there' if name in after else 'may now be missing'}"
    # What came and went together with its property is told there.
    came = set(sides[1]) - set(sides[0])
    left = [name for name in before if name in kept]
    is_told |= bool(came or set(sides[0]) - kept) and left == [name for name in after if name not in came]
    # An order that changed with that of the properties is told there.
    is_told |= sorted(before) == sorted(after) and list(sides[0]) != list(sides[1])
    if not is_told:
        yield f"`required`{_of(path)} is written differently: {quote_value(after)}"


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _compare_definitions(key: str, old: Mapping[str, Any], new: Mapping[str, Any], path: str) -> Iterator[str]:
    place = path if not path else f"{path} "
    for name in dict.fromkeys([*old, *new]):
        if name not in new:
            yield f"definition `{place}{name}` removed"
        elif name not in old:
            yield f"definition `{place}{name}` added ({describe_schema(new[name])})"
        else:
            yield from _compare(old[name], new[name], f"{place}{name}")
    if [name for name in old if name in new] != [name for name in new if name in old]:
        yield f"order of definitions{_of(path)} changed"
    if not old and not new:
        yield f"an empty `{key}`{_of(path)} added or removed"


def _compare_choices(key: str, old: Sequence[Any], new: Sequence[Any], path: str) -> Iterator[str]:
    if len(old) == len(new):
        for number, (before, after) in enumerate(zip(old, new, strict=True), start=1):
            yield from _compare(before, after, f"{path} ({_ordinal(number)} choice)")
        return
    sides = [quote_value([describe_schema(one) for one in side], is_plain=True) for side in (old, new)]
    yield f"`{key}` of {_name(path)} has {len(new)} choices (had {len(old)}): {sides[1]} (was {sides[0]})"


def _tell_text(word: str, before: str | None, after: str | None, path: str) -> str:
    if not before:
        return f"{word} of {_name(path)} added: {quote_value(after)}"
    if not after:
        return f"{word} of {_name(path)} removed: {quote_value(before)}"
    return f"{word} of {_name(path)} changed: {quote_value(before)} → {quote_value(after)}"


def _name(path: str) -> str:
    return f"`{path.strip()}`" if path.strip() else "the whole"


def _of(path: str) -> str:
    return f" of `{path.strip()}`" if path.strip() else ""


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _ordinal(number: int) -> str:
    return {1: "1st", 2: "2nd", 3: "3rd"}.get(number, f"{number}th")
