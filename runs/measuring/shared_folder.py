"""Where the processes of one web server count together: files of ``prometheus_client`` in a folder.

A scrape reaches any of them, and Prometheus would take the smaller count of another for a new beginning.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path

from django.conf import settings

VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Names the folder; ``prometheus_client`` reads it, too, as it is loaded."""


def prepare_folder(port: int) -> None:
    """Let the processes of the server that this process becomes, on ``port``, count together from 0.

    Raises ``OSError`` if the folder can't be written.
    """
    folder = Path(settings.TOOLFLOW_WEB_METRICS_DIR or settings.TOOLFLOW_DATA_DIR / "web-metrics" / str(port))
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for file in folder.glob("*.db"):
        file.unlink(missing_ok=True)
    os.environ.setdefault(VARIABLE, str(folder))


def is_one_of_several() -> bool:
    """Whether this is a process of uvicorn or gunicorn that probably has others beside it."""
    return multiprocessing.parent_process() is not None or "gunicorn" in sys.modules
