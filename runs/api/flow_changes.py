"""What requests change of flows, each in one transaction and with its entry in the admin's history of the flow."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.db import transaction
from django.shortcuts import get_object_or_404
from django.utils.http import parse_etags
from rest_framework.request import Request

from flows.admin.protection import is_referred_to
from flows.engine.spec import FlowSpec
from flows.models import Flow as FlowRow
from flows.models import FlowVersion as VersionRow
from flows.publishing import publish_flow
from runs.api.access import find_user, require_permission
from runs.api.base import is_among
from runs.api.flow_documents import list_tags, load_version, load_whole_flow, select_flows
from runs.api.problems import ApiProblem, Conflict
from runs.api.schemas.flows import ChangedFlowQuery, Flow, StoredFlow


@transaction.atomic
def create_flow(request: Request, spec: FlowSpec, note: str) -> StoredFlow:
    """Store a new flow, whose first version is live. Raises ``Conflict`` if the name is taken."""
    # Another request that takes the name at the same moment waits here, or is waited for.
    _, is_new = FlowRow.objects.get_or_create(name=spec.name)
    if not is_new:
        sentence = f"A flow “{spec.name}” already exists. To change it, send a PUT request to its address."
        raise Conflict("name-taken", sentence)
    return _store_first_version(request, spec, note)


@transaction.atomic
def store_flow(request: Request, spec: FlowSpec, query: ChangedFlowQuery) -> tuple[StoredFlow, bool]:
    """Make a flow what ``spec`` says: a new version if that differs from the latest, a new flow if there is none.

    Gives the flow, and whether it is new. Raises ``ApiProblem`` if the request's conditions aren't met,
    ``PermissionDenied`` if the flow is new and the user may add none.
    """
    flow, is_new = FlowRow.objects.select_for_update().get_or_create(name=spec.name)
    tags = [] if is_new else list_tags(load_whole_flow(spec.name))
    require_other(request, "flow-exists", *tags)
    require_unchanged(request, "flow-changed", *tags)
    if is_new:
        require_permission(request, "flows.add_flow")
        return _store_first_version(request, spec, query.note), True
    latest = flow.versions.first()
    version = publish_flow(spec=spec, by=find_user(request), note=query.note)
    is_made = version != latest
    messages = []
    if is_made:
        messages.append(f"Saved version {version.number} through the API.")
    if query.make_live and version.flow.live_version_id != version.pk:
        version.flow.make_live(version)
        messages.append(f"Made version {version.number} live.")
    if messages:
        log_change(request, version.flow, " ".join(messages))
    return _load_stored(spec.name, version.number if is_made else None), False


def _store_first_version(request: Request, spec: FlowSpec, note: str) -> StoredFlow:
    version = publish_flow(spec=spec, by=find_user(request), note=note)
    log_change(request, version.flow, "Created through the API.", action=ADDITION)
    return _load_stored(spec.name, version.number)


def _load_stored(name: str, made_version: int | None) -> StoredFlow:
    # Within the transaction: what another request saves a moment later is not answered as if it were this.
    return StoredFlow.model_validate({**dict(load_whole_flow(name)), "made_version": made_version})


@transaction.atomic
def change_flow(request: Request, name: str, change: Callable[[FlowRow], str]) -> Flow:
    """Do something to a flow that makes no version, and give it without its definition.

    ``change`` gives what the history says of it, nothing if all was so before. Raises ``Http404``, and ``ApiProblem``
    if the request's ``If-Match`` isn't met.
    """
    flow = _lock_read_flow(request, name)
    if message := change(flow):
        log_change(request, flow, message)
    return Flow.model_validate(select_flows().get(pk=flow.pk))


@transaction.atomic
def delete_flow(request: Request, name: str) -> None:
    """Delete a flow with its versions. Raises as ``change_flow``, and ``Conflict`` if it has runs."""
    # A run that is started meanwhile waits, and then finds no flow.
    flow = _lock_read_flow(request, name)
    if is_referred_to(flow):
        raise Conflict("has-runs", f"“{name}” has runs, so it can’t be deleted. Archive the flow instead.")
    log_change(request, flow, "Deleted through the API, with all its versions.", action=DELETION)
    flow.delete()


@transaction.atomic
def delete_version(request: Request, name: str, number: int) -> None:
    """Delete a version. Raises ``Http404``, and ``Conflict`` if it is live or has runs."""
    flow = get_object_or_404(FlowRow.objects.select_for_update(), name=name)
    version = load_version(flow, number)
    if flow.live_version_id == version.pk:
        raise Conflict("is-live", f"Version {number} of “{name}” is live. Make another version live first.")
    if is_referred_to(version):
        sentence = f"Version {number} of “{name}” has runs, which need its definition. It can’t be deleted."
        raise Conflict("has-runs", sentence)
    log_change(request, version, "Deleted through the API.", action=DELETION)
    version.delete()


def _lock_read_flow(request: Request, name: str) -> FlowRow:
    """The flow, locked, as the request's ``If-Match`` says that it was read."""
    flow = get_object_or_404(FlowRow.objects.select_for_update(), name=name)
    require_unchanged(request, "flow-changed", *list_tags(load_whole_flow(name)))
    return flow


def log_change(request: Request, row: FlowRow | VersionRow, message: str, *, action: int = CHANGE) -> None:
    """Add an entry to the admin's history of a flow or version."""
    LogEntry.objects.log_actions(find_user(request).pk, [row], action, message, single_object=True)


# ---------------------------------------------------------------------------------------------------------------------
# Conditions of requests


def require_unchanged(request: Request, kind: str, *tags: str) -> None:
    """Raise ``ApiProblem`` (412) unless ``If-Match``, if it was sent, names one of ``tags``, those of what is there.

    There are none of what does not exist. ``kind`` is the type of the problem. Raises 400 for a header without an ETag.
    """
    wanted = _parse_tags(request, "If-Match")
    is_met = wanted is None or (tags and wanted == ["*"]) or not set(tags).isdisjoint(wanted)
    if not is_met:
        raise _build_problem(kind, "This has changed since you read it, or no longer exists. Read it again.", tags)


def require_other(request: Request, kind: str, *tags: str) -> None:
    """Raise ``ApiProblem`` (412) if ``If-None-Match`` names the first of ``tags``. Else as above."""
    unwanted = _parse_tags(request, "If-None-Match")
    if unwanted is not None and tags and is_among(tags[0], unwanted):
        raise _build_problem(kind, "This already exists, and the request must not change it.", tags)


def _build_problem(kind: str, sentence: str, tags: tuple[str, ...]) -> ApiProblem:
    return ApiProblem(HTTPStatus.PRECONDITION_FAILED, kind, sentence, headers={"ETag": tags[0]} if tags else {})


def _parse_tags(request: Request, name: str) -> list[str] | None:
    header = request.headers.get(name)
    tags = None if header is None else parse_etags(header)
    if tags == []:
        sentence = f"“{name}” holds the ETag of what is changed, as it was read with its double quotes, or *."
        raise ApiProblem(HTTPStatus.BAD_REQUEST, "bad-request", sentence)
    return tags
