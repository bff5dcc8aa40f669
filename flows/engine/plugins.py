"""Plug-ins: output types, audits and functions written in Python and registered by name.

A plug-in is a module that uses the decorators at the end of this file; flows refer to what it registers by
name: ``output_type: "color_suite"`` or ``rule: "python:contrast"``. A spec that is written in Python also takes the
class or function itself.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationInfo, ValidatorFunctionWrapHandler
from pydantic.alias_generators import to_snake
from pydantic_core import PydanticCustomError

from flows.engine.errors import PluginError
from flows.engine.json_value import MAX_DEPTH, MOST_VALUES

PREFIX = "python:"
"""What marks a field of a flow as the name of a registered function or audit instead of a CEL expression."""

ENTRY_POINT_GROUP = "toolflow.plugins"

MAX_NAME_LENGTH = 100
"""Characters of the name of a plug-in: issues carry it as the name of their audit."""

MAX_DERIVED_LENGTH = 64
"""Characters of a name that is made from that of a class: tools are named so too, and theirs have no more."""

_Type = TypeVar("_Type", bound=type[BaseModel])
_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class OutputType:
    """A pydantic model that outputs of a step are built from."""

    name: str
    model: type[BaseModel]

    @cached_property
    def fingerprint(self) -> str:
        """Changes when the source of the model changes."""
        return _fingerprint(self.model)


@dataclass(frozen=True)
class PythonFunction:
    """A registered function or audit. It is called with those of the variables on offer that it names."""

    name: str
    function: Callable[..., Any]

    @cached_property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    @cached_property
    def fingerprint(self) -> str:
        """Changes when the source of the function changes."""
        return _fingerprint(self.function)

    @cached_property
    def _parameters(self) -> tuple[tuple[str, ...], bool]:
        parameters = inspect.signature(self.function).parameters.values()
        takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        named = tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))
        return named, takes_all

    def unknown_parameters(self, available: frozenset[str]) -> list[str]:
        """The parameters without a default that are not among the ``available`` variables."""
        parameters = inspect.signature(self.function).parameters
        return [
            name for name in self._parameters[0] if name not in available and parameters[name].default is inspect._empty
        ]

    def call(self, variables: Mapping[str, Any]) -> Any:
        """Call the function with the variables that it names. A coroutine comes back not awaited.

        It gets copies of JSON values and typed outputs: what it changes reaches neither history nor another function.
        Only a typed output that can't be copied is shared between functions.
        """
        named, takes_all = self._parameters
        wanted = variables if takes_all else [name for name in named if name in variables]
        return self.function(**{name: copy_value(variables[name]) for name in wanted})


def copy_value(value: Any) -> Any:
    """A copy of a JSON value or typed output, or the typed output itself if it can't be copied: it may hold a lock."""
    if not isinstance(value, BaseModel):
        return copy_json(value)
    try:
        return value.model_copy(deep=True)
    except Exception:  # noqa: BLE001  # copying runs code of the plug-in, which may raise anything
        return value


class PluginName(str):
    """The name of a class or function that a spec was given itself; it carries the object, registered or not."""

    entry: OutputType | PythonFunction

    @classmethod
    def of(cls, entry: OutputType | PythonFunction, name: str) -> PluginName:
        """The ``name`` of ``entry`` as fields of a flow hold it."""
        text = cls(name if isinstance(entry, OutputType) else PREFIX + name)
        text.entry = entry
        return text


def copy_json(value: Any) -> Any:
    """A copy of a JSON value that shares no object or list with it; what is no JSON stays the same object.

    What stands in several places is copied for each. Raises ``ValueError`` if that gives more than ``MOST_VALUES``.
    """
    left = MOST_VALUES

    def copy(value: Any, depth: int) -> Any:
        nonlocal left
        kind = type(value)
        if (kind is not dict and kind is not list) or depth >= MAX_DEPTH:
            return value
        left -= len(value)
        if left < 0:
            raise ValueError(f"the value has more than {MOST_VALUES:,} parts")
        if kind is dict:
            return {key: copy(item, depth + 1) for key, item in value.items()}
        return [copy(item, depth + 1) for item in value]

    return copy(value, 0)


def _find_origin(thing: Any) -> Any:
    """The function or class whose source and name say what ``thing`` is: callable objects have neither."""
    while isinstance(thing, partial):
        thing = thing.func
    return thing if hasattr(thing, "__qualname__") else type(thing)


def _name(thing: Any) -> str:
    origin = _find_origin(thing)
    return f"{origin.__module__}.{origin.__qualname__}"


def _find_thing(entry: OutputType | PythonFunction) -> Any:
    return entry.model if isinstance(entry, OutputType) else entry.function


def derive_name(thing: Any) -> str:
    """A name for a class or function that has none in a registry: ``palette_draft`` for ``PaletteDraft``."""
    return re.sub(r"\W+", "_", to_snake(_find_origin(thing).__name__)).strip("_")[:MAX_DERIVED_LENGTH]


def _fingerprint(thing: Any) -> str:
    try:
        source = inspect.getsource(_find_origin(thing))
    except (OSError, TypeError):
        # Typed at a prompt or built at run time: its name is all that is known.
        source = _name(thing)
    return hashlib.sha256(source.encode()).hexdigest()[:16]


@dataclass
class Registry:
    """The output types, audits and functions that flows can name."""

    output_types: dict[str, OutputType] = field(default_factory=dict)
    audits: dict[str, PythonFunction] = field(default_factory=dict)
    functions: dict[str, PythonFunction] = field(default_factory=dict)

    def find_type(self, name: str | None) -> OutputType | None:
        """The type that ``name`` carries or that is registered under it."""
        if isinstance(name, PluginName) and isinstance(name.entry, OutputType):
            return name.entry
        return self.output_types.get(name or "")

    def output_type(self, name: str) -> Callable[[_Type], _Type]:
        """Register the decorated pydantic model as an output type.

        A method ``audit(self)`` on it, if there is one, is run on every output; it gives issues as a registered
        audit does.
        """
        _check_name(name, "output_type")

        def register(model: _Type) -> _Type:
            _check_model(name, model)
            self._add(self.output_types, OutputType(name, model), model)
            return model

        return register

    def audit(self, name: str) -> Callable[[_Function], _Function]:
        """Register the decorated function as an audit: it names the variables that it wants and gives issues."""
        _check_name(name, "audit")

        def register(function: _Function) -> _Function:
            _check_parameters(name, function)
            self._add(self.audits, PythonFunction(name, function), function)
            return function

        return register

    def function(self, name: str) -> Callable[[_Function], _Function]:
        """Register the decorated function for use in place of an expression."""
        _check_name(name, "function")

        def register(function: _Function) -> _Function:
            _check_parameters(name, function)
            self._add(self.functions, PythonFunction(name, function), function)
            return function

        return register

    @staticmethod
    def _add(kind: dict[str, Any], entry: OutputType | PythonFunction, thing: Any) -> None:
        known = kind.get(entry.name)
        if known is not None:
            other = _find_thing(known)
            # Importing a module a second time under its own name is no clash.
            if _name(other) != _name(thing):
                raise PluginError(
                    f"“{entry.name}” is registered twice: by {_name(other)} and by {_name(thing)}. "
                    "Give one of them another name."
                )
        kind[entry.name] = entry


def _check_name(name: Any, decorator: str) -> None:
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME_LENGTH:
        raise PluginError(
            f'Write @{decorator}("name"), with a name of 1 to {MAX_NAME_LENGTH} characters that flows refer to.'
        )


def _check_model(name: str, model: Any) -> None:
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise PluginError(f"The output type “{name}” must be a class derived from pydantic's BaseModel.")


def _check_parameters(name: str, function: Callable[..., Any]) -> None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise PluginError(
            f"“{name}” can't be registered: Python can't tell its parameters. Wrap it in a function of your own."
        ) from None
    for parameter in parameters:
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise PluginError(
                f"“{name}” takes “{parameter.name}” by position only, and variables are passed by name. "
                "Take the “/” out of its parameters."
            )


registry = Registry()
"""The registry that the decorators below and the dashboard use."""


def name_type(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """The name for a pydantic class; anything else is validated as the name of a registered type."""
    if not (isinstance(value, type) and issubclass(value, BaseModel)):
        return _validate_text(value, validate, "the name of a registered type or, in Python, a pydantic model class")
    return _carry(OutputType(derive_name(value), value), registry.output_types)


def name_function(value: Any, validate: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    """The name for a function, an audit in the field ``rule``; anything else is validated as an expression."""
    if not callable(value) or isinstance(value, type):
        return _validate_text(value, validate, "CEL text, “python:name” or, in Python, a function")
    name = derive_name(value)
    _check_parameters(name, value)
    kind = registry.audits if info.field_name == "rule" else registry.functions
    return _carry(PythonFunction(name, value), kind)


def _validate_text(value: Any, validate: ValidatorFunctionWrapHandler, expected: str) -> Any:
    if not isinstance(value, str):
        raise PydanticCustomError("plugin_type", "Input should be {expected}", {"expected": expected})
    return validate(value)


def _carry(entry: OutputType | PythonFunction, registered: Mapping[str, Any]) -> PluginName:
    """The registered name of a thing, or the derived one of ``entry`` if that is free."""
    thing = _find_thing(entry)
    entry = next((known for known in registered.values() if _find_thing(known) == thing), entry)
    known = registered.get(entry.name, entry)
    if _find_thing(known) != thing:
        raise PluginError(
            f"“{entry.name}” is registered for {_name(_find_thing(known))}, so {_name(thing)} can't have this name. "
            "Rename it, or register it under a name of its own."
        )
    return PluginName.of(entry, entry.name)


def number_name(name: PluginName, taken: dict[str, OutputType | PythonFunction]) -> PluginName:
    """The ``name``, numbered if it is ``taken`` by another class or function of the flow. Registered names stay.

    It is entered in ``taken``.
    """
    entry = name.entry
    kinds = [registry.output_types] if isinstance(entry, OutputType) else [registry.audits, registry.functions]
    if any(kind.get(entry.name) == entry for kind in kinds):
        return name
    # From the entry's own name, so that a step that is put into another flow is numbered there afresh.
    name = PluginName.of(entry, entry.name)
    number = 1
    while any(name.removeprefix(PREFIX) in kind for kind in kinds) or taken.setdefault(name, entry) != entry:
        number += 1
        name = PluginName.of(entry, f"{entry.name}_{number}")
    return name


output_type = registry.output_type
audit = registry.audit
function = registry.function


def load_plugins(modules: list[str]) -> None:
    """Import the named plug-in modules and those of the entry-point group ``toolflow.plugins``.

    Raises ``PluginError`` that names the module and why it can't be imported.
    """
    for name in modules:
        try:
            import_module(name)
        except (Exception, SystemExit) as error:
            reason = str(error) or type(error).__name__
            raise PluginError(f"Plug-in module “{name}” can't be imported: {reason}") from error
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        try:
            entry.load()
        except (Exception, SystemExit) as error:
            reason = str(error) or type(error).__name__
            raise PluginError(f"Plug-in “{entry.name}” ({entry.value}) can't be imported: {reason}") from error
