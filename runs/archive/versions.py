"""Which versions of flows here are those of a file: flows are renamed, here and where the file was written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import DataError, IntegrityError, transaction

from flows.engine.spec import FlowSpec
from flows.models import Flow, FlowVersion


@dataclass(frozen=True, slots=True)
class _Written:
    """A version as a file has it. ``flow`` is the name when the file was written, not the one in ``spec``."""

    flow: str
    title: str
    number: int
    digest: str
    made_at: datetime
    note: str
    spec: FlowSpec


class Versions:
    """The versions of one file, each with what it is here. Without ``makes`` nothing is stored for what is missing."""

    def __init__(self, *, makes: bool) -> None:
        self._makes = makes
        self._found: dict[tuple[str, int], FlowVersion | str] = {}
        """By the file's own words; a sentence where there can be none."""
        self._flows: dict[str, Flow] = {}

    def expect(self, record: Mapping[str, Any]) -> None:
        """Learn from a version of the file which flow its name means, for those of its versions that are not here."""
        name, number, digest = record.get("flow"), record.get("number"), record.get("digest")
        if isinstance(name, str) and isinstance(number, int) and isinstance(digest, str) and name not in self._flows:
            version = _find_version(name, number, digest, str(record.get("created_at")))
            if version is not None:
                self._flows[name] = version.flow

    def take(self, record: Mapping[str, Any]) -> None:
        """Find a version of the file here, or make it; it does not go live. ``get`` tells what is wrong with it."""
        key = str(record.get("flow")), record["number"] if isinstance(record.get("number"), int) else 0
        try:
            self._found[key] = self._take(_read(record))
        except (ValueError, DataError, IntegrityError) as error:
            self._found[key] = str(error).strip().partition("\n")[0][:200]

    def get(self, flow: Any, number: Any) -> FlowVersion:
        """The version that a run of the file is of; not stored if it is not here. Raises ``ValueError``."""
        found = self._found.get((flow, number)) if isinstance(flow, str) and isinstance(number, int) else None
        if found is None:
            raise ValueError("it is of a version that the file does not hold")
        if isinstance(found, str):
            raise ValueError(found)
        return found

    def _take(self, written: _Written) -> FlowVersion:
        version = _find_version(written.flow, written.number, written.digest, written.made_at.isoformat())
        if version is not None:
            return version
        with transaction.atomic():
            flow = self._flows.get(written.flow) or Flow.objects.filter(name=written.flow).first()
            if flow is None:
                flow = Flow(name=written.flow, title=written.title)
                if self._makes:
                    flow, _ = Flow.objects.get_or_create(name=written.flow, defaults={"title": written.title})
            elif flow.versions.filter(number=written.number).exists():
                raise ValueError(f"version {written.number} of the flow “{flow.name}” is another one here")
            version = FlowVersion(
                flow=flow,
                number=written.number,
                spec=written.spec.to_document(),
                digest=written.digest,
                note=written.note,
                created_at=written.made_at,
            )
            if self._makes:
                version.save()
        return version


def _find_version(name: str, number: int, digest: str, made_at: str) -> FlowVersion | None:
    """The version here of that number and definition; of several one of that moment, then of a flow of that name."""
    found = FlowVersion.objects.filter(digest=digest, number=number).select_related("flow").defer("spec")
    return min(
        found,
        key=lambda version: (version.created_at.isoformat() != made_at, version.flow.name != name, version.flow_id),
        default=None,
    )


def _read(record: Mapping[str, Any]) -> _Written:
    try:
        written = _Written(
            flow=str(record["flow"]),
            title=str(record.get("title") or record["flow"])[:200],
            number=int(record["number"]),
            digest=str(record["digest"]),
            made_at=datetime.fromisoformat(str(record["created_at"])),
            note=str(record.get("note") or "")[:500],
            spec=FlowSpec.from_document(record["spec"]),
        )
        # The rules for names of flows are those of definitions.
        FlowSpec.from_document({**record["spec"], "name": written.flow})
    except Exception as error:  # whatever a hostile file makes of it  # noqa: BLE001
        raise ValueError(
            f"the version of the flow can’t be read ({str(error)[:200] or type(error).__name__})"
        ) from None
    # The definition keeps the name that the flow had when it was published.
    if written.spec.digest != written.digest or written.number < 1 or written.made_at.tzinfo is None:
        raise ValueError("the version of the flow was changed since it was written")
    return written
