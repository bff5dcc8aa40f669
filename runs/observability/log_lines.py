"""How log lines are written: one JSON object a line, or text for people; and the configuration of logging.

What a model, a provider or a client wrote may be part of a message. Neither format lets it break a line, pose as a line
of its own or steer a terminal. This module is loaded with the settings, and reads none.
"""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from typing import Any

from pythonjsonlogger.core import BaseJsonFormatter

from runs.observability.log_events import META_KEY, read_request_id, run_place

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("plain", "json")
MAX_MESSAGE_LENGTH = 10_000
MAX_TRACEBACK_LENGTH = 50_000

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def build_logging(*, format: str, level: str) -> dict[str, Any]:
    """What Django hands to ``logging.config`` for a ``format`` and a ``level``; empty fits the format.

    Everything goes to standard error through one formatter, also what the web server and the queue's package log.
    """
    level_of_runs = (level or ("info" if format == "json" else "warning")).upper()
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "plain": {"()": "runs.observability.log_lines.PlainLines"},
            "json": {"()": "runs.observability.log_lines.JsonLines"},
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": format}},
        "root": {"handlers": ["stderr"], "level": (level or "info").upper()},
        "loggers": {
            # Without handlers of its own, so that each line appears once, with DEBUG or without.
            "django": {"handlers": [], "level": "INFO"},
            # Requests have a line of our own.
            "uvicorn": {"handlers": [], "propagate": True},
            "uvicorn.error": {"handlers": [], "propagate": True},
            "uvicorn.access": {"handlers": [], "propagate": False},
            # At INFO these log every call, and every message of the queue.
            "httpx2": {"level": "WARNING"},
            "django-q": {"level": "WARNING"},
            "urllib3": {"level": "WARNING"},
            "axes.apps": {"level": "WARNING"},
            # Lines of single runs are for machines; on a terminal only on request.
            "runs.worker.run_events": {"level": level_of_runs},
            "runs.submission": {"level": level_of_runs},
            "runs.observability.log_events": {"level": level_of_runs},
        },
    }


class JsonLines(BaseJsonFormatter):
    """One JSON object a line, in ASCII."""

    def add_fields(self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]) -> None:
        """Put ``record`` into ``log_data``; ``event``, correlation and traceback only where there are such."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        log_data |= {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        event = record.__dict__.get("event")
        if event is not None:
            log_data["event"] = event
        log_data["message"] = _cut(record.message, MAX_MESSAGE_LENGTH)
        log_data |= _collect_fields(record)
        for name, source in (("exception", "exc_info"), ("stack", "stack_info")):
            if text := message_dict.get(source):
                log_data[name] = _cut(str(text), MAX_TRACEBACK_LENGTH)

    def jsonify_log_record(self, log_data: dict[str, Any]) -> str:
        """The line."""
        return json.dumps(log_data, separators=(",", ":"), default=str)


class PlainLines(logging.Formatter):
    """Text for people: a line for each message, and tracebacks indented below it."""

    def __init__(self) -> None:
        super().__init__("{asctime} {levelname} {name}: {message}", style="{")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # the name that logging calls
        """The line, with the fields of an event behind its message."""
        record.message = _escape(_cut(record.message, MAX_MESSAGE_LENGTH))
        fields = " ".join(f"{name}={_escape(str(value))}" for name, value in _collect_fields(record).items())
        line = super().formatMessage(record)
        return f"{line} [{fields}]" if fields else line

    def formatException(self, ei: Any) -> str:  # noqa: N802  # the name that logging calls
        """The traceback, indented, so that nothing in it looks like a line of its own."""
        lines = _cut(super().formatException(ei), MAX_TRACEBACK_LENGTH).split("\n")
        return "\n".join(f"  {_escape(line)}" for line in lines)


def _collect_fields(record: logging.LogRecord) -> dict[str, Any]:
    """What a line belongs to (a run and its attempt, a request), and the fields of an event."""
    attributes = record.__dict__
    fields: dict[str, Any] = {}
    if (place := run_place.get()) is not None:
        fields = {"run": place.run, **({"step": place.step, "attempt": place.attempt} if place.step else {})}
    # Django logs what it refused once all middleware is done.
    request = attributes.get("request")
    request_id = read_request_id() or getattr(request, "META", {}).get(META_KEY)
    if request_id is not None:
        fields["request_id"] = request_id
    own = attributes.get("fields") if "event" in attributes else None
    return fields | {name: value for name, value in (own or {}).items() if value is not None}


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]} … ({len(text) - length} more characters)"


def _escape(text: str) -> str:
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
