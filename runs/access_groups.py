"""The groups of users that every installation has, and what each of them may do.

This is the one place that says so. A migration that brings a model or a permission gets it named here and calls
``create_groups`` with their names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django.apps import apps as installed
from django.apps.registry import Apps
from django.contrib.auth.management import create_permissions

APPS = ("auth", "flows", "runs")
"""Whose permissions the groups have."""


def _name_views(app: str, *models: str) -> frozenset[str]:
    return frozenset(f"{app}.view_{model}" for model in models)


def _name_all(app: str, *models: str) -> frozenset[str]:
    return frozenset(f"{app}.{action}_{model}" for action in ("view", "add", "change", "delete") for model in models)


# Permissions of “stepdefinition” and “auditrule” outlive these models: migrations make them, and nothing deletes them.
_VIEWER = _name_views("flows", "flow", "stepdefinition", "auditrule", "flowversion")
_VIEWER |= _name_views("runs", "run", "step", "attempt", "issue", "tokenusage", "worker")
# To cancel a run is to change it.
_OPERATOR = _VIEWER | {"runs.add_run", "runs.change_run"}
# Only what never ran can be deleted, by whomsoever; versions go with their flow.
_EDITOR = _OPERATOR | {"flows.delete_flowversion"} | _name_all("flows", "flow", "stepdefinition", "auditrule")
_EDITOR |= _name_all("runs", "webhookendpoint")
_ADMINISTRATOR = _EDITOR | _name_all("runs", "ratelimit") | _name_all("auth", "user", "group")
_ADMINISTRATOR |= {"runs.view_trailentry"}

ACCESS_GROUPS: Mapping[str, frozenset[str]] = {
    "Viewer": _VIEWER,
    "Operator": _OPERATOR,
    "Editor": _EDITOR,
    "Administrator": _ADMINISTRATOR,
}
"""What members may do, as ``app.action_model``; each group may do all that those before it may."""


def create_groups(*, apps: Apps, using: str, permissions: Iterable[str] | None = None) -> None:
    """Make the groups that are missing, and give all of them those of ``permissions`` that they lack.

    ``apps`` are the models as a migration knows them; permissions of models that come later are left for later. A
    migration names the permissions that it brings, so that those removed from a group by hand stay so; None is all.
    Members stay, and so does what else a group of that name was given.
    """
    for label in APPS:
        # Django makes permissions after the last migration; here they are wanted earlier.
        create_permissions(installed.get_app_config(label), verbosity=0, apps=apps, using=using)
    permission_model, group_model = apps.get_model("auth", "Permission"), apps.get_model("auth", "Group")
    rows = permission_model.objects.using(using).filter(content_type__app_label__in=APPS)
    known: dict[str, Any] = {
        f"{row.content_type.app_label}.{row.codename}": row for row in rows.select_related("content_type")
    }
    for name, wanted in ACCESS_GROUPS.items():
        group, _ = group_model.objects.using(using).get_or_create(name=name)
        if permissions is not None:
            wanted &= frozenset(permissions)
        group.permissions.add(*(known[label] for label in wanted & known.keys()))
