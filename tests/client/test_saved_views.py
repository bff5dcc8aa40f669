"""Saved views from a terminal: kept, listed, used in place of filters, and deleted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from runs.models import FacetKind, Run, RunStatus, SavedView
from tests.api.asking import make_user
from tests.api.long_work import make_view
from tests.client.conftest import Terminal
from tests.engine.builders import NOON
from tests.runs.builders import make_run, make_version
from tests.runs.listed_runs import make_listed_run

pytestmark = pytest.mark.any_database


def make_failed() -> Run:
    return make_run(make_version(), status=RunStatus.FAILED, ended_at=NOON)


def list_runs(terminal: Terminal, *arguments: str) -> list[int]:
    return [run["id"] for run in terminal.run("runs", *arguments, "--json").json]


def test_one_is_kept_and_listed(terminal: Terminal) -> None:
    make_version()
    kept = terminal.run("views", "save", "Bad themes", "--flow", "example", "--status", "failed,errored", "--shared")
    view = SavedView.objects.get()
    assert (kept.status, kept.out) == (0, f"Saved view {view.pk} “Bad themes”: flow=example, status=failed,errored\n")
    assert (view.is_shared, view.owner.get_username()) == (True, "editor")
    header, row = terminal.run("views", "list").out.splitlines()
    assert header.split() == ["VIEW", "NAME", "BY", "SHARED", "CREATED", "FILTERS"]
    assert row.split()[:5] == [str(view.pk), "Bad", "themes", "editor", "yes"]
    (told,) = terminal.run("views", "list", "--json").json
    assert told["filters"] == {"flow": "example", "status": ["failed", "errored"]}


def test_its_filters_choose_runs_and_others_beside_it_count_instead(terminal: Terminal) -> None:
    failed = make_failed()
    queued = make_run(failed.version)
    terminal.run("views", "save", "Failed", "--status", "failed", "--flow", "example")
    number = str(SavedView.objects.get().pk)
    for wanted in ("Failed", number):
        assert list_runs(terminal, "--view", wanted) == [failed.pk]
    assert list_runs(terminal, "--view", "Failed", "--status", "queued") == [queued.pk]
    assert list_runs(terminal, "--view", "Failed", "--label", "none") == []
    assert terminal.run("export", "--view", "Failed").err.startswith("1 run, ")


def test_its_version_is_none_of_another_flow(terminal: Terminal) -> None:
    other = make_run(make_version(make_version().flow_spec.model_copy(update={"name": "other"})))
    second = make_run(make_version())
    terminal.run("views", "save", "Second", "--flow", "example", "--version", "2")
    assert list_runs(terminal, "--view", "Second") == [second.pk]
    assert list_runs(terminal, "--view", "Second", "--flow", "other") == [other.pk]


def test_what_is_done_to_its_runs_is_done_to_no_others(terminal: Terminal) -> None:
    version = make_version()
    nightly = make_listed_run(version, facets=[(FacetKind.LABEL, "nightly")], status=RunStatus.QUEUED)
    other = make_run(version)
    terminal.run("views", "save", "Nightly", "--label", "nightly", "--status", "queued,running")
    done = terminal.run("cancel", "--view", "Nightly", "--yes")
    assert (done.status, "1 run cancelled" in done.out) == (0, True)
    assert [Run.objects.get(pk=run.pk).status for run in (nightly, other)] == ["cancelled", "queued"]


def test_it_is_deleted_by_its_name_by_whoever_keeps_it(terminal: Terminal) -> None:
    shared = make_view(make_user("olga"), "Shared", is_shared=True)
    own, other = (make_view(make_user("editor", "Editor"), name) for name in ("Own", "Other"))
    assert terminal.run("views", "delete", "Own").out == f"Deleted view {own.pk} “Own”.\n"
    assert terminal.run("views", "delete", "Other", "--json").json["id"] == other.pk
    done = terminal.run("views", "delete", "Shared")
    sentence = f"toolflow: The view {shared.pk} “Shared” is of olga; nobody else can delete it.\n"
    assert (done.status, done.err) == (3, sentence)
    assert SavedView.objects.get() == shared


def test_a_name_that_means_none_or_several_is_told(terminal: Terminal) -> None:
    theirs = make_view(make_user("olga"), "Failed", is_shared=True)
    mine = make_view(make_user("editor", "Editor"), "Failed")
    several = f"2 saved views are called “Failed”; name one by its number: {mine.pk} of editor, {theirs.pk} of olga."
    nothing = "There is no saved view “Lost”; “toolflow views list” has their names."
    for wanted, sentence in (("Failed", several), ("Lost", nothing)):
        for arguments in (["runs", "--view", wanted], ["views", "delete", wanted]):
            done = terminal.run(*arguments)
            assert (done.status, done.out, done.err) == (3, "", f"toolflow: {sentence}\n")
    assert terminal.run("runs", "--view", str(theirs.pk)).status == 0


def test_what_can_not_be_kept_is_told(terminal: Terminal) -> None:
    make_view(make_user("editor", "Editor"), "Failed")
    for arguments, sentence in (
        (["All"], "A view has filters"),
        (["Failed", "--status", "failed"], "You have a view “Failed” already"),
        (["Odd", "--status", "odd"], "/filters/status: "),
    ):
        done = terminal.run("views", "save", *arguments)
        assert (done.status, done.out, sentence in done.err) == (3, "", True), done.err
    assert SavedView.objects.count() == 1


def test_to_share_one_takes_more_than_looking(make_terminal: Callable[..., Terminal]) -> None:
    viewer = make_terminal("Viewer")
    assert viewer.run("views", "save", "Failed", "--status", "failed").status == 0
    done = viewer.run("views", "save", "Shared", "--status", "failed", "--shared")
    assert (done.status, "takes the permission “runs.change_run”" in done.err) == (3, True)
