"""Mending a schema so that strict mode takes it, where it can be done without changing what is meant."""

from __future__ import annotations

from typing import Any

from flows.engine.schema_check import DRAFT, follow_ref
from flows.engine.strict_schema import FORMATS, KEYWORDS_OF_TYPE, LOOKAROUND, SUPPORTED, TYPES

# These change what a value looks like: without them the schema would mean something else, so they stay and are told.
_MEANINGFUL = frozenset({"allOf", "prefixItems"})

_DEEPEST = 200

_MOST_NODES = 20_000
"""Schemas within one; once there are more, references are no longer written out. Each could double what is there."""


def make_strict(schema: Any) -> Any:
    """A copy of ``schema`` as near to the strict subset as it can be brought; ``check_strict`` says what is left.

    Objects list their properties, all of them required, and take no others; what could be left out may be null.
    ``oneOf`` becomes ``anyOf``, a single ``allOf`` is merged, a ``$ref`` with keywords beside it is written out, and
    keywords that only restrict are dropped. Doing it twice changes nothing more.
    """
    return mend(schema, optional_becomes_null=True)


def mend(schema: Any, *, optional_becomes_null: bool) -> Any:
    """``make_strict``, by choice without making optional properties nullable (their type may not take null)."""
    if not isinstance(schema, dict):
        return schema
    mender = _Mender(_rename_definitions(schema), optional_becomes_null)
    return mender.mend_root()


def _rename_definitions(value: Any, depth: int = 0) -> Any:
    """``definitions``, of older drafts, is ``$defs``."""
    if depth > _DEEPEST:
        return value
    if isinstance(value, list):
        return [_rename_definitions(item, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    renamed = {key: _rename_definitions(item, depth + 1) for key, item in value.items()}
    if depth == 0 and isinstance(renamed.get("definitions"), dict):
        definitions = renamed.pop("definitions")
        present = renamed.get("$defs", {})
        renamed["$defs"] = {**definitions, **present} if isinstance(present, dict) else definitions
    if isinstance(renamed.get("$ref"), str):
        renamed["$ref"] = renamed["$ref"].replace("#/definitions/", "#/$defs/", 1)
    return renamed


class _Mender:
    def __init__(self, root: dict[str, Any], optional_becomes_null: bool) -> None:
        self._root = root
        self._optional_becomes_null = optional_becomes_null
        self._mended = 0

    def mend_root(self) -> dict[str, Any]:
        root = self._root
        target = follow_ref(root, root["$ref"]) if isinstance(root.get("$ref"), str) else None
        if isinstance(target, dict) and root["$ref"].startswith("#/$defs/"):
            siblings = {key: value for key, value in root.items() if key != "$ref"}
            root = {**target, **siblings}
        mended: dict[str, Any] = self._mend(root, frozenset(), 0)
        if root.get("$schema") == DRAFT:
            mended = {"$schema": DRAFT, **mended}
        return mended

    def _mend(self, node: Any, inlined: frozenset[str], depth: int) -> Any:
        if not isinstance(node, dict) or depth > _DEEPEST:
            return node
        self._mended += 1
        node = self._merge_single(node)
        if isinstance(node.get("$ref"), str):
            return self._mend_ref(node, inlined, depth)
        if "oneOf" in node and "anyOf" not in node:
            node = {"anyOf" if key == "oneOf" else key: value for key, value in node.items()}
        mended = {key: value for key, value in node.items() if key in SUPPORTED or key in _MEANINGFUL}
        for keyword in ("properties", "$defs"):
            if isinstance(mended.get(keyword), dict):
                mended[keyword] = {
                    name: self._mend(child, inlined, depth + 1) for name, child in mended[keyword].items()
                }
        if isinstance(mended.get("anyOf"), list):
            mended["anyOf"] = [self._mend(child, inlined, depth + 1) for child in mended["anyOf"]]
            return mended
        if "items" in mended:
            mended["items"] = self._mend(mended["items"], inlined, depth + 1)
        self._mend_type(mended, node)
        self._mend_object(mended, node)
        return mended

    def _merge_single(self, node: dict[str, Any]) -> dict[str, Any]:
        for _ in range(_DEEPEST):
            parts = node.get("allOf")
            if not (isinstance(parts, list) and len(parts) == 1 and isinstance(parts[0], dict)):
                break
            node = {**parts[0], **{key: value for key, value in node.items() if key != "allOf"}}
        return node

    def _mend_ref(self, node: dict[str, Any], inlined: frozenset[str], depth: int) -> dict[str, Any]:
        """A reference alone, or what it refers to with the keywords that stood beside it."""
        ref = node["$ref"]
        siblings = {key: value for key, value in node.items() if key in SUPPORTED and key != "$ref"}
        target = follow_ref(self._root, ref)
        # What refers to itself is written out once; the words beside the inner references are given up.
        if not siblings or not isinstance(target, dict) or ref in inlined or self._mended > _MOST_NODES:
            return {"$ref": ref}
        written_out = {key: value for key, value in target.items() if key != "$defs"}
        mended: dict[str, Any] = self._mend({**written_out, **siblings}, inlined | {ref}, depth + 1)
        return mended

    def _mend_type(self, mended: dict[str, Any], node: dict[str, Any]) -> None:
        if "type" not in mended:
            guessed = _guess_type(mended)
            if guessed is not None:
                mended["type"] = guessed
        declared = mended.get("type")
        types = declared if isinstance(declared, list) else [declared]
        if not all(name in TYPES for name in types):
            return
        if node.get("nullable") is True and "null" not in types:
            mended.update(_allow_null(mended))
        for keyword, wanted in KEYWORDS_OF_TYPE.items():
            if not wanted.intersection(types):
                mended.pop(keyword, None)
        if mended.get("format") not in FORMATS:
            mended.pop("format", None)
        pattern = mended.get("pattern")
        if isinstance(pattern, str) and any(part in pattern for part in LOOKAROUND):
            mended.pop("pattern")

    def _mend_object(self, mended: dict[str, Any], node: dict[str, Any]) -> None:
        properties = mended.get("properties")
        if not isinstance(properties, dict) or "type" not in mended:
            return
        required = node.get("required")
        names = required if isinstance(required, list) else []
        if self._optional_becomes_null:
            for name, child in properties.items():
                if name not in names:
                    properties[name] = _allow_null(child)
        mended["required"] = list(properties)
        mended["additionalProperties"] = False


def _guess_type(node: dict[str, Any]) -> str | list[str] | None:
    if "properties" in node:
        return "object"
    if "items" in node:
        return "array"
    values = node["enum"] if isinstance(node.get("enum"), list) else [node["const"]] if "const" in node else []
    names = {
        type(value): name
        for value, name in ((None, "null"), (True, "boolean"), (1, "integer"), (1.0, "number"), ("", "string"))
    }
    found = sorted({names.get(type(value), "") for value in values})
    if not found or "" in found:
        return None
    return found[0] if len(found) == 1 else found


def _allow_null(node: Any) -> Any:
    """The schema, of values that may be null too."""
    if not isinstance(node, dict):
        return node
    if isinstance(node.get("anyOf"), list):
        if any(_takes_null(branch) for branch in node["anyOf"]):
            return node
        return {**node, "anyOf": [*node["anyOf"], {"type": "null"}]}
    if "$ref" in node:
        return {"anyOf": [node, {"type": "null"}]}
    declared = node.get("type")
    if declared is None:
        return node
    types = declared if isinstance(declared, list) else [declared]
    nullable = {**node, "type": declared if "null" in types else [*types, "null"]}
    if "const" in nullable and nullable["const"] is not None:
        nullable["enum"] = [nullable.pop("const"), None]
    elif isinstance(nullable.get("enum"), list) and None not in nullable["enum"]:
        nullable["enum"] = [*nullable["enum"], None]
    return nullable


def _takes_null(node: Any) -> bool:
    declared = node.get("type") if isinstance(node, dict) else None
    return declared == "null" or (isinstance(declared, list) and "null" in declared)
