"""Paths of expressions that most likely lead nowhere: ``output.total`` is held against the schema of the output.

What a schema leaves open, and what an expression asks for with ``has`` or ``in``, never gets a warning: a wrong warning
is worse than none.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from flows.engine.expressions import FIELD_VARIABLES, ITEM_VARIABLES, NAME, SKIPPED, parse_expression, split_tokens
from flows.engine.json_values import follow_ref, shorten
from flows.engine.message_template import list_placeholders, parse_template
from flows.engine.plugins import PREFIX

# What these say about properties is more than a look-up can find.
_INTRICATE = frozenset(
    {"allOf", "dependentSchemas", "if", "not", "patternProperties", "propertyNames", "$dynamicRef", "prefixItems"}
)
_PLAIN_TYPES = frozenset({"array", "boolean", "integer", "number", "string"})
_MAX_OPTIONS = 50
_MAX_NAMES = 8

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

_Options: TypeAlias = list[tuple[dict[str, Any], Any]] | tuple[Any, ...] | None
"""The schemas that a value fits one of, each with its root; None if nothing is known of the value.

A tuple stands for the variable ``steps`` and holds the schemas of the outputs.
"""


class PathWarning(NamedTuple):
    """A path that most likely leads nowhere: what is wrong, and the offset of the part that is."""

    message: str
    offset: int


def find_field_warnings(
    field: str, text: str, *, step: int, schemas: Mapping[int, Any], rule: str = "", for_each: str = ""
) -> list[PathWarning]:
    """The paths that most likely lead nowhere in an expression or template of the step with the index ``step``, from 1.

    ``schemas`` are those of the outputs by index, 0 for the input; one that is not known is missing or None. ``rule``
    and ``for_each`` are those of the field's audit: they say what ``item`` is. Raises ``ExpressionError`` for a text
    that is not an expression; one that names a Python function has no paths, a ``system_message`` has placeholders.
    """
    if text.startswith(PREFIX) and field != "system_message":
        return []
    indexes = {"input": 0, "previous": step - 1, "output": step}
    if field == "compute":
        # “previous” is what the step's input_expression and input_sanitizer made of the output before.
        del indexes["previous"]
    roots = {name: _resolve([(schemas.get(index), schemas.get(index))]) for name, index in indexes.items()}
    roots["steps"] = tuple(schemas.get(index) for index in range(step))
    own = ITEM_VARIABLES if for_each and field != "for_each" else frozenset[str]()
    if (items := for_each or rule) and not items.startswith(PREFIX):
        parse_expression(items, variables=FIELD_VARIABLES["for_each" if for_each else "rule"])
        roots["item"] = _find_item(items.strip(), roots)
    if own:
        roots["index"] = [({"type": "integer"}, None)]
    if field == "system_message":
        paths: Iterable[tuple[str, int]] = list_placeholders(text)
    elif field == "message_template":
        paths = parse_template(text, FIELD_VARIABLES["message"] | own).paths
    else:
        parse_expression(text, variables=FIELD_VARIABLES[field] | own)
        return _find_warnings(text, roots)
    return [
        PathWarning(warning.message, offset + warning.offset)
        for path, offset in paths
        if path.isascii()  # expressions know no other names
        for warning in _find_warnings(path, roots)
    ]


def parse_output_path(text: str) -> tuple[str, ...] | None:
    """The parts of ``output.clauses`` or ``output.risks[0].parts``; None for any other text."""
    path = _PATH.fullmatch(text.strip())
    if path is None or path["root"] != "output" or path["loop"]:
        return None
    return tuple(part[0] for part in _PART.finditer(path["parts"]))


def _find_warnings(text: str, roots: Mapping[str, _Options]) -> list[PathWarning]:
    warnings: list[PathWarning] = []
    known = dict(roots)
    asked = {name for names in _ASKED.findall(text) for name in names}
    for path in _PATH.finditer(text):
        found = _follow(text, path, known, asked, warnings) if path["root"] else None
        # The name that a loop binds to each element, or any other first argument.
        if element := path["element"] or path["other"]:
            known[element] = _pick_element(found)
    return warnings


def _follow(
    text: str, path: re.Match[str], known: Mapping[str, _Options], asked: set[str], warnings: list[PathWarning]
) -> _Options:
    """What a path leads to; None if that is not known, with a warning if it leads nowhere."""
    options = known.get(path["root"])
    for part in _PART.finditer(text, path.start("parts"), path.end("parts")):
        if options is None or part["name"] in asked:
            return None
        place = "".join(text[path.start() : part.start()].split()).rstrip(".['\"")
        try:
            if part["index"]:
                options = _pick_element(options, int(part["index"]))
            else:
                options = _pick_property(options, part["name"], shorten(place))
        except LookupError as error:
            warnings.append(PathWarning(str(error), part.start()))
            return None
    return options


def _find_item(rule: str, roots: Mapping[str, _Options]) -> _Options:
    """An element of the list that a rule gives; None unless the rule is one path, or ``filter`` of one."""
    path = _PATH.match(rule)
    if path is None or not path["root"] or path["loop"] not in (None, "filter"):
        return None
    depth = int(bool(path["loop"]))
    for token in split_tokens(rule[path.end() :])[: -depth or None]:
        depth += (token[0] in "([{") - (token[0] in ")]}")
        if depth == 0:
            return None
    return _pick_element(_follow(rule, path, roots, set(), []))


# ---------------------------------------------------------------------------------------------------------------
# Schemas


def _resolve(nodes: list[tuple[Any, Any]]) -> _Options:
    """The schemas, each with its root, their references and choices followed; None if they leave it open."""
    options = []
    for node, root in nodes:
        if not isinstance(node, dict) or node.keys() & _INTRICATE or len(nodes) > _MAX_OPTIONS:
            return None
        ref, choice = node.get("$ref"), node.get("anyOf") or node.get("oneOf")
        # What is added here is met later in this loop.
        if isinstance(ref, str):
            nodes.append((follow_ref(root, ref), root))
        elif isinstance(choice, list) and "properties" not in node:
            nodes += [(branch, root) for branch in choice]
        elif choice is not None or not _list_types(node):
            return None
        elif _list_types(node) != ["null"]:
            options.append((node, root))
    return options or None


def _list_types(node: Mapping[str, Any]) -> list[str]:
    declared = node.get("type")
    types = declared if isinstance(declared, list) else [declared]
    return [name for name in types if isinstance(name, str)] or (["object"] if "properties" in node else [])


def _pick_element(options: _Options, index: int | None = None) -> _Options:
    """What the element at ``index``, or any one, of a list is. Raises ``LookupError`` if there is none."""
    if isinstance(options, tuple):
        if index is not None and index >= len(options):
            last = len(options) - 1
            known = f"only steps[0] to steps[{last}] come" if last else "only the input, steps[0], comes"
            raise LookupError(f"steps[{index}] can’t be read here: {known} before this step.")
        output = None if index is None else options[index]
        properties: dict[str, Any] = {"name": {}, "output": output, "issues": {}, "passed": {}}
        return [({"type": "object", "properties": properties, "additionalProperties": False}, output)]
    lists = [(node.get("items"), root) for node, root in options or [] if "array" in _list_types(node)]
    # Going through an object gives its keys, and a key may pick any of its properties.
    return _resolve(lists) if options and len(lists) == len(options) else None


def _pick_property(options: _Options, name: str, place: str) -> _Options:
    """What the property ``name`` of the value at ``place`` is. Raises ``LookupError`` if there is none."""
    lacks = f"no property “{shorten(name)}”"
    if isinstance(options, tuple):
        raise LookupError(f"“{place}” is a list and has {lacks}; the output of step 1 is steps[1].output.")
    objects = [(node, root) for node, root in options or [] if "object" in _list_types(node)]
    listed = [(found, root) for node, root in objects if isinstance(found := node.get("properties"), dict)]
    if len(listed) < len(objects):
        return None
    if found := [(properties[name], root) for properties, root in listed if name in properties]:
        return _resolve(found)
    if not objects:
        types = sorted({kind for node, _ in options or [] for kind in _list_types(node)} & _PLAIN_TYPES)
        example = f"; its elements are {place}[0] and so on" if types == ["array"] else ""
        if types:
            raise LookupError(f"“{place}” is of type {' or '.join(types)} and has {lacks}{example}.")
        return None
    names = list(dict.fromkeys(key for properties, _ in listed for key in properties))
    closest = difflib.get_close_matches(name, names, n=1, cutoff=0.7)
    rules = [node.get("additionalProperties") for node, _ in objects]
    # Other keys are allowed. Where the schema only says nothing of them, a name that is nearly right is wrong.
    if any(rule not in (None, False) for rule in rules) or (None in rules and not closest):
        return None
    shown = ", ".join(map(shorten, names[:_MAX_NAMES])) + (" …" if len(names) > _MAX_NAMES else "")
    hint = f"Did you mean “{closest[0]}”?" if closest else f"It has {shown or 'none'}."
    raise LookupError(f"The schema of “{place}” has {lacks}. {hint}")
