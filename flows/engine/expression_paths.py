"""Whether the paths of an expression lead anywhere: ``output.total`` is held against the schema of the output.

What a schema leaves open, and what an expression asks for with ``has`` or ``in``, is never doubted: a wrong warning is
worse than none.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from flows.engine.expression_scanner import LOOPS, scan
from flows.engine.schema_check import follow_ref

_SAME_ELEMENTS = frozenset({"distinct", "filter", "reverse", "slice", "sort"})
"""Functions that give a list of what was in the list before."""

_OPENING, _CLOSING = frozenset("([{"), frozenset(")]}")

# What these say about properties is more than a look-up can tell.
_INTRICATE = frozenset(
    {"allOf", "dependentSchemas", "if", "not", "patternProperties", "propertyNames", "$dynamicRef", "prefixItems"}
)
_MOST_OPTIONS = 50

_TYPES = {
    "string": "text",
    "number": "a number",
    "integer": "an integer",
    "boolean": "true or false",
    "null": "null",
}
_STEP_KEYS = ("name", "output", "issues", "passed")


@dataclass(frozen=True, slots=True)
class PathWarning:
    """A path that most likely leads nowhere: what is wrong, and the offset of the part that is."""

    message: str
    offset: int


def find_path_warnings(
    text: str, *, schemas: Mapping[str, Any], steps: Sequence[Any] | None = None, rule: str = ""
) -> list[PathWarning]:
    """Every property that an expression reads and that cannot be there, by the JSON Schemas of its variables.

    ``text`` is an expression that ``parse_expression`` takes. ``schemas`` are by variable; ``steps`` are those of the
    outputs that the variable ``steps`` holds, None where one is not known. Without ``steps`` it is not looked at.
    ``rule`` is the expression whose elements the variable ``item`` stands for.
    """
    roots: dict[str, _Value] = {name: _read_schema(schema) for name, schema in schemas.items()}
    if steps is not None:
        roots["steps"] = _Steps(tuple(_read_schema(schema) for schema in steps))
    if rule:
        roots["item"] = _Walker(rule, roots).find_element()
    return _Walker(text, roots).run()


class _Walker:
    """Goes through the tokens of an expression once, with what is known of the value at hand."""

    def __init__(self, text: str, roots: Mapping[str, _Value]) -> None:
        found = scan(text)
        self._text = text
        self._tokens = found.tokens
        self._roots = roots
        self._warnings: list[PathWarning] = []
        self._asked = {call.arguments[-1].text for call in found.calls if call.name == "has" and call.arguments}
        for token, following in zip(found.tokens, found.tokens[1:], strict=False):
            if token.kind == "text" and following.text == "in":
                self._asked.add(token.text[1:-1])

    def run(self) -> list[PathWarning]:
        position = 0
        while position < len(self._tokens):
            position = self._walk(position, {}) + 1
        return self._warnings

    def find_element(self) -> _Value:
        """What the elements are of the list that the expression gives; None unless it is one path."""
        position, value = self._follow(0, {})
        return value.element() if value and position == len(self._tokens) else None

    def _walk(self, position: int, bound: Mapping[str, _Value]) -> int:
        """Go through what stands between two brackets; gives the position of the one that closes."""
        while position < len(self._tokens):
            token = self._tokens[position]
            if token.kind == "symbol" and token.text in _CLOSING:
                break
            if (token.kind == "symbol" and token.text not in _OPENING) or token.text == "in":
                position += 1
            else:
                position, _ = self._follow(position, bound)
        return position

    def _follow(self, position: int, bound: Mapping[str, _Value]) -> tuple[int, _Value]:
        """Go along a path from its first token; gives the position behind it, and what it leads to."""
        token, start = self._tokens[position], self._tokens[position].start
        value: _Value = None
        if token.kind == "symbol":
            position = self._walk(position + 1, bound)
        elif token.kind == "name" and self._text_at(position + 1) != "(":
            value = bound[token.text] if token.text in bound else self._roots.get(token.text)
        position += 1
        while True:
            match [self._text_at(position + shift) for shift in range(4)]:
                case [".", name, "(", first]:
                    inner = bound
                    if name in LOOPS and self._text_at(position + 4) == ",":
                        inner = {**bound, first: value.element() if value else None}
                    position = self._walk(position + 3, inner) + 1
                    value = value if name in _SAME_ELEMENTS else None
                case [".", name, *_]:
                    value = self._read(value, name, start, position + 1)
                    position += 2
                case ["[", key, "]", _] if self._tokens[position + 1].kind in ("text", "number"):
                    value = self._pick(value, key, start, position + 1)
                    position += 3
                case ["[" | "(" as bracket, *_]:
                    position = self._walk(position + 1, bound) + 1
                    value = value.element() if value and bracket == "[" else None
                case _:
                    return position, value

    def _read(self, value: _Value, name: str, start: int, position: int) -> _Value:
        if value is None or name in self._asked:
            return None
        found = value.read(name, self._quote(start, self._tokens[position].start))
        return self._note(found, position)

    def _pick(self, value: _Value, key: str, start: int, position: int) -> _Value:
        if self._tokens[position].kind == "text":
            is_plain = key[0] in "'\"" and not key.startswith(("'''", '"""')) and "\\" not in key
            return self._read(value, key[1:-1], start, position) if is_plain else None
        digits = key.rstrip("uU")
        if value is None or not digits.isdecimal():
            return None
        return self._note(value.pick(int(digits)), position)

    def _note(self, found: _Found, position: int) -> _Value:
        if isinstance(found, str):
            self._warnings.append(PathWarning(found, self._tokens[position].start))
            return None
        return found

    def _quote(self, start: int, end: int) -> str:
        path = "".join(self._text[start:end].split()).rstrip(".[")
        return f"“{path if len(path) <= 60 else '…' + path[-59:]}”"

    def _text_at(self, position: int) -> str:
        return self._tokens[position].text if position < len(self._tokens) else ""


# ---------------------------------------------------------------------------------------------------------------
# What is known of a value


class _Known:
    """What a path may lead on from. None stands for a value that nothing is known of."""

    def read(self, name: str, place: str) -> _Found:
        """What the property ``name`` is, or a sentence that says why there is none; ``place`` is the value's path."""
        raise NotImplementedError

    def element(self) -> _Value:
        """What any element of a list is."""
        return None

    def pick(self, index: int) -> _Found:
        """What the element at ``index`` is, or a sentence that says why there is none."""
        return self.element()


_Value: TypeAlias = _Known | None
_Found: TypeAlias = _Known | str | None


def _read_schema(schema: Any) -> _Value:
    return _Schemas.of([(schema, schema)]) if isinstance(schema, dict) else None


class _Schemas(_Known):
    """A value that fits one of several schemas, none of them a reference or a choice."""

    def __init__(self, options: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
        self._options = options

    @classmethod
    def of(cls, nodes: list[tuple[Any, dict[str, Any]]]) -> _Value:
        """The schemas, each with its root, their references and choices followed; None if they leave it open."""
        options: list[tuple[dict[str, Any], dict[str, Any]]] = []
        seen: set[str] = set()
        left = list(nodes)
        while left:
            node, root = left.pop(0)
            if not isinstance(node, dict) or node.keys() & _INTRICATE or len(seen) + len(options) > _MOST_OPTIONS:
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
        return cls(options) if options else None

    def read(self, name: str, place: str) -> _Found:
        objects = [(node, root) for node, root in self._options if "object" in _list_types(node)]
        listed = [
            (properties, root) for node, root in objects if isinstance(properties := node.get("properties"), dict)
        ]
        if len(listed) < len(objects):
            return None
        found = [(properties[name], root) for properties, root in listed if name in properties]
        if found:
            return _Schemas.of(found)
        if not objects:
            return self._describe_plain(name, place)
        names = list(dict.fromkeys(key for properties, _ in listed for key in properties))
        closest = _find_closest(name, names)
        extra = [node.get("additionalProperties", True) for node, _ in objects]
        if any(rule is not False for rule in extra):
            # Other keys are allowed. Where nobody said so, a name that is nearly right is wrong all the same.
            has_said = any(node.get("additionalProperties") not in (None, False) for node, _ in objects)
            if has_said or closest is None:
                return None
        return f"The schema of {place} has no property “{name[:60]}”. {_suggest(closest, names)}"

    def _describe_plain(self, name: str, place: str) -> _Found:
        types = {kind for node, _ in self._options for kind in _list_types(node)} - {"null"}
        if types == {"array"}:
            return f"{place} is a list and has no property “{name[:60]}”; its elements are {place[1:-1]}[0] and so on."
        words = [_TYPES[kind] for kind in sorted(types) if kind in _TYPES]
        return f"{place} is {' or '.join(words)} and has no property “{name[:60]}”." if words else None

    def element(self) -> _Value:
        lists = [(node.get("items"), root) for node, root in self._options if "array" in _list_types(node)]
        # Going through an object gives its keys, and a key may pick any of its properties.
        return _Schemas.of(lists) if lists and len(lists) == len(self._options) else None


def _list_types(node: Mapping[str, Any]) -> list[str]:
    declared = node.get("type")
    types = declared if isinstance(declared, list) else [declared]
    return [name for name in types if isinstance(name, str)] or (["object"] if "properties" in node else [])


class _Steps(_Known):
    """The variable ``steps``."""

    def __init__(self, outputs: Sequence[_Value]) -> None:
        self._outputs = outputs

    def read(self, name: str, place: str) -> _Found:
        return f"{place} is a list and has no property “{name[:60]}”; the output of step 1 is steps[1].output."

    def element(self) -> _Value:
        return _Step(None)

    def pick(self, index: int) -> _Found:
        if index < len(self._outputs):
            return _Step(self._outputs[index])
        last = len(self._outputs) - 1
        earlier = f"only steps[0] to steps[{last}] come" if last else "only the input, steps[0], comes"
        return f"steps[{index}] can’t be read here: {earlier} before this step."


class _Step(_Known):
    """One element of ``steps``."""

    def __init__(self, output: _Value) -> None:
        self._output = output

    def read(self, name: str, place: str) -> _Found:
        if name not in _STEP_KEYS:
            return f"{place} has no property “{name[:60]}”. {_suggest(_find_closest(name, _STEP_KEYS), _STEP_KEYS)}"
        return self._output if name == "output" else None


def _find_closest(name: str, names: Iterable[str]) -> str | None:
    matches = difflib.get_close_matches(name[:100], [other for other in names if len(other) <= 100], n=1, cutoff=0.7)
    return matches[0] if matches else None


def _suggest(closest: str | None, names: Sequence[str]) -> str:
    if closest is not None:
        return f"Did you mean “{closest}”?"
    shown = ", ".join(name[:60] for name in names[:8]) + (" …" if len(names) > 8 else "")
    return f"It has {shown}." if names else "It has none."
