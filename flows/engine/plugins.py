"""Plug-ins: output types, audits and functions written in Python and registered by name.

A plug-in is a module that uses the decorators at the end of this file; flows refer to what it registers by
name: ``output_type: "color_suite"`` or ``rule: "python:contrast"``.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, TypeVar

from pydantic import BaseModel

from flows.engine.errors import PluginError

PREFIX = "python:"
"""What marks a field of a flow as the name of a registered function or audit instead of a CEL expression."""

ENTRY_POINT_GROUP = "toolflow.plugins"

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
        """Call the function with the variables that it names. A coroutine comes back not awaited."""
        named, takes_all = self._parameters
        if takes_all:
            return self.function(**variables)
        return self.function(**{name: variables[name] for name in named if name in variables})


def _fingerprint(thing: Any) -> str:
    try:
        source = inspect.getsource(thing)
    except (OSError, TypeError):
        # Typed at a prompt or built at run time: its name is all that is known.
        source = f"{thing.__module__}.{thing.__qualname__}"
    return hashlib.sha256(source.encode()).hexdigest()[:16]


@dataclass
class Registry:
    """The output types, audits and functions that flows can name."""

    output_types: dict[str, OutputType] = field(default_factory=dict)
    audits: dict[str, PythonFunction] = field(default_factory=dict)
    functions: dict[str, PythonFunction] = field(default_factory=dict)

    def output_type(self, name: str) -> Callable[[_Type], _Type]:
        """Register the decorated pydantic model as an output type.

        A method ``audit(self)`` on it, if there is one, is run on every output; it gives issues as a registered
        audit does.
        """

        def register(model: _Type) -> _Type:
            self._add(self.output_types, OutputType(name, model), model)
            return model

        return register

    def audit(self, name: str) -> Callable[[_Function], _Function]:
        """Register the decorated function as an audit: it names the variables that it wants and gives issues."""

        def register(function: _Function) -> _Function:
            self._add(self.audits, PythonFunction(name, function), function)
            return function

        return register

    def function(self, name: str) -> Callable[[_Function], _Function]:
        """Register the decorated function for use in place of an expression."""

        def register(function: _Function) -> _Function:
            self._add(self.functions, PythonFunction(name, function), function)
            return function

        return register

    @staticmethod
    def _add(kind: dict[str, Any], entry: OutputType | PythonFunction, thing: Any) -> None:
        known = kind.get(entry.name)
        if known is not None:
            other = known.model if isinstance(known, OutputType) else known.function
            # Importing a module a second time under its own name is no clash.
            if (other.__module__, other.__qualname__) != (thing.__module__, thing.__qualname__):
                raise PluginError(
                    f"“{entry.name}” is registered twice: by {other.__module__}.{other.__qualname__} "
                    f"and by {thing.__module__}.{thing.__qualname__}. Give one of them another name."
                )
        kind[entry.name] = entry


registry = Registry()
"""The registry that the decorators below and the dashboard use."""

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
        except Exception as error:
            raise PluginError(f"Plug-in module “{name}” can't be imported: {error}") from error
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        try:
            entry.load()
        except Exception as error:
            raise PluginError(f"Plug-in “{entry.name}” ({entry.value}) can't be imported: {error}") from error
