"""Working on backtests: a task judges batch after batch for some seconds and sends the next task.

What a batch found is stored with the position behind it, so that a backtest goes on there after a crash, and tasks that
work on one at the same time count nothing twice. Runs are judged outside of transactions: no writer waits for that.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.db import InterfaceError, OperationalError, transaction
from django.db.models.functions import Now
from django_q.tasks import async_task

from flows.engine.backtest import backtest_run, leave_one_out
from flows.engine.backtest_result import BacktestKind, BacktestReason, BacktestResult, RunBacktest
from flows.engine.errors import SpecError
from flows.engine.history import History
from flows.engine.plugins import registry
from flows.engine.result import FoundIssue
from flows.engine.spec import FlowSpec
from flows.engine.spec_check import prepare_spec
from flows.models import FlowVersion
from flows.providers import build_providers, default_model_settings
from runs.backtests.totals import Judged, Totals, WithoutAudit
from runs.models import Backtest, BacktestRun, Run, WorkState
from runs.stored_history import load_histories
from runs.submission import find_own_limits
from runs.worker.run_task import MissingPluginsError, PreparedVersions

logger = logging.getLogger(__name__)

TASK = "runs.backtests.work.work_on"
TASK_TIMEOUT = 2.0
"""Seconds of one task: one worker process of a host is left for sweeps, and these tasks share it."""
BATCH_SIZE = 15
"""Runs whose histories are in memory at a time, and that are judged again where a task ends before they are stored."""
MAX_TASK_LOSSES = 3
"""Tasks that may end at the same run, killed by what it does."""
MAX_RUN_SECONDS = 60
"""For slow rules, which are evaluated in processes of their own: one run does not keep a task for ever."""
LOST_AFTER = timedelta(minutes=3)
"""A backtest that no task has worked on for that long has lost its task."""
MAX_ISSUES = 20
"""Issues gone, and new ones, that are kept of a run."""
MAX_DESCRIPTION = 500
"""Characters of an issue that is kept."""

_UNKEPT = (BacktestKind.SAME, BacktestKind.REMOVED)


def work_on(backtest_id: int, timeout: float = TASK_TIMEOUT) -> None:
    """Work on a backtest for about ``timeout`` seconds, and send a task if something is left to do.

    Errors of the database are raised; ``resume_all`` goes on from the last batch.
    """
    deadline = time.monotonic() + timeout
    try:
        backtest = Backtest.objects.get(pk=backtest_id)
        if backtest.tries >= MAX_TASK_LOSSES:
            place = f"run {backtest.run_ids[backtest.position]}, {backtest.position + 1} of {backtest.run_count}"
            _fail(backtest_id, f"Its task ended {MAX_TASK_LOSSES} times without a result while it judged {place}.")
            return
        backtest.begin()
        work = _Work(backtest)
        while work.do_batch(deadline):
            if time.monotonic() >= deadline:
                send_task(backtest_id)
                return
    except (OperationalError, InterfaceError):
        raise
    except Exception as error:
        # Whatever it is would come again with every try.
        logger.exception("The backtest %s failed.", backtest_id)
        is_spec = isinstance(error, SpecError)
        _fail(backtest_id, f"The definition can’t be run here: {error}" if is_spec else "Internal error; see the log.")


def send_task(backtest_id: int) -> None:
    """Let a worker go on with a backtest once the transaction is committed."""
    # If the broker is unreachable, the schedule finds the backtest.
    transaction.on_commit(lambda: async_task(TASK, backtest_id), robust=True)


def resume_all() -> int:
    """Send new tasks for backtests that have lost theirs; return their number. The queue's schedule runs it."""
    lost = list(Backtest.objects.silent(LOST_AFTER).values_list("pk", flat=True))
    Backtest.objects.filter(pk__in=lost).update(heartbeat_at=Now())
    for backtest_id in lost:
        send_task(backtest_id)
    return len(lost)


@transaction.atomic
def _fail(backtest_id: int, problem: str) -> None:
    backtest = Backtest.objects.select_for_update().filter(pk=backtest_id).first()
    if backtest is not None and backtest.is_unfinished:
        backtest.end(WorkState.FAILED, problem)


class _Work:
    """One task's work on a backtest: its definition and those of its runs are prepared once."""

    def __init__(self, backtest: Backtest) -> None:
        """Raises ``SpecError`` if the candidate can't be run here."""
        providers = build_providers()
        spec = FlowSpec.from_document(backtest.document)
        self._candidate = prepare_spec(spec, registry=registry, defaults=default_model_settings(), providers=providers)
        self._prepared = PreparedVersions(providers)
        self._versions: dict[int, FlowVersion] = {}
        self._backtest = backtest
        self._run_ids: Sequence[int] = backtest.run_ids
        self._position = backtest.position
        # After a task that was killed, one by one: the position shows which run did it.
        self._batch_size = 1 if backtest.tries else BATCH_SIZE

    def do_batch(self, deadline: float = math.inf) -> bool:
        """Judge the next runs, at least one and no more after ``deadline``; return whether more are left."""
        run_ids = self._run_ids[self._position : self._position + self._batch_size]
        runs = Run.objects.in_bulk(list(run_ids))
        histories = load_histories([run for run in runs.values() if run.outputs_removed_at is None])
        found: dict[int, RunBacktest] = {}
        without: list[WithoutAudit] = []
        with asyncio.Runner() as runner:
            for run_id in run_ids:
                if run_id not in histories:
                    # Retention deleted the run, or its outputs.
                    found[run_id] = RunBacktest(BacktestKind.REMOVED, reason=BacktestReason.OUTPUTS_REMOVED)
                    continue
                spec = self._prepare(runs[run_id])
                if isinstance(spec, FlowSpec):
                    found[run_id], own = runner.run(self._judge(runs[run_id], spec, histories[run_id]))
                    without += own
                else:
                    found[run_id] = spec
                if time.monotonic() >= deadline:
                    break
        times = {run.pk: run.created_at for run in runs.values()}
        judged = {run_id: Judged(result, histories.get(run_id), times.get(run_id)) for run_id, result in found.items()}
        return self._store(judged, without)

    async def _judge(self, run: Run, spec: FlowSpec, history: History) -> tuple[RunBacktest, list[WithoutAudit]]:
        """What the candidate would have made of a run, or what it would have made without each of its audits."""
        candidate = self._candidate.with_limits(**find_own_limits(run, self._versions[run.version_id].flow_spec))
        try:
            async with asyncio.timeout(MAX_RUN_SECONDS):
                if self._backtest.leaves_out_each:
                    results = await leave_one_out(candidate, [(spec, history)], registry=registry)
                    return _read_without(history, results)
                return await backtest_run(spec, candidate, history, registry=registry), []
        except TimeoutError:
            sentence = f"Judging it was stopped: it took longer than {MAX_RUN_SECONDS} s."
            return RunBacktest(BacktestKind.NOT_REPRODUCIBLE, reason=BacktestReason.DIFFERS, sentence=sentence), []

    def _prepare(self, run: Run) -> FlowSpec | RunBacktest:
        """What the run ran under, or what is said of a run whose version can't be prepared here."""
        try:
            if run.version_id not in self._versions:
                self._versions[run.version_id] = run.version
            return self._prepared.load(run)
        except MissingPluginsError:
            reason, sentence = BacktestReason.MISSING_PLUGIN, "Plug-ins of its version are not installed here."
        except SpecError:
            reason, sentence = BacktestReason.DIFFERS, "This release can’t run its version."
        return RunBacktest(BacktestKind.NOT_REPRODUCIBLE, reason=reason, sentence=sentence)

    @transaction.atomic
    def _store(self, found: Mapping[int, Judged], without: Sequence[WithoutAudit]) -> bool:
        """Store what a batch found, unless another task did so meanwhile; return whether more are left."""
        backtest = Backtest.objects.select_for_update().defer("document", "run_ids").get(pk=self._backtest.pk)
        if not backtest.is_unfinished:
            return False
        if backtest.position == self._position:
            # Retention deletes none of them meanwhile.
            is_listed = not backtest.leaves_out_each
            differing = [run_id for run_id, run in found.items() if is_listed and run.result.kind not in _UNKEPT]
            kept = Run.objects.filter(pk__in=differing).order_by("pk").select_for_update(no_key=True)
            columns = kept.values_list("pk", "outputs_removed_at")
            rows = [_build_row(backtest, run_id, found[run_id].result, removed is None) for run_id, removed in columns]
            BacktestRun.objects.bulk_create(rows)
            totals = Totals.from_document(backtest.totals).count(found.values()).count_without(without)
            backtest.advance(count=len(found), totals=totals.to_document())
        self._position = backtest.position
        if self._position < len(self._run_ids):
            return True
        backtest.end(WorkState.DONE)
        return False


def _read_without(
    history: History, results: Mapping[tuple[int, str], BacktestResult]
) -> tuple[RunBacktest, list[WithoutAudit]]:
    """What a run would be without each audit, and whether it can be judged at all."""
    without = [WithoutAudit.of(key, result, history) for key, result in results.items()]
    for kind in (BacktestKind.NOT_REPRODUCIBLE, BacktestKind.REMOVED):
        if results and all(kind in result.kinds for result in results.values()):
            reasons = next(iter(results.values())).reasons
            return RunBacktest(kind, reason=next(iter(reasons), None)), without
    return RunBacktest(BacktestKind.SAME), without


def _build_row(backtest: Backtest, run_id: int, found: RunBacktest, has_texts: bool) -> BacktestRun:
    """A row; without ``has_texts`` retention removed the outputs of the run after they were judged."""
    return BacktestRun(
        backtest=backtest,
        run_id=run_id,
        kind=found.kind.value,
        reason=found.reason.value if found.reason else "",
        sentence=found.sentence if has_texts else "",
        step=found.step,
        attempt=found.attempt,
        ended=found.ended.value if found.ended else "",
        ends=found.ends.value if found.ends else "",
        is_hypothetical=found.is_hypothetical,
        attempts_saved=found.attempts_saved,
        tokens_saved=found.saved.total,
        cost_saved=found.saved.cost,
        unpriced=found.saved.unpriced,
        further_calls=found.further_calls,
        gone=_list_issues(found.gone) if has_texts else [],
        new=_list_issues(found.new) if has_texts else [],
    )


def _list_issues(issues: Sequence[FoundIssue]) -> list[dict[str, Any]]:
    """The most severe issues as they are kept."""
    worst = sorted(issues, key=lambda one: -one.issue.severity.weight)[:MAX_ISSUES]
    return [
        {
            "step": one.step,
            "attempt": one.attempt,
            "severity": one.issue.severity.value,
            "audit": one.issue.audit,
            "code": one.issue.code,
            "path": one.issue.path,
            "description": one.issue.description[:MAX_DESCRIPTION],
        }
        for one in worst
    ]
