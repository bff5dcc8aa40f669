"""Stores flows for tests."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User

from flows.engine.spec import FlowSpec
from flows.models import FlowVersion
from flows.publishing import publish_flow


def load_flow(document: dict[str, Any], by: User | None = None, note: str = "") -> FlowVersion:
    """Publish a document under the name that it has, as loading its file does."""
    return publish_flow(spec=FlowSpec.from_document(document), by=by, note=note)
