#!/usr/bin/env python3
"""Writes docs/flow.schema.json, the JSON Schema of flow files: editors complete and check them with it.

Start it as ``.venv/bin/python scripts/write_flow_schema.py``; with ``-`` it prints the schema. Types and limits are
those of the classes in ``flows.engine.spec``; what a field does is described in the words of docs/flow-reference.md.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from flows.engine.spec import FlowSpec  # noqa: E402  # found from here on
from flows.flow_file import SCHEMA_PATH  # noqa: E402

REFERENCE = ROOT / "docs" / "flow-reference.md"
HEADINGS = {"FlowSpec": "Flow", "StepSpec": "Step", "AuditSpec": "Audit"}
DRAFT = "http://json-schema.org/draft-07/schema#"
"""The draft that every editor knows."""

STEP_NEEDS = [
    {"required": ["compute"]},
    {"required": ["tool_name", "output_schema"]},
    {"required": ["tool_name", "output_type"]},
]
"""A step is local, or calls the model."""


def read_descriptions(heading: str) -> dict[str, str]:
    """What the table below a heading of the reference says of each field, as plain text."""
    section = REFERENCE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|.*\| (.*?) \|$", section, re.MULTILINE)
    return {name: re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).replace("`", "") for name, text in rows}


def build_schema() -> dict[str, Any]:
    """The whole schema."""
    made = FlowSpec.model_json_schema(ref_template="#/definitions/{model}")
    parts = made.pop("$defs")
    choices = {f"#/definitions/{name}": parts.pop(name)["enum"] for name in list(parts) if "enum" in parts[name]}
    objects = {"FlowSpec": made, **parts}
    for kind, schema in objects.items():
        descriptions = read_descriptions(HEADINGS[kind])
        if descriptions.keys() != schema["properties"].keys():
            raise SystemExit(f"{REFERENCE.name} and {kind} don't have the same fields.")
        schema["properties"] = {
            name: {"description": descriptions[name], **tidy_field(field, choices)}
            for name, field in schema["properties"].items()
        }
        schema["title"] = HEADINGS[kind]
        schema.pop("description", None)
    parts["StepSpec"]["anyOf"] = STEP_NEEDS
    whole = {"$schema": DRAFT, **made, "title": "Flow of ToolFlow", "definitions": parts}
    return dict(sorted(whole.items(), key=lambda entry: entry[0] == "definitions"))


def tidy_field(field: dict[str, Any], choices: dict[str, list[str]]) -> dict[str, Any]:
    """A field without what pydantic adds for itself: titles, references to enumerations, and types where one is enough.

    ``choices`` are the values of enumerations, by reference.
    """
    field = {key: value for key, value in field.items() if key != "title"}
    if reference := field.pop("$ref", ""):
        return {"enum": choices[reference], **field}
    if kinds := field.pop("anyOf", None):
        # The first kind is what a file has; a script may also write amounts of money as text.
        del field["default"]
        if reference := kinds[0].get("$ref"):
            return {"enum": [*choices[reference], None], **field}
        field = {**kinds[0], "type": [kinds[0]["type"], "null"]}
    return field


def main() -> None:
    """Write the schema, or print it."""
    text = json.dumps(build_schema(), indent=2, ensure_ascii=False) + "\n"
    if sys.argv[1:] == ["-"]:
        sys.stdout.write(text)
    else:
        SCHEMA_PATH.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
