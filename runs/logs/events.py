"""Events: log lines with a code that machines tell apart, and fields of their own.

Fields hold names, numbers and codes; never an input, an output, a prompt or what a provider said.
"""

from __future__ import annotations

import logging

FieldValue = str | int | float | bool | None


def log_event(logger: logging.Logger, level: int, event: str, message: str, **fields: FieldValue) -> None:
    """Log ``message`` (whole, nothing is filled in) as the event of that code; fields without a value are left out.

    Costs next to nothing where the level is off.
    """
    if logger.isEnabledFor(level):
        # Not by way of ``log``, which looks for file and line of whoever calls: the code says what happened. The fields
        # stand in one attribute, so that none meets one of logging's own.
        record = logging.LogRecord(logger.name, level, "", 0, message, None, None)
        record.event, record.fields = event, fields
        logger.handle(record)
