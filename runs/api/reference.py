"""The OpenAPI document as the reference page shows it: operations by tag, and the objects that they take and give."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from flows.engine.json_value import dump_json
from runs.api.problems import MEDIA_TYPE as PROBLEM_TYPE
from runs.api.reference_parts import Answer, Field, Operation, Section, Shape

JSON = "application/json"
YAML = "application/yaml"
DEEPEST = 4
"""Levels of objects in an example; what lies deeper is left out."""

NULL = "Null"
"""What the document calls the type of a value that is absent."""
LIMITS = {"minimum": "from", "maximum": "to", "maxLength": "length to", "default": "by default"}

_OBJECT_PLACE = "#/components/schemas/"


class Reference:
    """Reads an OpenAPI document; ``address`` is where the API lies on ``site``."""

    def __init__(self, schema: Mapping[str, Any], *, address: str, site: str) -> None:
        self._schema = schema
        self._base = site + address
        self._objects: Mapping[str, Any] = schema["components"]["schemas"]

    @cached_property
    def description(self) -> SafeString:
        """What the document says of the whole API."""
        return write_text(self._schema["info"].get("description", ""))

    @cached_property
    def sections(self) -> list[Section]:
        """All operations by their first tag, in the order of the document's tags."""
        by_tag: dict[str, list[Operation]] = {tag["name"]: [] for tag in self._schema.get("tags", ())}
        for path, methods in self._schema["paths"].items():
            for method, operation in methods.items():
                by_tag.setdefault(operation["tags"][0], []).append(self._read_operation(path, method, operation))
        for name, methods in self._schema.get("webhooks", {}).items():
            for method, operation in methods.items():
                by_tag.setdefault(operation["tags"][0], []).append(self._read_webhook(name, method, operation))
        told = {tag["name"]: tag["description"] for tag in self._schema.get("tags", ())}
        return [Section(name, write_text(told.get(name, "")), found) for name, found in by_tag.items() if found]

    @cached_property
    def shapes(self) -> list[Shape]:
        """All objects, by name."""
        return [
            Shape(
                name=name,
                description=write_text(shape.get("description", "")),
                fields=list(self._read_fields(shape)),
                choices=[write_value(value) for value in shape.get("enum", ())],
            )
            for name, shape in sorted(self._objects.items())
            if name != NULL
        ]

    def _read_operation(self, path: str, method: str, operation: Mapping[str, Any]) -> Operation:
        parameters = [self._read_parameter(parameter) for parameter in operation.get("parameters", ())]
        parameters.sort(key=lambda parameter: parameter.place != "path")
        contents: Mapping[str, Any] = operation.get("requestBody", {}).get("content", {})
        answers = [self._read_answer(status, answer) for status, answer in operation["responses"].items()]
        given: Mapping[str, Any] = next(iter(operation["responses"].values())).get("content", {})
        return Operation(
            name=operation["operationId"],
            method=method.upper(),
            path=path,
            summary=operation.get("summary", operation["operationId"]),
            description=write_text(operation.get("description", "")),
            parameters=parameters,
            body=self._write_contents(contents),
            answers=[answer for answer in answers if answer.status < "4"],
            problems=[answer for answer in answers if answer.status >= "4"],
            curl=self._write_curl(path, method.upper(), operation, contents),
            # What comes as a file or as a stream is not for a page.
            can_be_tried=JSON in given or not given,
            sample=dump_json(json.loads(self._write_body(contents[JSON])), indent=2) if JSON in contents else "",
        )

    def _read_webhook(self, name: str, method: str, operation: Mapping[str, Any]) -> Operation:
        """What the API sends, and how it takes the answers of others."""
        return Operation(
            name=operation["operationId"],
            method=method.upper(),
            path=name,
            summary=operation["summary"],
            description=write_text(operation["description"]),
            parameters=[self._read_parameter(parameter) for parameter in operation["parameters"]],
            body=self._write_contents(operation["requestBody"]["content"]),
            answers=[self._read_answer(status, answer) for status, answer in operation["responses"].items()],
            problems=(),
            curl="",
            can_be_tried=False,
        )

    def _read_parameter(self, parameter: Mapping[str, Any]) -> Field:
        schema = self._resolve(parameter["schema"])
        choices = ("true", "false") if schema.get("type") == "boolean" else schema.get("enum", ())
        return Field(
            name=parameter["name"],
            place=parameter["in"],
            kind=self._write_kind(parameter["schema"]),
            is_required=parameter.get("required", False),
            description=write_text(parameter.get("description", "")),
            choices=[write_value(choice) for choice in choices],
        )

    def _read_fields(self, shape: Mapping[str, Any]) -> Iterator[Field]:
        required = shape.get("required", ())
        for name, schema in shape.get("properties", {}).items():
            yield Field(
                name=name,
                place="",
                kind=self._write_kind(schema),
                is_required=name in required,
                description=write_text(schema.get("description", "")),
            )

    def _read_answer(self, status: str, answer: Mapping[str, Any]) -> Answer:
        if "$ref" in answer:
            answer = self._schema["components"]["responses"][answer["$ref"].rpartition("/")[2]]
        contents = {kind: value for kind, value in answer.get("content", {}).items() if kind != PROBLEM_TYPE}
        return Answer(status, self._write_contents(contents), write_text(answer.get("description", "")))

    def _write_contents(self, contents: Mapping[str, Any]) -> SafeString:
        kinds = {
            self._write_kind(content["schema"]) if kind == JSON else format_html("<code>{}</code>", kind)
            for kind, content in contents.items()
        }
        return _join(" or ", sorted(kinds))

    def _resolve(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        for part in (schema, *schema.get("allOf", ())):
            if "$ref" in part:
                found: Mapping[str, Any] = self._objects[part["$ref"].removeprefix(_OBJECT_PLACE)]
                return found
        return schema

    def _write_kind(self, schema: Mapping[str, Any]) -> SafeString:
        """The type of a value in words, with links to objects."""
        if "$ref" in schema:
            name = schema["$ref"].removeprefix(_OBJECT_PLACE)
            return SafeString("null") if name == NULL else format_html('<a href="#object-{0}">{0}</a>', name)
        for joined in ("oneOf", "anyOf", "allOf"):
            if joined in schema:
                return _join(" or ", [self._write_kind(part) for part in schema[joined]])
        if "enum" in schema:
            values = _join(", ", [format_html("<code>{}</code>", write_value(value)) for value in schema["enum"]])
            default = schema.get("default")
            return values if default is None else format_html("{}; by default {}", values, write_value(default))
        types = schema.get("type", "any value")
        words = [self._write_type(schema, kind) for kind in ([types] if isinstance(types, str) else types)]
        return _join(" or ", words)

    def _write_type(self, schema: Mapping[str, Any], kind: str) -> SafeString:
        if kind == "array":
            return format_html("list of {}", self._write_kind(schema.get("items", {})))
        values = schema.get("additionalProperties")
        if kind == "object" and isinstance(values, Mapping) and values:
            return format_html("object of {}", self._write_kind(values))
        limits = [
            f"{word} {write_value(schema[key])}"
            for key, word in LIMITS.items()
            if schema.get(key) is not None and kind != "null"
        ]
        note = f" ({schema['format']})" if "format" in schema and kind == "string" else ""
        return format_html("{}", f"{kind}{note}" + "".join(f", {limit}" for limit in limits))

    def _write_curl(self, path: str, method: str, operation: Mapping[str, Any], contents: Mapping[str, Any]) -> str:
        """A command that can be pasted into a shell, with the values of the schema's examples."""
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "path":
                example = str(self._make_example(parameter["schema"]))
                path = path.replace("{" + parameter["name"] + "}", example)
        parts = ["curl", "-H", '"Authorization: Bearer $TOOLFLOW_TOKEN"']
        if method != "GET":
            parts += ["-X", method]
        lines = [" ".join(parts)]
        if contents:
            kind = YAML if YAML in contents else JSON
            lines.append(f"-H {shlex.quote(f'Content-Type: {kind}')}")
            # What may be written as YAML is a flow file.
            body = "-d " + shlex.quote(self._write_body(contents[JSON])) if kind == JSON else "--data-binary @flow.yaml"
            lines.append(body)
        lines.append(shlex.quote(self._base + path))
        return " \\\n  ".join(lines)

    def _write_body(self, content: Mapping[str, Any]) -> str:
        for example in content.get("examples", {}).values():
            value = example["value"]
            return value if isinstance(value, str) else dump_json(value)
        return dump_json(self._make_example(content["schema"]))

    def _make_example(self, schema: Mapping[str, Any], depth: int = 0) -> Any:
        """A value that fits, with only what must be there."""
        schema = self._resolve(schema)
        for key in ("example", "default", "const"):
            if key in schema:
                return schema[key]
        for key in ("examples", "enum"):
            if schema.get(key):
                return schema[key][0]
        for joined in ("oneOf", "anyOf"):
            if joined in schema and "properties" not in schema:
                return self._make_example(schema[joined][0], depth)
        kind = schema.get("type", "object")
        match kind if isinstance(kind, str) else kind[0]:
            case "object":
                if depth >= DEEPEST:
                    return {}
                fields = schema.get("properties", {})
                names = [name for name in schema.get("required", ()) if name in fields]
                return {name: self._make_example(fields[name], depth + 1) for name in names}
            case "array":
                return [self._make_example(schema["items"], depth + 1)] if depth < DEEPEST else []
            case "integer" | "number":
                return schema.get("minimum", 1)
            case "boolean":
                return True
        return "…"


def write_text(text: str) -> SafeString:
    """Paragraphs as HTML, with what stands in backticks as code."""
    paragraphs = [paragraph.strip() for paragraph in text.replace("``", "`").split("\n\n") if paragraph.strip()]
    return format_html_join("", "<p>{}</p>", ((_mark_code(paragraph),) for paragraph in paragraphs))


def _mark_code(text: str) -> SafeString:
    parts = text.split("`")
    return format_html_join(
        "", "{}", ((format_html("<code>{}</code>", part) if index % 2 else part,) for index, part in enumerate(parts))
    )


def write_value(value: Any) -> str:
    """A value as it stands in an address or a list of choices."""
    return value if isinstance(value, str) else dump_json(value)


def _join(between: str, parts: Sequence[SafeString]) -> SafeString:
    return mark_safe(between.join(parts))  # noqa: S308  # all parts are safe
