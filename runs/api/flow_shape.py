"""The document of a flow in the OpenAPI document: the schema that editors of flow files have, with its words."""

from __future__ import annotations

import json
from typing import Any

from drf_spectacular.contrib.pydantic import PydanticExtension
from drf_spectacular.openapi import AutoSchema
from drf_spectacular.plumbing import ResolvedComponent

from flows.flow_file import SCHEMA_PATH

_NAMES = {"StepSpec": "FlowStepDocument", "AuditSpec": "FlowAuditDocument"}
_OLD_PLACE, _NEW_PLACE = '"#/definitions/', '"#/components/schemas/'


class FlowDocumentShape(PydanticExtension):  # type: ignore[no-untyped-call]  # it registers itself
    """Describes ``FlowSpec``. Where the file of the schema is missing, in words that its classes have."""

    target_class = "flows.engine.spec.FlowSpec"
    priority = 1

    def get_name(self, auto_schema: AutoSchema, direction: Any) -> str:
        """What it is called."""
        return "FlowDocument"

    def map_serializer(self, auto_schema: AutoSchema, direction: Any) -> dict[str, Any]:
        """The schema of the whole; those of steps and audits are registered beside it."""
        if not SCHEMA_PATH.exists():
            made: dict[str, Any] = super().map_serializer(auto_schema, direction)  # type: ignore[no-untyped-call]
            return made
        text = SCHEMA_PATH.read_text(encoding="utf-8")
        for old, new in _NAMES.items():
            text = text.replace(f'{_OLD_PLACE}{old}"', f'{_NEW_PLACE}{new}"')
        schema: dict[str, Any] = json.loads(text)
        del schema["$schema"]
        parts: dict[str, Any] = schema.pop("definitions")
        for field in (field for part in (schema, *parts.values()) for field in part["properties"].values()):
            if "enum" in field:
                field.setdefault("type", "string")
        # Amounts of money may be written as text, so that no digit is lost on the way.
        schema["properties"]["cost_budget"]["type"].append("string")
        for name, part in parts.items():
            shown = _NAMES[name]
            component = ResolvedComponent(shown, ResolvedComponent.SCHEMA, part, shown)  # type: ignore[no-untyped-call]
            auto_schema.registry.register_on_missing(component)
        return schema
