"""Going through what is due, from batch to batch: each is a short transaction, and a crash loses none.

What is due follows from the rows alone, so whoever comes next goes on where the last one stopped; two at a time share
the work.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from django.db import InterfaceError, OperationalError, transaction
from django.db.models import Count, Q, Sum

from flows.models import Flow
from runs.models import Run
from runs.retention.keys import Keys
from runs.retention.pacing import MOST, Pace
from runs.retention.policy import Part, find_due, may_go, read_policy
from runs.retention.removal import (
    delete_attempts,
    delete_runs,
    find_day,
    list_attempts,
    note_purged,
    remove_outputs,
    remove_texts,
)
from runs.search import forget_runs

logger = logging.getLogger(__name__)

LOOK_AHEAD = 2_000
"""Runs whose numbers are read at once. Where many ended at the same moment, all of those are looked at each time."""

Sized = tuple[int, int]
"""The number of a run, and how many attempts it has."""


@dataclass(frozen=True, slots=True)
class Task:
    """One thing that is to be done to the runs of a flow."""

    flow: Flow
    part: Part
    ended_before: datetime
    gone_before: datetime | None = None
    """Where outputs go, the end before which the runs themselves go first; None if none do."""

    def count(self, *, is_forecast: bool = False) -> tuple[int, int]:
        """How many runs are due, and how many attempts they have.

        A forecast leaves out what another task takes away first.
        """
        runs = attempts = 0
        gone_before = self.gone_before if is_forecast else None
        for due in find_due(self.flow.pk, self.part, self.ended_before, gone_before=gone_before):
            found = due.order_by().aggregate(runs=Count("pk"), attempts=Sum("attempt_count"))
            runs, attempts = runs + found["runs"], attempts + (found["attempts"] or 0)
        return runs, attempts


@dataclass(slots=True)
class Purged:
    """What was taken away."""

    runs: int = 0
    attempts: int = 0
    longest: float = 0.0
    """Seconds of the longest transaction."""
    left: list[int] = field(default_factory=list)
    """Runs that it failed for; the log says why."""
    has_begun: bool = False
    """Whether anything was taken away: a large run loses attempts before it goes itself."""

    def add(self, *, runs: int, attempts: int, taken: float) -> None:
        """Count a transaction that took so many seconds."""
        self.runs += runs
        self.attempts += attempts
        self.longest = max(self.longest, taken)


def list_tasks(*, now: datetime, flow: Flow | None = None) -> list[Task]:
    """What policies ask for; that of ``flow`` alone, if one is given. Runs come first: their outputs go with them."""
    flows = Flow.objects.order_by("name") if flow is None else [flow]
    tasks = []
    for part in (Part.RUNS, Part.OUTPUTS):
        for one in flows:
            policy = read_policy(one)
            limit = policy.find_limit(part, now)
            if limit is not None:
                tasks.append(Task(one, part, limit, policy.find_limit(Part.RUNS, now)))
    return tasks


def purge(
    task: Task,
    *,
    pace: Pace,
    is_over: Callable[[], bool] = lambda: False,
    report: Callable[[Purged], None] = lambda _purged: None,
    begin: Callable[[], None] = lambda: None,
    tell: Callable[[Purged], None] = lambda _purged: None,
) -> Purged:
    """Do ``task``; ``report`` is told after each batch.

    ``is_over`` says after a batch whether to leave the rest to the next call. ``begin`` is called in the first
    transaction that takes something away; ``tell`` is told once, at the end, also where an exception broke off what
    was done. A run that it fails for is left, logged and noted; only if the database itself is in trouble does its
    error come through.
    """
    work = _Work(task, pace, begin)
    try:
        for batch, size in _batch(pace, _look_ahead(task)):
            attempts, taken = work.purge_or_divide(batch, size)
            report(work.purged)
            pace.come_to_end(attempts=attempts, taken=taken)
            if is_over():
                break
    finally:
        tell(work.purged)
    return work.purged


@dataclass(slots=True)
class _Work:
    """One call of ``purge``."""

    task: Task
    pace: Pace
    begin: Callable[[], None]
    purged: Purged = field(default_factory=Purged)

    def purge_or_divide(self, batch: Sequence[int], size: int) -> tuple[int, float]:
        """Do it to all runs of a batch at once, or to each alone where it fails for one of them.

        Gives how many attempts it was, and the seconds for which others had to wait.
        """
        try:
            if size > MOST:
                self._thin(batch[0])
            return self._purge_batch(batch)
        except (OperationalError, InterfaceError):
            # No run is to blame.
            raise
        except Exception as error:
            if len(batch) == 1:
                self.purged.left.append(batch[0])
                logger.error("Retention can’t take away run %s or its outputs.", batch[0], exc_info=error)
                return 0, 0.0
            parts = [self.purge_or_divide([run_id], 0) for run_id in batch]
            return sum(attempts for attempts, _ in parts), sum(taken for _, taken in parts)

    def _purge_batch(self, run_ids: Collection[int]) -> tuple[int, float]:
        with self._transact() as done:
            held = _hold(self.task, run_ids)
            if held:
                done.runs = len(held)
                done.attempts = delete_runs(held) if self.task.part is Part.RUNS else remove_outputs(held)
        return done.attempts, done.longest

    def _thin(self, run_id: int) -> None:
        """Do the same to the attempts of a large run part by part, so that no transaction is long."""
        are_deleted = self.task.part is Part.RUNS
        while True:
            with self._transact() as done:
                if not _hold(self.task, [run_id]):
                    return
                attempts = list_attempts(run_id, limit=self.pace.attempts, with_texts=not are_deleted)
                if not attempts.count:
                    return
                done.has_begun = True
                # What search knows of a run follows from its texts.
                forget_runs([run_id])
                if are_deleted:
                    _delete_some(self.task, run_id, attempts)
                    done.attempts = attempts.count
                else:
                    # They are counted with their run, which keeps them.
                    remove_texts(attempts)
            self.pace.come_to_end(attempts=attempts.count, taken=done.longest)

    @contextmanager
    def _transact(self) -> Iterator[Purged]:
        """A transaction of which the block says what it took away; that is counted once it is stored."""
        done = Purged()
        with transaction.atomic():
            # Its turn has come: what was waited for that is nobody else's loss.
            begin = time.monotonic()
            yield done
            done.has_begun = done.has_begun or bool(done.runs)
            if done.has_begun and not self.purged.has_begun:
                self.begin()
        done.longest = time.monotonic() - begin
        self.purged.has_begun = self.purged.has_begun or done.has_begun
        self.purged.add(runs=done.runs, attempts=done.attempts, taken=done.longest)


def _batch(pace: Pace, portions: Iterable[Iterable[Sized]]) -> Iterator[tuple[list[int], int]]:
    """The runs in batches of as many attempts as the pace allows, each with their number; a large run is alone."""
    for found in portions:
        batch: list[int] = []
        attempts = 0
        for run_id, count in found:
            if batch and attempts + count > pace.attempts:
                yield batch, attempts
                batch, attempts = [], 0
            batch.append(run_id)
            attempts += count
        if batch:
            yield batch, attempts


def _look_ahead(task: Task) -> Iterator[list[Sized]]:
    for due in find_due(task.flow.pk, task.part, task.ended_before):
        rest = due
        while found := list(rest.values_list("ended_at", "pk", "attempt_count")[:LOOK_AHEAD]):
            # Those that lie side by side go together.
            yield sorted((pk, count) for _, pk, count in found)
            # Never back: what somebody else holds is his, or the next call's.
            ended_at, pk, _ = found[-1]
            assert ended_at is not None, "Only ended runs are due."
            rest = due.filter(Q(ended_at__gt=ended_at) | Q(pk__gt=pk), ended_at__gte=ended_at)


def _hold(task: Task, run_ids: Collection[int]) -> list[int]:
    """Lock those of the runs that are still due and that nobody else is at."""
    known = may_go(task.ended_before)
    among = Keys.of(run_ids).build_condition("runs_run.id")
    rows = Run.objects.filter(among, known, ended_at__lt=task.ended_before)
    if task.part is Part.OUTPUTS:
        rows = rows.filter(outputs_removed_at=None)
    return list(rows.order_by("pk").select_for_update(skip_locked=True).values_list("pk", flat=True))


def _delete_some(task: Task, run_id: int, attempts: Keys) -> None:
    delete_attempts(attempts)
    ended_at = Run.objects.values_list("ended_at", flat=True).get(pk=run_id)
    assert ended_at is not None, "Only ended runs are due."
    # From now on its day can't be counted again.
    note_purged(Counter({(task.flow.pk, find_day(ended_at)): 0}))
