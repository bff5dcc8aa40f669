"""Plug-ins: output types, audits and functions written in Python, registered by name and called with a time limit.

A plug-in is a module that uses the decorators ``output_type``, ``audit`` and ``function``; flows refer to what it
registers by name: ``output_type: "color_suite"`` or ``rule: "python:contrast"``. A spec that is written in Python also
takes the class or function itself.
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

from flows.engine.errors import ExpressionError, PluginError

PREFIX = "python:"
"""Marks a field of a flow as the name of a registered function or audit instead of a CEL expression."""

ENTRY_POINT_GROUP = "toolflow.plugins"

MAX_NAME_LENGTH = 100
"""Characters of the name of a plug-in: issues carry it as the name of their audit."""
MAX_DERIVED_LENGTH = 64
"""Characters of a name that is made from that of a class: tools are named so too, and theirs have no more."""

_Type = TypeVar("_Type", bound=type[BaseModel])
_Function = TypeVar("_Function", bound=Callable[..., Any])


# ---------------------------------------------------------------------------------------------------------------
# What is registered


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
    def _parameters(self) -> tuple[Mapping[str, inspect.Parameter], bool]:
        parameters = inspect.signature(self.function).parameters
        named = {
            name: one for name, one in parameters.items() if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
        }
        return named, any(one.kind is one.VAR_KEYWORD for one in parameters.values())

    def unknown_parameters(self, available: frozenset[str]) -> list[str]:
        """The parameters without a default that are not among the ``available`` variables."""
        named, _ = self._parameters
        return [name for name, one in named.items() if name not in available and one.default is one.empty]

    def select(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the ``variables`` that the function names, or all if it takes ``**kwargs``."""
        named, takes_all = self._parameters
        return {name: variables[name] for name in (variables if takes_all else named) if name in variables}


class PluginName(str):
    """The name of a class or function that a spec was given itself; it carries the object, registered or not."""

    entry: OutputType | PythonFunction

    @classmethod
    def of(cls, entry: OutputType | PythonFunction, name: str) -> PluginName:
        """The ``name`` of ``entry`` as fields of a flow hold it."""
        text = cls(name if isinstance(entry, OutputType) else PREFIX + name)
        text.entry = entry
        return text


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

    def find_function(self, text: str, field: str) -> PythonFunction:
        """The audit (field ``rule``) or function that ``python:name`` carries or that is registered under it.

        Raises ``ExpressionError`` that lists the registered names if there is none.
        """
        if isinstance(text, PluginName) and isinstance(text.entry, PythonFunction):
            return text.entry
        kind, known = ("audit", self.audits) if field == "rule" else ("function", self.functions)
        name = text.removeprefix(PREFIX)
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise ExpressionError(f"No {kind} is registered as “{name}”. Registered: {names}.")
        return known[name]

    def output_type(self, name: str) -> Callable[[_Type], _Type]:
        """Register the decorated pydantic model as an output type.

        A method ``audit(self)`` on it, if there is one, is run on every output; it gives issues as a registered
        audit does.
        """
        _check_name(name, "output_type")

        def register(model: _Type) -> _Type:
            if not _is_model(model):
                raise PluginError(f"The output type “{name}” must be a class derived from pydantic's BaseModel.")
            _add(self.output_types, OutputType(name, model))
            return model

        return register

    def audit(self, name: str) -> Callable[[_Function], _Function]:
        """Register the decorated function as an audit: it names the variables that it wants and gives issues."""
        _check_name(name, "audit")
        return partial(_add_function, self.audits, name)

    def function(self, name: str) -> Callable[[_Function], _Function]:
        """Register the decorated function for use in place of an expression."""
        _check_name(name, "function")
        return partial(_add_function, self.functions, name)


registry = Registry()
"""The registry that the decorators below and the dashboard use."""

output_type = registry.output_type
audit = registry.audit
function = registry.function


def load_plugins(modules: list[str]) -> None:
    """Import the named plug-in modules and those of the entry-point group ``toolflow.plugins``.

    Raises ``PluginError`` that names the module and why it can't be imported.
    """
    loaders: list[tuple[str, Callable[[], Any]]] = [
        (f"Plug-in module “{name}”", partial(import_module, name)) for name in modules
    ]
    loaders += [(f"Plug-in “{one.name}” ({one.value})", one.load) for one in entry_points(group=ENTRY_POINT_GROUP)]
    for words, load in loaders:
        try:
            load()
        except (Exception, SystemExit) as error:
            raise PluginError(f"{words} can't be imported: {str(error) or type(error).__name__}") from error


def _is_model(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, BaseModel)


def _check_name(name: Any, decorator: str) -> None:
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME_LENGTH:
        raise PluginError(
            f'Write @{decorator}("name"), with a name of 1 to {MAX_NAME_LENGTH} characters that flows refer to.'
        )


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


def _add_function(entries: dict[str, PythonFunction], name: str, function: _Function) -> _Function:
    _check_parameters(name, function)
    _add(entries, PythonFunction(name, function))
    return function


def _add(entries: dict[str, Any], entry: OutputType | PythonFunction) -> None:
    known = entries.get(entry.name)
    # Importing a module a second time under its own name is no clash.
    if known is not None and _name(known) != _name(entry):
        raise PluginError(
            f"“{entry.name}” is registered twice: by {_name(known)} and by {_name(entry)}. "
            "Give one of them another name."
        )
    entries[entry.name] = entry


def _find_thing(entry: OutputType | PythonFunction) -> Any:
    return entry.model if isinstance(entry, OutputType) else entry.function


def _find_origin(thing: Any) -> Any:
    """The function or class whose source and name say what ``thing`` is: callable objects have neither."""
    while isinstance(thing, partial):
        thing = thing.func
    return thing if hasattr(thing, "__qualname__") else type(thing)


def _name(entry: OutputType | PythonFunction) -> str:
    origin = _find_origin(_find_thing(entry))
    return f"{origin.__module__}.{origin.__qualname__}"


def _fingerprint(thing: Any) -> str:
    origin = _find_origin(thing)
    try:
        source = inspect.getsource(origin)
    except (OSError, TypeError):
        # Typed at a prompt or built at run time: its name is all that is known.
        source = f"{origin.__module__}.{origin.__qualname__}"
    return hashlib.sha256(source.encode()).hexdigest()[:16]


# ---------------------------------------------------------------------------------------------------------------
# Classes and functions in place of names, in specs that are written in Python


def derive_name(thing: Any) -> str:
    """A name for a class or function that has none in a registry: ``palette_draft`` for ``PaletteDraft``."""
    return re.sub(r"\W+", "_", to_snake(_find_origin(thing).__name__)).strip("_")[:MAX_DERIVED_LENGTH]


def name_type(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """The name for a pydantic class; anything else is validated as the name of a registered type."""
    if not _is_model(value):
        return _validate_text(value, validate, "the name of a registered type or, in Python, a pydantic model class")
    return _carry(OutputType(derive_name(value), value), registry.output_types)


def name_function(value: Any, validate: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    """The name for a function, an audit in the field ``rule``; anything else is validated as an expression."""
    if not callable(value) or isinstance(value, type):
        return _validate_text(value, validate, "CEL text, “python:name” or, in Python, a function")
    name = derive_name(value)
    _check_parameters(name, value)
    return _carry(PythonFunction(name, value), registry.audits if info.field_name == "rule" else registry.functions)


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
            f"“{entry.name}” is registered for {_name(known)}, so {_name(entry)} can't have this name. "
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
