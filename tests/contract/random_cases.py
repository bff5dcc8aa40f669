"""Random flows with inputs, model replies and mishaps, as plain JSON: the cases of ``engine_net``."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable
from typing import Any

Schema = dict[str, Any]
Document = dict[str, Any]

MODELS = (
    *("gpt-4.1", "gpt-4o-mini", "gpt-5-mini", "gpt-5.1", "o4-mini", "gpt-5-chat-latest"),
    *("ft:gpt-4o-mini:acme::x", "local:llama3:8b", "proxy:openai/gpt-5-mini"),
)
STRANGE_MODELS = ("nowhere:gpt-5", "gpt-7", "mistral-large", "llama3:8b", "proxy:")
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
TIERS = ("auto", "default", "flex", "priority")
SEVERITIES = ("low", "medium", "high", "critical")
REDACTIONS = (
    *("/customer/email", "/customer/*", "/lines/*/amount", "/secret", "/customer/name", "/title", "/lines/0"),
    *("email", "phone", "iban", "credit_card", "api_key", "ip_address"),
)
TEXTS = (
    *("Tea.", "Tea is a drink.", "", "naïve café", "line\nbreak", "a“b”c", "x" * 40, "{braces}", "2026-11-23", "42"),
    *("mail ada@example.org now", "call +49 30 1234567", "DE89 3704 0044 0532 0130 00", "4111 1111 1111 1111"),
    *("sk-abcdefghijklmnopqrstuv", "10.0.0.12", "🙂 emoji", "tab\there", 'quote"s', "back\\slash", "ABC-12", "open"),
)
NAMES = ("total", "title", "state", "count", "note", "date", "rate", "done", "kind", "code", "extra")
ODD_NAMES = ("unit price", "naïve", "_hidden", "class", "a/b", "x~y")

LONG_RULE = "lists.range(600).map(n, 'Finding ' + string(n))"
"""More findings than one audit keeps. A process of its own may evaluate it, which takes time of the real clock."""

RULES = (
    "size(output) > 2",
    "steps[0].output.topic != ''",
    "has(input.secret) && input.secret == 's3cret-value'",
    "steps.all(s, s.passed)",
    "size(input.lines) > 0 ? input.lines.map(l, l.amount).sum() > 1.0 : true",
    "[{'description': 'Always.', 'severity': 'low'}, 'And one more.']",
    "true",
    "false",
    "input.customer.email.endsWith('example.org') ? ['Mail ' + input.customer.email] : []",
)
ODD_RULES = (
    "output.nowhere.deeper > 1",
    "1 / 0 == 1",
    "'text'",
    "[1, 2.5, 'text', {'severity': 'nope'}]",
    LONG_RULE,
    "[{'code': 'own_code', 'description': 'Own.', 'severity': ' HIGH ', 'context': {'n': 1}}]",
    "[null, true, 'x']",
)
MESSAGES = {
    "message": (
        "'Not so.'",
        "item == null ? 'None.' : 'Item: ' + string(item)",
        "'Title ' + item.title",
        "size(output)",
        "'Steps: ' + steps.map(s, s.name).join(', ')",
        "python:net_message",
    ),
    "message_template": (
        "Total {output.total} is wrong for {input.topic}.",
        "{item.title}: {{literal}} {item}",
        "Plain text",
    ),
}
BAD_EXPRESSIONS = (
    "output.total >",
    "unknown_name == 1",
    "nofunction(1)",
    " ",
    "python:unheard_of",
    "x" * 4_001,
    "'NUL \0'",
)
BAD_FIELDS: dict[str, list[tuple[str, Any]]] = {
    "flow": [
        ("name", "Not A Name"),
        ("steps", []),
        ("steps", "none"),
        ("temperature", 5),
        ("token_budget", 0),
        ("redact", ["nonsense", "/fine"]),
        ("unknown_field", 1),
        ("input_schema", {"type": "nope"}),
        ("title", "NUL \0"),
    ],
    "step": [
        ("tool_name", "bad name"),
        ("output_schema", None),
        ("output_schema", {"type": "object", "properties": {"a": {"type": "string", "minLength": 2}}}),
        ("output_schema", {"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}),
        ("output_type", "unheard_of"),
        ("include_results", [7]),
        ("max_retries", "3"),
        ("stop_on_failure", "yes"),
        ("name", ""),
        ("audits", [{"name": "A", "rule": "true"}, {"name": "A", "rule": "true"}]),
        ("audits", [{"name": f"A{number}", "rule": "true"} for number in range(52)]),
        *(("pass_expression", text) for text in BAD_EXPRESSIONS),
    ],
    "audit": [*(("rule", text) for text in BAD_EXPRESSIONS), ("message", "output."), ("fail_at", "always")],
}

INPUT_SCHEMA: Schema = {
    "type": "object",
    "properties": {
        "topic": {"type": "string"},
        "amount": {"type": "number"},
        "lines": {"type": "array", "items": {"type": "object", "properties": {"amount": {"type": "number"}}}},
    },
    "required": ["topic"],
}


def make_case(seed: int, number: int) -> Document:
    """Case ``number`` of ``seed``: a spec document, an input, replies by tool name, and how the run goes."""
    # A test may change its case, which must not change the constants that cases are made of.
    return copy.deepcopy(_CaseMaker(random.Random(f"{seed}:{number}")).make(number))


class _CaseMaker:
    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.schemas: list[Schema | None] = [INPUT_SCHEMA]

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def pick(self, choices: Any) -> Any:
        return self.rng.choice(list(choices))

    # ------------------------------------------------------------------------------------------------ whole cases

    def make(self, number: int) -> Document:
        steps = [self.make_step(index) for index in range(1, self.pick((1, 1, 1, 2, 2, 3, 4)) + 1)]
        spec: Document = {"name": self.pick(("net", "net-flow", "flow-2")), "steps": steps}
        self.add_flow_fields(spec)
        if self.chance(0.15):
            self.sabotage(spec)
        if '"time_limit"' in (text := json.dumps(spec)):
            # What a slow machine cuts off at a time limit would be another case each time.
            spec = json.loads(text.replace(LONG_RULE, "true"))
        return {
            "number": number,
            "spec": spec,
            "defaults": self.make_defaults(),
            "provider": self.make_provider(),
            "input": self.make_input(),
            "replies": {f"tool_{index}": self.make_replies(index) for index in range(1, len(steps) + 1)},
            "run": self.make_run(),
        }

    def make_run(self) -> Document:
        """How the run is interrupted, and what the shell learns."""
        return {
            "stop_after": self.rng.randrange(1, 6) if self.chance(0.15) else None,
            "crash_at": self.rng.randrange(1, 10) if self.chance(0.2) else None,
            "crash_is_stored": self.chance(0.5),
            "longest_wait": self.pick((1, 5, 30)) if self.chance(0.15) else None,
            "track_usage": not self.chance(0.08),
            "retry_window": self.pick((60, 60, 5, None)),
            "token_budget": self.pick((50, 400, 2_000)) if self.chance(0.05) else None,
            "all_attempts": not self.chance(0.1),
            "veto_after": self.rng.randrange(0, 4) if self.chance(0.04) else None,
            "closed_gate": self.rng.randrange(0, 4) if self.chance(0.05) else None,
        }

    def make_provider(self) -> Document:
        urls = ("https://api.openai.com/v1",) * 3 + (
            "https://acme.openai.azure.com/openai/v1",
            "http://127.0.0.1:8000/v1",
        )
        return {
            "base_url": self.pick(urls),
            "api": "chat",
            "api_key": "sk-net-0123456789abcdef",
        }

    def make_defaults(self) -> Document:
        defaults: Document = {"model": self.pick(MODELS)}
        self.add_model_settings(defaults, 0.1)
        return defaults

    def make_input(self) -> Any:
        if self.chance(0.02):
            return self.pick(([], "text", 5, None, {"topic": "NUL \0"}, {"topic": "\ud800"}, {}, {"topic": 5}))
        found: Document = {
            "topic": self.pick(TEXTS),
            "amount": self.pick((1, 2.5, 0, -3, 10**12, 4.0)),
            "lines": [
                {"amount": self.pick((1, 1.5, -2)), "title": self.pick(TEXTS)} for _ in range(self.pick((0, 1, 3)))
            ],
            "customer": {"email": "ada@example.org", "name": self.pick(("Ada", "Ada Lovelace", "x")), "age": 36},
        }
        if self.chance(0.2):
            found["_internal"] = {"note": "not for the model", "n": 1}
        if self.chance(0.3):
            found["secret"] = self.pick(("s3cret-value", 4711, True, None, ["deep", {"k": "deeper-value"}]))
        return found

    def add_flow_fields(self, spec: Document) -> None:
        rng = self.rng
        optional: dict[str, Callable[[], Any]] = {
            "title": lambda: self.pick(TEXTS),
            "description": lambda: "A flow of the net.",
            "token_budget": lambda: self.pick((1, 300, 2_000, 10**15)),
            "cost_budget": lambda: self.pick((0.0001, 0.01, 2.5, "0.002")),
            "time_limit": lambda: self.pick((1, 30, 600)),
            "input_schema": lambda: INPUT_SCHEMA,
        }
        for name, make in optional.items():
            if self.chance(0.12):
                spec[name] = make()
        if self.chance(0.6):
            spec["model"] = self.pick(MODELS)
        self.add_model_settings(spec, 0.03)
        if self.chance(0.2):
            spec["redact"] = rng.sample(REDACTIONS, self.pick((1, 2, 4)))

    def add_model_settings(self, part: Document, share: float) -> None:
        if self.chance(share):
            part["temperature"] = self.pick((0, 0.2, 1.5))
        if self.chance(share):
            part["reasoning_effort"] = self.pick(EFFORTS)
        if self.chance(share * 2):
            part["max_tokens"] = self.pick((1, 500, 8_000))
        if self.chance(share):
            part["service_tier"] = self.pick(TIERS)

    # ------------------------------------------------------------------------------------------------ steps

    def make_step(self, index: int) -> Document:
        is_local = index > 1 and self.chance(0.2)
        schema = self.make_object_schema(0)
        if not is_local and self.chance(0.3):
            schema = {"type": "object", "$defs": {"entry": self.make_object_schema(2)}, **schema}
            schema["properties"]["linked"] = {"$ref": "#/$defs/entry"}
            schema["required"].append("linked")
        step: Document = {"name": self.pick((f"Step {index}", f"Extract {index}", f"“Naïve” step {index}"))}
        if is_local:
            step["compute"] = self.make_compute()
            if self.chance(0.2):
                step["output_schema"] = schema
            self.schemas.append(None)
        else:
            self.add_model_fields(step, index, schema)
        self.add_common_fields(step, index, None if is_local else schema)
        return step

    def add_model_fields(self, step: Document, index: int, schema: Schema) -> None:
        step["tool_name"] = f"tool_{index}"
        if self.chance(0.06):
            step["output_type"] = "net_invoice"
            schema = {
                "type": "object",
                "properties": {"title": {"type": "string"}, "total": {"type": "number"}, "count": {"type": "integer"}},
                "required": ["title", "total", "count"],
                "additionalProperties": False,
            }
        else:
            step["output_schema"] = schema
        self.schemas.append(schema)
        if self.chance(0.7):
            step["system_message"] = self.pick(("Extract it.", "  Spaces around.\n", "Line one.\nLine two: {x}.", "é"))
        if self.chance(0.5):
            step["description"] = self.pick(("Store what was found.", "Multi\nline", ""))
        if self.chance(0.25):
            step["model"] = self.pick(STRANGE_MODELS if self.chance(0.08) else MODELS)
        self.add_model_settings(step, 0.03)
        if self.chance(0.25):
            step["output_sanitizer"] = self.make_sanitizer(schema)

    def add_common_fields(self, step: Document, index: int, schema: Schema | None) -> None:
        optional: dict[str, tuple[float, Callable[[], Any]]] = {
            "input_expression": (0.45 if index > 1 else 0.25, lambda: self.make_input_expression(index)),
            "input_sanitizer": (0.1, self.make_input_sanitizer),
            "include_results": (0.4 if index > 1 else 0.03, lambda: self.make_includes(index)),
            "issue_severity_filter": (0.5, lambda: self.pick(SEVERITIES)),
            "max_retries": (0.7, lambda: self.pick((0, 1, 1, 2, 2, 4))),
            "retry_window": (0.3, lambda: self.pick((0, 1, 10, 90, 900))),
            "time_limit": (0.08, lambda: self.pick((1, 20, 300))),
            "stop_on_failure": (0.35, lambda: self.pick((False, False, True))),
            "pass_expression": (0.2, self.make_pass_expression),
            "failure_reason_expression": (0.2, self.make_failure_reason),
        }
        for name, (share, make) in optional.items():
            if self.chance(share):
                step[name] = make()
        count = self.pick((0, 0, 1, 1, 2, 3, 5))
        if count:
            step["audits"] = [self.make_audit(number, schema) for number in range(1, count + 1)]

    def make_includes(self, index: int) -> list[int]:
        return self.rng.sample(range(index), self.rng.randrange(1, index + 1))

    # ------------------------------------------------------------------------------------------------ schemas

    def make_object_schema(self, depth: int) -> Schema:
        names = self.rng.sample(NAMES, self.pick((1, 2, 3, 4) if depth else (2, 3, 4, 5)))
        if self.chance(0.1):
            names.append(self.pick(ODD_NAMES))
        properties = {name: self.make_schema(depth + 1) for name in names}
        if depth < 2 and self.chance(0.45):
            properties["lines"] = {"type": "array", "items": self.make_object_schema(depth + 2)}
            if self.chance(0.3):
                properties["lines"][self.pick(("minItems", "maxItems"))] = self.pick((1, 2))
        schema: Schema = {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }
        if self.chance(0.15):
            schema["description"] = "What stands in it."
        return schema

    def make_schema(self, depth: int) -> Schema:
        flat: tuple[Callable[[], Schema], ...] = (
            self.make_string_schema,
            lambda: self.make_number_schema("number"),
            lambda: self.make_number_schema("integer"),
            lambda: {"type": "boolean"},
            lambda: {"type": "string", "enum": ["open", "closed", "ABC-12"]},
            lambda: {"type": [self.pick(("string", "number", "integer", "boolean")), "null"]},
        )
        nested: tuple[Callable[[], Schema], ...] = (
            lambda: {"type": "array", "items": self.make_schema(9)},
            lambda: {"anyOf": [self.make_schema(9), {"type": "null"}]},
            lambda: self.make_object_schema(depth + 1),
        )
        make: Callable[[], Schema] = self.pick(flat if depth > 2 or self.chance(0.7) else nested)
        return make()

    def make_string_schema(self) -> Schema:
        return {"type": "string", **({"pattern": self.pick(("^[A-Z]{3}-[0-9]+$", "e"))} if self.chance(0.2) else {})}

    def make_number_schema(self, kind: str) -> Schema:
        bounds = {"minimum": self.pick((0, -5)), "exclusiveMaximum": self.pick((10, 100)), "multipleOf": 2}
        return {"type": kind, **{name: bound for name, bound in bounds.items() if self.chance(0.2)}}

    # ------------------------------------------------------------------------------------------------ values

    def make_value(self, schema: Any, root: Schema) -> Any:
        """A value that mostly fits the schema."""
        if "$ref" in schema:
            return self.make_value(root.get("$defs", {}).get(str(schema["$ref"]).rsplit("/", 1)[-1], {}), root)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self.pick(schema["enum"])
        if "anyOf" in schema:
            return self.make_value(self.pick(schema["anyOf"]), root)
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = self.pick(kind)
        makers: dict[Any, Callable[[], Any]] = {
            "object": lambda: {
                name: self.make_value(part, root) for name, part in schema.get("properties", {}).items()
            },
            "array": lambda: self.make_array(schema, root),
            "string": lambda: self.make_text(schema),
            "number": lambda: self.make_number(schema),
            "integer": lambda: self.make_number(schema),
            "boolean": lambda: self.chance(0.5),
            "null": lambda: None,
        }
        return makers.get(kind, lambda: None)()

    def make_array(self, schema: Schema, root: Schema) -> list[Any]:
        count = self.pick((0, 1, 2, 3))
        count = min(max(count, schema.get("minItems", 0)), schema.get("maxItems", 9))
        return [self.make_value(schema.get("items", {}), root) for _ in range(count)]

    def make_text(self, schema: Schema) -> str:
        if "pattern" in schema and self.chance(0.85):
            return "ABC-12e" if schema["pattern"] == "e" else "ABC-12"
        secrets = ("s3cret-value", "Ada", "Ada Lovelace", "ada@example.org", "deeper-value", "4711")
        return str(self.pick(secrets if self.chance(0.1) else TEXTS))

    def make_number(self, schema: Schema) -> float:
        whole = self.pick((2, 4, 6, 8, 10, 10, 20, 0, -4, 4711))
        if schema.get("type") == "integer" or self.chance(0.5):
            return float(whole) if self.chance(0.15) else int(whole)
        return float(self.pick((0.5, 1.5, 2.0, 2.25, 99.5, -0.5, 1e21, 0.1)))

    def spoil(self, value: Any) -> Any:
        """The value with one thing wrong, somewhere in it."""
        if isinstance(value, dict) and value and self.chance(0.75):
            name = self.pick(sorted(value))
            if self.chance(0.2):
                return {key: entry for key, entry in value.items() if key != name}
            if self.chance(0.15):
                return {**value, "surplus": 1}
            return {**value, name: self.spoil(value[name])}
        if isinstance(value, list) and value and self.chance(0.7):
            index = self.rng.randrange(len(value))
            return [*value[:index], self.spoil(value[index]), *value[index + 1 :]]
        if isinstance(value, int | float) and not isinstance(value, bool) and self.chance(0.5):
            return self.pick((str(value), f" {value} ", f"{value}.0", f"{value} EUR", "1e3", "NaN"))
        return self.pick(("wrong", 3, None, [], {}, True, 1.5, "NUL \0 here", "\ud83d", "", 10**400, -1))

    # ------------------------------------------------------------------------------------------------ replies

    def make_replies(self, index: int) -> list[Document]:
        schema = self.schemas[index] or INPUT_SCHEMA
        return [self.make_reply(schema) for _ in range(self.pick((2, 3, 4, 6)))]

    def make_reply(self, schema: Schema) -> Document:
        draw = self.rng.random()
        reply: Document = {
            "latency": self.pick((0.5, 1.25, 3, 3, 40)) if not self.chance(0.03) else 500,
            "usage": self.make_usage(),
            "model": self.pick((None, "gpt-5-mini-2025-08-07", "gpt-4.1", "unheard-of")),
            "tier": self.pick((None, None, "default", "flex", "priority")),
        }
        if draw < 0.52:
            reply |= {"kind": "call", "arguments": self.dump(self.make_value(schema, schema))}
        elif draw < 0.66:
            reply |= {"kind": "call", "arguments": self.dump(self.spoil(self.make_value(schema, schema)))}
        elif draw < 0.74:
            reply |= self.make_bad_arguments(schema)
        elif draw < 0.84:
            reply |= self.make_unusable(schema)
        else:
            reply |= self.make_mishap()
        return reply

    def make_usage(self) -> Any:
        if self.chance(0.08):
            return self.pick((None, {}, "none", {"prompt": -1, "completion": 2}))
        prompt, completion = self.rng.randrange(5, 900), self.rng.randrange(1, 300)
        parts = {"total": prompt + completion, "cached": prompt // 2, "reasoning": completion // 2}
        return {"prompt": prompt, "completion": completion, **{name: self.pick((None, n)) for name, n in parts.items()}}

    def dump(self, value: Any) -> str:
        if self.chance(0.15):
            return json.dumps(value, indent=1, ensure_ascii=True)
        return json.dumps(value, ensure_ascii=self.chance(0.5), separators=(",", ":"))

    def make_bad_arguments(self, schema: Schema) -> Document:
        text = self.dump(self.make_value(schema, schema))
        broken = (
            text[: len(text) // 2],
            f"```json\n{text}\n```",
            f"{text[:-1]},}}",
            "[1, 2]",
            "",
            '{"total": 1e999}',
            None,
        )
        return {"kind": "call", "arguments": self.pick((*broken, '{"deep": ' + "[" * 300 + "]" * 300 + "}"))}

    def make_unusable(self, schema: Schema) -> Document:
        text = self.dump(self.make_value(schema, schema))
        return self.pick(
            (
                {"kind": "text", "text": self.pick(("I can't do that.", "", text, "x" * 500))},
                {"kind": "refusal", "text": "I'm sorry, I can't help with that."},
                {"kind": "truncated", "arguments": text[: len(text) // 3]},
                {"kind": "content_filter"},
                {"kind": "wrong_tool", "arguments": text},
                {"kind": "several", "arguments": text, "count": 2},
                {
                    "kind": "body",
                    "body": self.pick(({}, {"choices": []}, {"output": 5}, {"status": "failed", "output": []})),
                },
            )
        )

    def make_mishap(self) -> Document:
        if self.chance(0.35):
            return {"kind": self.pick(("timeout", "connection", "unreadable", "crash"))}
        status = self.pick((429, 429, 500, 503, 408, 400, 401, 404))
        retry_after = self.pick((None, 0, 2.5, 20, 4_000)) if status in (429, 503, 500) else None
        return {"kind": "status", "status": status, "retry_after": retry_after}

    # ------------------------------------------------------------------------------------------------ expressions

    def list_places(self, schema: Schema | None) -> list[tuple[str, Schema]]:
        """Paths of an output that expressions can name, each with its schema."""
        found: list[tuple[str, Schema]] = []
        for name, part in (schema or {}).get("properties", {}).items():
            if name in ODD_NAMES or name == "linked":
                continue
            found.append((f"output.{name}", part))
            if part.get("type") == "object":
                found += [
                    (f"output.{name}.{inner}", deeper)
                    for inner, deeper in part["properties"].items()
                    if inner not in ODD_NAMES
                ]
        return found

    def make_condition(self, path: str, schema: Schema) -> str:
        """A condition on what is at a path."""
        kind = schema.get("type", "choice")
        if isinstance(kind, list):
            kind = "choice"
        conditions: dict[str, tuple[str, ...]] = {
            "string": (
                f"size({path}) > 5",
                f"{path}.matches('^[A-Z]')",
                f"{path}.contains('ea') || {path}.startsWith('x')",
                f"{path} in ['open', 'closed', 'Tea.']",
            ),
            "number": (f"{path} > 1.5", f"math.abs({path}) < 10.0", f"{path} > 2", f"string({path}) != '0.5'"),
            "integer": (f"{path} % 2 == 0", f"{path} in [2, 4, 6]", f"100 / {path} > 1", f"{path} + 1.5 > 2.0"),
            "boolean": (path, f"!{path}"),
            "array": (f"size({path}) > 1", f"{path}.all(x, x != null)", f"{path}[0] != null"),
            "object": (f"has({path}.title)", f"size({path}) < 3", f"'title' in {path}"),
            "choice": (f"{path} != null", f"type({path}) == string"),
        }
        return str(self.pick(conditions[kind]))

    def make_item_condition(self, schema: Schema) -> str:
        places = [(path.replace("output.", "i."), part) for path, part in self.list_places(schema)]
        path, part = self.pick(places) if places else ("i", {"type": "object"})
        return self.make_condition(path, part)

    def make_list_rule(self, path: str, schema: Schema) -> str:
        """A rule over the elements of a list of objects."""
        condition = self.make_item_condition(schema)
        name = self.pick([name for name in schema.get("properties", {}) if name not in ODD_NAMES] or ["title"])
        issue = f"{{'description': 'Bad: ' + string(i.{name}), 'severity': '{self.pick(SEVERITIES)}'}}"
        rules = (
            f"{path}.filter(i, !({condition}))",
            f"{path}.all(i, {condition})",
            f"{path}.filter(i, !({condition})).map(i, {issue})",
            f"{path}.map(i, {condition}, {{'description': 'Entry', 'path': '/lines', 'given': i.{name}}})",
            f"{path}.exists(i, {path}.filter(j, j.{name} == i.{name}).size() > 1) ? ['Doubled.'] : []",
        )
        return str(self.pick(rules))

    def make_rule(self, schema: Schema | None) -> str:
        places = self.list_places(schema)
        draw = self.rng.random()
        if draw < 0.1:
            return f"python:{self.pick(('net_short', 'net_lines', 'net_raises', 'net_async', 'net_severe'))}"
        if draw < 0.16:
            return str(self.pick(ODD_RULES))
        if draw < 0.3 or not places:
            return str(self.pick(RULES))
        path, part = self.pick(places)
        if part.get("type") == "array" and part["items"].get("type") == "object" and self.chance(0.85):
            return self.make_list_rule(path, part["items"])
        condition = self.make_condition(path, part)
        if self.chance(0.25):
            return f"{condition} ? [] : [{{'description': 'Not so: ' + string(size(output)), 'path': '/{path[7:]}'}}]"
        return condition

    def make_audit(self, number: int, schema: Schema | None) -> Document:
        audit: Document = {"name": self.pick((f"Audit {number}", f"check-{number}")), "rule": self.make_rule(schema)}
        optional: dict[str, tuple[float, Any]] = {
            "severity": (0.6, SEVERITIES),
            "fail_at": (0.3, (*SEVERITIES, "never")),
            self.pick(("message", "message_template")): (0.5, None),
            "path": (0.2, ("'/total'", "'/lines/' + string(size(output))", "item", "''")),
            "suggestions": (0.2, ("['Do this.', 'Or that.']", "[1]", "item", "[]", "['For ' + input.topic]")),
        }
        for name, (share, choices) in optional.items():
            if self.chance(share):
                audit[name] = self.pick(choices or MESSAGES[name])
        return audit

    def make_input_expression(self, index: int) -> str:
        earlier = self.rng.randrange(index)
        return str(
            self.pick(
                (
                    "input",
                    "{'topic': input.topic, 'n': size(input.lines)}",
                    f"{{'text': steps[{earlier}].output, 'issues': steps[{earlier}].issues.map(i, i.description)}}",
                    "{'previous': previous, 'mail': input.customer.email}",
                    "previous == null ? {} : previous",
                    "{'lines': input.lines.filter(l, l.amount > 0), '_hidden': input.topic}",
                    "python:net_input",
                    "input.missing" if self.chance(0.3) else "{'sum': input.lines.map(l, double(l.amount)).sum()}",
                )
            )
        )

    def make_input_sanitizer(self) -> str:
        return str(self.pick(("value", "{'only': value}", "python:net_sanitize", "value.missing", "'text'")))

    def make_sanitizer(self, schema: Schema) -> str:
        names = [name for name in schema["properties"] if name not in ODD_NAMES]
        kept = names[:-1] if self.chance(0.15) else names
        entries = ", ".join(f"'{name}': value.{name}" for name in kept)
        return str(self.pick((f"{{{entries}}}", f"{{{entries}}}", "value", "python:net_sanitize", "value.gone")))

    def make_pass_expression(self) -> str:
        weighed = "issues.map(i, weight(i.severity)).sum() < 6"
        own = "size(issues) == 0 || issues.filter(i, i.audit == 'Audit 1').size() == 0"
        return str(self.pick((weighed, own, "size(issues) < 2", "true", "false", "size(issues)", "python:net_passes")))

    def make_failure_reason(self) -> str:
        found = "'Found ' + string(size(issues)) + ': ' + issues.map(i, i.description).join('; ')"
        return str(self.pick((found, "issues[0].code + ' at ' + string(issues[0].path)", "1", "issues[5].description")))

    def make_compute(self) -> str:
        computes = (
            "{'n': size(steps), 'names': steps.map(s, s.name)}",
            "previous == null ? {'none': true} : {'previous': previous}",
            "1",
            "{'bad': 1 / 0}",
            "{'issues': steps[1].issues.map(i, i.code), 'ok': steps[1].passed}",
            "python:net_compute",
            "input",
            "{'total': input.lines.map(l, double(l.amount)).sum(), 'title': input.topic}",
        )
        return str(self.pick(computes))

    # ------------------------------------------------------------------------------------------------ sabotage

    def sabotage(self, spec: Document) -> None:
        """Make the document invalid, or at least odd, in one or two places; golden/bad_flows.yaml has all ways."""
        for _ in range(self.pick((1, 1, 2))):
            steps = spec["steps"] if isinstance(spec["steps"], list) else []
            parts = [spec, *steps, *(audit for step in steps for audit in step.get("audits", ()) if audit)]
            part = self.pick(parts)
            kind = "flow" if part is spec else "step" if part in steps else "audit"
            name, value = self.pick(BAD_FIELDS[kind])
            part[name] = value
