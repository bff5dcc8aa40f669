"""A document without its parts that can't be used, so that the rest can be checked all the same."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from typing import Any

from flows.flow_file.yaml_reading import Path

# Names must clash with none that somebody gave.
_NOBODY_TYPES = "\N{SYMBOL FOR NULL}"
_ANY_OUTPUT = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


def replace_parts(document: dict[str, Any], paths: Iterable[Path]) -> dict[str, Any]:
    """The document with what stands at ``paths`` left out, or replaced where a flow can't do without.

    Nothing is told about such parts by whoever checks the result, except at these very paths.
    """
    known = set(paths)
    if not known:
        return document
    copy = deepcopy(document)
    for path in known:
        # What lies within another part goes with it.
        if not any(path[:length] in known for length in range(len(path))):
            _replace(copy, path)
    return copy


def _replace(document: dict[str, Any], path: Path) -> None:
    match path:
        case ("steps", int(index), "audits", int(position), *rest):
            audits = document["steps"][index]["audits"]
            if not rest or not isinstance(audits[position], dict):
                audits[position] = {}
            _replace_field(audits[position], rest, {"name": f"{_NOBODY_TYPES}{position}", "rule": "true"})
        case ("steps", int(index), *rest):
            steps = document["steps"]
            if not rest or not isinstance(steps[index], dict):
                steps[index] = {"compute": "{}"}
            step = steps[index]
            _replace_field(step, rest, {"name": f"{_NOBODY_TYPES}{index}"})
            if rest[:1] == ["compute"]:
                step["compute"] = "{}"
            if rest[:1] in (["output_type"], ["output_schema"]):
                step.setdefault("output_schema", _ANY_OUTPUT)
        case ("steps",):
            document["steps"] = [{"name": _NOBODY_TYPES, "compute": "{}"}]
        case (str(), *_):
            _replace_field(document, list(path), {"name": "unnamed"})


def _replace_field(part: dict[str, Any], path: list[str | int], required: dict[str, str]) -> None:
    if path:
        part.pop(str(path[0]), None)
    for name, value in required.items():
        part.setdefault(name, value)
