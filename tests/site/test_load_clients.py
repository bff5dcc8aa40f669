"""The load test: its website starts, and its readers ask what the pages that they stand for ask."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from benchmarks.load import make_load_environment
from benchmarks.load_clients import Pace, find_poller, read_pace
from benchmarks.load_ledger import Ledger, find_quantile
from benchmarks.setting import Load, Setting
from runs.models import Run, RunStatus
from tests.processes import ROOT, run_python
from tests.runs.builders import make_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def reader(client: Client) -> Client:
    client.force_login(User.objects.create_superuser("ada"))
    return client


def test_they_find_where_a_page_asks_and_leave_it_when_its_run_has_ended(reader: Client) -> None:
    run = make_run(status=RunStatus.RUNNING, lease_until=timezone.now())
    address = find_poller(reader.get(f"/runs/{run.pk}/").content)
    assert address is not None and address.startswith(f"/runs/{run.pk}/live?revision=0&seen=")
    assert reader.get(address).status_code == 204
    Run.objects.update(revision=1)
    update = reader.get(address)
    assert update.status_code == 200 and "revision=1&seen=" in (find_poller(update.content) or "")
    Run.objects.update(revision=2, status=RunStatus.CANCELLED, ended_at=run.created_at, lease_until=None)
    assert find_poller(reader.get(address).content) is None


def test_they_ask_as_often_as_the_script_does() -> None:
    assert read_pace() == Pace(fastest=1, slowest=10, slowest_while_lost=30, share=0.25)
    pauses = [read_pace().choose_pause(since_change, 0) for since_change in (0, 3, 5, 20, 600)]
    assert pauses == [1, 1, 1.25, 5, 10]
    assert [read_pace().choose_pause(600, failures) for failures in (1, 2, 9)] == [2, 4, 30]


def test_what_they_were_answered_is_counted_and_sorted() -> None:
    ledger = Ledger()
    for number in range(1, 101):
        ledger.note("list", 200 if number < 100 else 503, number / 1_000)
    ledger.note("run", 0, 2.0)
    assert ledger.describe("all", ["list", "run"]) == (
        "all",
        "101",
        "none × 1, 200 × 99, 503 × 1",
        "51",
        "96",
        "100",
        "2000",
    )
    assert (ledger.find_time(["other"], 0.95), find_quantile([3.0], 1)) == (0, 3)


def test_their_website_has_settings_that_production_takes(tmp_path: Path) -> None:
    load = Load(
        minutes=1,
        users=1,
        requests_per_second=1,
        in_flight=1,
        call_seconds=1,
        web_processes=1,
        database=None,
    )
    setting = Setting(
        folder=tmp_path,
        work=tmp_path,
        rounds=1,
        runs=1,
        postgres=None,
        redis=None,
        peers=None,
        is_long=False,
        load=load,
    )
    with ExitStack() as stack:
        environment = make_load_environment(setting, tmp_path, stack, "http://127.0.0.1:9/v1")
    done = run_python("manage.py", "check", cwd=ROOT, environment=environment, timeout=60)
    assert done.returncode == 0, done.stderr
