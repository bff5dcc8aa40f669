"""Entries for rows that are saved by others: flows, which know nothing of runs, and users, which are Django’s.

Whoever saves a flow or a user, be it a page, the API or a command, leaves a trail: nothing needs to be remembered
there. Rows that come with a fixture leave none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from django.contrib.auth.models import Group, User
from django.db.models import Model
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_save

from flows.forms import OPERATIONAL_FIELDS
from flows.models import Flow, FlowVersion
from flows.portability import flows_exported
from runs.models import ApiToken, RateLimit, WebhookEndpoint
from runs.trail.actions import TrailAction as Action
from runs.trail.entries import leave_trail

MOST_NAMES = 20
"""Names of permissions or groups that an entry lists."""
LIMIT_FIELDS = ("model", "calls_in_flight", "requests_per_minute", "tokens_per_minute")
"""What an entry tells of a limit."""
ENDPOINT_FIELDS = ("url", "flow_id", "event_types", "is_enabled")
"""What an entry names of an endpoint, without values: an address may hold a key."""
TOLD_SETTINGS = frozenset({"keep_days", "keep_outputs_days"})
"""Settings of a flow with their values, as they delete data; those of others stay out: an address may hold a key."""
USER_FIELDS = (
    "username", "email", "first_name", "last_name", "password", "is_active", "is_staff", "is_superuser"
)  # fmt: skip
"""What somebody changes of a user; an entry names it."""
TOLD_USER_FIELDS = frozenset({"username", "email"})
"""Those of them by which somebody signs in; an entry has their values."""


def connect() -> None:
    """Let rows leave their trail from now on."""
    compared: dict[type[Model], Sequence[str]] = {
        Flow: OPERATIONAL_FIELDS,
        RateLimit: LIMIT_FIELDS,
        User: USER_FIELDS,
        WebhookEndpoint: ENDPOINT_FIELDS,
    }
    for model, fields in compared.items():
        pre_save.connect(_note(fields), sender=model, weak=False, dispatch_uid=f"trail before {model.__name__}")
    watched: dict[type[Model], tuple[Callable[..., None], Action | None]] = {
        Flow: (_tell_of_flow, Action.FLOW_DELETED),
        FlowVersion: (_tell_of_version, None),
        User: (_tell_of_user, Action.USER_DELETED),
        Group: (_tell_of_group, Action.GROUP_DELETED),
        RateLimit: (_tell_of_limit, Action.LIMIT_DELETED),
        ApiToken: (_tell_of_token, None),
        WebhookEndpoint: (_tell_of_endpoint, Action.WEBHOOK_ENDPOINT_DELETED),
    }
    for model, (saved, deleted) in watched.items():
        post_save.connect(_unless_raw(saved), sender=model, weak=False, dispatch_uid=f"trail saved {model.__name__}")
        if deleted is not None:
            post_delete.connect(
                _tell_of_deletion(deleted), sender=model, weak=False, dispatch_uid=f"trail deleted {model.__name__}"
            )
    post_delete.connect(_tell_of_deleted_version, sender=FlowVersion, dispatch_uid="trail deleted FlowVersion")
    post_delete.connect(_tell_of_deleted_token, sender=ApiToken, dispatch_uid="trail deleted ApiToken")
    flows_exported.connect(_announce_exported_flows, dispatch_uid="trail exported flows")
    for through in (User.groups.through, User.user_permissions.through, Group.permissions.through):
        m2m_changed.connect(_tell_of_rights, sender=through, dispatch_uid=f"trail {through.__name__}")


def _unless_raw(tell: Callable[..., None]) -> Callable[..., None]:
    def receive(*, instance: Any, created: bool, raw: bool, update_fields: Any, **_: Any) -> None:
        if not raw:
            tell(instance, created, frozenset(update_fields or ()))

    return receive


def _tell_of_deletion(action: Action) -> Callable[..., None]:
    def receive(*, instance: Model, **_: Any) -> None:
        leave_trail(action=action, about=instance)

    return receive


def _note(fields: Sequence[str]) -> Callable[..., None]:
    """Keep what a stored row holds in these of its fields that are about to change: once it is saved, nobody knows."""

    def receive(*, sender: type[Model], instance: Any, raw: bool, update_fields: Any, **_: Any) -> None:
        saved = [name for name in fields if update_fields is None or name in update_fields]
        is_stored = not raw and saved and instance.pk is not None
        stored = sender._default_manager.filter(pk=instance.pk).values(*saved).first() if is_stored else None
        instance._values_before = {
            name: value for name, value in (stored or {}).items() if value != getattr(instance, name)
        }

    return receive


def _compare(row: Model) -> dict[str, dict[str, Any]]:
    """What has changed of a row that was saved, as it was and as it is."""
    before: dict[str, Any] = getattr(row, "_values_before", {})
    return {name: {"from": value, "to": getattr(row, name)} for name, value in before.items()}


def _tell_of_flow(flow: Flow, created: bool, fields: frozenset[str]) -> None:
    if "live_version" in fields:
        number = flow.live_version.number if flow.live_version else None
        leave_trail(action=Action.FLOW_MADE_LIVE, about=flow, details={"version": number})
    elif "is_archived" in fields:
        leave_trail(action=Action.FLOW_ARCHIVED if flow.is_archived else Action.FLOW_TAKEN_OUT, about=flow)
    elif created:
        leave_trail(action=Action.FLOW_ADDED, about=flow)
    elif not fields:
        # To count a save is part of one.
        changed = _compare(flow)
        details = {"settings": list(changed)} if changed else {}
        leave_trail(action=Action.FLOW_CHANGED, about=flow, details=details | _choose(changed, TOLD_SETTINGS))


def _choose(changed: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in changed.items() if name in names}


def _announce_exported_flows(*, versions: Sequence[FlowVersion], **_: Any) -> None:
    if len(versions) == 1:
        leave_trail(action=Action.FLOW_EXPORTED, about=versions[0].flow, details={"version": versions[0].number})
    else:
        leave_trail(action=Action.FLOW_EXPORTED, kind="flow", details={"flows": len(versions)})


def _tell_of_version(version: FlowVersion, created: bool, fields: frozenset[str]) -> None:
    details = {"version": version.number, **({"note": version.note[:200]} if version.note else {})}
    leave_trail(action=Action.FLOW_PUBLISHED, about=version.flow, details=details)


def _tell_of_deleted_version(*, instance: FlowVersion, origin: Any = None, **_: Any) -> None:
    if not isinstance(origin, Flow) and getattr(origin, "model", None) is not Flow:
        details = {"version": instance.number}
        leave_trail(action=Action.VERSION_DELETED, about=instance.flow, details=details)


def _tell_of_user(user: User, created: bool, fields: frozenset[str]) -> None:
    # The plain password is there while a new one is being saved.
    is_new_password = getattr(user, "_password", None) is not None
    if is_new_password and not created:
        leave_trail(action=Action.PASSWORD_CHANGED, about=user)
    if fields and fields <= {"last_login", "password"}:
        return
    rights = {"is_active": user.is_active, "is_staff": user.is_staff, "is_superuser": user.is_superuser}
    if created:
        leave_trail(action=Action.USER_ADDED, about=user, details=rights)
        return
    changed = _compare(user)
    if is_new_password:
        # That was told.
        changed.pop("password", None)
    if changed or not is_new_password:
        names = {"changed": list(changed)} if changed else {}
        details = rights | names | _choose(changed, TOLD_USER_FIELDS)
        leave_trail(action=Action.USER_CHANGED, about=user, details=details)


def _tell_of_group(group: Group, created: bool, fields: frozenset[str]) -> None:
    leave_trail(action=Action.GROUP_ADDED if created else Action.GROUP_CHANGED, about=group)


def _tell_of_limit(limit: RateLimit, created: bool, fields: frozenset[str]) -> None:
    if created:
        values = {name: getattr(limit, name) for name in LIMIT_FIELDS}
        details = {name: value for name, value in values.items() if value is not None}
        leave_trail(action=Action.LIMIT_ADDED, about=limit, details=details)
    else:
        leave_trail(action=Action.LIMIT_CHANGED, about=limit, details=_compare(limit))


def _tell_of_endpoint(endpoint: WebhookEndpoint, created: bool, fields: frozenset[str]) -> None:
    details: dict[str, Any] = {"flow": endpoint.flow.name if endpoint.flow else None}
    if created:
        leave_trail(action=Action.WEBHOOK_ENDPOINT_ADDED, about=endpoint, details=details)
    elif changed := _compare(endpoint):
        details["changed"] = [name.removesuffix("_id") for name in changed]
        leave_trail(action=Action.WEBHOOK_ENDPOINT_CHANGED, about=endpoint, details=details)


def _tell_of_token(token: ApiToken, created: bool, fields: frozenset[str]) -> None:
    if created:
        expiry = token.expiry.date().isoformat() if token.expiry else None
        details = {"scope": token.scope, "of": token.user.get_username(), "expires": expiry}
        leave_trail(action=Action.TOKEN_MADE, about=None, kind="apitoken", label=token.name, details=details)


def _tell_of_deleted_token(*, instance: ApiToken, origin: Any = None, **_: Any) -> None:
    # Those of a user who is deleted go with them.
    if not isinstance(origin, User) and getattr(origin, "model", None) is not User:
        details = {"of": instance.user.get_username()}
        leave_trail(action=Action.TOKEN_DELETED, kind="apitoken", label=instance.name, details=details)


def _tell_of_rights(*, instance: Any, action: str, reverse: bool, model: Any, pk_set: Any, **_: Any) -> None:
    verb = {"post_add": "added", "post_remove": "removed", "post_clear": "cleared"}.get(action)
    if verb is None or (verb != "cleared" and not pk_set):
        return
    names = _list_names(model.objects.filter(pk__in=list(pk_set)[: MOST_NAMES + 1])) if pk_set else []
    more = {"more": len(pk_set) - MOST_NAMES} if pk_set and len(pk_set) > MOST_NAMES else {}
    leave_trail(action=Action.RIGHTS_CHANGED, about=instance, details={verb: names[:MOST_NAMES], **more})


def _list_names(rows: Iterable[Any]) -> list[str]:
    return sorted(row.codename if hasattr(row, "codename") else str(row) for row in rows)
