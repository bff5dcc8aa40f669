"""What a bulk action does to the runs of a batch. Each is counted on the action, which the caller locks and saves."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import InterfaceError, OperationalError, transaction

from flows.engine.errors import Problem
from flows.models import FlowVersion
from runs.models import BulkAction, Priority, Run, RunStatus
from runs.models.run import REMOVED_INPUT
from runs.run_options import list_lasting_labels
from runs.submission import NotRunnableError, OrdersError, RunOrder, find_own_limits, prepare_runs, store_runs
from runs.trail.asking import told_already
from runs.webhooks.addresses import find_obstacle

logger = logging.getLogger(__name__)

_NO_RUN = "There is no run of this number any more."
_LONGEST_PLACE = 200


def cancel_runs(*, action: BulkAction, run_ids: Sequence[int]) -> None:
    """Cancel those of the runs that have not ended."""
    # Workers lock runs in the order of their numbers too, so that nobody waits for each other.
    rows = Run.objects.filter(pk__in=run_ids).order_by("pk").defer("input", "model_settings")
    if action.run_ids is None:
        # Most runs that match have ended long ago, and who asked for “all” did not mean those.
        rows = rows.filter(status__in=[RunStatus.QUEUED, RunStatus.RUNNING])
    runs = {run.pk: run for run in rows.select_for_update()}
    for run_id in run_ids:
        run = runs.get(run_id)
        if run is None:
            if action.run_ids is not None:
                action.note(run_id=run_id, is_failure=True, sentence=_NO_RUN)
        elif run.has_ended:
            action.note(run_id=run_id, is_failure=False, sentence="It had ended already.")
        elif run.cancel_requested:
            action.note(run_id=run_id, is_failure=False, sentence="It was being cancelled already.")
        elif run.request_cancel():
            action.done += 1


def start_again(*, action: BulkAction, run_ids: Sequence[int]) -> None:
    """Start a run with what each of the runs was given, and with the label of the action."""
    runs = Run.objects.select_related("flow").in_bulk(list(run_ids))
    wanted = {run.version_id for run in runs.values()}
    if action.uses_live_version:
        wanted |= {run.flow.live_version_id for run in runs.values() if run.flow.live_version_id is not None}
    # Each version is read and checked once, not once for each of its runs.
    versions = FlowVersion.objects.in_bulk(wanted)
    for run_id in run_ids:
        run = runs.get(run_id)
        if run is None:
            action.note(run_id=run_id, is_failure=True, sentence=_NO_RUN)
        elif not run.has_ended:
            action.note(run_id=run_id, is_failure=False, sentence="It has not ended yet.")
        elif run.outputs_removed_at is not None:
            action.note(run_id=run_id, is_failure=True, sentence=REMOVED_INPUT)
        elif problem := _start_one(action, run, versions):
            action.note(run_id=run_id, is_failure=True, sentence=problem)
        else:
            action.done += 1


def _start_one(action: BulkAction, run: Run, versions: Mapping[int, FlowVersion]) -> str:
    """Start one run again; gives why that is not possible, or nothing."""
    own = versions[run.version_id]
    version = own
    if action.uses_live_version:
        if run.flow.live_version_id is None:
            return f"“{run.flow}” has no published version."
        version = versions[run.flow.live_version_id]
    if run.webhook_url and (problem := find_obstacle(run.webhook_url)):
        # It was stored when other addresses would do.
        return f"Its webhook can’t be told any more: {problem}"
    try:
        again = prepare_runs(
            flow=run.flow,
            orders=[RunOrder(run.input, list_lasting_labels(run.labels), run.metadata, again_of=run.pk)],
            version=version,
            started_by=action.asked_by,
            priority=Priority(run.priority),
            webhook_url=run.webhook_url,
            **find_own_limits(run, own.flow_spec),
        )
        # Beside as many as a run may be given.
        again[0].labels = sorted({*again[0].labels, action.label})
        # What one run has begun to write doesn't stay if it fails.
        with transaction.atomic(), told_already():
            store_runs(again)
    except OrdersError as error:
        return _tell_misfit(error.problems, version)
    except NotRunnableError as error:
        return str(error)
    except (OperationalError, InterfaceError):
        raise
    except Exception:
        logger.exception("Run %s can't be run again.", run.pk)
        return "ToolFlow failed to start it; the log says why."
    return ""


def _tell_misfit(problems: Sequence[Problem], version: FlowVersion) -> str:
    """Where the input of a run doesn't fit a version. Nothing of the input itself: it would outlive that of the run."""
    place = problems[0].path.removeprefix("/0")
    names = {"input", "labels", "metadata"} | _list_names(version.spec.get("input_schema"))
    # Names that the schema doesn't have are what somebody wrote, as are places in a list.
    shown = "/".join(part if not part or part in names else "…" for part in place.split("/"))[:_LONGEST_PLACE]
    others = len(problems) - 1
    more = f" and in {others} more place{'s' * (others > 1)}" if others else ""
    return f"Its input doesn’t fit version {version.number}, at {shown}{more}."


def _list_names(schema: Any) -> set[str]:
    """The names of all properties that a schema has anywhere."""
    if isinstance(schema, list):
        return set().union(*map(_list_names, schema))
    if not isinstance(schema, dict):
        return set()
    own = schema.get("properties")
    return set(own if isinstance(own, dict) else ()).union(*map(_list_names, schema.values()))
