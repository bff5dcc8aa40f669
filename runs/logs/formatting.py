"""How log lines are written: one JSON object a line, or text for people.

What a model, a provider or a client wrote may be part of a message. Neither way lets it break a line, pose as a line of
its own or steer a terminal.
"""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from typing import Any

from pythonjsonlogger.core import BaseJsonFormatter

from runs.logs.events import run_place
from runs.request_id import META_KEY, read_request_id

LONGEST = 10_000
"""Characters of a message that are written."""
LONGEST_TRACEBACK = 50_000

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class JsonLines(BaseJsonFormatter):
    """One JSON object a line, in ASCII, whatever a message holds.

    ``time``, ``level``, ``logger`` and ``message`` are always there; ``event`` and its fields, ``run``, ``step``,
    ``attempt``, ``request_id`` and ``exception`` where there are such.
    """

    def add_fields(self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]) -> None:
        """Put what is known of ``record`` into ``log_data``."""
        log_data["time"] = _write_time(record.created)
        log_data["level"] = record.levelname.lower()
        log_data["logger"] = record.name
        attributes = record.__dict__
        if (event := attributes.get("event")) is not None:
            log_data["event"] = event
        log_data["message"] = _cut(record.message, LONGEST)
        _add_correlation(log_data, attributes)
        if event is not None:
            log_data |= {name: value for name, value in attributes["fields"].items() if value is not None}
        if trace := message_dict.get("exc_info"):
            log_data["exception"] = _cut(str(trace), LONGEST_TRACEBACK)
        if stack := message_dict.get("stack_info"):
            log_data["stack"] = _cut(str(stack), LONGEST_TRACEBACK)

    def jsonify_log_record(self, log_data: dict[str, Any]) -> str:
        """The line."""
        return _ENCODER.encode(log_data)


class PlainLines(logging.Formatter):
    """Text for people: a line for each message, and tracebacks set in below it."""

    def __init__(self) -> None:
        super().__init__("{asctime} {levelname} {name}: {message}", style="{")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the name that logging calls
        """The line, with the fields of an event and what it belongs to behind its message."""
        record.message = _escape(_cut(record.message, LONGEST))
        fields: dict[str, Any] = {}
        _add_correlation(fields, record.__dict__)
        fields.update(record.__dict__.get("fields") or {})
        told = " ".join(f"{name}={_escape(str(value))}" for name, value in fields.items() if value is not None)
        line = super().formatMessage(record)
        return f"{line} [{told}]" if told else line

    def formatException(self, ei: Any) -> str:  # noqa: N802  # the name that logging calls
        """The traceback, set in, so that nothing in it looks like a line of its own."""
        lines = _cut(super().formatException(ei), LONGEST_TRACEBACK).split("\n")
        return "\n".join(f"  {_escape(line)}" for line in lines)


def _write_json_value(value: object) -> str:
    return str(value)


_ENCODER = json.JSONEncoder(separators=(",", ":"), default=_write_json_value)


def _add_correlation(fields: dict[str, Any], attributes: dict[str, Any]) -> None:
    """Add what this line belongs to: a run and its attempt, a request, both or neither."""
    if (place := run_place.get()) is not None:
        fields["run"] = place.run
        if place.step:
            fields["step"] = place.step
            fields["attempt"] = place.attempt
    request_id = read_request_id()
    if request_id is None and (request := attributes.get("request")) is not None:
        # Django tells of what it refused once all middleware is done.
        request_id = getattr(request, "META", {}).get(META_KEY)
    if request_id is not None:
        fields["request_id"] = request_id


def _write_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]} … ({len(text) - longest} more characters)"


def _escape(text: str) -> str:
    return _CONTROL.sub(_write_escaped, text)


def _write_escaped(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
