"""Requesting a backtest: of a version or a draft, over ended runs of the flow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import transaction

from flows.engine.spec import FlowSpec
from flows.models import Flow, FlowVersion
from runs.audit_log.events import AuditAction, log_audit_event
from runs.backtests.work import send_task
from runs.bulk_actions.requests import fetch_with_status
from runs.filters import RunFilters
from runs.matching_runs import fetch_newest_run_number
from runs.models import Backtest
from runs.models.run import ENDED

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser

DEFAULT_LIMIT = 1_000
MAX_LIMIT = 10_000
"""Runs that one backtest judges."""
MAX_UNFINISHED = 10
"""Backtests at a time, and as many that leave out each audit: lists don't show those."""


class TooManyBacktestsError(Exception):
    """``MAX_UNFINISHED`` backtests are unfinished. ``str(error)`` is a sentence."""


class NoRunsError(Exception):
    """No run has ended that matches. ``str(error)`` is a sentence."""


def request_backtest(
    *,
    flow: Flow,
    candidate: FlowVersion | FlowSpec,
    filters: RunFilters | None = None,
    limit: int = DEFAULT_LIMIT,
    leaves_out_each: bool = False,
    asked_by: AbstractBaseUser | None = None,
) -> Backtest:
    """Store the request to judge the newest ended runs of ``flow`` by ``candidate``, a version or a complete draft.

    ``filters`` narrow the runs, up to ``limit``; they name no other flow. With ``leaves_out_each`` the runs are those
    of the version. A worker does it. Raises ``NoRunsError`` and ``TooManyBacktestsError``.
    """
    version = candidate if isinstance(candidate, FlowVersion) else None
    spec = candidate.flow_spec if isinstance(candidate, FlowVersion) else candidate
    changes = {"version": str(version.number)} if leaves_out_each and version is not None else {}
    wanted = RunFilters((filters or RunFilters()).to_query(flow=flow.name, **changes))
    newest = fetch_newest_run_number()
    run_ids, _ = fetch_with_status(wanted, statuses=ENDED, newest=newest, limit=min(limit, MAX_LIMIT))
    if not run_ids:
        raise NoRunsError("No run of this flow has ended that matches. Change the filters, or run the flow first.")
    with transaction.atomic():
        if Backtest.objects.unfinished().filter(leaves_out_each=leaves_out_each).count() >= MAX_UNFINISHED:
            raise TooManyBacktestsError(f"{MAX_UNFINISHED} backtests are in progress. Wait for one, or stop it.")
        backtest = Backtest.objects.create(
            flow=flow,
            version=version,
            base_version=flow.live_version.number if flow.live_version else None,
            document=spec.to_document(),
            digest=spec.digest,
            leaves_out_each=leaves_out_each,
            run_ids=run_ids,
            run_count=len(run_ids),
            query=wanted.to_query(),
            limit=limit,
            asked_by_id=asked_by.pk if asked_by else None,
        )
        details = {"flow": flow.name, "version": version.number if version else None, "runs": len(run_ids)}
        log_audit_event(action=AuditAction.BACKTEST_STARTED, about=backtest, details=details, actor=asked_by)
        send_task(backtest.pk)
    return backtest


def stop_backtest(backtest: Backtest) -> bool:
    """End a backtest as it is, with an entry in the audit log; False if it had ended already."""
    with transaction.atomic():
        if not backtest.stop():
            return False
        log_audit_event(action=AuditAction.BACKTEST_STOPPED, about=backtest, details={"judged": backtest.position})
    return True
