#!/usr/bin/env python3
"""Writes docs/openapi.yaml, the description of the REST API for programs. Warnings end it with exit status 1.

Start it as ``.venv/bin/python scripts/write_api_schema.py``; with ``-`` it prints the document.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import django

ROOT = Path(__file__).resolve().parents[1]
PLACE = ROOT / "docs" / "openapi.yaml"


def main() -> int:
    """Write the document, or print it."""
    sys.path.insert(0, str(ROOT))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "toolflow_site.settings")
    django.setup()
    from drf_spectacular.drainage import GENERATOR_STATS

    from runs.api.documentation import build_schema, write_yaml

    text = write_yaml(build_schema())
    if GENERATOR_STATS:
        GENERATOR_STATS.emit_summary()
        return 1
    if sys.argv[1:] == ["-"]:
        sys.stdout.write(text)
    else:
        PLACE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
