"""What is known of a request: its id on the answer, on error pages, in problems and in the log."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from runs.observability.log_events import read_request_id

pytestmark = pytest.mark.django_db

ID = "9f8e7d6c-from-the-proxy"


@pytest.fixture
def access(settings: Any, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """The lines of requests, with all of them told."""
    settings.TOOLFLOW_ACCESS_LOG = "all"
    caplog.set_level(logging.INFO, logger="toolflow_site.middleware")
    return caplog


def read_lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.__dict__["fields"] for record in caplog.records if record.name == "toolflow_site.middleware"]


@pytest.mark.parametrize("path", ["/healthz", "/accounts/login/", "/nowhere", "/api/v1/runs/", "/admin/", "/metrics"])
def test_every_answer_names_its_request(client: Client, path: str) -> None:
    made, kept, again = client.get(path), client.get(path, headers={"X-Request-ID": ID}), client.get(path)
    assert kept["X-Request-ID"] == ID
    assert len(made["X-Request-ID"]) == 32
    assert made["X-Request-ID"] != again["X-Request-ID"]
    assert read_request_id() is None


def test_the_page_of_a_failure_names_its_request(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("django.contrib.auth.views.LoginView.get_context_data", fail)
    client.raise_request_exception = False
    answer = client.get("/accounts/login/", headers={"X-Request-ID": ID})
    assert answer.status_code == 500 and f"<code>{ID}</code>" in answer.content.decode()


class TestLines:
    def test_one_tells_of_each_request_and_not_what_was_asked_for(
        self, client: Client, access: pytest.LogCaptureFixture
    ) -> None:
        client.force_login(User.objects.create_user("ada", is_staff=True))
        client.get("/admin/?q=a-secret")
        (line,) = read_lines(access)
        assert [line[name] for name in ("method", "path", "status", "user")] == ["GET", "/admin/", 200, "ada"]
        assert line["seconds"] >= 0
        assert "a-secret" not in access.text

    @pytest.mark.parametrize(
        ("told", "paths"), [("all", ["/healthz", "/nowhere"]), ("without-probes", ["/nowhere"]), ("none", [])]
    )
    def test_probes_and_all_of_them_can_be_left_out(
        self,
        client: Client,
        access: pytest.LogCaptureFixture,
        settings: Any,
        django_assert_num_queries: Any,
        told: str,
        paths: list[str],
    ) -> None:
        settings.TOOLFLOW_ACCESS_LOG = told
        for path in ("/healthz", "/nowhere"):
            # Nobody is looked up for a line.
            with django_assert_num_queries(0):
                client.get(path)
        assert [line["path"] for line in read_lines(access)] == paths
