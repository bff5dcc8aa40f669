"""The example flows: one YAML file each, with their plug-ins and the simulated model's replies beside them.

What reads the files needs no Django; ``load_examples`` stores the flows in the database.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flows.flow_file import parse_document

EXAMPLE_NOTE = "Example flow, as it comes with ToolFlow"
"""The note of the versions that ``load_examples`` makes."""

_FOLDER = Path(__file__).parent


def load_documents() -> dict[str, dict[str, Any]]:
    """The ``FlowSpec`` documents of all example flows, by the name of the flow."""
    documents = [parse_document(path.read_bytes()) for path in sorted(_FOLDER.glob("*.yaml"))]
    return {document["name"]: document for document in documents}


def load_sample_input(name: str) -> dict[str, Any]:
    """The input that the form of an example flow offers: the first example of its input schema.

    Raises ``KeyError`` if there is no example flow of that name.
    """
    sample: dict[str, Any] = load_documents()[name]["input_schema"]["examples"][0]
    return sample


def find_digest(document: dict[str, Any]) -> str:
    """The digest that a version published from this document has now."""
    from flows.engine.plugins import registry
    from flows.engine.spec import FlowSpec
    from flows.engine.spec_check import freeze_schemas

    return freeze_schemas(FlowSpec.from_document(document), registry).digest


def load_examples() -> list[str]:
    """Store the example flows and make them live; gives the names of those that are new or were brought up to date.

    A flow of the same name whose latest version was made by another user is theirs and stays as it is, and so does
    an archived one. A deleted example comes back: archive what you don't want to see.
    """
    # Imported here since the rest of this package works without Django.
    from django.db import transaction

    from flows.engine.spec import FlowSpec
    from flows.models import Flow
    from flows.publishing import publish_flow

    loaded = []
    for name, document in load_documents().items():
        with transaction.atomic():
            flow = Flow.objects.select_for_update().filter(name=name).first()
            latest = flow.versions.first() if flow else None
            if flow is not None and (flow.is_archived or latest is None or latest.note != EXAMPLE_NOTE):
                continue
            if latest is not None and latest.digest == find_digest(document):
                continue
            version = publish_flow(spec=FlowSpec.from_document(document), note=EXAMPLE_NOTE)
            if flow is not None and flow.live_version == latest:
                flow.make_live(version)
            loaded.append(name)
    return loaded
