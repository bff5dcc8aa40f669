"""The flows whose history is invented: the examples under names of their own, in several versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import models

from flows.examples import find_digest, load_documents
from flows.models import Flow, FlowVersion
from flows.portability import load_flow
from runs.seeding.scripts import Script, invent_scripts

PREFIX = "seeded-"
"""Begins the names of these flows, so that nobody takes them for their own."""
VERSIONS = 3
SCRIPTS = 48
"""Courses of each version."""


@dataclass(frozen=True, slots=True)
class SeededVersion:
    """One version with the courses that its runs take."""

    version: FlowVersion
    scripts: tuple[Script, ...]
    sample: Mapping[str, Any]
    """An input that fits."""

    def make_input(self, words: str) -> dict[str, Any]:
        """An input that fits and holds ``words``: they follow what its longest text says."""
        longest = max(self.sample, key=lambda name: len(self.sample[name]) if isinstance(self.sample[name], str) else 0)
        return {**self.sample, longest: f"{self.sample[longest]} {words}"}


def load_seeded_flows(*, seed: int, since: datetime, length: timedelta) -> list[list[SeededVersion]]:
    """The flows, made or brought up to date, each with its versions in their order, spread over ``length``."""
    flows = []
    for name, document in load_documents().items():
        versions = []
        for number in range(VERSIONS):
            varied = _vary(document, number)
            # One that an earlier seeding made is used again, and stays as old as it is.
            version = FlowVersion.objects.filter(flow__name=varied["name"], digest=find_digest(varied)).last()
            if version is None:
                version = load_flow(document=varied, note=f"Seeded version {number + 1}")
                _backdate(version, since + length * number / VERSIONS)
            scripts = invent_scripts(version.flow_spec, count=SCRIPTS, seed=f"{seed}/{name}/{number}")
            versions.append(SeededVersion(version, scripts, document["input_schema"]["examples"][0]))
        flow = Flow.objects.get(name=PREFIX + name)
        flow.make_live(versions[-1].version)
        flows.append(versions)
    return flows


def _vary(document: dict[str, Any], number: int) -> dict[str, Any]:
    """The document of a version: each lets its model write a little less."""
    title = f"{document.get('title') or document['name']} (seeded)"
    return {**document, "name": PREFIX + document["name"], "title": title, "max_tokens": 4000 - 200 * number}


def _backdate(version: FlowVersion, moment: datetime) -> None:
    # Versions never change; an invented one must be older than its runs all the same.
    models.QuerySet(FlowVersion).filter(pk=version.pk).update(created_at=moment)
