"""Hostile values and schemas: what is wrong is said at once, whatever refers to itself.

Without their bounds these would work for hours or fill the memory: a test that never ends has failed.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, model_validator

from flows.engine.schemas import check_input_schema, compile_schema
from flows.engine.strict_schema import check_strict
from flows.engine.typed_output import build_type
from tests.engine.builders import closed


def check_schema(schema: Any) -> list[str]:
    return [problem.path for problem in check_input_schema(schema) + check_strict(schema)]


def check_output(schema: Any, value: Any) -> list[str | None]:
    compiled = compile_schema(schema)
    return [issue.path for issue in compiled.validate_output(compiled.coerce_numbers(value))]


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
CHAIN = wrap(**{f"a{i}": ref(f"a{i + 1}") for i in range(1_200)}, a1200={"type": "string"})
KINDS = [f"k{i}" for i in range(16)]
"""Each of these kinds of object holds all others, as a document of paragraphs, lists, tables and so on."""
ANY_KIND = {"anyOf": [ref(kind) for kind in KINDS]}
DOCUMENT = wrap(**{kind: closed(parts={"type": "array", "items": ANY_KIND}, kind={"const": kind}) for kind in KINDS})


class Part(BaseModel):
    @model_validator(mode="after")
    def accept(self) -> Part:
        return self


class Union(Part):
    parts: list[A | B | C | D]


class A(Union):
    kind: Literal["A"]


class B(Union):
    kind: Literal["B"]


class C(Union):
    kind: Literal["C"]


class D(Union):
    kind: Literal["D"]


class Discriminated(Part):
    parts: list[Annotated[E | F, Field(discriminator="kind")]]


class E(Discriminated):
    kind: Literal["E"]


class F(Discriminated):
    kind: Literal["F"]


@pytest.mark.parametrize(
    ("schema", "value", "path"),
    [
        (OBJECTS, nest(13, "a", "b"), "/x"),
        (LISTS, nest(90), "/x"),
        (ALL, nest(60, "a"), "/x" + "/a" * 60),
        (DOCUMENT, nest(40, "parts"), "/x"),
    ],
    ids=["objects", "lists", "all", "document"],
)
def test_a_value_that_fits_no_branch_of_a_recursive_union(schema: dict[str, Any], value: Any, path: str) -> None:
    assert any(str(found).startswith(path) for found in check_output(schema, {"x": value}))


@pytest.mark.parametrize(("kinds", "levels", "path"), [("A", 9, ""), ("EF", 45, "/parts/0" * 45)])
def test_a_typed_output_of_models_that_contain_each_other(kinds: str, levels: int, path: str) -> None:
    value: Any = {"kind": kinds[0], "parts": 1}
    for index in range(levels):
        value = {"kind": kinds[index % len(kinds)], "parts": [value]}
    _, issues = build_type(Union if kinds == "A" else Discriminated, value)
    assert issues and all(str(issue.path).startswith(path) for issue in issues)


def test_a_long_list_of_what_fits_no_branch() -> None:
    schema = closed(x={"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "null"}]}})
    assert check_output(schema, {"x": list(range(200_000))}) == [*(f"/x/{index}" for index in range(50)), ""]


def test_the_branch_that_was_meant_is_explained_all_the_way_down() -> None:
    value: Any = {"kind": "k3", "parts": "none"}
    for index in range(30):
        value = {"kind": KINDS[index % 16], "parts": [value]}
    assert check_output({**DOCUMENT, **closed(x=ANY_KIND)}, {"x": value}) == ["/x" + "/parts/0" * 30 + "/parts"]


def test_a_schema_with_much_that_is_wrong_deep_inside() -> None:
    schema: Any = {"properties": {f"p{i}": 1 for i in range(3_000)}}
    for _ in range(46):
        schema = {"anyOf": [schema]}
    assert any(path.endswith("/p0") for path in check_schema(schema))


@pytest.mark.parametrize(
    ("schema", "is_refused"),
    [(OBJECTS, False), (DOCUMENT, False), (CHAIN, True), (DOUBLING, True), (LADDER, True)],
    ids=["objects", "document", "chain", "doubling", "ladder"],
)
def test_only_definitions_that_multiply_or_never_end_are_refused(schema: dict[str, Any], is_refused: bool) -> None:
    assert ("" in check_schema(schema)) == is_refused
