"""Saved views from a terminal: used in place of filters."""

from __future__ import annotations

from runs.models import FacetKind, Run, RunStatus
from tests.api.asking import make_user
from tests.api.long_work import make_view
from tests.client.conftest import Terminal
from tests.engine.builders import NOON
from tests.runs.builders import make_run, make_version
from tests.runs.listed_runs import make_listed_run


def list_runs(terminal: Terminal, *arguments: str) -> list[int]:
    return [run["id"] for run in terminal.run("runs", *arguments, "--json").json]


def test_its_filters_choose_runs_and_others_beside_it_count_instead(terminal: Terminal) -> None:
    failed = make_run(make_version(), status=RunStatus.FAILED, ended_at=NOON)
    queued = make_run(failed.version)
    view = make_view(make_user("editor", "Editor"), query="status=failed,errored&flow=example")
    for wanted in ("Failed", str(view.pk)):
        assert list_runs(terminal, "--view", wanted) == [failed.pk]
    assert list_runs(terminal, "--view", "Failed", "--status", "queued") == [queued.pk]
    assert list_runs(terminal, "--view", "Failed", "--label", "none") == []
    assert terminal.run("export", "--view", "Failed").err.startswith("1 run, ")


def test_its_version_is_none_of_another_flow(terminal: Terminal) -> None:
    other = make_run(make_version(make_version().flow_spec.model_copy(update={"name": "other"})))
    second = make_run(make_version())
    make_view(make_user("editor", "Editor"), "Second", query="flow=example&version=2")
    assert list_runs(terminal, "--view", "Second") == [second.pk]
    assert list_runs(terminal, "--view", "Second", "--flow", "other") == [other.pk]


def test_what_is_done_to_its_runs_is_done_to_no_others(terminal: Terminal) -> None:
    version = make_version()
    nightly = make_listed_run(version, facets=[(FacetKind.LABEL, "nightly")], status=RunStatus.QUEUED)
    other = make_run(version)
    make_view(make_user("editor", "Editor"), "Nightly", query="label=nightly&status=queued,running")
    done = terminal.run("cancel", "--view", "Nightly", "--yes")
    assert (done.status, "1 run cancelled" in done.out) == (0, True)
    assert [Run.objects.get(pk=run.pk).status for run in (nightly, other)] == ["cancelled", "queued"]


def test_a_name_that_means_none_or_several_is_refused(terminal: Terminal) -> None:
    theirs = make_view(make_user("olga"), "Failed", is_shared=True)
    mine = make_view(make_user("editor", "Editor"), "Failed")
    several = f"2 saved views are called “Failed”; name one by its number: {mine.pk} of editor, {theirs.pk} of olga."
    for wanted, sentence in (("Failed", several), ("Lost", "There is no saved view “Lost”.")):
        done = terminal.run("runs", "--view", wanted)
        assert (done.status, done.out, done.err) == (3, "", f"toolflow: {sentence}\n")
    assert terminal.run("runs", "--view", str(theirs.pk)).status == 0
