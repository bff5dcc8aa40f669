"""Putting runs of a file back, with their numbers.

Each portion is one transaction, so that a restoration which was broken off is called again: what is there already is
left alone. Statistics count a restored run only if they don't hold it any more; nobody is told of it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from django.contrib.auth import get_user_model
from django.db import DatabaseError, connection, transaction
from django.db.models import F, Q

from flows.engine.spec import FlowSpec
from flows.models import Flow, FlowVersion
from runs.archive.reading import BadArchiveError, Contents, Record, check_archive, read_records
from runs.archive.records import ATTEMPT, ISSUE, RUN, STEP, USAGE, split
from runs.facets import Facet, add_facets, list_facets
from runs.models import Attempt, DailyRuns, FacetKind, Issue, PurgedDay, Run, Step, TokenUsage
from runs.models.run import ENDED
from runs.models.run_levels import store_levels
from runs.retention.removal import delete_runs, find_day
from runs.search import index_runs
from runs.statistics import count_runs
from runs.statistics.ended_runs import read_ended_runs
from runs.statistics.turns import take_turn

MOST_ATTEMPTS = 200
"""Attempts that are stored in one transaction, unless one run has more."""
PATIENCE = 60.0
"""Seconds to wait for the turn to add to statistics."""

Group = tuple[int, int, date, bool]
"""Flow, version, day and whether simulated: what runs are counted by."""


@dataclass(slots=True)
class Restored:
    """What became of the runs of a file."""

    runs: int = 0
    attempts: int = 0
    counted: int = 0
    """Of the runs, those that statistics did not hold and do now."""
    present: int = 0
    """Runs that were there already."""
    taken: list[int] = field(default_factory=list)
    """Numbers that other runs have here; these of the file were left out."""


@dataclass(slots=True)
class _RunRows:
    """A run of the file as rows that are not stored yet."""

    line: int
    run: Run
    steps: list[Step] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    issues: list[Issue] = field(default_factory=list)
    usages: list[TokenUsage] = field(default_factory=list)

    @property
    def group(self) -> Group:
        assert self.run.ended_at is not None
        return self.run.flow_id, self.run.version_id, find_day(self.run.ended_at), self.run.is_simulated


def restore_archive(
    path: Path, *, contents: Contents | None = None, report: Callable[[Restored], None] = lambda _restored: None
) -> Restored:
    """Put the runs of a file back. ``report`` is told after each portion.

    The whole file is checked first, unless the caller has done so and gives its ``contents``. Raises
    ``BadArchiveError`` with a sentence that says which line is wrong.
    """
    contents = contents or check_archive(path)
    restored = Restored()
    versions: dict[tuple[str, int], FlowVersion] = {}
    _leave_numbers(contents)
    for portion in _collect(read_records(path), versions):
        _restore(portion, restored)
        report(restored)
    return restored


def _leave_numbers(contents: Contents) -> None:
    """See to it that no new run is given a number of the file, also while it is being restored."""
    if not contents.highest:
        return
    with transaction.atomic(), connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("SELECT pg_get_serial_sequence('runs_run', 'id')")
            (sequence,) = cursor.fetchone()
            cursor.execute("SELECT setval(%s, GREATEST(nextval(%s), %s))", [sequence, sequence, contents.highest])
            return
        cursor.execute("UPDATE sqlite_sequence SET seq = MAX(seq, %s) WHERE name = 'runs_run'", [contents.highest])
        if not cursor.rowcount:
            # No run was ever stored here.
            cursor.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('runs_run', %s)", [contents.highest])


def _collect(records: Iterable[Record], versions: dict[tuple[str, int], FlowVersion]) -> Iterator[list[_RunRows]]:
    """The runs of the file, in portions of few attempts; versions of flows are made as they come."""
    users: dict[str, Any] = {}
    portion: list[_RunRows] = []
    for record in records:
        try:
            if record.kind == "flow_version":
                version = _find_version(record.value)
                versions[version.flow.name, version.number] = version
                continue
            rows = _build_rows(record, versions, users)
        except ValueError as error:
            raise BadArchiveError(f"Line {record.line}: {error}.") from error
        if portion and sum(len(one.attempts) for one in portion) + len(rows.attempts) > MOST_ATTEMPTS:
            yield portion
            portion = []
        portion.append(rows)
    if portion:
        yield portion


def _find_version(record: dict[str, Any]) -> FlowVersion:
    """The version as it is here, made if need be; it does not go live."""
    try:
        spec = FlowSpec.from_document(record["spec"])
        name, number, digest = str(record["flow"]), int(record["number"]), str(record["digest"])
        made_at = datetime.fromisoformat(str(record["created_at"]))
    except Exception as error:  # whatever a hostile file makes of it  # noqa: BLE001
        raise ValueError(
            f"the version of the flow can’t be read ({str(error)[:200] or type(error).__name__})"
        ) from None
    if spec.digest != digest or spec.name != name or number < 1 or made_at.tzinfo is None:
        raise ValueError("the version of the flow was changed since it was written")
    with transaction.atomic():
        flow, _ = Flow.objects.get_or_create(name=name, defaults={"title": str(record.get("title") or name)[:200]})
        version = FlowVersion.objects.select_related("flow").filter(flow=flow, number=number).first()
        if version is None:
            note = str(record.get("note") or "")[:500]
            version = FlowVersion.objects.create(
                flow=flow, number=number, spec=spec.to_document(), digest=digest, note=note, created_at=made_at
            )
        elif version.digest != digest:
            raise ValueError(f"version {number} of the flow “{name}” is another one here")
    return version


def _build_rows(record: Record, versions: dict[tuple[str, int], FlowVersion], users: dict[str, Any]) -> _RunRows:
    columns, (run_id, flow, number, user, steps) = split(record.value, "id", "flow", "version", "started_by", "steps")
    version = versions.get((flow, number)) if isinstance(flow, str) and isinstance(number, int) else None
    if version is None:
        raise ValueError(f"run {run_id} is of a version that the file does not hold")
    values = RUN.read(columns)
    if values.get("status") not in ENDED or values.get("ended_at") is None or values.get("created_at") is None:
        raise ValueError(f"run {run_id} has not ended")
    run = Run(
        pk=run_id,
        flow=version.flow,
        version=version,
        started_by_id=_find_user(user, users),
        available_at=values["created_at"],
        is_tallied=True,
        **values,
    )
    rows = _RunRows(record.line, run)
    for step in steps:
        _add_step(rows, step)
    return rows


def _add_step(rows: _RunRows, record: dict[str, Any]) -> None:
    columns, (attempts,) = split(record, "attempts")
    step = Step(run=rows.run, **STEP.read(columns))
    if any(other.index == step.index for other in rows.steps):
        raise ValueError(f"step {step.index} of run {rows.run.pk} stands there twice")
    rows.steps.append(step)
    numbers = set()
    for values in attempts:
        columns, (issues, usage) = split(values, "issues", "usage")
        attempt = Attempt(step=step, **ATTEMPT.read(columns))
        if not attempt.outcome or attempt.number in numbers:
            raise ValueError(f"attempt {attempt.number} of step {step.index} of run {rows.run.pk} can’t be")
        numbers.add(attempt.number)
        rows.attempts.append(attempt)
        if not isinstance(issues, list):
            raise ValueError("the issues of an attempt are no list")
        rows.issues += [Issue(attempt=attempt, **ISSUE.read(issue)) for issue in issues]
        if usage is not None:
            rows.usages.append(TokenUsage(attempt=attempt, **USAGE.read(usage)))


def _find_user(name: Any, users: dict[str, Any]) -> Any:
    """The account of that name here; None where there is none."""
    if not isinstance(name, str):
        return None
    if name not in users:
        model = get_user_model()
        users[name] = model._default_manager.filter(**{model.USERNAME_FIELD: name}).values_list("pk", flat=True).first()
    return users[name]


def _restore(portion: Sequence[_RunRows], restored: Restored) -> None:
    until = monotonic() + PATIENCE
    lines = f"Lines {portion[0].line} to {portion[-1].line}" if len(portion) > 1 else f"Line {portion[0].line}"
    while True:
        try:
            with transaction.atomic():
                # One at a time adds to statistics; none does while they are rebuilt.
                if take_turn():
                    _store([rows for rows in portion if _is_free(rows.run, restored)], restored)
                    return
        except (DatabaseError, ValueError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise BadArchiveError(f"{lines}: the database refuses what is there: {reason[:200]}.") from error
        if monotonic() > until:
            raise BadArchiveError("Statistics are being rebuilt. Try again when that is done; nothing is lost.")
        sleep(0.05)


def _is_free(run: Run, restored: Restored) -> bool:
    """Whether the run can have its number. One that only lost its outputs makes way for itself."""
    there = Run.objects.filter(pk=run.pk).values_list("flow_id", "created_at", "outputs_removed_at").first()
    if there is None:
        return True
    flow_id, created_at, removed_at = there
    if (flow_id, created_at) != (run.flow_id, run.created_at):
        restored.taken.append(run.pk)
        return False
    if removed_at is None or run.outputs_removed_at is not None:
        restored.present += 1
        return False
    delete_runs([run.pk])
    return True


def _store(portion: Sequence[_RunRows], restored: Restored) -> None:
    if not portion:
        return
    held = {group: _count_held(group) for group in {rows.group for rows in portion}}
    run_ids = [rows.run.pk for rows in portion]
    Run.objects.bulk_create([rows.run for rows in portion])
    Step.objects.bulk_create([step for rows in portion for step in rows.steps])
    Attempt.objects.bulk_create([attempt for rows in portion for attempt in rows.attempts])
    Issue.objects.bulk_create([issue for rows in portion for issue in rows.issues])
    TokenUsage.objects.bulk_create([usage for rows in portion for usage in rows.usages])
    new = []
    back: Counter[tuple[int, date]] = Counter()
    for rows in portion:
        if held[rows.group] > 0:
            held[rows.group] -= 1
            back[rows.run.flow_id, rows.group[2]] += 1
        else:
            new.append(rows.run.pk)
    count_runs(new)
    _fill_days(back)
    _add_facets(portion)
    index_runs([rows.run.pk for rows in portion if rows.run.outputs_removed_at is None])
    store_levels(run_ids=run_ids)
    restored.runs += len(portion)
    restored.attempts += sum(len(rows.attempts) for rows in portion)
    restored.counted += len(new)


def _count_held(group: Group) -> int:
    """How many runs statistics hold that are not there any more."""
    flow_id, version_id, day, is_simulated = group
    begin = datetime.combine(day, time(), tzinfo=UTC)
    counted = DailyRuns.objects.filter(
        flow_id=flow_id, version_id=version_id, day=day, is_simulated=is_simulated
    ).values_list("runs", flat=True)
    there = Run.objects.filter(
        flow_id=flow_id,
        version_id=version_id,
        is_simulated=is_simulated,
        is_tallied=True,
        ended_at__gte=begin,
        ended_at__lt=begin + timedelta(days=1),
    )
    # Each run is on one of two indexes.
    stored = (
        there.filter(outputs_removed_at__isnull=True).count() + there.filter(outputs_removed_at__isnull=False).count()
    )
    return sum(counted) - stored


def _fill_days(back: Counter[tuple[int, date]]) -> None:
    """Days that lack fewer runs now; one that is whole again can be counted again."""
    for (flow_id, day), count in sorted(back.items()):
        PurgedDay.objects.filter(Q(runs__gt=count), flow_id=flow_id, day=day).update(runs=F("runs") - count)
        PurgedDay.objects.filter(flow_id=flow_id, day=day, runs=count).delete()


def _add_facets(portion: Sequence[_RunRows]) -> None:
    facets: list[tuple[int, Facet]] = [
        (rows.run.pk, (FacetKind.LABEL, str(label))) for rows in portion for label in rows.run.labels
    ]
    for run in read_ended_runs([rows.run.pk for rows in portion]):
        found = {facet for attempt in run.attempts for facet in list_facets(attempt)}
        facets += [(run.run_id, facet) for facet in sorted(found)]
    add_facets(facets)
