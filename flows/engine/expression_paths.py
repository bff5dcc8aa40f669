"""Paths of expressions that most likely lead nowhere: ``output.total`` is held against the schema of the output.

What a schema leaves open, and what an expression asks for with ``has`` or ``in``, never gets a warning: a wrong warning
is worse than none.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from flows.engine.expressions import FIELD_VARIABLES, NAME, SKIPPED, parse_expression, split_tokens
from flows.engine.json_values import follow_ref
from flows.engine.message_template import parse_template
from flows.engine.plugins import PREFIX

# What these say about properties is more than a look-up can tell.
_INTRICATE = frozenset(
    {"allOf", "dependentSchemas", "if", "not", "patternProperties", "propertyNames", "$dynamicRef", "prefixItems"}
)
_MAX_OPTIONS = 50
_TYPES = {
    "string": "text",
    "number": "a number",
    "integer": "an integer",
    "boolean": "true or false",
    "null": "null",
}

_PARTS = rf"""(?:\s*\.\s*{NAME}(?!\w|\s*\()|\s*\[\s*(?:[0-9]+|'{NAME}'|"{NAME}")\s*\])*"""
_PART = re.compile(rf"(?P<index>[0-9]+)(?=\s*\])|(?P<name>{NAME})", re.ASCII)
_PATH = re.compile(
    rf"""{SKIPPED}
    |\b(?P<root>{NAME})(?P<parts>{_PARTS})
        (?:\s*\.\s*(?P<loop>all|exists|exists_one|filter|map)\s*\(\s*(?P<element>{NAME})\s*,)?
    |\.\s*{NAME}(?:\s*\(\s*(?P<other>{NAME})\s*,)?""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_ASKED = re.compile(rf"""\bhas\s*\([^()]*?({NAME})\s*\)|['"]({NAME})['"]\s+in\b""", re.ASCII)


class PathWarning(NamedTuple):
    """A path that most likely leads nowhere: what is wrong, and the offset of the part that is."""

    message: str
    offset: int


class _Value(NamedTuple):
    """The schemas that a value fits one of, each with its root and neither a reference nor a choice.

    ``earlier`` are those of the elements where the value is the variable ``steps``.
    """

    options: Sequence[tuple[dict[str, Any], dict[str, Any]]]
    earlier: Sequence[_Value | None] | None = None


def find_field_warnings(
    field: str, text: str, *, step: int, schemas: Mapping[int, Any], rule: str = ""
) -> list[PathWarning]:
    """The paths that most likely lead nowhere in an expression or template of the step with the index ``step``, from 1.

    ``schemas`` are those of the outputs by index, 0 for the input; one that is not known is missing or None. ``rule``
    is that of the field's audit: it says what ``item`` is. Raises ``ExpressionError`` for a text that is no expression;
    one that names a Python function has no paths.
    """
    if text.startswith(PREFIX):
        return []
    indexes = {"input": 0, "previous": step - 1, "output": step}
    roots = {name: _resolve([(schemas.get(index), schemas.get(index))]) for name, index in indexes.items()}
    roots["steps"] = _Value([], [_describe_step(schemas.get(index)) for index in range(step)])
    if field == "compute":
        # “previous” is what the step's input_expression and input_sanitizer made of the output before.
        roots["previous"] = None
    if rule and "item" in text and not rule.startswith(PREFIX):
        parse_expression(rule, variables=FIELD_VARIABLES["rule"])
        roots["item"] = _find_item(rule, roots)
    if field != "message_template":
        parse_expression(text, variables=FIELD_VARIABLES[field])
        return _find_warnings(text, roots)
    return [
        PathWarning(warning.message, path.offset + warning.offset)
        for path in parse_template(text).paths
        if path.text.isascii()  # expressions know no other names
        for warning in _find_warnings(path.text, roots)
    ]


def _find_warnings(text: str, roots: Mapping[str, _Value | None]) -> list[PathWarning]:
    warnings: list[PathWarning] = []
    known = dict(roots)
    asked = {name for names in _ASKED.findall(text) for name in names}
    for path in _PATH.finditer(text):
        value = _follow(text, path, known, asked, warnings) if path["root"] else None
        if path["element"] or path["other"]:
            # The name that a loop binds to each element, or any other first argument.
            known[path["element"] or path["other"]] = _find_element(value)
    return warnings


def _follow(
    text: str,
    path: re.Match[str],
    known: Mapping[str, _Value | None],
    asked: set[str],
    warnings: list[PathWarning],
) -> _Value | None:
    """What a path leads to; None if that is not known, with a warning if it leads nowhere."""
    found: _Value | str | None = known.get(path["root"])
    for part in _PART.finditer(text, path.start("parts"), path.end("parts")):
        if found is None or part["name"] in asked:
            return None
        assert not isinstance(found, str)
        if part["index"]:
            found = _pick_element(found, int(part["index"]))
        else:
            place = "".join(text[path.start() : part.start()].split()).rstrip(".['\"")
            found = _read_property(found, part["name"], f"“{place if len(place) <= 60 else '…' + place[-59:]}”")
        if isinstance(found, str):
            warnings.append(PathWarning(found, part.start()))
            return None
    return found if isinstance(found, _Value) else None


def _find_item(rule: str, roots: Mapping[str, _Value | None]) -> _Value | None:
    """An element of the list that a rule gives; None unless the rule is one path, or ``filter`` of one."""
    path = _PATH.match(rule.strip())
    if path is None or not path["root"] or path["loop"] not in (None, "filter"):
        return None
    rest = split_tokens(rule.strip()[path.end() :])
    depth = 1 if path["loop"] else 0
    for token in rest[:-1] if path["loop"] else rest:
        depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
        if depth == 0:
            return None
    return _find_element(_follow(rule.strip(), path, roots, set(), []))


# ---------------------------------------------------------------------------------------------------------------
# Schemas


def _resolve(nodes: Iterable[tuple[Any, Any]]) -> _Value | None:
    """The schemas, each with its root, their references and choices followed; None if they leave it open."""
    options: list[tuple[dict[str, Any], dict[str, Any]]] = []
    seen: set[str] = set()
    left = list(nodes)
    while left:
        node, root = left.pop(0)
        if not isinstance(node, dict) or node.keys() & _INTRICATE or len(seen) + len(options) > _MAX_OPTIONS:
            return None
        ref, choice = node.get("$ref"), node.get("anyOf") or node.get("oneOf")
        if isinstance(ref, str):
            if ref not in seen:
                seen.add(ref)
                left.append((follow_ref(root, ref), root))
        elif isinstance(choice, list) and "properties" not in node:
            left += [(branch, root) for branch in choice]
        elif choice is not None or not _list_types(node):
            return None
        elif _list_types(node) != ["null"]:
            options.append((node, root))
    return _Value(options) if options else None


def _describe_step(schema: Any) -> _Value:
    """An element of the variable ``steps``."""
    properties = {"name": {}, "output": schema, "issues": {}, "passed": {}}
    return _Value([({"type": "object", "properties": properties, "additionalProperties": False}, schema)])


def _list_types(node: Mapping[str, Any]) -> list[str]:
    declared = node.get("type")
    types = declared if isinstance(declared, list) else [declared]
    return [name for name in types if isinstance(name, str)] or (["object"] if "properties" in node else [])


def _find_element(value: _Value | None) -> _Value | None:
    """What any element of a list is."""
    if value is None:
        return None
    if value.earlier is not None:
        return _describe_step(None)
    lists = [(node.get("items"), root) for node, root in value.options if "array" in _list_types(node)]
    # Going through an object gives its keys, and a key may pick any of its properties.
    return _resolve(lists) if lists and len(lists) == len(value.options) else None


def _pick_element(value: _Value, index: int) -> _Value | str | None:
    """What the element at ``index`` is, or a sentence that says why there is none."""
    if value.earlier is None:
        return _find_element(value)
    last = len(value.earlier) - 1
    if index <= last:
        return value.earlier[index]
    come = f"only steps[0] to steps[{last}] come" if last else "only the input, steps[0], comes"
    return f"steps[{index}] can’t be read here: {come} before this step."


def _read_property(value: _Value, name: str, place: str) -> _Value | str | None:
    """What the property ``name`` is, or a sentence that says why there is none; ``place`` is the value's path."""
    if value.earlier is not None:
        return f"{place} is a list and has no property “{name[:60]}”; the output of step 1 is steps[1].output."
    objects = [(node, root) for node, root in value.options if "object" in _list_types(node)]
    listed = [(found, root) for node, root in objects if isinstance(found := node.get("properties"), dict)]
    if len(listed) < len(objects):
        return None
    if found := [(properties[name], root) for properties, root in listed if name in properties]:
        return _resolve(found)
    if not objects:
        return _describe_plain(value, name, place)
    names = list(dict.fromkeys(key for properties, _ in listed for key in properties))
    closest = difflib.get_close_matches(name[:100], [other for other in names if len(other) <= 100], n=1, cutoff=0.7)
    rules = [node.get("additionalProperties") for node, _ in objects]
    # Other keys are allowed. Where the schema only says nothing of them, a name that is nearly right is wrong.
    if any(rule not in (None, False) for rule in rules) or (None in rules and not closest):
        return None
    shown = ", ".join(other[:60] for other in names[:8]) + (" …" if len(names) > 8 else "")
    hint = f"Did you mean “{closest[0]}”?" if closest else f"It has {shown or 'none'}."
    return f"The schema of {place} has no property “{name[:60]}”. {hint}"


def _describe_plain(value: _Value, name: str, place: str) -> str | None:
    types = {kind for node, _ in value.options for kind in _list_types(node)} - {"null"}
    if types == {"array"}:
        return f"{place} is a list and has no property “{name[:60]}”; its elements are {place[1:-1]}[0] and so on."
    words = [_TYPES[kind] for kind in sorted(types) if kind in _TYPES]
    return f"{place} is {' or '.join(words)} and has no property “{name[:60]}”." if words else None
