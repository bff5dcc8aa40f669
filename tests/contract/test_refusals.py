"""What is refused when a flow is saved, and where: codes and JSON pointers. The sentences may change."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest

from tests.contract.golden import check_golden, read_golden
from tests.contract.site import Api

pytestmark = pytest.mark.django_db

BASE: dict[str, Any] = {
    "name": "base",
    "model": "gpt-4.1",
    "input_schema": {"type": "object", "properties": {"topic": {"type": "string"}}, "additionalProperties": False},
    "steps": [
        {
            "name": "Draft",
            "tool_name": "draft",
            "output_schema": {
                "type": "object",
                "properties": {"text": {"type": "string"}},
                "required": ["text"],
                "additionalProperties": False,
            },
            "audits": [{"name": "Not empty", "rule": "output.text != ''"}],
        },
        {"name": "Count", "compute": "{'length': size(previous.text)}"},
    ],
}


def _expand(value: Any, number: int = 0) -> Any:
    """A value of the table, with repetitions written out."""
    if isinstance(value, str):
        return value.replace("{n}", str(number))
    if isinstance(value, list):
        return [_expand(part, number) for part in value]
    if not isinstance(value, dict):
        return value
    if "$json" in value:
        return json.loads(value["$json"])
    if "$text" in value:
        return value["$text"] * value["$times"]
    if "$item" in value:
        return [_expand(value["$item"], index) for index in range(value["$times"])]
    return {name: _expand(part, number) for name, part in value.items()}


def _change(document: Any, pointer: str, change: Any) -> None:
    """Call ``change`` with the object or list that holds the place, and the key or index."""
    *path, last = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
    for part in path:
        document = document[int(part)] if isinstance(document, list) else document[part]
    change(document, int(last) if isinstance(document, list) else last)


def _set(value: Any) -> Any:
    def change(parent: Any, key: Any) -> None:
        if isinstance(parent, list) and key == len(parent):
            parent.append(value)
        else:
            parent[key] = value

    return change


def _build_document(case: dict[str, Any]) -> dict[str, Any]:
    document = deepcopy(BASE)
    for pointer in case.get("remove", []):
        _change(document, pointer, lambda parent, key: parent.pop(key))
    for pointer, value in case.get("set", {}).items():
        _change(document, pointer, _set(_expand(value)))
    for _ in range(case.get("nest", 0)):
        inner = document["steps"][0]["output_schema"]
        document["steps"][0]["output_schema"] = {**inner, "properties": {"text": inner}}
    return document


def test_flows_are_refused_with_the_places_of_their_problems() -> None:
    api = Api()
    assert api.find_errors(BASE) == []
    table = read_golden("golden/bad_flows.yaml")
    found: dict[str, list[Any]] = {}
    for section, cases in table.items():
        found[section] = []
        for case in cases:
            document = _build_document(case)
            if section == "warnings":
                errors = api.fetch("POST", "flows/validate", document)["warnings"]
            else:
                errors = api.find_errors(document)
            found[section].append({**case, "found": sorted({error["pointer"] for error in errors})})
    misplaced = [
        case for section, cases in found.items() for case in cases if (section == "accepted") == bool(case["found"])
    ]
    assert misplaced == []
    check_golden("golden/bad_flows.yaml", found)
