"""What requests change of flows, each in one transaction and with its entry in the admin's history of the flow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction
from django.http import Http404
from django.utils.http import parse_etags, quote_etag

from flows.admin.protection import is_referred_to
from flows.engine.spec import FlowSpec
from flows.models import Flow, FlowVersion
from flows.portability import load_flow
from runs.api.conditions import is_among, make_tag
from runs.api.flow_documents import describe_flow, describe_whole_flow, read_flow, select_flows
from runs.api.problems import ApiProblem, Conflict

if TYPE_CHECKING:
    from django.contrib.auth.models import User
    from rest_framework.request import Request


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of a flow that was sent: whether it is new, and the number of the version that was made, if any."""

    is_new: bool
    made_version: int | None
    flow: Flow
    latest: FlowVersion | None
    """Both as they were stored: what somebody saves a moment later is not told as if it were this."""

    @classmethod
    def read(cls, name: str, *, is_new: bool, made_version: int | None) -> Stored:
        """What is stored now, within the transaction that stored it."""
        return cls(is_new, made_version, *read_flow(name))


class Condition:
    """The headers ``If-Match`` and ``If-None-Match`` of a change: it counts only as long as what it changes is what it
    was when it was read; or as long as there is nothing of the kind yet.
    """

    def __init__(self, header: str | None, unless: str | None = None) -> None:
        """Raises ``ApiProblem`` for a header that holds no ETag; ``unless`` is ``If-None-Match``."""
        self._tags = _read_tags("If-Match", header)
        self._unless = _read_tags("If-None-Match", unless)

    @classmethod
    def read(cls, request: Request) -> Condition:
        """What a request says of it. Raises as the class does."""
        return cls(request.headers.get("If-Match"), request.headers.get("If-None-Match"))

    def require(self, flow: Flow | None, latest: FlowVersion | None) -> None:
        """Raises ``ApiProblem`` with status 412 if the flow with its latest version is not what was read."""
        if self._tags is None and self._unless is None:
            return
        tag = "" if flow is None else make_headers(flow, latest).get("ETag", "")
        if flow is not None and self._unless is not None and is_among(tag, self._unless):
            sentence = f"There is a flow “{flow.name}” already, and the request wants to change none that is there."
            raise ApiProblem(
                HTTPStatus.PRECONDITION_FAILED, "flow-exists", sentence, headers={"ETag": tag} if tag else {}
            )
        if latest is not None:
            now = f"version {latest.number} is its latest now"
            sentence = f"The flow has changed since you read it: {now}. Read it again."
            # The digest alone says what somebody works on, too.
            if self._tags is None or quote_etag(latest.digest) not in self._tags:
                self.require_tag(tag, kind="flow-changed", sentence=sentence)
        elif self._tags is not None:
            sentence = "There is no version of this flow any more, or not yet."
            raise ApiProblem(HTTPStatus.PRECONDITION_FAILED, "flow-changed", sentence)

    def require_tag(self, tag: str, *, kind: str, sentence: str) -> None:
        """Raises ``ApiProblem`` of that ``kind`` with status 412 if ``tag`` is not that of what was read."""
        if self._tags is not None and self._tags != ["*"] and tag not in self._tags:
            raise ApiProblem(HTTPStatus.PRECONDITION_FAILED, kind, sentence, headers={"ETag": tag})


def _read_tags(name: str, header: str | None) -> list[str] | None:
    tags = None if header is None else parse_etags(header)
    if tags == []:
        sentence = f"“{name}” holds the ETag of what is changed, as it was read with its double quotes, or *."
        raise ApiProblem(HTTPStatus.BAD_REQUEST, "bad-request", sentence)
    return tags


def make_headers(flow: Flow, latest: FlowVersion | None) -> dict[str, str]:
    """The header ``ETag`` of a flow as it is read; nothing if it has no version."""
    return {} if latest is None else {"ETag": make_tag(describe_whole_flow(flow, latest))}


def create_flow(*, spec: FlowSpec, by: User, note: str) -> Stored:
    """Store a new flow, whose first version is live. Raises ``Conflict`` if the name is taken."""
    try:
        with transaction.atomic():
            made = _make_flow(spec, by, note)
            return Stored.read(spec.name, is_new=True, made_version=made.number)
    except IntegrityError:
        if not Flow.objects.filter(name=spec.name).exists():
            raise
        sentence = f"There is a flow “{spec.name}” already. Send a PUT request to its address to change it."
        raise Conflict("name-taken", sentence) from None


def _make_flow(spec: FlowSpec, by: User, note: str) -> FlowVersion:
    # Whoever takes the name at the same moment waits here, or is waited for.
    Flow.objects.create(name=spec.name)
    version = load_flow(document=spec.to_document(), by=by, note=note)
    _log(version.flow, by, "Created through the API.", action=ADDITION)
    return version


def store_flow(*, spec: FlowSpec, by: User, note: str, make_live: bool, condition: Condition) -> Stored:
    """Make a flow what ``spec`` says: a new version if that differs from the latest, a new flow if there is none.

    ``make_live`` lets new runs use it; those of a new flow do anyhow. Raises ``ApiProblem`` if ``condition`` isn't
    met, ``PermissionDenied`` if the flow is new and the user may add none.
    """
    try:
        return _store(spec, by, note, make_live, condition)
    except IntegrityError:
        # Somebody made a flow of this name meanwhile: it is there to be changed now.
        return _store(spec, by, note, make_live, condition)


@transaction.atomic
def _store(spec: FlowSpec, by: User, note: str, make_live: bool, condition: Condition) -> Stored:
    # Whoever saves the flow meanwhile waits.
    flow = Flow.objects.select_for_update().filter(name=spec.name).first()
    latest = flow.versions.first() if flow is not None else None
    condition.require(flow, latest)
    if flow is None:
        if not by.has_perm("flows.add_flow"):
            raise PermissionDenied("There is no such flow, and your account lacks the permission “flows.add_flow”.")
        made = _make_flow(spec, by, note)
        return Stored.read(spec.name, is_new=True, made_version=made.number)
    version = load_flow(document=spec.to_document(), by=by, note=note)
    is_made = version != latest
    said = []
    if is_made:
        said.append(f"Saved version {version.number} through the API.")
    elif version.flow.revision != flow.revision:
        said.append(f"Saved through the API what version {version.number} holds.")
    if make_live and version.flow.live_version_id != version.pk:
        version.flow.make_live(version)
        said.append(f"Made version {version.number} live.")
    if said:
        _log(version.flow, by, " ".join(said))
    return Stored.read(spec.name, is_new=False, made_version=version.number if is_made else None)


def make_version_live(*, name: str, number: int, by: User, condition: Condition) -> dict[str, Any]:
    """Let new runs of a flow use one of its versions; gives the flow as it is then, without its definition.

    Raises ``Http404``, and ``ApiProblem`` if ``condition`` isn’t met.
    """

    def change(flow: Flow) -> str:
        version = flow.versions.filter(number=number).first()
        if version is None:
            raise Http404
        if flow.live_version_id == version.pk:
            return ""
        flow.make_live(version)
        return f"Made version {number} live."

    return _change(name, by, change, condition)


def set_archived(*, name: str, is_archived: bool, by: User, condition: Condition) -> dict[str, Any]:
    """Archive a flow: it takes no new runs; or take it out. Gives and raises as ``make_version_live``."""

    def change(flow: Flow) -> str:
        if flow.is_archived == is_archived:
            return ""
        flow.is_archived = is_archived
        flow.save(update_fields=["is_archived", "updated_at"])
        return "Archived." if is_archived else "Taken out of the archive."

    return _change(name, by, change, condition)


@transaction.atomic
def delete_flow(*, name: str, by: User, condition: Condition) -> None:
    """Delete a flow with its versions. Raises ``Http404``, ``Conflict`` if it has runs, and ``ApiProblem`` if
    ``condition`` isn’t met.
    """
    # A run that is started meanwhile waits, and then finds no flow.
    flow = Flow.objects.select_for_update().filter(name=name).first()
    if flow is None:
        raise Http404
    condition.require(flow, flow.versions.first())
    if is_referred_to(flow):
        raise Conflict("has-runs", f"“{name}” has runs, and history is kept. Archive the flow instead.")
    _log(flow, by, "Deleted through the API, with all its versions.", action=DELETION)
    flow.delete()


@transaction.atomic
def delete_version(*, name: str, number: int, by: User) -> None:
    """Delete a version that is of no use. Raises ``Http404``, and ``Conflict`` if it is live or has runs."""
    flow = Flow.objects.select_for_update().filter(name=name).first()
    version = flow.versions.filter(number=number).select_for_update().first() if flow is not None else None
    if flow is None or version is None:
        raise Http404
    if flow.live_version_id == version.pk:
        raise Conflict("is-live", f"Version {number} of “{name}” is live. Make another version live first.")
    if is_referred_to(version):
        sentence = f"Version {number} of “{name}” has runs, and they are kept with the definition that they used."
        raise Conflict("has-runs", sentence)
    _log(version, by, "Deleted through the API.", action=DELETION)
    version.delete()


@transaction.atomic
def _change(name: str, by: User, change: Callable[[Flow], str], condition: Condition) -> dict[str, Any]:
    flow = Flow.objects.select_for_update().filter(name=name).first()
    if flow is None:
        raise Http404
    condition.require(flow, flow.versions.first())
    if said := change(flow):
        _log(flow, by, said)
    return describe_flow(select_flows(has_input_schema=False).get(pk=flow.pk))


def _log(row: Flow | FlowVersion, by: User, said: str, *, action: int = CHANGE) -> None:
    LogEntry.objects.log_actions(by.pk, [row], action, said, single_object=True)
