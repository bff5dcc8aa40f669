"""Whose account it is that a user enters through a provider of OpenID Connect, and what they may do in it.

A user of the provider is its issuer and a subject. The first sign-in creates an account, or links one that waits for
this e-mail address; afterwards it is theirs, whatever address they or others have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group, Permission, User
from django.core.exceptions import SuspiciousOperation
from django.db import transaction
from django.db.models import Q

from runs.audit_log.actor import PROVIDER, acting_as
from runs.audit_log.events import AuditAction, log_audit_event
from runs.models import ProviderIdentity


class NotLetInError(SuspiciousOperation):
    """A user of the provider may not sign in. The text says why, in a sentence."""


class InNoGroupError(NotLetInError):
    """A user is in no group that may sign in. ``user``, if there is one, loses what groups gave it."""

    def __init__(self, user: User | None) -> None:
        super().__init__("You are in none of the groups that may sign in here.")
        self.user = user


@transaction.atomic
def let_in(claims: Mapping[str, Any]) -> User:
    """The account that the claims are about, created or linked if need be, in the groups that follow from them.

    Raises ``NotLetInError``; ``ValueError`` if the claims are not valid; ``IntegrityError`` if another request did the
    same at the same time, and a retry is worth it.
    """
    email = _read_email(claims)
    groups = _read_groups(claims)
    issuer, subject = str(claims["iss"]), str(claims["sub"])
    known = ProviderIdentity.objects.filter(issuer=issuer, subject=subject).values_list("user", flat=True).first()
    user = User.objects.select_for_update().filter(pk=known).first() if known is not None else None
    found = _fetch_by_address(email, issuer) if user is None else None
    account = user or found
    if account is not None and account.is_superuser:
        # An administrator of the provider must not become a superuser here.
        raise NotLetInError("Superusers sign in with their password.")
    if settings.TOOLFLOW_OIDC_GROUPS and not groups:
        # Only the provider can have given anything to an account without a password.
        raise InNoGroupError(user or (found if found is not None and not found.has_usable_password() else None))
    if user is None:
        user = found or User.objects.create_user(choose_name(email), email=email)
        if found is not None:
            _require_waiting(found, groups)
        ProviderIdentity.objects.create(user=user, issuer=issuer, subject=subject)
        if found is not None:
            log_audit_event(action=AuditAction.ACCOUNT_LINKED, about=user, actor=user, details={"issuer": issuer})
    put_into_groups(user, groups)
    return user


@acting_as(PROVIDER)
def put_into_groups(user: User, wanted: set[str]) -> None:
    """Make ``user`` a member of ``wanted``, and of no other group that the provider decides about."""
    if not settings.TOOLFLOW_OIDC_GROUPS:
        return
    present = set(user.groups.values_list("name", flat=True))
    for group in Group.objects.filter(name__in=set(settings.TOOLFLOW_OIDC_GROUPS.values())):
        if group.name in wanted - present:
            user.groups.add(group)
        elif group.name in present - wanted:
            user.groups.remove(group)
    # Flows are changed in the admin, which is for staff.
    can_edit = User.objects.get(pk=user.pk).has_perm("flows.change_flow")
    if user.is_staff != can_edit:
        user.is_staff = can_edit
        user.save(update_fields=["is_staff"])


def choose_name(email: str) -> str:
    """The name of a new account. Raises ``NotLetInError`` if it can't have that."""
    if User.objects.filter(username=email).exists() or len(email) > 150:
        raise NotLetInError("Your e-mail address can’t be a user name here; an administrator can fix that.")
    return email


def _fetch_by_address(email: str, issuer: str) -> User | None:
    """The account that has the address, if it is linked to no other user."""
    users = list(User.objects.select_for_update().filter(email__iexact=email)[:2])
    if len(users) > 1:
        raise NotLetInError("Several accounts here have your e-mail address; an administrator can fix that.")
    if users and ProviderIdentity.objects.filter(user=users[0], issuer=issuer).exists():
        raise NotLetInError("The account with your e-mail address belongs to another user; ask an administrator.")
    return users[0] if users else None


def _require_waiting(user: User, groups: set[str]) -> None:
    """Refuse an account that has a password already, or that may do more than the provider says."""
    is_named = user.get_username() in settings.TOOLFLOW_OIDC_LINK
    if user.has_usable_password() and not is_named:
        raise NotLetInError(
            "The account with your e-mail address has a password here; sign in with that, or ask an administrator to "
            "link it."
        )
    # Where the provider names no groups, it gives nothing, and administrators who list an account have seen its rights.
    if (settings.TOOLFLOW_OIDC_GROUPS or not is_named) and _has_more_rights(user, groups):
        raise NotLetInError(
            "The account with your e-mail address may do more here than your groups give; ask an administrator."
        )


def _has_more_rights(user: User, groups: set[str]) -> bool:
    """Whether an account has rights that these groups don't give, beside those that the provider takes away."""
    decided = set(settings.TOOLFLOW_OIDC_GROUPS.values())
    own = Permission.objects.filter(Q(user=user) | Q(group__in=user.groups.exclude(name__in=decided)))
    return own.exclude(group__name__in=groups).exists()


def _read_email(claims: Mapping[str, Any]) -> str:
    email = str(claims.get("email") or "").strip().lower()
    if not email or not _is_verified(claims):
        raise NotLetInError(f"{settings.TOOLFLOW_OIDC_NAME} has not verified your e-mail address.")
    domains = {domain.lower() for domain in settings.TOOLFLOW_OIDC_DOMAINS}
    if domains and email.rpartition("@")[2] not in domains:
        raise NotLetInError("Your e-mail address is not one of those that may sign in here.")
    return email


def _is_verified(claims: Mapping[str, Any]) -> bool:
    """What the provider says; where it says nothing at all, what the settings say of it."""
    stated = claims.get("email_verified")
    if stated is None:
        return bool(settings.TOOLFLOW_OIDC_EMAILS_VERIFIED)
    # Some providers write it as text.
    return stated is True or (isinstance(stated, str) and stated.lower() == "true")


def _read_groups(claims: Mapping[str, Any]) -> set[str]:
    """The groups here that follow from those of the provider. Raises ``ValueError`` if they are not a list."""
    stated = claims.get(settings.TOOLFLOW_OIDC_GROUPS_CLAIM)
    names = [stated] if isinstance(stated, str) else [] if stated is None else stated
    if not isinstance(names, list):
        raise ValueError("The claim with the groups is not a list.")
    return {group for name, group in settings.TOOLFLOW_OIDC_GROUPS.items() if name in names}
