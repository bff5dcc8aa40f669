"""What is done to runs has one entry, however many runs it is."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.test import Client

from runs.models import ApiToken, AuditEntry, Run
from runs.submission import submit_run
from tests.runs.builders import make_run, make_version

pytestmark = pytest.mark.django_db


@pytest.fixture
def ada(client: Client) -> User:
    user = User.objects.create_superuser("ada")
    client.force_login(user)
    return user


class Watch:
    """Entries from now on."""

    def __init__(self) -> None:
        self._last = AuditEntry.objects.count() and AuditEntry.objects.latest("pk").pk

    def list(self) -> list[tuple[str, str, str, dict[str, Any]]]:
        rows = AuditEntry.objects.filter(pk__gt=self._last).order_by("pk")
        return [(row.actor_name, row.token_name, row.action, dict(row.details)) for row in rows]


def test_a_run_that_is_started_on_the_page_and_cancelled(client: Client, ada: User) -> None:
    flow = make_version().flow
    watch = Watch()
    assert client.post(f"/runs/new/{flow.name}/", {"view": "json", "json": "{}"}).status_code == 302
    run = Run.objects.latest("pk")
    for _ in range(2):
        client.post(f"/runs/{run.pk}/cancel/")
    assert watch.list() == [
        ("ada", "", "run_started", {"flow": flow.name, "version": 1}),
        ("ada", "", "run_cancelled", {}),
    ]
    entry = AuditEntry.objects.filter(action="run_started").get()
    assert (entry.object_id, entry.object_label) == (str(run.pk), str(run))
    assert entry.request_id and entry.address == "127.0.0.1"


def test_runs_of_a_script_name_its_token(ada: User) -> None:
    flow = make_version().flow
    _, token = ApiToken.objects.create(user=ada, name="nightly", scope="run", expiry=None)
    script = Client(headers={"Authorization": f"Bearer {token}"})
    watch = Watch()
    script.post("/api/v1/runs", {"flow": flow.name, "input": {}}, content_type="application/json")
    many = {"flow": flow.name, "runs": [{"input": {}}] * 3}
    script.post("/api/v1/runs/bulk", many, content_type="application/json")
    first = Run.objects.earliest("pk")
    script.post(f"/api/v1/runs/{first.pk}/cancel", {}, content_type="application/json")
    script.post(f"/api/v1/runs/{first.pk}/run-again", {}, content_type="application/json")
    (one, many_at_once, *_), details = watch.list(), {"flow": flow.name, "version": 1}
    assert one == ("ada", "nightly", "run_started", details)
    numbers = list(Run.objects.order_by("pk").values_list("pk", flat=True))
    several = {**details, "runs": 3, "first": numbers[1], "last": numbers[3]}
    assert many_at_once == ("ada", "nightly", "runs_started", several)
    assert [action for _, _, action, _ in watch.list()[2:]] == ["run_cancelled", "run_started"]


@pytest.mark.parametrize(("path", "action"), [("cancel", "bulk_cancel"), ("run-again", "bulk_run_again")])
def test_what_is_done_to_many_runs_is_one_entry_with_their_number(
    client: Client, ada: User, path: str, action: str
) -> None:
    version = make_version()
    runs = [make_run(version) for _ in range(4)]
    if path == "run-again":
        for run in runs:
            assert run.request_cancel()
    watch = Watch()
    form = {"run": [run.pk for run in runs], "token": uuid4().hex, "version": "same"}
    for _ in range(2):
        assert client.post(f"/runs/bulk/{path}/", form).status_code == 302
    assert watch.list() == [("ada", "", action, {"runs": 4})]


def test_what_is_not_stored_has_no_entry() -> None:
    version = make_version()
    watch = Watch()
    with pytest.raises(ValueError, match="label"):
        submit_run(flow=version.flow, input={}, labels=["x" * 1000])
    assert watch.list() == []
