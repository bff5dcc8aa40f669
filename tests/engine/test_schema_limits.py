"""Hostile values and schemas: what is wrong is said within little time and memory, whatever refers to itself."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.engine.builders import closed

SECONDS, MEGABYTES = 2, 300

# The limits count from where the imports have ended: CPU time, and address space, which is more than memory in use.
CHILD = f"""
import json, math, resource, sys, time
from typing import Annotated, Literal
from pydantic import BaseModel, Field, create_model, model_validator
from flows.engine.schemas import check_input_schema, compile_schema
from flows.engine.strict_schema import check_strict
from flows.engine.typed_output import build_type

class Part(BaseModel):
    @model_validator(mode="after")
    def accept(self):
        return self

class Union(BaseModel):
    parts: "list[A | B | C | D]"

class Discriminated(BaseModel):
    parts: "list[Annotated[E | F, Field(discriminator='kind')]]"

for base, names in ((Union, "ABCD"), (Discriminated, "EF")):
    for name in names:
        globals()[name] = create_model(name, __base__=(Part, base), kind=(Literal[name], ...))

task, schema, value = json.load(sys.stdin)
pages = int(open("/proc/self/statm").read().split()[0])
memory = pages * resource.getpagesize() + {MEGABYTES} * 1024 * 1024
resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
seconds = math.ceil(time.process_time()) + {SECONDS}
resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
if task == "schema":
    found = check_input_schema(schema) + check_strict(schema)
elif task == "type":
    found = build_type(globals()[schema], value)[1]
else:
    compiled = compile_schema(schema)
    found = compiled.validate_output(compiled.coerce_numbers(value))
print(json.dumps([problem.path for problem in found]))
"""


def find_paths(task: str, schema: Any, value: Any = None) -> list[str]:
    """The places of what is wrong, as a process within the limits finds them."""
    text = json.dumps([task, schema, value])
    # One that ran out of memory may hang instead of ending.
    done = subprocess.run(
        [sys.executable, "-c", CHILD], input=text, capture_output=True, text=True, check=False, timeout=20
    )
    assert done.returncode == 0, done.stderr[-500:] or f"ended by signal {-done.returncode}"
    paths: list[str] = json.loads(done.stdout)
    return paths


def ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{name}"}


def nest(levels: int, *keys: str) -> Any:
    """Objects or, without keys, lists inside each other around a number."""
    value: Any = 1
    for _ in range(levels):
        value = dict.fromkeys(keys, value) if keys else [value]
    return value


def wrap(**definitions: Any) -> dict[str, Any]:
    """An object with one property: the first definition."""
    return {**closed(x=ref(next(iter(definitions)))), "$defs": definitions}


def free(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


OBJECTS = wrap(n={"anyOf": [free(a=ref("n"), b=ref("n")), free(a=ref("n"), c=ref("n"))]})
LISTS = wrap(n={"oneOf": [{"type": "array", "items": ref("n")}, {"items": ref("n"), "minItems": 1}]})
ALL = wrap(n={"type": "object", "allOf": [free(a=ref("n")), free(a=ref("n"))]})
DOUBLING = wrap(**{f"a{i}": {"anyOf": [ref(f"a{i + 1}"), ref(f"a{i + 1}")]} for i in range(40)}, a40={"type": "string"})
LADDER = wrap(**{f"a{i}": {"allOf": [free(a=ref(f"a{i + 1}"))] * 2} for i in range(40)}, a40={"type": "string"})
KINDS = [f"k{i}" for i in range(16)]
"""Each of these kinds of object holds all others, as a document of paragraphs, lists, tables and so on."""
DOCUMENT = wrap(
    **{
        kind: closed(parts={"type": "array", "items": {"anyOf": [ref(other) for other in KINDS]}}, kind={"const": kind})
        for kind in KINDS
    }
)


class TestValues:
    @pytest.mark.parametrize(
        ("schema", "value", "path"),
        [
            (OBJECTS, nest(90, "a"), "/x"),
            (OBJECTS, nest(13, "a", "b"), "/x"),
            (LISTS, nest(90), "/x"),
            (ALL, nest(60, "a"), "/x" + "/a" * 60),
            (DOCUMENT, nest(40, "parts"), "/x"),
        ],
        ids=["objects", "wide", "lists", "all", "document"],
    )
    def test_a_value_that_fits_no_branch_of_a_recursive_union(
        self, schema: dict[str, Any], value: Any, path: str
    ) -> None:
        assert any(found.startswith(path) for found in find_paths("output", schema, {"x": value}))

    @pytest.mark.parametrize(
        ("model", "kinds", "levels", "path"),
        [("Union", "A", 9, ""), ("Discriminated", "EF", 45, "/parts/0" * 45)],
        ids=["union", "discriminated"],
    )
    def test_a_typed_output_of_models_that_contain_each_other(
        self, model: str, kinds: str, levels: int, path: str
    ) -> None:
        value: Any = {"kind": kinds[0], "parts": 1}
        for index in range(levels):
            value = {"kind": kinds[index % len(kinds)], "parts": [value]}
        found = find_paths("type", model, value)
        assert all(one.startswith(path) for one in found) and found

    def test_a_long_list_of_what_fits_no_branch(self) -> None:
        schema = closed(x={"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}})
        paths = find_paths("output", schema, {"x": list(range(200_000))})
        assert paths == [*(f"/x/{index}" for index in range(50)), ""]

    def test_the_branch_that_was_meant_is_explained_all_the_way_down(self) -> None:
        value: Any = {"kind": "k3", "parts": "none"}
        for index in range(30):
            value = {"kind": KINDS[index % 16], "parts": [value]}
        paths = find_paths("output", {**DOCUMENT, **closed(x={"anyOf": [ref(kind) for kind in KINDS]})}, {"x": value})
        assert paths == ["/x" + "/parts/0" * 30 + "/parts"]


class TestSchemas:
    @pytest.mark.parametrize("keyword", ["dependencies", "properties", "anyOf"])
    def test_a_schema_with_much_that_is_wrong_deep_inside(self, keyword: str) -> None:
        schema: Any = {"properties": {f"p{i}": 1 for i in range(3_000)}}
        for _ in range(46):
            schema = {keyword: [schema] if keyword == "anyOf" else {"a": schema}}
        paths = find_paths("schema", schema)
        assert any(path.endswith("/p0") for path in paths)

    @pytest.mark.parametrize("schema", [OBJECTS, LISTS, DOCUMENT])
    def test_a_schema_that_refers_to_itself(self, schema: dict[str, Any]) -> None:
        assert "" not in find_paths("schema", schema)

    @pytest.mark.parametrize("schema", [DOUBLING, LADDER], ids=["doubling", "ladder"])
    def test_definitions_that_multiply_are_refused(self, schema: dict[str, Any]) -> None:
        assert "" in find_paths("schema", schema)

    def test_references_to_references(self) -> None:
        chain = wrap(**{f"a{i}": ref(f"a{i + 1}") for i in range(1_200)}, a1200={"type": "string"})
        assert find_paths("schema", chain)
