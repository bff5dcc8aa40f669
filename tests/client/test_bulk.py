"""Cancelling and re-running runs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from flows.engine.spec import AuditSpec
from runs.client import bulk
from runs.models import BulkAction, EndReason, Run, RunStatus
from runs.models.run import end_values
from tests.client.conftest import Terminal, answer
from tests.client.test_runs import build_run, make_local
from tests.engine.builders import NOON
from tests.runs.builders import claim_run, make_run, make_version
from tests.runs.executing import drain

NEVER = AuditSpec(name="Never", rule="false", message="'Too short.'")


def make_ended(count: int, **fields: Any) -> list[int]:
    """Numbers of failed runs, the oldest first."""
    version = make_version(make_local(**fields))
    ended = {"ended_at": NOON, "started_at": NOON - timedelta(seconds=9), "status": RunStatus.FAILED}
    return [make_run(version, labels=["tea"], **ended).pk for _ in range(count)]


def test_one_that_has_ended_refuses_and_keeps_no_other_from_being_cancelled(site: Terminal) -> None:
    (ended,) = make_ended(1)
    first, second, third = (make_run().pk for _ in range(3))
    assert site.run("cancel", str(first))[:2] == (0, f"Run {first} is cancelled.\n")
    assert site.run("cancel", str(ended)).status == 3
    done = site.run("cancel", str(second), str(ended), str(third))
    assert (done.status, f"Run {ended}: " in done.err) == (1, True)
    assert list(Run.objects.exclude(status="cancelled").values_list("pk", flat=True)) == [ended]


def test_a_run_is_run_again_also_with_another_input(site: Terminal) -> None:
    (first,) = make_ended(1)
    assert site.run("rerun", str(first)).out == f"Run {first + 1} of “colour-theme”, version 1: queued\n"
    assert (Run.objects.get(pk=first + 1).labels, site.run("rerun", "4711").status) == (["tea"], 3)
    found = site.run("rerun", str(first), "--live", "--input", '{"topic": "milk"}', "--json").json
    assert Run.objects.get(pk=found["id"]).input == {"topic": "milk"}


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("audits", "status"), [((), 0), ((NEVER,), 1)])
def test_how_the_new_runs_ended_is_the_exit_status(site: Terminal, audits: Any, status: int) -> None:
    numbers = [str(run_id) for run_id in make_ended(2, audits=audits, max_retries=0)]
    site.clock.on_sleep = drain
    for chosen in (numbers[:1], numbers, ["--flow", "colour-theme", "--most", "1", "--yes"]):
        assert site.run("rerun", *chosen, "--wait").status == status


def end_cancelled(run: Run) -> None:
    """What its worker does."""
    values = end_values(RunStatus.CANCELLED, EndReason.CANCELLED, "The run was cancelled.")
    Run.objects.filter(pk=run.pk).update(**values)


def test_cancelling_waits_for_the_end_if_asked_to(site: Terminal) -> None:
    run = claim_run(make_run(is_simulated=True))
    site.clock.on_sleep = lambda: end_cancelled(run)
    assert site.run("cancel", str(run.pk), "--wait").status == 0
    assert Run.objects.get().status == "cancelled"


def test_ctrl_c_leaves_a_run_alone_and_says_how_to_end_it(terminal: Terminal) -> None:
    terminal.replies = [answer(build_run(), 202), KeyboardInterrupt()]
    done = terminal.run("rerun", "7", "--wait")
    assert (done.status, "“toolflow cancel 7”" in done.err) == (130, True)


def test_nothing_is_done_to_all_that_match_without_a_yes(site: Terminal) -> None:
    run = make_run()
    silent = site.run("cancel", "--flow", "example")
    refused, agreed = (site.run("cancel", "--flow", "example", types=text) for text in ("n\n", "y\n"))
    assert [done.status for done in (silent, refused, agreed)] == [3, 3, 0]
    for done in (silent, refused, agreed):
        assert f"Cancel 1 run (the newest: {run.pk})?" in done.err
    assert BulkAction.objects.count() == 1
    assert Run.objects.get().status == "cancelled"


def test_up_to_a_number_is_run_again(site: Terminal) -> None:
    newest = make_ended(3)[-1]
    done = site.run("rerun", "--status", "failed,queued", "--most", "2", "--json", types="y\n")
    assert (done.status, done.json["done"], "Run again 2 runs (the newest: " in done.err) == (0, 2, True)
    assert Run.objects.filter(pk__gt=newest).count() == 2


def test_a_queued_run_is_cancelled_behind_many_that_have_ended(site: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "MAX_COUNTED", 2)
    run = make_run()
    make_ended(3)
    assert site.run("cancel", "--status", "failed, queued", "--yes").status == 0
    assert Run.objects.get(pk=run.pk).status == "cancelled"


@pytest.mark.parametrize("call", ["cancel --status failed", "cancel --all", "rerun --label nosuch"])
def test_where_none_matches_nothing_is_done(site: Terminal, call: str) -> None:
    make_ended(1)
    done = site.run(*call.split(), "--yes", "--json")
    assert (done.status, done.json["count"], BulkAction.objects.count()) == (0, 0, 0)


@pytest.mark.parametrize(
    "call", ["cancel", "cancel 7 --flow a", "rerun --flow a --all", "rerun --flow a --input {}", "rerun 7 --most 2"]
)
def test_what_cannot_be_meant_is_refused(terminal: Terminal, call: str) -> None:
    done = terminal.run(*call.split())
    assert (done.status, done.out, terminal.asked) == (3, "", [])


@pytest.mark.parametrize(
    ("status", "failed", "wait", "exit_status"),
    [("done", 1, (), 1), ("stopped", 0, (), 2), ("working", 0, (), 0), ("done", 0, ("--wait",), 0)],
)
def test_how_far_it_is_and_what_was_left_out_is_shown(
    terminal: Terminal, status: str, failed: int, wait: tuple[str, ...], exit_status: int
) -> None:
    action = {"id": 5, "kind": "cancel", "status": status, "done": 1, "skipped": 1, "failed": failed, "filters": {}}
    action |= {"problem": "", "label": None, "percent": 50, "run_count": 2, "page_url": "http://x/runs/bulk/5/"}
    action |= {"notes": [{"run": 7, "failed": True, "sentence": "Its flow is archived."}]}
    listed = answer({"items": [{"id": 9, "status": "queued"}], "next": None})
    begun = {**action, "status": "working"} if wait else action
    terminal.replies = [listed, answer(begun, 202), answer(action)]
    done = terminal.run("cancel", "--all", "--yes", *wait)
    assert (done.status, "Run 7: Its flow is archived." in done.err) == (exit_status, True)
    assert done.out.startswith(f"Bulk action 5: {status}, 1 cancelled, 1 skipped")
    assert "/runs/bulk/5/" in done.err
