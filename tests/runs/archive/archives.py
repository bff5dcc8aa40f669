"""Files of history for tests: what is in them, what is left without them, and how others might change them."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flows.models import Flow, FlowVersion
from runs.documents import RunDocuments
from runs.models import PurgedDay, Run
from runs.models.statistics import DailyCounts
from runs.retention.pacing import Pace
from runs.retention.policy import Part
from runs.retention.purging import Task, purge
from tests.runs.retention.aged_runs import NOW


def read_documents(runs: list[Run]) -> list[Any]:
    return list(RunDocuments(has_address=True).read([run.pk for run in runs]))


def purge_all(runs: list[Run], part: Part = Part.RUNS) -> None:
    for flow in {run.flow for run in runs}:
        purge(Task(flow, part, NOW), pace=Pace())


def forget_everything(runs: list[Run]) -> None:
    """Be another installation."""
    purge_all(runs)
    PurgedDay.objects.all().delete()
    for model in DailyCounts.__subclasses__():
        model._default_manager.all().delete()
    Flow.objects.update(live_version=None)
    for version in FlowVersion.objects.all():
        version.delete()
    Flow.objects.all().delete()


def edit_lines(path: Path, edit: Callable[[list[Any]], Any]) -> None:
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    edit(lines)
    path.write_bytes(gzip.compress(b"".join(json.dumps(line).encode() + b"\n" for line in lines)))


def forge(path: Path, edit: Callable[[list[Any]], Any]) -> None:
    """Change a file so that its counts and its checksum are right again."""

    def edit_and_seal(lines: list[Any]) -> None:
        edit(lines)
        whole = b"".join(json.dumps(line).encode() + b"\n" for line in lines[:-1])
        lines[-1]["end"]["sha256"] = hashlib.sha256(whole).hexdigest()

    edit_lines(path, edit_and_seal)


def find_run_line(lines: list[Any]) -> Any:
    return next(line["run"] for line in lines if "run" in line)
