"""What goes wrong around the endpoints: scripts are told in the same shape as by them."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client, RequestFactory

from flows.models import Flow
from runs.api import base
from tests.api.asking import Script, make_token, make_user, read_problem
from tests.runs.builders import make_version
from tests.runs.pages.history_builders import make_page_flow
from toolflow_site.errors import show_refusal

pytestmark = pytest.mark.django_db

TOOLS = ["validate", "preview", "try-audits"]


class Away:
    """A manager whose database is away; it counts who asks."""

    def __init__(self) -> None:
        self.asked = 0

    def filter(self, **values: Any) -> Any:
        self.asked += 1
        raise OperationalError("gone")


class TestAddressesOfTools:
    @pytest.fixture
    def away(self, monkeypatch: pytest.MonkeyPatch) -> Away:
        away = Away()
        monkeypatch.setattr(Flow, "objects", away)
        return away

    @pytest.mark.parametrize("name", TOOLS)
    def test_a_database_that_is_away_is_told_as_everywhere(self, viewer: Script, away: Away, name: str) -> None:
        assert read_problem(viewer.get(f"flows/{name}"))["status"] == 503
        assert away.asked == 1

    @pytest.mark.parametrize("name", TOOLS)
    def test_strangers_make_it_no_work(self, groups: None, away: Away, name: str) -> None:
        for script in (Script(), Script("tf_wrong")):
            for method in ("GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS"):
                answer = script.ask(method, f"flows/{name}")
                assert answer.status_code == 401
                assert "RateLimit" in answer
        assert away.asked == 0

    def test_who_asks_too_often_is_refused_first(self, groups: None, away: Away, settings: Any) -> None:
        settings.TOOLFLOW_API_READS_PER_MINUTE = 0
        script = Script(make_token(make_user("viewer", "Viewer")))
        assert script.get("flows/validate").status_code == 429
        assert away.asked == 0

    def test_the_methods_are_those_of_what_is_there(self, editor: Script) -> None:
        answer = editor.get("flows/validate")
        assert (answer.status_code, answer["Allow"]) == (405, "POST")
        Flow.objects.create(name="validate", title="Validate")
        answer = editor.ask("PATCH", "flows/validate", {})
        assert (answer.status_code, answer["Allow"]) == (405, "GET, PUT, DELETE, HEAD")


class TestAroundEndpoints:
    @pytest.mark.parametrize(("error", "status"), [(RuntimeError("bug"), 500), (OperationalError("gone"), 503)])
    def test_what_fails_in_front_of_them(
        self, viewer: Script, monkeypatch: pytest.MonkeyPatch, error: Exception, status: int
    ) -> None:
        def fail(*args: Any) -> None:
            raise error

        monkeypatch.setattr("django.contrib.sessions.middleware.SessionMiddleware.process_request", fail)
        answer = viewer.get("flows")
        assert read_problem(answer)["status"] == status
        assert answer["Cache-Control"] == "private, no-store"
        page = Client(raise_request_exception=False).get("/runs/")
        assert (page.status_code, page["Content-Type"]) == (500, "text/html; charset=utf-8")

    def test_what_fails_behind_them(self, viewer: Script, monkeypatch: pytest.MonkeyPatch) -> None:
        make_version(make_page_flow())

        def fail(*args: Any) -> None:
            raise RuntimeError("bug")

        monkeypatch.setattr(base, "leave_out_known", fail)
        problem = read_problem(viewer.get("flows/colour-theme"))
        assert (problem["status"], problem["type"]) == (500, "urn:toolflow:problem:internal-error")

    @pytest.mark.parametrize("address", ["/api/", "/api/v2/runs"])
    def test_an_address_beside_the_api(self, viewer: Script, address: str) -> None:
        problem = read_problem(viewer.get(address))
        assert (problem["status"], problem["type"]) == (404, "urn:toolflow:problem:not-found")
        page = Client().get("/nowhere")
        assert (page.status_code, page["Content-Type"]) == (404, "text/html; charset=utf-8")

    def test_a_refusal_in_front_of_them(self) -> None:
        answer = show_refusal(RequestFactory().get("/api/v1/runs"), PermissionError("Not from there."))
        assert (answer.status_code, answer["Content-Type"]) == (403, "application/problem+json")
        assert "Not from there." in answer.content.decode()
