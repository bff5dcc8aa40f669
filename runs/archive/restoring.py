"""Putting runs of a file back, with their numbers.

Each portion is one transaction, so that a restoration which was broken off is called again: what is there already is
left alone, and what is there in part makes way for the whole. Statistics count a restored run only if they don't hold
it any more; nobody is told of it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from time import monotonic, sleep

from django.db import DatabaseError, DataError, IntegrityError, connection, transaction
from django.db.models import Case, F, Q, When

from runs.archive.building import Builder, Group, Misfits, RunRows
from runs.archive.reading import BadArchiveError, Contents, Record, check_archive, read_records
from runs.archive.versions import Versions
from runs.facets import Facet, add_facets, list_facets
from runs.models import Attempt, DailyRuns, FacetKind, Issue, PurgedDay, Run, Step, TokenUsage
from runs.models.run_levels import store_levels
from runs.number_breaks import note_breaks
from runs.retention.removal import HAS_TEXTS, delete_runs
from runs.search import index_runs
from runs.statistics import count_runs
from runs.statistics.ended_runs import read_ended_runs
from runs.statistics.turns import take_turn

MOST_ATTEMPTS = 200
"""Attempts that are stored in one transaction, unless one run has more."""
PATIENCE = 60.0
"""Seconds to wait for the turn to add to statistics."""

Part = tuple[int, int, bool]
"""Of a run: the figures of an attempt, by its step and number, or (True) what it read and wrote."""
_OWN_TEXTS: Part = (0, 0, True)
"""What the run itself was given."""


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
    misfits: Misfits = field(default_factory=Misfits)
    """Runs that can't be stored; they were left out, too."""

    def add(self, other: Restored) -> None:
        """Add what became of further runs."""
        self.runs += other.runs
        self.attempts += other.attempts
        self.counted += other.counted
        self.present += other.present
        self.taken += other.taken
        self.misfits.extend(other.misfits)


def restore_archive(
    path: Path,
    *,
    contents: Contents | None = None,
    begin: Callable[[], None] = lambda: None,
    report: Callable[[Restored], None] = lambda _restored: None,
) -> Restored:
    """Put the runs of a file back. ``report`` is told after each portion, ``begin`` is called in the first transaction
    that puts one back.

    The whole file is checked first, unless the caller has done so and gives its ``contents``. A run that can't be
    stored keeps no other from it. Raises ``BadArchiveError`` with a sentence that says which line is wrong if the file
    is not whole.
    """
    contents = contents or check_archive(path)
    restored = Restored()
    versions = Versions(makes=True)
    for version in contents.versions:
        versions.expect(version)
    _leave_numbers(contents)
    for portion in _collect(read_records(path), versions, restored):
        _restore(portion, versions, restored, begin)
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


def _collect(records: Iterable[Record], versions: Versions, restored: Restored) -> Iterator[list[RunRows]]:
    """The runs of the file, in portions of few attempts; versions of flows are made as they come."""
    builder = Builder(versions)
    portion: list[RunRows] = []
    for record in records:
        if record.kind == "flow_version":
            versions.take(record.value)
            continue
        try:
            rows = builder.build(record)
        except ValueError as error:
            restored.misfits.add(record, str(error))
            continue
        if portion and sum(len(one.attempts) for one in portion) + len(rows.attempts) > MOST_ATTEMPTS:
            yield portion
            portion = []
        portion.append(rows)
    if portion:
        yield portion


def _restore(portion: Sequence[RunRows], versions: Versions, restored: Restored, begin: Callable[[], None]) -> None:
    """Store the portion in one transaction, or each run in its own if the database refuses some of them."""
    try:
        restored.add(_store_in_turn(portion, None if restored.runs else begin))
    except (DataError, IntegrityError, ValueError, OverflowError) as error:
        if len(portion) == 1:
            reason = str(error).strip().partition("\n")[0]
            restored.misfits.add(portion[0].record, f"the database refuses it ({reason[:200]})")
            return
        builder = Builder(versions)
        for rows in portion:
            # Made anew: these have the numbers of rows that are not there.
            _restore([builder.build(rows.record)], versions, restored, begin)
    except DatabaseError as error:
        reason = str(error).strip().partition("\n")[0]
        first, last = portion[0].record.line, portion[-1].record.line
        lines = f"Lines {first} to {last}" if first != last else f"Line {first}"
        raise BadArchiveError(f"{lines}: the database fails: {reason[:200]}.") from error


def _store_in_turn(portion: Sequence[RunRows], begin: Callable[[], None] | None) -> Restored:
    until = monotonic() + PATIENCE
    while True:
        with transaction.atomic():
            # One at a time adds to statistics; none does while they are rebuilt.
            if take_turn():
                restored = Restored()
                _store([rows for rows in portion if _is_free(rows, restored)], restored)
                if restored.runs and begin is not None:
                    begin()
                return restored
        if monotonic() > until:
            raise BadArchiveError("Statistics are being rebuilt. Try again when that is done; nothing is lost.")
        sleep(0.05)


def _is_free(rows: RunRows, restored: Restored) -> bool:
    """Whether the run can have its number. One that lost outputs or attempts makes way for itself."""
    run = rows.run
    # Held, so that nobody takes more of it away meanwhile.
    there = Run.objects.select_for_update().filter(pk=run.pk)
    stored = there.only("flow_id", "created_at", "outputs_removed_at", "attempt_count").first()
    if stored is None:
        return True
    if (stored.flow_id, stored.created_at) != (run.flow_id, run.created_at):
        restored.taken.append(run.pk)
        return False
    present, offered = _list_stored_parts(stored), _list_parts(rows)
    if offered <= present:
        if sum(not is_text for _, _, is_text in present) < stored.attempt_count:
            restored.misfits.add(rows.record, "attempts of it are missing here, and the file doesn’t have them either")
        else:
            restored.present += 1
        return False
    if present - offered:
        restored.misfits.add(rows.record, "both the run that is there and that of the file lack a part of it")
        return False
    delete_runs([run.pk])
    return True


def _list_parts(rows: RunRows) -> set[Part]:
    """What there is of a run of the file."""
    parts = {
        part
        for attempt in rows.attempts
        for part in _name_parts(
            attempt.step.index,
            attempt.number,
            has_texts=any(text is not None for text in (attempt.input, attempt.output, attempt.request)),
        )
    }
    return parts if rows.run.outputs_removed_at else parts | {_OWN_TEXTS}


def _list_stored_parts(run: Run) -> set[Part]:
    """What there is of a run here: retention that was broken off may have taken only some of it."""
    attempts = Attempt.objects.filter(step__run=run).annotate(has_texts=Case(When(HAS_TEXTS, then=True), default=False))
    found = attempts.values_list("step__index", "number", "has_texts")
    parts = {part for step, number, has_texts in found for part in _name_parts(step, number, has_texts=has_texts)}
    return parts if run.outputs_removed_at else parts | {_OWN_TEXTS}


def _name_parts(step: int, attempt: int, *, has_texts: bool) -> Iterator[Part]:
    yield step, attempt, False
    if has_texts:
        yield step, attempt, True


def _store(portion: Sequence[RunRows], restored: Restored) -> None:
    if not portion:
        return
    held = {group: _count_held(group) for group in {rows.group for rows in portion}}
    run_ids = [rows.run.pk for rows in portion]
    Run.objects.bulk_create([rows.run for rows in portion])
    note_breaks(run_ids)
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


def _add_facets(portion: Sequence[RunRows]) -> None:
    facets: list[tuple[int, Facet]] = [
        (rows.run.pk, (FacetKind.LABEL, str(label))) for rows in portion for label in rows.run.labels
    ]
    for run in read_ended_runs([rows.run.pk for rows in portion]):
        found = {facet for attempt in run.attempts for facet in list_facets(attempt)}
        facets += [(run.run_id, facet) for facet in sorted(found)]
    add_facets(facets)
