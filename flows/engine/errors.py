"""Everything the engine raises on purpose. What a *model* did wrong is never an exception, but an issue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class ToolFlowError(Exception):
    """Base of all errors that the engine raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, where it is, and what would be right.

    ``path`` is a JSON pointer (RFC 6901) into the document that was checked, ``""`` for the whole of it.
    """

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


class ProblemsError(ToolFlowError):
    """An error that lists all problems found in one document."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class SpecError(ProblemsError):
    """A flow can't run as it is defined. ``problems`` point into the ``FlowSpec`` document."""


class InputError(ProblemsError):
    """The input of a run doesn't fit. ``problems`` point into the input."""


class OutputError(ToolFlowError):
    """A result has no output, or one that doesn't fit the type that is asked for."""


class ExpressionError(ToolFlowError):
    """An expression can't be parsed, names something unknown, or failed while it was evaluated.

    ``line`` and ``column`` count from 1; None where it has no one place. ``found`` is what a Python generator gave
    before it raised.
    """

    def __init__(
        self, message: str, *, line: int | None = None, column: int | None = None, found: Sequence[Any] = ()
    ) -> None:
        super().__init__(message)
        self.line = line
        self.column = column
        self.found = found


class ExpressionTimeout(ExpressionError):
    """An expression was stopped because it took too long."""


class FlowWarning(UserWarning):
    """Something in a flow is allowed and most likely not meant."""


class PluginError(ToolFlowError):
    """A plug-in can't be loaded, or a name is unknown or registered twice."""


class ModelErrorCode(StrEnum):
    """What kept a call from bringing an answer."""

    RATE_LIMITED = "rate_limited"
    SERVER_ERROR = "server_error"
    TIMEOUT = "timeout"
    CONNECTION = "connection"
    UNREADABLE = "unreadable_response"
    UNAUTHORIZED = "unauthorized"
    FORBIDDEN = "forbidden"
    NOT_FOUND = "not_found"
    BAD_REQUEST = "bad_request"
    NOT_CONFIGURED = "not_configured"
    CLIENT_ERROR = "client_error"
    """The model client raised an error that does not say whether another try can help."""

    @property
    def is_retryable(self) -> bool:
        """Whether trying the same call again can help."""
        cls = ModelErrorCode
        return self in (cls.RATE_LIMITED, cls.SERVER_ERROR, cls.TIMEOUT, cls.CONNECTION, cls.UNREADABLE)


class ModelError(ToolFlowError):
    """A model call brought no answer that can be read.

    ``retry_after`` is in seconds, as the provider asked for it; None where it did not.
    ``status`` is the HTTP status, None where no response came.
    """

    def __init__(
        self,
        code: ModelErrorCode,
        message: str,
        *,
        status: int | None = None,
        retry_after: float | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status
        self.retry_after = retry_after
        self.request_id = request_id
