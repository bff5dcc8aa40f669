"""Scripts with tokens."""

from __future__ import annotations

import pytest
from django.apps import apps
from django.contrib.auth.models import Group

from runs.access_groups import ACCESS_GROUPS, create_groups
from tests.api.asking import Script, create_token, make_user


@pytest.fixture
def groups(db: None) -> None:
    """The groups that every installation has. Migrations make them; a test that stores its transactions takes them."""
    if Group.objects.count() < len(ACCESS_GROUPS):
        create_groups(apps=apps, using="default")


@pytest.fixture
def viewer(groups: None) -> Script:
    """The script of a viewer."""
    return Script(create_token(make_user("viewer", "Viewer")))


@pytest.fixture
def operator(groups: None) -> Script:
    """The script of an operator."""
    return Script(create_token(make_user("operator", "Operator")))


@pytest.fixture
def editor(groups: None) -> Script:
    """The script of an editor."""
    return Script(create_token(make_user("editor", "Editor")))


@pytest.fixture
def administrator(groups: None) -> Script:
    """The script of an administrator."""
    return Script(create_token(make_user("administrator", "Administrator")))
