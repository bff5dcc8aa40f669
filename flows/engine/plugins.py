"""Plug-ins: output types, audits and functions written in Python, registered by name.

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

from flows.engine.errors import ExpressionError, PluginError

PREFIX = "python:"
"""Marks a field of a flow as the name of a registered function or audit instead of a CEL expression."""
ENTRY_POINT_GROUP = "toolflow.plugins"
MAX_NAME_LENGTH = 100
"""Characters of the name of a plug-in: issues carry it as the name of their audit."""
MAX_DERIVED_LENGTH = 64
"""Characters of a name that is made from that of a class: tools are named so too, and theirs have no more."""

_Thing = TypeVar("_Thing", bound=Callable[..., Any])


@dataclass(frozen=True)
class _Entry:
    """A class or function under a name."""

    name: str
    thing: Callable[..., Any]
    is_pure: bool = True
    """Whether it says the same of the same output whenever it is asked."""

    @cached_property
    def fingerprint(self) -> str:
        """Changes when the source changes; of what was typed at a prompt or built at run time, the name."""
        origin = _find_origin(self.thing)
        try:
            source = inspect.getsource(origin)
        except (OSError, TypeError):
            source = self.origin
        return hashlib.sha256(source.encode()).hexdigest()[:16]

    @property
    def origin(self) -> str:
        """Module and name of what is registered."""
        origin = _find_origin(self.thing)
        return f"{origin.__module__}.{origin.__qualname__}"


class OutputType(_Entry):
    """A pydantic model that outputs of a step are built from."""

    @property
    def model(self) -> type[BaseModel]:
        return self.thing  # type: ignore[return-value]  # what registers one checks it


@dataclass(frozen=True)
class PythonFunction(_Entry):
    """A registered function or audit. It is called with those of the variables on offer that it names."""

    @property
    def function(self) -> Callable[..., Any]:
        return self.thing

    @cached_property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.thing)

    @cached_property
    def _parameters(self) -> Mapping[str, inspect.Parameter]:
        return inspect.signature(self.thing).parameters

    def unknown_parameters(self, available: frozenset[str]) -> list[str]:
        """The parameters without a default that are not among the ``available`` variables."""
        named = [one for one in self._parameters.values() if one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)]
        return [one.name for one in named if one.default is one.empty and one.name not in available]

    def select(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """Those of the ``variables`` that the function names, or all if it takes ``**kwargs``."""
        takes_all = any(one.kind is one.VAR_KEYWORD for one in self._parameters.values())
        names = variables if takes_all else self._parameters
        return {name: variables[name] for name in names if name in variables}


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

    def output_type(self, name: str, *, pure: bool = True) -> Callable[[_Thing], _Thing]:
        """Register the decorated pydantic model as an output type.

        A method ``audit(self)`` on it, if there is one, is run on every output; it gives issues as a registered
        audit does. ``pure`` is as for audits.
        """
        _check_name(name, "output_type")
        return partial(_add, self.output_types, OutputType, name, pure)

    def audit(self, name: str, *, pure: bool = True) -> Callable[[_Thing], _Thing]:
        """Register the decorated function as an audit: it names the variables that it wants and gives issues.

        One that is not ``pure``, since it asks a service or reads the clock, is not called again for past outputs.
        """
        _check_name(name, "audit")
        return partial(_add, self.audits, PythonFunction, name, pure)

    def function(self, name: str, *, pure: bool = True) -> Callable[[_Thing], _Thing]:
        """Register the decorated function for use in place of an expression; ``pure`` is as for audits."""
        _check_name(name, "function")
        return partial(_add, self.functions, PythonFunction, name, pure)


registry = Registry()
"""The registry that the decorators below and the dashboard use."""

output_type = registry.output_type
audit = registry.audit
function = registry.function


def load_plugins(modules: list[str]) -> None:
    """Import the named modules and the entry points ``toolflow.plugins``. Raises ``PluginError`` if one can't be."""
    loaders: dict[str, Callable[[], Any]] = {
        f"Plug-in module “{name}”": partial(import_module, name) for name in modules
    }
    loaders |= {f"Plug-in “{one.name}” ({one.value})": one.load for one in entry_points(group=ENTRY_POINT_GROUP)}
    for words, load in loaders.items():
        try:
            load()
        except (Exception, SystemExit) as error:
            raise PluginError(f"{words} can't be imported: {str(error) or type(error).__name__}") from error


def _check_name(name: Any, decorator: str) -> None:
    if not isinstance(name, str) or not 1 <= len(name) <= MAX_NAME_LENGTH:
        raise PluginError(
            f'Write @{decorator}("name"), with a name of 1 to {MAX_NAME_LENGTH} characters that flows refer to.'
        )


def _add(
    entries: dict[str, Any], kind: type[OutputType | PythonFunction], name: str, is_pure: bool, thing: _Thing
) -> _Thing:
    if kind is OutputType and not _is_model(thing):
        raise PluginError(f"The output type “{name}” must be a class derived from pydantic's BaseModel.")
    if kind is not OutputType:
        inspect.signature(thing)  # raises where there is none to call it by
    entry, known = kind(name, thing, is_pure), entries.get(name)
    # Importing a module a second time under its own name is not a clash.
    if known is not None and known.origin != entry.origin:
        raise PluginError(
            f"“{name}” is registered twice: by {known.origin} and by {entry.origin}. Give one of them another name."
        )
    entries[name] = entry
    return thing


def _is_model(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, BaseModel)


def _find_origin(thing: Any) -> Any:
    """The function or class whose source and name say what ``thing`` is: callable objects have neither."""
    while isinstance(thing, partial):
        thing = thing.func
    return thing if hasattr(thing, "__qualname__") else type(thing)


# ---------------------------------------------------------------------------------------------------------------
# Classes and functions in place of names, in specs that are written in Python


def derive_name(thing: Any) -> str:
    """A name for a class or function that has none in a registry: ``palette_draft`` for ``PaletteDraft``."""
    return re.sub(r"\W+", "_", to_snake(_find_origin(thing).__name__)).strip("_")[:MAX_DERIVED_LENGTH]


def name_type(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """The name for a pydantic class; anything else is validated as the name of a registered type."""
    if not _is_model(value):
        return validate(value)
    return _carry(OutputType(derive_name(value), value), registry.output_types)


def name_function(value: Any, validate: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
    """The name for a function, an audit in the field ``rule``; anything else is validated as an expression."""
    if not callable(value) or isinstance(value, type):
        return validate(value)
    inspect.signature(value)  # raises where there is none to call it by
    registered = registry.audits if info.field_name == "rule" else registry.functions
    return _carry(PythonFunction(derive_name(value), value), registered)


def _carry(entry: OutputType | PythonFunction, registered: Mapping[str, Any]) -> PluginName:
    """The registered name of a thing, or the derived one of ``entry`` if that is free."""
    entry = next((known for known in registered.values() if known.thing == entry.thing), entry)
    known = registered.get(entry.name, entry)
    if known.thing != entry.thing:
        raise PluginError(
            f"“{entry.name}” is registered for {known.origin}, so {entry.origin} can't have this name. "
            "Rename it, or register it under a name of its own."
        )
    return PluginName.of(entry, entry.name)


def number_name(name: PluginName, taken: dict[str, OutputType | PythonFunction]) -> PluginName:
    """The ``name``, numbered if it is ``taken`` by another thing of the flow, and entered there."""
    entry = name.entry
    kinds = [registry.output_types] if isinstance(entry, OutputType) else [registry.audits, registry.functions]
    if any(kind.get(entry.name) == entry for kind in kinds):
        return name  # the registered one stays
    # From the entry's own name, so that a step that is put into another flow is numbered there afresh.
    name = PluginName.of(entry, entry.name)
    number = 1
    while any(name.removeprefix(PREFIX) in kind for kind in kinds) or taken.setdefault(name, entry) != entry:
        number += 1
        name = PluginName.of(entry, f"{entry.name}_{number}")
    return name
