"""Entries of rows, written by signals: whichever page, API or command changes them.

Rows that come with a fixture have none.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from django.contrib.auth.models import Group, User
from django.db.models import Model
from django.db.models.signals import m2m_changed, post_delete, post_save, pre_save
from django.dispatch import receiver

from flows.models import FLOW_SETTINGS, Flow, FlowVersion
from flows.portability import flows_exported
from runs.audit_log.events import AuditAction, log_audit_event
from runs.models import ApiToken, RateLimit, WebhookEndpoint

MAX_NAMES = 20
"""Names of permissions or groups that an entry lists."""
LIMIT_FIELDS = ("model", "calls_in_flight", "requests_per_minute", "tokens_per_minute")
USER_FIELDS = (
    "username", "email", "first_name", "last_name", "password", "is_active", "is_staff", "is_superuser"
)  # fmt: skip
ENDPOINT_FIELDS = ("url", "flow_id", "event_types", "is_enabled")
"""What an entry names of a webhook endpoint, without values: an address may hold a key."""
COMPARED: Mapping[type[Model], Sequence[str]] = {
    Flow: FLOW_SETTINGS,
    RateLimit: LIMIT_FIELDS,
    User: USER_FIELDS,
    WebhookEndpoint: ENDPOINT_FIELDS,
}
"""Fields whose changes an entry names."""
SHOWN_SETTINGS = frozenset({"keep_days", "keep_outputs_days"})
"""Settings of a flow with their values, as they delete data; those of others stay out: an address may hold a key."""
SHOWN_USER_FIELDS = frozenset({"username", "email"})
"""Fields of a user with their values: who signs in by them."""


def _compare(*, sender: type[Model], instance: Any, raw: bool, update_fields: Any, **_: Any) -> None:
    """Keep on the instance what is about to change: once it is saved, the old values are gone."""
    fields = [name for name in COMPARED[sender] if update_fields is None or name in update_fields]
    is_stored = not raw and fields and instance.pk is not None
    before = sender._default_manager.filter(pk=instance.pk).values(*fields).first() if is_stored else None
    instance._audit_changes = {
        name: {"from": value, "to": getattr(instance, name)}
        for name, value in (before or {}).items()
        if value != getattr(instance, name)
    }


def _log_saved(*, sender: type[Model], instance: Any, created: bool, raw: bool, update_fields: Any, **_: Any) -> None:
    if not raw:
        SAVED[sender](instance, created, frozenset(update_fields or ()))


def _log_deleted(*, sender: type[Model], instance: Model, **_: Any) -> None:
    log_audit_event(action=DELETED[sender], about=instance)


def _is_cascade(origin: Any, model: type[Model]) -> bool:
    """Whether a row is deleted with one of ``model``, which has an entry of its own."""
    return isinstance(origin, model) or getattr(origin, "model", None) is model


def _choose(changes: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: change for name, change in changes.items() if name in names}


# ---------------------------------------------------------------------------------------------------------------------
# Flows


def _log_flow(flow: Flow, created: bool, fields: frozenset[str]) -> None:
    if "live_version" in fields:
        number = flow.live_version.number if flow.live_version else None
        log_audit_event(action=AuditAction.FLOW_MADE_LIVE, about=flow, details={"version": number})
    elif "is_archived" in fields:
        log_audit_event(
            action=AuditAction.FLOW_ARCHIVED if flow.is_archived else AuditAction.FLOW_TAKEN_OUT, about=flow
        )
    elif created:
        log_audit_event(action=AuditAction.FLOW_ADDED, about=flow)
    elif not fields or fields & {*FLOW_SETTINGS}:
        # Name and title change with a version, which has an entry of its own.
        changes: Mapping[str, Any] = getattr(flow, "_audit_changes", {})
        details = {"settings": list(changes)} if changes else {}
        log_audit_event(action=AuditAction.FLOW_CHANGED, about=flow, details=details | _choose(changes, SHOWN_SETTINGS))


@receiver(flows_exported)
def _log_exported_flows(*, versions: Sequence[FlowVersion], **_: Any) -> None:
    if len(versions) == 1:
        details = {"version": versions[0].number}
        log_audit_event(action=AuditAction.FLOW_EXPORTED, about=versions[0].flow, details=details)
    else:
        log_audit_event(action=AuditAction.FLOW_EXPORTED, kind="flow", details={"flows": len(versions)})


def _log_version(version: FlowVersion, created: bool, fields: frozenset[str]) -> None:
    details = {"version": version.number, **({"note": version.note[:200]} if version.note else {})}
    log_audit_event(action=AuditAction.FLOW_PUBLISHED, about=version.flow, details=details)


@receiver(post_delete, sender=FlowVersion)
def _log_deleted_version(*, instance: FlowVersion, origin: Any = None, **_: Any) -> None:
    if not _is_cascade(origin, Flow):
        log_audit_event(action=AuditAction.VERSION_DELETED, about=instance.flow, details={"version": instance.number})


# ---------------------------------------------------------------------------------------------------------------------
# Users, groups, tokens, limits and webhook endpoints


def _log_user(user: User, created: bool, fields: frozenset[str]) -> None:
    # The plain password is there while a new one is being saved.
    is_new_password = getattr(user, "_password", None) is not None and not created
    if is_new_password:
        log_audit_event(action=AuditAction.PASSWORD_CHANGED, about=user)
    if fields and fields <= {"last_login", "password"}:
        return
    rights = {"is_active": user.is_active, "is_staff": user.is_staff, "is_superuser": user.is_superuser}
    if created:
        log_audit_event(action=AuditAction.USER_ADDED, about=user, details=rights)
        return
    changes = dict(getattr(user, "_audit_changes", {}))
    if is_new_password:
        changes.pop("password", None)
    if changes or not is_new_password:
        names = {"changed": list(changes)} if changes else {}
        details = rights | names | _choose(changes, SHOWN_USER_FIELDS)
        log_audit_event(action=AuditAction.USER_CHANGED, about=user, details=details)


def _log_group(group: Group, created: bool, fields: frozenset[str]) -> None:
    log_audit_event(action=AuditAction.GROUP_ADDED if created else AuditAction.GROUP_CHANGED, about=group)


def _log_rights(*, instance: Any, action: str, model: Any, pk_set: Any, **_: Any) -> None:
    verb = {"post_add": "added", "post_remove": "removed", "post_clear": "cleared"}.get(action)
    if verb is None or (verb != "cleared" and not pk_set):
        return
    rows = model.objects.filter(pk__in=pk_set) if pk_set else ()
    names = sorted(row.codename if hasattr(row, "codename") else str(row) for row in rows)
    more = {"more": len(names) - MAX_NAMES} if len(names) > MAX_NAMES else {}
    log_audit_event(action=AuditAction.RIGHTS_CHANGED, about=instance, details={verb: names[:MAX_NAMES], **more})


def _log_token(token: ApiToken, created: bool, fields: frozenset[str]) -> None:
    if created:
        expiry = token.expiry.date().isoformat() if token.expiry else None
        details = {"scope": token.scope, "of": token.user.get_username(), "expires": expiry}
        log_audit_event(action=AuditAction.TOKEN_MADE, kind="apitoken", label=token.name, details=details)


@receiver(post_delete, sender=ApiToken)
def _log_deleted_token(*, instance: ApiToken, origin: Any = None, **_: Any) -> None:
    if not _is_cascade(origin, User):
        details = {"of": instance.user.get_username()}
        log_audit_event(action=AuditAction.TOKEN_DELETED, kind="apitoken", label=instance.name, details=details)


def _log_limit(limit: RateLimit, created: bool, fields: frozenset[str]) -> None:
    if created:
        values = {name: getattr(limit, name) for name in LIMIT_FIELDS}
        details = {name: value for name, value in values.items() if value is not None}
        log_audit_event(action=AuditAction.LIMIT_ADDED, about=limit, details=details)
    else:
        log_audit_event(action=AuditAction.LIMIT_CHANGED, about=limit, details=getattr(limit, "_audit_changes", {}))


def _log_endpoint(endpoint: WebhookEndpoint, created: bool, fields: frozenset[str]) -> None:
    details: dict[str, Any] = {"flow": endpoint.flow.name if endpoint.flow else None}
    if created:
        log_audit_event(action=AuditAction.WEBHOOK_ENDPOINT_ADDED, about=endpoint, details=details)
    elif changes := getattr(endpoint, "_audit_changes", {}):
        details["changed"] = [name.removesuffix("_id") for name in changes]
        log_audit_event(action=AuditAction.WEBHOOK_ENDPOINT_CHANGED, about=endpoint, details=details)


# ---------------------------------------------------------------------------------------------------------------------
# What is watched

SAVED: Mapping[type[Model], Callable[..., None]] = {
    Flow: _log_flow,
    FlowVersion: _log_version,
    User: _log_user,
    Group: _log_group,
    RateLimit: _log_limit,
    ApiToken: _log_token,
    WebhookEndpoint: _log_endpoint,
}
DELETED: Mapping[type[Model], AuditAction] = {
    Flow: AuditAction.FLOW_DELETED,
    User: AuditAction.USER_DELETED,
    Group: AuditAction.GROUP_DELETED,
    RateLimit: AuditAction.LIMIT_DELETED,
    WebhookEndpoint: AuditAction.WEBHOOK_ENDPOINT_DELETED,
}
for _model in COMPARED:
    pre_save.connect(_compare, sender=_model)
for _model in SAVED:
    post_save.connect(_log_saved, sender=_model)
for _model in DELETED:
    post_delete.connect(_log_deleted, sender=_model)
for _through in (User.groups.through, User.user_permissions.through, Group.permissions.through):
    m2m_changed.connect(_log_rights, sender=_through)
