"""What Django hands to ``logging.config``. Knows nothing of Django: settings are made with it."""

from __future__ import annotations

from typing import Any

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("plain", "json")


def build_logging(*, format: str, level: str) -> dict[str, Any]:
    """The configuration for a ``format`` (``plain`` or ``json``) and a ``level``; empty means one that fits the format.

    Everything goes to standard error, through one formatter: also what the web server and the queue's package say.
    """
    of_runs = level or ("info" if format == "json" else "warning")
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "plain": {"()": "runs.logs.formatting.PlainLines"},
            "json": {"()": "runs.logs.formatting.JsonLines"},
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": format}},
        "root": {"handlers": ["stderr"], "level": (level or "info").upper()},
        "loggers": {
            # Without handlers of its own, so that each line appears once, with DEBUG or without.
            "django": {"handlers": [], "level": "INFO"},
            # They would write lines of another kind; what is asked of us is told once, by the access line.
            "uvicorn": {"handlers": [], "propagate": True},
            "uvicorn.error": {"handlers": [], "propagate": True},
            "uvicorn.access": {"handlers": [], "propagate": False},
            # At INFO these tell of every call, and of every message that is handed over.
            "httpx2": {"level": "WARNING"},
            "django-q": {"level": "WARNING"},
            "urllib3": {"level": "WARNING"},
            "axes.apps": {"level": "WARNING"},
            # Lines of single runs are for machines; on a terminal only who asks for them wants them.
            "runs.worker.run_events": {"level": of_runs.upper()},
            "runs.submission": {"level": of_runs.upper()},
            "runs.logs.events": {"level": of_runs.upper()},
        },
    }
