"""How log lines are written, and what is known of a request: its id on the answer, in problems and in the log."""

from __future__ import annotations

import json
import logging
import logging.config
import sys
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.http import HttpRequest
from django.test import Client

from runs.observability.log_events import (
    META_KEY,
    RunPlace,
    choose_request_id,
    current_request,
    log_event,
    read_request_id,
    run_place,
)
from runs.observability.log_lines import JsonLines, PlainLines, build_logging

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
        ("setting", "paths"), [("all", ["/healthz", "/nowhere"]), ("without-probes", ["/nowhere"]), ("none", [])]
    )
    def test_probes_and_all_of_them_can_be_left_out(
        self,
        client: Client,
        access: pytest.LogCaptureFixture,
        settings: Any,
        django_assert_num_queries: Any,
        setting: str,
        paths: list[str],
    ) -> None:
        settings.TOOLFLOW_ACCESS_LOG = setting
        for path in ("/healthz", "/nowhere"):
            # No user is looked up for a line.
            with django_assert_num_queries(0):
                client.get(path)
        assert [line["path"] for line in read_lines(access)] == paths


HOSTILE = "no\nERROR root: forged\r\x1b[31mred\x9b2J\u2028end\x00"

logger = logging.getLogger("tests.log_lines")


@pytest.fixture(params=["json", "plain"])
def format(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def written(format: str) -> Iterator[StringIO]:
    """What is written of this module's lines."""
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines() if format == "json" else PlainLines())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    yield stream
    logger.removeHandler(handler)
    logger.propagate = True


@pytest.fixture(autouse=True)
def _nowhere() -> Iterator[None]:
    yield
    run_place.set(None)


def test_what_a_model_wrote_breaks_no_line_and_steers_no_terminal(written: StringIO) -> None:
    logger.warning("The model says: %s", HOSTILE)
    text = written.getvalue()
    assert len(text.splitlines()) == 1
    assert text.rstrip("\n").isprintable()
    assert "forged" in text


def test_what_stands_in_a_traceback_looks_like_no_line_of_its_own(written: StringIO) -> None:
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        logger.exception("It failed.")
    first, *others = written.getvalue().splitlines()
    assert "It failed." in first and "ValueError" in written.getvalue()
    assert all(line.startswith("  ") and line.isprintable() for line in others)


def test_events_have_a_code_and_fields_and_lines_know_where_they_are() -> None:
    stream = StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    run_place.set(RunPlace(17, 2, 3))
    request = HttpRequest()
    request.META[META_KEY] = "request-0001"
    token = current_request.set(request)
    log_event(logger, logging.INFO, "attempt.ended", "It is over, 100 %.", outcome="passed", model=None)
    current_request.reset(token)
    logger.removeHandler(handler)
    line = json.loads(stream.getvalue())
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "tests.log_lines",
        "event": "attempt.ended",
        "message": "It is over, 100 %.",
        "run": 17,
        "step": 2,
        "attempt": 3,
        "request_id": "request-0001",
        "outcome": "passed",
    }


def test_a_message_has_an_end() -> None:
    record = logging.LogRecord("x", logging.INFO, "f.py", 1, "x" * 1_000_000, (), None)
    assert len(JsonLines().format(record)) < 11_000
    assert len(PlainLines().format(record)) < 11_000


@pytest.mark.parametrize("name", ["uvicorn.error", "django-q", "django.request", "py.warnings", "plugins.of.a.company"])
def test_what_others_log_goes_through_the_same_formatter(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = logging.root.handlers[:], logging.root.level
    other = logging.getLogger(name)
    # As uvicorn does before it loads the application.
    other.addHandler(logging.StreamHandler(sys.stderr)) if name.startswith("uvicorn") else None
    try:
        logging.config.dictConfig(build_logging(format="json", level=""))
        other.error("It failed.")
        (line,) = capsys.readouterr().err.splitlines()
    finally:
        logging.root.handlers[:], logging.root.level = before
    assert (json.loads(line)["logger"], json.loads(line)["message"]) == (name, "It failed.")


@pytest.mark.parametrize(
    ("offered", "is_kept"),
    [
        *((one, True) for one in ("01HXYZ-42.a:b", "a" * 64)),
        *((one, False) for one in (None, "", "short", "a" * 65, "line\nbreak", "-leading-dash", "<script>alert(1)")),
    ],
)
def test_an_id_that_a_request_brings_is_kept_if_it_is_sane(offered: str | None, is_kept: bool) -> None:
    chosen = choose_request_id(offered)
    assert (chosen == offered) is is_kept
    assert is_kept or (len(chosen) == 32 and chosen != choose_request_id(offered))
