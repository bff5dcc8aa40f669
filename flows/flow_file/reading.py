"""Reading a flow file: everything that is wrong with it in one go, each with its line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from typing import Any

from flows.engine.errors import Problem, SpecError
from flows.engine.json_values import describe_type, parse_pointer
from flows.engine.plugins import registry
from flows.engine.spec import FlowSpec
from flows.engine.spec_check import check_spec, freeze_schemas
from flows.flow_file.field_messages import explain_expression, explain_field
from flows.flow_file.problems import MOST_PROBLEMS, FlowFileError
from flows.flow_file.stand_ins import replace_parts
from flows.flow_file.yaml_reading import Path, Reading, read_text


def find_problems(spec: FlowSpec) -> list[Problem]:
    """What keeps a flow from running here, with the plug-ins that are loaded."""
    return check_spec(freeze_schemas(spec, registry), registry)


def read_document(source: str | bytes) -> dict[str, Any]:
    """The document in a flow file, whether it makes a flow or not.

    Raises ``FlowFileError`` if the text can't be read as such a document.
    """
    reading = read_text(source)
    _require_object(reading)
    if reading.problems:
        raise FlowFileError(reading.problems)
    document: dict[str, Any] = reading.document
    return document


def read_flow(source: str | bytes, *, check: Callable[[FlowSpec], Iterable[Problem]] = find_problems) -> FlowSpec:
    """The flow in a file.

    ``check`` says what is wrong with a flow whose fields can be read, by JSON pointers into its document. Raises
    ``FlowFileError`` with everything that is wrong: with the text, with single fields, and by ``check``.
    """
    reading = read_text(source)
    _require_object(reading)
    spec, problems = _examine(reading, check)
    found = [
        *reading.problems,
        *(
            reading.place(problem.path, problem.message, reading.find_offset(_find_path(reading, problem)))
            for problem in problems
        ),
    ]
    if found or spec is None:
        raise FlowFileError(found)
    return spec


def _require_object(reading: Reading) -> None:
    if not isinstance(reading.document, dict):
        if not reading.problems:
            what = describe_type(reading.document)
            message = f"A flow file holds the fields of a flow, such as “name: my-flow”. This is {what}."
            reading.problems.append(reading.place("", message, reading.find_offset(())))
        raise FlowFileError(reading.problems)


def _examine(reading: Reading, check: Callable[[FlowSpec], Iterable[Problem]]) -> tuple[FlowSpec | None, list[Problem]]:
    """The flow, if nothing is wrong, or what is: fields that can't be read, and problems of what is left."""
    document = reading.document
    problems: list[Problem] = []
    known = set(reading.paths_in_doubt)
    try:
        spec = FlowSpec.from_document(replace_parts(document, known))
    except SpecError as error:
        paths = [_find_path(reading, problem) for problem in error.problems]
        for problem, path in zip(error.problems, paths, strict=True):
            if not _is_within(path, known):
                # Looking for what was meant takes a while: nobody reads thousands of problems.
                is_read = len(problems) < MOST_PROBLEMS
                problems.append(explain_field(problem, path, document, reading.words) if is_read else problem)
        known.update(paths)
        try:
            spec = FlowSpec.from_document(replace_parts(document, known))
        except SpecError:
            return None, problems
    problems += [
        explain_expression(problem) for problem in check(spec) if not _is_within(_find_path(reading, problem), known)
    ]
    return (None if known else spec), problems


def _is_within(path: Path, known: Set[Path]) -> bool:
    return any(path[:length] in known for length in range(len(path) + 1))


def _find_path(reading: Reading, problem: Problem) -> Path:
    """The parts of a problem's pointer, those that lead into lists as numbers."""
    path: list[str | int] = []
    value = reading.document
    for part in parse_pointer(problem.path):
        if isinstance(value, list) and part.isdecimal():
            path.append(int(part))
            value = value[int(part)] if int(part) < len(value) else None
        else:
            path.append(part)
            value = value.get(part) if isinstance(value, dict) else None
    return tuple(path)
