"""Rows from the lines of a file. What can be made of a line is known before anything is stored, or deleted."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from django.contrib.auth import get_user_model

from runs.archive.reading import Record
from runs.archive.records import ATTEMPT, ISSUE, RUN, STEP, USAGE, split
from runs.archive.versions import Versions
from runs.models import Attempt, Issue, Run, Step, TokenUsage
from runs.models.run import ENDED
from runs.retention.removal import find_day

MOST_TOLD = 20
"""Runs that are named one by one."""

Group = tuple[int, int, date, bool]
"""Flow, version, day and whether simulated: what runs are counted by."""


@dataclass(slots=True)
class RunRows:
    """A run of the file as rows that are not stored yet."""

    record: Record
    run: Run
    steps: list[Step] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    issues: list[Issue] = field(default_factory=list)
    usages: list[TokenUsage] = field(default_factory=list)

    @property
    def group(self) -> Group:
        assert self.run.ended_at is not None
        return self.run.flow_id, self.run.version_id, find_day(self.run.ended_at), self.run.is_simulated


@dataclass(slots=True)
class Misfits:
    """Runs of a file that can't be stored as they stand there."""

    run_ids: array[int] = field(default_factory=lambda: array("q"))
    sentences: list[str] = field(default_factory=list)
    """Of the first of them: which line, which run, and why."""

    def add(self, record: Record, reason: str) -> None:
        """Note that the run of a line can't be stored."""
        run_id: int = record.value["id"]
        self.run_ids.append(run_id)
        if len(self.sentences) < MOST_TOLD:
            self.sentences.append(f"Line {record.line}, run {run_id}: {reason}.")

    def extend(self, other: Misfits) -> None:
        """Note those of ``other``, too."""
        self.run_ids += other.run_ids
        self.sentences += other.sentences[: MOST_TOLD - len(self.sentences)]

    def __len__(self) -> int:
        return len(self.run_ids)

    def __str__(self) -> str:
        more = len(self) - len(self.sentences)
        return " ".join([*self.sentences, *([f"And {more:,} more."] if more else [])])


class Builder:
    """Makes rows of the runs of one file."""

    def __init__(self, versions: Versions) -> None:
        self._versions = versions
        self._users: dict[str, Any] = {}

    def build(self, record: Record) -> RunRows:
        """The rows of a run. Raises ``ValueError`` with a sentence if some value can't be."""
        columns, (run_id, flow, number, user, steps) = split(
            record.value, "id", "flow", "version", "started_by", "steps"
        )
        version = self._versions.get(flow, number)
        values = RUN.read(columns)
        if values.get("status") not in ENDED or values.get("ended_at") is None or values.get("created_at") is None:
            raise ValueError("it has not ended")
        run = Run(
            pk=run_id,
            flow=version.flow,
            version=version,
            started_by_id=self._find_user(user),
            available_at=values["created_at"],
            is_tallied=True,
            **values,
        )
        rows = RunRows(record, run)
        for step in steps:
            _add_step(rows, step)
        return rows

    def _find_user(self, name: Any) -> Any:
        """The account of that name here; None where there is none."""
        if not isinstance(name, str):
            return None
        if name not in self._users:
            model = get_user_model()
            accounts = model._default_manager.filter(**{model.USERNAME_FIELD: name})
            self._users[name] = accounts.values_list("pk", flat=True).first()
        return self._users[name]


class Trial:
    """Makes of each line of a file what a restoration would make of it, and stores none of it."""

    def __init__(self) -> None:
        self.misfits = Misfits()
        self._versions = Versions(makes=False)
        self._builder = Builder(self._versions)

    def look(self, record: Record) -> None:
        """Try one line, in the order of the file."""
        if record.kind == "flow_version":
            self._versions.take(record.value)
            return
        try:
            self._builder.build(record)
        except ValueError as error:
            self.misfits.add(record, str(error))


def _add_step(rows: RunRows, record: dict[str, Any]) -> None:
    columns, (attempts,) = split(record, "attempts")
    step = Step(run=rows.run, **STEP.read(columns))
    if any(other.index == step.index for other in rows.steps):
        raise ValueError(f"step {step.index} stands there twice")
    rows.steps.append(step)
    numbers = set()
    for values in attempts:
        columns, (issues, usage) = split(values, "issues", "usage")
        attempt = Attempt(step=step, **ATTEMPT.read(columns))
        if not attempt.outcome or attempt.number in numbers:
            raise ValueError(f"attempt {attempt.number} of step {step.index} can’t be")
        numbers.add(attempt.number)
        rows.attempts.append(attempt)
        if not isinstance(issues, list):
            raise ValueError("the issues of an attempt are no list")
        rows.issues += [Issue(attempt=attempt, **ISSUE.read(issue)) for issue in issues]
        if usage is not None:
            rows.usages.append(TokenUsage(attempt=attempt, **USAGE.read(usage)))
