"""The secrets of an installation, and the settings of webhooks."""

from __future__ import annotations

import base64
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command

from runs.webhooks.signing import list_secrets
from tests.site.test_settings import read_settings

OLD, NEW = "whsec_" + "b2xk" * 8, "whsec_" + "bmV3" * 8


def print_secret(*arguments: str) -> list[str]:
    """What the command prints, line by line."""
    out = StringIO()
    call_command("webhook_secret", *arguments, stdout=out)
    return out.getvalue().splitlines()


def test_an_installation_has_a_secret_of_its_own_that_stays(settings: Any) -> None:
    (secret,) = print_secret()
    assert len(base64.b64decode(secret.removeprefix("whsec_"), validate=True)) == 32
    assert print_secret() == [secret] == list(list_secrets())
    settings.SECRET_KEY = "another installation's key, of forty characters"
    assert print_secret() != [secret]
    assert settings.SECRET_KEY not in secret


def test_secrets_of_the_settings_are_printed_the_newest_first(settings: Any) -> None:
    settings.TOOLFLOW_WEBHOOK_SECRET = [NEW, OLD]
    assert print_secret() == [NEW, OLD]


def test_a_new_secret_is_one_that_the_settings_take(tmp_path: Path, settings: Any) -> None:
    settings.TOOLFLOW_WEBHOOK_SECRET = [OLD]
    (first,), (second,) = print_secret("--new"), print_secret("--new")
    assert first != second and OLD not in (first, second)
    found = read_settings(tmp_path, TOOLFLOW_WEBHOOK_SECRET=f"{first} {OLD}")
    assert found["TOOLFLOW_WEBHOOK_SECRET"] == [first, OLD]


@pytest.mark.parametrize(
    "secret", ["secret", "whsec_", "whsec_dG9vIHNob3J0", "whsec_" + "A" * 100, "whsec_ümläut", f"{OLD},{NEW}"]
)
def test_a_secret_that_is_none_is_refused_and_not_repeated(tmp_path: Path, secret: str) -> None:
    with pytest.raises(ImproperlyConfigured) as caught:
        read_settings(tmp_path, TOOLFLOW_WEBHOOK_SECRET=secret)
    assert "TOOLFLOW_WEBHOOK_SECRET must be whsec_ and 24 to 64 random bytes in base64" in str(caught.value)
    assert secret.removeprefix("whsec_") == "" or secret not in str(caught.value).replace("webhook_secret", "")


def test_without_settings_nothing_private_is_allowed(tmp_path: Path) -> None:
    found = read_settings(tmp_path)
    assert (found["TOOLFLOW_WEBHOOK_SECRET"], found["TOOLFLOW_WEBHOOK_ALLOW"]) == ([], [])


def test_hosts_addresses_and_networks_are_allowed(tmp_path: Path) -> None:
    text = "localhost, *.internal.example.com,10.20.0.0/16, 192.0.2.7, fd00::/8, [::1], hooks_a.example.com."
    found = read_settings(tmp_path, TOOLFLOW_WEBHOOK_ALLOW=text)
    assert found["TOOLFLOW_WEBHOOK_ALLOW"] == [part.strip() for part in text.split(",")]


@pytest.mark.parametrize(
    "target", ["https://example.com", "example.com:8080", "*", "ex*mple.com", "10.0.0.0/99", "1.2.3", "a b"]
)
def test_what_is_no_target_is_refused(tmp_path: Path, target: str) -> None:
    with pytest.raises(ImproperlyConfigured) as caught:
        read_settings(tmp_path, TOOLFLOW_WEBHOOK_ALLOW=f"localhost,{target}")
    assert f"TOOLFLOW_WEBHOOK_ALLOW names “{target}”; it must list hosts" in str(caught.value)
