"""What is known of a request: its id on the answer, on error pages, in problems and in the log."""

from __future__ import annotations

import json
import logging
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from runs.observability.log_lines import JsonLines
from runs.request_id import read_request_id
from tests.api.asking import read_problem

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


def test_the_page_of_a_failure_and_its_traceback_have_the_same_id(
    client: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str | None] = []
    # Filters see a line where it is logged.
    monkeypatch.setattr(
        logging.getLogger("django.request"), "filters", [lambda record: seen.append(read_request_id()) or True]
    )

    def fail(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr("django.contrib.auth.views.LoginView.get_context_data", fail)
    client.raise_request_exception = False
    answer = client.get("/accounts/login/", headers={"X-Request-ID": ID})
    assert answer.status_code == 500
    assert f"<code>{ID}</code>" in answer.content.decode()
    assert seen == [ID]


def test_the_line_with_which_django_tells_of_a_refusal_has_the_id_too(client: Client) -> None:
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logging.root.addHandler(handler)
    try:
        client.get("/nowhere", headers={"X-Request-ID": ID})
    finally:
        logging.root.removeHandler(handler)
    (line,) = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (line["logger"], line["request_id"]) == ("django.request", ID)


def test_problems_of_the_api_name_their_request(client: Client) -> None:
    answer = client.get("/api/v1/runs/1/", headers={"X-Request-ID": ID})
    assert read_problem(answer)["request_id"] == ID


class TestLines:
    def test_one_tells_of_each_request_and_not_what_was_asked_for(
        self, client: Client, access: pytest.LogCaptureFixture
    ) -> None:
        client.force_login(User.objects.create_user("ada", is_staff=True))
        client.get("/admin/?q=a-secret")
        (line,) = read_lines(access)
        assert {name: line[name] for name in ("method", "path", "status", "user")} == {
            "method": "GET",
            "path": "/admin/",
            "status": 200,
            "user": "ada",
        }
        assert line["seconds"] >= 0
        assert "a-secret" not in access.text

    def test_to_tell_of_a_stranger_nobody_is_looked_up(
        self, client: Client, access: pytest.LogCaptureFixture, django_assert_num_queries: Any
    ) -> None:
        with django_assert_num_queries(0):
            client.get("/healthz")
        assert read_lines(access)[0]["user"] is None

    @pytest.mark.parametrize(
        ("told", "paths"), [("all", ["/healthz", "/nowhere"]), ("without-probes", ["/nowhere"]), ("none", [])]
    )
    def test_probes_and_all_of_them_can_be_left_out(
        self, client: Client, access: pytest.LogCaptureFixture, settings: Any, told: str, paths: list[str]
    ) -> None:
        settings.TOOLFLOW_ACCESS_LOG = told
        for path in ("/healthz", "/nowhere"):
            client.get(path)
        assert [line["path"] for line in read_lines(access)] == paths
