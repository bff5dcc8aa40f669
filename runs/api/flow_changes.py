"""What requests change of flows, each in one transaction and with its entry in the admin's history of the flow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from django.contrib.admin.models import ADDITION, CHANGE, LogEntry
from django.core.exceptions import PermissionDenied
from django.db import IntegrityError, transaction
from django.http import Http404
from django.utils.http import parse_etags, quote_etag

from flows.engine.spec import FlowSpec
from flows.models import Flow, FlowVersion
from flows.portability import load_flow
from runs.api.problems import ApiProblem, Conflict

if TYPE_CHECKING:
    from django.contrib.auth.models import User


@dataclass(frozen=True, slots=True)
class Stored:
    """What became of a flow that was sent: whether it is new, and the number of the version that was made, if any."""

    is_new: bool
    made_version: int | None


class Condition:
    """The header ``If-Match``: the request counts only as long as the flow is what it was when it was read."""

    def __init__(self, header: str | None) -> None:
        """Raises ``ApiProblem`` for a header that holds no ETag."""
        self._tags = None if header is None else parse_etags(header)
        if self._tags == []:
            sentence = "“If-Match” holds the ETag of the flow as it was read, with its double quotes, or *."
            raise ApiProblem(HTTPStatus.BAD_REQUEST, "bad-request", sentence)

    def require(self, latest: FlowVersion | None) -> None:
        """Raises ``ApiProblem`` with status 412 if ``latest`` is not what was read."""
        if self._tags is None or (latest is not None and (self._tags == ["*"] or _make_tag(latest) in self._tags)):
            return
        if latest is None:
            sentence = "There is no version of this flow any more, or not yet."
            raise ApiProblem(HTTPStatus.PRECONDITION_FAILED, "flow-changed", sentence)
        sentence = f"The flow has changed since you read it: version {latest.number} is its latest now. Read it again."
        headers = {"ETag": _make_tag(latest)}
        raise ApiProblem(HTTPStatus.PRECONDITION_FAILED, "flow-changed", sentence, headers=headers)


def _make_tag(version: FlowVersion) -> str:
    return quote_etag(version.digest)


def make_headers(version: FlowVersion | None) -> dict[str, str]:
    """The header ``ETag`` of a version: its digest; nothing if there is no version."""
    return {} if version is None else {"ETag": _make_tag(version)}


def create_flow(*, spec: FlowSpec, by: User, note: str) -> Stored:
    """Store a new flow, whose first version is live. Raises ``Conflict`` if the name is taken."""
    try:
        with transaction.atomic():
            return Stored(is_new=True, made_version=_make_flow(spec, by, note).number)
    except IntegrityError:
        if not Flow.objects.filter(name=spec.name).exists():
            raise
        sentence = f"There is a flow “{spec.name}” already. Send a PUT request to its address to change it."
        raise Conflict("name-taken", sentence) from None


def _make_flow(spec: FlowSpec, by: User, note: str) -> FlowVersion:
    # Whoever takes the name at the same moment waits here, or is waited for.
    Flow.objects.create(name=spec.name)
    version = load_flow(document=spec.to_document(), by=by, note=note)
    _log(version.flow, by, "Created through the API.", is_new=True)
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
    condition.require(latest)
    if flow is None:
        if not by.has_perm("flows.add_flow"):
            raise PermissionDenied("There is no such flow, and your account lacks the permission “flows.add_flow”.")
        return Stored(is_new=True, made_version=_make_flow(spec, by, note).number)
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
    return Stored(is_new=False, made_version=version.number if is_made else None)


def make_version_live(*, name: str, number: int, by: User) -> None:
    """Let new runs of a flow use one of its versions. Raises ``Http404``."""

    def change(flow: Flow) -> str:
        version = flow.versions.filter(number=number).first()
        if version is None:
            raise Http404
        if flow.live_version_id == version.pk:
            return ""
        flow.make_live(version)
        return f"Made version {number} live."

    _change(name, by, change)


def set_archived(*, name: str, is_archived: bool, by: User) -> None:
    """Archive a flow: it takes no new runs; or take it out of the archive. Raises ``Http404``."""

    def change(flow: Flow) -> str:
        if flow.is_archived == is_archived:
            return ""
        flow.is_archived = is_archived
        flow.save(update_fields=["is_archived", "updated_at"])
        return "Archived." if is_archived else "Taken out of the archive."

    _change(name, by, change)


def _change(name: str, by: User, change: Callable[[Flow], str]) -> None:
    with transaction.atomic():
        flow = Flow.objects.select_for_update().filter(name=name).first()
        if flow is None:
            raise Http404
        if said := change(flow):
            _log(flow, by, said)


def _log(flow: Flow, by: User, said: str, *, is_new: bool = False) -> None:
    action = ADDITION if is_new else CHANGE
    LogEntry.objects.log_actions(by.pk, [flow], action, said, single_object=True)
